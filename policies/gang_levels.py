"""Whether a Kueue queue knows the topology level that a gang requires."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpugate.policies.facts import Facts, Known
from gpugate.policies.finding import Finding
from gpugate.policies.gang_domains import Within
from gpugate.policies.kueue import cluster_queue_of
from gpugate.policies.records.queues import ClusterQueue
from gpugate.policies.workload import PodSet, Workload

LEVEL_FACTS: Final = ("localqueues", "clusterqueues", "resourceflavors", "topologies")


def check_level(workload: Workload, pods: PodSet, needed: Within, facts: Facts) -> Iterator[Finding]:
    """Refuse a level that no flavor of the queue has (Kueue v0.15 ``pkg/scheduler/flavorassigner/tas_flavorassigner.go``).

    Kueue passes every flavor over whose Topology lacks the level, and says so only in the Workload's status.
    """
    queue = _cluster_queue(workload, facts) if needed.by == "Kueue" else None
    if queue is None:
        return
    names = {name for name, _ in _flavors(queue, pods)}
    found = [facts.flavors[name] for name in sorted(names) if name in facts.flavors]
    topologies = [facts.topologies.get(flavor.topology) for flavor in found if flavor.topology]
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
            rests_on=LEVEL_FACTS,
        )


def _cluster_queue(workload: Workload, facts: Facts) -> ClusterQueue | None:
    if any(facts.state(kind) is not Known.SYNCED for kind in LEVEL_FACTS):
        return None
    return cluster_queue_of(workload, facts)


def _flavors(queue: ClusterQueue, pods: PodSet) -> Iterator[tuple[str, object]]:
    """The flavors in which the queue has any of the gang's accelerators."""
    for group in queue.groups:
        if not group.covered.isdisjoint(pods.accelerators()):
            yield from group.flavors
