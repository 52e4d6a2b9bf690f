"""What one pod asks of a node, added up as the scheduler does.

Formula: ``k8s.io/component-helpers/resource.PodRequests`` (Kubernetes 1.36): containers and sidecars together, or the
largest init container with the sidecars started before it, whichever is more; a pod-level ``spec.resources`` in place of
the sum where it states the resource; plus ``spec.overhead``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpugate.policies.fields import MalformedError, mapping
from gpugate.policies.quantity import QuantityError, format_millicores, millicores, show_bytes, whole
from gpugate.policies.workload import EPHEMERAL, INIT, SIDECAR, Container, PodSet


class Demand(NamedTuple):
    """What one pod asks for.

    Attributes:
        memory: bytes.
        cpu: millicores.
        devices: accelerator name to count.
        memory_sum: how ``memory`` comes about, for people.
        cpu_sum: how ``cpu`` comes about, for people.
    """

    memory: int
    cpu: int
    devices: dict[str, int]
    memory_sum: str
    cpu_sum: str


def requested_memory(container: Container) -> int:
    """Bytes that the scheduler counts for ``container``: its request, or its limit where it states no request."""
    asked = container.memory("requests")
    return (container.memory("limits") or 0) if asked is None else asked


def requested_cpu(container: Container) -> int:
    """Millicores that the scheduler counts for ``container``: its request, or its limit where it states no request."""
    asked = container.cpu("requests")
    return (container.cpu("limits") or 0) if asked is None else asked


def _add_up(pods: PodSet, amount_of: Callable[[Container], int], show: Callable[[int], str]) -> tuple[int, str]:
    running = sidecars = peak = 0
    terms: list[str] = []
    peak_text = ""
    for container in pods.containers:
        if container.role is EPHEMERAL:
            continue
        amount = amount_of(container)
        if container.role is INIT:
            if amount + sidecars > peak:
                peak = amount + sidecars
                peak_text = f"{show(amount)} (init container {container.name})"
                peak_text += f" + {show(sidecars)} (sidecars)" if sidecars else ""
            continue
        running += amount
        sidecars += amount if container.role is SIDECAR else 0
        if amount:
            terms.append(f"{show(amount)} ({container.name})")
    return (peak, peak_text) if peak > running else (running, " + ".join(terms) or show(0))


def _stated(pods: PodSet, holder: str, resource: str, unit: Callable[[object], int]) -> int | None:
    parent = mapping(pods.spec, holder, pods.field())
    path = pods.field(holder)
    if holder == "resources":
        requests = mapping(parent, "requests", path)
        limits = mapping(parent, "limits", path)
        written = requests.get(resource, limits.get(resource))
    else:
        written = parent.get(resource)
    if written is None:
        return None
    try:
        return unit(written)
    except QuantityError as error:
        raise MalformedError((*path, resource), str(error)) from None


def demand_of(pods: PodSet) -> Demand:
    """What one pod of ``pods`` asks of a node.

    Raises:
        MalformedError: an amount is no quantity.
    """
    memory, memory_sum = _total(pods, "memory", requested_memory, whole, show_bytes)
    cpu, cpu_sum = _total(pods, "cpu", requested_cpu, millicores, format_millicores)
    return Demand(memory, cpu, pods.accelerators(), memory_sum, cpu_sum)


def _total(
    pods: PodSet,
    resource: str,
    amount_of: Callable[[Container], int],
    unit: Callable[[object], int],
    show: Callable[[int], str],
) -> tuple[int, str]:
    total, text = _add_up(pods, amount_of, show)
    if "resources" in pods.spec:
        stated = _stated(pods, "resources", resource, unit)
        if stated is not None:
            total, text = stated, f"{show(stated)} (pod-level resources)"
    if "overhead" in pods.spec:
        overhead = _stated(pods, "overhead", resource, unit)
        if overhead:
            total, text = total + overhead, f"{text} + {show(overhead)} (overhead)"
    return total, text
