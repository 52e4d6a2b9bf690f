"""Compute the pictures of the page: nodes as tiles of their accelerators, equal nodes as one tile."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpugate.webhook.audit.model import NodeSummary, ShapeSummary, total_of
from gpugate.webhook.audit.page.format import cores, memory, number

#: Most nodes with a tile each; in further shapes, equal nodes share a tile with their number.
MOST_TILES: Final = 600
#: Most tiles of such a shape: enough for every combination of 16 held, idle and stranded accelerators.
_MOST_GROUPS: Final = 160
#: Most accelerators drawn for a node; with more (shared cards) the title has the numbers.
MOST_CELLS: Final = 64
#: Up to how many tiles the nodes' names are written out.
_NAMED: Final = 40
#: Side of an accelerator's square, distance to the next one, and squares in a row.
_SIDE: Final = 10
_STEP: Final = 13
_ROW: Final = 8


class Tile(NamedTuple):
    """One tile of the picture.

    Attributes:
        height: height of the drawing, without the two bars of memory and CPU.
        memory: requested share of the node's memory, in percent; at most 100.
        cpu: requested share of its CPU, in percent; at most 100.
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
    """Return ``part`` of ``whole`` in percent, at most ``most``."""
    if whole <= 0:
        return most if part > 0 else 0.0
    return round(min(most, max(0.0, 100 * part / whole)), 1)


def tiles_of(shape: ShapeSummary, most: int = MOST_TILES) -> list[Tile]:
    """Return one tile for each node of ``shape`` if ``most`` allows, else one for each group of equal nodes, stranded first."""
    if len(shape.nodes) <= most:
        named = len(shape.nodes) <= _NAMED
        return [_tile(node, label=node.name if named else "", title=_title(node)) for node in shape.nodes]
    equal: dict[tuple[int, int, int], list[NodeSummary]] = {}
    for node in shape.nodes:
        equal.setdefault((node.stranded, node.idle, node.devices), []).append(node)
    return [_group_tile(equal[key]) for key in sorted(equal, reverse=True)[:_MOST_GROUPS]]


def _group_tile(nodes: Sequence[NodeSummary]) -> Tile:
    first = nodes[0]
    total = total_of(nodes)._replace(devices=first.devices, held=first.held, stranded=first.stranded)
    title = f"{number(len(nodes))} equal nodes, such as {first.name}: {accelerators_in_words(first)} each"
    return _tile(total, label=f"{number(len(nodes))} \N{MULTIPLICATION SIGN}", title=title)


def accelerators_in_words(node: NodeSummary) -> str:
    """Describe the node's accelerators: ``8 GPUs: 5 held, 3 idle``."""
    counts = ((node.held, "held"), (node.idle, "idle"), (node.stranded, "stranded"))
    parts = [f"{number(count)} {state}" for count, state in counts if count]
    return f"{number(node.devices)} GPU{'' if node.devices == 1 else 's'}" + (f": {', '.join(parts)}" if parts else "")


def _title(node: NodeSummary) -> str:
    return (
        f"{node.name}: {accelerators_in_words(node)}; memory {memory(node.requested)} of {memory(node.memory)} requested;"
        f" CPU {cores(node.cpu_requested)} of {cores(node.cpu)} requested"
    )


def _tile(node: NodeSummary, *, label: str, title: str) -> Tile:
    # While a device plugin restarts more may be held than exist: draw all of them as held.
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
