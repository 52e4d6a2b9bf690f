"""Parameters of the rule `vram`, and the memory of its accelerators that a workload states or, by the rule's formula, needs.

The formula's figures are the NUMA guide's. A GB is 10^9 bytes there and here: 7 x 10^9 parameters of 2 bytes are 14 x 10^9 bytes.
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from math import ceil
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from gpugate.policies.framework.params import Params
from gpugate.policies.gangs.gang import pods_at_once
from gpugate.policies.kube.fields import whole_number
from gpugate.policies.kube.memo import cached
from gpugate.policies.kube.quantity import QuantityError, show_bytes, whole
from gpugate.policies.workloads.kinds import kinds_named
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Memory needed of each accelerator, a quantity.
VRAM: Final = "gpugate.io/vram"
#: Parameters of the model: ``7B``, ``350M``.
PARAMETERS: Final = "gpugate.io/model-parameters"
#: Number format of a parameter: a key of :data:`_BITS`.
PRECISION: Final = "gpugate.io/precision"
#: Number of accelerators over which one copy of the model is split.
SPLIT: Final = "gpugate.io/tensor-parallel"

#: Bits of one parameter, by precision.
_BITS: Final = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}
_ASSUMED: Final = "fp16"
_COUNT: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([KMBT]?)", re.ASCII | re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_GB: Final = 10**9
_LONGEST: Final = 64
_MOST_DIGITS: Final = 5


class HeadroomParams(Params):
    """Room for activations and KV cache beside a model's weights, in GB per ``weights`` GB of weights."""

    in_order = (("least", "most"),)

    weights: Annotated[float, Field(gt=0)] = 14.0
    """GB of weights that the other two figures are for."""
    least: Annotated[float, Field(ge=0)] = 4.0
    """Minimum GB of headroom: the node affinity counts it."""
    most: Annotated[float, Field(ge=0)] = 8.0
    """GB of headroom for comfort: messages show it."""

    def with_weights(self, weights: int) -> tuple[int, int]:
        """Return ``weights`` in bytes with the least and the most headroom."""
        whole = Fraction(self.weights)
        return ceil(weights * (1 + Fraction(self.least) / whole)), ceil(weights * (1 + Fraction(self.most) / whole))


class VramParams(Params):
    """Parameters of `vram`."""

    affinity: bool = True
    """Whether a node affinity keeps pods off nodes whose cards are too small."""
    headroom: HeadroomParams = HeadroomParams()
    """Headroom for activations and KV cache beside a model's weights."""
    no_card_holds: Literal["Deny", "Warn"] = "Deny"
    """Whether pods that no known card in reach could hold are refused, or only get a warning (nodes that scale up from none)."""
    headroom_tight: Literal["Deny", "Warn"] = "Warn"
    """Whether pods whose weights fit a card in reach but whose headroom fits none are refused, or only get a warning."""


class AnnotationProblem(NamedTuple):
    """An annotation that cannot be read: its key, what is wrong with it, and a sentence that says what to write."""

    key: str
    what: str
    remedy: str


class Model(NamedTuple):
    """A model: number of parameters as written, bytes of all its weights, precision (stated or assumed), split (if stated)."""

    parameters: str
    weights: int
    precision: str
    precision_stated: bool
    split: int | None


class VramStatement(NamedTuple):
    """The content of the annotations: bytes per accelerator, a model, or a problem."""

    vram: int | None = None
    model: Model | None = None
    problem: AnnotationProblem | None = None


class VramRequest(NamedTuple):
    """The memory that one pod needs of each of its accelerators.

    Attributes:
        floor: bytes without which it cannot start: the weights.
        least: bytes with the least headroom.
        certain: whether nothing of this is a guess.
        total: bytes of all accelerators of one copy with the least headroom; None if each accelerator's need is stated.
        sums: the calculation in words.
    """

    floor: int
    least: int
    certain: bool
    total: int | None
    sums: str


def vram_statement(workload: Workload) -> VramStatement | None:
    """Return what ``workload`` states about its accelerators' memory; None if nothing. ``gpugate.io/vram`` goes first.

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


@cached(1024)
def _read_vram(written: str) -> VramStatement:
    problem = f"{written!r} is not above zero"
    try:
        if (amount := whole(written)) > 0:
            return VramStatement(vram=amount)
    except QuantityError as error:
        problem = str(error)
    return VramStatement(problem=AnnotationProblem(VRAM, problem, f"Write {VRAM}: 40Gi for 40Gi on each GPU, or remove it."))


@cached(1024)
def _read_model(parameters: str, precision: str | None, split: str | None) -> VramStatement:
    count = _COUNT.fullmatch(parameters) if len(parameters) <= _LONGEST else None
    number = Fraction(count[1]) * _UNITS[count[2].upper()] if count else Fraction(0)
    if number < 1:
        return _unreadable(PARAMETERS, parameters, "no number of parameters", "7B, 1.5B or 350M: all of the model's parameters")
    stored = _ASSUMED if precision is None else precision.lower()
    if stored not in _BITS:
        return _unreadable(PRECISION, precision or "", "no precision that gpugate knows", f"one of {', '.join(_BITS)}")
    if split is not None and not whole_number(split, _MOST_DIGITS):
        return _unreadable(SPLIT, split, "no whole number of at least 1", 'the number of GPUs that hold one copy, "8"')
    weights = ceil(number * _BITS[stored] / 8)
    return VramStatement(model=Model(parameters, weights, stored, precision is not None, None if split is None else int(split)))


def _unreadable(key: str, written: str, what: str, correct: str) -> VramStatement:
    return VramStatement(problem=AnnotationProblem(key, f"{written!r:.40} is {what}", f"Write {key}: {correct}."))


def copies_of(workload: Workload, pods: PodSet) -> tuple[int, bool]:
    """Return how many accelerators may hold one copy of the model together, and whether that is certain, if no split is stated.

    The accelerators of one pod; those of all pods if a gang, a StatefulSet or a Ray cluster may hold one copy together. The
    siblings of a controller's pod are unknown, unless each of its pods is a copy, and so is how far an elastic workload grows.
    """
    devices = sum(pods.accelerators().values()) or 1
    owner = workload.controller()
    gang = pods_at_once(workload)
    # A controller of this name in another API group works the same way.
    one_by_one = owner is not None and any(kind.one_by_one for kind in kinds_named(str(owner.get("kind"))))
    certain = owner is None or one_by_one or (gang is not None and gang.declared)
    if gang is not None:
        several = gang.members is not None and len(gang.parts) > 1
        total = _devices_of((part, gang.number_of(part)) for part in gang.parts) if several else devices * gang.size
    elif pods.kind.shares_model or (workload.kind.wraps is not None and not pods.kind.one_by_one):
        total = _devices_of((part, part.count or 0) for part in workload.gpu_pod_sets() if part.kind is pods.kind)
    else:
        total = devices
    ranged = any(part.numbers.min_count is not None for part in workload.gpu_pod_sets())
    return max(devices, total), certain and not ranged


def _devices_of(parts: Iterable[tuple[PodSet, int]]) -> int:
    return sum(sum(part.accelerators().values()) * number for part, number in parts)


def vram_request(workload: Workload, pods: PodSet, stated: VramStatement, headroom: HeadroomParams) -> VramRequest:
    """Return the memory that one of ``pods`` needs of each accelerator, by the annotations that were read without a problem."""
    model = stated.model
    if model is None:
        vram = stated.vram or 0
        return VramRequest(vram, vram, certain=True, total=None, sums=f"{VRAM} requests {show_bytes(vram)} on each GPU")
    degree, certain = (model.split, True) if model.split is not None else copies_of(workload, pods)
    least, most = headroom.with_weights(model.weights)
    sums = (
        f"{model.parameters} parameters x {_BITS[model.precision] / 8:g} bytes ({model.precision}"
        f"{'' if model.precision_stated else ', assumed'}) = {show_gb(model.weights)} of weights, with activations and KV cache"
        f" {show_gb(least)} to {show_gb(most)}"
    )
    if degree > 1:
        sums += (
            f"; each of {degree} GPUs needs {show_gb(model.weights / degree)} for weights, {show_gb(least / degree)} with"
            " activations and KV cache"
        )
    return VramRequest(-(-model.weights // degree), -(-least // degree), certain, least, sums)


def show_gb(size: float) -> str:
    """Return ``size`` in bytes as the guides and makers of cards write it: ``14GB``, 10^9 bytes each."""
    unit, suffix = (_GB, "GB") if size >= _GB else (10**6, "MB")
    return f"{size / unit:.1f}".removesuffix(".0") + suffix
