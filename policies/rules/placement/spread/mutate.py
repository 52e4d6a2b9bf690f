"""Parameters and edits of the rule `spread`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.framework.params import Params
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.cel import LONGEST_LABEL, CelRule, LabelKey
from gpugate.policies.kube.fields import Object, integer_at, lookup, mapping, mappings
from gpugate.policies.kube.managers import is_user_set
from gpugate.policies.kube.names import HOSTNAME, PREFERRED_AFFINITY, REQUIRED_AFFINITY, REQUIRED_TOPOLOGY, SLICE_TOPOLOGY
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.cluster_queue import cluster_queue_of
from gpugate.policies.scheduling.node_selection import node_candidates, open_shapes
from gpugate.policies.scheduling.topology_domains import domains_by
from gpugate.policies.workloads.kinds import EXCLUSIVE_TOPOLOGY
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Annotations by which Kueue, KAI, JobSet and LeaderWorkerSet place pods.
_PLACED_BY: Final = (
    REQUIRED_TOPOLOGY,
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    SLICE_TOPOLOGY,
    "kai.scheduler/topology",
    *EXCLUSIVE_TOPOLOGY,
)


class TopologyParam(Params):
    """A node label over whose values replicas are spread."""

    validations = (
        CelRule(
            "!has(self.minDomains) || (has(self.whenUnsatisfiable) && self.whenUnsatisfiable == 'DoNotSchedule')",
            "minDomains goes with whenUnsatisfiable DoNotSchedule alone",
        ),
    )

    key: LabelKey
    """The label's key."""
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"
    """Whether a pod that cannot be placed so runs elsewhere, or waits. With anti-affinity: preferred or required."""
    max_skew: Annotated[int, Field(ge=1, le=1000)] = 1
    """How many more pods one domain may have than another."""
    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many domains must exist before a second pod runs in one; only with DoNotSchedule."""

    @model_validator(mode="after")
    def _waits_for_domains(self) -> Self:
        if self.min_domains is not None and not self.is_hard:
            message = "minDomains goes with whenUnsatisfiable DoNotSchedule alone"
            raise ValueError(message)
        return self

    @property
    def is_hard(self) -> bool:
        """Whether a pod waits if it cannot be placed so."""
        return self.when_unsatisfiable == "DoNotSchedule"


_HOSTS_AND_ZONES: Final = (TopologyParam(key=HOSTNAME), TopologyParam(key="topology.kubernetes.io/zone"))


class SpreadParams(Params):
    """Parameters of `spread`."""

    validations = (
        CelRule(
            "!has(self.over) || self.over.all(a, self.over.exists_one(b, a.key == b.key))", "over: a topology stands there twice"
        ),
    )

    by: Literal["Constraints", "AntiAffinity", "Nothing"] = "Constraints"
    """How replicas are spread: by topologySpreadConstraints, by anti-affinity, or not at all."""
    over: Annotated[tuple[TopologyParam, ...], Field(max_length=8)] = ()
    """The topologies over which replicas are spread; by default hosts and zones, as preferences."""
    within_revision: bool = True
    """Whether the pods of a rollout are counted separately from those that they replace."""
    fabric_key: LabelKey | None = None
    """The node label of the network fabric in which a gang runs; without it gangs are not packed."""
    fabric: Literal["Preferred", "Required"] = "Preferred"
    """Whether a gang's pods prefer one fabric, or require it."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        keys = [topology.key for topology in self.over]
        if len(set(keys)) < len(keys):
            message = "over: a topology stands there twice"
            raise ValueError(message)
        return self


def mutate(workload: Workload, params: SpreadParams, snapshot: ClusterSnapshot) -> Iterator[Edit]:
    """Spread replicas, and pack gangs."""
    if workload.is_pod():
        return
    for pods in replicated_pod_sets(workload, params):
        selector = selector_of(workload, pods)
        if selector is not None:
            topologies = missing_topologies(pods, params, snapshot)
            yield from (_spread(pods, topology, selector, params) for topology, obstacle in topologies if obstacle == "")
    key = params.fabric_key or ""
    for pods in gang_to_pack(workload, params):
        labels = gang_labels(workload, pods)
        if labels is not None and not is_placed(workload, pods, key, snapshot) and has_fabric(key, pods, snapshot):
            term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": key}
            yield _affinity(pods, "podAffinity", term, f"pod affinity over {key}", required=params.fabric == "Required")


def replicated_pod_sets(workload: Workload, params: SpreadParams) -> list[PodSet]:
    """Return the pod sets whose replicas the rule spreads."""
    if params.by == "Nothing":
        return []
    pod_sets = [pods for pods in workload.templated_gpu_pod_sets() if _has_replicas(workload, pods)]
    return [] if pod_sets and gang_of(workload) is not None else pod_sets


def _has_replicas(workload: Workload, pods: PodSet) -> bool:
    """Return whether the pods are several replicas of one kind, or an autoscaler sets their number."""
    if pods.kind.revision_label is None:
        return False
    path = (*pods.path[:-1], "replicas")
    replicas = integer_at(workload.root, path)
    return replicas is None or replicas > 1 or (replicas == 1 and is_user_set(workload.root, path) is False)


def selector_of(workload: Workload, pods: PodSet) -> Object | None:
    """Return the label selector of the pods' controller; None if it is empty or absent."""
    path = (*pods.path[:-1], "selector")
    selector = lookup(workload.root, path)
    if type(selector) is not dict:
        return None
    parts = {
        "matchLabels": mapping(selector, "matchLabels", path),
        "matchExpressions": mappings(selector, "matchExpressions", path),
    }
    return {field: value for field, value in parts.items() if value} or None


def missing_topologies(pods: PodSet, params: SpreadParams, snapshot: ClusterSnapshot) -> list[tuple[TopologyParam, str | None]]:
    """Return the topologies that the pods do not mention, each with the obstacle to writing it.

    The obstacle is in words: empty if there is none, None if it is unknown.
    """
    mentioned = _mentioned_topologies(pods)
    topologies = [topology for topology in params.over or _HOSTS_AND_ZONES if topology.key not in mentioned]
    return [(topology, _obstacle(topology, pods, params, snapshot)) for topology in topologies]


def _mentioned_topologies(pods: PodSet) -> set[str]:
    """Return the topology keys of the pods' spread constraints and pod affinity."""
    terms = list(mappings(pods.spec, "topologySpreadConstraints", pods.field()))
    affinity = mapping(pods.spec, "affinity", pods.field())
    for kind in ("podAffinity", "podAntiAffinity"):
        path = pods.field("affinity", kind)
        kind_terms = mapping(affinity, kind, path[:-1])
        terms += mappings(kind_terms, REQUIRED_AFFINITY, path)
        preferred = mappings(kind_terms, PREFERRED_AFFINITY, path)
        terms += [mapping(weighted, "podAffinityTerm", (*path, PREFERRED_AFFINITY)) for weighted in preferred]
    return {str(term.get("topologyKey")) for term in terms}


def known_domains(key: str, pods: PodSet, snapshot: ClusterSnapshot) -> int | None:
    """Return how many domains of label ``key`` the pods may run in; None if the nodes are unknown."""
    candidates = node_candidates(pods, snapshot)
    shapes = open_shapes(pods, candidates)
    if snapshot.sync_state("nodes") is not SyncState.SYNCED or not shapes:
        return None
    if key != HOSTNAME and any(None in shape.labels.get(key, {None}) for shape in shapes):
        return 0
    return sum(domain.number for domain in domains_by(key, pods, shapes, candidates))


def _obstacle(topology: TopologyParam, pods: PodSet, params: SpreadParams, snapshot: ClusterSnapshot) -> str | None:
    domains = known_domains(topology.key, pods, snapshot)
    if topology.key != HOSTNAME and not domains:
        # If the nodes are unknown, only the host's label is certain.
        return None if domains is None else "some of the nodes that the pods may run on lack this label"
    if domains is None or not topology.is_hard:
        return ""
    anti_affinity = params.by == "AntiAffinity"
    limited = anti_affinity or domains < (topology.min_domains or 1)
    replicas, most = pods.count or 0, domains * (1 if anti_affinity else topology.max_skew)
    if limited and replicas > most:
        return f"the present nodes could hold {most} of the {replicas} replicas: {most} < {replicas}"
    return ""


def _spread(pods: PodSet, topology: TopologyParam, selector: Object, params: SpreadParams) -> Edit:
    key = pods.kind.revision_label
    selected = {*selector.get("matchLabels", ()), *(str(part.get("key")) for part in selector.get("matchExpressions", ()))}
    # The API rejects matchLabelKeys that the selector contains.
    revision = {"matchLabelKeys": [key]} if params.within_revision and key and key not in selected else {}
    if params.by == "AntiAffinity":
        term = {"labelSelector": selector, "topologyKey": topology.key, **revision}
        return _affinity(pods, "podAntiAffinity", term, f"pod anti-affinity over {topology.key}", required=topology.is_hard)
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
    path = pods.field("affinity", kind)
    if required:
        return Edit("append", (*path, REQUIRED_AFFINITY), term, note)
    return Edit("append", (*path, PREFERRED_AFFINITY), {"weight": 100, "podAffinityTerm": term}, note)


def gang_to_pack(workload: Workload, params: SpreadParams) -> Sequence[PodSet]:
    """Return the pod sets of the gang that runs within one fabric; none if the object is no gang or part of another object."""
    if params.fabric_key is None or workload.is_pod() or workload.controller() is not None or not workload.is_batch:
        return ()
    gang = gang_of(workload)
    return gang.parts if gang is not None and gang.size > 1 else ()


def is_placed(workload: Workload, pods: PodSet, key: str, snapshot: ClusterSnapshot) -> bool:
    """Return whether the user, a scheduler or a controller decides already how close together the pods run."""
    if not pods.is_whole:
        return True
    affinity = mapping(pods.spec, "affinity", pods.field())
    if affinity.get("podAffinity") or affinity.get("podAntiAffinity") or key in _mentioned_topologies(pods):
        return True
    owner = workload.owner_path(pods)
    holders: list[Any] = [pods.annotations(), lookup(workload.root, (*owner, "metadata", "annotations"))]
    if pods.kind.has_child_jobs:
        holders.append(lookup(workload.root, (*pods.path[:-2], "metadata", "annotations")))
    if any(type(annotations) is dict and not annotations.keys().isdisjoint(_PLACED_BY) for annotations in holders):
        return True
    if pods.kind.topology is not None and lookup(workload.root, (*owner, *pods.kind.topology)) is not None:
        return True
    # Kueue assigns the nodes of all pods of a queue with a flavor that has a Topology, with or without annotations.
    queue = cluster_queue_of(workload, snapshot)
    flavors = () if queue is None else (snapshot.flavors.get(name) for group in queue.groups for name, _ in group.flavors)
    return any(flavor is not None and bool(flavor.topology) for flavor in flavors)


def gang_labels(workload: Workload, pods: PodSet) -> Mapping[str, str] | None:
    """Return labels that only the pods of one run of the job have; None if they are unknown in advance.

    A CronJob's Jobs and a RayJob's cluster get generated names.
    """
    key = pods.kind.pod_label
    name = lookup(workload.root, (*workload.owner_path(pods), "metadata", "name"))
    return {key: name} if key and type(name) is str and 0 < len(name) <= LONGEST_LABEL else None


def has_fabric(key: str, pods: PodSet, snapshot: ClusterSnapshot) -> bool:
    """Return whether a node that the pods may run on has the label ``key``, as far as nodes are known."""
    shapes = open_shapes(pods, node_candidates(pods, snapshot))
    return snapshot.sync_state("nodes") is not SyncState.SYNCED or not shapes or any(shape.carriers(key) for shape in shapes)
