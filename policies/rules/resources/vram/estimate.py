"""How much memory of its accelerators a workload says it needs, and the formula for a model's parameters.

    weights  = parameters x bytes of one parameter
    headroom = weights x 4/14 at least, weights x 8/14 for comfort
    need     = (weights + headroom) / GPUs that hold one copy of the model

The figures are the NUMA guide's, for a 7B model in FP16: 14GB of weights, and 4GB to 8GB beside them for activations and the KV
cache. GB there, as here, are 10^9 bytes: 7 x 10^9 parameters of 2 bytes are 14 x 10^9 bytes.
"""

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.accelerators import NVIDIA_GPU
from gpugate.policies.kube.fields import Path, whole_number
from gpugate.policies.kube.quantity import GIB, QuantityError, format_bytes, show_bytes, whole
from gpugate.policies.scheduling.gpu_cards import MEMORY_LABEL, GpuCard, all_cards, bound_above
from gpugate.policies.scheduling.node_fit import holds
from gpugate.policies.workloads.kinds import kinds_named
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import pod_requests
from gpugate.policies.workloads.workload import Workload

#: Memory needed of each accelerator, a quantity.
VRAM: Final = "gpugate.io/vram"
#: Parameters of the model: ``7B``, ``350M``.
PARAMETERS: Final = "gpugate.io/model-parameters"
#: How a parameter is stored: a key of :data:`BITS`.
PRECISION: Final = "gpugate.io/precision"
#: Over how many accelerators one copy of the model is split.
SPLIT: Final = "gpugate.io/tensor-parallel"

#: Bits of one parameter, by precision.
BITS: Final = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}
_ASSUMED: Final = "fp16"
_COUNT: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([KMBT]?)", re.ASCII | re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_GB: Final = 10**9
_LONGEST: Final = 64
_MOST_DIGITS: Final = 5
_WIDEST: Final = 1 << 12
_SHOWN: Final = 3


class AnnotationProblem(NamedTuple):
    """An annotation that cannot be read: which, what is wrong with it, and a sentence that says what to write."""

    key: str
    what: str
    remedy: str


class Model(NamedTuple):
    """A model as its annotations state it.

    Attributes:
        written: its number of parameters as it is written.
        weights: bytes of all its parameters.
        precision: how one is stored.
        stated: whether the precision is stated, not assumed.
        split: over how many accelerators a copy is split; None where that is not stated.
    """

    written: str
    weights: int
    precision: str
    stated: bool
    split: int | None


class VramStatement(NamedTuple):
    """What the annotations say: bytes per accelerator, or a model, or what cannot be read."""

    vram: int | None = None
    model: Model | None = None
    problem: AnnotationProblem | None = None

    @property
    def key(self) -> str:
        """The annotation that counts."""
        return VRAM if self.model is None else PARAMETERS


class Headroom(NamedTuple):
    """Room for activations and KV cache as parts of the weights."""

    least: Fraction
    most: Fraction


class VramRequest(NamedTuple):
    """What one pod needs of each of its accelerators.

    Attributes:
        floor: bytes without which it cannot start: the weights.
        least: bytes with the least headroom.
        degree: accelerators that hold one copy of the model.
        certain: whether nothing of this is a guess.
        total: bytes of all accelerators of one copy with the least headroom; None where each accelerator's need is stated.
        sums: how it comes about.
    """

    floor: int
    least: int
    degree: int
    certain: bool
    total: int | None
    sums: str


def vram_statement(workload: Workload) -> VramStatement | None:
    """What ``workload`` says of its accelerators' memory; None where it says nothing. ``gpugate.io/vram`` goes first.

    Raises:
        MalformedError: an annotation is no string.
    """
    written = workload.annotation(VRAM)
    if written is not None:
        return _read_vram(written)
    written = workload.annotation(PARAMETERS)
    if written is None:
        return None
    return _read_model(written, workload.annotation(PRECISION), workload.annotation(SPLIT))


def place_of(workload: Workload, key: str) -> Path:
    """Where annotation ``key`` stands: at the object itself or at its template."""
    if key in workload.annotations() or not workload.pod_sets:
        return ("metadata", "annotations", key)
    return workload.pod_sets[0].meta("annotations", key)


@lru_cache(maxsize=1024)
def _read_vram(written: str) -> VramStatement:
    try:
        amount = whole(written)
        problem = "" if amount > 0 else f"{written!r} is not above zero"
    except QuantityError as error:
        amount, problem = 0, str(error)
    if problem:
        return VramStatement(problem=AnnotationProblem(VRAM, problem, f"Write {VRAM}: 40Gi for 40Gi on each GPU, or remove it."))
    return VramStatement(vram=amount)


@lru_cache(maxsize=1024)
def _read_model(parameters: str, precision: str | None, split: str | None) -> VramStatement:
    count = _COUNT.fullmatch(parameters) if len(parameters) <= _LONGEST else None
    number = Fraction(count[1]) * _UNITS[count[2].upper()] if count else Fraction(0)
    if number < 1:
        return _unreadable(PARAMETERS, parameters, "no number of parameters", "7B, 1.5B or 350M: all of the model's parameters")
    stored = _ASSUMED if precision is None else precision.lower()
    if stored not in BITS:
        return _unreadable(PRECISION, precision or "", "none that gpugate knows", f"one of {', '.join(BITS)}")
    if split is not None and not whole_number(split, _MOST_DIGITS):
        return _unreadable(SPLIT, split, "no whole number of at least 1", 'the number of GPUs that hold one copy, "8"')
    weights = _ceiling(number * BITS[stored] / 8)
    return VramStatement(model=Model(parameters, weights, stored, precision is not None, None if split is None else int(split)))


def _unreadable(key: str, written: str, what: str, wanted: str) -> VramStatement:
    return VramStatement(problem=AnnotationProblem(key, f"{written!r:.40} is {what}", f"Write {key}: {wanted}."))


def _ceiling(amount: Fraction) -> int:
    return -(-amount.numerator // amount.denominator)


def copies_of(workload: Workload, pods: PodSet) -> tuple[int, bool]:
    """Accelerators that may hold one copy of the model together, and whether that is certain, where no split is stated.

    Those of a pod of its own; those of all pods where a gang, a StatefulSet or a Ray cluster may hold one copy together. What
    else there is besides a controller's pod is not known, unless each of its pods is a copy, nor how far an elastic one grows.
    """
    devices = sum(pods.accelerators().values()) or 1
    owner = workload.controller()
    gang = gang_of(workload)
    # A controller of this name in another API group works the same way.
    one_by_one = owner is not None and any(kind.one_by_one for kind in kinds_named(str(owner.get("kind"))))
    certain = owner is None or one_by_one or (gang is not None and gang.declared)
    if gang is not None:
        several = gang.members is not None and len(gang.parts) > 1
        found = _devices_of((part, gang.number_of(part)) for part in gang.parts) if several else devices * gang.size
    elif pods.kind.shares_model or (workload.kind.wraps is not None and not pods.kind.one_by_one):
        found = _devices_of((part, part.count or 0) for part in workload.gpu_pod_sets() if part.kind is pods.kind)
    else:
        found = devices
    ranged = any(part.numbers.min_count is not None for part in workload.gpu_pod_sets())
    return max(devices, found), certain and not ranged


def _devices_of(parts: Iterable[tuple[PodSet, int]]) -> int:
    return sum(sum(part.accelerators().values()) * number for part, number in parts)


def vram_request(workload: Workload, pods: PodSet, stated: VramStatement, headroom: Headroom) -> VramRequest:
    """What one of ``pods`` needs of each accelerator, by the annotations that were read without a problem."""
    model = stated.model
    if model is None:
        vram = stated.vram or 0
        return VramRequest(vram, vram, 1, certain=True, total=None, sums=f"{VRAM} asks for {show_bytes(vram)} on each GPU")
    degree, certain = (model.split, True) if model.split is not None else copies_of(workload, pods)
    least, most = (_ceiling(model.weights * (1 + part)) for part in headroom)
    sums = (
        f"{model.written} parameters x {BITS[model.precision] / 8:g} bytes ({model.precision}{'' if model.stated else ', assumed'})"
        f" = {show_gb(model.weights)} of weights, with activations and KV cache {show_gb(least)} to {show_gb(most)}"
    )
    if degree > 1:
        sums += f"; split over {degree} GPUs {show_gb(model.weights / degree)} of weights, {show_gb(least / degree)} with the rest"
    return VramRequest(-(-model.weights // degree), -(-least // degree), degree, certain, least, sums)


def _least_split(need: VramRequest, memory: int) -> int | None:
    """The least power of two of cards with ``memory`` bytes that hold one copy together; None where that can't be said."""
    if need.total is None:
        return None
    degree = 1
    while degree <= _WIDEST:
        if degree * memory >= need.total:
            return degree
        degree *= 2
    return None


def show_gb(size: float) -> str:
    """``size`` in bytes as the guides and makers of cards write it: ``14GB``, 10^9 bytes each."""
    unit, suffix = (_GB, "GB") if size >= _GB else (10**6, "MB")
    return f"{size / unit:.1f}".removesuffix(".0") + suffix


def show_need(need: VramRequest, size: int) -> str:
    """``size`` in bytes in the unit that the need is stated in."""
    return show_bytes(size) if need.total is None else show_gb(size)


def show_memory(need: VramRequest, card: GpuCard) -> str:
    """The memory of ``card`` in the unit that the need is stated in, and to the MiB as its label has it."""
    memory = card.memory or 0
    short, exact = show_need(need, memory), f"{memory >> 20}Mi"
    return short if short == exact or format_bytes(memory) == short else f"{short} ({exact})"


def ways_out(pods: PodSet, need: VramRequest, largest: GpuCard, snapshot: ClusterSnapshot) -> str:
    """A sentence on which cards of the cluster would hold the need, and how else it could be met."""
    ways = []
    holding = [card for card in all_cards(snapshot.shapes) if (card.memory or 0) >= need.least]
    if holding:
        shown = dict.fromkeys(f"{card.title} ({show_need(need, card.memory or 0)}, {card.per_node} per node)" for card in holding)
        ways.append(f"let the pods onto what would hold it: {', '.join(list(shown)[:_SHOWN])}")
    degree = _least_split(need, largest.memory or 0) if set(pods.accelerators()) == {NVIDIA_GPU} and largest.replicas == 1 else None
    if degree is not None and need.total is not None:
        sums = f"{show_gb(need.total)} / {degree} = {show_gb(need.total / degree)} on each"
        where = f"ask for {degree} of {NVIDIA_GPU}" if degree <= largest.per_node else "in several pods"
        ways.append(f'split one copy over {degree} such GPUs ({sums}): {where}, with {SPLIT}: "{degree}"')
    if need.total is None and (largest.memory or 0) >= GIB:
        ways.append(f"write {VRAM}: {format_bytes((largest.memory or 0) // GIB * GIB)} at most")
    elif need.total is not None:
        ways.append("store the parameters in fewer bytes")
    text = "; or ".join(ways) or "ask for larger cards"
    return f"{'' if holding else 'No card of the cluster has as much. '}{text[0].upper()}{text[1:]}."


def how_to_know(pods: PodSet) -> str:
    """A sentence on what would make the memory of the pods' devices known."""
    names = pods.accelerators()
    if not names:
        return "Select devices by their memory in the claim's own selectors."
    if any(name.startswith("nvidia.com/") for name in names):
        return f"Run NVIDIA's GPU Feature Discovery, which labels nodes with {MEMORY_LABEL}."
    return f"Choose the nodes of {' and '.join(sorted(names))} by hand: gpugate reads the memory of NVIDIA's devices alone."


def how_to_keep_off(pods: PodSet, cards: Sequence[GpuCard], enough: int) -> str:
    """A sentence on what keeps the pods off those of ``cards`` that have less than ``enough`` bytes."""
    if set(pods.accelerators()) != {NVIDIA_GPU}:
        return "Write a node affinity for nodes whose devices are large enough."
    large = [card.shape for card in cards if (card.memory or 0) >= enough]
    if large and not any(holds(shape, pod_requests(pods)) for shape in large):
        return "Ask for less memory or CPU: no node with larger cards could hold the pod."
    return f"Write {MEMORY_LABEL} Gt {bound_above(enough)} in every term of the required node affinity."
