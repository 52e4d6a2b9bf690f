"""What cards the nodes have, as their labels say, and which of them suit a workload."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.rules.placement.gpu_selection.requirements import COMPUTE_LABELS, DRIVER_LABELS, NodeRequirement
from gpugate.policies.scheduling.gpu_cards import MEMORY_LABEL
from gpugate.policies.scheduling.node_selection import meets

_SHOWN: Final = 5
_NOWHERE: Final = frozenset({None})
_GB: Final = 10**9
_GIB: Final = 1 << 30


def matches(shape: NodeShape, wanted: NodeRequirement) -> bool:
    """Whether some node of ``shape`` may meet what is ``wanted``."""
    return any(
        all(meets(expression, shape.labels.get(str(expression["key"]), _NOWHERE)) for expression in one)
        for one in wanted.alternatives
    )


def unlabelled(shapes: Iterable[NodeShape], wanted: Sequence[NodeRequirement]) -> list[NodeShape]:
    """Those of ``shapes`` that fail nothing which their labels speak of, but lack a label that is read."""
    return [
        shape
        for shape in shapes
        if any(None in _values(shape, label) for one in wanted for label in one.labels)
        and all(matches(shape, one) for one in wanted if not any(None in _values(shape, label) for label in one.labels))
    ]


def _values(shape: NodeShape, label: str) -> frozenset[str | None]:
    return shape.labels.get(label, _NOWHERE)


def nodes_in(shapes: Iterable[NodeShape]) -> int:
    """How many nodes these shapes are."""
    return sum(len(shape.nodes) for shape in shapes)


def almost_enough(shapes: Iterable[NodeShape], memory: NodeRequirement) -> list[NodeShape]:
    """Those of ``shapes`` whose cards would have the memory that is asked for if its Gi were GB."""
    label = memory.labels[0]
    bound = int(memory.alternatives[0][0]["values"][0])
    return [
        shape
        for shape in shapes
        if memory.written.endswith("i")
        and not matches(shape, memory)
        and any(value is not None and value.isdigit() and int(value) * _GIB > bound * _GB for value in _values(shape, label))
    ]


def inventory(shapes: Iterable[NodeShape]) -> str:
    """The cards of ``shapes``, most nodes first: ``8 x NVIDIA-H100-80GB-HBM3 (81559Mi, compute 9.0, driver 550.54)``."""
    counts: dict[str, int] = {}
    for shape in shapes:
        name = _described(shape)
        counts[name] = counts.get(name, 0) + len(shape.nodes)
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    listed = [f"{count} x {name}" for name, count in ranked[:_SHOWN]]
    return ", ".join(listed) + (f" and {len(ranked) - _SHOWN} more kinds" if len(ranked) > _SHOWN else "")


def _described(shape: NodeShape) -> str:
    said = []
    memory = _one_of(shape, MEMORY_LABEL)
    if memory:
        said.append(f"{' or '.join(memory)}Mi")
    for name, labels in (("compute", COMPUTE_LABELS), ("driver", _driver_labels(shape))):
        version = _version(shape, labels)
        if version:
            said.append(f"{name} {version}")
    return f"{shape.title} ({', '.join(said)})" if said else shape.title


def _version(shape: NodeShape, labels: Sequence[str]) -> str:
    """The version in ``labels``: its first parts alone where nodes differ, since it is not known which parts go together."""
    parts = [found for found in (_one_of(shape, label) for label in labels) if found]
    if any(len(found) > 1 for found in parts):
        return " or ".join(parts[0])
    return ".".join(found[0] for found in parts)


def _driver_labels(shape: NodeShape) -> tuple[str, ...]:
    old, new = DRIVER_LABELS["Old"], DRIVER_LABELS["New"]
    return old if old[0] in shape.labels else new


def _one_of(shape: NodeShape, label: str) -> list[str]:
    return sorted(value for value in shape.labels.get(label, ()) if value)
