"""Parameters and findings of the rule `gang-packing`."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import CAPACITY
from gpugate.policies.cluster.records.pod_groups import KUEUE_FAST_ADMISSION
from gpugate.policies.cluster.records.pods import capacity_of, member_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Action
from gpugate.policies.gangs.gang import Gang, gang_of, group_of, guaranteed_count, invalid_size, pods_at_once, spare_by_annotation
from gpugate.policies.kube.fields import Path, mapping, mappings, sequence
from gpugate.policies.kube.names import REQUIRED_AFFINITY
from gpugate.policies.kube.quantity import format_millicores, show_bytes
from gpugate.policies.rules.gangs.gang_packing.topology import LEVEL_FACTS, TopologyRequirement, check_level, requirements
from gpugate.policies.scheduling.node_selection import NodeCandidates, node_candidates, open_shapes
from gpugate.policies.scheduling.topology_domains import domains_by, largest, nodes_of, pods_on
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests, pod_requests
from gpugate.policies.workloads.resources import memo_key
from gpugate.policies.workloads.workload import Workload

_SHOWN_SHAPES: Final = 4
#: Fields of a pod spec that select nodes.
_NODE_FIELDS: Final = ("nodeSelector", "affinity", "tolerations", "runtimeClassName", "nodeName")


class GangPackingParams(Params):
    """Parameters of `gang-packing`."""

    pool_too_small: Literal["Deny", "Warn"] = "Deny"
    """Whether a gang that does not fit all known nodes together is refused or only warned about (node pools that scale up)."""
    domain_too_small: Literal["Deny", "Warn"] = "Deny"
    """Whether a gang that fits no known topology domain is refused or only warned about (domains that scale up)."""
    mixed_capacity: Action = "Warn"
    """What happens if a gang may run on spot and on-demand nodes at once."""


def check(workload: Workload, _params: GangPackingParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse gangs that no node pool or topology domain could ever hold."""
    if invalid_size(workload) is not None or workload.owner_was_reviewed() or workload.is_child():
        return
    gang = pods_at_once(workload)
    if gang is None or (gang.members is not None and gang.size not in gang.sizes):
        return
    # Pods of a Job that declares no gang may run in turns, but Kueue places them together where a topology requires it.
    is_gang = gang_of(workload) is not None
    required = {part.path: list(requirements(workload, gang, part)) for part in gang.parts}
    pending = _pending([requirement for part in required.values() for requirement in part], snapshot)
    counts = _counts_at_once(gang)
    for part in gang.parts:
        if part.is_whole and is_gang:
            yield from _check_capacity(part, gang.size, _holding(part, snapshot))
        if pending:
            what = "whether they could hold the gang"
            yield not_synced("RoomUnknown", part.field("containers"), f"the cluster's {pending}", what)
            return
        for requirement in required[part.path]:
            yield from check_level(workload, part, requirement, snapshot)
        if snapshot.sync_state("nodes") is not SyncState.SYNCED:
            continue
        for finding in _check_room(workload, gang, part, counts.get(part.path, 0), required[part.path], snapshot):
            by_kueue = any(requirement.path == finding.path and requirement.by == "Kueue" for requirement in required[part.path])
            is_certain = finding.reason == "DomainUnknown" or (by_kueue and not is_gang)
            yield finding if is_certain else _with_assumptions(finding, workload, gang, snapshot, is_gang=is_gang)


def _pending(required: Sequence[TopologyRequirement], snapshot: ClusterSnapshot) -> str:
    """Return the kinds of objects that are needed and not synced yet, for a message; empty for none."""
    if snapshot.sync_state("nodes") is SyncState.PENDING:
        return "nodes"
    pending = any(snapshot.sync_state(kind) is SyncState.PENDING for kind in LEVEL_FACTS)
    return "queues and Topologies" if pending and any(requirement.by == "Kueue" for requirement in required) else ""


def _counts_at_once(gang: Gang) -> dict[Path, int]:
    """Return the number of pods that run at once, by the first of the parts with equal pods."""
    if len(gang.parts) == 1:
        return {gang.pods.path: guaranteed_count(gang, gang.pods)}
    first: dict[object, Path] = {}
    counts: dict[Path, int] = {}
    for part in gang.parts:
        path = first.setdefault(_node_key(part), part.path)
        counts[path] = counts.get(path, 0) + guaranteed_count(gang, part)
    return counts


def _node_key(part: PodSet) -> object:
    """Return a key that is equal for pods with the same requests on the same nodes; pods that run after others have their own."""
    selection = memo_key([field for key in _NODE_FIELDS if (field := (key, part.spec.get(key)))[1] is not None])
    if part.follows or selection is None:
        return part.path
    demand = pod_requests(part)
    return (selection, demand.memory, demand.cpu, tuple(sorted(demand.devices.items())))


def _is_complete(workload: Workload, gang: Gang, snapshot: ClusterSnapshot) -> bool:
    """Return whether all other pods of the gang exist and have the same requests as this one."""
    key = group_of(gang.pods)
    group = None if key is None else snapshot.group(workload.namespace, key)
    return group is not None and group.present + 1 >= gang.size and group.asks == (member_of(gang.pods).asks,)


def _with_assumptions(finding: Finding, workload: Workload, gang: Gang, snapshot: ClusterSnapshot, *, is_gang: bool) -> Finding:
    """Return ``finding``, as a warning if it is only certain under a condition."""
    if not workload.is_pod() or KUEUE_FAST_ADMISSION in gang.pods.annotations():
        # All pods have the same requests: they come from one template, or Kueue counts them from one pod.
        if is_gang:
            return finding
        condition = f"if its {gang.size} pods must run at once"
    elif _is_complete(workload, gang, snapshot):
        return finding._replace(rests_on=(*finding.rests_on, "pods"))
    else:
        condition = f"if all {gang.size} pods request as much"
    return finding._replace(message=f"{condition}, {finding.message}", level=Level.WARN)


def _holding(part: PodSet, snapshot: ClusterSnapshot) -> tuple[NodeShape, ...]:
    """Return the node shapes that hold at least one pod; other rules check pods that fit no node."""
    demand = pod_requests(part)
    return tuple(shape for shape in open_shapes(part, node_candidates(part, snapshot)) if pods_on(shape, demand))


def _check_room(
    workload: Workload, gang: Gang, part: PodSet, number: int, required: Sequence[TopologyRequirement], snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    """Check one part of the gang; ``number``: pods that run at once, 0 if counted with an equal part."""
    shapes, demand = _holding(part, snapshot), pod_requests(part)
    if not shapes:
        return
    if number:
        yield from _check_pool(part, max(1, number - spare_by_annotation(workload, gang)), demand, shapes)
    candidates = node_candidates(part, snapshot)
    yield from _check_domains(required, part, demand, open_shapes(part, candidates), candidates)


def _check_pool(part: PodSet, needed: int, demand: PodRequests, shapes: Sequence[NodeShape]) -> Iterator[Finding]:
    capacities = [(shape, nodes_of(part, shape), pods_on(shape, demand)) for shape in shapes]
    held = sum(nodes * per_node for _, nodes, per_node in capacities)
    if held >= needed:
        return
    sums: dict[tuple[str, int], int] = {}
    for shape, nodes, per_node in capacities:
        sums[shape.title, per_node] = sums.get((shape.title, per_node), 0) + nodes
    largest_first = sorted(sums.items(), key=lambda item: (-item[1] * item[0][1], item[0]))
    shown = " + ".join(f"{nodes} x {per_node} ({title})" for (title, per_node), nodes in largest_first[:_SHOWN_SHAPES])
    yield Finding(
        "PoolTooSmall",
        part.field("containers"),
        f"a gang of {needed} pods with {_amounts(demand)} each does not fit the {_nodes(sum(sums.values()))} that it may run on;"
        f" when empty, these hold {shown}{' + ...' if len(sums) > _SHOWN_SHAPES else ''} = {held} < {needed}",
        f"Make the gang at most {held} pods, request less per pod, or allow more nodes.",
        measure=needed - held,
    )


def _nodes(number: int) -> str:
    return f"{number} node{'' if number == 1 else 's'}"


def _amounts(demand: PodRequests) -> str:
    amounts = [f"{count} {name}" for name, count in sorted(demand.devices.items())]
    amounts += [f"{show_bytes(demand.memory)} memory"] if demand.memory else []
    return ", ".join([*amounts, *([f"{format_millicores(demand.cpu)} cpu"] if demand.cpu else [])])


def _check_domains(
    required: Sequence[TopologyRequirement],
    part: PodSet,
    demand: PodRequests,
    shapes: Sequence[NodeShape],
    candidates: NodeCandidates,
) -> Iterator[Finding]:
    for key, path, pods, by in required:
        domains = domains_by(key, part, shapes, candidates)
        if not domains:
            # Only the scheduler surely leaves such pods pending; Kueue's levels are read from its Topologies.
            if by == "scheduler":
                yield Finding(
                    "DomainUnknown",
                    path,
                    f"none of the {_nodes(sum(len(shape.nodes) for shape in shapes))} that the gang may run on has the label {key},"
                    " so the pods that require it stay Pending",
                    "Use a label that the nodes have, or label the nodes.",
                    measure=1,
                )
            continue
        domain, held = largest(domains, shapes, demand)
        if held < pods:
            nodes = _nodes(sum(number for _, number in domain.nodes))
            yield Finding(
                "DomainTooSmall",
                path,
                f"{pods} pods with {_amounts(demand)} each must run in one domain of {key}, but the largest, {domain.example} with"
                f" {nodes}, holds {held} when empty: {held} < {pods}",
                f"Use at most {held} pods, request less per pod, or require a wider domain than {key}."
                if held
                else f"Request less per pod, or require a wider domain than {key}.",
                measure=pods - held,
            )


def _check_capacity(pods: PodSet, size: int, shapes: Sequence[NodeShape]) -> Iterator[Finding]:
    """Report a gang of ``size`` that may run on spot and on-demand nodes at once; ``shapes``: its possible nodes."""
    path = _path_naming_both(pods)
    spot = sum(len(shape.nodes) for shape in shapes if _is_spot(shape))
    other = sum(len(shape.nodes) for shape in shapes) - spot
    if path is None and (not spot or not other or capacity_of(pods)):
        return
    what = "its node affinity allows both" if path else f"its possible nodes: {spot} spot, {other} not"
    yield Finding(
        "MixedCapacity",
        path or pods.field("nodeSelector"),
        f"the gang of {size} pods may run on spot and on-demand nodes at once ({what}); a reclaimed spot node ends the whole gang,"
        " including its pods on on-demand nodes",
        "Select spot or on-demand nodes in nodeSelector, for all pods of the gang.",
        rests_on=() if path else ("nodes",),
    )


def _path_naming_both(pods: PodSet) -> Path | None:
    """Return the path at which required node affinity names spot and another capacity in one expression, or None."""
    if "affinity" not in pods.spec:
        return None
    path = pods.field("affinity", "nodeAffinity")
    affinity = mapping(mapping(pods.spec, "affinity", pods.field()), "nodeAffinity", path[:-1])
    required = mapping(affinity, REQUIRED_AFFINITY, path)
    path = (*path, REQUIRED_AFFINITY)
    for at, term in enumerate(mappings(required, "nodeSelectorTerms", path)):
        for number, expression in enumerate(mappings(term, "matchExpressions", (*path, "nodeSelectorTerms", at))):
            values = {str(value) for value in sequence(expression, "values", ())} if expression.get("operator") == "In" else set()
            if len(values) > 1 and CAPACITY.get(str(expression.get("key"))) in values:
                return (*path, "nodeSelectorTerms", at, "matchExpressions", number, "values")
    return None


def _is_spot(shape: NodeShape) -> bool:
    # Shapes are split by these labels: all nodes of one have the same values.
    return any(spot in shape.labels.get(key, ()) for key, spot in CAPACITY.items())
