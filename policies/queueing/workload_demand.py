"""Work out what Kueue counts against quota for a workload (v0.15.0, ``pkg/workload``: ``resources.go``, ``workload.go``).

Devices of dynamic resource allocation are left out: Kueue counts them only with a feature gate, which nothing in the cluster
shows.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.kueue import KueueConfiguration
from gpugate.policies.cluster.records.pod_groups import KUEUE_COUNT, KUEUE_FAST_ADMISSION, KUEUE_GROUP
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.gang import declared_size
from gpugate.policies.kube.fields import Object, lookup, whole_number
from gpugate.policies.kube.names import MIN_PARALLELISM
from gpugate.policies.scheduling.pod_resources import NO_CHANGES, Changes, defaults_for, filled, overhead_of, resolved_resources
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import add_up, pod_level
from gpugate.policies.workloads.workload import Workload

_BY_DEFAULT: Final = frozenset({"batch/job"})


class PodSetDemand(NamedTuple):
    """What Kueue counts for one pod set.

    Attributes:
        pods: the pod set.
        number: how many pods Kueue admits together.
        min_count: how many of them are enough (partial admission); ``number`` where all are needed.
        each: what one pod counts for: bytes, millicores or counts by resource, none of zero.
    """

    pods: PodSet
    number: int
    min_count: int
    each: Mapping[str, int]


def is_managed(workload: Workload, snapshot: ClusterSnapshot) -> bool | None:
    """Return whether Kueue manages objects of the workload's kind; None where that takes its Configuration, which is not known.

    Kueue manages ``batch/job`` alone where its Configuration names no framework.
    """
    framework = workload.kind.framework
    if not framework:
        return False
    if snapshot.kueue is None:
        return True if framework in _BY_DEFAULT else None
    return framework in (snapshot.kueue.frameworks or _BY_DEFAULT)


def demands_of(workload: Workload, snapshot: ClusterSnapshot) -> list[PodSetDemand]:
    """Return what Kueue counts for each pod set of ``workload`` that has pods.

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
    """Return how many of ``pods`` Kueue admits as one Workload, and how many of them are enough."""
    count = _count(workload, pods)
    return count, _min_count(workload, count)


def _count(workload: Workload, pods: PodSet) -> int:
    """Return how many pods Kueue admits as one Workload."""
    if workload.is_pod():
        labels, annotations = pods.labels(), pods.annotations()
        if KUEUE_GROUP in labels and KUEUE_FAST_ADMISSION in annotations:
            return whole_number(annotations.get(KUEUE_COUNT)) or 1
        return 1
    if workload.kind.admitted_by_pod:
        return min(pods.count or 0, 1)
    # Each group of a LeaderWorkerSet is a Workload of its own.
    return pods.numbers.at_once // workload.gangs


def _min_count(workload: Workload, count: int) -> int:
    if not workload.kind.partial_admission:
        return count
    stated = whole_number(annotations_and_labels(workload)[0].get(MIN_PARALLELISM))
    return min(count, stated) if stated else count


def counted_requests(
    workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, changes: Changes = NO_CHANGES
) -> Mapping[str, int]:
    """Return what Kueue counts for one pod of ``pods``, by resource, once its containers state ``changes``.

    Raises:
        MalformedError: an amount is no quantity.
    """
    if not workload.kind.counted_as_pods:
        requests: Mapping[str, int] = _requests_of_template(workload.namespace, pods, snapshot, changes)
    else:
        # Kueue reads pods as the API stores them.
        requests = resolved_resources(pods, snapshot, workload.namespace, changes=changes).requests
    return _adjusted(requests, snapshot.kueue) if snapshot.kueue else requests


def _requests_of_template(namespace: str, pods: PodSet, snapshot: ClusterSnapshot, changes: Changes) -> dict[str, int]:
    """Requests of a pod template (``AdjustResources``): LimitRange defaults go before a limit that stands in for a request."""
    defaults = defaults_for(snapshot, namespace)
    containers = filled(pods, defaults, changes)
    parts = [(one.container.role, {**one.limits, **defaults.requests, **one.stated[1]}) for one in containers]
    return add_up(parts, pod_level(pods, "requests"), overhead_of(pods, snapshot))


def _adjusted(requests: Mapping[str, int], kueue: KueueConfiguration) -> dict[str, int]:
    """Exclude and transform ``requests`` by the Configuration (``dropExcludedResources``, ``applyResourceTransformations``)."""
    kept = {name: amount for name, amount in requests.items() if not name.startswith(kueue.excluded)}
    by_input = {rule.resource: rule for rule in kueue.transformations}
    outputs: dict[str, Fraction] = {}
    for name, amount in kept.items():
        rule = by_input.get(name)
        if rule is not None:
            units = -(-amount // 1000) if name == "cpu" else amount
            for output, factor in rule.outputs.items():
                outputs[output] = outputs.get(output, Fraction(0)) + factor * units * (1000 if output == "cpu" else 1)
        if rule is None or not rule.replaces:
            outputs[name] = outputs.get(name, Fraction(0)) + amount
    return {name: -(-amount.numerator // amount.denominator) for name, amount in outputs.items()}


def annotations_and_labels(workload: Workload) -> tuple[Object, Object]:
    """Return annotations and labels of the object that Kueue reads: those of the job template for a CronJob."""
    metadata = lookup(workload.root, (*workload.kind.queue, "metadata"))
    holder: Object = metadata if type(metadata) is dict else {}
    annotations, labels = holder.get("annotations"), holder.get("labels")
    return annotations if type(annotations) is dict else {}, labels if type(labels) is dict else {}


def number_of_pods(workload: Workload, pods: PodSet) -> tuple[int, bool]:
    """Return how many pods there are to be, and whether all must run together."""
    declared = declared_size(workload)
    if workload.is_pod():
        # The other pods of a group are known to request as much only where Kueue counts the group from one pod.
        return (declared or 1), declared is None or KUEUE_FAST_ADMISSION in pods.annotations()
    number = 1 if pods.count is None else pods.count
    if pods.numbers.min_count is not None and pods.numbers.min_count < number:
        # An autoscaler may request more than fits, and goes on with what it gets.
        return number, False
    if not workload.is_batch:
        return number, True
    total = pods.numbers.completions
    number = min(number, pods.numbers.at_once) if pods.count is not None else number
    if declared is not None:
        return number, declared > 1
    if MIN_PARALLELISM in annotations_and_labels(workload)[0]:
        return number, False
    # A Job that is not declared a gang, and that no queue admits as a whole, completes with fewer pods at once, too.
    waits = total == number if workload.kind.partial_admission else total is None
    return number, waits and queue_label(workload) is not None
