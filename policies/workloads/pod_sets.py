"""Finding the pods of an object by the places that its kind keeps them at, and how many there are of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from gpugate.policies.kube.fields import Object, Path, integer, integer_at, lookup, mapping, mappings, string, wrong_type
from gpugate.policies.workloads.kinds import PodSetSpec, WorkloadKind, kind_of

#: One step of an AppWrapper's path to a template: ``.name`` or ``[3]``.
_STEP: Final = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]{1,4})\]")
#: No kind nests deeper: an AppWrapper holds no AppWrapper.
_DEEPEST: Final = 2


class PodSetSize(NamedTuple):
    """How many pods a set has.

    Attributes:
        total: how many there are to be in all; None where the object does not say.
        child: how many of them one child of the workload makes (a Job of a JobSet, a group of a LeaderWorkerSet).
        completions: how many of one child's are to end well, after which it makes no more; None where nobody says.
        min_count: how many are enough to run, where the workload states a range; None where all are needed.
        paths: the numbers that people change; none where the object has none.
        completions_path: where ``completions`` stands.
    """

    total: int | None
    child: int | None
    completions: int | None = None
    min_count: int | None = None
    paths: tuple[Path, ...] = ()
    completions_path: Path = ()

    @property
    def at_once(self) -> int:
        """How many run at most at one time; zero where the object does not say."""
        total, child, completions = self.total or 0, self.child or 0, self.completions
        return total if completions is None or not child or completions >= child else total // child * completions


class PodSetSource(NamedTuple):
    """Pods that were found in an object.

    Attributes:
        kind: the kind that makes them: for what an AppWrapper wraps, that of the wrapped object.
        place: where the kind keeps them.
        path: where that is in this object.
        template: what is there.
        numbers: how many pods there are.
        follows: whether they start when others have run.
    """

    kind: WorkloadKind
    place: PodSetSpec
    path: Path
    template: Object
    numbers: PodSetSize
    follows: bool


_ONE: Final = PodSetSize(1, 1)
_TEMPLATE: Final = "template"


def find_pods(kind: WorkloadKind, root: Object) -> Iterator[PodSetSource]:
    """All pods of ``root``, an object of ``kind``, in the order of its places.

    Raises:
        MalformedError: something on the way is of the wrong type.
    """
    return _find(kind, root, (), 0)


def _find(kind: WorkloadKind, root: Object, base: Path, depth: int) -> Iterator[PodSetSource]:
    for place in kind.pod_sets:
        if not place.template:
            yield PodSetSource(kind, place, base, _at(root, base), _ONE, follows=False)
            continue
        if place.unless is not None and lookup(root, (*base, *place.unless)):
            continue
        for path in _expand(root, (*base, *place.template), (), dict if place.role else list):
            template = lookup(root, path)
            if type(template) is not dict:
                _check_absent(root, path)
                continue
            keys = _keys(path, (*base, *place.template))
            if place.role and str(keys[0]).casefold() != place.role.casefold():
                continue
            follows = place.after is not None and bool(lookup(root, _place(base, place.after, keys)))
            yield PodSetSource(kind, place, path, template, _numbers(place, root, base, keys), follows)
    if kind.wraps is not None and depth < _DEEPEST:
        yield from _find_wrapped(kind.wraps, root, base, depth)


def _at(root: Object, path: Path) -> Object:
    found: Object = lookup(root, path)
    return found


def _check_absent(root: Object, path: Path) -> None:
    """Make sure that nothing is at ``path`` because it, or a map on the way to it, is absent.

    Raises:
        MalformedError: something else than a map is there.
    """
    found: Any = root
    for depth, part in enumerate(path):
        if found is None:
            return
        if type(found) is list and type(part) is int:
            found = found[part]
        elif type(found) is dict:
            found = found.get(part)
        else:
            raise wrong_type(path[:depth], "a map", found)
    if found is not None:
        raise wrong_type(path, "a map", found)


def _find_wrapped(wraps: Path, root: Object, base: Path, depth: int) -> Iterator[PodSetSource]:
    parent = (*base, *wraps)
    holder = lookup(root, parent[:-1])
    for at, component in enumerate(mappings(holder, str(parent[-1]), parent[:-1]) if type(holder) is dict else ()):
        path = (*parent, at)
        wrapped = mapping(component, _TEMPLATE, path)
        inner = kind_of(
            string(wrapped, "apiVersion", (*path, _TEMPLATE)) or "",
            string(wrapped, "kind", (*path, _TEMPLATE)) or "",
        )
        if inner is not None:
            yield from _find(inner, root, (*path, _TEMPLATE), depth + 1)
        else:
            yield from _find_declared(component, root, path)


def _find_declared(component: Object, root: Object, path: Path) -> Iterator[PodSetSource]:
    """Pods of a component of a kind that is not in the table, where the AppWrapper itself says where they are."""
    seen: set[Path] = set()
    for at, declared in enumerate(mappings(component, "podSets", path)):
        here = (*path, "podSets", at)
        steps = _steps(string(declared, "path", here) or "")
        template = lookup(root, (*path, *steps)) if steps else None
        if type(template) is dict and steps not in seen:
            seen.add(steps)
            count = integer(declared, "replicas", here)
            number = 1 if count is None else count
            numbers = PodSetSize(number, number, paths=((*here, "replicas"),))
            yield PodSetSource(_DECLARED, _DECLARED.pod_sets[0], (*path, *steps), template, numbers, follows=False)


#: What runs the pods of a component of an unknown kind is not known: they may start one by one.
_DECLARED: Final = WorkloadKind("", "", "", (PodSetSpec((_TEMPLATE,)),))


def _steps(written: str) -> Path:
    """``template.spec.roles[0].template`` as a path; empty where it is none (AppWrapper v1.1 ``pkg/utils``)."""
    steps: list[str | int] = []
    text, at = f".{written}", 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return ()
        steps.append(step[1] if step[1] is not None else int(step[2]))
        at = step.end()
    return tuple(steps) if steps[:1] == [_TEMPLATE] else ()


def _numbers(place: PodSetSpec, root: Object, base: Path, keys: Sequence[str | int]) -> PodSetSize:
    defaults = (place.default, *(1 for _ in place.counts[1:]))
    found = [_number(root, _place(base, path, keys), absent) for path, absent in zip(place.counts, defaults, strict=False)]
    found = found or [place.default]
    child = found[0]
    if child is not None and place.leader is not None and type(lookup(root, (*base, *place.leader))) is dict:
        child = max(0, child - 1)
    count = child
    for factor in found[1:]:
        count = None if count is None or factor is None else count * factor
    at_most = () if place.at_most is None else _place(base, place.at_most, keys)
    return PodSetSize(
        count,
        child,
        _number(root, at_most, None) if at_most else None,
        _fewest(place, root, base, keys, found[1:], count),
        tuple(_place(base, path, keys) for path in place.counts),
        at_most,
    )


def _fewest(
    place: PodSetSpec, root: Object, base: Path, keys: Sequence[str | int], factors: Sequence[int | None], count: int | None
) -> int | None:
    if place.min_count is None or (place.elastic is not None and lookup(root, _place(base, place.elastic, keys)) is not True):
        return None
    fewest = _number(root, _place(base, place.min_count, keys), None)
    if fewest is None or count is None:
        return fewest
    for factor in factors:
        fewest *= factor or 0
    # Where an autoscaler changes the number, its operator makes the minimum whatever is asked for.
    return fewest if place.elastic is None else min(fewest, count)


def _number(root: Object, path: Path, default: int | None) -> int | None:
    found = integer_at(root, path)
    # The API takes no negative number where it knows the kind; nobody makes fewer pods than none.
    return default if found is None else max(0, found)


def _keys(path: Path, pattern: Path) -> list[str | int]:
    """What stands in ``path`` for each ``"*"`` of ``pattern``."""
    return [part for part, form in zip(path, pattern, strict=True) if form == "*"]


def _place(base: Path, pattern: Path, keys: Sequence[str | int]) -> Path:
    stars = iter(keys)
    return (*base, *(next(stars) if part == "*" else part for part in pattern))


def _expand(root: Object, pattern: Path, done: Path, wanted: type | None = None) -> Iterator[Path]:
    """All paths that ``pattern`` stands for; ``wanted``: what must hold the keys where it is not absent."""
    if "*" not in pattern:
        yield (*done, *pattern)
        return
    at = pattern.index("*")
    stem = (*done, *pattern[:at])
    holder = lookup(root, stem)
    if wanted is not None and type(holder) is not wanted:
        if holder is not None:
            raise wrong_type(stem, "a map" if wanted is dict else "a list", holder)
        _check_absent(root, stem)
    keys: list[Any] = sorted(key for key in holder if type(key) is str) if type(holder) is dict else []
    for key in list(range(len(holder))) if type(holder) is list else keys:
        yield from _expand(root, pattern[at + 1 :], (*stem, key), wanted)


def values_at(root: Object, pattern: Path) -> list[Any]:
    """What is at every place of ``pattern`` in ``root``."""
    return [lookup(root, path) for path in _expand(root, pattern, ())]


def gangs_of(kind: WorkloadKind, root: Object) -> int:
    """How many gangs an object of ``kind`` makes, each with an equal part of its pods.

    Raises:
        MalformedError: the number is none.
    """
    if kind.gangs is None:
        return 1
    found = _number(root, kind.gangs, 1)
    return 1 if found is None else max(1, found)
