"""Findings of the rule `reserved-nodes`."""

from collections.abc import Iterable, Iterator
from typing import Final

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.quantity import format_millicores, show_bytes
from gpugate.policies.kube.taints import dedicates_to_accelerators, marks_accelerators
from gpugate.policies.rules.security.reserved_nodes.params import ReservedNodesParams
from gpugate.policies.workloads.device_access import (
    SYSTEM_CLASSES,
    asks_for_a_part,
    asks_somehow,
    goes_to_reserved_nodes,
    has_account,
    has_image,
    is_of_daemon_set,
    reserved_labels,
    reserved_tolerations,
)
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import pod_requests
from gpugate.policies.workloads.workload import Workload

_SHOWN: Final = 3


def check(workload: Workload, params: ReservedNodesParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Find pods that ask for no accelerator and go to accelerator nodes."""
    going = [
        pods for pods in workload.pod_sets if pods.is_whole and (goes_to_reserved_nodes(pods) or _names_a_node(workload, pods))
    ]
    if not going or is_of_daemon_set(workload):
        return
    is_part = bool(workload.gpu_pod_sets())
    if is_part and params.parts == "Allow":
        return
    found = [one for pods in going if not _may_go(workload, pods, params) for one in _findings(workload, pods, snapshot)]
    yield from [one.as_warning() for one in found] if is_part or workload.is_child() else found


def _names_a_node(workload: Workload, pods: PodSet) -> bool:
    """Whether somebody wrote the name of a node, and not the scheduler."""
    return "nodeName" in pods.spec and not workload.metadata().get("uid")


def _may_go(workload: Workload, pods: PodSet, params: ReservedNodesParams) -> bool:
    if asks_somehow(pods) or asks_for_a_part(pods) or pods.is_windows():
        return True
    if str(pods.spec.get("priorityClassName")) in SYSTEM_CLASSES.union(params.priority_classes):
        return True
    if has_account(workload, pods, params.service_accounts):
        return True
    return bool(params.images) and all(has_image(one, params.images) for one in pods.containers)


def _findings(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    whose = _whose(workload, pods)
    tolerated = [(at, _shown(one)) for at, one in reserved_tolerations(pods) if _reserves(one)]
    if tolerated:
        yield Finding(
            "ToleratesTaint",
            pods.field("tolerations", tolerated[0][0]),
            f"{_listed(shown for _, shown in tolerated)} keeps pods without accelerators off accelerator nodes and is tolerated by"
            f" {whose}",
            "Remove that toleration, or ask for the accelerator under resources.limits.",
        )
    chosen = list(reserved_labels(pods))
    if chosen:
        yield Finding(
            "ChoosesNodes",
            pods.field(*chosen[0][0]),
            f"{_listed(key for _, key in chosen)} stands for accelerator nodes and is asked for by {whose}",
            "Choose nodes by labels of CPU nodes, or ask for the accelerator under resources.limits.",
        )
    shape = _shape_of(workload, pods, snapshot)
    if shape is not None:
        offers = ", ".join(f"{count} of {name}" for name, count in sorted(shape.devices.items()) if is_accelerator(name))
        yield Finding(
            "NamesNode",
            pods.field("nodeName"),
            f"node {pods.spec['nodeName']!s:.63} has {offers} and is named by {whose}",
            "Remove nodeName, or ask for the accelerator under resources.limits.",
        )


def _reserves(toleration: dict[str, object]) -> bool:
    """Whether the taint that is tolerated keeps a node for accelerators and for nothing else."""
    key, value = str(toleration.get("key")), str(toleration.get("value") or "")
    return marks_accelerators(key, value) or dedicates_to_accelerators(key, value)


def _shown(toleration: dict[str, object]) -> str:
    value = toleration.get("value")
    return f"{toleration.get('key')!s:.120}" + (f"={value!s:.63}" if value else "")


def _listed(names: Iterable[str]) -> str:
    found = sorted(set(names))
    more = len(found) - _SHOWN
    return ", ".join(found[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _whose(workload: Workload, pods: PodSet) -> str:
    """Which pods, and what they would take of such a node."""
    demand = pod_requests(pods)
    amounts = [f"{format_millicores(demand.cpu)} CPU"] if demand.cpu else []
    amounts += [f"{show_bytes(demand.memory)} of memory"] if demand.memory else []
    takes = f" with {' and '.join(amounts)}" if amounts else ""
    whose = f"a pod{takes}" if pods.count in {None, 1} else f"{pods.count} pods{takes} each" if takes else f"{pods.count} pods"
    beside = ", beside others of the workload that ask for some" if workload.gpu_pod_sets() else ""
    return f"{whose} and no accelerator{beside}" if takes else f"{whose} without accelerators{beside}"


def _shape_of(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> NodeShape | None:
    if not _names_a_node(workload, pods):
        return None
    name = pods.spec.get("nodeName")
    return next((one for one in snapshot.shapes if name in one.nodes and any(map(is_accelerator, one.devices))), None)
