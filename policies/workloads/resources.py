"""Read limits and requests of a container, once for all containers that state the same.

The containers of a cluster state few different resources: results are cached by the text of ``resources``, so that the
review of another replica parses no quantity.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, final

import orjson

from gpugate.policies.kube.accelerators import LEGACY_GPU, is_accelerator
from gpugate.policies.kube.fields import Object
from gpugate.policies.kube.quantity import millicores, whole

#: Maximum number of cached resources, and of the bytes of a key (usual ones take some 200).
_REMEMBERED: Final = 4096
_LONGEST: Final = 1024
_NATIVE: Final = frozenset({"memory", "cpu"})
_STRICT: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS


class ContainerResources(NamedTuple):
    """Memory in bytes and CPU in millicores that a container states; None if absent."""

    memory_limit: int | None
    memory_request: int | None
    cpu_limit: int | None
    cpu_request: int | None


@final
class Fault(NamedTuple):
    """A quantity that cannot be parsed: its field and the problem."""

    kind: str
    resource: str
    problem: str


class _UnreadableError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.problem)
        self.fault = fault


class Resources:
    """Limits and requests as numbers.

    Attributes:
        amounts: memory and CPU, or the first that is no quantity.
        extended: names that could be extended resources (with a ``/``), sorted.
        accelerators: accelerator name to count, without counts of zero; or the first count that is no quantity.
        is_plain: True if every extended resource has a served name and a whole count above zero, with equal request and
            limit.
        is_guaranteed: True if the container is Guaranteed with whole CPUs by the text of its resources.
        has_others: True if it states a resource besides memory, CPU and accelerators.
        every: all limits and requests by resource, in bytes, millicores or counts; or the first that is no quantity.
    """

    __slots__ = ("accelerators", "amounts", "every", "extended", "has_others", "is_guaranteed", "is_plain")

    def __init__(self, limits: Object, requests: Object) -> None:
        stated = (*limits.items(), *requests.items())
        names = [name for name, amount in stated if amount is not None and type(name) is str and "/" in name]
        self.extended: tuple[str, ...] = tuple(sorted(set(names)))
        self.amounts = _amounts(limits, requests)
        self.accelerators = _accelerators(self.extended, limits, requests)
        self.is_plain = all(_is_plain(name, limits, requests) for name in self.extended)
        self.is_guaranteed = _is_guaranteed(limits, requests)
        self.has_others = any(name not in _NATIVE and not is_accelerator(name) for name, _ in stated if type(name) is str)
        self.every = _every(limits, requests)


def _read(unit: Callable[[object], int], holder: Object, kind: str, resource: str) -> int | None:
    written = holder.get(resource)
    if written is None:
        return None
    try:
        return unit(written)
    except ValueError as error:
        # A QuantityError, or a number with more digits than Python formats.
        raise _UnreadableError(Fault(kind, resource, str(error))) from None


def _amounts(limits: Object, requests: Object) -> ContainerResources | Fault:
    try:
        return ContainerResources(
            # The kubelet treats a memory limit of zero as none.
            _read(whole, limits, "limits", "memory") or None,
            _read(whole, requests, "requests", "memory"),
            _read(millicores, limits, "limits", "cpu"),
            _read(millicores, requests, "requests", "cpu"),
        )
    except _UnreadableError as error:
        return error.fault


def _every(limits: Object, requests: Object) -> tuple[Mapping[str, int], Mapping[str, int]] | Fault:
    try:
        return _all_in(limits, "limits"), _all_in(requests, "requests")
    except _UnreadableError as error:
        return error.fault


def _all_in(holder: Object, kind: str) -> Mapping[str, int]:
    read = {name: _read(millicores if name == "cpu" else whole, holder, kind, name) for name in holder if type(name) is str}
    return {name: amount for name, amount in read.items() if amount is not None}


def _accelerators(names: tuple[str, ...], limits: Object, requests: Object) -> dict[str, int] | Fault:
    counts: dict[str, int] = {}
    try:
        for name in names:
            if is_accelerator(name):
                limit, request = _read(whole, limits, "limits", name), _read(whole, requests, "requests", name)
                count = max(limit or 0, request or 0)
                if count > 0:
                    counts[name] = count
    except _UnreadableError as error:
        return error.fault
    return counts


def _is_plain(name: str, limits: Object, requests: Object) -> bool:
    limit = limits.get(name)
    return (
        type(limit) is str
        and limit.isdigit()
        and limit.strip("0") != ""
        and requests.get(name, limit) == limit
        and name != LEGACY_GPU
        and is_accelerator(name)
    )


def _is_guaranteed(limits: Object, requests: Object) -> bool:
    cpu, memory = limits.get("cpu"), limits.get("memory")
    if type(cpu) is not str or not cpu.isdigit() or type(memory) is not str:
        return False
    return bool(requests.get("cpu", cpu) == cpu and requests.get("memory", memory) == memory)


def memo_key(value: Any) -> bytes | None:  # noqa: ANN401 - any JSON value
    """Return a key of a JSON value for caches; None if ``value`` has no short, exact one."""
    try:
        key = orjson.dumps(value, option=_STRICT)
    except TypeError:
        return None
    # A YAML file may hold .nan, which is encoded as null, too.
    return key if len(key) <= _LONGEST and b"null" not in key else None


#: Resources of containers that state none.
NONE_STATED: Final = Resources({}, {})
_memo: Final[dict[bytes, Resources]] = {}


def read_resources(stated: Object, limits: Object, requests: Object) -> Resources:
    """Return ``limits`` and ``requests`` of the ``resources`` of a container as numbers."""
    key = memo_key(stated)
    if key is None:
        return Resources(limits, requests)
    resources = _memo.get(key)
    if resources is None:
        resources = Resources(limits, requests)
        if len(_memo) >= _REMEMBERED:
            _memo.clear()
        _memo[key] = resources
    return resources
