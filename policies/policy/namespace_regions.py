"""Divide all namespaces into regions that one label selector each can express.

A webhook selects namespaces by one label selector: a conjunction of requirements. A set of policies selects unions and differences
of such selectors. So the namespaces are divided label by label, as in a decision tree: the values of a label that lead to the same
answer stay together, and each leaf is a region. Every namespace is in exactly one region.

The number of regions is bounded. What would take more is left outside the set: a region counts as inside only if all of its
namespaces are.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Final, Literal, NamedTuple, TypeAlias

from gpugate.policies.cluster.records.common import meets
from gpugate.policies.policy.models import LabelSelector

#: The label with the name of a namespace, which every namespace has.
NAME_LABEL: Final = "kubernetes.io/metadata.name"
#: Maximum number of nodes of a decision tree that are looked at; labels that hold the answer up longer are not.
_MOST_STEPS: Final = 5000
#: Maximum number of characters of the labels in all regions: 500 teams with names of 20 characters.
MOST_CHARACTERS: Final = 20_000


class _Else(Enum):
    """What a label is besides the values that a selector names."""

    ABSENT = auto()
    OTHER = auto()


#: Values of one label that need not be told apart.
_Values: TypeAlias = frozenset[str | _Else]
#: Values that all selectors treat alike, with the selectors that allow them, as bits.
_Options: TypeAlias = tuple[tuple[_Values, int], ...]


class Requirement(NamedTuple):
    """One expression of a label selector, with any number of values."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class Region(NamedTuple):
    """The namespaces that meet all of ``requirements``; ``inside``: whether they are all in the set."""

    requirements: tuple[Requirement, ...]
    inside: bool

    def contains(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a namespace with ``labels`` is in the region."""
        return all(meets(key, operator, values, labels) for key, operator, values in self.requirements)


#: All namespaces, and none of them in the set.
EVERYWHERE: Final = Region((), inside=False)


class Clause(NamedTuple):
    """The namespaces that one selector selects and others do not.

    Attributes:
        selector: the position of the selector.
        unless: the positions of the others, as bits.
    """

    selector: int
    unless: int = 0

    def holds(self, selected: int) -> bool:
        """Tell whether a namespace that the selectors at the bits of ``selected`` select is one of them."""
        return bool(selected >> self.selector & 1) and not selected & self.unless


class Division(NamedTuple):
    """Regions that contain every namespace once; ``exact``: whether every namespace of the set is in a region inside it."""

    regions: tuple[Region, ...]
    exact: bool


class NamespaceSelectors:
    """Label selectors of namespaces, and the regions of what they select together."""

    __slots__ = ("_keys", "_options", "_selectors")

    def __init__(self, selectors: Sequence[LabelSelector]) -> None:
        self._selectors = selectors
        self._keys = [frozenset(_keys_of(selector)) for selector in selectors]
        self._options = {key: self._options_of(key) for key in frozenset[str]().union(*self._keys)}

    def selecting(self, labels: Mapping[str, str]) -> int:
        """Return the positions of the selectors that select a namespace with ``labels``, as bits."""
        return sum(1 << at for at, selector in enumerate(self._selectors) if selector.matches(labels))

    def divide(self, clauses: Sequence[Clause], most: int) -> Division:
        """Return the division for the set of the namespaces of ``clauses``, with at most ``most`` regions."""
        for leaves in range(most, 0, -1):
            tree = _Tree(self._keys, self._options, clauses)
            # A leaf of absent labels and of some values is two regions.
            regions = tuple(_regions(tree.root(leaves), ()))
            if len(regions) <= most and sum(map(_characters, regions)) <= MOST_CHARACTERS:
                return Division(regions, tree.exact)
        return Division((EVERYWHERE,), exact=False)

    def _options_of(self, key: str) -> _Options:
        readers = [(1 << at, selector) for at, selector in enumerate(self._selectors) if key in self._keys[at]]
        named = {selector.match_labels[key] for _, selector in readers if key in selector.match_labels}
        named.update(
            value
            for _, selector in readers
            for expression in selector.match_expressions
            if expression.key == key
            for value in expression.values
        )
        values: list[str | _Else] = [*sorted(named), _Else.OTHER]
        if key != NAME_LABEL:
            values.append(_Else.ABSENT)
        others = (1 << len(self._selectors)) - 1 - sum(bit for bit, _ in readers)
        together: dict[int, _Values] = {}
        for value in values:
            allowed = others + sum(bit for bit, selector in readers if _allows(selector, key, value))
            together[allowed] = together.get(allowed, frozenset()) | {value}
        return tuple((alike, allowed) for allowed, alike in together.items())


class _Node(NamedTuple):
    """A label, and what follows from its values."""

    key: str
    edges: "tuple[tuple[_Values, _Node | bool], ...]"


#: A decision tree; a leaf tells whether namespaces are in the set.
_Subtree: TypeAlias = _Node | bool


class _Tree:
    """Builds the decision tree.

    Attributes:
        exact: whether no leaf outside the set was left undecided.
    """

    __slots__ = ("_clauses", "_keys", "_options", "_steps", "exact")

    def __init__(self, keys: Sequence[frozenset[str]], options: Mapping[str, _Options], clauses: Sequence[Clause]) -> None:
        self._keys = keys
        self._options = options
        self._clauses = clauses
        self._steps = 0
        self.exact = True

    def root(self, leaves: int) -> _Subtree:
        """Return the tree with at most ``leaves`` leaves."""
        possible = (1 << len(self._keys)) - 1
        answer = self._answer(possible, frozenset())
        return self._build(possible, frozenset(), leaves) if answer is None else answer

    def _answer(self, possible: int, read: frozenset[str]) -> bool | None:
        """Tell whether namespaces are in the set; None if that depends on more labels than those in ``read``.

        ``possible``: the selectors that may select them, as bits.
        """
        certain = self._certain(possible, read)
        undecided = False
        for clause in self._undecided(possible, certain):
            if certain >> clause.selector & 1 and not possible & clause.unless:
                return True
            undecided = True
        return None if undecided else False

    def _undecided(self, possible: int, certain: int) -> Iterator[Clause]:
        """Yield the clauses that may hold."""
        return (clause for clause in self._clauses if possible >> clause.selector & 1 and not certain & clause.unless)

    def _certain(self, possible: int, read: frozenset[str]) -> int:
        return sum(1 << at for at, keys in enumerate(self._keys) if possible >> at & 1 and keys <= read)

    def _build(self, possible: int, read: frozenset[str], leaves: int) -> _Subtree:
        """Return the tree of an open question. What does not fit ``leaves`` leaves is left outside."""
        self._steps += 1
        if leaves < len((True, False)) or self._steps > _MOST_STEPS:
            self.exact = False
            return False
        first = next(self._undecided(possible, self._certain(possible, read)))
        key = self._next_key(first, possible, read)
        now_read = read | {key}
        branches: dict[int, _Values] = {}
        for values, allowed in self._options[key]:
            branches[possible & allowed] = branches.get(possible & allowed, frozenset()) | values
        answers = {branch: self._answer(branch, now_read) for branch in branches}
        edges: dict[_Subtree, _Values] = {}
        for branch, answer in answers.items():
            if answer is not None:
                edges[answer] = edges.get(answer, frozenset()) | branches[branch]
        undecided = [branch for branch, answer in answers.items() if answer is None]
        # Where not all fit, the policy of the highest precedence comes first.
        undecided.sort(key=lambda branch: not branch >> first.selector & 1)
        # One leaf is kept for what does not fit; a single subtree that does not fit becomes that leaf itself.
        left = leaves - len({*edges, False} if len(undecided) > 1 else edges)
        for branch in undecided:
            child = self._build(branch, now_read, left)
            if child not in edges and _size(child) > left:
                self.exact, child = False, False
            if child not in edges and child is not False:
                left -= _size(child)
            edges[child] = edges.get(child, frozenset()) | branches[branch]
        if len(edges) == 1:
            return next(iter(edges))
        return _Node(key, tuple((values, child) for child, values in edges.items()))

    def _next_key(self, clause: Clause, possible: int, read: frozenset[str]) -> str:
        """Return a label that ``clause`` depends on; of several the one that most of the possible selectors read."""
        counts = Counter(key for at, keys in enumerate(self._keys) if possible >> at & 1 for key in keys - read)
        relevant = (1 << clause.selector | clause.unless) & possible
        own = {key for at, keys in enumerate(self._keys) if relevant >> at & 1 for key in keys - read}
        return max(sorted(own), key=lambda key: counts[key])


def _keys_of(selector: LabelSelector) -> Iterator[str]:
    yield from selector.match_labels
    for expression in selector.match_expressions:
        yield expression.key


def _allows(selector: LabelSelector, key: str, value: str | _Else) -> bool:
    if key in selector.match_labels and selector.match_labels[key] != value:
        return False
    for each in selector.match_expressions:
        if each.key == key:
            meets_it = {
                "In": value in each.values,
                "NotIn": value not in each.values,
                "Exists": value is not _Else.ABSENT,
                "DoesNotExist": value is _Else.ABSENT,
            }
            if not meets_it[each.operator]:
                return False
    return True


def _size(tree: _Subtree) -> int:
    """Return the number of leaves."""
    return sum(_size(child) for _, child in tree.edges) if isinstance(tree, _Node) else 1


def _regions(tree: _Subtree, above: tuple[Requirement, ...]) -> Iterator[Region]:
    if not isinstance(tree, _Node):
        yield Region(above, tree)
        return
    named = frozenset(value for values, _ in tree.edges for value in values if isinstance(value, str))
    for values, child in tree.edges:
        for requirements in _requirements(tree.key, values, named):
            yield from _regions(child, (*above, *requirements))


def _characters(region: Region) -> int:
    return sum(len(text) for key, _, values in region.requirements for text in (key, *values))


def _requirements(key: str, values: _Values, named: frozenset[str]) -> Iterator[tuple[Requirement, ...]]:
    """Yield conjunctions of requirements that together express ``values`` of a label; each value meets one of them."""
    stated = tuple(sorted(value for value in values if isinstance(value, str)))
    if _Else.OTHER in values:
        others = tuple(sorted(named.difference(stated)))
        excluded = (Requirement(key, "NotIn", others),) if others else ()
        exists = () if _Else.ABSENT in values or key == NAME_LABEL else (Requirement(key, "Exists"),)
        yield (*exists, *excluded)
        return
    if stated:
        yield (Requirement(key, "In", stated),)
    if _Else.ABSENT in values:
        yield (Requirement(key, "DoesNotExist"),)
