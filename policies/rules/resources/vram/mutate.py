"""Edits of the rule `vram`."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.accelerators import NVIDIA_GPU
from gpugate.policies.kube.managers import has_kueue_marks
from gpugate.policies.patch import Edit
from gpugate.policies.rules.resources.vram.estimate import Headroom, VramRequest, VramStatement, vram_request, vram_statement
from gpugate.policies.rules.resources.vram.params import VramParams
from gpugate.policies.scheduling.gpu_cards import MEMORY_LABEL, GpuCard, all_labelled, bound_above, cards_in_reach
from gpugate.policies.scheduling.node_fit import holds
from gpugate.policies.workloads.node_affinity import require
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import pod_requests
from gpugate.policies.workloads.workload import Workload


def vram_request_for(workload: Workload, pods: PodSet, stated: VramStatement, params: VramParams) -> VramRequest:
    """Return the memory that the pods need, with the policy's headroom."""
    least, most = (Fraction(part) / Fraction(params.headroom.weights) for part in (params.headroom.least, params.headroom.most))
    return vram_request(workload, pods, stated, Headroom(least, most))


def enough_memory(cards: Sequence[GpuCard], need: VramRequest) -> int:
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
    need = vram_request_for(workload, pods, stated, params)
    cards = cards_in_reach(pods, snapshot)
    if not need.certain or set(pods.accelerators()) != {NVIDIA_GPU}:
        return ()
    enough = enough_memory(cards, need)
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
