"""Pods whose accelerators need so much memory keep off cards that are too small, and are refused where none is large enough.

## What it does

Only for workloads that say what they need, by annotations of the object or its pod template:

- `gpugate.io/vram: 40Gi`, the memory needed of each GPU, MIG slice or share that the pod asks for; or
- `gpugate.io/model-parameters: 7B`, all of the model's parameters, with `gpugate.io/precision` (`fp32`, `bf16`, `fp16`, `fp8`,
  `int8`, `int4`; `fp16` where it is absent) and `gpugate.io/tensor-parallel: "8"`, the number of GPUs over which one copy is
  split (tensor times pipeline parallel). Where that is absent, the most that could hold a copy together is taken, so that
  nothing is refused by a guess: the GPUs of a pod, of all pods of a gang, of all replicas of a StatefulSet.

Where both are there, `gpugate.io/vram` counts. The formula:

```text
weights  = parameters x bytes of one parameter      (fp32 4, bf16 and fp16 2, fp8 and int8 1, int4 0.5)
headroom = weights x 4/14 at least, weights x 8/14 for comfort
need     = (weights + headroom) / GPUs that hold one copy
```

Where some nodes in reach have cards that hold the need and others do not, the pods get a node affinity `nvidia.com/gpu.memory`
`Gt` one MiB less than it, in every alternative of an affinity that is there. Not where a node lacks that label that the pods'
nodeSelector and tolerations let them onto, since it would be shut out with the small ones, and not for MIG slices, whose resource
name decides.

Refuses what no card in reach holds (the weights alone, or `gpugate.io/vram`), and says which cards of the cluster would, or over
how many GPUs to split the model. Warns where the weights fit and the headroom does not; where pods may still land on cards that
are too small; and where the share of a time-sliced card is smaller than the need, since the pods of one card fill it together. A
card whose memory no label tells is unknown and refuses nobody.

A pool that scales up from no node has no such label yet, and its autoscaler may find no place for a pod with the affinity: set
`affinity: false` there, or put the label on the pool's node template. Where larger cards may come, set `noCardHolds: Warn`.

## Why

A model that does not fit its card fails when its weights are loaded, after the queue and the image have been waited for. The
figures are a guide's, for a 7B model in FP16: 14GB of weights, and 4GB to 8GB beside them for activations and the KV cache. The
same guide runs a 70B model in FP16 on one A100 of 80 GB. It does not fit: 70 x 10^9 parameters of 2 bytes are 140GB of
weights, 180 to 220GB in all, and the card has 81920MiB = 85.9GB. It takes four of them (45GB each), or one with int4 (45 to
55GB). Nor does a 7B model fit a T4 of 16 GB: of 15360MiB = 16.1GB the weights leave 2.1GB where the guide wants 4,
so gpugate prefers a larger card in reach, and warns where there is none.

## Practice

- NUMA guide, "GPU Memory Management": a model's weights, activations and cache are reckoned against the card before it is
  chosen.
- NUMA guide, "GPU Instance Selection: Cost vs Performance": small models go to small cards, large ones to large cards.
- Basics guide, "Use Node Affinity": cards with enough memory are selected by `nvidia.com/gpu.memory`.
- Orchestration guide, "Distributed Training Patterns": what is too large for one card is split over several.
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

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Annotated, Final, Literal

from pydantic import Field

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.framework.rule import Params, Rule
from gpugate.policies.kube.accelerators import NVIDIA_GPU
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.managers import has_kueue_marks
from gpugate.policies.patch import Edit
from gpugate.policies.rules.resources.vram.estimate import (
    SPLIT,
    Headroom,
    VramRequest,
    VramStatement,
    copies_of,
    how_to_keep_off,
    how_to_know,
    place_of,
    show_memory,
    show_need,
    vram_request,
    vram_statement,
    ways_out,
)
from gpugate.policies.scheduling.gpu_cards import MEMORY_LABEL, GpuCard, all_labelled, bound_above, cards_in_reach
from gpugate.policies.scheduling.node_fit import holds
from gpugate.policies.workloads.node_affinity import require
from gpugate.policies.workloads.requests import pod_requests
from gpugate.policies.workloads.workload import PodSet, Workload

_SHOWN: Final = 3
_NODES: Final = ("nodes",)


class HeadroomParams(Params):
    """Room for activations and KV cache beside a model's weights, in GB per so many GB of weights."""

    in_order = (("least", "most"),)

    weights: Annotated[float, Field(gt=0)] = 14.0
    """GB of weights that the other two figures are for."""
    least: Annotated[float, Field(ge=0)] = 4.0
    """GB of headroom beside them at least: what the node affinity counts on."""
    most: Annotated[float, Field(ge=0)] = 8.0
    """GB of headroom beside them for comfort, shown in the sums."""


class VramParams(Params):
    """Parameters of `vram`."""

    affinity: bool = True
    """Whether a node affinity keeps pods off nodes whose cards are too small."""
    headroom: HeadroomParams = HeadroomParams()
    """Headroom for activations and KV cache beside a model's weights."""
    no_card_holds: Literal["Deny", "Warn"] = "Deny"
    """Whether pods that no known card in reach could hold are refused, or only warned about (nodes that scale up from none)."""
    headroom_tight: Literal["Deny", "Warn"] = "Warn"
    """Whether pods are refused, or only warned about, whose weights fit a card in reach but whose headroom fits none."""


def _need(workload: Workload, pods: PodSet, stated: VramStatement, params: VramParams) -> VramRequest:
    least, most = (Fraction(part) / Fraction(params.headroom.weights) for part in (params.headroom.least, params.headroom.most))
    return vram_request(workload, pods, stated, Headroom(least, most))


def _enough(cards: Sequence[GpuCard], need: VramRequest) -> int:
    """Bytes that a card should have: with the least headroom, where a card in reach has as many."""
    return need.least if any((card.memory or 0) >= need.least for card in cards) else need.floor


def mutate(workload: Workload, params: VramParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Keep the pods off cards that are too small, where others in reach are not."""
    stated = vram_statement(workload) if params.affinity else None
    if stated is None or stated.problem is not None:
        return ()
    if workload.is_pod() and workload.controller() is not None and has_kueue_marks(workload.root):
        # Kueue chose the pod's place by the template.
        return ()
    return [edit for pods in workload.templated_gpu_pod_sets() for edit in _keep_off(workload, pods, stated, params, snapshot)]


def _keep_off(
    workload: Workload, pods: PodSet, stated: VramStatement, params: VramParams, snapshot: ClusterSnapshot
) -> Iterable[Edit]:
    need = _need(workload, pods, stated, params)
    cards = cards_in_reach(pods, snapshot)
    if not need.certain or set(pods.accelerators()) != {NVIDIA_GPU}:
        return ()
    enough = _enough(cards, need)
    large = [card for card in cards if (card.memory or 0) >= enough]
    # What fits large cards and not the nodes that have them is better off on small ones than nowhere.
    if (
        len(large) == len(cards)
        or not any(holds(card.shape, pod_requests(pods)) for card in large)
        or not all_labelled(pods, snapshot)
    ):
        return ()
    bound = bound_above(enough)
    expression = {"key": MEMORY_LABEL, "operator": "Gt", "values": [str(bound)]}
    return require(pods, [(expression,)], f"node affinity {MEMORY_LABEL} Gt {bound}")


def check(workload: Workload, params: VramParams, snapshot: ClusterSnapshot) -> Iterable[Finding]:
    """Refuse what no card in reach holds; warn about what may land on too small a card or share."""
    stated = vram_statement(workload)
    if stated is None or not workload.templated_gpu_pod_sets():
        return ()
    if stated.problem is not None:
        key, what, remedy = stated.problem
        return (Finding("NeedUnreadable", place_of(workload, key), f"{key}: {what}", remedy),)
    place = place_of(workload, stated.key)
    found: list[Finding] = []
    for pods in workload.templated_gpu_pod_sets():
        need = _need(workload, pods, stated, params)
        found += _check_split(workload, pods, stated)
        if snapshot.sync_state("nodes") is SyncState.PENDING:
            found.append(_nodes_unknown(place))
        else:
            refuse = need.certain and not workload.owner_was_reviewed()
            found += _check_cards(pods, place, need, params, snapshot, refuse=refuse)
    # Parts of a gang hold one copy together: what is so of each of them is told once.
    return list(dict.fromkeys(found))


def _nodes_unknown(place: Path) -> Finding:
    return not_synced("NodesUnknown", place, "the nodes", "whether a card could hold the pods")


def _check_split(workload: Workload, pods: PodSet, stated: VramStatement) -> Iterator[Finding]:
    split = stated.model.split if stated.model is not None else None
    if split is None or workload.controller() is not None:
        return
    devices, _ = copies_of(workload, pods)
    if split > devices:
        yield Finding(
            "SplitTooWide",
            place_of(workload, SPLIT),
            f"one copy is split over {split} GPUs, and the pods that could hold it together have {devices}: {split} > {devices}",
            f'Write {SPLIT}: "{devices}", or ask for {split} GPUs.',
            Level.WARN,
        )


def _check_cards(
    pods: PodSet, place: Path, need: VramRequest, params: VramParams, snapshot: ClusterSnapshot, *, refuse: bool
) -> Iterator[Finding]:
    cards = cards_in_reach(pods, snapshot)
    known = [card for card in cards if card.memory is not None]
    largest = max(known, key=lambda card: card.memory or 0, default=None)
    if len(known) < len(cards) or not pods.accelerators():
        yield _memory_unknown(pods, place, need, cards)
    elif largest is not None and (largest.memory or 0) < need.floor:
        yield Finding(
            "NoCardHolds",
            place,
            f"{need.sums}: {show_need(need, need.floor)} > {show_memory(need, largest)}, the memory of the largest card in reach,"
            f" {largest.title}",
            ways_out(pods, need, largest, snapshot),
            Level.DENY if refuse and params.no_card_holds == "Deny" else Level.WARN,
            measure=need.floor,
            rests_on=_NODES,
        )
        return
    elif largest is not None and (largest.memory or 0) < need.least:
        yield Finding(
            "HeadroomTight",
            place,
            f"{need.sums}: the weights fit the largest card in reach, {largest.title}, the headroom does not:"
            f" {show_need(need, need.least)} > {show_memory(need, largest)}",
            f"Bound the KV cache (batch size, context length). {ways_out(pods, need, largest, snapshot)}",
            Level.DENY if refuse and params.headroom_tight == "Deny" else Level.WARN,
            measure=need.least,
            rests_on=_NODES,
        )
    yield from _check_each(pods, place, need, known)


def _memory_unknown(pods: PodSet, place: Path, need: VramRequest, cards: Sequence[GpuCard]) -> Finding:
    unknown = [card for card in cards if card.memory is None]
    few, all_of_them = (sum(len(card.shape.nodes) for card in some) for some in (unknown, cards))
    what = "a claim says nothing of the memory of its device"
    if unknown:
        what = f"{few} of {all_of_them} nodes in reach say nothing of the memory of their cards ({unknown[0].title})"
    return Finding(
        "MemoryUnknown",
        place,
        f"{need.sums}: {what}, so it is not known whether {show_need(need, need.least)} fit, nor are the pods kept off small cards",
        how_to_know(pods),
        Level.UNKNOWN,
    )


def _check_each(pods: PodSet, place: Path, need: VramRequest, known: Sequence[GpuCard]) -> Iterator[Finding]:
    """What the pods may land on that is too small, though something else in reach is not."""
    enough = _enough(known, need)
    small = [card for card in known if (card.memory or 0) < enough]
    if small:
        shown = dict.fromkeys(f"{card.title} {show_memory(need, card)}" for card in small)
        yield Finding(
            "SomeCardsTooSmall",
            place,
            f"{need.sums}: the pods may land on cards of less than {show_need(need, enough)}: {', '.join(list(shown)[:_SHOWN])}",
            how_to_keep_off(pods, known, enough),
            Level.WARN,
        )
    shared = [card for card in known if card.replicas > 1 and enough <= (card.memory or 0) and card.share < need.least]
    if shared:
        least = min(shared, key=lambda card: card.share)
        share = f"{show_memory(need, least)} / {least.replicas} = {show_need(need, least.share)}"
        yield Finding(
            "ShareTooSmall",
            place,
            f"{need.sums}: {least.replicas} pods share one card of {least.title}, with memory that is not kept apart:"
            f" {show_need(need, need.least)} > {share}",
            "Ask for a whole card or a MIG slice, or keep to the share.",
            Level.WARN,
        )


RULE = Rule(
    id="vram",
    title="Pods keep off cards whose memory is too small, and are refused where no card holds what they need",
    since="0.1.0",
    params=VramParams,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    documentation=__doc__,
)
