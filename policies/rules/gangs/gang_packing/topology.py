"""Read the requirements that the pods of a gang run in one topology domain, and check their levels in Kueue."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.common import selector_in
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.gangs.gang import Gang, guaranteed_count, spare_by_annotation
from gpugate.policies.kube.fields import Path, mapping, mappings, sequence, whole_number
from gpugate.policies.kube.names import REQUIRED_AFFINITY, REQUIRED_TOPOLOGY, SLICE_TOPOLOGY
from gpugate.policies.queueing.cluster_queue import cluster_queue_of
from gpugate.policies.queueing.workload_demand import pod_counts
from gpugate.policies.workloads.kinds import EXCLUSIVE_TOPOLOGY
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

KUEUE_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
_KAI_REQUIRED: Final = "kai.scheduler/topology-required-placement"


class TopologyRequirement(NamedTuple):
    """A requirement that pods run in one topology domain.

    Attributes:
        key: the node label whose values are the domains.
        path: the field or annotation that requires it.
        pods: the number of the gang's pods that must be in one domain.
        by: what enforces it: ``Kueue``, ``scheduler`` (pod affinity) or ``label`` (a controller that reads node labels).
    """

    key: str
    path: Path
    pods: int
    by: str


def requirements(workload: Workload, gang: Gang, pods: PodSet) -> Iterator[TopologyRequirement]:
    """Return every requirement of ``pods``, a part of the gang, in a fixed order."""
    annotations = pods.annotations()
    minimum = max(1, guaranteed_count(gang, pods) - spare_by_annotation(workload, gang))
    if queue_label(workload):
        # Kueue may admit a Job with fewer pods than its parallelism.
        admitted = min(minimum, pod_counts(workload, pods)[1]) if workload.kind.partial_admission else minimum
        key = annotations.get(REQUIRED_TOPOLOGY)
        if type(key) is str and key:
            yield TopologyRequirement(key, pods.meta("annotations", REQUIRED_TOPOLOGY), admitted, "Kueue")
        key, size = annotations.get(SLICE_TOPOLOGY), whole_number(annotations.get(KUEUE_SLICE_SIZE))
        if type(key) is str and key and size is not None:
            yield TopologyRequirement(key, pods.meta("annotations", SLICE_TOPOLOGY), min(size, admitted), "Kueue")
    for name in (*EXCLUSIVE_TOPOLOGY, *((_KAI_REQUIRED,) if workload.kind.grouped_by_kai else ())):
        # Each child Job has a domain to itself.
        per_child = min(minimum, pods.numbers.child or minimum) if pods.kind.has_child_jobs else minimum
        for path, holder in ((("metadata", "annotations"), workload.annotations()), (pods.meta("annotations"), annotations)):
            key = holder.get(name)
            if type(key) is str and key:
                yield TopologyRequirement(key, (*path, name), per_child if name in EXCLUSIVE_TOPOLOGY else minimum, "label")
                break
    yield from _own_affinity(workload, pods, minimum)


def _own_affinity(workload: Workload, pods: PodSet, minimum: int) -> Iterator[TopologyRequirement]:
    """Return the required pod affinity terms that select the gang's own pods."""
    if "affinity" not in pods.spec:
        return
    path = pods.field("affinity", "podAffinity")
    affinity = mapping(mapping(pods.spec, "affinity", pods.field()), "podAffinity", path[:-1])
    # The API server adds the labels of the kind later.
    labels = dict.fromkeys(workload.kind.template_labels, workload.name) if workload.name else {}
    labels |= {key: value for key, value in pods.labels().items() if type(value) is str}
    for at, term in enumerate(mappings(affinity, REQUIRED_AFFINITY, path)):
        selector, key = selector_in(term, "labelSelector"), term.get("topologyKey")
        namespaces = sequence(term, "namespaces", (*path, REQUIRED_AFFINITY, at))
        if selector is None or type(key) is not str or not key or not selector.matches(labels):
            continue
        if term.get("namespaceSelector") is None and (not namespaces or workload.namespace in namespaces):
            yield TopologyRequirement(key, (*path, REQUIRED_AFFINITY, at, "topologyKey"), minimum, "scheduler")


#: Objects from which the levels of a queue's Topologies are read.
LEVEL_FACTS: Final = ("localqueues", "clusterqueues", "resourceflavors", "topologies")


def check_level(workload: Workload, pods: PodSet, requirement: TopologyRequirement, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse a level that no flavor of the queue has (Kueue v0.15 ``pkg/scheduler/flavorassigner/tas_flavorassigner.go``).

    Kueue skips every flavor whose Topology lacks the level, and reports it only in the status of its Workload.
    """
    if requirement.by != "Kueue" or any(snapshot.sync_state(kind) is not SyncState.SYNCED for kind in LEVEL_FACTS):
        return
    queue = cluster_queue_of(workload, snapshot)
    if queue is None:
        return
    groups = [group for group in queue.groups if not group.covered.isdisjoint(pods.accelerators())]
    names = sorted({name for group in groups for name, _ in group.flavors})
    flavors = [snapshot.flavors[name] for name in names if name in snapshot.flavors]
    topologies = [snapshot.topologies.get(flavor.topology) for flavor in flavors if flavor.topology]
    # An administrator may still create a missing flavor or Topology.
    if not names or len(flavors) < len(names) or None in topologies:
        return
    levels = sorted({level for topology in topologies if topology is not None for level in topology.levels})
    if requirement.key not in levels:
        yield Finding(
            "LevelUnknown",
            requirement.path,
            f"no flavor of ClusterQueue {queue.name} for the gang's accelerators has the topology level {requirement.key}"
            f" ({', '.join(names)}: {', '.join(levels) or 'no Topology'}), so Kueue would never admit the gang",
            f"Use a level that they have: {' or '.join(levels)}." if levels else "Remove the requirement, or use another queue.",
            measure=1,
        )
