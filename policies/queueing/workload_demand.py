"""Compute the requests that Kueue counts against quota (v0.15.0, ``pkg/workload``: ``resources.go``, ``workload.go``).

Devices of dynamic resource allocation are left out: Kueue counts them only with a feature gate, and no object in the cluster
states its feature gates.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.kueue import KueueConfiguration
from gpugate.policies.cluster.records.pod_groups import KUEUE_COUNT, KUEUE_FAST_ADMISSION, KUEUE_GROUP
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.gang import declared_size, gang_of, guaranteed_count, spare_by_annotation
from gpugate.policies.kube.fields import Object, lookup, whole_number
from gpugate.policies.kube.names import MIN_PARALLELISM
from gpugate.policies.scheduling.pod_resources import NO_CHANGES, Changes, defaults_for, filled, overhead_of, resolved_resources
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import add_up, pod_level
from gpugate.policies.workloads.workload import Workload

_BY_DEFAULT: Final = frozenset({"batch/job"})


class PodSetDemand(NamedTuple):
    """The requests of a pod set that Kueue counts.

    Attributes:
        pods: the pod set.
        number: number of pods that Kueue admits together.
        min_count: minimum of them (partial admission); ``number`` if Kueue needs all.
        each: requests of one pod: bytes, millicores or counts above zero by resource.
    """

    pods: PodSet
    number: int
    min_count: int
    each: Mapping[str, int]


def is_managed(workload: Workload, snapshot: ClusterSnapshot) -> bool | None:
    """Return whether Kueue manages objects of the workload's kind; None if that depends on its Configuration, which is unknown.

    Kueue manages only ``batch/job`` if its Configuration names no framework.
    """
    framework = workload.kind.framework
    if not framework:
        return False
    if snapshot.kueue is None:
        return True if framework in _BY_DEFAULT else None
    return framework in (snapshot.kueue.frameworks or _BY_DEFAULT)


def demands_of(workload: Workload, snapshot: ClusterSnapshot) -> list[PodSetDemand]:
    """Return the requests that Kueue counts for each pod set of ``workload`` that has pods.

    Raises:
        MalformedError: an amount is no quantity.
    """
    demands = []
    for pods in workload.pod_sets:
        count, min_count = pod_counts(workload, pods)
        if count:
            amounts = {name: amount for name, amount in counted_requests(workload, pods, snapshot).items() if amount > 0}
            demands.append(PodSetDemand(pods, count, min_count, amounts))
    return demands


def pod_counts(workload: Workload, pods: PodSet) -> tuple[int, int]:
    """Return the number of ``pods`` that Kueue admits as one Workload, and the minimum of them that it needs."""
    count = _count(workload, pods)
    if not workload.kind.partial_admission:
        return count, count
    stated = whole_number(annotations_and_labels(workload)[0].get(MIN_PARALLELISM))
    return count, min(count, stated) if stated else count


def _count(workload: Workload, pods: PodSet) -> int:
    if workload.is_pod():
        is_group = KUEUE_GROUP in pods.labels() and KUEUE_FAST_ADMISSION in pods.annotations()
        return (whole_number(pods.annotations().get(KUEUE_COUNT)) or 1) if is_group else 1
    if workload.kind.admitted_by_pod:
        return min(pods.count or 0, 1)
    # Each group of a LeaderWorkerSet is a Workload of its own.
    return pods.numbers.at_once // workload.gangs


def counted_requests(
    workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, changes: Changes = NO_CHANGES
) -> Mapping[str, int]:
    """Return the requests that Kueue counts for one of ``pods``, by resource, once its containers state ``changes``.

    Raises:
        MalformedError: an amount is no quantity.
    """
    requests: Mapping[str, int]
    if workload.kind.counted_as_pods:
        # Kueue reads pods as the API stores them.
        requests = resolved_resources(pods, snapshot, workload.namespace, changes=changes).requests
    else:
        # For a template (``AdjustResources``) a LimitRange's default request goes before the container's own limit.
        defaults = defaults_for(snapshot, workload.namespace)
        containers = filled(pods, defaults, changes)
        parts = [(part.container.role, {**part.limits, **defaults.requests, **part.stated[1]}) for part in containers]
        requests = add_up(parts, pod_level(pods, "requests"), overhead_of(pods, snapshot))
    return _adjusted(requests, snapshot.kueue) if snapshot.kueue else requests


def _adjusted(requests: Mapping[str, int], kueue: KueueConfiguration) -> dict[str, int]:
    """Exclude and transform ``requests`` by the Configuration (``dropExcludedResources``, ``applyResourceTransformations``)."""
    transformations = {transformation.resource: transformation for transformation in kueue.transformations}
    totals: dict[str, Fraction] = {}
    for name, amount in requests.items():
        if name.startswith(kueue.excluded):
            continue
        transformation = transformations.get(name)
        if transformation is not None:
            units = -(-amount // 1000) if name == "cpu" else amount
            for output, factor in transformation.outputs.items():
                totals[output] = totals.get(output, Fraction(0)) + factor * units * (1000 if output == "cpu" else 1)
        if transformation is None or not transformation.replaces:
            totals[name] = totals.get(name, Fraction(0)) + amount
    return {name: math.ceil(total) for name, total in totals.items()}


def annotations_and_labels(workload: Workload) -> tuple[Object, Object]:
    """Return annotations and labels of the object that Kueue reads: those of the job template for a CronJob."""
    path = (*workload.kind.queue, "metadata")
    annotations, labels = (lookup(workload.root, (*path, key)) for key in ("annotations", "labels"))
    return annotations if type(annotations) is dict else {}, labels if type(labels) is dict else {}


def number_of_pods(workload: Workload, pods: PodSet) -> tuple[int, int]:
    """Return the number of pods that a workload requests at once, and how many of them must run together: 1 if there is no gang."""
    if workload.is_pod():
        number = declared_size(workload) or 1
        # Other pods of a group may request other amounts, unless Kueue counts the group from one pod.
        return number, number if KUEUE_FAST_ADMISSION in pods.annotations() else 1
    number = 1 if pods.count is None else pods.numbers.at_once
    gang = gang_of(workload)
    if gang is None or pods not in gang.parts or pods.count is None:
        return number, min(number, 1)
    needed = guaranteed_count(gang, pods) - spare_by_annotation(workload, gang)
    return number, max(1, min(number, needed))
