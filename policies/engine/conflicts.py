"""What gpugate put into a template and a request now crosses.

A patch (`kubectl apply`, Helm, server-side apply) leaves in the object what Git does not state, and so what gpugate has put in. A
memory request that Git now states may then lie above the limit that gpugate once wrote, or a limit below the request or the
``/dev/shm`` that came of it. Nobody but gpugate can mend this: Git states none of these. So they are taken out, for the rules to
write them anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpugate.policies.kube.fields import Object, Path, from_pointer, lookup, pointer
from gpugate.policies.kube.quantity import QuantityError, exact
from gpugate.policies.patch import PatchBuilder
from gpugate.policies.workloads.recorded_edits import recorded

_RESOURCES: Final = ("cpu", "memory")
_LISTS: Final = frozenset({"containers", "initContainers"})


def drop_conflicting_defaults(draft: PatchBuilder, old: Object) -> None:
    """Take out of ``draft`` what ``old`` records as put in, has still, and what was changed since crosses."""
    put_in = [op for op in recorded(old) if op[0] != "remove"]
    ours = {leaf for _, at, value, *_ in put_in for leaf in _leaves(from_pointer(at), value)}
    for place in dict.fromkeys(leaf[:-3] for leaf in sorted(ours, key=pointer) if _is_amount(leaf)):
        now = _same_container(draft.root, old, place)
        if now is not None:
            _uncross(draft, old, place, now, ours)
    for at, value in ((from_pointer(at), value) for _, at, value, *_ in put_in):
        if at[-1] == "volumes" or at[-2:] == ("volumes", "-"):
            _take_small_shared_memory(draft, old, at, value if type(value) is list else [value])


def _leaves(path: Path, value: Any) -> Iterator[Path]:  # noqa: ANN401 - any JSON value
    if type(value) is dict:
        for key, item in value.items():
            yield from _leaves((*path, key), item)
    else:
        yield path


def _is_amount(leaf: Path) -> bool:
    return len(leaf) > 5 and leaf[-3] == "resources" and leaf[-1] in _RESOURCES and leaf[-5] in _LISTS


def _same_container(root: Object, old: Object, place: Path) -> Path | None:
    """Where the container that is at ``place`` in ``old`` is in ``root``; None where it is gone."""
    name, containers = lookup(old, (*place, "name")), lookup(root, place[:-1])
    if type(name) is not str or type(containers) is not list:
        return None
    found = [at for at, one in enumerate(containers) if type(one) is dict and one.get("name") == name]
    return (*place[:-1], found[0]) if len(found) == 1 else None


def _uncross(draft: PatchBuilder, old: Object, before: Path, now: Path, ours: set[Path]) -> None:
    """Take out the limit or the request of a container that only gpugate stated, where the other is new and crosses it."""
    for name in _RESOURCES:
        limit_at, request_at = (("resources", kind, name) for kind in ("limits", "requests"))
        limit, request = lookup(draft.root, (*now, *limit_at)), lookup(draft.root, (*now, *request_at))
        limited, requested = lookup(old, (*before, *limit_at)), lookup(old, (*before, *request_at))
        if not _is_above(request, limit):
            continue
        if (*before, *limit_at) in ours and limit == limited:
            _take(draft, (*now, *limit_at))
        elif (*before, *request_at) in ours and request == requested:
            _take(draft, (*now, *request_at))


def _take_small_shared_memory(draft: PatchBuilder, old: Object, at: Path, volumes: list[Any]) -> None:
    """Take out volumes in memory that are as gpugate made them and larger than a memory limit that must hold them."""
    spec_at = at[: at.index("volumes")]
    spec, held = lookup(draft.root, spec_at), lookup(old, (*spec_at, "volumes"))
    if type(spec) is not dict or type(held) is not list:
        return
    for volume in volumes:
        present = spec.get("volumes")
        if type(present) is list and volume in present and volume in held and _is_too_large(spec, volume):
            _take_mounts(draft, spec, spec_at, volume.get("name"))
            _take(draft, (*spec_at, "volumes", present.index(volume)))


def _is_too_large(spec: Object, volume: Any) -> bool:  # noqa: ANN401 - any JSON value
    size = lookup(volume, ("emptyDir", "sizeLimit")) if type(volume) is dict else None
    return any(
        _is_above(size, lookup(container, ("resources", "limits", "memory")))
        for _, _, container in _mounting(spec, volume.get("name"))
    )


def _take_mounts(draft: PatchBuilder, spec: Object, spec_at: Path, name: object) -> None:
    for kind, number, container in list(_mounting(spec, name)):
        mounts = container["volumeMounts"]
        for at in reversed(range(len(mounts))):
            if type(mounts[at]) is dict and mounts[at].get("name") == name:
                _take(draft, (*spec_at, kind, number, "volumeMounts", at))


def _mounting(spec: Object, name: object) -> Iterator[tuple[str, int, Object]]:
    for kind in sorted(_LISTS):
        containers = spec.get(kind)
        for at, one in enumerate(containers if type(containers) is list else ()):
            mounts = one.get("volumeMounts") if type(one) is dict else None
            if type(mounts) is list and any(type(mount) is dict and mount.get("name") == name for mount in mounts):
                yield kind, at, one


def _is_above(one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON value
    try:
        return one is not None and other is not None and exact(one) > exact(other)
    except QuantityError:
        return False


def _take(draft: PatchBuilder, path: Path) -> None:
    parent: Any = lookup(draft.root, path[:-1])
    del parent[path[-1]]
    draft.ops.append({"op": "remove", "path": pointer(path)})
