"""Compare the requests of a pod with what an empty node of a shape has."""

from collections.abc import Sequence
from typing import Final

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, not_synced
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.memo import keep, recall, remember
from gpugate.policies.kube.quantity import GIB, format_millicores, show_amount, show_bytes
from gpugate.policies.scheduling.node_selection import NodeCandidates, open_shapes, runtime_class
from gpugate.policies.scheduling.pod_resources import overhead_of, resolved_resources, states_by_container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests, explain_requests, pod_requests
from gpugate.policies.workloads.workload import Workload

_SHOWN_SHAPES: Final = 4
_NATIVE: Final = frozenset({"memory", "cpu"})


def node_request(pods: PodSet, snapshot: ClusterSnapshot, namespace: str) -> PodRequests:
    """Return what one pod of ``pods`` requests of a node once it is created in ``namespace``.

    Formula: ``k8s.io/component-helpers/resource.PodRequests`` (Kubernetes 1.36), with the defaults of
    :mod:`gpugate.policies.scheduling.pod_resources`. An extended resource that no accelerator node has is left out, since
    dynamic resource allocation may serve it; so is one that a DeviceClass serves.

    Raises:
        MalformedError: an amount is no quantity.
    """
    totals = pods.totals
    if not totals.others and "runtimeClassName" not in pods.spec and namespace not in snapshot.limit_ranges:
        return pod_requests(pods)
    if not states_by_container(pods):
        return _filled_in(pods, snapshot, namespace)
    key = (namespace if namespace in snapshot.limit_ranges else "", totals)
    rests_on = (snapshot.limit_ranges, snapshot.device_classes, snapshot.offered)
    request: PodRequests | None = recall(snapshot.memo, "asks", key, *rests_on)
    if request is None:
        request = _filled_in(pods, snapshot, namespace)
        keep(snapshot.memo, "asks", key, request, *rests_on)
    return request


def _filled_in(pods: PodSet, snapshot: ClusterSnapshot, namespace: str) -> PodRequests:
    requests = resolved_resources(pods, snapshot, namespace).requests
    claimed = {device_class.extended_resource for device_class in snapshot.device_classes.values()}
    return PodRequests(
        requests.get("memory", 0),
        requests.get("cpu", 0),
        pods.totals.accelerators,
        {name: count for name, count in sorted(requests.items()) if count > 0 and _counts(name, snapshot) and name not in claimed},
    )


def _counts(name: str, snapshot: ClusterSnapshot) -> bool:
    if name in _NATIVE or is_accelerator(name):
        return False
    return name in snapshot.offered if "/" in name else True


def amount_on(shape: NodeShape, name: str) -> int | None:
    """Return how much of ``name`` (no accelerator) a node of ``shape`` has; None if unknown."""
    return shape.devices.get(name, 0) if "/" in name else shape.extra.get(name)


def holds(shape: NodeShape, ask: PodRequests) -> bool:
    """Return whether an empty node of ``shape`` could hold the pod."""
    if ask.memory > shape.memory or ask.cpu > shape.cpu:
        return False
    for name, count in ask.devices.items():
        if count > shape.devices.get(name, 0):
            return False
    for name, amount in ask.others.items():
        room = amount_on(shape, name)
        if room is not None and amount > room:
            return False
    return True


def fitting(pods: PodSet, chosen: NodeCandidates, ask: PodRequests) -> tuple[NodeShape, ...]:
    """Return the shapes that could hold the pods and whose taints they tolerate: the identical tuple for equal requests."""
    open_to = open_shapes(pods, chosen)
    key = ("fitting", pods.totals, ask.memory, ask.cpu)
    remembered = None if ask.others else chosen.memo.get(key)
    if remembered is not None and remembered[0] is open_to:
        known: tuple[NodeShape, ...] = remembered[1]
        return known
    fitting_shapes = tuple(shape for shape in open_to if holds(shape, ask))
    if not ask.others:
        remember(chosen.memo, key, (open_to, fitting_shapes))
    return fitting_shapes


def unschedulable_finding(pods: PodSet, snapshot: ClusterSnapshot, ask: PodRequests, shapes: Sequence[NodeShape]) -> Finding:
    """Return the finding for a pod that none of ``shapes`` could ever hold."""
    names = " and ".join(sorted(ask.devices))
    sums = "; ".join(_sums(pods, snapshot, ask, shapes)[:_SHOWN_SHAPES])
    filled = [
        name for name, known in (("limitranges", snapshot.limit_ranges), ("runtimeclasses", snapshot.runtime_classes)) if known
    ]
    return Finding(
        "NeverFits",
        pods.field("containers"),
        f"no node that offers {names} could ever hold the pod: {sums}",
        _remedy(ask, shapes),
        measure=ask.memory + ask.cpu + sum(ask.devices.values()) + sum(ask.others.values()),
        rests_on=("nodes", *(filled if _is_filled(pods, ask) else ())),
    )


def nodes_unknown(pods: PodSet) -> Finding:
    """Return the finding for nodes that are not synced."""
    return not_synced("NodesUnknown", pods.field("containers"), "the nodes", "whether a node could hold the pod")


def doubt_about(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Finding | None:
    """Return why the pods cannot be compared with nodes: facts not synced, or a RuntimeClass that contradicts them."""
    if "runtimeClassName" not in pods.spec and workload.is_pod():
        return None
    pending = _fillers_pending(workload, pods, snapshot)
    return _defaults_unknown(pods, pending) if pending else _clash(pods, snapshot)


def _fillers_pending(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> str:
    """Return the kind that is not synced and sets defaults or overhead of the pods; empty if there is none."""
    if snapshot.known.get("limitranges") is SyncState.PENDING and workload.is_template():
        return "LimitRanges"
    if snapshot.known.get("runtimeclasses") is SyncState.PENDING and "runtimeClassName" in pods.spec:
        return "RuntimeClasses"
    return ""


def _defaults_unknown(pods: PodSet, kind: str) -> Finding:
    return not_synced(
        "DefaultsUnknown", pods.field("containers"), f"the {kind}", "what the pods request and whether a node could hold them"
    )


def _clash(pods: PodSet, snapshot: ClusterSnapshot) -> Finding | None:
    """Return the denial of a node selector that the RuntimeClass contradicts.

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
                f"the pod selects {key}={own[key]}, but RuntimeClass {runtime.name} selects {key}={value}, so the API rejects it",
                f"Write {key}: {value}, or name another RuntimeClass.",
                rests_on=("runtimeclasses",),
            )
    return None


def _is_filled(pods: PodSet, ask: PodRequests) -> bool:
    """Return whether defaults or overhead of the cluster add to what the pods state."""
    demand = pod_requests(pods)
    return ask.memory != demand.memory or ask.cpu != demand.cpu


def _sums(pods: PodSet, snapshot: ClusterSnapshot, ask: PodRequests, shapes: Sequence[NodeShape]) -> list[str]:
    nodes: dict[str, int] = {}
    texts: dict[str, str] = {}
    for shape in shapes:
        text = ", ".join(_lacks(pods, snapshot, ask, shape))
        key = f"{shape.title} {text}"
        nodes[key] = nodes.get(key, 0) + len(shape.nodes)
        texts[key] = f"{shape.title} ({nodes[key]} node{'s' if nodes[key] > 1 else ''}): {text}"
    return list(texts.values())


def _lacks(pods: PodSet, snapshot: ClusterSnapshot, ask: PodRequests, shape: NodeShape) -> list[str]:
    short, stated = [], pod_requests(pods)
    for resource, amount, own, has in (
        ("memory", ask.memory, stated.memory, shape.memory),
        ("cpu", ask.cpu, stated.cpu, shape.cpu),
    ):
        if amount > has:
            total = _explain(pods, snapshot, resource, amount, own)
            short.append(f"{resource} {total} > {show_amount(resource, has)} allocatable")
    for name, count in sorted(ask.devices.items()):
        if count > shape.devices.get(name, 0):
            short.append(f"{name} {count} > {shape.devices.get(name, 0)} allocatable")
    for name, amount in ask.others.items():
        room = amount_on(shape, name)
        if room is not None and amount > room:
            short.append(f"{name} {_shown(name, amount)} > {_shown(name, room)} allocatable")
    return short


def _shown(name: str, amount: int) -> str:
    return str(amount) if "/" in name else show_bytes(amount)


def _explain(pods: PodSet, snapshot: ClusterSnapshot, resource: str, amount: int, stated: int) -> str:
    """Return the sum of ``resource`` for a message: what the pods state, then what the cluster adds."""
    terms = _added(pods, snapshot, resource, amount - stated)
    texts = "".join(f" + {show_amount(resource, more)} ({source})" for more, source in terms)
    text = explain_requests(pods, resource)
    return f"{text}{texts} = {show_amount(resource, amount)}" if texts else text


def _added(pods: PodSet, snapshot: ClusterSnapshot, resource: str, more: int) -> list[tuple[int, str]]:
    """Return the amounts that the cluster adds to the stated requests, each with its source."""
    runtime = 0 if pods.spec.get("overhead") else overhead_of(pods, snapshot).get(resource, 0)
    terms = [
        (runtime, f"overhead of RuntimeClass {pods.spec.get('runtimeClassName')}"),
        (more - runtime, "defaults of LimitRanges"),
    ]
    return [(amount, source) for amount, source in terms if amount > 0]


def _remedy(ask: PodRequests, shapes: Sequence[NodeShape]) -> str:
    memory = max(shape.memory for shape in shapes)
    cpu = max(shape.cpu for shape in shapes)
    wanted, spread = [], ""
    if ask.memory > memory:
        wanted.append(f"at most {show_bytes(memory // GIB * GIB)} of memory")
    if ask.cpu > cpu:
        wanted.append(f"at most {format_millicores(cpu)} CPU")
    for name, count in sorted(ask.devices.items()):
        most = max(shape.devices.get(name, 0) for shape in shapes)
        if count > most:
            wanted.append(f"at most {most} of {name}")
            spread = ", and spread the work over several pods"
    for name, amount in ask.others.items():
        rooms = [amount_on(shape, name) for shape in shapes]
        if all(room is not None and amount > room for room in rooms):
            wanted.append(f"at most {_shown(name, max(room or 0 for room in rooms))} of {name}")
    return f"Request {' and '.join(wanted) or 'what one of these nodes has'} per pod{spread}."
