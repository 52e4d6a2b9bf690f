"""Share of a node's memory and CPU per accelerator, so that all its accelerators remain usable."""

import re
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.kube.accelerators import NVIDIA_GPU, Form, form_of, is_accelerator
from gpugate.policies.scheduling.node_selection import hands_out_shares

_SLICE: Final = re.compile(r"nvidia\.com/mig-(?:\d+c\.)?(\d+)g\.", re.ASCII)
#: A card with MIG has seven compute slices (NVIDIA MIG User Guide, A100 and H100 profiles).
_SLICES_OF_A_CARD: Final = 7


class NodeShare(NamedTuple):
    """Share of a node that belongs to one accelerator.

    Attributes:
        memory: bytes.
        cpu: millicores.
        source: origin of the amounts, for messages.
        most_memory: bytes on the node with the largest share.
        most_cpu: millicores on the node with the largest share.
        titles: names of the nodes with the smallest and the largest share of memory.
    """

    memory: int
    cpu: int
    source: str
    most_memory: int
    most_cpu: int
    titles: tuple[str, str]


def share_of(shapes: Iterable[NodeShape], name: str, reserve: float) -> NodeShare | None:
    """Return the smallest share of one ``name`` over ``shapes``, less ``reserve`` (0 to 1) of each node; None without shapes.

    The smallest share fits on all shapes. Memory is rounded down to whole GiB and CPU to
    whole cores, where at least one is left. A MIG slice has the share of its part of the card's compute slices;
    several names for the same devices (the Neuron plugin's) do not divide the node again.
    """
    shares = [(*_share(shape, name, reserve), shape) for shape in shapes]
    if not shares:
        return None
    memory, _, smallest = min(shares, key=itemgetter(0))
    part, whole = _part(smallest, name)
    node = f"{smallest.title}, {part} of {whole}" if whole > 1 else smallest.title
    source = f"one {_device(name)}'s share of the smallest node ({node})"
    most, _, largest = max(shares, key=itemgetter(0))
    cpus = [cpu for _, cpu, _ in shares]
    return NodeShare(memory, min(cpus), source, most, max(cpus), (smallest.title, largest.title))


def _share(shape: NodeShape, name: str, reserve: float) -> tuple[int, int]:
    part, whole = _part(shape, name)
    memory = _round_down(int(shape.least_memory * (1 - reserve)) * part // whole, 1 << 30)
    return memory, _round_down(int(shape.cpu * (1 - reserve)) * part // whole, 1000)


class Portion(NamedTuple):
    """The part of a node's accelerators that a pod requests.

    Attributes:
        name: the accelerator with the largest requested part.
        number: requested count.
        unit: parts per accelerator: compute slices if the cards have MIG slices, else 1.
        whole: parts of the node.
    """

    name: str
    number: int
    unit: int
    whole: int

    @property
    def parts(self) -> int:
        """Parts that the pod requests."""
        return self.number * self.unit

    @property
    def noun(self) -> str:
        """Name of a part in messages."""
        return "compute slices" if _SLICE.match(self.name) else "accelerators"


def portion_of(shape: NodeShape, devices: Mapping[str, int]) -> Portion | None:
    """Return the largest part of the node's accelerators that a pod requests; None for all of them, or for a share of a card."""
    if hands_out_shares(shape):
        return None
    best: Portion | None = None
    for name, count in devices.items():
        unit, whole = _part(shape, name)
        if count * unit >= whole or form_of(name) is Form.SHARED:
            return None
        if best is None or count * unit * best.whole > best.parts * whole:
            best = Portion(name, count, unit, whole)
    return best


def excess(requested: int, allocatable: int, portion: Portion) -> float:
    """Return the multiple of its fair share that a pod requests: ``(requested / allocatable) / (parts / whole)``."""
    return requested * portion.whole / (allocatable * portion.parts) if allocatable else 0.0


def _part(shape: NodeShape, name: str) -> tuple[int, int]:
    """Return the parts of the node per ``name``, and the parts of the node."""
    sliced = {other: _slices(other) for other in shape.devices if is_accelerator(other) and _slices(other)}
    if name not in sliced or not any(_SLICE.match(other) for other in sliced):
        return 1, shape.devices[name]
    return sliced[name], sum(slices * shape.devices[other] for other, slices in sliced.items())


def _slices(name: str) -> int:
    match = _SLICE.match(name)
    if match:
        return int(match.group(1))
    return _SLICES_OF_A_CARD if name == NVIDIA_GPU else 0


def _device(name: str) -> str:
    return "MIG slice" if _SLICE.match(name) else "GPU" if name.endswith("/gpu") else "accelerator"


def _round_down(amount: int, grain: int) -> int:
    return amount // grain * grain if amount >= grain else amount
