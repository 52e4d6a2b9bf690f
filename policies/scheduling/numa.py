"""Check whether a kubelet's Topology Manager can ever admit a pod, from the resources of each NUMA zone.

Formula (Kubernetes 1.36, ``pkg/kubelet/cm/topologymanager``): each device with a known zone, and each whole CPU of a Guaranteed
pod under the static CPU manager, brings a hint. With ``single-numa-node`` one zone must satisfy all hints. With ``restricted``
each hint names the smallest number of zones that hold the request, and all must name the same zones. The kubelet rejects other
pods with ``TopologyAffinityError``, and their controllers create new ones again and again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape, NodeTopology
from gpugate.policies.kube.quantity import format_millicores
from gpugate.policies.workloads.container import EPHEMERAL, INIT
from gpugate.policies.workloads.pod_set import PodSet

#: Policies of a Topology Manager that admits a pod only if its resources are aligned.
REQUIRES_ALIGNMENT: Final = frozenset({"single-numa-node", "restricted"})


class NumaRequest(NamedTuple):
    """Resources that must be aligned together: those of one container, or of all containers that run at once.

    Attributes:
        source: the container or pod, for messages.
        amounts: devices by name, and millicores of exclusive ``cpu``.
    """

    source: str
    amounts: Mapping[str, int]


def exclusive_cpus(pods: PodSet) -> Mapping[int, int] | None:
    """Return the millicores of exclusive CPU by container index under the static CPU manager; None if there are none."""
    # The CPU manager ignores pods with pod-level resources (feature gate PodLevelResourceManagers, off by default).
    if not pods.totals.is_guaranteed or "resources" in pods.spec:
        return None
    containers = enumerate(pods.containers)
    return {at: container.amounts.cpu_limit or 0 for at, container in containers if container.role is not EPHEMERAL}


def _requests_of(pods: PodSet, scope: str, cpus: Mapping[int, int] | None) -> Iterator[NumaRequest]:
    total: dict[str, int] = {}
    for at, container in enumerate(pods.containers):
        if container.role is EPHEMERAL:
            continue
        limits, requests = container.every
        amounts = {name: count for name, count in {**requests, **limits}.items() if "/" in name and count > 0}
        if cpus and cpus.get(at):
            amounts["cpu"] = cpus[at]
        if scope != "pod":
            yield NumaRequest(container.name, amounts)
        elif container.role is not INIT:
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount
    if total:
        yield NumaRequest("the pod", total)


def _by_zone(shape: NodeShape, name: str) -> list[int] | None:
    """Return the amount of ``name`` in each zone; None if it is uncertain."""
    amounts = [zone.allocatable.get(name, 0) for zone in shape.topology.zones] if shape.topology else []
    if name == "cpu":
        # The kubelet reports CPUs of zones only with the static CPU manager (policy_none.go GetAllocatableCPUs).
        return amounts if all(amounts) else None
    # Devices in no zone have no hint, and a device in two zones counts twice.
    return amounts if sum(amounts) == shape.devices.get(name, 0) else None


def _zones_for(zones: Sequence[int], amount: int) -> int:
    """Return the minimum number of zones that hold ``amount``; zero if all together do not."""
    totals = accumulate(sorted(zones, reverse=True))
    return next((at for at, total in enumerate(totals, 1) if total >= amount), 0)


def refusal(pods: PodSet, shape: NodeShape, cpus: Mapping[int, int] | None) -> str:
    """Return why kubelets of ``shape`` always reject the pod, with the amounts; empty if that is uncertain."""
    topology = shape.topology
    if topology is None or len(topology.zones) < 2 or topology.policy not in REQUIRES_ALIGNMENT:
        return ""
    for request in _requests_of(pods, topology.scope, cpus):
        by_zone = {name: zones for name in sorted(request.amounts) if (zones := _by_zone(shape, name)) is not None}
        if topology.policy == "restricted":
            is_refused = len({_zones_for(zones, request.amounts[name]) for name, zones in by_zone.items()} - {0}) > 1
        else:
            numbers = range(len(topology.zones))
            is_refused = not any(all(zones[at] >= request.amounts[name] for name, zones in by_zone.items()) for at in numbers)
        if is_refused:
            return _explain(shape.title, topology, request, by_zone)
    return ""


def _explain(title: str, topology: NodeTopology, request: NumaRequest, names: Iterable[str]) -> str:
    amounts = ", ".join(_show(name, request.amounts[name]) for name in names)
    zones = "; ".join(
        f"{zone.name}: {', '.join(_show(name, zone.allocatable.get(name, 0)) for name in names)}" for zone in topology.zones
    )
    if topology.policy == "single-numa-node":
        return f"{title} ({topology.policy}): no zone has the {amounts} that {request.source} requests ({zones})"
    return f"{title} ({topology.policy}): the {amounts} that {request.source} requests need different numbers of zones ({zones})"


def _show(name: str, amount: int) -> str:
    return f"{format_millicores(amount) if name == 'cpu' else amount} {name}"
