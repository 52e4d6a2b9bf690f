"""Check whether a kubelet's Topology Manager could ever admit a pod, from the resources of each NUMA zone.

Formula (Kubernetes 1.36, ``pkg/kubelet/cm/topologymanager``): each device with a known place, and each whole CPU of a
Guaranteed pod under the static CPU manager, brings a hint. With ``single-numa-node`` one zone must satisfy all of them. With
``restricted`` each hint names the smallest number of zones that could hold what is asked, and all must name the same zones. A
pod that fails this is ended with ``TopologyAffinityError``, and its controller creates another, without end.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.kube.quantity import format_millicores
from gpugate.policies.workloads.container import EPHEMERAL, INIT, Container
from gpugate.policies.workloads.pod_set import PodSet


class NumaRequest(NamedTuple):
    """Resources that must be aligned together: those of one container, or of all that run at once.

    Attributes:
        who: the container or pod, for messages.
        amounts: devices by name, and millicores of exclusive ``cpu``.
    """

    who: str
    amounts: Mapping[str, int]


def exclusive_cpus(pods: PodSet) -> Mapping[int, int] | None:
    """Return the millicores of exclusive CPU by container index under the static CPU manager; None if there are none."""
    # Pod-level resources make the CPU manager step back (feature gate PodLevelResourceManagers, off by default).
    if not pods.totals.is_guaranteed or "resources" in pods.spec:
        return None
    return {at: one.amounts.cpu_limit or 0 for at, one in enumerate(pods.containers) if one.role is not EPHEMERAL}


def _devices(container: Container) -> dict[str, int]:
    limits, requests = container.every
    stated = {**requests, **limits}
    return {name: count for name, count in stated.items() if "/" in name and count > 0}


def _needs(pods: PodSet, scope: str, cpus: Mapping[int, int] | None) -> Iterator[NumaRequest]:
    together: dict[str, int] = {}
    for at, container in enumerate(pods.containers):
        if container.role is EPHEMERAL:
            continue
        amounts = _devices(container)
        if cpus and cpus.get(at):
            amounts["cpu"] = cpus[at]
        if scope != "pod":
            yield NumaRequest(container.name, amounts)
        elif container.role is not INIT:
            for name, amount in amounts.items():
                together[name] = together.get(name, 0) + amount
    if together:
        yield NumaRequest("the pod", together)


def _by_zone(shape: NodeShape, name: str) -> list[int] | None:
    """Return how much of ``name`` each zone has; None if that is uncertain."""
    amounts = [zone.allocatable.get(name, 0) for zone in shape.topology.zones] if shape.topology else []
    if name == "cpu":
        # The kubelet reports no CPUs for zones unless its CPU manager hands them out (policy_none.go GetAllocatableCPUs).
        return amounts if all(amounts) else None
    # Devices in no zone have no hint, and a device in two zones is counted twice.
    return amounts if sum(amounts) == shape.devices.get(name, 0) else None


def _fewest(zones: Sequence[int], amount: int) -> int:
    """Return the minimum number of zones that hold ``amount``; zero if all together do not."""
    totals = accumulate(sorted(zones, reverse=True))
    return next((at for at, total in enumerate(totals, 1) if total >= amount), 0)


def _refused(shape: NodeShape, need: NumaRequest, policy: str) -> bool:
    zones = {name: found for name in need.amounts if (found := _by_zone(shape, name)) is not None}
    if policy == "restricted":
        sizes = {_fewest(found, need.amounts[name]) for name, found in zones.items()} - {0}
        return len(sizes) > 1
    count = len(shape.topology.zones) if shape.topology else 0
    return not any(all(found[at] >= need.amounts[name] for name, found in zones.items()) for at in range(count))


def refusal(pods: PodSet, shape: NodeShape, cpus: Mapping[int, int] | None) -> str:
    """Return why kubelets of ``shape`` would always reject the pod, with the sums; empty if that is uncertain."""
    topology = shape.topology
    if topology is None or len(topology.zones) < 2 or topology.policy not in {"single-numa-node", "restricted"}:
        return ""
    for need in _needs(pods, topology.scope, cpus):
        if _refused(shape, need, topology.policy):
            return _explained(shape, need, topology.policy)
    return ""


def _explained(shape: NodeShape, need: NumaRequest, policy: str) -> str:
    zones = shape.topology.zones if shape.topology else ()
    names = sorted(name for name in need.amounts if _by_zone(shape, name) is not None)
    requested = ", ".join(_shown(name, need.amounts[name]) for name in names)
    has = "; ".join(f"{zone.name}: {', '.join(_shown(name, zone.allocatable.get(name, 0)) for name in names)}" for zone in zones)
    fault = "no NUMA zone has" if policy == "single-numa-node" else "need different numbers of NUMA zones"
    return f"on {shape.title} ({policy}) {need.who} requests {requested}, which {fault} ({has})"


def _shown(name: str, amount: int) -> str:
    return f"{format_millicores(amount) if name == 'cpu' else amount} {name}"
