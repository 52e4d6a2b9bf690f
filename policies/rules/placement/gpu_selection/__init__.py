"""Pods go to the cards that the workload names: product, architecture, memory, compute capability, driver.

## What it does

Turns short annotations of the object or its pod template into a required node affinity on the labels that NVIDIA's GPU Feature
Discovery writes. What a template says goes before what the object says.

| annotation | example | what it asks of a node |
|---|---|---|
| `gpugate.io/gpu` | `h100`, `a100-80gb,h100` | `nvidia.com/gpu.product` is one of the cards so named |
| `gpugate.io/gpu-family` | `hopper,blackwell` | `nvidia.com/gpu.family` |
| `gpugate.io/min-gpu-memory` | `40Gi`, `80G` | `nvidia.com/gpu.memory`, or the slice's own label, which are in MiB |
| `gpugate.io/min-compute` | `"8.6"` | `nvidia.com/gpu.compute.major` and `.minor` |
| `gpugate.io/min-driver` | `"550.54"` | `nvidia.com/cuda.driver.major`, `.minor` and `.rev` |
| `gpugate.io/min-cuda` | `"12.4"` | `nvidia.com/cuda.runtime.major` and `.minor`: what the driver serves |

A name of a card stands for every card all of whose words it has, of those that gpugate knows and of those found on nodes; the
label's value in full is taken as it is. Shares of time-sliced cards and slices are another product, which a name with `shared` or
`mig` in it means: `t4-shared`. The affinity is joined with what is there: each `nodeSelectorTerms` entry is extended, and
doubled where a requirement has alternatives, so that the pods go to exactly those nodes that both let them onto. What
the affinity asks for already is not asked for again.

Refuses what cannot be read (`Unreadable`), a card that nobody knows (`UnknownProduct`), a requirement that the pods' own node
selector or affinity rules out (`Contradicts`), and, where nodes are known, what none of them meets (`NoNodeMatches`) or only nodes
that the pods' selectors keep them off (`ShutOut`), with what there is instead. Warns where cards miss the memory by as much as
their maker's GB miss a GiB (`AlmostEnough`).

The labels decide, not the nodes of the day: a node that comes or goes changes no template. Only a card that gpugate does not know
yet is looked up on nodes.

## Why

A selector for one card is an exact string that nobody remembers, and differs by form and memory. The operators are `In`, `NotIn`,
`Exists`, `DoesNotExist`, `Gt` and `Lt`: there is no "at least", `Gt` is strict and reads whole numbers, and "8.6 at least" takes
two terms. A misspelt operator or a wrong join lets pods onto cards that they fail on, or onto none.

A card sold as 80 GB may have 81559MiB = 79.6Gi: `80Gi` shuts out H100, `80G` does not.

## Practice

- Basics guide, "Select Specific GPU Type" and "Use Node Affinity": a card chosen by its product, memory and compute capability,
  with operators that exist and bounds that mean what was meant.
- NUMA guide, "Node Affinity for GPU Topology": multi-GPU training bound to nodes that suit it; `Gte` is no operator.
- NUMA guide, "GPU Instance Selection: Cost vs Performance": each kind of work on the card that fits it.
- Orchestration guide, "FAQ": what depends on a compute capability or a CUDA version says so.

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
from gpugate.policies.rules.placement.gpu_selection.mutate import mutate
from gpugate.policies.rules.placement.gpu_selection.params import PlacementParams
from gpugate.policies.rules.placement.gpu_selection.requirements import KEYS
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "AlmostEnough": Reason("The memory bound excludes cards by the difference between GB and GiB.", action="Warn"),
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
    title="Pods go to the GPU product, architecture, memory, compute capability and driver that their annotations name",
    since="0.1.0",
    params=PlacementParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS | {"annotations", "labels"},
    writes=frozenset({"affinity", "annotations"}),
    documentation=__doc__,
    trigger_annotations=frozenset(KEYS),
)
