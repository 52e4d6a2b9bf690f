"""Where a workload requires that its pods run within one domain of a topology label."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.common import selector_in
from gpugate.policies.cluster.records.kueue import ClusterQueue
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.gangs.gang import Gang, guaranteed_count, spare_by_annotation
from gpugate.policies.kube.fields import Path, mapping, mappings, sequence, whole_number
from gpugate.policies.kube.names import REQUIRED_AFFINITY, REQUIRED_TOPOLOGY, SLICE_TOPOLOGY
from gpugate.policies.queueing.cluster_queue import cluster_queue_of
from gpugate.policies.workloads.kinds import EXCLUSIVE_TOPOLOGY
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

KUEUE_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
_KAI_REQUIRED: Final = "kai.scheduler/topology-required-placement"


class TopologyRequirement(NamedTuple):
    """A requirement that pods run within one domain.

    Attributes:
        key: the label of the nodes whose values are the domains.
        path: where it is required.
        pods: how many of the gang's pods must be in one domain together.
        by: who sees to it: ``Kueue``, ``scheduler`` (the pods' own affinity) or ``label`` (a controller that reads nodes' labels).
    """

    key: str
    path: Path
    pods: int
    by: str


def requirements(workload: Workload, gang: Gang, pods: PodSet) -> Iterator[TopologyRequirement]:
    """Every requirement of ``pods``, a part of the gang, in a fixed order."""
    annotations, least = pods.annotations(), _least(workload, gang, pods)
    if queue_label(workload):
        key = annotations.get(REQUIRED_TOPOLOGY)
        if type(key) is str and key:
            yield TopologyRequirement(key, pods.meta("annotations", REQUIRED_TOPOLOGY), least, "Kueue")
        key, size = annotations.get(SLICE_TOPOLOGY), whole_number(annotations.get(KUEUE_SLICE_SIZE))
        if type(key) is str and key and size is not None:
            yield TopologyRequirement(key, pods.meta("annotations", SLICE_TOPOLOGY), min(size, least), "Kueue")
    for name in (*EXCLUSIVE_TOPOLOGY, *((_KAI_REQUIRED,) if workload.kind.grouped_by_kai else ())):
        for path, found in ((("metadata", "annotations"), workload.annotations()), (pods.meta("annotations"), annotations)):
            key = found.get(name)
            if type(key) is str and key:
                yield TopologyRequirement(
                    key, (*path, name), _of_one_child(pods, least) if name in EXCLUSIVE_TOPOLOGY else least, "label"
                )
                break
    yield from _own_affinity(workload, pods, least)


def _least(workload: Workload, gang: Gang, pods: PodSet) -> int:
    """The fewest of ``pods`` that one gang runs with."""
    return max(1, guaranteed_count(gang, pods) - spare_by_annotation(workload, gang))


def _of_one_child(pods: PodSet, number: int) -> int:
    """How many of ``number`` pods are of one child, which has a domain to itself."""
    return min(number, pods.numbers.child or number) if pods.kind.has_child_jobs else number


def _own_affinity(workload: Workload, pods: PodSet, least: int) -> Iterator[TopologyRequirement]:
    """Required pod affinity that selects the gang's own pods."""
    if "affinity" not in pods.spec:
        return
    path = pods.field("affinity", "podAffinity")
    affinity = mapping(mapping(pods.spec, "affinity", pods.field()), "podAffinity", path[:-1])
    labels = _labels(workload, pods)
    for at, term in enumerate(mappings(affinity, REQUIRED_AFFINITY, path)):
        selector, key = selector_in(term, "labelSelector"), term.get("topologyKey")
        namespaces = sequence(term, "namespaces", (*path, REQUIRED_AFFINITY, at))
        if selector is None or type(key) is not str or not key or not selector.matches(labels):
            continue
        if term.get("namespaceSelector") is None and (not namespaces or workload.namespace in namespaces):
            yield TopologyRequirement(key, (*path, REQUIRED_AFFINITY, at, "topologyKey"), least, "scheduler")


def _labels(workload: Workload, pods: PodSet) -> dict[str, str]:
    """The labels that the pods will have, as far as they are known before the API has filled in its own."""
    own = {key: value for key, value in pods.labels().items() if type(value) is str}
    return {**(dict.fromkeys(workload.kind.template_labels, workload.name) if workload.name else {}), **own}


LEVEL_FACTS: Final = ("localqueues", "clusterqueues", "resourceflavors", "topologies")


def check_level(workload: Workload, pods: PodSet, needed: TopologyRequirement, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse a level that no flavor of the queue has (Kueue v0.15 ``pkg/scheduler/flavorassigner/tas_flavorassigner.go``).

    Kueue passes every flavor over whose Topology lacks the level, and says so only in the Workload's status.
    """
    queue = _cluster_queue(workload, snapshot) if needed.by == "Kueue" else None
    if queue is None:
        return
    names = {name for name, _ in _flavors(queue, pods)}
    found = [snapshot.flavors[name] for name in sorted(names) if name in snapshot.flavors]
    topologies = [snapshot.topologies.get(flavor.topology) for flavor in found if flavor.topology]
    # A flavor or Topology that is not there yet is an administrator's business, and may come.
    if not names or len(found) < len(names) or None in topologies:
        return
    levels = {level for one in topologies if one is not None for level in one.levels}
    if needed.key not in levels:
        has = f"they have {', '.join(sorted(levels))}" if levels else "they have no Topology"
        yield Finding(
            "LevelUnknown",
            needed.path,
            f"no flavor of ClusterQueue {queue.name} for the gang's accelerators has the topology level {needed.key}"
            f" ({', '.join(sorted(names))}: {has}): Kueue would never admit it",
            f"Name a level that they have: {' or '.join(sorted(levels))}."
            if levels
            else "Leave the requirement out, or name another queue.",
            measure=1,
        )


def _cluster_queue(workload: Workload, snapshot: ClusterSnapshot) -> ClusterQueue | None:
    if any(snapshot.sync_state(kind) is not SyncState.SYNCED for kind in LEVEL_FACTS):
        return None
    return cluster_queue_of(workload, snapshot)


def _flavors(queue: ClusterQueue, pods: PodSet) -> Iterator[tuple[str, object]]:
    """The flavors in which the queue has any of the gang's accelerators."""
    for group in queue.groups:
        if not group.covered.isdisjoint(pods.accelerators()):
            yield from group.flavors
