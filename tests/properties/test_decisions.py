"""What holds for every object, policy and cluster whatever."""

from __future__ import annotations

from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.findings import Severity
from gpugate.policies.framework.decision import BoundRule, Decision, Phase
from gpugate.policies.kube.fields import MalformedError, clone
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from tests.shared import shapes, strategies
from tests.shared.builders import bind, every_rule, texts

Object = dict[str, Any]

_QUICK = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
}
_REALISTIC = settings(max_examples=150, **_QUICK)
_WILD = settings(max_examples=200, **_QUICK)


def _decide(
    root: Object,
    bound: tuple[BoundRule, ...],
    snapshot: ClusterSnapshot,
    *,
    old: Object | None = None,
    phase: Phase = Phase.REVIEW,
    subresource: str = "",
) -> Decision:
    kind = kind_of(root["apiVersion"], root["kind"])
    assert kind is not None
    operation = "CREATE" if old is None else "UPDATE"
    workload = open_workload(kind, root, snapshot, operation=operation, old=clone(old), subresource=subresource)
    return decide(workload, bound, snapshot, phase)


def _assert_laws(before: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot, old: Object | None = None) -> None:
    """The patch gives the decided object; deciding again changes nothing; the same again gives the same."""
    root = clone(before)
    decision = _decide(root, bound, snapshot, old=old)
    assert decision.failures == []
    assert jsonpatch.apply_patch(before, decision.patch) == root
    wire = orjson.dumps(decision.patch)
    assert jsonpatch.apply_patch(before, orjson.loads(wire)) == root

    again = clone(root)
    assert _decide(again, bound, snapshot, old=old).patch == []
    assert again == root

    twin = _decide(clone(before), bound, snapshot, old=old)
    assert orjson.dumps(twin.patch) == wire
    assert twin.findings == decision.findings
    for one in decision.findings:
        assert one.finding.remedy.endswith("."), one.finding
        text = f"{one.finding.message} {one.finding.remedy}"
        assert "is immutable" not in text
        assert "immutable field" not in text


@given(strategies.workloads(), strategies.bound_rules(), strategies.clusters())
@_REALISTIC
def test_a_created_workload_obeys_the_laws(root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot) -> None:
    _assert_laws(root, bound, snapshot)


@given(st.data(), strategies.bound_rules(), strategies.bound_rules(), strategies.clusters())
@_REALISTIC
def test_an_updated_workload_obeys_the_laws(data: st.DataObject, before: Any, after: Any, snapshot: ClusterSnapshot) -> None:
    old = data.draw(strategies.workloads())
    new = data.draw(strategies.workloads(strategies.name_of(old))) if data.draw(st.booleans()) else clone(old)
    _decide(old, before, snapshot)
    _assert_laws(new, after, snapshot, old)


@given(st.data(), strategies.bound_rules(), strategies.bound_rules(), strategies.clusters(), strategies.clusters())
@_REALISTIC
def test_gits_own_version_sent_again_gives_the_old_template_back(
    data: st.DataObject, before: Any, after: Any, then: ClusterSnapshot, now: ClusterSnapshot
) -> None:
    kind = data.draw(st.sampled_from([*shapes.KINDS, "Job", "Deployment", "StatefulSet", "CronJob"]))
    git = data.draw(strategies.workloads(kind))
    git["metadata"].pop("ownerReferences", None)
    (git["metadata"].get("annotations") or {}).pop("gpugate.io/mutations", None)
    live = clone(git)
    _decide(live, before, then)
    root = clone(git)
    _decide(root, after, now, old=live)
    assert _without_nulls(root["spec"]) == _without_nulls(live["spec"])


def _without_nulls(value: Any) -> Any:
    """``value`` as the apiserver keeps it, which knows no null and no empty map where one is left out."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


@given(strategies.workloads(), strategies.bound_rules("DryRun"), strategies.clusters())
@_REALISTIC
def test_dryrun_changes_nothing_and_says_what_would_be(
    root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot
) -> None:
    before, done = clone(root), clone(root)
    decision = _decide(root, bound, snapshot)
    assert root == before
    assert (decision.patch, decision.changes, decision.refused) == ([], [], False)
    assert {one.severity for one in decision.findings} <= {Severity.DRYRUN}

    enforced = tuple(one._replace(mode=one.forecast) for one in bound)
    real = _decide(done, enforced, snapshot)
    assert texts(decision.would_change) == texts(real.changes)
    assert [one.finding for one in decision.findings] == [one.finding for one in real.findings]


@given(strategies.workloads(), strategies.bound_rules("Enforce"), strategies.clusters())
@_REALISTIC
def test_what_the_mutating_door_leaves_the_validating_door_judges_as_a_review_does(
    root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot
) -> None:
    reviewed = clone(root)
    review = _decide(reviewed, bound, snapshot)
    _decide(root, bound, snapshot, phase=Phase.MUTATE)
    assert root == reviewed
    judged = _decide(root, bound, snapshot, phase=Phase.CHECK)
    assert root == reviewed
    assert judged.refused == any(one.severity is Severity.DENY and one.finding.reason != "HeldBack" for one in review.findings)


@given(strategies.workloads(), strategies.bound_rules("Enforce"), strategies.clusters())
@_REALISTIC
def test_an_update_that_touches_neither_spec_nor_metadata_is_nobodys_business(
    root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot
) -> None:
    new = root | {"status": {"phase": "Running"}}
    decision = _decide(clone(new), bound, snapshot, old=root)
    assert (decision.patch, decision.findings) == ([], [])


@given(
    strategies.workloads(),
    strategies.bound_rules("Enforce"),
    strategies.clusters(),
    st.sampled_from(["resize", "ephemeralcontainers", ""]),
)
@_REALISTIC
def test_an_update_as_bad_as_before_is_never_refused(root: Object, bound: Any, snapshot: ClusterSnapshot, subresource: str) -> None:
    new = clone(root)
    labels = new["metadata"].setdefault("labels", {})
    if labels is None:
        new["metadata"]["labels"] = labels = {}
    labels["seen"] = "yes"
    decision = _decide(new, bound, snapshot, old=root, subresource=subresource)
    assert not decision.refused, [one for one in decision.findings if one.severity is Severity.DENY]


def _assert_survives(root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot, old: Object | None = None) -> None:
    for phase in (Phase.REVIEW, Phase.CHECK):
        before = clone(root)
        decided = clone(root)
        try:
            decision = _decide(decided, bound, snapshot, old=old, phase=phase)
        except MalformedError as error:
            assert str(error)
            assert not str(error).startswith(":")
            continue
        assert decision.failures == [], repr(decision.failures)
        assert jsonpatch.apply_patch(before, decision.patch) == decided
        orjson.dumps(decision.patch)


@given(strategies.damaged(strategies.workloads()), strategies.bound_rules(), strategies.clusters())
@_WILD
@example({"apiVersion": "v1", "kind": "Pod"}, every_rule(), EMPTY_SNAPSHOT)
@example({"apiVersion": "v1", "kind": "Pod", "metadata": None, "spec": None}, every_rule(), EMPTY_SNAPSHOT)
def test_a_damaged_workload_is_judged_or_malformed(root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot) -> None:
    _assert_survives(root, bound, snapshot)


@given(strategies.nonsense(), st.sampled_from(["Enforce", "DryRun"]))
@_WILD
def test_any_json_is_judged_or_malformed(root: Object, mode: str) -> None:
    _assert_survives(root, every_rule(mode), EMPTY_SNAPSHOT)


@given(st.data(), strategies.bound_rules(), strategies.clusters())
@_WILD
def test_a_damaged_update_is_judged_or_malformed(
    data: st.DataObject, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot
) -> None:
    kind = data.draw(st.sampled_from([*shapes.KINDS, "Pod", "Job", "CronJob", "Deployment"]))
    old = data.draw(strategies.damaged(strategies.workloads(kind)))
    new = data.draw(strategies.damaged(strategies.workloads(kind)))
    _assert_survives(new, bound, snapshot, old)


def _lasting_clusters() -> list[tuple[list[Object], ClusterSnapshot]]:
    """Snapshots that outlive every example, so that what one workload leaves in their memos meets the next."""
    alike = [strategies.node_like(f"n{at}", **{"nvidia.com/gpu": "8"}) for at in range(2)]
    several = [
        strategies.node_like(
            "h",
            {"nvidia.com/gpu.product": "H100", "gpugate.io/numa-aligned": "true", "nvidia.com/gpu.memory": "81559"},
            **{"nvidia.com/gpu": "8"},
        ),
        strategies.node_like(
            "t",
            {"nvidia.com/gpu.product": "T4", "zone": "a", "nvidia.com/gpu.memory": "15360"},
            cpu="4",
            memory="16Gi",
            **{"nvidia.com/gpu": "1"},
        ),
        strategies.node_like("m", {"topology.kubernetes.io/NUMANode": "0"}, **{"nvidia.com/mig-1g.5gb": "7", "amd.com/gpu": "8"}),
    ]
    claim = {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    claims = [
        {"kind": "ResourceClaim", "metadata": {"name": "one-gpu", "namespace": space}, "spec": claim}
        for space in ("default", "team-a")
    ]
    return [(objects, snapshot_from_objects(objects)) for objects in ([], claims, alike + claims, several + claims)]


_LASTING = _lasting_clusters()
_LASTING_RULES = [
    every_rule("Enforce"),
    every_rule("DryRun"),
    bind(
        {
            "numa": {"alignedNodes": {"key": "gpugate.io/numa-aligned"}, "affinity": "Required", "ncclEnv": {"NCCL_DEBUG": "INFO"}},
            "tolerations": {"taints": [{"key": "sku"}]},
            "host-memory": {"memoryPerAccelerator": "48Gi", "nodeReserve": 0.3},
            "gang": {"scheduler": "Volcano"},
        },
        mode="Enforce",
    ),
]


@given(
    st.lists(strategies.workloads(), min_size=2, max_size=4),
    st.sampled_from(range(len(_LASTING))),
    st.sampled_from(range(len(_LASTING_RULES))),
)
@_REALISTIC
def test_what_is_remembered_of_one_workload_changes_nothing_for_another(roots: list[Object], cluster: int, rules: int) -> None:
    objects, lasting = _LASTING[cluster]
    for root in roots:
        warm, cold = clone(root), clone(root)
        remembered = _decide(warm, _LASTING_RULES[rules], lasting)
        fresh = _decide(cold, _LASTING_RULES[rules], snapshot_from_objects(objects))
        assert warm == cold
        assert remembered == fresh


_LOOK_ALIKES: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (0, False),
    ("1", 1),
    ("", None),
    ("1Gi", "1gi"),
    (2**63, float(2**63)),
]


@pytest.mark.parametrize("pair", [*_LOOK_ALIKES, *((other, one) for one, other in _LOOK_ALIKES)], ids=str)
@pytest.mark.parametrize("resource", ["memory", "cpu", "nvidia.com/gpu"])
def test_values_that_look_alike_are_told_apart_whichever_comes_first(pair: tuple[Any, Any], resource: str) -> None:
    def outcome(value: Any, unique: object) -> str:
        # Another resource beside it makes sure that nothing was remembered before.
        limits = {"nvidia.com/gpu": "1", "memory": "8Gi", "example.com/unique": unique, resource: value}
        root = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {},
            "spec": {"containers": [{"name": "m", "resources": {"limits": limits}}]},
        }
        try:
            decision = _decide(root, every_rule(), EMPTY_SNAPSHOT)
        except MalformedError as error:
            return f"malformed: {error.path}"
        return repr([root["spec"], decision.findings]).replace(str(unique), "unique")

    alone = [outcome(value, f"{at}{resource}{pair}".encode().hex()) for at, value in enumerate(pair)]
    shared = f"shared{resource}{pair}".encode().hex()
    assert [outcome(value, shared) for value in pair] == alone
