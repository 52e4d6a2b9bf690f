"""What one pod asks of a node, added up as the scheduler does.

Formula: ``k8s.io/component-helpers/resource.PodRequests`` (Kubernetes 1.36): containers and sidecars together, or the
largest init container with the sidecars started before it, whichever is more; a pod-level ``spec.resources`` in place of
the sum where it states the resource; plus ``spec.overhead``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpugate.policies.kube.fields import MalformedError, mapping
from gpugate.policies.kube.quantity import QuantityError, format_millicores, millicores, show_bytes, whole
from gpugate.policies.workloads.container import EPHEMERAL, INIT, REGULAR, SIDECAR, Container
from gpugate.policies.workloads.workload import PodSet


class PodRequests(NamedTuple):
    """What one pod asks for.

    Attributes:
        memory: bytes.
        cpu: millicores.
        devices: accelerator name to count.
    """

    memory: int
    cpu: int
    devices: dict[str, int]


def requested_memory(container: Container) -> int:
    """Bytes that the scheduler counts for ``container``: its request, or its limit where it states no request."""
    amounts = container.amounts
    return (amounts.memory_limit or 0) if amounts.memory_request is None else amounts.memory_request


def requested_cpu(container: Container) -> int:
    """Millicores that the scheduler counts for ``container``: its request, or its limit where it states no request."""
    amounts = container.amounts
    return (amounts.cpu_limit or 0) if amounts.cpu_request is None else amounts.cpu_request


def _add_up(pods: PodSet, amount_of: Callable[[Container], int]) -> int:
    running = sidecars = peak = 0
    for container in pods.containers:
        if container.role is EPHEMERAL:
            continue
        amount = amount_of(container)
        if container.role is INIT:
            peak = max(peak, amount + sidecars)
            continue
        running += amount
        if container.role is SIDECAR:
            sidecars += amount
    return max(peak, running)


def _any_asks(pods: PodSet, resource: str) -> bool:
    """Whether any container of the pod asks for ``resource`` (``memory`` or ``cpu``) itself."""
    asked = requested_memory if resource == "memory" else requested_cpu
    return any(container.role is not EPHEMERAL and asked(container) for container in pods.containers)


def _stated(pods: PodSet, holder: str, resource: str, unit: Callable[[object], int]) -> int | None:
    parent = mapping(pods.spec, holder, pods.field())
    path = pods.field(holder)
    if holder == "resources":
        written = mapping(parent, "requests", path).get(resource)
        if written is None and not _any_asks(pods, resource):
            # The apiserver takes a pod-level limit for the request only where no container requests the resource.
            written = mapping(parent, "limits", path).get(resource)
    else:
        written = parent.get(resource)
    if written is None:
        return None
    try:
        return unit(written)
    except QuantityError as error:
        raise MalformedError((*path, resource), str(error)) from None


def pod_requests(pods: PodSet) -> PodRequests:
    """What one pod of ``pods`` asks of a node.

    Raises:
        MalformedError: an amount is no quantity.
    """
    totals, spec = pods.totals, pods.spec
    if "resources" in spec or "overhead" in spec:
        memory = _total(pods, "memory", requested_memory, whole)
        return PodRequests(memory, _total(pods, "cpu", requested_cpu, millicores), totals.accelerators)
    found: PodRequests | None = totals.demand
    if found is None:
        memory = _add_up(pods, requested_memory)
        found = totals.demand = PodRequests(memory, _add_up(pods, requested_cpu), totals.accelerators)
    return found


def stated_overhead(pods: PodSet) -> tuple[int, int]:
    """Bytes and millicores of ``spec.overhead``.

    Raises:
        MalformedError: an amount is no quantity.
    """
    if "overhead" not in pods.spec:
        return 0, 0
    return _stated(pods, "overhead", "memory", whole) or 0, _stated(pods, "overhead", "cpu", millicores) or 0


def limited_memory_of(pods: PodSet) -> int:
    """Bytes that one pod of ``pods`` may grow to: its limits, and its requests where a container has no limit."""
    if "resources" not in pods.spec and "overhead" not in pods.spec:
        totals = pods.totals
        found: int | None = totals.ceiling
        if found is None:
            found = totals.ceiling = _add_up(pods, _memory_ceiling)
        return found
    limits = _stated_limit(pods) if "resources" in pods.spec else None
    overhead = _stated(pods, "overhead", "memory", whole) if "overhead" in pods.spec else None
    return (_add_up(pods, _memory_ceiling) if limits is None else limits) + (overhead or 0)


def _memory_ceiling(container: Container) -> int:
    amounts = container.amounts
    return (amounts.memory_request or 0) if amounts.memory_limit is None else amounts.memory_limit


def _stated_limit(pods: PodSet) -> int | None:
    path = pods.field("resources")
    written = mapping(mapping(pods.spec, "resources", pods.field()), "limits", path).get("memory")
    if written is None:
        return None
    try:
        return whole(written)
    except QuantityError as error:
        raise MalformedError((*path, "limits", "memory"), str(error)) from None


def _total(pods: PodSet, resource: str, amount_of: Callable[[Container], int], unit: Callable[[object], int]) -> int:
    stated = _stated(pods, "resources", resource, unit) if "resources" in pods.spec else None
    overhead = _stated(pods, "overhead", resource, unit) if "overhead" in pods.spec else None
    return (_add_up(pods, amount_of) if stated is None else stated) + (overhead or 0)


def memory_sum(pods: PodSet) -> str:
    """How the memory that the scheduler counts comes about, for people: ``96Gi (train) + 1Gi (proxy) = 97Gi``."""
    return _explain(pods, "memory", requested_memory, whole, show_bytes)


def cpu_sum(pods: PodSet) -> str:
    """How the CPU that the scheduler counts comes about, for people."""
    return _explain(pods, "cpu", requested_cpu, millicores, format_millicores)


def _explain(
    pods: PodSet,
    resource: str,
    amount_of: Callable[[Container], int],
    unit: Callable[[object], int],
    show: Callable[[int], str],
) -> str:
    stated = _stated(pods, "resources", resource, unit)
    terms = _terms(pods, amount_of, show) if stated is None else [f"{show(stated)} (pod-level resources)"]
    overhead = _stated(pods, "overhead", resource, unit)
    if overhead:
        terms.append(f"{show(overhead)} (overhead)")
    text = " + ".join(terms) or show(0)
    return f"{text} = {show(_total(pods, resource, amount_of, unit))}" if len(terms) > 1 else text


def _terms(pods: PodSet, amount_of: Callable[[Container], int], show: Callable[[int], str]) -> list[str]:
    """The summands of the larger of the two sums that count: what runs together, or the peak of an init container."""
    running: list[tuple[int, str]] = []
    sidecars: list[tuple[int, str]] = []
    peak: list[tuple[int, str]] = []
    for container in pods.containers:
        amount = 0 if container.role is EPHEMERAL else amount_of(container)
        if not amount:
            continue
        term = (amount, f"{show(amount)} ({container.role + ' ' if container.role is not REGULAR else ''}{container.name})")
        if container.role is INIT:
            peak = max(peak, [term, *sidecars], key=_amount_of_terms)
            continue
        running.append(term)
        if container.role is SIDECAR:
            sidecars.append(term)
    return [text for _, text in max(running, peak, key=_amount_of_terms)]


def _amount_of_terms(terms: list[tuple[int, str]]) -> int:
    return sum(amount for amount, _ in terms)
