"""Find the pod sets of an object at the paths of its kind, with their pod counts."""

import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from gpugate.policies.kube.fields import Object, Path, integer, integer_at, lookup, mapping, mappings, string, wrong_type
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.kinds.model import PodSetSpec, WorkloadKind

#: One step of an AppWrapper's path to a template: ``.name`` or ``[3]``.
_STEP: Final = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]{1,4})\]")
#: No kind nests deeper: an AppWrapper holds no AppWrapper.
_DEEPEST: Final = 2


class PodSetSize(NamedTuple):
    """The pod counts of a pod set.

    Attributes:
        total: the number of pods; None if the object does not set it.
        child: the number of pods of one child of the workload (a Job of a JobSet, a group of a LeaderWorkerSet).
        completions: the number of pods of one child that must succeed, after which it creates no more; None if not set.
        min_count: the number of pods that is enough to run, if the workload sets a range; None if all are needed.
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
        """The maximum number of pods that run at one time; zero if the object does not set it."""
        total, child, completions = self.total or 0, self.child or 0, self.completions
        return total if completions is None or not child or completions >= child else total // child * completions


class PodSetSource(NamedTuple):
    """A pod template in an object, with its pod counts, and whether the pods follow: start after other pods have run.

    ``kind`` is the kind of the object, or of a wrapped object, that creates the pods; ``place`` is its entry for the template.
    """

    kind: WorkloadKind
    place: PodSetSpec
    path: Path
    template: Object
    numbers: PodSetSize
    follows: bool


_TEMPLATE: Final = "template"


def find_pods(kind: WorkloadKind, root: Object) -> Iterator[PodSetSource]:
    """Yield the pod sets of ``root``, an object of ``kind``; a field of a wrong type raises a ``MalformedError``."""
    return _find(kind, root, (), 0)


def listed_templates(kind: WorkloadKind, root: Object, most: int, depth: int = 0) -> int:
    """Return how many entries the lists and maps of pod templates have, without looking at more than about ``most`` of them."""
    lists = {place.template[: place.template.index("*")] for place in kind.pod_sets if "*" in place.template}
    number = sum(len(value) for value in (lookup(root, path) for path in lists) if type(value) is list or type(value) is dict)
    components = lookup(root, kind.wraps) if kind.wraps is not None and depth < _DEEPEST else None
    if type(components) is not list:
        return number
    if len(components) > most:
        return number + len(components)
    for component in components:
        wrapped = component.get(_TEMPLATE) if type(component) is dict else None
        if type(wrapped) is not dict:
            continue
        inner, declared = kind_of(str(wrapped.get("apiVersion")), str(wrapped.get("kind"))), component.get("podSets")
        if inner is not None:
            number += listed_templates(inner, wrapped, most, depth + 1)
        elif type(declared) is list:
            number += len(declared)
    return number


def _find(kind: WorkloadKind, root: Object, base: Path, depth: int) -> Iterator[PodSetSource]:
    for place in kind.pod_sets:
        if not place.template:
            yield PodSetSource(kind, place, base, lookup(root, base), PodSetSize(1, 1), follows=False)
            continue
        if place.unless is not None and lookup(root, (*base, *place.unless)):
            continue
        for path in _expand(root, (*base, *place.template), (), dict if place.role else list):
            template = lookup(root, path)
            if type(template) is not dict:
                _check_absent(root, path)
                continue
            keys = [part for part, form in zip(path[len(base) :], place.template, strict=True) if form == "*"]
            if place.role and str(keys[0]).casefold() != place.role.casefold():
                continue
            follows = place.after is not None and bool(lookup(root, _place(base, place.after, keys)))
            yield PodSetSource(kind, place, path, template, _numbers(place, root, base, keys), follows)
    if kind.wraps is not None and depth < _DEEPEST:
        yield from _find_wrapped(kind.wraps, root, base, depth)


def _check_absent(root: Object, path: Path) -> None:
    """Raise a MalformedError if ``path`` or one of its parents is neither absent nor a map."""
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
    list_path = (*base, *wraps)
    holder = lookup(root, list_path[:-1])
    for index, component in enumerate(mappings(holder, str(wraps[-1]), list_path[:-1]) if type(holder) is dict else ()):
        path = (*list_path, index)
        inner_path = (*path, _TEMPLATE)
        wrapped = mapping(component, _TEMPLATE, path)
        inner = kind_of(string(wrapped, "apiVersion", inner_path) or "", string(wrapped, "kind", inner_path) or "")
        if inner is not None:
            yield from _find(inner, root, inner_path, depth + 1)
        else:
            yield from _find_declared(component, root, path)


def _find_declared(component: Object, root: Object, path: Path) -> Iterator[PodSetSource]:
    """Yield the pod sets that an AppWrapper declares for a component of a kind that gpugate does not know."""
    seen: set[Path] = set()
    for index, declared in enumerate(mappings(component, "podSets", path)):
        declared_path = (*path, "podSets", index)
        steps = _steps(string(declared, "path", declared_path) or "")
        template = lookup(root, (*path, *steps)) if steps else None
        if type(template) is dict and steps not in seen:
            seen.add(steps)
            count = integer(declared, "replicas", declared_path)
            count = 1 if count is None else count
            numbers = PodSetSize(count, count, paths=((*declared_path, "replicas"),))
            yield PodSetSource(_DECLARED, _DECLARED.pod_sets[0], (*path, *steps), template, numbers, follows=False)


#: The controller of such a component is unknown, so its pods may start one by one.
_DECLARED: Final = WorkloadKind("", "", "", (PodSetSpec((_TEMPLATE,)),))


def _steps(written: str) -> Path:
    """Return a text such as ``template.spec.roles[0].template`` as a path; empty if malformed (AppWrapper v1.1 ``pkg/utils``)."""
    steps: list[str | int] = []
    text, position = f".{written}", 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            return ()
        steps.append(step[1] if step[1] is not None else int(step[2]))
        position = step.end()
    return tuple(steps) if steps[:1] == [_TEMPLATE] else ()


def _numbers(place: PodSetSpec, root: Object, base: Path, keys: Sequence[str | int]) -> PodSetSize:
    paths = tuple(_place(base, path, keys) for path in place.counts)
    child, *others = [_number(root, path) for path in paths] or [None]
    child = place.default if child is None else child
    children = prod(1 if number is None else number for number in others)
    if child is not None and place.leader is not None and type(lookup(root, (*base, *place.leader))) is dict:
        child = max(0, child - 1)
    count = None if child is None else child * children
    at_most = () if place.at_most is None else _place(base, place.at_most, keys)
    completions = _number(root, at_most) if at_most else None
    minimum = None
    if place.min_count is not None and (place.elastic is None or lookup(root, _place(base, place.elastic, keys)) is True):
        minimum = _number(root, _place(base, place.min_count, keys))
    if minimum is not None and count is not None:
        # With an autoscaler, the operator creates the minimum, not the stated number.
        minimum = minimum * children if place.elastic is None else min(minimum * children, count)
    return PodSetSize(count, child, completions, minimum, paths, at_most)


def _number(root: Object, path: Path) -> int | None:
    number = integer_at(root, path)
    # The API rejects a negative number if it knows the kind; other controllers create no pods for it.
    return None if number is None else max(0, number)


def _place(base: Path, pattern: Path, keys: Sequence[str | int]) -> Path:
    stars = iter(keys)
    return (*base, *(next(stars) if part == "*" else part for part in pattern))


def _expand(root: Object, pattern: Path, done: Path, expected: type | None = None) -> Iterator[Path]:
    """Yield all paths that ``pattern`` matches; ``expected`` is the type that must hold the keys, if present."""
    if "*" not in pattern:
        yield (*done, *pattern)
        return
    star = pattern.index("*")
    stem = (*done, *pattern[:star])
    holder = lookup(root, stem)
    if expected is not None and type(holder) is not expected:
        if holder is not None:
            raise wrong_type(stem, "a map" if expected is dict else "a list", holder)
        _check_absent(root, stem)
    keys: list[Any] = sorted(key for key in holder if type(key) is str) if type(holder) is dict else []
    for key in list(range(len(holder))) if type(holder) is list else keys:
        yield from _expand(root, pattern[star + 1 :], (*stem, key), expected)


def values_at(root: Object, pattern: Path) -> list[Any]:
    """Return the values in ``root`` at all paths that ``pattern`` matches."""
    return [lookup(root, path) for path in _expand(root, pattern, ())]


def gangs_of(kind: WorkloadKind, root: Object) -> int:
    """Return the number of gangs of an object of ``kind``; a field that is no whole number raises a ``MalformedError``."""
    return max(1, integer_at(root, kind.gangs) or 1) if kind.gangs is not None else 1
