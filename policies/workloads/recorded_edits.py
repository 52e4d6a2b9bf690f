"""Read the edits that gpugate recorded in an object's annotation, and apply them again.

A record is a list of ``["add", path, value]``, ``["replace", path, value, earlier value]`` and ``["remove", path]``.
"""

from collections.abc import Iterable
from typing import Any, Final

import orjson

from gpugate.policies.kube.accelerators import LEGACY_GPU
from gpugate.policies.kube.fields import Object, Path, clone, from_pointer, lookup, mapping, pointer
from gpugate.policies.patch import PatchBuilder
from gpugate.policies.workloads.container import normal_path

ANNOTATION: Final = "gpugate.io/mutations"
#: The longest record that is read, in bytes: gpugate never writes a longer one.
LARGEST: Final = 64 * 1024
_LENGTHS: Final = {"add": 3, "replace": 4, "remove": 2}


def recorded(root: Object) -> list[list[Any]]:
    """Return the operations that the annotation of ``root`` records, without those that no rule could have made."""
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


#: Fields that rules write in a pod spec, its containers and the spec of a job: a test holds them equal to ``Rule.writes``.
RULE_FIELDS: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "affinity",
        "backoffLimit",
        "cleanPodPolicy",
        "env",
        "image",
        "imagePullPolicy",
        "podFailurePolicy",
        "podReplacementPolicy",
        "priorityClassName",
        "resources",
        "schedulerName",
        "schedulingGroup",
        "shutdownAfterJobFinishes",
        "tolerations",
        "topologySpreadConstraints",
        "ttlSecondsAfterFinished",
        "volumeMounts",
        "volumes",
    }
)
#: Where the ``resources`` of a template lie in a TrainJob.
_RESOURCES_OF_TRAIN_JOB: Final = "resourcesPerNode"
_WRITTEN: Final = RULE_FIELDS | {_RESOURCES_OF_TRAIN_JOB}
#: A map that a rule adds as a whole where it is absent, with some of these fields.
_HOLDER: Final = "runPolicy"
#: Rules write here, too, but only values that take rights away.
_CONTEXT: Final = "securityContext"


def _is_ours(path: Path, value: Any = None) -> bool:  # noqa: ANN401 - untrusted JSON
    """Tell whether a rule may have written ``value`` at ``path``. A forged record cannot keep any other field alive."""
    if path[0] == "metadata":
        return path[1:2] in {("labels",), ("annotations",)}
    if _CONTEXT in path:
        return _hardens(path[path.index(_CONTEXT) + 1 :], value)
    if path[-1] == _HOLDER:
        return type(value) is dict and value.keys() <= _WRITTEN
    return "metadata" in path or not _WRITTEN.isdisjoint(path)


def _hardens(path: Path, value: Any) -> bool:  # noqa: ANN401 - untrusted JSON
    """Tell whether ``value`` at ``path`` below a security context takes rights away and gives none."""
    if not path:
        return type(value) is dict and all(_hardens((field,), item) for field, item in value.items())
    if path == ("seccompProfile",):
        return bool(value == {"type": "RuntimeDefault"})
    if path == ("runAsUser",):
        return type(value) is int and value > 0
    return (path == ("allowPrivilegeEscalation",) and value is False) or (path == ("runAsNonRoot",) and value is True)


def reapply_edit(draft: PatchBuilder, old: Object, op: str, path: Path, values: list[Any]) -> None:
    """Apply one recorded operation to ``draft`` again, as far as ``old`` still has its result.

    Nothing is added that ``old`` does not have at that very path, so a forged record can add nothing new. Nothing is removed but
    the legacy GPU resource name. A value that the request changes stays changed.
    """
    if op == "remove":
        if path[-1] == LEGACY_GPU and lookup(old, path) is None and lookup(draft.root, path) is not None:
            _remove(draft, path)
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
    """Tell whether ``root`` still has the result of a recorded operation."""
    op, at, *values = operation
    path = from_pointer(at)
    if op == "remove":
        return lookup(root, path) is None
    if path[-1] == "-":
        elements = lookup(root, path[:-1])
        return type(elements) is list and any(_contains(element, values[0]) for element in elements)
    return _common(lookup(root, path), values[0]) is not None


def put(draft: PatchBuilder, path: Path, value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Set ``path`` in ``draft``; do nothing if an element of a list on the way is gone."""
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
    # A copy: a later edit inside the value is an operation of its own.
    draft.ops.append({"op": op, "path": pointer(path), "value": clone(value)})


def _remove(draft: PatchBuilder, path: Path) -> None:
    parent = lookup(draft.root, path[:-1])
    if type(parent) is dict:
        del parent[path[-1]]
        draft.ops.append({"op": "remove", "path": pointer(path)})


def _append_again(draft: PatchBuilder, path: Path, had: list[Any], present: list[Any], value: Any) -> None:  # noqa: ANN401 - any JSON value
    if any(_contains(element, value) or _same_key(element, value) for element in present):
        return
    for element in had:
        if _contains(element, value):
            present.append(clone(element))
            draft.ops.append({"op": "add", "path": pointer(path), "value": clone(element)})
            return


def _add_again(draft: PatchBuilder, path: Path, had: Any, value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Add what ``had`` still has of ``value``, key by key: keys that others added meanwhile stay theirs."""
    present = lookup(draft.root, path)
    if type(present) is dict and type(had) is dict and type(value) is dict:
        for key, item in value.items():
            _add_again(draft, (*path, key), had.get(key), item)
    elif present is None:
        common = _common(had, value)
        if common is not None:
            put(draft, path, common)


def _common(had: Any, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return what ``had`` still has of ``value``; None if that is nothing."""
    if type(had) is dict and type(value) is dict:
        items = {key: _common(had[key], item) for key, item in value.items() if key in had}
        return {key: item for key, item in items.items() if item is not None} or None
    if type(had) is list and type(value) is list:
        return [clone(element) for element in had if _any_contains(element, value)] or None
    return clone(had)


def _same_key(element: Any, value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Tell whether a list merged by key cannot hold both: the same mount path, or the same name."""
    if type(element) is not dict or type(value) is not dict:
        return False
    if "mountPath" in value:
        mine, other = value["mountPath"], element.get("mountPath")
        return type(mine) is str and type(other) is str and normal_path(mine) == normal_path(other)
    return "name" in value and element.get("name") == value["name"]


def _contains(element: Any, value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Tell whether ``element`` is the recorded ``value``, apart from defaults that the apiserver added to it."""
    if type(element) is dict and type(value) is dict:
        return all(key in element and _contains(element[key], item) for key, item in value.items())
    return bool(element == value)


def _any_contains(element: Any, values: Iterable[Any]) -> bool:  # noqa: ANN401 - any JSON value
    return any(_contains(element, value) for value in values)
