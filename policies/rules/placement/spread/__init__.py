"""Replicas that serve are spread over hosts and zones, and gangs that train are packed into one fabric.

## What it does

Gives Deployments, StatefulSets and ReplicaSets of their own, with more than one replica that asks for accelerators, a
topologySpreadConstraint for each topology of the policy, with the workload's own selector and, where there are revisions, with
`matchLabelKeys`, so that a rollout counts its new pods alone; or anti-affinity in its place. Where the number of replicas is
left to an autoscaler, there may be several. One replica is left alone.

Gives the pods of a gang that runs to completion affinity to each other over the policy's `fabricKey`, preferred or required.

Leaves alone what is stated: a topology that a constraint or an affinity of the pods names, and, in gangs, any affinity to pods.
A gang that Kueue, KAI, Volcano, JobSet or LeaderWorkerSet places by topology is theirs. So is one whose pods have no label of
their own beforehand: those of a CronJob, of a RayJob and of a Job without a name. A LeaderWorkerSet keeps its groups together by
its own annotation.

A topology other than the host's is written only where every node that the pods may land on carries its label: the scheduler
does not rank nodes that lack one of the labels, for any of the constraints. A hard requirement that the nodes there are could
not meet is not written, either; both are said.

## Why

Replicas on one host go down with it. The default scheduler prefers to spread what belongs to one controller, where nobody has
changed its configuration: what the template states holds under any configuration, and can be made a
requirement. A gang across two fabrics runs at the speed of what connects them.

With a required affinity the first pod decides: where its fabric has no room for all, the others wait, and a scheduler that
places pods one by one then holds what it has got. Preferred is the default.

## Practice

- Basics guide, "Inference Deployment": replicas are spread over GPU nodes, by a constraint that selects them.
- Orchestration guide, "GPU Affinity Rules": replicas land on different nodes by anti-affinity.
- Field guide, "Step 4 · Topology-aware scheduling": the pods of one training run share the fabric, by affinity on a label of the
  nodes.
- NUMA guide, "Node Affinity for GPU Topology": jobs that span nodes are placed by an explicit topology key.

## Example

Before: a Deployment of three replicas. After, on nodes without zones:

```yaml
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {app: ranker}}
    matchLabelKeys: [pod-template-hash]
```
"""

from typing import Final

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.placement.spread.checks import check
from gpugate.policies.rules.placement.spread.mutate import mutate
from gpugate.policies.rules.placement.spread.params import SpreadParams
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "FabricUnknown": Reason("No node carries the label that names the network fabric.", action="Warn", facts=("nodes",)),
    "NotPacked": Reason("The pods of the gang are not kept close to each other.", action="Warn"),
    "NotSpread": Reason("The replicas may all land on one node.", action="Warn", facts=("nodes",)),
    "SelectorMissing": Reason("No selector for the workload's own pods is known, so nothing is written.", action="Warn"),
}


RULE = Rule(
    id="spread",
    title="Replicas that serve are spread over hosts and zones, and gangs that train are packed into one fabric",
    since="0.1.0",
    params=SpreadParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes", "localqueues", "clusterqueues", "resourceflavors"}),
    reads=SCHEDULING_FIELDS | {"annotations", "topologySpreadConstraints"},
    reads_user_set=frozenset({"replicas"}),
    writes=frozenset({"affinity", "topologySpreadConstraints"}),
    documentation=__doc__,
    default_max_mode=Mode.DISABLED,
    default_mode_reason=(
        "Replicas of one GPU spread over hosts leave every node with a few GPUs taken, and no room for a gang of whole nodes."
    ),
)
