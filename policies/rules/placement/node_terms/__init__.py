"""Node and pod affinity, spread constraints and tolerations use operators, values, labels and taints that exist.

## What it does

Refuses what the API server accepts in the template of a custom resource and rejects in its pods, so the pods never start:

- an operator that does not exist there (`Gte` in node affinity, `Gt` in a label selector, `In` in a toleration); the finding names
  the operator with the same meaning, and the value for it;
- values that do not match the operator: `In` without values, `Exists` with values, `Gt` with two, numbers without quotes; a
  toleration without a key that is not `Exists`; an unknown taint effect.

Refuses what the API server accepts and no node satisfies: `Gt` and `Lt` with a value that is no whole number, if there is no
alternative; required pod affinity without a labelSelector, which selects no pods.

Warns about terms without effect, or that no known node satisfies, and suggests the right word if there is one:

- a spread constraint, anti-affinity or preferred affinity without a labelSelector, with one for the workload's own pods;
- a topologyKey that no node has as a label, such as `topology.kubernetes.io/NUMANode`;
- a label that no component sets on nodes (`nvidia.com/gpu.mem`, `nvidia.com/gpu`), or that no node with accelerators has;
- `nvidia.com/gpu.memory` compared with a number of GiB: it is in MiB;
- selectors and tolerations that exclude all nodes which offer the accelerators, with the labels and taints of these nodes;
- a toleration that matches no taint, with the most similar taint. Taints of spot nodes, of node conditions, of accelerators by
  their resource name and of Kueue's flavors count as present.

Checks pods without accelerators, too, if they select nodes by a label about accelerators.

## Why

The author of a manifest gets no error. The API server checks operators in pods and in its own templates; it accepts a PyTorchJob or
JobSet with a wrong one, whose controller then fails to create pods. With a selector on a label that does not exist the pod is
Pending with `didn't match Pod's node affinity/selector`, which does not say which of six labels is wrong.

## Practice

- NUMA guide, "Node Affinity for GPU Topology": an operator that exists selects nodes with at least so many GPUs.
- NUMA guide, "Topology-Aware GPU Scheduling for Multi-Node Training": a spread constraint names a label of the nodes, and
  selects the pods that it spreads.
- Basics guide, "Node Selection": nodes are selected by the labels of GPU feature discovery, memory in MiB.
- Basics guide, "Taints and Tolerations": a toleration has the key, value and effect of a taint on the nodes.
- Orchestration guide, "GPU Affinity Rules": anti-affinity selects the training job's own pods.
- Field guide, "Topology-aware scheduling": nodes have the label by which workers share a fabric.

## Example

Refused, with the remedy `Write operator Gt with the value "3".`:

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
from gpugate.policies.rules.placement.node_terms.checks import NodeTermsParams, check
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "BadValues": Reason("The API server rejects the values of a term."),
    "KeyOnNoNode": Reason("No node has the topology key as a label.", action="Warn"),
    "NoNodeSelected": Reason("No node matches the pod's selectors and tolerations.", action="Warn", facts=("nodes",)),
    "NoNumber": Reason("Gt or Lt has a value that is no whole number.", warns="another term may match"),
    "SelectsNoPods": Reason("A term without labelSelector selects no pods.", warns="the term does not keep the pods Pending"),
    "ToleratesNothing": Reason("No node has the tolerated taint.", action="Warn", facts=("nodes",)),
    "UnknownEffect": Reason("A toleration has an unknown effect."),
    "UnknownLabel": Reason("No node has the label.", action="Warn"),
    "UnknownOperator": Reason("A term has an unknown operator."),
    "WrongUnit": Reason("A memory label is compared with GiB, and is in MiB.", action="Warn"),
}


RULE = Rule(
    id="node-terms",
    title="Node and pod affinity, spread constraints and tolerations use operators, labels and taints that exist",
    since="0.1.0",
    params=NodeTermsParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"limitranges", "nodes", "resourceflavors", "runtimeclasses"}),
    reads=SCHEDULING_FIELDS | {"labels", "topologySpreadConstraints"},
    documentation=__doc__,
)
