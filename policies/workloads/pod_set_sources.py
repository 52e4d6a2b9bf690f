"""Find the pod sets of an object at the paths that its kind states, with their pod counts."""

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
    """The pod counts of a pod set.

    Attributes:
        total: the number of pods; None if the object does not state it.
        child: how many of them one child of the workload creates (a Job of a JobSet, a group of a LeaderWorkerSet).
        completions: how many pods of one child must succeed, after which it creates no more; None if not stated.
        min_count: how many are enough to run, if the workload states a range; None if all are needed.
        paths: paths of the numbers that users change; empty if the object has none.
        completions_path: path of ``completions``.
    """

    total: int | None
    child: int | None
    completions: int | None = None
    min_count: int | None = None
    paths: tuple[Path, ...] = ()
    completions_path: Path = ()

    @property
    def at_once(self) -> int:
        """The most pods that run at one time; zero if the object does not state it."""
        total, child, completions = self.total or 0, self.child or 0, self.completions
        return total if completions is None or not child or completions >= child else total // child * completions


class PodSetSource(NamedTuple):
    """A pod template found in an object.

    Attributes:
        kind: the kind that creates the pods; of a wrapped object, its own.
        place: the entry of the kind for the template.
        path: the path of the template in the object.
        template: the template.
        numbers: the pod counts.
        follows: whether the pods start after others have run.
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
    """Yield the pod sets of ``root``, an object of ``kind``, in the order of the kind's entry.

    Raises:
        MalformedError: a field on the way has a wrong type.
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
    """Check that ``path``, or a map on the way to it, is absent.

    Raises:
        MalformedError: a value that is no map is there.
    """
    value: Any = root
    for depth, part in enumerate(path):
        if value is None:
            return
        if type(value) is list and type(part) is int:
            value = value[part]
        elif type(value) is dict:
            value = value.get(part)
        else:
            raise wrong_type(path[:depth], "a map", value)
    if value is not None:
        raise wrong_type(path, "a map", value)


def _find_wrapped(wraps: Path, root: Object, base: Path, depth: int) -> Iterator[PodSetSource]:
    parent = (*base, *wraps)
    holder = lookup(root, parent[:-1])
    for at, component in enumerate(mappings(holder, str(parent[-1]), parent[:-1]) if type(holder) is dict else ()):
        path = (*parent, at)
        wrapped = mapping(component, _TEMPLATE, path)
        inner = kind_of(string(wrapped, "apiVersion", (*path, _TEMPLATE)) or "", string(wrapped, "kind", (*path, _TEMPLATE)) or "")
        if inner is not None:
            yield from _find(inner, root, (*path, _TEMPLATE), depth + 1)
        else:
            yield from _find_declared(component, root, path)


def _find_declared(component: Object, root: Object, path: Path) -> Iterator[PodSetSource]:
    """Yield the pod sets that an AppWrapper declares for a component of a kind that gpugate does not know."""
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


#: The controller of such a component is not known: its pods may start one by one.
_DECLARED: Final = WorkloadKind("", "", "", (PodSetSpec((_TEMPLATE,)),))


def _steps(written: str) -> Path:
    """Return ``template.spec.roles[0].template`` as a path; empty if it is none (AppWrapper v1.1 ``pkg/utils``)."""
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
    counts = [_number(root, _place(base, path, keys), absent) for path, absent in zip(place.counts, defaults, strict=False)]
    child, *factors = counts or [place.default]
    if child is not None and place.leader is not None and type(lookup(root, (*base, *place.leader))) is dict:
        child = max(0, child - 1)
    count = child
    for factor in factors:
        count = None if count is None or factor is None else count * factor
    at_most = () if place.at_most is None else _place(base, place.at_most, keys)
    return PodSetSize(
        count,
        child,
        _number(root, at_most, None) if at_most else None,
        _min_count(place, root, base, keys, factors, count),
        tuple(_place(base, path, keys) for path in place.counts),
        at_most,
    )


def _min_count(
    place: PodSetSpec, root: Object, base: Path, keys: Sequence[str | int], factors: Sequence[int | None], count: int | None
) -> int | None:
    if place.min_count is None or (place.elastic is not None and lookup(root, _place(base, place.elastic, keys)) is not True):
        return None
    least = _number(root, _place(base, place.min_count, keys), None)
    if least is None or count is None:
        return least
    for factor in factors:
        least *= factor or 0
    # With an autoscaler, the operator creates the minimum whatever the stated number is.
    return least if place.elastic is None else min(least, count)


def _number(root: Object, path: Path, default: int | None) -> int | None:
    number = integer_at(root, path)
    # The API rejects a negative number if it knows the kind; no controller creates fewer pods than none.
    return default if number is None else max(0, number)


def _keys(path: Path, pattern: Path) -> list[str | int]:
    """Return the element of ``path`` for each ``"*"`` of ``pattern``."""
    return [part for part, form in zip(path, pattern, strict=True) if form == "*"]


def _place(base: Path, pattern: Path, keys: Sequence[str | int]) -> Path:
    stars = iter(keys)
    return (*base, *(next(stars) if part == "*" else part for part in pattern))


def _expand(root: Object, pattern: Path, done: Path, wanted: type | None = None) -> Iterator[Path]:
    """Yield all paths that ``pattern`` matches; ``wanted`` is the type that must hold the keys, if present."""
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
    """Return the values in ``root`` at all paths that ``pattern`` matches."""
    return [lookup(root, path) for path in _expand(root, pattern, ())]


def gangs_of(kind: WorkloadKind, root: Object) -> int:
    """Return the number of gangs of an object of ``kind``, each with an equal part of its pods.

    Raises:
        MalformedError: the field is no whole number.
    """
    if kind.gangs is None:
        return 1
    number = _number(root, kind.gangs, 1)
    return 1 if number is None else max(1, number)
