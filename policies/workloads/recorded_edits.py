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
#: How many elements of lists are compared with those of a record at most; a template of 256 containers needs a third.
_MOST_COMPARED: Final = 150_000
_LENGTHS: Final = {"add": 3, "replace": 4, "remove": 2}


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


def bounded(operations: list[list[Any]], *roots: Object) -> list[list[Any]]:
    """Return ``operations`` up to where comparing them with the lists in ``roots`` would take too long: a forged record."""
    left = _MOST_COMPARED
    for at, (_, place, *values) in enumerate(operations):
        path = from_pointer(place)
        appends = path[-1] == "-"
        for root in roots if values else ():
            present = lookup(root, path[:-1] if appends else path)
            left -= _comparisons(present, [values[0]] if appends else values[0])
        if left < 0:
            return operations[:at]
    return operations


def _comparisons(present: Any, value: Any) -> int:  # noqa: ANN401 - any JSON value
    """Return how many elements of ``present`` are compared with parts of ``value``."""
    if type(value) is dict and type(present) is dict:
        return sum(_comparisons(present.get(key), item) for key, item in value.items())
    return len(present) * _parts(value) if type(value) is list and type(present) is list else 1


def _parts(value: Any) -> int:  # noqa: ANN401 - any JSON value
    if type(value) is dict:
        return 1 + sum(map(_parts, value.values()))
    return 1 + sum(map(_parts, value)) if type(value) is list else 1


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


def reapply_edit(draft: PatchBuilder, old: Object, op: str, path: Path, values: list[Any]) -> None:
    """Reapply a recorded operation to ``draft``, as far as ``old`` still has its result.

    Only values that ``old`` has at the same path are added, so a forged record can add nothing new. Only the legacy GPU resource
    name is removed. A value that the request changes stays changed.
    """
    if op == "remove":
        if path[-1] == LEGACY_GPU and lookup(old, path) is None and lookup(draft.root, path) is not None:
            draft.apply(Edit("remove", path))
    elif path[-1] == "-":
        had, present = lookup(old, path[:-1]), lookup(draft.root, path[:-1])
        if type(had) is list and type(present) is list:
            _append_again(draft, path, had, present, values[0])
    elif op == "add":
        _add_again(draft, path, lookup(old, path), values[0])
    else:
        had, present = lookup(old, path), lookup(draft.root, path)
        if had is not None and present == values[1] and present != had:
            put(draft, path, clone(had))


def still_holds(root: Object, operation: list[Any]) -> bool:
    """Return whether ``root`` still has the result of a recorded operation."""
    op, at, *values = operation
    path = from_pointer(at)
    if op == "remove":
        return lookup(root, path) is None
    if path[-1] == "-":
        elements = lookup(root, path[:-1])
        return type(elements) is list and any(_contains(element, values[0]) for element in elements)
    return _common(lookup(root, path), values[0]) is not None


def put(draft: PatchBuilder, path: Path, value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Set ``path`` in ``draft``; do nothing if an element of a list in the path is gone."""
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


def _append_again(draft: PatchBuilder, path: Path, had: list[Any], present: list[Any], value: Any) -> None:  # noqa: ANN401 - any JSON value
    element = next((element for element in had if _contains(element, value)), None)
    if element is not None and not any(_contains(item, value) or _same_key(item, value) for item in present):
        present.append(clone(element))
        draft.ops.append({"op": "add", "path": pointer(path), "value": clone(element)})


def _add_again(draft: PatchBuilder, path: Path, had: Any, value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Add what ``had`` still has of ``value``, key by key; keys that others added meanwhile stay."""
    present = lookup(draft.root, path)
    if type(present) is dict and type(had) is dict and type(value) is dict:
        for key, item in value.items():
            _add_again(draft, (*path, key), had.get(key), item)
    elif present is None and (common := _common(had, value)) is not None:
        put(draft, path, common)


def _common(had: Any, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return what ``had`` still has of ``value``; None for nothing."""
    if type(had) is dict and type(value) is dict:
        items = {key: _common(had[key], item) for key, item in value.items() if key in had}
        return {key: item for key, item in items.items() if item is not None} or None
    if type(had) is list and type(value) is list:
        return [clone(element) for element in had if any(_contains(element, item) for item in value)] or None
    return clone(had)


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
