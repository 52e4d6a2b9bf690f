"""A gang fits the nodes and the topology domain that it may run on.

## What it does

Counts, node by node, how many pods of a gang its possible nodes hold when they are empty: as many as accelerators, memory and CPU
allow. It refuses a gang that is larger than all of them together, and one that must stay within one domain of a topology label (a
rack, a block, an NVLink clique) and is larger than the largest of these. Such a requirement is Kueue's `podset-required-topology`
(or a slice), a required pod affinity that selects the gang's own pods, or the exclusive topology of JobSet and LeaderWorkerSet.
It refuses a label that no node has, and a level that no flavor of the Kueue queue has in its Topology.

It warns about a gang that may run on spot and on-demand nodes at once.

Plain pods may have different requests, so a group that would be too large if all requested the same is a warning, unless they are
known to. So is a Job that declares no gang, since its pods may run in turns, unless Kueue must place them in one domain. The rule
refuses only what can never fit: the scheduler handles nodes that are full now. Nodes under repair, that start or that are being
removed count as available. In every rule that reads the nodes, a refusal becomes a warning where new nodes may come: if any node
of the cluster has marks of Karpenter, the Cluster Autoscaler or GKE's provisioning, or the policy sets `autoscaler: Present`; in
a Kueue queue with admission checks; and for a Job that another controller than Kubernetes' own runs (`spec.managedBy`).

## Why

A gang that cannot run in full waits forever, and with a scheduler that places pods one by one it holds GPUs meanwhile. A
reclaimed spot node ends the whole gang.

## Practice

- NUMA guide, "Gang Scheduling for Distributed Training": a gang does not hold GPUs if some of its pods find no room.
- Field guide, step 4, and its step 2: a gang stays within one fabric, by podAffinity over a label or by Kueue's topology.
- Orchestration guide, "Network Bandwidth": workers share a network that carries their gradients.
- Orchestration guide, "Spot Instances": critical work is not mixed with capacity that may be reclaimed.

## Example

Refused on four nodes of 8 GPUs, two in each rack:

```yaml
spec:
  parallelism: 3
  completions: 3
  template:
    metadata:
      annotations:
        kueue.x-k8s.io/podset-required-topology: example.com/rack
    spec:
      containers:
        - name: train
          resources: {limits: {nvidia.com/gpu: 8}}
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.gangs.gang_packing.checks import GangPackingParams, check
from gpugate.policies.rules.gangs.gang_packing.topology import LEVEL_FACTS
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "DomainTooSmall": Reason(
        "No topology domain holds the gang.",
        action="domain_too_small",
        facts=("nodes",),
        warns="the pods may run in turns or differ",
    ),
    "DomainUnknown": Reason("No node has the topology label that the pods require.", action="domain_too_small", facts=("nodes",)),
    "LevelUnknown": Reason("No flavor of the ClusterQueue has the required topology level.", facts=LEVEL_FACTS),
    "MixedCapacity": Reason("The gang may run on spot and on-demand nodes at once.", action="mixed_capacity"),
    "PoolTooSmall": Reason(
        "All possible nodes together do not hold the gang.",
        action="pool_too_small",
        facts=("nodes",),
        warns="the pods may run in turns or differ",
    ),
    "RoomUnknown": Reason("The nodes, queues or Topologies are not synced yet.", action="Unknown"),
}


RULE = Rule(
    id="gang-packing",
    title="A gang fits the nodes and the topology domain that it may run on",
    since="0.1.0",
    params=GangPackingParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"nodes", *LEVEL_FACTS, "pods"}),
    reads=SCHEDULING_FIELDS | {"annotations", "labels"},
    documentation=__doc__,
    on_update=False,
)
