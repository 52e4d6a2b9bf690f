"""Findings of the rule `gang-packing`."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.pod_groups import KUEUE_FAST_ADMISSION
from gpugate.policies.cluster.records.pods import member_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.gangs.gang import Gang, gang_of, group_of, guaranteed_count, invalid_size, spare_by_annotation
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.quantity import format_millicores, show_bytes
from gpugate.policies.rules.gangs.gang_packing.mixed_capacity import check_mixed
from gpugate.policies.rules.gangs.gang_packing.params import GangPackingParams
from gpugate.policies.rules.gangs.gang_packing.topology import LEVEL_FACTS, TopologyRequirement, check_level, requirements
from gpugate.policies.scheduling.node_selection import NodeCandidates, node_candidates, open_shapes
from gpugate.policies.scheduling.topology_domains import domains_by, largest, nodes_of, pods_on
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests, pod_requests
from gpugate.policies.workloads.resources import memo_key
from gpugate.policies.workloads.workload import Workload

_SHOWN_SHAPES: Final = 4


def check(workload: Workload, _params: GangPackingParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse gangs that no pool, or no domain, could ever hold."""
    if invalid_size(workload) is not None or workload.owner_was_reviewed() or workload.is_child():
        return
    gang = gang_of(workload)
    if gang is None or (gang.members is not None and gang.size not in gang.sizes):
        return
    needed = {part.path: list(requirements(workload, gang, part)) for part in gang.parts}
    pending = _pending([one for some in needed.values() for one in some], snapshot)
    together = _held_together(gang)
    for part in gang.parts:
        if part.is_whole:
            yield from check_mixed(part, gang.size, _roomy(part, snapshot))
        if pending:
            yield _unknown(part, pending)
            return
        for one in needed[part.path]:
            yield from check_level(workload, part, one, snapshot)
        if snapshot.sync_state("nodes") is not SyncState.SYNCED:
            continue
        found = list(_check_room(workload, gang, part, together.get(part.path, 0), needed[part.path], snapshot))
        if _is_alike(workload, gang):
            certain = gang.declared or queue_label(workload) is not None
            yield from found if certain else (_of_undeclared(one, gang) for one in found)
        else:
            complete = _is_complete(workload, gang, snapshot)
            yield from (_of_plain_pods(one, gang, complete=complete) for one in found)


def _held_together(gang: Gang) -> dict[Path, int]:
    """How many pods the nodes must hold at once for each part, those of parts that are alike counted with the first."""
    if len(gang.parts) == 1:
        return {gang.pods.path: guaranteed_count(gang, gang.pods)}
    first: dict[object, Path] = {}
    found: dict[Path, int] = {}
    for part in gang.parts:
        path = first.setdefault(_sort(part), part.path)
        found[path] = found.get(path, 0) + guaranteed_count(gang, part)
    return found


#: What of a pod spec decides on which nodes pods land.
_PLACING: Final = ("nodeSelector", "affinity", "tolerations", "runtimeClassName", "nodeName")


def _sort(part: PodSet) -> object:
    """What pods have in common that take the same room of the same nodes; those that run after others are a sort of their own."""
    placing = memo_key([held for key in _PLACING if (held := (key, part.spec.get(key)))[1] is not None])
    if part.follows or placing is None:
        return part.path
    demand = pod_requests(part)
    return (placing, demand.memory, demand.cpu, tuple(sorted(demand.devices.items())))


def _roomy(part: PodSet, snapshot: ClusterSnapshot) -> tuple[NodeShape, ...]:
    """The shapes that hold a pod of ``part`` at all: one that fits no node is another rule's to judge."""
    demand = pod_requests(part)
    return tuple(shape for shape in open_shapes(part, node_candidates(part, snapshot)) if pods_on(shape, demand))


def _check_room(
    workload: Workload, gang: Gang, part: PodSet, number: int, needed: Sequence[TopologyRequirement], snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    """Judge one sort of the gang's pods; ``number``: how many alike the nodes must hold at once, 0 where told before."""
    roomy, demand = _roomy(part, snapshot), pod_requests(part)
    if not roomy:
        return
    if number:
        yield from _check_pool(part, max(1, number - spare_by_annotation(workload, gang)), demand, roomy)
    chosen = node_candidates(part, snapshot)
    yield from _check_domains(needed, part, demand, open_shapes(part, chosen), chosen)


def _pending(needed: Sequence[TopologyRequirement], snapshot: ClusterSnapshot) -> str:
    """The kinds of facts that are on their way and would be needed, in words; empty for none."""
    if snapshot.sync_state("nodes") is SyncState.PENDING:
        return "nodes"
    by_kueue = any(one.by == "Kueue" for one in needed)
    return (
        "queues and Topologies" if by_kueue and any(snapshot.sync_state(kind) is SyncState.PENDING for kind in LEVEL_FACTS) else ""
    )


def _unknown(part: PodSet, kinds: str) -> Finding:
    return not_synced("RoomUnknown", part.field("containers"), f"the cluster's {kinds}", "whether they could hold the gang")


def _is_alike(workload: Workload, gang: Gang) -> bool:
    """Whether every pod of the gang asks for as much: they come from one template, or Kueue counts them from one pod."""
    return not workload.is_pod() or KUEUE_FAST_ADMISSION in gang.pods.annotations()


def _is_complete(workload: Workload, gang: Gang, snapshot: ClusterSnapshot) -> bool:
    """Whether all other pods of the gang are there and ask for as much as this one."""
    key = group_of(gang.pods)
    group = None if key is None else snapshot.group(workload.namespace, key)
    return group is not None and group.present + 1 >= gang.size and group.asks == (member_of(gang.pods).asks,)


def _of_undeclared(finding: Finding, gang: Gang) -> Finding:
    """``finding`` about a Job that nobody declares a gang, and that no queue admits as a whole: its pods may run in turns."""
    if finding.reason == "DomainUnknown":
        return finding
    return finding._replace(message=f"if its {gang.size} pods must run at once: {finding.message}", level=Level.WARN)


def _of_plain_pods(finding: Finding, gang: Gang, *, complete: bool) -> Finding:
    if finding.reason == "DomainUnknown":
        return finding
    if complete:
        return finding._replace(rests_on=(*finding.rests_on, "pods"))
    return finding._replace(message=f"if all {gang.size} pods ask for as much: {finding.message}", level=Level.WARN)


def _check_pool(part: PodSet, needed: int, demand: PodRequests, shapes: Sequence[NodeShape]) -> Iterator[Finding]:
    rooms = [(shape, nodes_of(part, shape), pods_on(shape, demand)) for shape in shapes]
    held = sum(nodes * room for _, nodes, room in rooms)
    if held >= needed:
        return
    nodes = sum(count for _, count, _ in rooms)
    sums: dict[tuple[str, int], int] = {}
    for shape, count, room in rooms:
        sums[shape.title, room] = sums.get((shape.title, room), 0) + count
    largest_first = sorted(sums.items(), key=lambda one: (-one[1] * one[0][1], one[0]))
    shown = " + ".join(f"{count} x {room} ({title})" for (title, room), count in largest_first[:_SHOWN_SHAPES])
    yield Finding(
        "PoolTooSmall",
        part.field("containers"),
        f"a gang of {needed} pods with {_amounts(demand)} each; the {nodes} node{'s' if nodes != 1 else ''} that it may land on"
        f" hold {held} when empty: {shown}{' + ...' if len(sums) > _SHOWN_SHAPES else ''} = {held} < {needed}",
        f"Make the gang {held} pods at most, ask for less per pod, or let it onto more nodes.",
        measure=needed - held,
    )


def _amounts(demand: PodRequests) -> str:
    asked = [f"{count} {name}" for name, count in sorted(demand.devices.items())]
    asked += [f"{show_bytes(demand.memory)} memory"] if demand.memory else []
    return ", ".join([*asked, *([f"{format_millicores(demand.cpu)} cpu"] if demand.cpu else [])])


def _check_domains(
    needed: Sequence[TopologyRequirement], part: PodSet, demand: PodRequests, shapes: Sequence[NodeShape], chosen: NodeCandidates
) -> Iterator[Finding]:
    for one in needed:
        domains = domains_by(one.key, part, shapes, chosen)
        if not domains:
            # Only the scheduler is known to leave such pods waiting; Kueue's levels are looked up in its Topologies.
            if one.by == "scheduler":
                nodes = sum(len(shape.nodes) for shape in shapes)
                yield Finding(
                    "DomainUnknown",
                    one.path,
                    f"none of the {nodes} nodes that the gang may land on carries the label {one.key}:"
                    " the scheduler places no pod whose affinity asks for it",
                    "Name a label that the nodes carry, or have them labelled.",
                    measure=1,
                )
            continue
        domain, held = largest(domains, shapes, demand)
        if held < one.pods:
            count = sum(nodes for _, nodes in domain.nodes)
            yield Finding(
                "DomainTooSmall",
                one.path,
                f"{one.pods} pods with {_amounts(demand)} each must be within one domain of {one.key}; the largest,"
                f" {domain.example} with {count} node{'s' if count != 1 else ''}, holds {held} when empty: {held} < {one.pods}",
                f"Make it {held} pods at most, ask for less per pod, or require a wider domain than {one.key}."
                if held
                else f"Ask for less per pod, or require a wider domain than {one.key}.",
                measure=one.pods - held,
            )
