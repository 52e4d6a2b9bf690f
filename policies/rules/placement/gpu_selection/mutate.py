"""Parameters of the rule `placement`, the requirements of annotations on the labels of nodes, and the edits that add them.

The labels are those of NVIDIA's GPU Feature Discovery (k8s-device-plugin v0.20.0, ``internal/lm``). The driver's version has two
generations of labels; every release so far writes the older one, the newer exists since v0.15.0.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.params import Params
from gpugate.policies.kube.accelerators import LEGACY_GPU, NVIDIA_GPU
from gpugate.policies.kube.managers import has_kueue_marks
from gpugate.policies.kube.memo import cached
from gpugate.policies.kube.quantity import MIB, QuantityError, whole
from gpugate.policies.patch import Edit
from gpugate.policies.rules.placement.gpu_selection.products import (
    PRODUCT_LABEL,
    is_label_value,
    is_name,
    products_called,
    similar_names,
)
from gpugate.policies.scheduling.gpu_cards import MEMORY_LABEL, bound_above
from gpugate.policies.workloads.metadata import (
    annotation_before,
    annotation_for,
    copy_to_template,
    had_any_annotation,
    has_any_annotation,
)
from gpugate.policies.workloads.node_affinity import Alternative, both, growth, require, required_terms
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: The annotations: products and architectures by name, minimum memory of each GPU, minimum versions.
GPU: Final = "gpugate.io/gpu"
FAMILY: Final = "gpugate.io/gpu-family"
MEMORY: Final = "gpugate.io/min-gpu-memory"
COMPUTE: Final = "gpugate.io/min-compute"
DRIVER: Final = "gpugate.io/min-driver"
CUDA: Final = "gpugate.io/min-cuda"
_ORDER: Final = (GPU, FAMILY, MEMORY, COMPUTE, DRIVER, CUDA)
KEYS: Final = frozenset(_ORDER)

FAMILY_LABEL: Final = "nvidia.com/gpu.family"
COMPUTE_LABELS: Final = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")
#: The driver's version, by generation of the labels.
DRIVER_LABELS: Final = {
    "Old": ("nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev"),
    "New": tuple(f"nvidia.com/cuda.driver-version.{part}" for part in ("major", "minor", "revision")),
}
CUDA_LABELS: Final = {
    "Old": ("nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor"),
    "New": ("nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime-version.minor"),
}
#: Labels whose value may begin with a zero.
_PADDED: Final = frozenset(label for labels in DRIVER_LABELS.values() for label in labels[1:])
#: The names of ``getArchFamily``, without those that no current driver supports.
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
#: Maximum number of nodeSelectorTerms. The API has no limit; the scheduler evaluates each term for each node.
MOST_TERMS: Final = 64
#: Prefixes of resources that may be NVIDIA's: its own, and the name by which dynamic resource allocation offers device classes.
_NVIDIA: Final = ("nvidia.com/", "deviceclass.resource.kubernetes.io/")


class PlacementParams(Params):
    """Parameters of `placement`."""

    shared: bool = False
    """Whether a name without `shared` selects time-sliced GPUs, too."""
    driver_labels: Literal["Old", "New"] = "Old"
    """Which labels have the versions of driver and CUDA: `Old` is `nvidia.com/cuda.driver.major` etc., which every release
    of GPU Feature Discovery up to v0.20.0 writes; `New` is `nvidia.com/cuda.driver-version.major` etc., written since v0.15.0."""
    no_node_matches: Literal["Deny", "Warn"] = "Deny"
    """What is done about pods that match no known node; Warn for nodes that scale up from zero."""


class NodeRequirement(NamedTuple):
    """A requirement of one annotation on nodes: its key, its value, and expressions of which a node must meet one set."""

    key: str
    written: str
    alternatives: tuple[Alternative, ...]

    @property
    def shown(self) -> str:
        """The annotation in words."""
        return f"{self.key}: {self.written}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the expressions."""
        return tuple(dict.fromkeys(str(expression["key"]) for alternative in self.alternatives for expression in alternative))


class InvalidAnnotation(NamedTuple):
    """An annotation whose value is invalid, or well-formed and ``unknown``, with the problem and the remedy in words."""

    key: str
    problem: str
    remedy: str
    unknown: bool = False


class Labels(NamedTuple):
    """The parameters that expressions depend on, and the values of the product label on nodes."""

    generation: str
    shared: bool
    products: frozenset[str]


def requirements_of(workload: Workload, pods: PodSet, labels: Labels) -> tuple[list[NodeRequirement], list[InvalidAnnotation]]:
    """Return the requirements of the annotations of ``pods``, and the invalid annotations.

    Raises:
        MalformedError: an annotation is no string.
    """
    return _requirements({key: annotation_for(workload, pods, key) for key in _ORDER}, pods, labels)


def requirements_before(workload: Workload, pods: PodSet, labels: Labels) -> list[NodeRequirement]:
    """Return the requirements that the annotations of ``pods`` had before the UPDATE, as far as they were valid."""
    return _requirements({key: annotation_before(workload, pods, key) for key in _ORDER}, pods, labels)[0]


def _requirements(
    annotations: Mapping[str, str | None], pods: PodSet, labels: Labels
) -> tuple[list[NodeRequirement], list[InvalidAnnotation]]:
    memory = memory_labels(pods.accelerators())
    parsed = [_parse(key, written, labels, memory) for key, written in annotations.items() if written is not None]
    requirements = [item for item in parsed if isinstance(item, NodeRequirement)]
    return requirements, [item for item in parsed if isinstance(item, InvalidAnnotation)]


def memory_labels(resources: Collection[str]) -> tuple[str, ...]:
    """Return the labels with the memory of devices of these names: that of the whole GPU, or that of the slice."""
    names = {name.removesuffix(_SHARED) for name in resources}
    labels = {MEMORY_LABEL if name in {NVIDIA_GPU, LEGACY_GPU} else f"{name}.memory" for name in names}
    return tuple(sorted(labels)) or (MEMORY_LABEL,)


@cached(1024)
def _parse(key: str, written: str, labels: Labels, memory: tuple[str, ...]) -> NodeRequirement | InvalidAnnotation:
    if key == GPU:
        return _parse_products(written, labels)
    if key == FAMILY:
        return _parse_families(written)
    if key == MEMORY:
        return _parse_memory(written, memory)
    if _VERSIONS[key].fullmatch(written) is None:
        return InvalidAnnotation(key, f"{written!r:.40} is no version", f"Write {key}: {_FORMS[key]}.")
    keys = {COMPUTE: COMPUTE_LABELS, DRIVER: DRIVER_LABELS[labels.generation], CUDA: CUDA_LABELS[labels.generation]}[key]
    return NodeRequirement(key, written, at_least([int(part) for part in written.split(".")], keys))


def _names(written: str) -> list[str]:
    return [name.strip() for name in written.split(",")] if len(written) <= _LONGEST else [""]


def _parse_products(written: str, labels: Labels) -> NodeRequirement | InvalidAnnotation:
    names = _names(written)
    remedy = f"Write {GPU}: h100, a100-80gb, several names separated by commas, or the full value of {PRODUCT_LABEL}."
    if not all(map(is_name, names)):
        return InvalidAnnotation(GPU, f"{written!r:.60} names no GPU", remedy)
    products: set[str] = set()
    for name in names:
        called = products_called(name, labels.products, shared=labels.shared) or ([name] if is_label_value(name) else [])
        if not called:
            similar = similar_names(name)
            hint = f" (did you mean {' or '.join(similar)}?)" if similar else ""
            problem = f"{name!r:.40} is no GPU that gpugate knows or a node has{hint}"
            return InvalidAnnotation(GPU, problem, remedy, unknown=True)
        products.update(called)
    return NodeRequirement(GPU, written, (({"key": PRODUCT_LABEL, "operator": "In", "values": sorted(products)},),))


def _parse_families(written: str) -> NodeRequirement | InvalidAnnotation:
    names = [_SHORT_FAMILIES.get(name.lower(), name.lower()) for name in _names(written)]
    if not set(names) <= set(FAMILIES):
        problem = f"{written!r:.60} is no architecture of GPU Feature Discovery"
        return InvalidAnnotation(FAMILY, problem, f"Write {FAMILY}: one of {', '.join(FAMILIES)}, or several separated by commas.")
    return NodeRequirement(FAMILY, written, (({"key": FAMILY_LABEL, "operator": "In", "values": sorted(set(names))},),))


def _parse_memory(written: str, keys: Sequence[str]) -> NodeRequirement | InvalidAnnotation:
    remedy = f"Write {MEMORY}: 40Gi, or 80G for GPUs sold as 80 GB."
    try:
        amount = whole(written)
    except QuantityError as error:
        return InvalidAnnotation(MEMORY, str(error).partition(": write")[0], remedy)
    if amount < MIB:
        return InvalidAnnotation(MEMORY, f"{written!r:.40} is less than 1Mi, so the unit is missing", remedy)
    bound = str(bound_above(amount))
    return NodeRequirement(MEMORY, written, (tuple({"key": key, "operator": "Gt", "values": [bound]} for key in keys),))


def at_least(version: Sequence[int], labels: Sequence[str]) -> tuple[Alternative, ...]:
    """Return the alternatives that ``labels``, the parts of a version, meet if the version is ``version`` or later.

    No operator means "at least", and none compares two labels: a part is greater, or it is equal and the next one decides.
    """
    parts = list(version)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    last = len(parts) - 1
    return tuple(
        (
            *({"key": labels[at], "operator": "In", "values": _spellings(labels[at], parts[at])} for at in range(depth)),
            {"key": labels[depth], "operator": "Gt", "values": [str(parts[depth] - (1 if depth == last else 0))]},
        )
        for depth in range(last + 1)
    )


def _spellings(label: str, number: int) -> list[str]:
    """Return the label values of ``number``: the minor version of the driver 470.06 is "06"."""
    return [f"0{number}", str(number)] if number < 10 and label in _PADDED else [str(number)]


def labels_for(params: PlacementParams, snapshot: ClusterSnapshot) -> Labels:
    """Return the labels that the nodes' version of GPU Feature Discovery writes, with the products of the nodes."""
    products = frozenset(value for shape in snapshot.shapes for value in shape.labels.get(PRODUCT_LABEL, ()) if value)
    return Labels(params.driver_labels, params.shared, products)


def mutate(workload: Workload, params: PlacementParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Require the nodes that the annotations name."""
    if not has_any_annotation(workload, KEYS) and not had_any_annotation(workload, KEYS):
        return ()
    if workload.is_pod() and workload.controller() is not None and has_kueue_marks(workload.root):
        # Kueue selects the nodes of its pods by their template.
        return ()
    labels = labels_for(params, snapshot)
    return [edit for pods in workload.templated_gpu_pod_sets() for edit in _edits(workload, pods, labels)]


def _edits(workload: Workload, pods: PodSet, labels: Labels) -> list[Edit]:
    requirements, _ = requirements_of(workload, pods, labels)
    before = requirements_before(workload, pods, labels) if workload.old is not None else []
    if not (requirements or before) or other_vendors(pods):
        return []
    alternatives = both(requirement.alternatives for requirement in requirements) if requirements else ()
    old_alternatives = both(requirement.alternatives for requirement in before) if before else ()
    if growth(pods, alternatives).terms > MOST_TERMS:
        return []
    note = f"node affinity for {', '.join(requirement.shown for requirement in requirements)}" if requirements else ""
    edits = list(require(pods, alternatives, note, old_alternatives))
    if edits and required_terms(pods):
        edits += copy_to_template(workload, pods, _ORDER)
    return edits


def other_vendors(pods: PodSet) -> list[str]:
    """Return the requested devices of other vendors than NVIDIA, sorted."""
    return sorted(name for name in pods.accelerators() if not name.startswith(_NVIDIA) and name != LEGACY_GPU)
