"""Compare the requests of a pod with what an empty node of a shape has."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, not_synced
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.memo import keep, recall
from gpugate.policies.kube.quantity import GIB, format_millicores, show_amount, show_bytes
from gpugate.policies.scheduling.node_selection import NodeCandidates, open_shapes, runtime_class
from gpugate.policies.scheduling.pod_resources import overhead_of, resolved_resources, states_by_container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests, explain_requests, pod_requests
from gpugate.policies.workloads.workload import Workload

_SHOWN_SHAPES: Final = 4


def node_request(pods: PodSet, snapshot: ClusterSnapshot, namespace: str) -> PodRequests:
    """Return the requests of one pod of ``pods`` that is created in ``namespace``.

    Formula: ``k8s.io/component-helpers/resource.PodRequests`` (Kubernetes 1.36), with the defaults of
    :mod:`gpugate.policies.scheduling.pod_resources`. Extended resources that no accelerator node has, or that a DeviceClass
    serves, are left out: dynamic resource allocation may serve them.

    Raises:
        MalformedError: an amount is no quantity.
    """
    totals = pods.totals
    if not totals.others and "runtimeClassName" not in pods.spec and namespace not in snapshot.limit_ranges:
        return pod_requests(pods)
    key = (namespace if namespace in snapshot.limit_ranges else "", totals) if states_by_container(pods) else None
    rests_on = (snapshot.limit_ranges, snapshot.device_classes, snapshot.offered)
    requests: PodRequests | None = recall(snapshot.memo, "node_request", key, *rests_on)
    if requests is None:
        requests = _resolve(pods, snapshot, namespace)
        keep(snapshot.memo, "node_request", key, requests, *rests_on)
    return requests


def _resolve(pods: PodSet, snapshot: ClusterSnapshot, namespace: str) -> PodRequests:
    requests = resolved_resources(pods, snapshot, namespace).requests
    others = {
        name: amount
        for name, amount in sorted(requests.items())
        if amount > 0
        and name not in {"memory", "cpu", *snapshot.served_by_claims}
        and not is_accelerator(name)
        and ("/" not in name or name in snapshot.offered)
    }
    return PodRequests(requests.get("memory", 0), requests.get("cpu", 0), pods.totals.accelerators, others)


def _allocatable(shape: NodeShape, name: str) -> int | None:
    """Return the amount of ``name`` (no accelerator) on a node of ``shape``; None if unknown."""
    return shape.devices.get(name, 0) if "/" in name else shape.extra.get(name)


def holds(shape: NodeShape, ask: PodRequests) -> bool:
    """Return whether an empty node of ``shape`` can hold the pod."""
    if ask.memory > shape.memory or ask.cpu > shape.cpu:
        return False
    for name, count in ask.devices.items():
        if count > shape.devices.get(name, 0):
            return False
    for name, amount in ask.others.items():
        allocatable = _allocatable(shape, name)
        if allocatable is not None and amount > allocatable:
            return False
    return True


def fitting(pods: PodSet, chosen: NodeCandidates, ask: PodRequests) -> tuple[NodeShape, ...]:
    """Return the shapes that can hold the pods and whose taints they tolerate: the identical tuple for equal requests."""
    tolerated = open_shapes(pods, chosen)
    key = None if ask.others else (pods.totals, ask.memory, ask.cpu)
    shapes: tuple[NodeShape, ...] | None = recall(chosen.memo, "fitting", key, tolerated)
    if shapes is None:
        shapes = tuple(shape for shape in tolerated if holds(shape, ask))
        keep(chosen.memo, "fitting", key, shapes, tolerated)
    return shapes


def unschedulable_finding(pods: PodSet, snapshot: ClusterSnapshot, ask: PodRequests, shapes: Sequence[NodeShape]) -> Finding:
    """Return the finding for a pod that none of ``shapes`` can ever hold."""
    names = " and ".join(sorted(ask.devices))
    shortages = "; ".join(_shortages(pods, snapshot, ask, shapes)[:_SHOWN_SHAPES])
    stated, rests_on = pod_requests(pods), ["nodes"]
    if (ask.memory, ask.cpu) != (stated.memory, stated.cpu):
        kinds = (("limitranges", snapshot.limit_ranges), ("runtimeclasses", snapshot.runtime_classes))
        rests_on += [kind for kind, records in kinds if records]
    return Finding(
        "NeverFits",
        pods.field("containers"),
        f"no node with {names} can ever hold the pod: {shortages}",
        _remedy(ask, shapes),
        measure=ask.memory + ask.cpu + sum(ask.devices.values()) + sum(ask.others.values()),
        rests_on=tuple(rests_on),
    )


def nodes_unknown(pods: PodSet) -> Finding:
    """Return the finding for nodes that are not synced."""
    return not_synced("NodesUnknown", pods.field("containers"), "the nodes", "whether any node can hold the pod")


def doubt_about(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Finding | None:
    """Return why the pods cannot be compared with nodes: facts not synced, or a RuntimeClass that contradicts them."""
    if "runtimeClassName" not in pods.spec and workload.is_pod():
        return None
    pending = ""
    if snapshot.known.get("limitranges") is SyncState.PENDING and workload.is_template():
        pending = "LimitRanges"
    elif snapshot.known.get("runtimeclasses") is SyncState.PENDING and "runtimeClassName" in pods.spec:
        pending = "RuntimeClasses"
    if not pending:
        return _contradiction(pods, snapshot)
    what = "what the pods request and whether any node can hold them"
    return not_synced("DefaultsUnknown", pods.field("containers"), f"the {pending}", what)


def _contradiction(pods: PodSet, snapshot: ClusterSnapshot) -> Finding | None:
    """Return the denial of a nodeSelector that contradicts the RuntimeClass.

    Source: ``plugin/pkg/admission/runtimeclass`` ``setScheduling`` (Kubernetes 1.36).
    """
    runtime = runtime_class(pods, snapshot)
    own = pods.spec.get("nodeSelector")
    if runtime is None or type(own) is not dict:
        return None
    for key, value in sorted(runtime.node_selector.items()):
        if own.get(key, value) != value:
            return Finding(
                "RuntimeClassClash",
                pods.field("nodeSelector", key),
                f"the pod selects {key}={own[key]} and its RuntimeClass {runtime.name} selects {key}={value}, so the API server"
                " rejects the pod",
                f"Write {key}: {value}, or name another RuntimeClass.",
                rests_on=("runtimeclasses",),
            )
    return None


def _shortages(pods: PodSet, snapshot: ClusterSnapshot, ask: PodRequests, shapes: Sequence[NodeShape]) -> list[str]:
    nodes: dict[tuple[str, str], int] = {}
    for shape in shapes:
        key = (shape.title, ", ".join(_shortage(pods, snapshot, ask, shape)))
        nodes[key] = nodes.get(key, 0) + len(shape.nodes)
    return [f"{title} ({count} node{'s' if count > 1 else ''}): {text}" for (title, text), count in nodes.items()]


def _shortage(pods: PodSet, snapshot: ClusterSnapshot, ask: PodRequests, shape: NodeShape) -> Iterator[str]:
    stated = pod_requests(pods)
    for resource, amount, own, allocatable in (
        ("memory", ask.memory, stated.memory, shape.memory),
        ("cpu", ask.cpu, stated.cpu, shape.cpu),
    ):
        if amount > allocatable:
            total = _explain(pods, snapshot, resource, amount, own)
            yield f"{resource} {total} > {show_amount(resource, allocatable)} allocatable"
    for name, count in sorted(ask.devices.items()):
        if count > shape.devices.get(name, 0):
            yield f"{name} {count} > {shape.devices.get(name, 0)} allocatable"
    for name, amount in ask.others.items():
        available = _allocatable(shape, name)
        if available is not None and amount > available:
            yield f"{name} {show_amount(name, amount)} > {show_amount(name, available)} allocatable"


def _explain(pods: PodSet, snapshot: ClusterSnapshot, resource: str, amount: int, stated: int) -> str:
    """Return the sum of ``resource`` for a message: the stated requests, then the amounts that the cluster adds."""
    overhead = 0 if pods.spec.get("overhead") else overhead_of(pods, snapshot).get(resource, 0)
    terms = (
        (overhead, f"overhead of RuntimeClass {pods.spec.get('runtimeClassName')}"),
        (amount - stated - overhead, "defaults of LimitRanges"),
    )
    added = "".join(f" + {show_amount(resource, more)} ({source})" for more, source in terms if more > 0)
    text = explain_requests(pods, resource)
    return f"{text}{added} = {show_amount(resource, amount)}" if added else text


def _remedy(ask: PodRequests, shapes: Sequence[NodeShape]) -> str:
    memory = max(shape.memory for shape in shapes)
    cpu = max(shape.cpu for shape in shapes)
    bounds, spread = [], ""
    if ask.memory > memory:
        bounds.append(f"at most {show_bytes(memory // GIB * GIB)} of memory")
    if ask.cpu > cpu:
        bounds.append(f"at most {format_millicores(cpu)} CPU")
    for name, count in sorted(ask.devices.items()):
        most = max(shape.devices.get(name, 0) for shape in shapes)
        if count > most:
            bounds.append(f"at most {most} of {name}")
            spread = ", and spread the work over several pods"
    for name, amount in ask.others.items():
        amounts = [available for shape in shapes if (available := _allocatable(shape, name)) is not None]
        if len(amounts) == len(shapes) and amount > max(amounts):
            bounds.append(f"at most {show_amount(name, max(amounts))} of {name}")
    return f"Request {' and '.join(bounds) or 'at most the resources of one of these nodes'} per pod{spread}."
