"""What gpugate did to a template at CREATE, written down in the object, and done again on UPDATE.

Git, and whoever applies from it, sends the template as Git states it. On UPDATE the recorded edits are given back exactly, so
that neither an immutable template appears changed nor a rollout starts because the policy changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from gpugate.policies.edits import Draft
from gpugate.policies.fields import Object, Path, clone, from_pointer, lookup, mapping, pointer

ANNOTATION: Final = "gpugate.io/mutations"
_PLACE: Final[Path] = ("metadata", "annotations", ANNOTATION)
#: The record is for gpugate's own few edits; anything larger was not written by it. Bytes.
_LARGEST: Final = 64 * 1024


def record(draft: Draft) -> None:
    """Write the draft's operations into the annotation, after those that an earlier review of the same object wrote."""
    ops = [op for op in draft.ops if not op["path"].startswith(pointer(_PLACE))]
    if not ops:
        return
    earlier = recorded(draft.root)
    # Operations hold their values by reference, and one of them may be the annotations themselves.
    kept = [[op["op"], op["path"], clone(op["value"])] if "value" in op else [op["op"], op["path"]] for op in ops]
    text = orjson.dumps([*earlier, *kept]).decode()
    parent: Any = draft.root
    for depth, part in enumerate(_PLACE[:-1]):
        child = parent.get(part)
        if child is None:
            value: Any = {ANNOTATION: text}
            for key in reversed(_PLACE[depth + 1 : -1]):
                value = {key: value}
            parent[part] = value
            draft.ops.append({"op": "add", "path": pointer(_PLACE[: depth + 1]), "value": value})
            return
        parent = child
    parent[ANNOTATION] = text
    draft.ops.append({"op": "add", "path": pointer(_PLACE), "value": text})


def recorded(root: Object) -> list[list[Any]]:
    """The operations that the object's annotation records; none where it has none that gpugate could have written."""
    annotations = mapping(mapping(root, "metadata", ()), "annotations", ("metadata",))
    text = annotations.get(ANNOTATION)
    if type(text) is not str or len(text) > _LARGEST:
        return []
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return []
    return [op for op in found if _is_operation(op)] if type(found) is list else []


def _is_operation(op: Any) -> bool:  # noqa: ANN401 - untrusted JSON
    return (
        type(op) is list
        and 2 <= len(op) <= 3
        and op[0] in {"add", "replace", "remove"}
        and type(op[1]) is str
        and op[1].startswith("/")
        and (len(op) == 3) == (op[0] != "remove")
    )


def replay(draft: Draft, old: Object) -> None:
    """Give ``draft`` back what ``old`` records and still has, and the record itself.

    Nothing is put in that the old object does not have at that very place, so a forged record can ask for nothing new.
    """
    operations = recorded(old)
    if not operations:
        return
    for op, at, *value in operations:
        _give_back(draft, old, op, from_pointer(at), value[0] if value else None)
    text = lookup(old, _PLACE)
    if lookup(draft.root, _PLACE) != text:
        _put(draft, _PLACE, text)


def _give_back(draft: Draft, old: Object, op: str, path: Path, value: Any) -> None:  # noqa: ANN401 - any JSON value
    if op == "remove":
        if lookup(old, path) is None and lookup(draft.root, path) is not None:
            _take(draft, path)
    elif path[-1] == "-":
        held, wanted = lookup(old, path[:-1]), lookup(draft.root, path[:-1])
        if type(held) is list and type(wanted) is list and _element_in(held, value) and not _element_in(wanted, value):
            element = clone(next(one for one in held if _same(one, value)))
            wanted.append(element)
            draft.ops.append({"op": "add", "path": pointer(path), "value": element})
    else:
        held = lookup(old, path)
        if held is None:
            return
        present = lookup(draft.root, path)
        if present is None or (op == "replace" and _same(held, value) and present != held):
            _put(draft, path, clone(held))


def _same(one: Any, recorded_value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether ``one`` is the recorded value, defaults that the apiserver added to it aside."""
    if type(one) is dict and type(recorded_value) is dict:
        return all(key in one and _same(one[key], item) for key, item in recorded_value.items())
    return bool(one == recorded_value)


def _element_in(elements: Iterable[Any], value: Any) -> bool:  # noqa: ANN401 - any JSON value
    return any(_same(one, value) for one in elements)


def _put(draft: Draft, path: Path, value: Any) -> None:  # noqa: ANN401 - any JSON value
    parent: Any = draft.root
    for depth, part in enumerate(path[:-1]):
        child = lookup(parent, (part,))
        if child is None and type(parent) is dict:
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
    draft.ops.append({"op": op, "path": pointer(path), "value": value})


def _take(draft: Draft, path: Path) -> None:
    parent = lookup(draft.root, path[:-1])
    if type(parent) is dict:
        del parent[path[-1]]
        draft.ops.append({"op": "remove", "path": pointer(path)})
