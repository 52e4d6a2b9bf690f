"""Manifests whose indentation was lost: copied from a page, everything stands at the left edge.

YAML reads such a text, and makes an object with empty fields and their contents beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpugate.policies.findings import Finding
from gpugate.policies.kube.fields import Object, clone
from gpugate.policies.kube.names import PREFERRED_AFFINITY, REQUIRED_AFFINITY

_ANY_AFFINITY: Final = ("nodeAffinity", "podAffinity", "podAntiAffinity")
#: What fields belong below that never stand at the root of anything.
_PARENTS: Final[dict[str, tuple[str, ...]]] = {
    "limits": ("resources",),
    "requests": ("resources",),
    "containers": ("spec",),
    "template": ("spec",),
    "tasks": ("spec",),
    "replicas": ("spec",),
    "selector": ("spec",),
    "hard": ("spec",),
    "resourceGroups": ("spec",),
    "flavors": ("resourceGroups", "spec"),
    "resources": ("flavors", "spec"),
    "nominalQuota": ("resources", "spec"),
    "name": ("metadata",),
    "labels": ("metadata",),
    "annotations": ("metadata",),
    **dict.fromkeys(_ANY_AFFINITY, ("affinity",)),
    REQUIRED_AFFINITY: _ANY_AFFINITY,
    PREFERRED_AFFINITY: _ANY_AFFINITY,
    "nodeSelectorTerms": (REQUIRED_AFFINITY,),
    "labelSelector": (REQUIRED_AFFINITY, PREFERRED_AFFINITY),
    "topologyKey": (REQUIRED_AFFINITY, PREFERRED_AFFINITY),
    "matchExpressions": ("nodeSelectorTerms", "labelSelector"),
    "matchLabels": ("labelSelector", "selector"),
    "timeSlicing": ("sharing",),
    "mps": ("sharing",),
    "migStrategy": ("flags",),
}
#: What an extended resource (``nvidia.com/gpu``) stands below.
_AMOUNTS: Final = ("limits", "requests")
_MOST: Final = 6


def is_flattened(obj: Object) -> bool:
    """Whether a field of ``obj`` is empty while fields that belong below it stand beside it."""
    empty = {key for key, value in obj.items() if value is None}
    return any(empty & set(_parents(key)) for key in obj)


def _parents(key: str) -> tuple[str, ...]:
    if key in _PARENTS:
        return _PARENTS[key]
    return _AMOUNTS if "/" in key else ()


def check(obj: Object) -> Iterator[Finding]:
    """Fields at the root that belong elsewhere."""
    if not is_flattened(obj):
        return
    empty = [key for key, value in obj.items() if value is None]
    _, moved = _restore(obj)
    verb = "is" if len(empty) == 1 else "are"
    message = f"the indentation is lost: {', '.join(empty)} {verb} empty, and what belongs there stands beside"
    lost = "; ".join(f"{key} below {parent}" for key, parent in moved[:_MOST])
    yield Finding("Flattened", (), message, f"Indent by two spaces a level: {lost}.")


def restored(obj: Object) -> Object:
    """``obj`` as it was before its indentation was lost, as far as that can be told."""
    return _restore(obj)[0]


def _restore(obj: Object) -> tuple[Object, list[tuple[str, str]]]:
    """``obj`` with its fields where they belong, and which of them went below which."""
    root: Object = {}
    # The last place of each field so far; what comes below an empty field makes it a map.
    places: dict[str, tuple[Object, str]] = {}
    moved = []
    for key, value in obj.items():
        parent = _last(_parents(key), places)
        holder = _opened(*places[parent]) if parent else root
        if parent:
            moved.append((key, parent))
        holder[key] = clone(value)
        places[key] = (holder, key)
        if isinstance(holder[key], list) and holder[key] and isinstance(holder[key][-1], dict):
            last = holder[key][-1]
            places |= {inner: (last, inner) for inner in last}
    return root, moved


def _last(parents: tuple[str, ...], places: dict[str, tuple[Object, str]]) -> str:
    """The one of ``parents`` that came last, of those that can hold something."""
    found = [key for key in places if key in parents and _can_hold(*places[key])]
    return found[-1] if found else ""


def _can_hold(holder: Object, key: str) -> bool:
    value = holder[key]
    return value is None or isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[-1], dict))


def _opened(holder: Object, key: str) -> Object:
    """The map that a field holds, or that its last element is."""
    if holder[key] is None:
        holder[key] = {}
    value: Object = holder[key][-1] if isinstance(holder[key], list) else holder[key]
    return value
