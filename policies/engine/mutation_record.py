"""What gpugate did to a template at CREATE, written down in the object, and done again on UPDATE.

Git, and whoever applies from it, sends the template as Git states it. On UPDATE the recorded edits are given back exactly, so
that neither an immutable template appears changed nor a rollout starts because the policy changed meanwhile. What the user
changes in the very request is the user's: no edit is given back over it.

A record is a list of ``["add", place, value]``, ``["replace", place, value, what stood there]`` and ``["remove", place]``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import orjson

from gpugate.policies.kube.accelerators import LEGACY_GPU
from gpugate.policies.kube.equivalence import semantically_equal
from gpugate.policies.kube.fields import Object, Path, clone, from_pointer, lookup, pointer
from gpugate.policies.patch import PatchBuilder
from gpugate.policies.workloads.container import normal_path
from gpugate.policies.workloads.recorded_edits import ANNOTATION, LARGEST, recorded

_PLACE: Final[Path] = ("metadata", "annotations", ANNOTATION)


def record(draft: PatchBuilder) -> None:
    """Write the draft's operations into the annotation, after those that an earlier review of the same object wrote."""
    _write(draft, [*recorded(draft.root), *_operations(draft, 0)])


def merge_record(draft: PatchBuilder, old: Object, given_back: int) -> None:
    """Write down an UPDATE: of the ``old`` record what still holds, and the draft's operations after the first ``given_back``."""
    held = [op for op in [*recorded(old), *recorded(draft.root)] if _holds(draft.root, op)]
    known = [*held, *_operations(draft, given_back)]
    # What was put in last where nothing stood: of several, only the first would be given back, and it may be a part.
    last = {op[1]: op for op in known if op[0] == "add" and not op[1].endswith("/-")}
    # What was appended anew stands in its list where it was appended last.
    _write(
        draft,
        [op for at, op in enumerate(known) if op not in known[at + 1 :] and (op[0] != "add" or last.get(op[1], op) == op)],
    )


def _operations(draft: PatchBuilder, start: int) -> list[list[Any]]:
    # Operations hold their values by reference, and one of them may be the annotations themselves.
    found: list[list[Any]] = []
    for op in draft.ops[start:]:
        at = op["path"]
        if at.startswith(pointer(_PLACE)):
            continue
        before = draft.overwritten.get(at)
        if op["op"] == "remove":
            found.append(["remove", at])
        elif before is None:
            found.append(["add", at, clone(op["value"])])
        else:
            found.append(["replace", at, clone(op["value"]), clone(before)])
    return found


def _write(draft: PatchBuilder, operations: list[list[Any]]) -> None:
    distinct = [op for at, op in enumerate(operations) if op not in operations[:at]]
    if not distinct or distinct == recorded(draft.root):
        return
    text = orjson.dumps(distinct).decode()
    # What would not be read again is not written: the API takes 256KiB of annotations in all.
    if len(text) <= LARGEST:
        _put(draft, _PLACE, text)


def _holds(root: Object, operation: list[Any]) -> bool:
    """Whether ``root`` is as a recorded operation left it."""
    op, at, *values = operation
    path = from_pointer(at)
    if op == "remove":
        return lookup(root, path) is None
    if path[-1] == "-":
        held = lookup(root, path[:-1])
        return type(held) is list and _element_in(held, values[0])
    return _common(lookup(root, path), values[0]) is not None


def reapply(draft: PatchBuilder, old: Object, templates: Collection[Path] = (), said_anew: Collection[str] = ()) -> None:
    """Give ``draft`` back what ``old`` records and still has.

    Nothing is put in that the old object does not have at that very place, so a forged record can ask for nothing new, and
    nothing is taken out but the legacy resource name.

    Args:
        draft: the object as it was sent.
        old: the object that it replaces.
        templates: pod templates that the API lets a user change. In one whose containers, resources or placement the
            request changes, the pods are left as they were sent, for the rules to edit anew: a memory limit that was right
            for one accelerator is not right for two.
        said_anew: annotations by which the request says anew where the pods are to go: then all templates are left as they
            were sent, and what gpugate wrote of these annotations into them is not given back.
    """
    operations = recorded(old)
    if not operations:
        return
    changed = list(templates)
    if templates and not said_anew:
        changed = _changed_templates(draft.root, old, operations, templates)
    for op, at, *values in operations:
        path = from_pointer(at)
        if any(_is_of_pods(path, template) for template in changed):
            continue
        wanted = [_untold(path, value, templates, said_anew) for value in values] if said_anew else values
        if op == "remove" or wanted[0] is not None:
            _reapply_edit(draft, old, op, path, wanted)


def _untold(path: Path, value: Any, templates: Collection[Path], keys: Collection[str]) -> Any:  # noqa: ANN401 - any JSON value
    """The recorded ``value`` at ``path`` without the annotations ``keys`` of templates; None where nothing of it is left."""
    for template in templates:
        place = (*template, "metadata", "annotations")
        if path[:-1] == place and path[-1] in keys:
            return None
        if place[: len(path)] == path and type(value) is dict:
            value = clone(value)
            told = lookup(value, place[len(path) :])
            for key in keys if type(told) is dict else ():
                told.pop(key, None)
    return value


def keep_record(draft: PatchBuilder, old: Object) -> None:
    """Give ``draft`` the record of ``old`` back: what it tells of the templates holds still."""
    if recorded(old):
        text = lookup(old, _PLACE)
        if lookup(draft.root, _PLACE) != text:
            _put(draft, _PLACE, text)


#: What edits of pods rest on. A change to anything else (an image, a command) leaves them right.
_POD_FIELDS: Final = (
    *("affinity", "hostIPC", "nodeSelector", "os", "overhead", "resourceClaims", "resources", "tolerations"),
    *("topologySpreadConstraints", "volumes"),
)
_CONTAINER_FIELDS: Final = ("name", "resources", "restartPolicy", "volumeMounts")


def _changed_templates(root: Object, old: Object, operations: list[list[Any]], templates: Collection[Path]) -> list[Path]:
    """The templates whose pods the request changes in what the edits rest on: all edits given back, they differ still."""
    trial = PatchBuilder(clone(root))
    for op, at, *values in operations:
        _reapply_edit(trial, old, op, from_pointer(at), values)
    return [template for template in templates if not semantically_equal(_basis(trial.root, template), _basis(old, template))]


def _basis(root: Object, template: Path) -> Object:
    spec = lookup(root, (*template, "spec"))
    if type(spec) is not dict:
        return {}
    found: Object = {name: spec.get(name) for name in _POD_FIELDS}
    for kind in ("initContainers", "containers"):
        containers = spec.get(kind) or ()
        found[kind] = [{name: one.get(name) for name in _CONTAINER_FIELDS} for one in containers if type(one) is dict]
    return found


#: What rests on nothing in the pods: the scheduler goes with the gang, the priority with what the workload is for.
_RESTS_ON_NOTHING: Final = {("priorityClassName",), ("schedulerName",)}


def _is_of_pods(path: Path, template: Path) -> bool:
    """Whether ``path`` lies in the pod spec of ``template``, what rests on nothing there aside."""
    depth = len(template)
    return path[: depth + 1] == (*template, "spec") and path[depth + 1 : depth + 2] not in _RESTS_ON_NOTHING


def _reapply_edit(draft: PatchBuilder, old: Object, op: str, path: Path, values: list[Any]) -> None:
    if op == "remove":
        if path[-1] == LEGACY_GPU and lookup(old, path) is None and lookup(draft.root, path) is not None:
            _take(draft, path)
    elif path[-1] == "-":
        held, wanted = lookup(old, path[:-1]), lookup(draft.root, path[:-1])
        if type(held) is list and type(wanted) is list:
            _append_back(draft, path, held, wanted, values[0])
    elif op == "add":
        _add_back(draft, path, lookup(old, path), values[0])
    else:
        held, present = lookup(old, path), lookup(draft.root, path)
        if held is not None and present == values[1] and present != held:
            _put(draft, path, clone(held))


def _append_back(draft: PatchBuilder, path: Path, held: list[Any], wanted: list[Any], value: Any) -> None:  # noqa: ANN401 - any JSON value
    if any(_same(one, value) or _rivals(one, value) for one in wanted):
        return
    for one in held:
        if _same(one, value):
            wanted.append(clone(one))
            draft.ops.append({"op": "add", "path": pointer(path), "value": clone(one)})
            return


def _add_back(draft: PatchBuilder, path: Path, held: Any, value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Put back of ``held`` what ``value`` records, key by key, so that keys which others added meanwhile are left to them."""
    present = lookup(draft.root, path)
    if type(present) is dict and type(held) is dict and type(value) is dict:
        for key, item in value.items():
            _add_back(draft, (*path, key), held.get(key), item)
    elif present is None:
        common = _common(held, value)
        if common is not None:
            _put(draft, path, common)


def _common(held: Any, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """What ``held`` still has of ``value``; None where that is nothing."""
    if type(held) is dict and type(value) is dict:
        found = {key: _common(held[key], item) for key, item in value.items() if key in held}
        return {key: item for key, item in found.items() if item is not None} or None
    if type(held) is list and type(value) is list:
        return [clone(one) for one in held if _element_in(value, one, superset=True)] or None
    return clone(held)


def _rivals(one: Any, value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether a list merged by key can't hold both: the same mount path, or the same name."""
    if type(one) is not dict or type(value) is not dict:
        return False
    if "mountPath" in value:
        mine, other = value["mountPath"], one.get("mountPath")
        return type(mine) is str and type(other) is str and normal_path(mine) == normal_path(other)
    return "name" in value and one.get("name") == value["name"]


def _same(one: Any, recorded_value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether ``one`` is the recorded value, defaults that the apiserver added to it aside."""
    if type(one) is dict and type(recorded_value) is dict:
        return all(key in one and _same(one[key], item) for key, item in recorded_value.items())
    return bool(one == recorded_value)


def _element_in(elements: Iterable[Any], value: Any, *, superset: bool = False) -> bool:  # noqa: ANN401 - any JSON value
    return any(_same(value, one) if superset else _same(one, value) for one in elements)


def _put(draft: PatchBuilder, path: Path, value: Any) -> None:  # noqa: ANN401 - any JSON value
    parent: Any = draft.root
    for depth, part in enumerate(path[:-1]):
        child = lookup(parent, (part,))
        if child is None and type(parent) is dict:
            if any(type(key) is int for key in path[depth + 1 :]):
                return  # What holds a list is gone, and its elements with it.
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
    # A copy: what a rule changes in it afterwards is an operation of its own.
    draft.ops.append({"op": op, "path": pointer(path), "value": clone(value)})


def _take(draft: PatchBuilder, path: Path) -> None:
    parent = lookup(draft.root, path[:-1])
    if type(parent) is dict:
        del parent[path[-1]]
        draft.ops.append({"op": "remove", "path": pointer(path)})
