"""Pods keep off cards whose memory is too small, and are refused if no card holds what they need.

## What it does

Applies only to workloads that state what they need, by annotations of the object or its pod template:

- `gpugate.io/vram: 40Gi`, the memory needed of each GPU, MIG slice or share that the pod requests; or
- `gpugate.io/model-parameters: 7B`, all of the model's parameters, with `gpugate.io/precision` (`fp32`, `bf16`, `fp16`, `fp8`,
  `int8`, `int4`; `fp16` if it is absent) and `gpugate.io/tensor-parallel: "8"`, the number of GPUs over which one copy is
  split (tensor times pipeline parallel). If that is absent, gpugate takes the most GPUs that could hold a copy together, so it
  refuses nothing by a guess: the GPUs of a pod, of all pods of a gang, of all replicas of a StatefulSet.

If both are present, `gpugate.io/vram` counts. The formula:

```text
weights  = parameters x bytes of one parameter      (fp32 4, bf16 and fp16 2, fp8 and int8 1, int4 0.5)
headroom = weights x 4/14 at least, weights x 8/14 for comfort
need     = (weights + headroom) / GPUs that hold one copy
```

If some nodes in reach have cards that hold the need and others do not, the pods get a node affinity `nvidia.com/gpu.memory`
`Gt` one MiB less than it, in every term of an existing affinity. They get none if a node that their nodeSelector and tolerations
allow lacks that label, since the affinity would exclude it, too, and none for MIG slices, whose resource name decides.

Refuses pods that no card in reach holds (the weights alone, or `gpugate.io/vram`), and says which cards of the cluster would, or
over how many GPUs to split the model. Warns if the weights fit and the headroom does not; if pods may land on cards that are too
small; and if a share of a time-sliced card is too small. A card without a label for its memory never causes a refusal.

A pool that scales up from no node has no such label yet, and its autoscaler may find no node for a pod with the affinity: set
`affinity: false` there, or put the label on the pool's node template. If larger cards may be added, set `noCardHolds: Warn`.

## Why

A model that does not fit its card fails when its weights are loaded, after the pod has waited for the queue and the image. The
figures are a guide's, for a 7B model in FP16: 14GB of weights, and 4GB to 8GB beside them for activations and the KV cache. The
same guide runs a 70B model in FP16 on one A100 of 80 GB. It does not fit: 70 x 10^9 parameters of 2 bytes are 140GB of
weights, 180 to 220GB in all, and the card has 81920MiB = 85.9GB. It takes four of them (45GB each), or one with int4 (45 to
55GB). Nor does a 7B model fit a T4 of 16 GB: of 15360MiB = 16.1GB the weights leave 2.1GB, but the guide needs 4,
so gpugate prefers a larger card in reach, and warns if there is none.

## Practice

- NUMA guide, "GPU Memory Management": the card is chosen by a model's weights, activations and cache.
- NUMA guide, "GPU Instance Selection: Cost vs Performance": small models go to small cards, large ones to large cards.
- Basics guide, "Use Node Affinity": cards with enough memory are selected by `nvidia.com/gpu.memory`.
- Orchestration guide, "Distributed Training Patterns": a model too large for one card is split over several.
- Field guide, step 3: a model gets the slice or share of a card that holds it.

## Example

Before: the annotation `gpugate.io/model-parameters: 7B`, on a cluster with T4 and A100. 14GB + 4GB = 18GB = 17167MiB. After:

```yaml
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - key: nvidia.com/gpu.memory
              operator: Gt
              values: ["17166"]
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.resources.vram.cards import check, mutate
from gpugate.policies.rules.resources.vram.estimate import VramParams
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "HeadroomTight": Reason(
        "The largest card holds the weights, but not the headroom.",
        action="headroom_tight",
        facts=("nodes",),
        warns="the need is an estimate",
        owner_reviewed_warns=True,
    ),
    "MemoryUnknown": Reason("The memory of some cards is unknown.", action="Unknown"),
    "NeedUnreadable": Reason("The annotation that states the need does not parse."),
    "NoCardHolds": Reason(
        "No card in reach has enough memory.",
        action="no_card_holds",
        facts=("nodes",),
        warns="the need is an estimate",
        owner_reviewed_warns=True,
    ),
    "NodesUnknown": Reason("The nodes are not synced yet.", action="Unknown"),
    "ShareTooSmall": Reason("A time-sliced card has less memory per pod than needed.", action="Warn"),
    "SomeCardsTooSmall": Reason("Some cards in reach have too little memory.", action="Warn"),
    "SplitTooWide": Reason("One copy is split over more GPUs than the pods have.", action="Warn"),
}


RULE = Rule(
    id="vram",
    title="Pods keep off cards whose memory is too small, and are refused if no card holds what they need",
    since="0.1.0",
    params=VramParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS | {"annotations", "labels"},
    writes=frozenset({"affinity"}),
    after=("placement", "spot", "tolerations"),
    documentation=__doc__,
)
