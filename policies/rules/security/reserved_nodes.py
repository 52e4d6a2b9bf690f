"""Pods without accelerators keep off the nodes that have them.

## What it does

Finds pods that request no accelerator and still go to accelerator nodes:

- they tolerate a taint that keeps others off those nodes, by its key (`nvidia.com/gpu`, `sku=gpu`, `dedicated=gpu`);
- they select such nodes by label, in the node selector or the required node affinity (`nvidia.com/gpu.product`); to avoid nodes
  (`DoesNotExist`, `NotIn`) does not select them;
- they name such a node (`nodeName`);
- they tolerate every taint (`operator: Exists` without a key), which is always a warning.

In mode Enforce the others are refused. They only get a warning, or nothing by `parts: Allow`, if other pods of the same workload
request accelerators (the head of a RayCluster, a launcher, a driver), or if the pods come from a workload that was reviewed.

The rule ignores DaemonSets and their pods, which run on every node (device plugin, exporter, CNI), pods of the classes
`system-node-critical` and `system-cluster-critical`, and pods that request a part of a GPU from KAI. A pod that only names a node
or tolerates every taint never waits for the webhook: `gpugate review` and the audit report it ([isolation](../guide/isolation.md)).

## Why

The taint keeps the CPUs and the memory of a GPU node for its GPUs. A CPU pod there takes what the next GPU pod needs, and a node
without free CPUs strands its GPUs. With a CUDA image and the NVIDIA runtime as the default one, it even sees every GPU.

## Practice

- Basics guide, "Taints and Tolerations": GPU nodes are tainted, and only GPU pods tolerate the taint.
- Basics guide, "Deploy NVIDIA Device Plugin" and "Monitoring GPU Usage": the DaemonSets of the node stack stay as they are.

## Example

A Deployment of a web server, which gets a warning:

```yaml
tolerations:
  - key: nvidia.com/gpu
    operator: Exists
    effect: NoSchedule
```
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Mode
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.cel import UNIQUE, LabelName
from gpugate.policies.kube.quantity import format_millicores, show_bytes
from gpugate.policies.kube.taints import dedicates_to_accelerators, is_transient_taint, marks_accelerators
from gpugate.policies.workloads.device_access import (
    STACK_ACCOUNTS,
    SYSTEM_CLASSES,
    SYSTEM_NAMESPACES,
    AccountPatterns,
    ImagePatterns,
    asks_for_a_part,
    asks_somehow,
    goes_to_reserved_nodes,
    has_account,
    has_image,
    is_of_daemon_set,
    names_a_node,
    reserved_labels,
    reserved_tolerations,
    toleration_of_everything,
)
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import pod_requests
from gpugate.policies.workloads.workload import Workload

_SHOWN: Final = 3


class ReservedNodesParams(Params):
    """Parameters of `reserved-nodes`."""

    parts: Literal["Warn", "Allow"] = "Warn"
    """Whether pods without accelerators get a warning or nothing if other pods of their workload request some."""
    images: ImagePatterns = ()
    """Images, with `*` for any characters, of pods that may go to accelerator nodes."""
    service_accounts: AccountPatterns = STACK_ACCOUNTS
    """Service accounts (`namespace/name`, `namespace/*`) whose pods may go to accelerator nodes."""
    priority_classes: Annotated[tuple[LabelName, ...], *UNIQUE] = ()
    """Priority classes whose pods may go to accelerator nodes, besides those of the system."""


def check(workload: Workload, params: ReservedNodesParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Find pods that request no accelerator and go to accelerator nodes."""
    going = [
        pods
        for pods in workload.pod_sets
        if not pods.requests_gpu()
        and pods.is_whole
        and (goes_to_reserved_nodes(pods) or names_a_node(workload, pods) or toleration_of_everything(pods) is not None)
    ]
    if not going or is_of_daemon_set(workload):
        return
    is_part = bool(workload.gpu_pod_sets())
    if is_part and params.parts == "Allow":
        return
    as_warning = is_part or workload.is_child()
    for pods in going:
        if not _may_go(workload, pods, params):
            for finding in _findings(workload, pods, snapshot):
                yield finding.as_warning() if as_warning else finding


def _may_go(workload: Workload, pods: PodSet, params: ReservedNodesParams) -> bool:
    return (
        asks_somehow(pods)
        or asks_for_a_part(pods)
        or pods.is_windows()
        or str(pods.spec.get("priorityClassName")) in SYSTEM_CLASSES.union(params.priority_classes)
        or has_account(workload, pods, params.service_accounts)
        or (bool(params.images) and all(has_image(container, params.images) for container in pods.containers))
    )


def _findings(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    which = _described(workload, pods)
    tolerated = [(at, _shown(toleration)) for at, toleration in reserved_tolerations(pods) if _reserves(toleration)]
    if tolerated:
        yield Finding(
            "ToleratesTaint",
            pods.field("tolerations", tolerated[0][0]),
            f"the toleration of {_listed(shown for _, shown in tolerated)} lets {which} onto GPU nodes",
            "Remove that toleration, or request the accelerator under resources.limits.",
        )
    labels = list(reserved_labels(pods))
    if labels:
        yield Finding(
            "ChoosesNodes",
            pods.field(*labels[0][0]),
            f"the selection of {_listed(key for _, key in labels)} sends {which} to GPU nodes",
            "Select nodes by labels of CPU nodes, or request the accelerator under resources.limits.",
        )
    elif not tolerated and not workload.gpu_pod_sets():
        yield from _of_everything(workload, pods, which, snapshot)
    name = pods.spec.get("nodeName") if names_a_node(workload, pods) else None
    devices = next((shape.devices for shape in snapshot.shapes if name in shape.nodes), {})
    offers = ", ".join(f"{count} of {resource}" for resource, count in sorted(devices.items()) if is_accelerator(resource))
    if offers:
        finding = Finding(
            "NamesNode",
            pods.field("nodeName"),
            f"nodeName sends {which} to node {name!s:.63}, which has {offers}",
            "Remove nodeName, or request the accelerator under resources.limits.",
        )
        # What is stored already passed without a review.
        yield finding.as_warning() if workload.metadata().get("uid") else finding


def _of_everything(workload: Workload, pods: PodSet, which: str, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Report a toleration of every taint, unless the nodes are known and no taint keeps pods off the accelerator nodes."""
    index = toleration_of_everything(pods)
    if index is None or workload.namespace in SYSTEM_NAMESPACES:
        return
    is_known = snapshot.sync_state("nodes") is SyncState.SYNCED
    if is_known and not any(_keeps_off(shape) for shape in snapshot.shapes):
        return
    yield Finding(
        "ToleratesEverything",
        pods.field("tolerations", index),
        f"the toleration of every taint lets {which} onto GPU nodes",
        "Name the taints that the pods have to tolerate, or request the accelerator under resources.limits.",
    )


def _keeps_off(shape: NodeShape) -> bool:
    """Return whether nodes with accelerators have a taint that keeps other pods off them."""
    return any(map(is_accelerator, shape.devices)) and any(
        taint.effect == "NoSchedule" and not is_transient_taint(taint.key, taint.value) for taint in shape.taints
    )


def _reserves(toleration: dict[str, object]) -> bool:
    """Return whether the tolerated taint keeps a node for accelerators and for nothing else."""
    key, value = str(toleration.get("key")), str(toleration.get("value") or "")
    return marks_accelerators(key, value) or dedicates_to_accelerators(key, value)


def _shown(toleration: dict[str, object]) -> str:
    value = toleration.get("value")
    return f"{toleration.get('key')!s:.120}" + (f"={value!s:.63}" if value else "")


def _listed(names: Iterable[str]) -> str:
    unique = sorted(set(names))
    more = len(unique) - _SHOWN
    return ", ".join(unique[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _described(workload: Workload, pods: PodSet) -> str:
    """Return the pods in words, with what they would take of such a node."""
    demand = pod_requests(pods)
    amounts = [f"{format_millicores(demand.cpu)} CPU"] if demand.cpu else []
    amounts += [f"{show_bytes(demand.memory)} of memory"] if demand.memory else []
    is_one = pods.count in {None, 1}
    which = "a pod" if is_one else f"{pods.count} pods"
    if amounts:
        which += f" with {' and '.join(amounts)}{'' if is_one else ' each'} and no accelerator"
    else:
        which += " without accelerators"
    return f"{which} (other pods of the workload request some)" if workload.gpu_pod_sets() else which


_PART: Final = "the pod is part of a workload"
REASONS: Final[dict[str, Reason]] = {
    "ChoosesNodes": Reason("A pod without GPUs selects GPU nodes.", warns=_PART, owner_reviewed_warns=True),
    "NamesNode": Reason(
        "A pod without GPUs names a GPU node.", facts=("nodes",), warns=f"{_PART}, or is stored already", owner_reviewed_warns=True
    ),
    "ToleratesEverything": Reason(
        "A pod without GPUs tolerates every taint, also that of GPU nodes.", action="Warn", facts=("nodes",)
    ),
    "ToleratesTaint": Reason("A pod without GPUs tolerates the taint of GPU nodes.", warns=_PART, owner_reviewed_warns=True),
}

RULE = Rule(
    id="reserved-nodes",
    title="Pods that request no accelerator keep off the nodes that have them",
    since="0.1.0",
    params=ReservedNodesParams,
    reasons=REASONS,
    check=check,
    # Pods of a workload that requests an accelerator somewhere only get warnings.
    refuses=lambda _kind, _params: False,
    needs=frozenset({"nodes"}),
    reads=frozenset(
        {"affinity", "annotations", "image", "nodeName", "nodeSelector", "priorityClassName", "serviceAccountName", "tolerations"}
    ),
    documentation=__doc__,
    default_max_mode=Mode.MUTATE,
    default_mode_reason=(
        "The owner of a cluster decides whether pods without accelerators may use the idle CPUs of accelerator nodes."
    ),
)
