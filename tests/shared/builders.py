"""Small objects to build on, and the engine in one call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpugate.policies.cluster.node_shapes import NodeShapeIndex
from gpugate.policies.cluster.nodes import Node, NodeShape
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.framework.decision import BoundRule, BoundRules, Change, Decision, Phase
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import API_VERSION, KIND, Policy, parse_policy
from gpugate.policies.policy.profiles import OFFLINE
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

Object = dict[str, Any]


def container(name: str = "main", *, gpus: object = 1, memory: object = "64Gi", **more: Any) -> Object:
    """A container with accelerators and a memory limit; None leaves either out."""
    limits = {key: value for key, value in (("nvidia.com/gpu", gpus), ("memory", memory)) if value is not None}
    return {"name": name, "resources": {"limits": limits}} | more


def pod(*containers: Object, annotations: Object | None = None, **spec: Any) -> Object:
    metadata: Object = {"name": "p", "namespace": "team-a"}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": list(containers), **spec}}


def templated(kind: str, *containers: Object, **more: Any) -> Object:
    """A Job, Deployment or StatefulSet; ``more`` goes into its spec."""
    group = "batch/v1" if kind == "Job" else "apps/v1"
    spec = {"template": {"spec": {"containers": list(containers)}}, **more}
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "w", "namespace": "team-a"}, "spec": spec}


def node(name: str, *, labels: Object | None = None, taints: Sequence[Object] = (), **allocatable: Any) -> Object:
    amounts = {"cpu": "96", "memory": "1000Gi", "nvidia.com/gpu": "8", **allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": amounts},
    }


def shapes_of(nodes: Iterable[Node]) -> tuple[NodeShape, ...]:
    """``nodes`` grouped into shapes."""
    index = NodeShapeIndex()
    for one in nodes:
        index.put(one.name, one)
    return index.shapes()


def policy(name: str = "test", **spec: Any) -> Policy:
    """A policy of the profile that offline reviews use; ``spec`` overrides it."""
    spec = {"profile": OFFLINE, **spec}
    return parse_policy({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec})


#: Parameters by which rules edit resources of every workload, also where no nodes are known.
AMOUNTS: dict[str, Object] = {
    "host-memory": {"memoryPerAccelerator": "32Gi"},
    "numa": {"guaranteed": "Always", "cpuPerAccelerator": "4"},
}


def bind(rules: Object | None = None, **spec: Any) -> tuple[BoundRule, ...]:
    """What one policy binds for an object without labels; it names amounts of memory and CPU, and alignment."""
    rules = rules or {}
    named = {rule: amounts | rules.get(rule, {}) for rule, amounts in AMOUNTS.items() if rule in rules or "mode" in spec}
    return PolicySet([policy(rules=rules | named, **spec)]).bind({}, {})


def every_rule(mode: str = "Enforce") -> tuple[BoundRule, ...]:
    return bind(mode=mode)


def texts(changes: Iterable[Change]) -> list[tuple[str, tuple[str, ...]]]:
    """The rules and notes of ``changes``, without the modes, which say whether they are made."""
    return [(change.rule, change.notes) for change in changes]


def opened(
    root: Object, *, snapshot: ClusterSnapshot = EMPTY_SNAPSHOT, old: Object | None = None, subresource: str = ""
) -> Workload:
    kind = kind_of(root["apiVersion"], root["kind"])
    assert kind is not None
    operation = "CREATE" if old is None else "UPDATE"
    return open_workload(kind, root, snapshot, operation=operation, old=old, subresource=subresource)


def decided(
    root: Object,
    bound: Iterable[BoundRule],
    *,
    snapshot: ClusterSnapshot = EMPTY_SNAPSHOT,
    old: Object | None = None,
    subresource: str = "",
    phase: Phase = Phase.REVIEW,
    now: float | None = None,
    user: str | None = None,
) -> Decision:
    """The decision on ``root``, which is edited in place."""
    workload = opened(root, snapshot=snapshot, old=old, subresource=subresource)
    rules = bound if isinstance(bound, BoundRules) else tuple(bound)
    return decide(workload, rules, snapshot, phase, now=now, user=user)


def pods_of(root: Object) -> PodSet:
    return opened(root).pod_sets[0]


def reasons(decision: Decision) -> list[tuple[str, str, str]]:
    return [(one.rule, one.finding.reason, one.severity.value) for one in decision.findings]
