"""Edits of the rule `spread`."""

from collections.abc import Iterator
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.gangs.gang import Gang, gang_of
from gpugate.policies.kube.fields import Object
from gpugate.policies.kube.names import HOSTNAME, PREFERRED_AFFINITY, REQUIRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.rules.placement.spread.fabric import gang_labels, is_placed_by_others, states_affinity
from gpugate.policies.rules.placement.spread.params import SpreadParams, TopologyParam
from gpugate.policies.rules.placement.spread.replicas import has_replicas, placed_over, revision_keys, selector_of
from gpugate.policies.scheduling.node_selection import node_candidates, open_shapes
from gpugate.policies.scheduling.topology_domains import domains_by
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_HOSTS_AND_ZONES: Final = (TopologyParam(key=HOSTNAME), TopologyParam(key="topology.kubernetes.io/zone"))


def serving(workload: Workload, params: SpreadParams) -> list[PodSet]:
    """The pods whose replicas are to be spread."""
    if params.by == "Nothing":
        return []
    pod_sets = [pods for pods in workload.templated_gpu_pod_sets() if has_replicas(workload, pods)]
    return [] if pod_sets and gang_of(workload) is not None else pod_sets


def known_domains(key: str, pods: PodSet, snapshot: ClusterSnapshot) -> int | None:
    """How many domains of label ``key`` the nodes have that the pods may land on; None where nodes are not known."""
    chosen = node_candidates(pods, snapshot)
    shapes = open_shapes(pods, chosen)
    if snapshot.sync_state("nodes") is not SyncState.SYNCED or not shapes:
        return None
    if key != HOSTNAME and any(None in shape.labels.get(key, {None}) for shape in shapes):
        return 0
    return sum(domain.number for domain in domains_by(key, pods, shapes, chosen))


def _obstacle(topology: TopologyParam, pods: PodSet, params: SpreadParams, snapshot: ClusterSnapshot) -> str | None:
    """What keeps the topology from being written, in words; empty for nothing, None where that is not known."""
    domains = known_domains(topology.key, pods, snapshot)
    if topology.key != HOSTNAME and not domains:
        # Where nodes are not known, the host's label alone is certain.
        return None if domains is None else "some of the nodes that the pods may land on do not carry it"
    replicas = pods.count or 0
    most = _most(topology, params, domains)
    if most is not None and replicas > most:
        return f"it would hold {most} of the {replicas} replicas on the nodes there are: {most} < {replicas}"
    return ""


def _most(topology: TopologyParam, params: SpreadParams, domains: int | None) -> int | None:
    """How many replicas run at most under a hard requirement; None for no bound."""
    if domains is None or not topology.is_hard:
        return None
    if params.by == "AntiAffinity":
        return domains
    return domains * topology.max_skew if domains < (topology.min_domains or 1) else None


def spread_topologies(pods: PodSet, params: SpreadParams, snapshot: ClusterSnapshot) -> list[tuple[TopologyParam, str | None]]:
    """The topologies over which the pods state nothing, each with what keeps it from being written."""
    stated = placed_over(pods)
    return [(one, _obstacle(one, pods, params, snapshot)) for one in params.over or _HOSTS_AND_ZONES if one.key not in stated]


def mutate(workload: Workload, params: SpreadParams, snapshot: ClusterSnapshot) -> Iterator[Edit]:
    """Spread what serves, pack what trains."""
    if workload.is_pod():
        return
    for pods in serving(workload, params):
        selector = selector_of(workload, pods)
        if selector is not None:
            wanted = spread_topologies(pods, params, snapshot)
            yield from (_spread(pods, topology, selector, params) for topology, obstacle in wanted if obstacle == "")
    gang = gang_to_pack(workload, params)
    for part in gang.parts if gang is not None else ():
        yield from _pack(workload, part, params, snapshot)


def _spread(pods: PodSet, topology: TopologyParam, selector: Object, params: SpreadParams) -> Edit:
    keys = revision_keys(pods, selector) if params.within_revision else []
    revision = {"matchLabelKeys": keys} if keys else {}
    if params.by == "AntiAffinity":
        term = {"labelSelector": selector, "topologyKey": topology.key, **revision}
        return _affinity(pods, "podAntiAffinity", term, f"kept apart by {topology.key}", required=topology.is_hard)
    constraint: Object = {
        "maxSkew": topology.max_skew,
        "topologyKey": topology.key,
        "whenUnsatisfiable": topology.when_unsatisfiable,
        "labelSelector": selector,
        **revision,
    }
    if topology.min_domains is not None:
        constraint["minDomains"] = topology.min_domains
    return Edit("append", pods.field("topologySpreadConstraints"), constraint, f"spread over {topology.key}")


def _affinity(pods: PodSet, kind: str, term: Object, note: str, *, required: bool) -> Edit:
    place = pods.field("affinity", kind)
    if required:
        return Edit("append", (*place, REQUIRED_AFFINITY), term, note)
    return Edit("append", (*place, PREFERRED_AFFINITY), {"weight": 100, "podAffinityTerm": term}, note)


def gang_to_pack(workload: Workload, params: SpreadParams) -> Gang | None:
    """The gang that is to run within one fabric; None where there is none, or it is a part of something else."""
    if params.fabric_key is None or workload.is_pod() or workload.controller() is not None or not workload.is_batch:
        return None
    gang = gang_of(workload)
    return gang if gang is not None and gang.size > 1 else None


def _pack(workload: Workload, part: PodSet, params: SpreadParams, snapshot: ClusterSnapshot) -> Iterator[Edit]:
    labels, key = gang_labels(workload, part), params.fabric_key
    if labels is None or key is None or is_left(workload, part, key, snapshot) or not has_fabric(key, part, snapshot):
        return
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": key}
    yield _affinity(part, "podAffinity", term, f"together within {key}", required=params.fabric == "Required")


def is_left(workload: Workload, part: PodSet, key: str, snapshot: ClusterSnapshot) -> bool:
    """Whether somebody has said already where the gang's pods go."""
    return not part.is_whole or states_affinity(part) or key in placed_over(part) or is_placed_by_others(workload, part, snapshot)


def has_fabric(key: str, part: PodSet, snapshot: ClusterSnapshot) -> bool:
    """Whether some node that the pods may land on carries the label, as far as nodes are known."""
    shapes = open_shapes(part, node_candidates(part, snapshot))
    return snapshot.sync_state("nodes") is not SyncState.SYNCED or not shapes or any(shape.carriers(key) for shape in shapes)
