"""Add up the resources of one pod as the scheduler does.

Formula: ``k8s.io/component-helpers/resource.PodRequests`` (Kubernetes 1.36): containers and sidecars together, or the
largest init container with the sidecars started before it, whichever is more; a pod-level ``spec.resources`` in place of
the sum where it states the resource; plus ``spec.overhead``. Amounts are bytes, millicores or counts by resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from gpugate.policies.kube.accelerators import Form, form_of
from gpugate.policies.kube.fields import MalformedError, Object, Path, mapping
from gpugate.policies.kube.quantity import NO_AMOUNTS, QuantityError, show_amount, unit_of
from gpugate.policies.workloads.container import EPHEMERAL, INIT, REGULAR, SIDECAR, Container

#: The role of a container and its amounts by resource.
Part: TypeAlias = tuple[str, Mapping[str, int]]
_NATIVE: Final = frozenset({"cpu", "memory"})


class PodRequests(NamedTuple):
    """The resources that one pod requests.

    Attributes:
        memory: bytes.
        cpu: millicores.
        devices: accelerator name to count.
        others: other resources that nodes report: extended resources, ephemeral storage, huge pages; empty unless they were
            resolved for a node.
    """

    memory: int
    cpu: int
    devices: Mapping[str, int]
    others: Mapping[str, int] = NO_AMOUNTS


class PodTotals:
    """Sums over the containers of one pod, shared by all pods whose containers state the same resources.

    Attributes:
        accelerators: accelerator name to the count that the scheduler counts for one pod.
        holders: indices of the containers that request accelerators by resource, without ephemeral ones.
        whole_devices: number of whole devices that one pod holds by resource.
        others: True if a container states a resource besides memory, CPU and accelerators.
        is_guaranteed: True if every container is Guaranteed by the very text of its resources.
        requests: sum of the container requests; None until :func:`pod_requests` needs it.
        memory_limit: sum of the container memory limits in bytes; None until :func:`limited_memory_of` needs it.
    """

    __slots__ = ("accelerators", "holders", "is_guaranteed", "memory_limit", "others", "requests", "whole_devices")

    def __init__(self, containers: Sequence[Container]) -> None:
        self.accelerators = add_up((container.role, container.accelerators()) for container in containers)
        self.holders = tuple(at for at, one in enumerate(containers) if one.role is not EPHEMERAL and one.accelerators())
        self.whole_devices = sum(count for name, count in self.accelerators.items() if form_of(name) is Form.WHOLE)
        self.is_guaranteed = all(container.stated.is_guaranteed for container in containers)
        self.others = any(container.stated.has_others for container in containers)
        self.requests: PodRequests | None = None
        self.memory_limit: int | None = None


#: Totals by the resources and roles of the containers.
_memo: Final[dict[tuple[Any, ...], PodTotals]] = {}
_REMEMBERED: Final = 4096
#: Pods of more containers than this are rare, and their keys large.
_MOST_CONTAINERS: Final = 16


class PodTemplate(Protocol):
    """The part of a pod set that the sums read."""

    spec: Object
    containers: tuple[Container, ...]

    @property
    def totals(self) -> PodTotals:
        """The totals of the containers."""

    def field(self, *parts: str | int) -> Path:
        """Return a path below the pod spec."""


def totals_of(containers: tuple[Container, ...]) -> PodTotals:
    """Return the totals of ``containers``.

    Raises:
        MalformedError: a count of accelerators is no quantity.
    """
    if len(containers) > _MOST_CONTAINERS:
        return PodTotals(containers)
    key = tuple([part for container in containers for part in (container.stated, container.role)])
    totals = _memo.get(key)
    if totals is None:
        totals = PodTotals(containers)
        if len(_memo) >= _REMEMBERED:
            _memo.clear()
        _memo[key] = totals
    return totals


def add_up(
    parts: Iterable[Part], pod_level: Mapping[str, int] = NO_AMOUNTS, overhead: Mapping[str, int] = NO_AMOUNTS
) -> dict[str, int]:
    """Return what one pod amounts to by resource; ephemeral containers count nothing.

    Args:
        parts: role and amounts of each container, init containers first, in their order.
        pod_level: amounts that take the place of the sum over the containers.
        overhead: amounts that the runtime adds.
    """
    running: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for role, amounts in parts:
        if role is EPHEMERAL:
            continue
        for name, amount in amounts.items():
            if role is INIT:
                peak[name] = max(peak.get(name, 0), amount + sidecars.get(name, 0))
                continue
            running[name] = running.get(name, 0) + amount
            if role is SIDECAR:
                sidecars[name] = sidecars.get(name, 0) + amount
    for name, amount in peak.items():
        running[name] = max(running.get(name, 0), amount)
    running.update(pod_level)
    for name, amount in overhead.items():
        running[name] = running.get(name, 0) + amount
    return running


def _requested_parts(pods: PodTemplate) -> list[Part]:
    """Return role, memory and CPU that the scheduler counts for each container: the limit stands in for a missing request."""
    parts: list[Part] = []
    for container in pods.containers:
        if container.role is not EPHEMERAL:
            memory_limit, memory, cpu_limit, cpu = container.amounts
            amounts = (("memory", memory_limit if memory is None else memory), ("cpu", cpu_limit if cpu is None else cpu))
            parts.append((container.role, {name: amount for name, amount in amounts if amount is not None}))
    return parts


def pod_level(pods: PodTemplate, kind: str) -> dict[str, int]:
    """Return the pod-level ``kind`` (``requests`` or ``limits``) as stated: CPU, memory and huge pages.

    Raises:
        MalformedError: an amount is no quantity.
    """
    if "resources" not in pods.spec:
        return {}
    path = pods.field("resources")
    stated = _read(mapping(mapping(pods.spec, "resources", pods.field()), kind, path), (*path, kind))
    return {name: amount for name, amount in stated.items() if name in _NATIVE or name.startswith("hugepages-")}


def pod_level_requests(pods: PodTemplate, parts: Iterable[Part]) -> dict[str, int]:
    """Return the pod-level requests as the API keeps them (``defaultPodRequests``).

    What the containers request (``parts``) goes before a pod-level limit.

    Raises:
        MalformedError: an amount is no quantity.
    """
    requests, limits = pod_level(pods, "requests"), pod_level(pods, "limits")
    if not limits:
        return requests
    native = {name: amount for name, amount in add_up(parts).items() if name in _NATIVE}
    return {**limits, **native, **requests}


def stated_overhead(pods: PodTemplate) -> Mapping[str, int]:
    """Return ``spec.overhead`` by resource.

    Raises:
        MalformedError: an amount is no quantity.
    """
    if "overhead" not in pods.spec:
        return NO_AMOUNTS
    return _read(mapping(pods.spec, "overhead", pods.field()), pods.field("overhead"))


def _read(stated: Object, path: Path) -> dict[str, int]:
    amounts = {}
    for name, written in stated.items():
        if written is not None and type(name) is str:
            try:
                amounts[name] = unit_of(name)(written)
            except QuantityError as error:
                raise MalformedError((*path, name), str(error)) from None
    return amounts


def pod_requests(pods: PodTemplate) -> PodRequests:
    """Return what one pod of ``pods`` requests as stated, without defaults of its namespace or RuntimeClass.

    Raises:
        MalformedError: an amount is no quantity.
    """
    totals, spec = pods.totals, pods.spec
    if "resources" in spec or "overhead" in spec:
        return _requests_of(pods)
    if totals.requests is None:
        totals.requests = _requests_of(pods)
    return totals.requests


def _requests_of(pods: PodTemplate) -> PodRequests:
    parts = _requested_parts(pods)
    amounts = add_up(parts, pod_level_requests(pods, parts), stated_overhead(pods))
    return PodRequests(amounts.get("memory", 0), amounts.get("cpu", 0), pods.totals.accelerators)


def limited_memory_of(pods: PodTemplate) -> int:
    """Return the bytes that one pod of ``pods`` may grow to: its limits, and its requests where a container has no limit.

    Raises:
        MalformedError: an amount is no quantity.
    """
    totals, spec = pods.totals, pods.spec
    if "resources" in spec or "overhead" in spec:
        return _limited_memory(pods)
    if totals.memory_limit is None:
        totals.memory_limit = _limited_memory(pods)
    return totals.memory_limit


def _limited_memory(pods: PodTemplate) -> int:
    parts: list[Part] = []
    for container in pods.containers:
        if container.role is not EPHEMERAL:
            limit, request, _, _ = container.amounts
            parts.append((container.role, {"memory": (request or 0) if limit is None else limit}))
    return add_up(parts, pod_level(pods, "limits"), stated_overhead(pods)).get("memory", 0)


class _Explained(int):
    """An amount that keeps the text of each summand, so that :func:`add_up` explains the sum."""

    terms: tuple[str, ...]

    @classmethod
    def of(cls, amount: int, terms: tuple[str, ...]) -> _Explained:
        explained = cls(amount)
        explained.terms = terms
        return explained

    def __add__(self, other: int) -> _Explained:
        return _Explained.of(int(self) + int(other), (*self.terms, *_terms_of(other)))

    def __radd__(self, other: int) -> _Explained:
        return _Explained.of(int(self) + int(other), (*_terms_of(other), *self.terms))


def _terms_of(amount: int) -> tuple[str, ...]:
    return amount.terms if isinstance(amount, _Explained) else ()


def _explain(resource: str, amounts: Mapping[str, int], source: str) -> dict[str, int]:
    """Return the amount of ``resource`` alone, with its text; an amount of zero has none."""
    amount = amounts.get(resource)
    if amount is None:
        return {}
    return {resource: _Explained.of(amount, (f"{show_amount(resource, amount)} ({source})",) if amount else ())}


def explain_requests(pods: PodTemplate, resource: str) -> str:
    """Return the sum of ``resource`` (memory or CPU) that the scheduler counts: ``96Gi (train) + 1Gi (proxy) = 97Gi``.

    Raises:
        MalformedError: an amount is no quantity.
    """
    named = [
        container.name if container.role is REGULAR else f"{container.role} {container.name}"
        for container in pods.containers
        if container.role is not EPHEMERAL
    ]
    parts = [(role, _explain(resource, amounts, name)) for name, (role, amounts) in zip(named, _requested_parts(pods), strict=True)]
    stated = pod_level_requests(pods, parts)
    if not _terms_of(stated.get(resource, 0)):
        stated = _explain(resource, stated, "pod-level resources")
    total = add_up(parts, stated, _explain(resource, stated_overhead(pods), "overhead")).get(resource, 0)
    terms = _terms_of(total)
    text = " + ".join(terms) or show_amount(resource, 0)
    return f"{text} = {show_amount(resource, total)}" if len(terms) > 1 else text
