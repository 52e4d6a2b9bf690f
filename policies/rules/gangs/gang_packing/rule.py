"""A gang fits the nodes that it may land on, together, and the domain that it must stay within.

## What it does

Counts how many pods of a gang the nodes it may land on hold when they are empty, node by node: as many as accelerators, memory
and CPU allow. Refuses a gang that is larger than all of them together, and one that must stay within one domain of a topology
label (a rack, a block, an NVLink clique) and is larger than the largest of these. Such a requirement is Kueue's
`podset-required-topology` (or a slice of its own), a required pod affinity that selects the gang's own pods, or the exclusive
topology of JobSet and LeaderWorkerSet. Refuses a label that no node carries, and a level that no flavor of the Kueue queue
has in its Topology.

Warns where nothing keeps a gang from running on spot and on-demand nodes at once.

For plain pods, which may ask for different things, a gang that would be too large if all asked alike is a warning, unless they
are known to; so is a Job that nobody declares a gang and that stands in no queue, since its pods may run in turns. Only what
can never fit is refused: whether there is room now is the scheduler's to see. Nodes under repair, that start or that are being
taken away count as there. A warning, in every rule that goes by the nodes of today, is what would be refused where others may
come: on nodes that Karpenter or GKE's queued provisioning make, in a Kueue queue with admission checks, and for a Job that
another controller than Kubernetes' own runs (`spec.managedBy`).

## Why

A gang that cannot run in full waits for ever, and with a scheduler that places pods one by one it holds what it has got
meanwhile. A reclaimed spot node ends the whole gang.

## Practice

- NUMA guide, "Gang Scheduling for Distributed Training": GPUs are not held by a part of a gang whose rest finds no room.
- Field guide, step 4, and its step 2: a gang stays within one fabric, by podAffinity over a label or by Kueue's topology.
- Orchestration guide, "Network Bandwidth": workers share a network that carries their gradients.
- Orchestration guide, "Spot Instances": critical work is not mixed with capacity that may be reclaimed.

## Example

Refused on four nodes of 8 GPUs, two in each rack:

```yaml
spec:
  parallelism: 3
  completions: 3
  template:
    metadata:
      annotations:
        kueue.x-k8s.io/podset-required-topology: example.com/rack
    spec:
      containers:
        - name: train
          resources: {limits: {nvidia.com/gpu: 8}}
```
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.pod_groups import KUEUE_FAST_ADMISSION
from gpugate.policies.cluster.records.pods import member_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Action, Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.gangs.gang import Gang, gang_of, group_of, guaranteed_count, invalid_size, spare_by_annotation
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.quantity import format_millicores, show_bytes
from gpugate.policies.rules.gangs.gang_packing.mixed_capacity import check_mixed
from gpugate.policies.rules.gangs.gang_packing.topology import LEVEL_FACTS, TopologyRequirement, check_level, requirements
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS, NodeCandidates, node_candidates, open_shapes
from gpugate.policies.scheduling.topology_domains import domains_by, largest, nodes_of, pods_on
from gpugate.policies.workloads.queue_name import queue_label
from gpugate.policies.workloads.requests import PodRequests, pod_requests
from gpugate.policies.workloads.resources import memo_key
from gpugate.policies.workloads.workload import PodSet, Workload

_SHOWN_SHAPES: Final = 4


class GangPackingParams(Params):
    """Parameters of `gang-packing`."""

    pool_too_small: Literal["Deny", "Warn"] = "Deny"
    """Whether a gang that all known nodes together could not hold is refused, or only warned about (nodes that scale up)."""
    domain_too_small: Literal["Deny", "Warn"] = "Deny"
    """Whether a gang that no known topology domain could hold is refused, or only warned about (domains that scale up)."""
    mixed_capacity: Action = "Warn"
    """What is done about a gang that may run on spot and on-demand nodes at once."""


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
    workload: Workload,
    gang: Gang,
    part: PodSet,
    number: int,
    needed: Sequence[TopologyRequirement],
    snapshot: ClusterSnapshot,
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
    needed: Sequence[TopologyRequirement],
    part: PodSet,
    demand: PodRequests,
    shapes: Sequence[NodeShape],
    chosen: NodeCandidates,
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


REASONS: Final[dict[str, Reason]] = {
    "DomainTooSmall": Reason(
        "No topology domain holds the gang.",
        action="domain_too_small",
        facts=("nodes",),
        warns="the pods may run in turns or differ",
    ),
    "DomainUnknown": Reason(
        "No node carries the topology label that the pods require.", action="domain_too_small", facts=("nodes",)
    ),
    "LevelUnknown": Reason("No flavor of the ClusterQueue has the required topology level.", facts=LEVEL_FACTS),
    "MixedCapacity": Reason("The gang may run on spot and on-demand nodes at once.", action="mixed_capacity"),
    "PoolTooSmall": Reason(
        "All nodes together do not hold the gang.",
        action="pool_too_small",
        facts=("nodes",),
        warns="the pods may run in turns or differ",
    ),
    "RoomUnknown": Reason("The nodes, queues or Topologies are not synced yet.", action="Unknown"),
}

RULE = Rule(
    id="gang-packing",
    title="A gang fits the nodes that it may land on, together, and the domain that it must stay within",
    since="0.1.0",
    params=GangPackingParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"nodes", *LEVEL_FACTS, "pods"}),
    reads=SCHEDULING_FIELDS | {"annotations", "labels"},
    documentation=__doc__,
    on_update=False,
)
