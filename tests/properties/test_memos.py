"""What is remembered between reviews changes no answer: neither for pods that ask nearly alike, nor when facts change."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.builder import SnapshotBuilder, key_of, snapshot_from_objects
from gpugate.policies.cluster.in_flight import Admitted, InFlight
from gpugate.policies.cluster.kinds import CLUSTER_KINDS, fact_kind_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.framework.decision import BoundRule, Phase
from gpugate.policies.kube.fields import clone, lookup
from tests.properties.test_headroom import some_bounds, some_nodes, some_workloads
from tests.shared.builders import bind, decided

Object = dict[str, Any]

_MANY = settings(
    max_examples=int(os.environ.get("GPUGATE_EXAMPLES", "60")),
    deadline=None,
    derandomize="GPUGATE_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
_BOUND: tuple[BoundRule, ...] = bind(
    {"queue": {"mode": "Disabled"}, "numa": {"maxShareRatio": 1000, "maxRaiseRatio": 1000}}, mode="Enforce"
)
_KNOWN = {kind.resource: SyncState.SYNCED for kind in CLUSTER_KINDS}
_TEMPLATES = {"Pod": (), "CronJob": ("spec", "jobTemplate", "spec", "template")}
_URGENT = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1, "globalDefault": True}
_FOR_URGENT = {
    "kind": "ResourceQuota",
    "metadata": {"name": "urgent", "namespace": "team-a"},
    "spec": {
        "hard": {"requests.memory": "48Gi", "limits.cpu": "6"},
        "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}]},
    },
}
_IN_POOL = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["f"]}]}
#: Changes of a pod spec that each decide on some bound.
_IN_SPEC: list[Object] = [
    {"activeDeadlineSeconds": 60},
    {"priorityClassName": "urgent"},
    {"tolerations": [{"key": "special", "operator": "Exists"}]},
    {"nodeSelector": {"pool": "g"}},
    {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_IN_POOL]}}}},
    {"overhead": {"memory": "20Gi"}},
    {"resources": {"limits": {"memory": "90Gi", "cpu": "8"}}},
    {"runtimeClassName": "kata"},
]
#: Changes of the object itself.
_OUTSIDE = ["names", "gang", "queue", "namespace", "seen"]


def _changed(root: Object, change: Object | str) -> Object:
    """``root`` with one thing changed that decides on some bound."""
    found = clone(root)
    template = lookup(found, _TEMPLATES.get(root["kind"], ("spec", "template")))
    labels = found["metadata"]["labels"]
    if isinstance(change, dict):
        template["spec"].update(change)
    elif change == "names":
        template["spec"]["containers"][0]["name"] = "other"
    elif change == "gang":
        template.setdefault("metadata", {}).setdefault("annotations", {})["gpugate.io/gang-size"] = "3"
    elif change == "queue" and not labels.pop("kueue.x-k8s.io/queue-name", None):
        labels["kueue.x-k8s.io/queue-name"] = "q"
    elif change == "namespace":
        found["metadata"]["namespace"] = "team-b"
    elif change == "seen":
        found["status"] = {"conditions": []}
    return found


@st.composite
def _alike(draw: st.DrawFn) -> list[Object]:
    """Workloads that differ from one in a single thing each, and that one again."""
    root = draw(some_workloads())
    changes = draw(st.lists(st.sampled_from([*_IN_SPEC, *_OUTSIDE]), min_size=3, max_size=5))
    return [root, *(_changed(root, change) for change in changes), root]


def _flavor(name: str, spec: Object) -> Object:
    return {"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


@st.composite
def _bounds(draw: st.DrawFn) -> list[Object]:
    """All that bounds pods, with flavors that not every pod may be given, and perhaps a class for those without one."""
    found = [one for one in draw(some_bounds()) if one["kind"] != "ResourceFlavor"]
    taint = {"key": "special", "value": "x", "effect": "NoSchedule"}
    specs: list[Object] = [{}, {"nodeLabels": {"pool": "f"}}, {"nodeTaints": [taint]}]
    found += [_flavor(name, draw(st.sampled_from(specs))) for name in ("f", "g")]
    return found + draw(st.sampled_from([[], [_FOR_URGENT], [_FOR_URGENT, _URGENT]]))


@st.composite
def _history(draw: st.DrawFn) -> list[list[Object]]:
    """What there is at one time after another: first all of it, then objects of one kind changed, and back again."""
    nodes, first, others = draw(some_nodes()), draw(_bounds()), draw(_bounds())
    kinds = sorted({one["kind"] for one in (*first, *others)})
    times = [first]
    for kind in draw(st.permutations(kinds))[:3]:
        changed = [one for one in first if one["kind"] != kind] + [one for one in others if one["kind"] == kind]
        times += [changed, first]
    return [[*nodes, *bounds] for bounds in times]


def _take(builder: SnapshotBuilder, objects: Iterable[Object]) -> ClusterSnapshot:
    records: dict[str, dict[tuple[str, str], Any]] = {}
    for obj in objects:
        kind = fact_kind_of(obj)
        assert kind is not None
        records.setdefault(kind.resource, {})[key_of(obj)] = kind.read(obj)
    for resource in _KNOWN:
        builder.replace(resource, records.get(resource, {}))
    return builder.snapshot(_KNOWN)


def _let_in(in_flight: InFlight) -> None:
    amounts = {"memory": 8 << 30, "cpu": 2000, "nvidia.com/gpu": 1}
    in_flight.add("u", Admitted("Pod", "team-a", "other", 1, "q", None, amounts))


def _assert_same(root: Object, snapshot: ClusterSnapshot, alone: ClusterSnapshot) -> None:
    for phase in (Phase.MUTATE, Phase.CHECK):
        found, wanted = (decided(clone(root), _BOUND, snapshot=one, phase=phase) for one in (snapshot, alone))
        assert (found.patch, found.changes, found.findings) == (wanted.patch, wanted.changes, wanted.findings)


@given(_alike(), _history(), st.booleans())
@_MANY
def test_what_is_remembered_changes_no_answer(roots: list[Object], history: list[list[Object]], flying: bool) -> None:
    builder = SnapshotBuilder()
    for objects in history:
        snapshot = _take(builder, objects)
        for root in roots:
            _assert_same(root, snapshot, snapshot_from_objects(objects, _KNOWN))
        if flying:
            _let_in(snapshot.in_flight)
            alone = snapshot_from_objects(objects, _KNOWN)
            _let_in(alone.in_flight)
            _assert_same(roots[0], snapshot, alone)
            snapshot.in_flight.remove("u")
