"""Edits and findings of the rule `vram`: compare the memory that pods need with the cards in reach."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.kube.accelerators import NVIDIA_GPU
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.managers import has_kueue_marks
from gpugate.policies.kube.quantity import GIB, format_bytes, show_bytes
from gpugate.policies.patch import Edit
from gpugate.policies.rules.resources.vram.estimate import (
    PARAMETERS,
    SPLIT,
    VRAM,
    VramParams,
    VramRequest,
    VramStatement,
    copies_of,
    show_gb,
    vram_request,
    vram_statement,
)
from gpugate.policies.scheduling.gpu_cards import MEMORY_LABEL, GpuCard, all_cards, all_labelled, bound_above, cards_in_reach
from gpugate.policies.scheduling.node_fit import holds
from gpugate.policies.workloads.node_affinity import require
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import pod_requests
from gpugate.policies.workloads.workload import Workload

_SHOWN: Final = 3
#: Numbers of GPUs over which gpugate proposes to split a model.
_SPLITS: Final = [1 << power for power in range(13)]


def _enough_memory(cards: Sequence[GpuCard], need: VramRequest) -> int:
    """Return the bytes that a card should have: with the least headroom, if a card in reach has as many."""
    return need.least if any((card.memory or 0) >= need.least for card in cards) else need.floor


def mutate(workload: Workload, params: VramParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Keep the pods off cards that are too small if others in reach are not."""
    stated = vram_statement(workload) if params.affinity else None
    if stated is None or stated.problem is not None:
        return ()
    if workload.is_pod() and workload.controller() is not None and has_kueue_marks(workload.root):
        # Kueue chose the nodes of the pod by its template.
        return ()
    return [edit for pods in workload.templated_gpu_pod_sets() for edit in _keep_off(workload, pods, stated, params, snapshot)]


def _keep_off(
    workload: Workload, pods: PodSet, stated: VramStatement, params: VramParams, snapshot: ClusterSnapshot
) -> Iterable[Edit]:
    need = vram_request(workload, pods, stated, params.headroom)
    cards = cards_in_reach(pods, snapshot)
    if not need.certain or set(pods.accelerators()) != {NVIDIA_GPU}:
        return ()
    enough = _enough_memory(cards, need)
    large = [card for card in cards if (card.memory or 0) >= enough]
    # A pod that fits large cards but not their nodes gets small cards rather than none.
    if (
        len(large) == len(cards)
        or not any(holds(card.shape, pod_requests(pods)) for card in large)
        or not all_labelled(pods, snapshot)
    ):
        return ()
    bound = bound_above(enough)
    expression = {"key": MEMORY_LABEL, "operator": "Gt", "values": [str(bound)]}
    return require(pods, [(expression,)], f"node affinity {MEMORY_LABEL} Gt {bound}")


def check(workload: Workload, params: VramParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse pods that no card in reach holds; warn about pods that may land on too small a card or share."""
    stated = vram_statement(workload)
    if stated is None or not workload.templated_gpu_pod_sets():
        return
    if stated.problem is not None:
        key, what, remedy = stated.problem
        yield Finding("NeedUnreadable", _place_of(workload, key), f"{key}: {what}", remedy)
        return
    place = _place_of(workload, VRAM if stated.model is None else PARAMETERS)
    findings: list[Finding] = []
    for pods in workload.templated_gpu_pod_sets():
        need = vram_request(workload, pods, stated, params.headroom)
        findings += _check_split(workload, pods, stated)
        if snapshot.sync_state("nodes") is SyncState.PENDING:
            findings.append(not_synced("NodesUnknown", place, "the nodes", "whether a card could hold the pods"))
        else:
            findings += _check_cards(pods, place, need, snapshot)
    # The pod sets of a gang hold one copy together and have equal findings.
    yield from dict.fromkeys(findings)


def _place_of(workload: Workload, key: str) -> Path:
    """Return the path of annotation ``key``: at the object itself or at its template."""
    if key in workload.annotations() or not workload.pod_sets:
        return ("metadata", "annotations", key)
    return workload.pod_sets[0].meta("annotations", key)


def _check_split(workload: Workload, pods: PodSet, stated: VramStatement) -> Iterator[Finding]:
    split = stated.model.split if stated.model is not None else None
    if split is None or workload.controller() is not None:
        return
    devices, _ = copies_of(workload, pods)
    if split > devices:
        yield Finding(
            "SplitTooWide",
            _place_of(workload, SPLIT),
            f"one copy is split over {split} GPUs, but the pods that could hold it together have {devices}: {split} > {devices}",
            f'Write {SPLIT}: "{devices}", or request {split} GPUs.',
        )


def _check_cards(pods: PodSet, place: Path, need: VramRequest, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    cards = cards_in_reach(pods, snapshot)
    known = [card for card in cards if card.memory is not None]
    largest = max(known, key=lambda card: card.memory or 0, default=None)
    if len(known) < len(cards) or not pods.accelerators():
        unknown = [card for card in cards if card.memory is None]
        few, all_of_them = (sum(len(card.shape.nodes) for card in some) for some in (unknown, cards))
        what = "a claim does not state the memory of its device"
        if unknown:
            what = f"{few} of {all_of_them} nodes in reach have no label for the memory of their cards ({unknown[0].title})"
        yield Finding(
            "MemoryUnknown",
            place,
            f"{need.sums}, but {what}, so gpugate cannot tell whether {_shown(need, need.least)} fit, nor keep the pods"
            " off small cards",
            _how_to_know(pods),
        )
    elif largest is not None and (largest.memory or 0) < need.floor:
        yield Finding(
            "NoCardHolds",
            place,
            f"{need.sums}, but the largest card that the pods may use, {largest.title}, has less memory:"
            f" {_shown(need, need.floor)} > {_shown_memory(need, largest)}",
            _alternatives(pods, need, largest, snapshot),
            Level.DENY if need.certain else Level.WARN,
            measure=need.floor,
        )
        return
    elif largest is not None and (largest.memory or 0) < need.least:
        yield Finding(
            "HeadroomTight",
            place,
            f"{need.sums}, but the largest card that the pods may use, {largest.title}, has room for the weights but not"
            " for the headroom:"
            f" {_shown(need, need.least)} > {_shown_memory(need, largest)}",
            _alternatives(pods, need, largest, snapshot, "limit the KV cache (batch size, context length)"),
            Level.DENY if need.certain else Level.WARN,
            measure=need.least,
        )
    yield from _check_each(pods, place, need, known)


def _check_each(pods: PodSet, place: Path, need: VramRequest, known: Sequence[GpuCard]) -> Iterator[Finding]:
    enough = _enough_memory(known, need)
    small = [card for card in known if (card.memory or 0) < enough]
    if small:
        shown = dict.fromkeys(f"{card.title} {_shown_memory(need, card)}" for card in small)
        yield Finding(
            "SomeCardsTooSmall",
            place,
            f"{need.sums}, but the pods may land on cards with less than {_shown(need, enough)}: {', '.join(list(shown)[:_SHOWN])}",
            _how_to_keep_off(pods, known, enough),
        )
    shared = [card for card in known if card.replicas > 1 and enough <= (card.memory or 0) and card.share < need.least]
    if shared:
        least = min(shared, key=lambda card: card.share)
        share = f"{_shown_memory(need, least)} / {least.replicas} = {_shown(need, least.share)}"
        yield Finding(
            "ShareTooSmall",
            place,
            f"{need.sums}, but {least.replicas} pods share one card of {least.title} without memory isolation:"
            f" {_shown(need, need.least)} > {share}",
            "Request a whole card or a MIG slice, or stay within the share.",
        )


def _shown(need: VramRequest, size: int) -> str:
    return show_bytes(size) if need.total is None else show_gb(size)


def _shown_memory(need: VramRequest, card: GpuCard) -> str:
    """Return the memory of ``card`` in the unit of the stated need, and to the MiB as its label has it."""
    memory = card.memory or 0
    short, exact = _shown(need, memory), f"{memory >> 20}Mi"
    return short if short == exact or format_bytes(memory) == short else f"{short} ({exact})"


def _alternatives(pods: PodSet, need: VramRequest, largest: GpuCard, snapshot: ClusterSnapshot, *first: str) -> str:
    """Return a sentence with the cards of the cluster that hold the need, and other ways to meet it, after the ways ``first``."""
    ways = list(first)
    holding = [card for card in all_cards(snapshot.shapes) if (card.memory or 0) >= need.least]
    if holding:
        shown = dict.fromkeys(f"{card.title} ({_shown(need, card.memory or 0)}, {card.per_node} per node)" for card in holding)
        ways.append(f"let the pods run on cards that hold it: {', '.join(list(shown)[:_SHOWN])}")
    if need.total is None:
        if (largest.memory or 0) >= GIB:
            ways.append(f"write {VRAM}: {format_bytes((largest.memory or 0) // GIB * GIB)} at most")
    else:
        degree = next((split for split in _SPLITS if split * (largest.memory or 0) >= need.total), None)
        if degree is not None and set(pods.accelerators()) == {NVIDIA_GPU} and largest.replicas == 1:
            sums = f"{show_gb(need.total)} / {degree} = {show_gb(need.total / degree)} on each"
            where = f"request {degree} of {NVIDIA_GPU}" if degree <= largest.per_node else "run several pods"
            ways.append(f'split one copy over {degree} such GPUs ({sums}): {where} and write {SPLIT}: "{degree}"')
        ways.append("store the parameters in fewer bytes")
    text = "; or ".join(ways) or "request larger cards"
    return f"{'' if holding else 'No card of the cluster is large enough. '}{text[0].upper()}{text[1:]}."


def _how_to_know(pods: PodSet) -> str:
    names = pods.accelerators()
    if not names:
        return "Select devices by their memory in the claim's own selectors."
    if any(name.startswith("nvidia.com/") for name in names):
        return f"Run NVIDIA's GPU Feature Discovery, which labels nodes with {MEMORY_LABEL}."
    return f"Select the nodes of {' and '.join(sorted(names))} yourself: gpugate reads only the memory of NVIDIA's devices."


def _how_to_keep_off(pods: PodSet, cards: Sequence[GpuCard], enough: int) -> str:
    if set(pods.accelerators()) != {NVIDIA_GPU}:
        return "Write a node affinity for nodes whose devices are large enough."
    large = [card.shape for card in cards if (card.memory or 0) >= enough]
    if large and not any(holds(shape, pod_requests(pods)) for shape in large):
        return "Request less memory or CPU, because no node with larger cards could hold the pod."
    return f"Write {MEMORY_LABEL} Gt {bound_above(enough)} in every term of the required node affinity."
