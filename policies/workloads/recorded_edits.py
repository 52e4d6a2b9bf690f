"""Read the edits that gpugate recorded in an object's annotation, and reapply them.

A record is a list of ``["add", path, value]``, ``["replace", path, value, earlier value]`` and ``["remove", path]``.
"""

from typing import Any, Final

import orjson

from gpugate.policies.kube.accelerators import LEGACY_GPU
from gpugate.policies.kube.fields import Object, Path, clone, from_pointer, lookup, mapping, pointer
from gpugate.policies.patch import Edit, PatchBuilder
from gpugate.policies.workloads.container import normal_path

ANNOTATION: Final = "gpugate.io/mutations"
#: Maximum length of a record in bytes; gpugate writes no longer ones.
LARGEST: Final = 64 * 1024
_LENGTHS: Final = {"add": 3, "replace": 4, "remove": 2}
#: Values that may be compared and copied for one record; that of a template of 256 containers needs a third.
_MOST_VALUES: Final = 150_000


class Effort:
    """What one record may still cost: a forged one could compare thousands of values with each element of a large list."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def allows(self, number: int) -> bool:
        """Take ``number`` values from what is left; return whether there was enough, this time and before."""
        self._left -= number
        return self._left >= 0

    def compare(self, elements: list[Any], value: Any) -> bool:  # noqa: ANN401 - any JSON value
        """Return whether ``value`` may be compared with each of ``elements``."""
        return self.allows(len(elements) * _values(value, self._left))

    def copy(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Return a copy of ``value``; None if it is too large."""
        return clone(value) if self.allows(_values(value, self._left)) else None


def _values(value: Any, most: int) -> int:  # noqa: ANN401 - any JSON value
    """Return the number of values in ``value``, or more than ``most`` as soon as it is above."""
    items = value.values() if type(value) is dict else value if type(value) is list else ()
    number = 1 + len(items)
    for item in items:
        if number > most:
            break
        if type(item) is dict or type(item) is list:
            number += _values(item, most - number)
    return number


def recorded(root: Object) -> list[list[Any]]:
    """Return the operations that the annotation of ``root`` records, without those that no rule makes."""
    annotations = mapping(mapping(root, "metadata", ()), "annotations", ("metadata",))
    text = annotations.get(ANNOTATION)
    if type(text) is not str or len(text) > LARGEST:
        return []
    try:
        operations = orjson.loads(text)
    except orjson.JSONDecodeError:
        return []
    return [op for op in operations if _is_operation(op)] if type(operations) is list else []


def _is_operation(op: Any) -> bool:  # noqa: ANN401 - untrusted JSON
    return (
        type(op) is list
        and len(op) >= 2
        and type(op[0]) is str
        and _LENGTHS.get(op[0]) == len(op)
        and type(op[1]) is str
        and op[1].startswith("/")
        and _is_ours(from_pointer(op[1]), *op[2:3])
    )


#: Fields that rules write in a pod spec, its containers and the spec of a job; a test compares them with ``Rule.writes``.
RULE_FIELDS: Final = frozenset(
    {
        *(
            "activeDeadlineSeconds",
            "affinity",
            "backoffLimit",
            "cleanPodPolicy",
            "env",
            "image",
            "imagePullPolicy",
            "podFailurePolicy",
        ),
        *("podReplacementPolicy", "priorityClassName", "resources", "schedulerName", "schedulingGroup", "shutdownAfterJobFinishes"),
        *("tolerations", "topologySpreadConstraints", "ttlSecondsAfterFinished", "volumeMounts", "volumes"),
    }
)
#: ``resourcesPerNode`` are the resources of the pods of a TrainJob.
_WRITTEN: Final = RULE_FIELDS | {"resourcesPerNode"}
#: A map that a rule adds if it is absent, with some of these fields.
_PARENT: Final = "runPolicy"
#: Rules also write here, but only values that remove rights.
_CONTEXT: Final = "securityContext"


def _is_ours(path: Path, value: Any = None) -> bool:  # noqa: ANN401 - untrusted JSON
    """Return whether a rule may have written ``value`` at ``path``; a forged record has no effect on other fields."""
    if path[0] == "metadata":
        return path[1:2] in {("labels",), ("annotations",)}
    if _CONTEXT in path:
        return _hardens(path[path.index(_CONTEXT) + 1 :], value)
    if path[-1] == _PARENT:
        return type(value) is dict and value.keys() <= _WRITTEN
    return "metadata" in path or not _WRITTEN.isdisjoint(path)


def _hardens(path: Path, value: Any) -> bool:  # noqa: ANN401 - untrusted JSON
    """Return whether ``value`` at ``path`` below a security context only removes rights."""
    if not path:
        return type(value) is dict and all(_hardens((field,), item) for field, item in value.items())
    if path == ("seccompProfile",):
        return bool(value == {"type": "RuntimeDefault"})
    if path == ("runAsUser",):
        return type(value) is int and value > 0
    return (path == ("allowPrivilegeEscalation",) and value is False) or (path == ("runAsNonRoot",) and value is True)


def reapply_edit(draft: PatchBuilder, old: Object, op: str, path: Path, values: list[Any], effort: Effort) -> None:
    """Reapply a recorded operation to ``draft``, as far as ``old`` still has its result and ``effort`` allows.

    Only values that ``old`` has at the same path are added, so a forged record can add nothing new. Only the legacy GPU resource
    name is removed. A value that the request changes stays changed.
    """
    if op == "remove":
        if path[-1] == LEGACY_GPU and lookup(old, path) is None and lookup(draft.root, path) is not None:
            draft.apply(Edit("remove", path))
    elif path[-1] == "-":
        had, present = lookup(old, path[:-1]), lookup(draft.root, path[:-1])
        if type(had) is list and type(present) is list:
            _append_again(draft, path, had, present, values[0], effort)
    elif op == "add":
        _add_again(draft, path, lookup(old, path), values[0], effort)
    else:
        had, present = lookup(old, path), lookup(draft.root, path)
        if had is not None and present == values[1] and present != had:
            put(draft, path, effort.copy(had))


def still_holds(root: Object, operation: list[Any], effort: Effort) -> bool:
    """Return whether ``root`` still has the result of a recorded operation; False if ``effort`` does not allow to find out."""
    op, at, *values = operation
    path = from_pointer(at)
    if op == "remove":
        return lookup(root, path) is None
    if path[-1] == "-":
        elements = lookup(root, path[:-1])
        return (
            type(elements) is list
            and effort.compare(elements, values[0])
            and any(_contains(element, values[0]) for element in elements)
        )
    return _has_part(lookup(root, path), values[0], effort)


def put(draft: PatchBuilder, path: Path, value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Set ``path`` in ``draft``; do nothing without a value, or if an element of a list in the path is gone."""
    if value is None:
        return
    parent: Any = draft.root
    for depth, part in enumerate(path[:-1]):
        child = lookup(parent, (part,))
        if child is None and type(parent) is dict:
            if any(type(key) is int for key in path[depth + 1 :]):
                return
            for key in reversed(path[depth + 1 :]):
                value = {key: value}
            path = path[: depth + 1]
            break
        if type(child) is not dict and type(child) is not list:
            return
        parent = child
    if type(parent) is not dict:
        return
    op = "replace" if path[-1] in parent else "add"
    parent[path[-1]] = value
    # A copy: a later edit inside the value is another operation.
    draft.ops.append({"op": op, "path": pointer(path), "value": clone(value)})


def _append_again(
    draft: PatchBuilder,
    path: Path,
    had: list[Any],
    present: list[Any],
    value: Any,  # noqa: ANN401 - any JSON value
    effort: Effort,
) -> None:
    if not (effort.compare(had, value) and effort.compare(present, value)):
        return
    element = next((element for element in had if _contains(element, value)), None)
    if element is None or any(_contains(item, value) or _same_key(item, value) for item in present):
        return
    copied = effort.copy(element)
    if copied is not None:
        present.append(copied)
        draft.ops.append({"op": "add", "path": pointer(path), "value": clone(copied)})


def _add_again(draft: PatchBuilder, path: Path, had: Any, value: Any, effort: Effort) -> None:  # noqa: ANN401 - any JSON value
    """Add what ``had`` still has of ``value``, key by key; keys that others added meanwhile stay."""
    present = lookup(draft.root, path)
    if type(present) is dict and type(had) is dict and type(value) is dict:
        for key, item in value.items():
            _add_again(draft, (*path, key), had.get(key), item, effort)
    elif present is None:
        put(draft, path, _common(had, value, effort))


def _common(had: Any, value: Any, effort: Effort) -> Any:  # noqa: ANN401 - any JSON value
    """Return what ``had`` still has of ``value``; None for nothing."""
    if type(had) is dict and type(value) is dict:
        items = {key: _common(had[key], item, effort) for key, item in value.items() if key in had}
        return {key: item for key, item in items.items() if item is not None} or None
    if type(had) is list and type(value) is list:
        if not effort.compare(had, value):
            return None
        return effort.copy([element for element in had if any(_contains(element, item) for item in value)]) or None
    return effort.copy(had)


def _has_part(had: Any, value: Any, effort: Effort) -> bool:  # noqa: ANN401 - any JSON value
    """Return whether ``had`` still has anything of ``value``."""
    if type(had) is dict and type(value) is dict:
        return any(_has_part(had.get(key), item, effort) for key, item in value.items())
    if type(had) is list and type(value) is list:
        return effort.compare(had, value) and any(_contains(element, item) for element in had for item in value)
    return had is not None


def _same_key(element: Any, value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Return whether two elements of a list have the same key: the mount path, or the name."""
    if type(element) is not dict or type(value) is not dict:
        return False
    if "mountPath" in value:
        path, other = value["mountPath"], element.get("mountPath")
        return type(path) is str and type(other) is str and normal_path(path) == normal_path(other)
    return "name" in value and element.get("name") == value["name"]


def _contains(element: Any, value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Return whether ``element`` is the recorded ``value``, apart from defaults of the API server."""
    if type(element) is dict and type(value) is dict:
        for key, item in value.items():
            if key not in element:
                return False
            present = element[key]
            if type(item) is dict:
                if not _contains(present, item):
                    return False
            elif present != item:
                return False
        return True
    return bool(element == value)
