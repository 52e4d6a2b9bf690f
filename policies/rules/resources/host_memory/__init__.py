"""Accelerator pods state their host memory, and request no more of it than a node has.

## What it does

Adds a memory limit and an equal request to a container that requests accelerators and states no memory. The amount is the policy's
figure per accelerator, or the share of its accelerators on the smallest node that the pod may run on. If no nodes are known, or
the shares of the nodes in reach lie further apart than the policy tolerates, gpugate adds no limit and warns (`ShareUnclear`): a
limit from the smallest node of a mixed cluster would end a container that runs on the others. A stated request stays, and the limit
is at most the policy's ratio times it.

gpugate reduces the limit until every node shape in reach, and every ResourceQuota and Kueue quota, holds as many of these pods
as before, and until it is within the namespace's LimitRanges. If nearly nothing is left, or the queue's quota covers no memory,
gpugate adds no limit and warns with the sum.

Refuses, with the sums: a container without a memory limit if the policy adds none (`defaultLimits: Never`) or the limit has not
been added, unless `missingLimit` says otherwise; a limit that is more than the policy's ratio times the request; a `/dev/shm`, or
memory-backed volumes together, larger than their memory limit; and a pod that no node with its accelerators could ever hold, added
up as the scheduler adds: memory, CPU, accelerators, other extended resources, ephemeral storage and huge pages, of all containers,
with the defaults of LimitRanges and the overhead of the RuntimeClass. Nodes whose taints the rule `tolerations` lets the pods
tolerate count as within reach.

## Why

Pods without a memory limit take the memory of their neighbours, and the kernel kills the process that allocates next, most
often a training run hours in. A pod too large for every node stays Pending for ever and blocks its queue.

## Practice

- Basics guide, "Resource Management": every GPU container has a memory limit, with requests below it.
- NUMA guide, "GPU Memory Management": memory limits keep the growth of one pod from killing others.
- Orchestration guide, "Resource Quotas and Limits": quotas count and bound host memory as they do GPUs.

## Example

Before: `nvidia.com/gpu: 1` and no memory, on nodes with 8 GPUs and 1968Gi. After:

```yaml
resources:
  limits:
    nvidia.com/gpu: 1
    memory: 221Gi
  requests:
    memory: 221Gi
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.queueing.headroom import BOUNDING
from gpugate.policies.rules.resources.host_memory.checks import check
from gpugate.policies.rules.resources.host_memory.mutate import HostMemoryParams, mutate
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "DefaultsUnknown": Reason(
        "LimitRanges or RuntimeClasses, which change the pod's requests, are not synced yet.", action="Unknown"
    ),
    "LimitMissing": Reason("A container with GPUs has no memory limit.", action="missing_limit"),
    "MemoryVolumeUnbounded": Reason("A memory-backed volume has no sizeLimit, and its container no memory limit.", action="Warn"),
    "MemoryVolumesExceedLimit": Reason("The memory-backed volumes of a container exceed its memory limit."),
    "NeverFits": Reason("No known node could hold the pod, even when empty.", action="never_fits", owner_reviewed_warns=True),
    "NoRoomForLimit": Reason("A default memory limit would leave the pod too little memory, or get it rejected.", action="Warn"),
    "NodesUnknown": Reason("The nodes are not synced yet.", action="Unknown"),
    "Overcommit": Reason("The memory limit is more times the request than the policy allows."),
    "QueueDoesNotCover": Reason("The ClusterQueue does not cover memory, so no limit is added.", action="Warn"),
    "RuntimeClassClash": Reason(
        "The pod selects a node label that its RuntimeClass sets to another value.", facts=("runtimeclasses",)
    ),
    "ShareUnclear": Reason(
        "No nodes are known or their shares differ too much, so gpugate adds no memory limit.", action="Warn", facts=("nodes",)
    ),
    "SharedMemoryExceedsLimit": Reason("Shared memory is larger than the memory limit that its pages count against."),
}


RULE = Rule(
    id="host-memory",
    title="Accelerator pods state their host memory, and request no more of it than a node has",
    since="0.1.0",
    params=HostMemoryParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=BOUNDING | {"deviceclasses", "nodes"},
    reads=SCHEDULING_FIELDS | {"overhead", "volumeMounts", "volumes"},
    writes=frozenset({"resources"}),
    after=("queue", "vram"),
    documentation=__doc__,
)
