"""Pods without accelerators keep off the nodes that have them.

## What it does

Finds pods that ask for no accelerator and go to accelerator nodes all the same:

- they tolerate a taint that keeps others off those nodes, by its key (`nvidia.com/gpu`, `sku=gpu`, `dedicated=gpu`);
- they choose such nodes by label, in the node selector or the required node affinity (`nvidia.com/gpu.product`); to avoid nodes
  (`DoesNotExist`, `NotIn`) is no choice of them;
- they name such a node (`nodeName`).

In mode Enforce these are refused. They are warned only, or let be by `parts: Allow`, where other pods of the same workload ask for
accelerators (the head of a RayCluster, a launcher, a driver), and where the pods come from a workload that was judged itself.

Never judged are DaemonSets and their pods, which run on every node there is (device plugin, exporter, CNI), pods of the classes
`system-node-critical` and `system-cluster-critical`, tolerations without a key, and pods that ask KAI for a part of a GPU. In a
cluster gpugate sees pods that ask for no accelerator only where they name such a taint or label: one that names nothing but a
node is found by `gpugate review` alone ([isolation](../guide/isolation.md)).

## Why

The taint is there so that the CPUs and the memory of a GPU node are left for its GPUs. A CPU pod on such a node takes from what
the next GPU pod needs, and a node without free CPUs strands its GPUs. With a CUDA image and the NVIDIA runtime as the default one
such a pod even sees every GPU of the node.

## Practice

- Basics guide, "Taints and Tolerations": GPU nodes are tainted, and only GPU pods tolerate the taint.
- Basics guide, "Deploy NVIDIA Device Plugin" and "Monitoring GPU Usage": the DaemonSets of the node stack stay as they are.

## Example

A Deployment of a web server, warned about:

```yaml
tolerations:
  - key: nvidia.com/gpu
    operator: Exists
    effect: NoSchedule
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Mode
from gpugate.policies.framework.rule import Params, Rule, no_edits
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.cel import UNIQUE, LabelName
from gpugate.policies.kube.quantity import format_millicores, show_bytes
from gpugate.policies.kube.taints import dedicates_to_accelerators, marks_accelerators
from gpugate.policies.workloads.device_access import (
    STACK_ACCOUNTS,
    SYSTEM_CLASSES,
    AccountPatterns,
    ImagePatterns,
    asks_for_a_part,
    asks_somehow,
    goes_to_reserved_nodes,
    has_account,
    has_image,
    is_of_daemon_set,
    reserved_labels,
    reserved_tolerations,
)
from gpugate.policies.workloads.requests import pod_requests
from gpugate.policies.workloads.workload import PodSet, Workload

_SHOWN: Final = 3


class ReservedNodesParams(Params):
    """Parameters of `reserved-nodes`."""

    parts: Literal["Warn", "Allow"] = "Warn"
    """What is said of pods without accelerators of a workload whose other pods ask for some."""
    images: ImagePatterns = ()
    """Images, with `*` for any characters, of pods that may go to accelerator nodes."""
    service_accounts: AccountPatterns = STACK_ACCOUNTS
    """Service accounts (`namespace/name`, `namespace/*`) whose pods may go to accelerator nodes."""
    priority_classes: Annotated[tuple[LabelName, ...], *UNIQUE] = ()
    """Priority classes whose pods may go to accelerator nodes, besides those of the system."""


def check(workload: Workload, params: ReservedNodesParams, snapshot: ClusterSnapshot) -> Iterable[Finding]:
    """Find pods that ask for no accelerator and go to accelerator nodes."""
    going = [
        pods for pods in workload.pod_sets if pods.is_whole and (goes_to_reserved_nodes(pods) or _names_a_node(workload, pods))
    ]
    if not going or is_of_daemon_set(workload):
        return ()
    is_part = bool(workload.gpu_pod_sets())
    if is_part and params.parts == "Allow":
        return ()
    found = [one for pods in going if not _may_go(workload, pods, params) for one in _findings(workload, pods, snapshot)]
    softly = is_part or workload.owner_was_reviewed() or workload.is_child()
    return [one.as_warning() for one in found] if softly else found


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
            rests_on=("nodes",),
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


RULE = Rule(
    id="reserved-nodes",
    title="Pods that ask for no accelerator keep off the nodes that have them",
    since="0.1.0",
    params=ReservedNodesParams,
    mutate=no_edits,
    check=check,
    needs=frozenset({"nodes"}),
    documentation=__doc__,
    default_max_mode=Mode.WARN,
    default_mode_reason=(
        "Whether pods without accelerators may use the idle CPUs of accelerator nodes is for a cluster's owner to decide."
    ),
)
