"""What pods ask of their nodes, and of the pods beside them, is said in words that the API, the scheduler and the nodes know.

## What it does

Refuses what the apiserver takes in the template of a custom resource and in none of its pods, so that these never come:

- an operator that does not exist in its place (`Gte` in node affinity, `Gt` in a label selector, `In` in a toleration), with the
  one that says the same and the value that goes with it;
- values that the operator does not take: `In` without any, `Exists` with some, `Gt` with two, numbers that stand without quotes; a
  toleration without a key that is not `Exists`; an effect that no taint has.

Refuses what is taken everywhere and never lets a pod be placed: `Gt` and `Lt` with something that is no whole number, where
no alternative is left; required pod affinity without a labelSelector, which selects no pods.

Warns about what does nothing, or waits for nodes that nobody has heard of, with the right word where there is one:

- a spread constraint, anti-affinity or preferred affinity without a labelSelector, with one for the workload's own pods;
- a topologyKey that no node carries, such as `topology.kubernetes.io/NUMANode`;
- a label that no component writes on nodes (`nvidia.com/gpu.mem`, `nvidia.com/gpu`), or that no node with accelerators carries;
- `nvidia.com/gpu.memory` compared with a number of GiB, where it counts MiB;
- selectors and tolerations that together leave none of the nodes which offer the accelerators, with what these have;
- a toleration that matches no taint, with the taint that is near. Taints of spot nodes, of a node's condition, of accelerators by
  their resource's name and of Kueue's flavors count as there.

Pods without accelerators are judged where they select nodes by a label that speaks of accelerators.

## Why

Nothing tells the author of a manifest. The apiserver checks operators in pods and in its own templates; a PyTorchJob or a JobSet
with a wrong one is created, and its controller fails to make pods, again and again. A selector on a label that nobody writes
leaves the pod Pending with the words `didn't match Pod's node affinity/selector`, which do not say which of six labels it was. A
constraint without labelSelector is silently met.

## Practice

- NUMA guide, "Node Affinity for GPU Topology": nodes with at least so many GPUs are asked for by an operator that exists.
- NUMA guide, "Topology-Aware GPU Scheduling for Multi-Node Training": a spread constraint names a label that nodes have, and
  selects the pods it spreads.
- Basics guide, "Node Selection": nodes are chosen by the labels that GPU feature discovery writes, memory in MiB.
- Basics guide, "Taints and Tolerations": a toleration has the key, value and effect of the taint that is on the nodes.
- Orchestration guide, "GPU Affinity Rules": anti-affinity selects the training job's own pods.
- Field guide, "Topology-aware scheduling": the key by which workers share a fabric is on the nodes.

## Example

Refused, with the words `Write operator Gt with the value "3".`:

```yaml
matchExpressions:
  - key: nvidia.com/gpu.count
    operator: Gte
    values: ["4"]
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.placement.node_terms.checks import check
from gpugate.policies.rules.placement.node_terms.params import NodeTermsParams
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "BadValues": Reason("The API server rejects the values of a term."),
    "KeyOnNoNode": Reason("No node carries the topology key.", action="Warn"),
    "NoNodeSelected": Reason("No node matches the pod's terms.", action="Warn", facts=("nodes",)),
    "NoNumber": Reason("Gt or Lt compares with a value that is no whole number.", warns="another term may match"),
    "SelectsNoPods": Reason("A term without labelSelector selects no pods.", warns="the term does not keep the pods Pending"),
    "ToleratesNothing": Reason("No node has the tolerated taint.", action="Warn", facts=("nodes",)),
    "UnknownEffect": Reason("A toleration has an unknown effect."),
    "UnknownLabel": Reason("No node carries the label.", action="Warn"),
    "UnknownOperator": Reason("A term has an unknown operator."),
    "WrongUnit": Reason("A memory label is compared in GiB, and counts MiB.", action="Warn"),
}


RULE = Rule(
    id="node-terms",
    title="What pods ask of nodes, and of the pods beside them, is said in words that something reads",
    since="0.1.0",
    params=NodeTermsParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"limitranges", "nodes", "resourceflavors", "runtimeclasses"}),
    reads=SCHEDULING_FIELDS | {"labels", "topologySpreadConstraints"},
    documentation=__doc__,
)
