"""What Kueue counts against quota for a workload (v0.15.0, ``pkg/workload``: ``resources.go``, ``workload.go``).

Not counted are devices of dynamic resource allocation: Kueue counts them only with a feature gate that nothing in the
cluster shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.kueue_config import KueueConfiguration
from gpugate.policies.cluster.records.pod_groups import KUEUE_COUNT, KUEUE_FAST_ADMISSION, KUEUE_GROUP
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.gang import declared_size
from gpugate.policies.kube.fields import Object, lookup, whole_number
from gpugate.policies.kube.names import MIN_PARALLELISM
from gpugate.policies.scheduling.pod_resources import (
    NO_CHANGES,
    Changes,
    defaults_for,
    filled,
    overhead_of,
    resolved_resources,
)
from gpugate.policies.workloads.kinds import CRON_JOB, DEPLOYMENT, JOB, POD
from gpugate.policies.workloads.queue_name import queue_label
from gpugate.policies.workloads.requests import add_up, pod_level
from gpugate.policies.workloads.workload import PodSet, Workload

_BY_DEFAULT: Final = frozenset({"batch/job"})
_JOBS: Final = frozenset({CRON_JOB, JOB})


class PodSetDemand(NamedTuple):
    """What one pod set asks of Kueue.

    Attributes:
        pods: the pod set.
        number: how many pods are admitted together.
        min_count: how many of them are enough (partial admission); ``number`` where all are needed.
        each: what one pod counts for: bytes, millicores or counts by resource, none of zero.
    """

    pods: PodSet
    number: int
    min_count: int
    each: Mapping[str, int]


def is_managed(workload: Workload, snapshot: ClusterSnapshot) -> bool | None:
    """Whether Kueue manages objects of the workload's kind; None where only its Configuration, which is not known, says.

    ``batch/job`` is what it manages where its Configuration names no framework.
    """
    framework = workload.kind.framework
    if not framework:
        return False
    if snapshot.kueue is None:
        return True if framework in _BY_DEFAULT else None
    return framework in (snapshot.kueue.frameworks or _BY_DEFAULT)


def asked_of(workload: Workload, snapshot: ClusterSnapshot) -> list[PodSetDemand]:
    """What the pod sets of ``workload`` ask of Kueue; those without pods left out.

    Raises:
        MalformedError: an amount is no quantity.
    """
    found = []
    for pods in workload.pod_sets:
        count, fewest = pod_counts(workload, pods)
        if count:
            amounts = {name: amount for name, amount in counted_requests(workload, pods, snapshot).items() if amount > 0}
            found.append(PodSetDemand(pods, count, fewest, amounts))
    return found


def pod_counts(workload: Workload, pods: PodSet) -> tuple[int, int]:
    """How many of ``pods`` Kueue admits as one Workload, and how many of them are enough."""
    count = _count(workload, pods)
    return count, _fewest(workload, count)


def _count(workload: Workload, pods: PodSet) -> int:
    """How many pods Kueue admits as one Workload."""
    kind = workload.kind
    if kind is POD:
        labels, annotations = pods.labels(), pods.annotations()
        if KUEUE_GROUP in labels and KUEUE_FAST_ADMISSION in annotations:
            return whole_number(annotations.get(KUEUE_COUNT)) or 1
        return 1
    if kind is DEPLOYMENT:
        # Each of its pods is a Workload of its own.
        return min(pods.count or 0, 1)
    # Each group of a LeaderWorkerSet is a Workload of its own.
    return pods.numbers.at_once // workload.gangs


def _fewest(workload: Workload, count: int) -> int:
    if workload.kind not in _JOBS:
        return count
    stated = whole_number(annotations_and_labels(workload)[0].get(MIN_PARALLELISM))
    return min(count, stated) if stated else count


def counted_requests(
    workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, changes: Changes = NO_CHANGES
) -> Mapping[str, int]:
    """What Kueue counts for one pod of ``pods``, by resource; ``changes``: what its containers would state instead.

    Raises:
        MalformedError: an amount is no quantity.
    """
    if not workload.kind.counted_as_pods:
        requests: Mapping[str, int] = _requests_of_template(workload.namespace, pods, snapshot, changes)
    else:
        # Pods come to Kueue as the API keeps them.
        requests = resolved_resources(pods, snapshot, workload.namespace, changes=changes).requests
    return _adjusted(requests, snapshot.kueue) if snapshot.kueue else requests


def _requests_of_template(namespace: str, pods: PodSet, snapshot: ClusterSnapshot, changes: Changes) -> dict[str, int]:
    """Requests of a pod template (``AdjustResources``): LimitRange defaults go before a limit that stands in for a request."""
    defaults = defaults_for(snapshot, namespace)
    containers = filled(pods, defaults, changes)
    parts = [(one.container.role, {**one.limits, **defaults.requests, **one.stated[1]}) for one in containers]
    return add_up(parts, pod_level(pods, "requests"), overhead_of(pods, snapshot))


def _adjusted(requests: Mapping[str, int], kueue: KueueConfiguration) -> dict[str, int]:
    """``requests`` as the Configuration has them counted (``dropExcludedResources``, ``applyResourceTransformations``)."""
    kept = {name: amount for name, amount in requests.items() if not name.startswith(kueue.excluded)}
    by_input = {one.resource: one for one in kueue.transformations}
    made: dict[str, Fraction] = {}
    for name, amount in kept.items():
        rule = by_input.get(name)
        if rule is not None:
            units = -(-amount // 1000) if name == "cpu" else amount
            for output, factor in rule.outputs.items():
                made[output] = made.get(output, Fraction(0)) + factor * units * (1000 if output == "cpu" else 1)
        if rule is None or not rule.replaces:
            made[name] = made.get(name, Fraction(0)) + amount
    return {name: -(-amount.numerator // amount.denominator) for name, amount in made.items()}


def annotations_and_labels(workload: Workload) -> tuple[Object, Object]:
    """Annotations and labels of the object that Kueue reads: a CronJob's are its job template's."""
    metadata = lookup(workload.root, (*workload.kind.queue, "metadata"))
    holder: Object = metadata if type(metadata) is dict else {}
    annotations, labels = holder.get("annotations"), holder.get("labels")
    return annotations if type(annotations) is dict else {}, labels if type(labels) is dict else {}


def number_of_pods(workload: Workload, pods: PodSet) -> tuple[int, bool]:
    """How many pods there are to be, and whether all must run together."""
    declared = declared_size(workload)
    if workload.is_pod():
        # Only where Kueue counts a group from one pod are the others known to ask for as much.
        return (declared or 1), declared is None or KUEUE_FAST_ADMISSION in pods.annotations()
    number = 1 if pods.count is None else pods.count
    if pods.numbers.min_count is not None and pods.numbers.min_count < number:
        # An autoscaler asks for more than there is room for, and goes on with what it gets.
        return number, False
    if not workload.is_batch:
        return number, True
    total = pods.numbers.completions
    number = min(number, pods.numbers.at_once) if pods.count is not None else number
    if declared is not None:
        return number, declared > 1
    if MIN_PARALLELISM in annotations_and_labels(workload)[0]:
        return number, False
    # A Job that nobody declares a gang, and that no queue admits as a whole, gets done with fewer pods at once, too.
    waits = total is None if workload.kind not in _JOBS else total == number
    return number, waits and queue_label(workload) is not None
