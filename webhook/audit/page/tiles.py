"""The geometry of the page's pictures: nodes as tiles of their accelerators, alike nodes as one tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpugate.webhook.audit.model import NodeSummary, ShapeSummary
from gpugate.webhook.audit.page.format import cores, memory, number

#: Nodes of the page that have a tile each; of shapes that this leaves no room for, alike nodes share a tile with their number.
MOST_TILES: Final = 600
#: Tiles of such a shape: enough for every way in which 16 accelerators can be held, idle and stranded.
_MOST_ALIKE: Final = 160
#: Accelerators of a node that are drawn; a node with more (shared cards) says its numbers instead.
MOST_CELLS: Final = 64
#: Up to how many tiles the nodes' names are written out.
_NAMED: Final = 40
#: Side of an accelerator's square, its distance to the next, and how many stand in a row.
_SIDE: Final = 10
_STEP: Final = 13
_ROW: Final = 8


class Tile(NamedTuple):
    """One tile of the picture.

    Attributes:
        label: what it says below it; empty for nothing.
        title: all of it, in words.
        width: of the drawing.
        height: of the drawing, without the two bars of memory and CPU.
        held: SVG path of held accelerators.
        idle: of idle ones.
        stranded: of stranded ones.
        crosses: the strokes that mark stranded ones.
        memory: share of the node's memory that is requested, in hundredths of the width; 100 at the most.
        cpu: likewise of its CPU.
    """

    label: str
    title: str
    width: int
    height: int
    held: str
    idle: str
    stranded: str
    crosses: str
    memory: float
    cpu: float


def share(part: int, whole: int, most: float = 100.0) -> float:
    """``part`` of ``whole`` in hundredths, ``most`` at the most."""
    if whole <= 0:
        return most if part > 0 else 0.0
    return round(min(most, max(0.0, 100 * part / whole)), 1)


def tiles_of(shape: ShapeSummary, room: int = MOST_TILES) -> list[Tile]:
    """The tiles of the nodes of ``shape``, one each where there is ``room``; else alike nodes share one, stranded ones first."""
    if len(shape.nodes) <= room:
        named = len(shape.nodes) <= _NAMED
        return [_tile(one, label=one.name if named else "", title=_title(one)) for one in shape.nodes]
    alike: dict[tuple[int, int, int], list[NodeSummary]] = {}
    for one in shape.nodes:
        alike.setdefault((one.stranded, one.idle, one.devices), []).append(one)
    return [_together(alike[key]) for key in sorted(alike, reverse=True)[:_MOST_ALIKE]]


def _together(nodes: Sequence[NodeSummary]) -> Tile:
    first = nodes[0]
    total = NodeSummary(
        first.name,
        first.devices,
        first.held,
        first.stranded,
        *(
            sum(values)
            for values in zip(*((one.memory, one.requested, one.limited, one.cpu, one.cpu_requested) for one in nodes), strict=True)
        ),
    )
    words = f"{number(len(nodes))} nodes alike, such as {first.name}: {accelerators_in_words(first)} each"
    return _tile(total, label=f"{number(len(nodes))} \N{MULTIPLICATION SIGN}", title=words)


def accelerators_in_words(node: NodeSummary) -> str:
    """What becomes of the node's accelerators: ``8 GPUs: 5 held, 3 idle``."""
    parts = [
        f"{number(count)} {word}"
        for count, word in ((node.held, "held"), (node.idle, "idle"), (node.stranded, "stranded"))
        if count
    ]
    return f"{number(node.devices)} GPU{'' if node.devices == 1 else 's'}" + (f": {', '.join(parts)}" if parts else "")


def _title(node: NodeSummary) -> str:
    return (
        f"{node.name}: {accelerators_in_words(node)}; memory {memory(node.requested)} of {memory(node.memory)} requested;"
        f" CPU {cores(node.cpu_requested)} of {cores(node.cpu)} requested"
    )


def _tile(node: NodeSummary, *, label: str, title: str) -> Tile:
    # More held than there are happens while a device plugin restarts: every one of them is drawn as held.
    held = min(node.held, node.devices)
    stranded = min(node.stranded, node.devices - held)
    drawn = min(node.devices, MOST_CELLS)
    factor = drawn / node.devices if node.devices else 0
    ends = (round(held * factor), drawn - round(stranded * factor), drawn)
    places = [(_STEP * (cell % _ROW), _STEP * (cell // _ROW)) for cell in range(drawn)]
    columns = max(1, min(drawn, _ROW)) if drawn < 4 else max(4, min(drawn, _ROW))
    rows = max(1, -(-drawn // _ROW))
    inset = f"h{_SIDE - 1}v{_SIDE - 1}h-{_SIDE - 1}z"
    return Tile(
        label=label,
        title=title,
        width=_STEP * columns - (_STEP - _SIDE),
        height=_STEP * rows - (_STEP - _SIDE),
        held="".join(f"M{x} {y}h{_SIDE}v{_SIDE}h-{_SIDE}z" for x, y in places[: ends[0]]),
        idle="".join(f"M{x}.5 {y}.5{inset}" for x, y in places[ends[0] : ends[1]]),
        stranded="".join(f"M{x}.5 {y}.5{inset}" for x, y in places[ends[1] :]),
        crosses="".join(f"M{x + 2} {y + 2}l6 6m0-6l-6 6" for x, y in places[ends[1] :]),
        memory=share(node.requested, node.memory),
        cpu=share(node.cpu_requested, node.cpu),
    )
