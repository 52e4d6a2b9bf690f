"""Replicas that serve are spread over hosts and zones, and gangs that train are packed into one fabric.

## What it does

Gives Deployments, StatefulSets and ReplicaSets of their own, with more than one replica that asks for accelerators, a
topologySpreadConstraint for each topology of the policy, with the workload's own selector and, where there are revisions, with
`matchLabelKeys`, so that a rollout counts its new pods alone; or anti-affinity in its place. Where the number of replicas is
left to an autoscaler, there may be several. One replica is left alone.

Gives the pods of a gang that runs to completion affinity to each other over the policy's `fabricKey`, preferred or required.

Leaves alone what is stated: a topology that a constraint or an affinity of the pods names, and, in gangs, any affinity to pods.
A gang that Kueue, KAI, Volcano, JobSet or LeaderWorkerSet places by topology is theirs. So is one whose pods have no label of
their own beforehand: those of a CronJob, of a RayJob and of a Job without a name. A LeaderWorkerSet keeps its groups together by
its own annotation.

A topology other than the host's is written only where every node that the pods may land on carries its label: the scheduler
does not rank nodes that lack one of the labels, for any of the constraints. A hard requirement that the nodes there are could
not meet is not written, either; both are said.

## Why

Replicas on one host go down with it. The default scheduler prefers to spread what belongs to one controller, where nobody has
changed its configuration: what the template states holds under any configuration, and can be made a
requirement. A gang across two fabrics runs at the speed of what connects them.

With a required affinity the first pod decides: where its fabric has no room for all, the others wait, and a scheduler that
places pods one by one then holds what it has got. Preferred is the default.

## Practice

- Basics guide, "Inference Deployment": replicas are spread over GPU nodes, by a constraint that selects them.
- Orchestration guide, "GPU Affinity Rules": replicas land on different nodes by anti-affinity.
- Field guide, "Step 4 · Topology-aware scheduling": the pods of one training run share the fabric, by affinity on a label of the
  nodes.
- NUMA guide, "Node Affinity for GPU Topology": jobs that span nodes are placed by an explicit topology key.

## Example

Before: a Deployment of three replicas. After, on nodes without zones:

```yaml
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {app: ranker}}
    matchLabelKeys: [pod-template-hash]
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, Mode
from gpugate.policies.framework.rule import Params, Rule
from gpugate.policies.gangs.gang import Gang, gang_of
from gpugate.policies.kube.cel import CelRule, LabelKey
from gpugate.policies.kube.fields import Object
from gpugate.policies.kube.names import HOSTNAME, PREFERRED_AFFINITY, REQUIRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.rules.placement.spread.fabric import gang_labels, is_placed_by_others, states_affinity
from gpugate.policies.rules.placement.spread.replicas import has_replicas, placed_over, revision_keys, selector_of
from gpugate.policies.scheduling.node_selection import node_candidates, open_shapes
from gpugate.policies.scheduling.topology_domains import domains_by
from gpugate.policies.workloads.workload import PodSet, Workload


class TopologyParam(Params):
    """A label of nodes over whose values replicas are spread."""

    validations = (
        CelRule(
            "!has(self.minDomains) || (has(self.whenUnsatisfiable) && self.whenUnsatisfiable == 'DoNotSchedule')",
            "minDomains goes with whenUnsatisfiable DoNotSchedule alone",
        ),
    )

    key: LabelKey
    """The label's key."""
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"
    """Whether a pod that cannot be placed so is placed otherwise, or waits. With anti-affinity: preferred or required."""
    max_skew: Annotated[int, Field(ge=1, le=1000)] = 1
    """How many pods more one domain may have than another."""
    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many domains there must be before a second pod goes into one; with DoNotSchedule alone."""

    @model_validator(mode="after")
    def _waits_for_domains(self) -> TopologyParam:
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            message = "minDomains goes with whenUnsatisfiable DoNotSchedule alone"
            raise ValueError(message)
        return self

    @property
    def is_hard(self) -> bool:
        """Whether a pod waits rather than be placed otherwise."""
        return self.when_unsatisfiable == "DoNotSchedule"


_HOSTS_AND_ZONES: Final = (TopologyParam(key=HOSTNAME), TopologyParam(key="topology.kubernetes.io/zone"))


class SpreadParams(Params):
    """Parameters of `spread`."""

    validations = (
        CelRule(
            "!has(self.over) || self.over.all(a, self.over.exists_one(b, a.key == b.key))",
            "over: a topology stands there twice",
        ),
    )

    by: Literal["Constraints", "AntiAffinity", "Nothing"] = "Constraints"
    """How replicas are spread: by topologySpreadConstraints, by anti-affinity, or not at all."""
    over: Annotated[tuple[TopologyParam, ...], Field(max_length=8)] = ()
    """The topologies that replicas are spread over; hosts and zones, as preferences, where it is left out."""
    within_revision: bool = True
    """Whether the pods of a rollout are counted apart from those that they replace."""
    fabric_key: LabelKey | None = None
    """The label of nodes within whose values a gang is to run; gangs are left alone where it is not given."""
    fabric: Literal["Preferred", "Required"] = "Preferred"
    """Whether a gang's pods prefer one fabric, or run in no other."""

    @model_validator(mode="after")
    def _each_once(self) -> SpreadParams:
        keys = [one.key for one in self.over]
        if len(set(keys)) < len(keys):
            message = "over: a topology stands there twice"
            raise ValueError(message)
        return self


def _serving(workload: Workload, params: SpreadParams) -> list[PodSet]:
    """The pods whose replicas are to be spread."""
    if params.by == "Nothing":
        return []
    pod_sets = [pods for pods in workload.templated_gpu_pod_sets() if has_replicas(workload, pods)]
    return [] if pod_sets and gang_of(workload) is not None else pod_sets


def _known_domains(key: str, pods: PodSet, snapshot: ClusterSnapshot) -> int | None:
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
    domains = _known_domains(topology.key, pods, snapshot)
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


def _wanted(pods: PodSet, params: SpreadParams, snapshot: ClusterSnapshot) -> list[tuple[TopologyParam, str | None]]:
    """The topologies over which the pods state nothing, each with what keeps it from being written."""
    stated = placed_over(pods)
    return [(one, _obstacle(one, pods, params, snapshot)) for one in params.over or _HOSTS_AND_ZONES if one.key not in stated]


def mutate(workload: Workload, params: SpreadParams, snapshot: ClusterSnapshot) -> Iterator[Edit]:
    """Spread what serves, pack what trains."""
    if workload.is_pod():
        return
    for pods in _serving(workload, params):
        selector = selector_of(workload, pods)
        if selector is not None:
            wanted = _wanted(pods, params, snapshot)
            yield from (_spread(pods, topology, selector, params) for topology, obstacle in wanted if obstacle == "")
    gang = _packed(workload, params)
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


def _packed(workload: Workload, params: SpreadParams) -> Gang | None:
    """The gang that is to run within one fabric; None where there is none, or it is a part of something else."""
    if params.fabric_key is None or workload.is_pod() or workload.controller() is not None or not workload.is_batch:
        return None
    gang = gang_of(workload)
    return gang if gang is not None and gang.size > 1 else None


def _pack(workload: Workload, part: PodSet, params: SpreadParams, snapshot: ClusterSnapshot) -> Iterator[Edit]:
    labels, key = gang_labels(workload, part), params.fabric_key
    if labels is None or key is None or _is_left(workload, part, key, snapshot) or not _has_fabric(key, part, snapshot):
        return
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": key}
    yield _affinity(part, "podAffinity", term, f"together within {key}", required=params.fabric == "Required")


def _is_left(workload: Workload, part: PodSet, key: str, snapshot: ClusterSnapshot) -> bool:
    """Whether somebody has said already where the gang's pods go."""
    return not part.is_whole or states_affinity(part) or key in placed_over(part) or is_placed_by_others(workload, part, snapshot)


def _has_fabric(key: str, part: PodSet, snapshot: ClusterSnapshot) -> bool:
    """Whether some node that the pods may land on carries the label, as far as nodes are known."""
    shapes = open_shapes(part, node_candidates(part, snapshot))
    return snapshot.sync_state("nodes") is not SyncState.SYNCED or not shapes or any(shape.carriers(key) for shape in shapes)


def check(workload: Workload, params: SpreadParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Say what could not be spread or packed."""
    if workload.is_pod():
        return
    for pods in _serving(workload, params):
        wanted = _wanted(pods, params, snapshot)
        if wanted and selector_of(workload, pods) is None:
            yield _without_selector(pods)
            continue
        for topology, obstacle in wanted:
            if obstacle:
                yield Finding(
                    "NotSpread",
                    pods.field("topologySpreadConstraints"),
                    f"the replicas are not spread over {topology.key}: {obstacle}",
                    f"Label the nodes with {topology.key}, or leave it out of the policy."
                    if not _known_domains(topology.key, pods, snapshot)
                    else "Add nodes, or let the policy prefer it.",
                    Level.WARN,
                    rests_on=("nodes",),
                )
    gang = _packed(workload, params)
    for part in gang.parts if gang is not None else ():
        yield from _check_packing(workload, part, params.fabric_key or "", snapshot)


def _without_selector(pods: PodSet) -> Finding:
    return Finding(
        "SelectorMissing",
        (*pods.path[:-1], "selector"),
        "the workload has no selector, so that nothing tells its pods from others",
        "Write spec.selector, as the API asks for it.",
        Level.WARN,
    )


def _check_packing(workload: Workload, part: PodSet, key: str, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    if _is_left(workload, part, key, snapshot):
        return
    if gang_labels(workload, part) is None:
        yield Finding(
            "NotPacked",
            part.field("affinity"),
            f"the gang is not kept within one {key}: its pods get no label of their own that is known beforehand",
            f"Write podAffinity over {key} with a label of the pods, or leave it to the queue's topology.",
            Level.WARN,
        )
    elif not _has_fabric(key, part, snapshot):
        yield Finding(
            "FabricUnknown",
            part.field("affinity"),
            f"the gang is not kept within one {key}: no node that it may land on carries that label",
            f"Have the nodes labelled with {key}, or name in the policy a label that they carry.",
            Level.WARN,
            rests_on=("nodes",),
        )


RULE = Rule(
    id="spread",
    title="Replicas that serve are spread over hosts and zones, and gangs that train are packed into one fabric",
    since="0.1.0",
    params=SpreadParams,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes", "localqueues", "clusterqueues", "resourceflavors"}),
    documentation=__doc__,
    default_max_mode=Mode.DISABLED,
    default_mode_reason=(
        "Replicas of one GPU spread over hosts leave every node with a few GPUs taken, and no room for a gang of whole nodes."
    ),
)
