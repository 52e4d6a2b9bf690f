"""The sums of Kueue's cohort tree (v0.15.0, ``pkg/cache/scheduler/resource_node.go``), against a second writing of them."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugate.policies.cluster.builder import SnapshotBuilder, snapshot_from_objects
from gpugate.policies.cluster.in_flight import Admitted
from gpugate.policies.cluster.records.common import frozen
from gpugate.policies.cluster.records.kueue import ClusterQueue, Cohort, CohortTree, Quota, ResourceGroup
from gpugate.policies.queueing.cohort_quota import Capacity, bound_without_cohort, capacity
from gpugate.policies.queueing.flavor_fit import fit_of, in_flight_into
from gpugate.policies.queueing.workload_demand import demands_of
from tests.shared.builders import container, opened, templated

_KEY = ("h100", "nvidia.com/gpu")


def _groups(nominal: int, borrowing: int | None = None, lending: int | None = None) -> tuple[ResourceGroup, ...]:
    quotas = frozen({_KEY[1]: Quota(nominal, borrowing, lending)})
    return (ResourceGroup(frozenset({_KEY[1]}), ((_KEY[0], quotas),)),)


def _queue(name: str, quota: tuple[int, int | None, int | None], cohort: str = "", reserved: int = 0) -> ClusterQueue:
    return ClusterQueue(name, frozenset({_KEY[1]}), _groups(*quota), cohort, reserved=frozen({_KEY: reserved}))


def _of(queue: ClusterQueue, *others: ClusterQueue, cohorts: tuple[Cohort, ...] = ()) -> Capacity | None:
    return capacity(CohortTree((queue, *others), {one.name: one for one in cohorts}), queue, *_KEY)


def test_a_queue_without_a_cohort_has_its_nominal_quota() -> None:
    assert _of(_queue("a", (16, None, None), reserved=20)) == Capacity(16, 16, -4, 20, 0)


def test_a_cohort_without_an_object_joins_the_queues_that_name_it() -> None:
    assert _of(_queue("a", (16, None, None), "ml"), _queue("b", (8, None, None), "ml", 3)) == Capacity(16, 24, 21, 0, 3)


def test_borrowing_and_lending_limits_bound_what_is_shared() -> None:
    lender = _queue("b", (16, None, 4), "ml")
    assert _of(_queue("a", (16, None, None), "ml"), lender) == Capacity(16, 20, 20, 0, 0)
    assert _of(_queue("a", (16, 2, None), "ml"), lender) == Capacity(16, 18, 18, 0, 0)
    assert _of(lender, _queue("a", (16, None, None), "ml")) == Capacity(16, 32, 32, 0, 0)


def test_a_cohort_brings_quota_and_limits_of_its_own() -> None:
    up, ml = Cohort("up", "", _groups(10)), Cohort("ml", "up", _groups(2, borrowing=3))
    assert _of(_queue("a", (1, None, None), "ml"), cohorts=(up, ml)) == Capacity(1, 6, 6, 0, 0)


def test_cohorts_in_a_circle_and_trees_without_end_have_no_sums() -> None:
    circle = (Cohort("ml", "up", ()), Cohort("up", "ml", ()))
    assert _of(_queue("a", (16, None, None), "ml"), cohorts=circle) is None
    chain = tuple(Cohort(f"c{at}", f"c{at + 1}", ()) for at in range(100))
    assert _of(_queue("a", (16, None, None), "c0"), cohorts=chain) is None


def test_a_borrowing_limit_bounds_a_queue_whatever_its_cohort_holds() -> None:
    assert bound_without_cohort(_queue("a", (16, 8, None), "ml"), *_KEY) == 24
    assert bound_without_cohort(_queue("a", (16, None, None), "ml"), *_KEY) is None
    assert bound_without_cohort(_queue("a", (16, 8, None)), *_KEY) == 16


# The second writing: nodes as plain maps, usage added one reservation after the other as Kueue's cache adds it.


def _plain(tree: dict[str, Any], name: str) -> int:
    node = tree[name]
    if node["queue"]:
        return int(node["nominal"])
    return int(node["nominal"]) + sum(
        min(_plain(tree, child), _plain(tree, child) if tree[child]["lending"] is None else tree[child]["lending"])
        for child in node["children"]
    )


def _keeps(tree: dict[str, Any], name: str) -> int:
    lending = tree[name]["lending"]
    return 0 if lending is None else max(_plain(tree, name) - lending, 0)


def _use(tree: dict[str, Any], name: str, amount: int) -> None:
    room = max(0, _keeps(tree, name) - tree[name]["usage"])
    tree[name]["usage"] += amount
    if tree[name]["parent"] and amount > room:
        _use(tree, tree[name]["parent"], amount - room)


def _could_have(tree: dict[str, Any], name: str) -> int:
    parent, borrowing = tree[name]["parent"], tree[name]["borrowing"]
    if not parent:
        return _plain(tree, name)
    shared = _keeps(tree, name) + _could_have(tree, parent)
    return shared if borrowing is None else min(shared, _plain(tree, name) + borrowing)


def _could_get(tree: dict[str, Any], name: str) -> int:
    node = tree[name]
    if not node["parent"]:
        return int(_plain(tree, name) - node["usage"])
    above = _could_get(tree, node["parent"])
    if node["borrowing"] is not None:
        lent = _plain(tree, name) - _keeps(tree, name)
        above = min(above, lent - max(0, node["usage"] - _keeps(tree, name)) + node["borrowing"])
    return int(above + max(0, _keeps(tree, name) - node["usage"]))


_Made: TypeAlias = tuple[CohortTree, dict[str, Any], list[ClusterQueue]]
_LIMIT = st.one_of(st.none(), st.integers(0, 12))
_QUOTA = st.tuples(st.integers(0, 20), _LIMIT, _LIMIT)


@st.composite
def _trees(draw: st.DrawFn) -> _Made:
    cohorts: dict[str, Cohort] = {}
    plain: dict[str, Any] = {}

    def node(name: str, parent: str, quota: tuple[int, int | None, int | None], *, queue: bool) -> None:
        nominal, borrowing, lending = quota
        plain[name] = {"nominal": nominal, "borrowing": borrowing, "lending": lending, "parent": parent, "usage": 0}
        plain[name] |= {"children": [], "queue": queue}
        if parent:
            plain[parent]["children"].append(name)

    for at in range(draw(st.integers(1, 5))):
        parent = f"c{draw(st.integers(0, at - 1))}" if at else ""
        # Only a root may lack an object: that a cohort has a parent is said by its object.
        quota = draw(_QUOTA) if at else draw(st.one_of(_QUOTA, st.none()))
        node(f"c{at}", parent, quota or (0, None, None), queue=False)
        if quota is not None:
            cohorts[f"c{at}"] = Cohort(f"c{at}", parent, _groups(*quota))
    queues = []
    for at in range(draw(st.integers(1, 5))):
        quota, cohort, reserved = draw(_QUOTA), f"c{draw(st.integers(0, len(plain) - 1))}", draw(st.integers(0, 15))
        queues.append((f"q{at}", quota, cohort if cohort in plain else "c0", reserved))
    made = []
    for name, quota, cohort, reserved in queues:
        node(name, cohort, quota, queue=True)
        made.append(_queue(name, quota, cohort, reserved))
    for name, _, _, reserved in draw(st.permutations(queues)):
        _use(plain, name, reserved)
    return CohortTree(made, cohorts), plain, made


@given(_trees())
def test_the_sums_are_those_of_a_second_writing_of_kueues_recursion(
    made: _Made,
) -> None:
    tree, plain, queues = made
    for queue in queues:
        found = capacity(tree, queue, *_KEY)
        assert found is not None
        assert (found.potential, found.available) == (_could_have(plain, queue.name), _could_get(plain, queue.name))


@given(_trees())
def test_a_queue_could_never_have_less_than_its_nominal_quota_nor_more_than_there_is(
    made: _Made,
) -> None:
    tree, plain, queues = made
    everything = sum(node["nominal"] for node in plain.values())
    for queue in queues:
        found = capacity(tree, queue, *_KEY)
        assert found is not None
        assert found.nominal <= found.potential <= everything
        assert found.available <= found.potential
        bound = bound_without_cohort(queue, *_KEY)
        assert bound is None or found.potential <= bound


def _local(name: str, queue: str) -> dict[str, Any]:
    return {"kind": "LocalQueue", "metadata": {"name": name, "namespace": "team-a"}, "spec": {"clusterQueue": queue}}


def _manifest(name: str, nominal: int, cohort: str = "ml", flavors: tuple[str, ...] = ("h100",)) -> dict[str, Any]:
    quotas = [{"name": flavor, "resources": [{"name": _KEY[1], "nominalQuota": nominal}]} for flavor in flavors]
    spec = {"cohortName": cohort, "resourceGroups": [{"coveredResources": [_KEY[1]], "flavors": quotas}]}
    return {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def test_a_changed_queue_or_cohort_is_counted_anew_and_nothing_else_is() -> None:
    builder = SnapshotBuilder()
    first = snapshot_from_objects([_manifest("a", 8), _manifest("b", 8)])
    builder.replace("clusterqueues", {("", name): one for name, one in first.cluster_queues.items()})
    before = builder.snapshot({})
    found = capacity(before.cohort_tree, before.cluster_queues["a"], *_KEY)
    assert found is not None
    assert found.potential == 16
    builder.put("localqueues", ("team-a", "q"), None)
    assert builder.snapshot({}).cohort_tree is before.cohort_tree

    builder.put("cohorts", ("", "ml"), Cohort("ml", "", _groups(4)))
    after = builder.snapshot({})
    found = capacity(after.cohort_tree, after.cluster_queues["a"], *_KEY)
    assert found is not None
    assert found.potential == 20


@pytest.mark.parametrize(("in_flight", "left"), [(0, 8), (6, 8), (9, 7), (16, 0), (40, 0)])
def test_what_is_in_flight_takes_other_flavors_first(in_flight: int, left: int) -> None:
    snapshot = snapshot_from_objects([_manifest("a", 8, "", ("h100", "spot")), _local("q", "a"), _local("other", "b")])
    for number, name in enumerate(("q", "other")):
        admitted = Admitted("Job", "team-a", f"w{number}", 1, name, None, {_KEY[1]: in_flight})
        snapshot.in_flight.add(f"uid-{number}", admitted)
    queue = snapshot.cluster_queues["a"]
    flying = in_flight_into(queue, snapshot)
    assert flying.get(_KEY[1], 0) == in_flight

    workload = opened(templated("Job", container(memory=None), parallelism=2), snapshot=snapshot)
    fit = fit_of(workload, demands_of(workload, snapshot)[0], queue, queue.groups[0], snapshot)
    assert fit is not None
    budget = fit.open[0]
    assert budget.available(_KEY[1], fit.in_flight_in(budget, flying).get(_KEY[1], 0)) == left


def test_a_template_takes_a_limit_ranges_request_before_its_own_limit_and_a_pod_the_other_way_round() -> None:
    bounds = {"kind": "LimitRange", "metadata": {"name": "l", "namespace": "team-a"}}
    snapshot = snapshot_from_objects([bounds | {"spec": {"limits": [{"type": "Container", "defaultRequest": {"memory": "1Gi"}}]}}])
    job, statefulset = templated("Job", container(memory="8Gi")), templated("StatefulSet", container(memory="8Gi"))
    assert [demands_of(opened(one), snapshot)[0].each["memory"] >> 30 for one in (job, statefulset)] == [1, 8]
