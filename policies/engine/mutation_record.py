"""Record the edits of a template at CREATE in an annotation of the object, and make the same edits again on UPDATE.

Git, and the tool that applies from it, submits the template without these edits. An UPDATE gets the recorded edits again exactly:
an immutable template then does not appear changed, and a changed policy starts no rollout. A field that the request itself
changes stays as the user submits it.

A patch (`kubectl apply`, Helm, server-side apply) leaves fields in the object that Git does not state, so also those that gpugate
injected. A memory request that Git now states may then exceed an injected limit, or a limit may be below an injected request or
``/dev/shm``. Git states none of these, so the user cannot fix them. They are removed, and the rules set them again.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import orjson

from gpugate.policies.kube.fields import Object, Path, clone, from_pointer, lookup, pointer
from gpugate.policies.kube.quantity import QuantityError, exact
from gpugate.policies.patch import PatchBuilder
from gpugate.policies.workloads.recorded_edits import ANNOTATION, LARGEST, bounded, put, reapply_edit, recorded, still_holds
from gpugate.policies.workloads.transition import Transition

_RESOURCES: Final = ("cpu", "memory")
_LISTS: Final = frozenset({"containers", "initContainers"})
_PLACE: Final[Path] = ("metadata", "annotations", ANNOTATION)


def record(draft: PatchBuilder) -> None:
    """Write the operations of ``draft`` into the annotation, after those of an earlier review of the same object."""
    _write(draft, [*recorded(draft.root), *_operations(draft, 0)])


def merge_record(draft: PatchBuilder, transition: Transition, reapplied: int) -> None:
    """Write the record after an UPDATE: old operations that still hold, and those of ``draft`` after the first ``reapplied``."""
    stated = bounded(recorded(draft.root), draft.root)
    valid = [op for op in [*transition.recorded, *stated] if still_holds(draft.root, op)]
    known = [*valid, *_operations(draft, reapplied)]
    # Of several additions at one path only the first would be made again, and it may be a part of the last.
    last = {op[1]: op for op in known if op[0] == "add" and not op[1].endswith("/-")}
    # An element that was appended twice is recorded where it was appended last.
    final = reversed(_distinct(reversed(known)))
    _write(draft, [op for op in final if op[0] != "add" or last.get(op[1], op) == op])


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


def _distinct(operations: Iterable[list[Any]]) -> list[list[Any]]:
    """Return ``operations`` without those that are equal to an earlier one."""
    found: dict[bytes, list[Any]] = {}
    for operation in operations:
        found.setdefault(orjson.dumps(operation, option=orjson.OPT_SORT_KEYS), operation)
    return list(found.values())


def _write(draft: PatchBuilder, operations: list[list[Any]]) -> None:
    distinct = _distinct(operations)
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


def drop_conflicting_defaults(draft: PatchBuilder, transition: Transition) -> None:
    """Remove from ``draft`` injected fields that the old object still has and that conflict with the submitted ones."""
    old = transition.old
    injected = [(from_pointer(at), value) for op, at, *values in transition.recorded if op != "remove" for value in values[:1]]
    ours = {leaf for path, value in injected for leaf in _leaves(path, value)}
    amounts = [
        leaf
        for leaf in sorted(ours, key=pointer)
        if len(leaf) > 5 and leaf[-3] == "resources" and leaf[-1] in _RESOURCES and leaf[-5] in _LISTS
    ]
    for before in dict.fromkeys(leaf[:-3] for leaf in amounts):
        now = _same_container(draft.root, old, before)
        if now is not None:
            _drop_limit_or_request(draft, old, before, now, ours)
    for path, value in injected:
        if path[-1] == "volumes" or path[-2:] == ("volumes", "-"):
            _drop_large_volumes(draft, old, path, value if type(value) is list else [value])


def _leaves(path: Path, value: Any) -> Iterator[Path]:  # noqa: ANN401 - any JSON value
    if type(value) is dict:
        for key, item in value.items():
            yield from _leaves((*path, key), item)
    else:
        yield path


def _same_container(root: Object, old: Object, path: Path) -> Path | None:
    """Return the path in ``root`` of the container that is at ``path`` in ``old``; None if it is gone."""
    name, containers = lookup(old, (*path, "name")), lookup(root, path[:-1])
    if type(name) is not str or type(containers) is not list:
        return None
    matches = [at for at, container in enumerate(containers) if type(container) is dict and container.get("name") == name]
    return (*path[:-1], matches[0]) if len(matches) == 1 else None


def _drop_limit_or_request(draft: PatchBuilder, old: Object, before: Path, now: Path, ours: set[Path]) -> None:
    """Remove the injected limit or request of a container if the request is above the limit."""
    for name in _RESOURCES:
        limit_at, request_at = (("resources", kind, name) for kind in ("limits", "requests"))
        if not _is_above(lookup(draft.root, (*now, *request_at)), lookup(draft.root, (*now, *limit_at))):
            continue
        for at in (limit_at, request_at):
            if (*before, *at) in ours and lookup(draft.root, (*now, *at)) == lookup(old, (*before, *at)):
                _drop(draft, (*now, *at))
                break


def _drop_large_volumes(draft: PatchBuilder, old: Object, path: Path, volumes: list[Any]) -> None:
    """Remove injected volumes in memory, and their mounts, if they are larger than the memory limit of a container."""
    spec_path = path[: path.index("volumes")]
    spec, had = lookup(draft.root, spec_path), lookup(old, (*spec_path, "volumes"))
    if type(spec) is not dict or type(had) is not list:
        return
    for volume in volumes:
        present = spec.get("volumes")
        if type(present) is list and volume in present and volume in had and _is_too_large(spec, volume):
            for kind, number, container in list(_mounting(spec, volume.get("name"))):
                mounts = container["volumeMounts"]
                for at in reversed(range(len(mounts))):
                    if type(mounts[at]) is dict and mounts[at].get("name") == volume.get("name"):
                        _drop(draft, (*spec_path, kind, number, "volumeMounts", at))
            _drop(draft, (*spec_path, "volumes", present.index(volume)))


def _is_too_large(spec: Object, volume: Any) -> bool:  # noqa: ANN401 - any JSON value
    size = lookup(volume, ("emptyDir", "sizeLimit")) if type(volume) is dict else None
    return any(
        _is_above(size, lookup(container, ("resources", "limits", "memory")))
        for _, _, container in _mounting(spec, volume.get("name"))
    )


def _mounting(spec: Object, name: object) -> Iterator[tuple[str, int, Object]]:
    for kind in sorted(_LISTS):
        containers = spec.get(kind)
        for at, container in enumerate(containers if type(containers) is list else ()):
            mounts = container.get("volumeMounts") if type(container) is dict else None
            if type(mounts) is list and any(type(mount) is dict and mount.get("name") == name for mount in mounts):
                yield kind, at, container


def _is_above(amount: Any, limit: Any) -> bool:  # noqa: ANN401 - any JSON value
    try:
        return amount is not None and limit is not None and exact(amount) > exact(limit)
    except QuantityError:
        return False


def _drop(draft: PatchBuilder, path: Path) -> None:
    parent: Any = lookup(draft.root, path[:-1])
    del parent[path[-1]]
    draft.ops.append({"op": "remove", "path": pointer(path)})
