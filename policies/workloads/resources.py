"""Read the limits and requests of a container.

The containers of a cluster have few different resources, so results are cached by the text of ``resources``: the review of
another replica parses no quantity.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, final

import orjson

from gpugate.policies.kube.accelerators import LEGACY_GPU, is_accelerator
from gpugate.policies.kube.fields import Object
from gpugate.policies.kube.memo import remember
from gpugate.policies.kube.quantity import millicores, whole

_Result = TypeVar("_Result")

#: Maximum length of a key of the cache in bytes (usual ones have some 200).
_LONGEST: Final = 1024
_NATIVE: Final = frozenset({"memory", "cpu"})
_STRICT: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS


class ContainerResources(NamedTuple):
    """Memory in bytes and CPU in millicores of a container; None if absent."""

    memory_limit: int | None
    memory_request: int | None
    cpu_limit: int | None
    cpu_request: int | None


@final
class Fault(NamedTuple):
    """A quantity that cannot be parsed, with the problem."""

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
        amounts: memory and CPU; or the first quantity that cannot be parsed.
        extended: names that could be extended resources (with a ``/``), sorted.
        accelerators: counts by accelerator name, without zeros; or the first count that cannot be parsed.
        is_plain: True if every extended resource is an accelerator with a whole count above zero, and equal request and limit.
        is_guaranteed: True if the container is Guaranteed with whole CPUs, by the text of its resources.
        has_others: True if it has a resource besides memory, CPU and accelerators.
        every: all limits and requests by resource, in bytes, millicores or counts; or the first that cannot be parsed.
    """

    __slots__ = ("accelerators", "amounts", "every", "extended", "has_others", "is_guaranteed", "is_plain")

    def __init__(self, limits: Object, requests: Object) -> None:
        stated = (*limits.items(), *requests.items())
        names = [name for name, amount in stated if amount is not None and type(name) is str and "/" in name]
        self.extended: tuple[str, ...] = tuple(sorted(set(names)))
        self.amounts = _or_fault(lambda: _amounts(limits, requests))
        self.accelerators = _or_fault(lambda: _accelerators(self.extended, limits, requests))
        self.is_plain = all(_is_plain(name, limits, requests) for name in self.extended)
        self.is_guaranteed = _is_guaranteed(limits, requests)
        self.has_others = any(name not in _NATIVE and not is_accelerator(name) for name, _ in stated if type(name) is str)
        self.every = _or_fault(lambda: (_all_in(limits, "limits"), _all_in(requests, "requests")))


def _or_fault(read: Callable[[], _Result]) -> _Result | Fault:
    try:
        return read()
    except _UnreadableError as error:
        return error.fault


def _read(unit: Callable[[object], int], holder: Object, kind: str, resource: str) -> int | None:
    quantity = holder.get(resource)
    try:
        return None if quantity is None else unit(quantity)
    except ValueError as error:
        # A QuantityError, or a number with more digits than Python formats.
        raise _UnreadableError(Fault(kind, resource, str(error))) from None


def _amounts(limits: Object, requests: Object) -> ContainerResources:
    return ContainerResources(
        # The kubelet treats a memory limit of zero as none.
        _read(whole, limits, "limits", "memory") or None,
        _read(whole, requests, "requests", "memory"),
        _read(millicores, limits, "limits", "cpu"),
        _read(millicores, requests, "requests", "cpu"),
    )


def _all_in(holder: Object, kind: str) -> Mapping[str, int]:
    amounts = {name: _read(millicores if name == "cpu" else whole, holder, kind, name) for name in holder if type(name) is str}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _accelerators(names: tuple[str, ...], limits: Object, requests: Object) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in filter(is_accelerator, names):
        limit, request = _read(whole, limits, "limits", name), _read(whole, requests, "requests", name)
        count = max(limit or 0, request or 0)
        if count > 0:
            counts[name] = count
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
    """Return a key of a JSON value for caches; None if ``value`` has no short and exact key."""
    try:
        key = orjson.dumps(value, option=_STRICT)
    except TypeError:
        return None
    # A YAML file may hold .nan, which is encoded as null, too.
    return key if len(key) <= _LONGEST and b"null" not in key else None


NO_RESOURCES: Final = Resources({}, {})
_memo: Final[dict[bytes, Resources]] = {}


def read_resources(stated: Object, limits: Object, requests: Object) -> Resources:
    """Return ``limits`` and ``requests`` of the ``resources`` of a container as numbers."""
    key = memo_key(stated)
    if key is None:
        return Resources(limits, requests)
    resources = _memo.get(key)
    if resources is None:
        resources = Resources(limits, requests)
        remember(_memo, key, resources)
    return resources
