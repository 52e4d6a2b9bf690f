"""Finding the pod templates of an object by the places that its kind keeps them at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpugate.policies.fields import MalformedError, Object, Path, integer, lookup
from gpugate.policies.kinds import PodSetPlace


def find_pod_sets(place: PodSetPlace, root: Object) -> Iterator[tuple[Path, Object, int | None]]:
    """Every template at ``place`` in ``root``: its path, itself, and how many pods it makes.

    Raises:
        MalformedError: something on the way is of the wrong type.
    """
    if not place.template:
        yield (), root, 1
        return
    for path in _expand(root, place.template, ()):
        template = lookup(root, path)
        if template is None:
            continue
        if type(template) is not dict:
            raise MalformedError(path, "must be a map")
        if place.count is None:
            yield path, template, None if path else 1
            continue
        stars = iter([part for part, pattern in zip(path, place.template, strict=True) if pattern == "*"])
        at = tuple(next(stars) if part == "*" else part for part in place.count)
        parent = lookup(root, at[:-1])
        count = integer(parent, str(at[-1]), at[:-1]) if type(parent) is dict else None
        yield path, template, place.default_count if count is None else count


def _expand(root: Object, pattern: Path, done: Path) -> Iterator[Path]:
    if "*" not in pattern:
        yield (*done, *pattern)
        return
    at = pattern.index("*")
    stem = (*done, *pattern[:at])
    holder = lookup(root, stem)
    keys: list[Any] = sorted(holder) if type(holder) is dict else list(range(len(holder))) if type(holder) is list else []
    for key in keys:
        yield from _expand(root, pattern[at + 1 :], (*stem, key))
