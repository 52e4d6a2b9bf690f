"""The memory limits on accelerator nodes stay within what these nodes can make good.

## What it does

Adds up the memory limits of the pods that run on the nodes which a workload's pods may land on, adds the workload's own, and
compares the sum with the policy's ratio of the memory that these nodes can give. A container without a limit counts with its
request. Warns, or refuses where the policy says so:

- no single node could take one more such pod within the ratio, or
- all these nodes together could not take all of the workload's pods.

A pod whose own limit is above the ratio on every node, empty as it may be, is refused in any case. What stands in a queue
waits for its turn, and is only ever warned about: the nodes may be free by then.

## Why

The scheduler counts requests alone. Limits are promises to let a pod grow; where they come to more than the node has, and the
pods do grow, the kernel kills one of them, and it need not be the one that grew. A ratio of 1.5 leaves room for pods that peak
at different times, and less than every pod at twice its request would take.

## Practice

- NUMA guide, "GPU Memory Management": oversubscribed memory ends in pods that are killed. The guide means the card; it holds
  of the node.
- None of the guides bounds the sum of limits on a node: limits above requests, as all four write them, add up, and it is the
  kernel that decides which training dies.

## Example

On a node with 2000Gi whose pods are limited to 2900Gi together, a pod with a limit of 200Gi is warned about: 3100Gi is more than
1.5 x 2000Gi.
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.resources.commitment.checks import check
from gpugate.policies.rules.resources.commitment.params import CommitmentParams
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "CommitmentUnknown": Reason("The nodes or pods are not synced yet.", action="Unknown"),
    "LimitAboveRatio": Reason("The memory limit is above the ratio of every node, even an empty one.", facts=("nodes",)),
    "NodesOvercommitted": Reason(
        "No node has room for the memory limit beside its pods.",
        action="refuse",
        facts=("nodes", "pods"),
        warns="the workload is in a queue",
    ),
    "PoolOvercommitted": Reason(
        "All nodes together have no room for the memory limits.",
        action="refuse",
        facts=("nodes", "pods"),
        warns="the workload is in a queue",
    ),
}


RULE = Rule(
    id="commitment",
    title="The memory limits on accelerator nodes stay within a ratio of what the nodes have",
    since="0.1.0",
    params=CommitmentParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"nodes", "pods"}),
    reads=SCHEDULING_FIELDS,
    documentation=__doc__,
)
