"""What of a node belongs to one accelerator, so that its pods leave the others theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.kube.accelerators import NVIDIA_GPU, Form, form_of, is_accelerator
from gpugate.policies.scheduling.node_selection import hands_out_shares

_SLICE: Final = re.compile(r"nvidia\.com/mig-(?:\d+c\.)?(\d+)g\.", re.ASCII)
#: A card that can be cut has seven compute slices (NVIDIA MIG User Guide, A100 and H100 profiles).
_SLICES_OF_A_CARD: Final = 7


class NodeShare(NamedTuple):
    """What of a node belongs to one accelerator.

    Attributes:
        memory: bytes.
        cpu: millicores.
        source: where the figures come from, for people.
    """

    memory: int
    cpu: int
    source: str


def share_of(shapes: Iterable[NodeShape], name: str, reserve: float) -> NodeShare | None:
    """The smallest share of one ``name`` over ``shapes``, ``reserve`` (0 to 1) of each node kept back; None without shapes.

    The smallest, so that a pod fits whichever of the shapes it lands on. Memory is rounded down to whole GiB and CPU to
    whole cores, where at least one is left. A MIG slice has as much of a node as it has of its card's compute slices;
    several names for the same devices (the Neuron plugin's) do not divide the node again.
    """
    best: NodeShare | None = None
    for shape in shapes:
        part, whole = _part(shape, name)
        memory = _round_down(int(shape.least_memory * (1 - reserve)) * part // whole, 1 << 30)
        cpu = _round_down(int(shape.cpu * (1 - reserve)) * part // whole, 1000)
        if best is None or memory < best.memory:
            best = NodeShare(memory, min(cpu, best.cpu) if best else cpu, f"{shape.title}: node share of {part} of {whole}")
        elif cpu < best.cpu:
            best = best._replace(cpu=cpu)
    return best


class Portion(NamedTuple):
    """What part of a node's accelerators a pod asks for.

    Attributes:
        name: the accelerator of which it asks for the largest part.
        number: how many of it.
        unit: how many parts one of it stands for: compute slices where the cards are cut, else 1.
        whole: how many parts the node has.
    """

    name: str
    number: int
    unit: int
    whole: int

    @property
    def parts(self) -> int:
        """How many parts the pod asks for."""
        return self.number * self.unit

    @property
    def noun(self) -> str:
        """What a part is."""
        return "compute slices" if _SLICE.match(self.name) else "accelerators"


def portion_of(shape: NodeShape, devices: Mapping[str, int]) -> Portion | None:
    """The largest part of the node's accelerators that a pod asks for; None for all of them, or for a share of a card."""
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


def excess(asked: int, room: int, portion: Portion) -> float:
    """How many times the fair share of ``portion`` a pod asks for: ``(asked / room) / (parts / whole)``."""
    return asked * portion.whole / (room * portion.parts) if room else 0.0


def _part(shape: NodeShape, name: str) -> tuple[int, int]:
    """How many parts of the node one ``name`` stands for, and how many there are."""
    sliced = {other: _slices(other) for other in shape.devices if is_accelerator(other) and _slices(other)}
    if name not in sliced or not any(_SLICE.match(other) for other in sliced):
        return 1, shape.devices[name]
    return sliced[name], sum(slices * shape.devices[other] for other, slices in sliced.items())


def _slices(name: str) -> int:
    match = _SLICE.match(name)
    if match:
        return int(match.group(1))
    return _SLICES_OF_A_CARD if name == NVIDIA_GPU else 0


def _round_down(amount: int, grain: int) -> int:
    return amount // grain * grain if amount >= grain else amount
