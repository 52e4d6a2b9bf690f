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

from typing import Final

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.security.reserved_nodes.checks import check
from gpugate.policies.rules.security.reserved_nodes.params import ReservedNodesParams

REASONS: Final[dict[str, Reason]] = {
    "ChoosesNodes": Reason(
        "A pod without GPUs selects GPU nodes.", warns="the pod is part of a workload", owner_reviewed_warns=True
    ),
    "NamesNode": Reason(
        "A pod without GPUs names a GPU node.", facts=("nodes",), warns="the pod is part of a workload", owner_reviewed_warns=True
    ),
    "ToleratesTaint": Reason(
        "A pod without GPUs tolerates the taint of GPU nodes.", warns="the pod is part of a workload", owner_reviewed_warns=True
    ),
}


RULE = Rule(
    id="reserved-nodes",
    title="Pods that ask for no accelerator keep off the nodes that have them",
    since="0.1.0",
    params=ReservedNodesParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"nodes"}),
    reads=frozenset(
        {"affinity", "annotations", "image", "nodeName", "nodeSelector", "priorityClassName", "serviceAccountName", "tolerations"}
    ),
    documentation=__doc__,
    default_max_mode=Mode.WARN,
    default_mode_reason=(
        "Whether pods without accelerators may use the idle CPUs of accelerator nodes is for a cluster's owner to decide."
    ),
)
