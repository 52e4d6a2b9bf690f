"""Findings of the rule `vram`."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.kube.fields import Path
from gpugate.policies.rules.resources.vram.estimate import (
    SPLIT,
    VramRequest,
    VramStatement,
    copies_of,
    how_to_keep_off,
    how_to_know,
    place_of,
    show_memory,
    show_need,
    vram_statement,
    ways_out,
)
from gpugate.policies.rules.resources.vram.mutate import enough_memory, vram_request_for
from gpugate.policies.rules.resources.vram.params import VramParams
from gpugate.policies.scheduling.gpu_cards import GpuCard, cards_in_reach
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_SHOWN: Final = 3


def check(workload: Workload, params: VramParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse what no card in reach holds; warn about what may land on too small a card or share."""
    stated = vram_statement(workload)
    if stated is None or not workload.templated_gpu_pod_sets():
        return
    if stated.problem is not None:
        key, what, remedy = stated.problem
        yield Finding("NeedUnreadable", place_of(workload, key), f"{key}: {what}", remedy)
        return
    place = place_of(workload, stated.key)
    found: list[Finding] = []
    for pods in workload.templated_gpu_pod_sets():
        need = vram_request_for(workload, pods, stated, params)
        found += _check_split(workload, pods, stated)
        if snapshot.sync_state("nodes") is SyncState.PENDING:
            found.append(_nodes_unknown(place))
        else:
            found += _check_cards(pods, place, need, snapshot)
    # Parts of a gang hold one copy together: what is so of each of them is told once.
    yield from dict.fromkeys(found)


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
        )


def _check_cards(pods: PodSet, place: Path, need: VramRequest, snapshot: ClusterSnapshot) -> Iterator[Finding]:
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
            Level.DENY if need.certain else Level.WARN,
            measure=need.floor,
        )
        return
    elif largest is not None and (largest.memory or 0) < need.least:
        yield Finding(
            "HeadroomTight",
            place,
            f"{need.sums}: the weights fit the largest card in reach, {largest.title}, the headroom does not:"
            f" {show_need(need, need.least)} > {show_memory(need, largest)}",
            f"Bound the KV cache (batch size, context length). {ways_out(pods, need, largest, snapshot)}",
            Level.DENY if need.certain else Level.WARN,
            measure=need.least,
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
    )


def _check_each(pods: PodSet, place: Path, need: VramRequest, known: Sequence[GpuCard]) -> Iterator[Finding]:
    """What the pods may land on that is too small, though something else in reach is not."""
    enough = enough_memory(known, need)
    small = [card for card in known if (card.memory or 0) < enough]
    if small:
        shown = dict.fromkeys(f"{card.title} {show_memory(need, card)}" for card in small)
        yield Finding(
            "SomeCardsTooSmall",
            place,
            f"{need.sums}: the pods may land on cards of less than {show_need(need, enough)}: {', '.join(list(shown)[:_SHOWN])}",
            how_to_keep_off(pods, known, enough),
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
        )
