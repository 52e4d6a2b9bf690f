"""Record the edits of a template at CREATE in an annotation of the object, and make the same edits again on UPDATE.

Git, and the tool that applies from it, submits the template without these edits. An UPDATE gets the recorded edits again exactly:
an immutable template then does not appear changed, and a changed policy starts no rollout. A field that the request itself
changes stays as the user submits it.
"""

from collections.abc import Collection
from typing import Any, Final

import orjson

from gpugate.policies.kube.fields import Path, clone, from_pointer, lookup, pointer
from gpugate.policies.patch import PatchBuilder
from gpugate.policies.workloads.recorded_edits import ANNOTATION, LARGEST, put, reapply_edit, recorded, still_holds
from gpugate.policies.workloads.transition import Transition

_PLACE: Final[Path] = ("metadata", "annotations", ANNOTATION)


def record(draft: PatchBuilder) -> None:
    """Write the operations of ``draft`` into the annotation, after those of an earlier review of the same object."""
    _write(draft, [*recorded(draft.root), *_operations(draft, 0)])


def merge_record(draft: PatchBuilder, transition: Transition, reapplied: int) -> None:
    """Write the record after an UPDATE: old operations that still hold, and those of ``draft`` after the first ``reapplied``."""
    valid = [op for op in [*transition.recorded, *recorded(draft.root)] if still_holds(draft.root, op)]
    known = [*valid, *_operations(draft, reapplied)]
    # Of several additions at one path only the first would be made again, and it may be a part of the last.
    last = {op[1]: op for op in known if op[0] == "add" and not op[1].endswith("/-")}
    # An element that was appended twice is recorded where it was appended last.
    _write(
        draft, [op for at, op in enumerate(known) if op not in known[at + 1 :] and (op[0] != "add" or last.get(op[1], op) == op)]
    )


def keep_record(draft: PatchBuilder, transition: Transition) -> None:
    """Copy the record of the old object into ``draft``: the templates are as it says."""
    if transition.recorded:
        text = lookup(transition.old, _PLACE)
        if lookup(draft.root, _PLACE) != text:
            put(draft, _PLACE, text)


def _operations(draft: PatchBuilder, start: int) -> list[list[Any]]:
    # Values are cloned: a value may be the map of annotations that the record is written into.
    operations: list[list[Any]] = []
    for op in draft.ops[start:]:
        at = op["path"]
        if at.startswith(pointer(_PLACE)):
            continue
        before = draft.overwritten.get(at)
        if op["op"] == "remove":
            operations.append(["remove", at])
        else:
            action, old = ("add", ()) if before is None else ("replace", (clone(before),))
            operations.append([action, at, clone(op["value"]), *old])
    return operations


def _write(draft: PatchBuilder, operations: list[list[Any]]) -> None:
    distinct = [op for at, op in enumerate(operations) if op not in operations[:at]]
    if not distinct or distinct == recorded(draft.root):
        return
    text = orjson.dumps(distinct).decode()
    # A longer record would not be read again. The API accepts 256 KiB of annotations in all.
    if len(text) <= LARGEST:
        put(draft, _PLACE, text)


def reapply(draft: PatchBuilder, transition: Transition, left: Collection[Path] = (), triggers: Collection[str] = ()) -> None:
    """Make the recorded edits of the old object again.

    Args:
        draft: the object as it was submitted.
        transition: the UPDATE.
        left: paths of pod templates whose pod spec stays as submitted, for the rules to edit again: a memory limit that was right
            for one GPU is not right for two.
        triggers: annotations that the request changes; in the templates ``left`` they stay as submitted, too.
    """
    for op, at, *values in transition.recorded:
        path = from_pointer(at)
        if any(_is_in_pod_spec(path, template) for template in left):
            continue
        if triggers:
            values = [_without_triggers(path, value, left, triggers) for value in values]  # noqa: PLW2901 - of this edit alone
        if op == "remove" or values[0] is not None:
            reapply_edit(draft, transition.old, op, path, values)


def _without_triggers(path: Path, value: Any, templates: Collection[Path], triggers: Collection[str]) -> Any:  # noqa: ANN401 - any JSON value
    """Return the recorded ``value`` at ``path`` without the annotations ``triggers`` of ``templates``; None if nothing is left."""
    for template in templates:
        place = (*template, "metadata", "annotations")
        if path[:-1] == place and path[-1] in triggers:
            return None
        if place[: len(path)] == path and type(value) is dict:
            value = clone(value)
            annotations: Any = lookup(value, place[len(path) :])
            for key in triggers if type(annotations) is dict else ():
                annotations.pop(key, None)
    return value


#: Fields of a pod spec that follow from nothing else in it: the scheduler from the gang, the priority from the workload's purpose.
_INDEPENDENT: Final = {("priorityClassName",), ("schedulerName",)}


def _is_in_pod_spec(path: Path, template: Path) -> bool:
    """Tell whether ``path`` lies in the pod spec of ``template``, independent fields excepted."""
    depth = len(template)
    return path[: depth + 1] == (*template, "spec") and path[depth + 1 : depth + 2] not in _INDEPENDENT
