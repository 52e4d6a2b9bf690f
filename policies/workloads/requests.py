"""Add up the resources of one pod as the scheduler does.

Formula: ``k8s.io/component-helpers/resource.PodRequests`` (Kubernetes 1.36): the larger of containers and sidecars together, and
the largest init container with the sidecars started before it; a pod-level ``spec.resources`` replaces this sum if it has the
resource; plus ``spec.overhead``. Amounts are bytes, millicores or counts by resource.

Every sum raises a ``MalformedError`` for an amount that is no quantity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from gpugate.policies.kube.accelerators import Form, form_of
from gpugate.policies.kube.fields import MalformedError, Object, Path, mapping
from gpugate.policies.kube.memo import remember
from gpugate.policies.kube.quantity import NO_AMOUNTS, QuantityError, show_amount, unit_of
from gpugate.policies.workloads.container import EPHEMERAL, INIT, REGULAR, SIDECAR, Container

if TYPE_CHECKING:
    from gpugate.policies.workloads.pod_set import PodSet

#: The role of a container and its amounts by resource.
Part: TypeAlias = tuple[str, Mapping[str, int]]
_NATIVE: Final = frozenset({"cpu", "memory"})


class PodRequests(NamedTuple):
    """The requests of one pod: bytes of memory, millicores of CPU, and counts by accelerator name.

    ``others`` are other resources of nodes (extended resources, ephemeral storage, huge pages); empty if not resolved for a node.
    """

    memory: int
    cpu: int
    devices: Mapping[str, int]
    others: Mapping[str, int] = NO_AMOUNTS


class PodTotals:
    """Sums over the containers of one pod, shared by all pods whose containers have the same resources.

    Attributes:
        accelerators: counts that the scheduler counts for one pod, by accelerator name.
        holders: indices of the containers that request accelerators by resource, without ephemeral ones.
        whole_devices: number of whole devices that one pod requests by resource.
        others: True if a container has a resource besides memory, CPU and accelerators.
        is_guaranteed: True if every container is Guaranteed by the text of its resources.
        requests: sum of the container requests; None until :func:`pod_requests` needs it.
        memory_limit: sum of the container memory limits in bytes; None until :func:`limited_memory_of` needs it.
    """

    __slots__ = ("accelerators", "holders", "is_guaranteed", "memory_limit", "others", "requests", "whole_devices")

    def __init__(self, containers: Sequence[Container]) -> None:
        counts = [(container.role, container.accelerators()) for container in containers]
        self.accelerators = add_up(counts)
        self.holders = tuple(index for index, (role, devices) in enumerate(counts) if role is not EPHEMERAL and devices)
        self.whole_devices = sum(count for name, count in self.accelerators.items() if form_of(name) is Form.WHOLE)
        self.is_guaranteed = all(container.stated.is_guaranteed for container in containers)
        self.others = any(container.stated.has_others for container in containers)
        self.requests: PodRequests | None = None
        self.memory_limit: int | None = None


#: Totals by the resources and roles of the containers.
_memo: Final[dict[tuple[Any, ...], PodTotals]] = {}
#: Pods of more containers are rare, and their keys large.
_MOST_CONTAINERS: Final = 16


def totals_of(containers: tuple[Container, ...]) -> PodTotals:
    """Return the totals of ``containers``."""
    if len(containers) > _MOST_CONTAINERS:
        return PodTotals(containers)
    key = tuple([part for container in containers for part in (container.stated, container.role)])
    totals = _memo.get(key)
    if totals is None:
        totals = PodTotals(containers)
        remember(_memo, key, totals)
    return totals


def add_up(
    parts: Iterable[Part], pod_level: Mapping[str, int] = NO_AMOUNTS, overhead: Mapping[str, int] = NO_AMOUNTS
) -> dict[str, int]:
    """Return the amounts of one pod by resource, without ephemeral containers.

    Args:
        parts: role and amounts of each container, init containers first, in their order.
        pod_level: amounts that replace the sum over the containers.
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


def _requested_parts(pods: PodSet) -> list[Part]:
    """Return role, memory and CPU of each container for the scheduler: the limit replaces a missing request."""
    parts: list[Part] = []
    for container in pods.containers:
        if container.role is not EPHEMERAL:
            memory_limit, memory, cpu_limit, cpu = container.amounts
            amounts = (("memory", memory_limit if memory is None else memory), ("cpu", cpu_limit if cpu is None else cpu))
            parts.append((container.role, {name: amount for name, amount in amounts if amount is not None}))
    return parts


def pod_level(pods: PodSet, kind: str) -> dict[str, int]:
    """Return the pod-level ``kind`` (``requests`` or ``limits``) as written: CPU, memory and huge pages."""
    if "resources" not in pods.spec:
        return {}
    path = pods.field("resources")
    stated = _read(mapping(mapping(pods.spec, "resources", pods.field()), kind, path), (*path, kind))
    return {name: amount for name, amount in stated.items() if name in _NATIVE or name.startswith("hugepages-")}


def pod_level_requests(pods: PodSet, parts: Iterable[Part]) -> dict[str, int]:
    """Return the pod-level requests as the API defaults them (``defaultPodRequests``): by containers (``parts``), then limits."""
    requests, limits = pod_level(pods, "requests"), pod_level(pods, "limits")
    if not limits:
        return requests
    native = {name: amount for name, amount in add_up(parts).items() if name in _NATIVE}
    return {**limits, **native, **requests}


def stated_overhead(pods: PodSet) -> Mapping[str, int]:
    """Return ``spec.overhead`` by resource."""
    if "overhead" not in pods.spec:
        return NO_AMOUNTS
    return _read(mapping(pods.spec, "overhead", pods.field()), pods.field("overhead"))


def _read(stated: Object, path: Path) -> dict[str, int]:
    amounts = {}
    for name, quantity in stated.items():
        if quantity is not None and type(name) is str:
            try:
                amounts[name] = unit_of(name)(quantity)
            except QuantityError as error:
                raise MalformedError((*path, name), str(error)) from None
    return amounts


def pod_requests(pods: PodSet) -> PodRequests:
    """Return the requests of one pod of ``pods`` as written, without defaults of its namespace or RuntimeClass."""
    totals, is_shared = pods.totals, _is_shared(pods.spec)
    if is_shared and totals.requests is not None:
        return totals.requests
    parts = _requested_parts(pods)
    amounts = add_up(parts, pod_level_requests(pods, parts), stated_overhead(pods))
    requests = PodRequests(amounts.get("memory", 0), amounts.get("cpu", 0), totals.accelerators)
    if is_shared:
        totals.requests = requests
    return requests


def _is_shared(spec: Object) -> bool:
    """Return whether the amounts of a pod are those of its containers."""
    return "resources" not in spec and "overhead" not in spec


def limited_memory_of(pods: PodSet) -> int:
    """Return the most memory of one pod of ``pods`` in bytes: its limits, and requests of containers without limit."""
    totals, is_shared = pods.totals, _is_shared(pods.spec)
    if is_shared and totals.memory_limit is not None:
        return totals.memory_limit
    containers = [(container.role, container.amounts) for container in pods.containers if container.role is not EPHEMERAL]
    parts = [
        (role, {"memory": (amounts.memory_request or 0) if amounts.memory_limit is None else amounts.memory_limit})
        for role, amounts in containers
    ]
    memory = add_up(parts, pod_level(pods, "limits"), stated_overhead(pods)).get("memory", 0)
    if is_shared:
        totals.memory_limit = memory
    return memory


def _summands(pods: PodSet, resource: str) -> list[tuple[int, str]]:
    """Return the amounts of ``resource`` that the scheduler adds up over the containers, as :func:`add_up`, with their names."""
    running: list[tuple[int, str]] = []
    sidecars: list[tuple[int, str]] = []
    peak: list[tuple[int, str]] = []
    containers = [container for container in pods.containers if container.role is not EPHEMERAL]
    for container, (role, amounts) in zip(containers, _requested_parts(pods), strict=True):
        if resource not in amounts:
            continue
        summand = (amounts[resource], container.name if role is REGULAR else f"{role} {container.name}")
        if role is INIT:
            peak = max(peak, [summand, *sidecars], key=_sum)
            continue
        running.append(summand)
        if role is SIDECAR:
            sidecars.append(summand)
    return max(running, peak, key=_sum)


def _sum(summands: Iterable[tuple[int, str]]) -> int:
    return sum(amount for amount, _ in summands)


def explain_requests(pods: PodSet, resource: str) -> str:
    """Return the sum of ``resource`` (memory or CPU) for the scheduler: ``96Gi (train) + 1Gi (proxy) = 97Gi``."""
    summands = _summands(pods, resource)
    stated = pod_level_requests(pods, _requested_parts(pods)).get(resource)
    if stated is not None and (resource in pod_level(pods, "requests") or not summands):
        summands = [(stated, "pod-level resources")]
    summands.append((stated_overhead(pods).get(resource, 0), "overhead"))
    terms = [f"{show_amount(resource, amount)} ({source})" for amount, source in summands if amount]
    text = " + ".join(terms) or show_amount(resource, 0)
    return f"{text} = {show_amount(resource, _sum(summands))}" if len(terms) > 1 else text
