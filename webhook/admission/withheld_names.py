"""Leave names out of answers that anybody may have asked for: of nodes, cohorts and other namespaces.

A user of a namespace sees its LocalQueues, and in these their ClusterQueues. Nodes are for readers of the whole cluster.
"""

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.framework.decision import Change, Decision
from gpugate.policies.kube.names import HOSTNAME

WITHHELD: Final = "(name withheld)"
#: A name as Kubernetes allows it, as a whole word of a text; neither part of a resource name (``nvidia.com/gpu``).
_NAME: Final = re.compile(r"(?<![A-Za-z0-9._/-])[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?![._-]*[A-Za-z0-9/])")


#: Changes of rules whose notes are remembered.
_MOST: Final = 1024


class NameFilter:
    """Replaces names in decisions; keeps the set of node names as long as the nodes stay the same."""

    __slots__ = ("_nodes", "_plain", "_shapes")

    def __init__(self) -> None:
        self._shapes: tuple[NodeShape, ...] = ()
        self._nodes: frozenset[str] = frozenset()
        #: Notes without the name of a node. Most notes come again and again.
        self._plain: set[tuple[str, ...]] = set()

    def filtered(self, decision: Decision, snapshot: ClusterSnapshot) -> Decision:
        """Return ``decision`` without the names in its texts; the same decision if it contains none."""
        if not (decision.findings or decision.changes or decision.would_change):
            return decision
        if snapshot.shapes is not self._shapes:
            self._shapes, self._nodes = snapshot.shapes, _node_names(snapshot.shapes)
            self._plain.clear()
        nodes, plain = self._nodes, self._plain
        changes = [change for part in (decision.changes, decision.would_change) for change in part if change.notes not in plain]
        if not (any(map(self._noted, changes)) or any(_named(judged.finding, nodes) for judged in decision.findings)):
            return decision
        return replace(
            decision,
            findings=[judged._replace(finding=_finding_without(judged.finding, nodes)) for judged in decision.findings],
            changes=_changes_without(decision.changes, nodes),
            would_change=_changes_without(decision.would_change, nodes),
        )

    def _noted(self, change: Change) -> bool:
        """Return whether the notes of ``change`` have the name of a node; remember notes that have none."""
        if any(not self._nodes.isdisjoint(_NAME.findall(note)) for note in change.notes):
            return True
        if len(self._plain) >= _MOST:
            self._plain.clear()
        self._plain.add(change.notes)
        return False


def _named(finding: Finding, nodes: frozenset[str]) -> bool:
    return bool(finding.names) or not (nodes.isdisjoint(_names_in(finding.message)) and nodes.isdisjoint(_names_in(finding.remedy)))


def _finding_without(finding: Finding, nodes: frozenset[str]) -> Finding:
    message, remedy = (_without(text, nodes, finding.names) for text in (finding.message, finding.remedy))
    return finding._replace(message=message, remedy=remedy)


def _changes_without(changes: list[Change], nodes: frozenset[str]) -> list[Change]:
    return [change._replace(notes=tuple([_without(note, nodes) for note in change.notes])) for change in changes]


def _node_names(shapes: tuple[NodeShape, ...]) -> frozenset[str]:
    names = {name for shape in shapes for name in shape.nodes}
    return frozenset(names.union(*(filter(None, shape.labels.get(HOSTNAME, ())) for shape in shapes)))


@lru_cache(maxsize=1024)
def _names_in(text: str) -> frozenset[str]:
    """Return what may be a name in ``text``. Most texts come again and again."""
    return frozenset(_NAME.findall(text))


def _without(text: str, nodes: frozenset[str], others: tuple[str, ...] = ()) -> str:
    return _NAME.sub(lambda match: WITHHELD if match[0] in nodes or match[0] in others else match[0], text)
