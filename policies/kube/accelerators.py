"""Accelerator resource names: their forms, common misspellings, and the MIG slices of NVIDIA cards.

Names follow the device plugins that provide them: NVIDIA k8s-device-plugin (``nvidia.com/gpu``, the
``.shared`` suffix of renamed time-slicing, MIG as ``nvidia.com/mig-<profile>`` with the mixed strategy),
the AMD, Intel and Habana device plugins, AWS Neuron, Google TPU. Kubernetes 1.36 adds
``deviceclass.resource.kubernetes.io/<class>`` for extended resources of DRA drivers.
"""

import enum
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final, NamedTuple

from gpugate.policies.kube.memo import cached
from gpugate.policies.kube.quantity import GIB

LEGACY_GPU: Final = "alpha.kubernetes.io/nvidia-gpu"
NVIDIA_GPU: Final = "nvidia.com/gpu"

#: Device classes of NVIDIA's DRA driver that stand for a GPU (``compute-domain-*`` is IMEX, no GPU).
GPU_DEVICE_CLASSES: Final = frozenset({"gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"})
#: The classes among them that may stand for a part of a GPU.
SLICE_DEVICE_CLASSES: Final = frozenset({"mig.nvidia.com"})
_DRA_EXTENDED: Final = "deviceclass.resource.kubernetes.io"


class Form(enum.Enum):
    """Form of the devices of an accelerator resource."""

    WHOLE = "whole"
    SLICE = "slice"
    SHARED = "shared"


_WHOLE: Final = frozenset(
    {
        *(NVIDIA_GPU, LEGACY_GPU, "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"),
        *("aws.amazon.com/neuron", "aws.amazon.com/neurondevice", "google.com/tpu"),
    }
)
#: Names that only look like accelerators.
_MONITORING: Final = frozenset({"gpu.intel.com/i915_monitoring", "gpu.intel.com/xe_monitoring"})

_MIG: Final = re.compile(r"nvidia\.com/mig-(?:\d+c\.)?\d+g\.\d+gb(?:\.[a-z][a-z.]*)?", re.ASCII)
#: A device plugin may rename a MIG or shared resource: ``nvidia.com/gpu-1g5gb``, ``nvidia.com/gpu.shared``.
_RENAMED: Final = re.compile(r"nvidia\.com/gpu(?:\.shared|-\d+g\.?\d+gb(?:\.shared)?)", re.ASCII)


@cached(4096)
def form_of(resource: str) -> Form | None:
    """Return the form of the devices of ``resource``; None if it is no accelerator."""
    if resource in _WHOLE:
        return Form.WHOLE
    if resource == "aws.amazon.com/neuroncore":
        return Form.SLICE
    if _MIG.fullmatch(resource) or _RENAMED.fullmatch(resource):
        return Form.SHARED if resource.endswith(".shared") else Form.SLICE
    prefix, _, device_class = resource.rpartition("/")
    if prefix == _DRA_EXTENDED and device_class in GPU_DEVICE_CLASSES:
        return Form.SLICE if device_class in SLICE_DEVICE_CLASSES else Form.WHOLE
    return None


def is_accelerator(resource: str) -> bool:
    """Return whether ``resource`` is the extended resource of accelerators of a device plugin or DRA driver."""
    return form_of(resource) is not None


#: Pattern of accelerator names and of their common misspellings, valid in RE2 and Python.
LOOKS_LIKE: Final = r"gpu|cuda|gaudi|neuron|trainium|inferentia|mig[-._][0-9]|mig[.]nvidia|google[.]com/tpu|cloud-tpu"
_LOOKS: Final = re.compile(LOOKS_LIKE, re.ASCII | re.IGNORECASE)


@cached(4096)
def may_be_accelerator(resource: str) -> bool:
    """Return whether ``resource`` looks like an accelerator, correctly spelled or not (the webhooks select by it)."""
    return "/" in resource and not resource.endswith("_monitoring") and _LOOKS.search(resource) is not None


@cached(4096)
def taint_key(resource: str) -> str:
    """Return the taint key that usually keeps other pods off nodes with this accelerator.

    NVIDIA's own components tolerate ``nvidia.com/gpu`` also with MIG and sharing; the key of every other vendor is the resource's
    own name, as the ExtendedResourceToleration plugin assumes.
    """
    if resource.startswith("nvidia.com/") or resource == LEGACY_GPU or resource.endswith(".nvidia.com"):
        return NVIDIA_GPU
    return resource


_MISSPELT_MIG: Final = re.compile(
    r"(?:nvidia\.com/(?:gpu[.-])?|(?:gpu\.)?nvidia\.com/)?mig[-._](\d+)g[-._]?(\d+)gb((?:\.[a-z.]+)?)", re.ASCII | re.IGNORECASE
)
_MISSPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    NVIDIA_GPU: (
        *("nvidia.com/gpus", "nvidia/gpu", "nvidia.com/nvidia-gpu", "gpu.nvidia.com/gpu", "nvidia.com/cuda"),
        *("kubernetes.io/nvidia-gpu", "k8s.io/nvidia-gpu"),
    ),
    "amd.com/gpu": ("amd.com/gpus", "amd/gpu"),
    "gpu.intel.com/i915": ("intel.com/gpu", "gpu.intel.com/gpu"),
    "habana.ai/gaudi": ("habana.ai/gpu", "habana.ai/gaudis", "intel.com/gaudi"),
    "google.com/tpu": ("google.com/tpus", "cloud-tpus.google.com/v3"),
    "aws.amazon.com/neuron": ("aws.amazon.com/neurons", "aws.amazon.com/trainium", "aws.amazon.com/inferentia"),
}
_CORRECT: Final = {misspelling: name for name, misspellings in _MISSPELLINGS.items() for misspelling in misspellings}


@cached(4096)
def suggestion(resource: str) -> str | None:
    """Return the correct name for a misspelled resource; None if the name looks correct."""
    if is_accelerator(resource) or resource in _MONITORING:
        return None
    lowered = resource.lower()
    if lowered in _CORRECT:
        return _CORRECT[lowered]
    if lowered != resource and is_accelerator(lowered):
        return lowered
    match = _MISSPELT_MIG.fullmatch(resource)
    if match is None:
        return None
    compute, memory, rest = match.groups()
    return f"nvidia.com/mig-{compute}g.{memory}gb{rest.lower()}"


#: Usable part of a slice's memory: a slice has a little less than its fraction of the card (an A100 of 80 GB: 9.5 of 10
#: GiB; an H200: 16 of 17.5). Names and fractions are those of NVIDIA's MIG User Guide, "Supported MIG Profiles"; slices
#: with media extensions are left out, since they hold no more.
_USABLE: Final = Fraction(9, 10)
#: Compute slices and the fraction of memory of each slice of a card with seven compute slices, the smallest first.
_SEVEN: Final = tuple((compute, Fraction(eighths, 8)) for compute, eighths in ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4)))
_FOUR: Final = ((1, Fraction(1, 4)), (2, Fraction(1, 2)))
_PROFILE: Final = re.compile(r"(?:(\d)c\.)?(\d)g\.\d+gb", re.ASCII)


class _Family(NamedTuple):
    """Card models with the same MIG profiles: GB in the names of their profiles, by GiB of the whole card."""

    models: re.Pattern[str]
    compute: int
    sizes: dict[int, tuple[int, ...]]


_FAMILIES: Final = (
    _Family(re.compile(r"\bA(?:100|800)\b"), 7, {40: (5, 10, 10, 20, 20), 80: (10, 20, 20, 40, 40)}),
    _Family(
        re.compile(r"\b(?:H100|H800|H20|GH200)\b"),
        7,
        {80: (10, 20, 20, 40, 40), 94: (12, 24, 24, 47, 47), 96: (12, 24, 24, 48, 48), 141: (18, 35, 35, 71, 71)},
    ),
    _Family(re.compile(r"\bH200\b"), 7, {141: (18, 35, 35, 71, 71)}),
    _Family(re.compile(r"\bB200\b"), 7, {180: (23, 45, 45, 90, 90)}),
    _Family(re.compile(r"\bA30\b"), 4, {24: (6, 12)}),
    _Family(re.compile(r"\bRTX PRO 6000 Blackwell\b"), 4, {96: (24, 48)}),
)


class Slice(NamedTuple):
    """A MIG profile (``1g.10gb``), its fraction of the card's compute, and its minimum memory in bytes."""

    profile: str
    compute: Fraction
    memory: int


def slices_of(model: str, memory: int) -> tuple[Slice, ...]:
    """Return the MIG slices of a card by model name and memory in bytes, smallest first; none for an unknown card."""
    family = _family(model)
    if family is None or memory <= 0:
        return ()
    size = min(family.sizes, key=lambda size: (abs(size - memory / GIB), size))
    return tuple(_slices(family, family.sizes[size], memory))


def _family(model: str) -> _Family | None:
    return next((family for family in _FAMILIES if family.models.search(model)), None)


def _slices(family: _Family, sizes: tuple[int, ...], memory: int) -> Iterator[Slice]:
    for (compute, fraction), size in zip(_SEVEN if family.compute == 7 else _FOUR, sizes, strict=True):
        yield Slice(f"{compute}g.{size}gb", Fraction(compute, family.compute), int(memory * fraction * _USABLE))


def card_of(profile: str, model: str) -> int | None:
    """Return the memory in bytes of the smallest card of ``model`` that has this profile; None if no such card is known."""
    family = _family(model)
    if family is None:
        return None
    for size, sizes in sorted(family.sizes.items()):
        if any(mig_slice.profile == profile for mig_slice in _slices(family, sizes, size * GIB)):
            return size * GIB
    return None


def part_of(profile: str, model: str) -> Fraction:
    """Return the fraction of a card's compute that a slice has; 1 if ``profile`` is no MIG profile."""
    match = _PROFILE.fullmatch(profile)
    if match is None:
        return Fraction(1)
    family = _family(model)
    return min(Fraction(1), Fraction(int(match[1] or match[2]), family.compute if family else 7))
