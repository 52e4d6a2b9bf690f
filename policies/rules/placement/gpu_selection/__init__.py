"""Pods run on the GPUs that the workload names: product, architecture, memory, compute capability, driver.

## What it does

Turns short annotations of the object or its pod template into a required node affinity on the labels of NVIDIA's GPU Feature
Discovery. An annotation of the template overrides that of the object.

| annotation | example | what it requires of a node |
|---|---|---|
| `gpugate.io/gpu` | `h100`, `a100-80gb,h100` | `nvidia.com/gpu.product` is one of the products with that name |
| `gpugate.io/gpu-family` | `hopper,blackwell` | `nvidia.com/gpu.family` |
| `gpugate.io/min-gpu-memory` | `40Gi`, `80G` | `nvidia.com/gpu.memory`, or the slice's own label, which are in MiB |
| `gpugate.io/min-compute` | `"8.6"` | `nvidia.com/gpu.compute.major` and `.minor` |
| `gpugate.io/min-driver` | `"550.54"` | `nvidia.com/cuda.driver.major`, `.minor` and `.rev` |
| `gpugate.io/min-cuda` | `"12.4"` | `nvidia.com/cuda.runtime.major` and `.minor`: what the driver supports |

A name stands for every product that has all of its words, of those that gpugate knows and those of nodes; the full value of the
label is accepted, too. Time-sliced GPUs and MIG slices are other products; a name with `shared` or `mig` selects them:
`t4-shared`. The requirement is added to the present affinity: each `nodeSelectorTerms` entry is extended, and copied if there are
alternatives, so the pods run exactly on the nodes that match both. Nothing is added that the affinity requires already.

Refuses an invalid value (`Unreadable`), an unknown product (`UnknownProduct`), and a requirement that the pods' own node selector
or affinity excludes (`Contradicts`). If nodes are known, refuses what none of them matches (`NoNodeMatches`), or only nodes that
the pods' selectors exclude (`ShutOut`), and lists the present GPUs. Warns if a bound in Gi excludes GPUs that are sold with as
many GB (`AlmostEnough`). A node that is added or removed changes no template; only unknown products are looked up on nodes.

## Why

The value of a product label is hard to remember, and differs by form factor and memory. No operator of node affinity means "at
least": `Gt` is strict and reads whole numbers, and "at least 8.6" takes two terms. A misspelt operator or a wrong join lets pods
run on GPUs on which they fail, or on none. A GPU sold as 80 GB may have 81559MiB = 79.6Gi: `80Gi` excludes H100, `80G` does not.

## Practice

- Basics guide, "Select Specific GPU Type" and "Use Node Affinity": a GPU selected by its product, memory and compute capability,
  with operators that exist and the intended bounds.
- NUMA guide, "Node Affinity for GPU Topology": multi-GPU training bound to suitable nodes; `Gte` is no operator.
- NUMA guide, "GPU Instance Selection: Cost vs Performance": each kind of work on the GPU that fits it.
- Orchestration guide, "FAQ": workloads state the compute capability or CUDA version that they need.

## Example

Before: the annotations `gpugate.io/gpu: h100` and `gpugate.io/min-driver: "550.54"`. After:

```yaml
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-H100-80GB-HBM3, NVIDIA-H100-NVL, NVIDIA-H100-PCIe]}
            - {key: nvidia.com/cuda.driver.major, operator: Gt, values: ["550"]}
        - matchExpressions:
            - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-H100-80GB-HBM3, NVIDIA-H100-NVL, NVIDIA-H100-PCIe]}
            - {key: nvidia.com/cuda.driver.major, operator: In, values: ["550"]}
            - {key: nvidia.com/cuda.driver.minor, operator: Gt, values: ["53"]}
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.placement.gpu_selection.checks import check
from gpugate.policies.rules.placement.gpu_selection.mutate import KEYS, PlacementParams, mutate
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "AlmostEnough": Reason("The memory bound excludes GPUs by the difference between GB and GiB.", action="Warn"),
    "Contradicts": Reason("The pods' own node selector or affinity excludes what the annotation requests."),
    "LabelsMissing": Reason("Nodes lack the labels that GPU Feature Discovery writes, so no match is known.", action="Unknown"),
    "NoNodeMatches": Reason(
        "No known node matches the annotations.",
        action="no_node_matches",
        facts=("nodes",),
        warns="the nodes are autoscaled",
        owner_reviewed_warns=True,
    ),
    "NodesUnknown": Reason("The nodes are not synced yet.", action="Unknown"),
    "OtherMaker": Reason("The pods request GPUs of another vendor, whose nodes lack these labels."),
    "ShutOut": Reason(
        "Matching nodes exist, and the pods' node selector or affinity excludes them.",
        action="no_node_matches",
        facts=("nodes",),
        warns="the nodes are autoscaled",
        owner_reviewed_warns=True,
    ),
    "TooManyTerms": Reason("The affinity would have more than 64 nodeSelectorTerms."),
    "UnknownProduct": Reason("No known GPU product has that name.", owner_reviewed_warns=True),
    "Unreadable": Reason("The value of an annotation does not parse.", owner_reviewed_warns=True),
}


RULE = Rule(
    id="placement",
    title="Pods run on the GPU product, architecture, memory, compute capability and driver that their annotations name",
    since="0.1.0",
    params=PlacementParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS | {"annotations", "labels"},
    writes=frozenset({"affinity", "annotations"}),
    documentation=__doc__,
    trigger_annotations=KEYS,
)
