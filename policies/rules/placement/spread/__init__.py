"""Replicas are spread over hosts and zones, and gangs are packed into one network fabric.

## What it does

Deployments, StatefulSets and standalone ReplicaSets with more than one replica that requests accelerators get a
topologySpreadConstraint for each topology of the policy, with the workload's own selector and, if the kind has revisions, with
`matchLabelKeys`, so that a rollout counts only its new pods; or anti-affinity instead. One replica gets nothing, unless an
autoscaler sets the number.

The pods of a gang that runs to completion get affinity to each other over the policy's `fabricKey`, preferred or required.

Keeps what users set: a topology in a constraint or an affinity of the pods, and, for gangs, any affinity to pods. Writes nothing
for a gang that Kueue, KAI, Volcano, JobSet or LeaderWorkerSet places by topology, nor for one whose pods have no own label that is
known in advance: those of a CronJob, of a RayJob and of a Job without a name. A LeaderWorkerSet keeps its groups together by its
own annotation.

Writes a topology other than the host's only if every node that the pods may run on has its label: the scheduler ignores nodes
that lack a label of any constraint. Writes no hard requirement that the present nodes cannot meet. Warns about both.

## Why

Replicas on one host fail with it. The default scheduler prefers to spread the pods of one controller, unless its configuration
was changed: a constraint in the template holds under any configuration, and can be a requirement. A gang across two fabrics runs
at the speed of the link between them. With a required affinity the first pod decides: if its fabric is too small for all, the
others wait while the first ones hold their nodes. Preferred is the default.

## Practice

- Basics guide, "Inference Deployment": replicas are spread over GPU nodes, by a constraint that selects them.
- Orchestration guide, "GPU Affinity Rules": replicas run on different nodes by anti-affinity.
- Field guide, "Step 4 · Topology-aware scheduling": the pods of one training run share the fabric, by affinity on a label of the
  nodes.
- NUMA guide, "Node Affinity for GPU Topology": jobs on several nodes are placed by an explicit topology key.

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
from gpugate.policies.rules.placement.spread.mutate import SpreadParams, mutate
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "FabricUnknown": Reason("No node has the label of the network fabric.", action="Warn", facts=("nodes",)),
    "NotPacked": Reason("The pods of the gang are not packed into one network fabric.", action="Warn"),
    "NotSpread": Reason("The replicas may all run on one node.", action="Warn", facts=("nodes",)),
    "SelectorMissing": Reason("No selector for the workload's own pods is known, so nothing is written.", action="Warn"),
}


RULE = Rule(
    id="spread",
    title="Replicas are spread over hosts and zones, and gangs are packed into one network fabric",
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
    default_mode_reason="Replicas of one GPU on every host leave no whole nodes for gangs.",
)
