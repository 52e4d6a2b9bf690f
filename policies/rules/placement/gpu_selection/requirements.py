"""What a workload says of the cards that its pods are for, and what that asks of a node's labels.

The labels are those of NVIDIA's GPU Feature Discovery (k8s-device-plugin v0.20.0, ``internal/lm``). The driver's version stands in
labels of two generations; every release so far writes the older one, the newer came with v0.15.0.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gpugate.policies.kube.accelerators import LEGACY_GPU, NVIDIA_GPU
from gpugate.policies.kube.quantity import MIB, QuantityError, whole
from gpugate.policies.rules.placement.gpu_selection.products import PRODUCT_LABEL, is_label_value, is_name, like, products_called
from gpugate.policies.scheduling.gpu_cards import MEMORY_LABEL, bound_above
from gpugate.policies.workloads.metadata import annotation_before, annotation_for, had_any_annotation, has_any_annotation
from gpugate.policies.workloads.node_affinity import Alternative
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Cards by name, several separated by commas.
GPU: Final = "gpugate.io/gpu"
#: Architectures by name, several separated by commas.
FAMILY: Final = "gpugate.io/gpu-family"
#: Memory of each card, a quantity.
MEMORY: Final = "gpugate.io/min-gpu-memory"
#: Compute capability.
COMPUTE: Final = "gpugate.io/min-compute"
#: Version of the driver.
DRIVER: Final = "gpugate.io/min-driver"
#: Version of CUDA that the driver serves.
CUDA: Final = "gpugate.io/min-cuda"
KEYS: Final = (GPU, FAMILY, MEMORY, COMPUTE, DRIVER, CUDA)
_KEYS: Final = frozenset(KEYS)

FAMILY_LABEL: Final = "nvidia.com/gpu.family"
COMPUTE_LABELS: Final = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")
#: The driver's version by generation of the labels.
DRIVER_LABELS: Final = {
    "Old": ("nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev"),
    "New": (
        "nvidia.com/cuda.driver-version.major",
        "nvidia.com/cuda.driver-version.minor",
        "nvidia.com/cuda.driver-version.revision",
    ),
}
CUDA_LABELS: Final = {
    "Old": ("nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor"),
    "New": ("nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime-version.minor"),
}
#: Labels whose value may begin with a zero.
_PADDED: Final = frozenset(label for labels in DRIVER_LABELS.values() for label in labels[1:])
#: As ``getArchFamily`` names them, without those that no current driver serves.
FAMILIES: Final = ("maxwell", "pascal", "volta", "turing", "ampere", "ada-lovelace", "hopper", "blackwell", "rubin")
_SHORT_FAMILIES: Final = {"ada": "ada-lovelace", "lovelace": "ada-lovelace"}

_VERSIONS: Final = {
    COMPUTE: re.compile(r"[1-9]\d?(?:\.\d{1,2})?", re.ASCII),
    DRIVER: re.compile(r"[1-9]\d{0,3}(?:\.\d{1,4}){0,2}", re.ASCII),
    CUDA: re.compile(r"[1-9]\d?(?:\.\d{1,2})?", re.ASCII),
}
_FORMS: Final = {
    COMPUTE: '"8.0", "8.6" or "9.0" (in quotes, or YAML takes it for a number)',
    DRIVER: '"550", "550.54" or "550.54.15" (in quotes)',
    CUDA: '"12" or "12.4" (in quotes)',
}
_LONGEST: Final = 1024
_SHARED: Final = ".shared"


class NodeRequirement(NamedTuple):
    """What one annotation asks of the nodes.

    Attributes:
        key: the annotation.
        written: what it says.
        alternatives: expressions of which a node has to meet one set.
    """

    key: str
    written: str
    alternatives: tuple[Alternative, ...]

    @property
    def shown(self) -> str:
        """The annotation as it is written."""
        return f"{self.key}: {self.written}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that it reads."""
        return tuple(dict.fromkeys(str(expression["key"]) for one in self.alternatives for expression in one))


class InvalidAnnotation(NamedTuple):
    """An annotation that asks for nothing that there is: which, what is wrong with it, and a sentence that says what to write.

    Attributes:
        unknown: whether it is well written and names what nobody knows.
    """

    key: str
    what: str
    remedy: str
    unknown: bool = False


def says_something(workload: Workload) -> bool:
    """Whether any annotation of the object or of its templates speaks of cards."""
    return has_any_annotation(workload, _KEYS)


def said_something(workload: Workload) -> bool:
    """Whether the object that an UPDATE replaces spoke of cards."""
    return had_any_annotation(workload, _KEYS)


class Labels(NamedTuple):
    """What decides of how an annotation is put into expressions, besides itself.

    Attributes:
        generation: of the labels of driver and CUDA.
        shared: whether cards handed out in shares are taken by the card's name.
        found: values of the product's label on nodes.
    """

    generation: str
    shared: bool
    found: frozenset[str]


def requirements_of(workload: Workload, pods: PodSet, labels: Labels) -> tuple[list[NodeRequirement], list[InvalidAnnotation]]:
    """What ``pods`` are told to be placed by, in the order of :data:`KEYS`, and what of it cannot be read.

    Raises:
        MalformedError: an annotation is no string.
    """
    return _requirements({key: annotation_for(workload, pods, key) for key in KEYS}, pods, labels)


def requirements_before(workload: Workload, pods: PodSet, labels: Labels) -> list[NodeRequirement]:
    """What the object that an UPDATE replaces told ``pods`` to be placed by, as far as it can be read."""
    return _requirements({key: annotation_before(workload, pods, key) for key in KEYS}, pods, labels)[0]


def _requirements(
    said: Mapping[str, str | None], pods: PodSet, labels: Labels
) -> tuple[list[NodeRequirement], list[InvalidAnnotation]]:
    read: list[NodeRequirement] = []
    bad: list[InvalidAnnotation] = []
    for key, written in said.items():
        if written is None:
            continue
        found = _read(key, written, labels, memory_labels(pods.accelerators()))
        if isinstance(found, InvalidAnnotation):
            bad.append(found)
        else:
            read.append(found)
    return read, bad


def memory_labels(resources: Collection[str]) -> tuple[str, ...]:
    """The labels that say how much memory devices of these names have: the card's, or the slice's."""
    found = {
        MEMORY_LABEL if name.removesuffix(_SHARED) in {NVIDIA_GPU, LEGACY_GPU} else f"{name.removesuffix(_SHARED)}.memory"
        for name in resources
    }
    return tuple(sorted(found)) or (MEMORY_LABEL,)


@lru_cache(maxsize=1024)
def _read(key: str, written: str, labels: Labels, memory: tuple[str, ...]) -> NodeRequirement | InvalidAnnotation:
    if key == GPU:
        return _read_products(written, labels)
    if key == FAMILY:
        return _read_families(written)
    if key == MEMORY:
        return _read_memory(written, memory)
    keys = {COMPUTE: COMPUTE_LABELS, DRIVER: DRIVER_LABELS[labels.generation], CUDA: CUDA_LABELS[labels.generation]}[key]
    return _read_version(key, written, keys)


def _names(written: str) -> list[str]:
    return [name.strip() for name in written.split(",")] if len(written) <= _LONGEST else [""]


def _read_products(written: str, labels: Labels) -> NodeRequirement | InvalidAnnotation:
    names = _names(written)
    forms = f"Write {GPU}: h100, a100-80gb, or several separated by commas; or the value of {PRODUCT_LABEL} in full."
    if not all(map(is_name, names)):
        return InvalidAnnotation(GPU, f"{written!r:.60} names no card", forms)
    meant: set[str] = set()
    for name in names:
        products = products_called(name, labels.found, shared=labels.shared)
        if not products and is_label_value(name):
            products = [name]
        if not products:
            slip = like(name)
            hint = f" (did you mean {' or '.join(slip)}?)" if slip else ""
            return InvalidAnnotation(GPU, f"{name!r:.40} is no card that gpugate knows or a node has{hint}", forms, unknown=True)
        meant.update(products)
    return NodeRequirement(GPU, written, (({"key": PRODUCT_LABEL, "operator": "In", "values": sorted(meant)},),))


def _read_families(written: str) -> NodeRequirement | InvalidAnnotation:
    names = [_SHORT_FAMILIES.get(name.lower(), name.lower()) for name in _names(written)]
    if not set(names) <= set(FAMILIES):
        what = f"{written!r:.60} is no architecture that GPU Feature Discovery names"
        return InvalidAnnotation(FAMILY, what, f"Write {FAMILY}: one of {', '.join(FAMILIES)}, or several separated by commas.")
    return NodeRequirement(FAMILY, written, (({"key": FAMILY_LABEL, "operator": "In", "values": sorted(set(names))},),))


def _read_memory(written: str, keys: Sequence[str]) -> NodeRequirement | InvalidAnnotation:
    remedy = f"Write {MEMORY}: 40Gi, or 80G for cards sold as 80 GB."
    try:
        amount = whole(written)
    except QuantityError as error:
        return InvalidAnnotation(MEMORY, str(error).partition(": write")[0], remedy)
    if amount < MIB:
        return InvalidAnnotation(MEMORY, f"{written!r:.40} are less than 1Mi: the unit is missing", remedy)
    bound = str(bound_above(amount))
    return NodeRequirement(MEMORY, written, (tuple({"key": key, "operator": "Gt", "values": [bound]} for key in keys),))


def _read_version(key: str, written: str, labels: Sequence[str]) -> NodeRequirement | InvalidAnnotation:
    if _VERSIONS[key].fullmatch(written) is None:
        return InvalidAnnotation(key, f"{written!r:.40} is no version", f"Write {key}: {_FORMS[key]}.")
    return NodeRequirement(key, written, at_least([int(part) for part in written.split(".")], labels))


def at_least(version: Iterable[int], labels: Sequence[str]) -> tuple[Alternative, ...]:
    """What labels with the parts of a version must be where it is ``version`` at least.

    There is no operator for "at least", and none that looks at two labels: a part is greater than wanted, or as wanted and
    the next one decides.
    """
    wanted = list(version)
    while len(wanted) > 1 and not wanted[-1]:
        wanted.pop()
    last = len(wanted) - 1
    return tuple(
        (
            *({"key": labels[at], "operator": "In", "values": _spellings(labels[at], wanted[at])} for at in range(depth)),
            {"key": labels[depth], "operator": "Gt", "values": [str(wanted[depth] - (1 if depth == last else 0))]},
        )
        for depth in range(last + 1)
    )


def _spellings(label: str, number: int) -> list[str]:
    """How a label has ``number``: the minor version of the driver 470.06 is "06"."""
    return [f"0{number}", str(number)] if number < 10 and label in _PADDED else [str(number)]
