"""Pods that hold whole accelerators are made eligible for NUMA alignment and sent where nodes align.

## What it does

For pods that hold whole devices (no MIG slices, no time-sliced shares):

- Guaranteed quality of service: in every container, init containers and sidecars too, requests are raised to the limits and
  CPU to whole cores; a container with accelerators and no CPU gets its accelerators' share of the node, or the policy's
  figure. All of it or nothing: where one container has no limit that could be met, or Git or Kueue forbid a change, the pod
  stays as it is and the warning says which lines to commit. Nor is a pod raised off nodes that can hold it now, or beyond
  a LimitRange, a ResourceQuota or the quota of its Kueue queue that it keeps to as it is, its sister pods counted, or beyond
  what leaves a node's other accelerators usable, or a memory request by more than the policy's ratio.
- Where the policy names the label of nodes known to align, a node affinity for it, unless no node carries it.
- A topologySpreadConstraint on the policy's NUMA key, with a label selector for the workload's own pods, only where nodes
  carry that key (no stock component sets one: it takes one node object per NUMA domain).
- `NCCL_TOPO_FILE` and other NCCL settings that the policy states, where the container does not set them.

Refuses a pod that no NUMA zone holds on any node that it may land on, where the nodes' agents tell of their zones
(NodeResourceTopology) and the kubelets' policy is `single-numa-node`, or of which `restricted` kubelets could never place the
parts in the same zones; warns where that is so on some of these nodes. Only what is certain counts: devices whose places are
all known, and whole CPUs of Guaranteed pods.

Warns about a pod-level `spec.resources`, which makes the kubelet skip alignment.

## Why

The kubelet's Topology Manager aligns CPUs, memory and devices only for Guaranteed pods with whole CPUs. A pod across two
NUMA domains loses PCIe and memory bandwidth for its whole run. What a webhook can't do is set the kubelet's policy: nodes
must run `topologyManagerPolicy: single-numa-node` or `restricted`.

## Practice

- NUMA guide, "Topology-Aware GPU Scheduling for Multi-Node Training": a training pod's GPUs, CPUs and memory are in one NUMA
  domain, by the kubelet's Topology Manager.
- NUMA guide, "Topology-Aware GPU Scheduling for Multi-Node Training": NCCL is given a file with the topology, `NCCL_TOPO_FILE` by
  its right name.
- Orchestration guide, "Distributed Training Hangs": settings of NCCL, such as its debug log, are set for all jobs in one
  place.

## Example

Before: `limits: {cpu: 7500m, memory: 64Gi, nvidia.com/gpu: 1}`, `requests: {cpu: "4", memory: 32Gi}`. After:

```yaml
resources:
  limits:
    cpu: "8"
    memory: 64Gi
    nvidia.com/gpu: 1
  requests:
    cpu: "8"
    memory: 64Gi
```
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.framework.rule import Millicores, Params, Rule
from gpugate.policies.kube.cel import MOST, VARIABLE, CelRule, LabelKey, LabelValue
from gpugate.policies.kube.fields import Object, Path, mapping, mappings
from gpugate.policies.kube.memo import remember
from gpugate.policies.kube.names import PREFERRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.headroom import BOUNDING
from gpugate.policies.rules.resources.numa.guaranteed_qos import Memo, check_guaranteed, not_raised, raise_to, raised
from gpugate.policies.rules.resources.numa.zones import check_zones
from gpugate.policies.scheduling.node_selection import NodeCandidates, node_candidates
from gpugate.policies.workloads.metadata import pod_selector
from gpugate.policies.workloads.node_affinity import node_affinity, require, required_terms
from gpugate.policies.workloads.workload import PodSet, Workload

#: What guides spread over, as if nodes had it (kubernetes/kubernetes and Node Feature Discovery set no such label).
_STOCK_KEY: Final = "topology.kubernetes.io/NUMANode"


class NodeLabel(Params):
    """A node label."""

    key: LabelKey
    """The label's key."""
    value: LabelValue = "true"
    """The label's value."""


class NumaParams(Params):
    """Parameters of `numa`."""

    validations = (
        CelRule(
            f"!has(self.ncclEnv) || self.ncclEnv.all(name, name.matches('^({VARIABLE})$'))",
            "ncclEnv: a name is no environment variable's (letters, digits and _)",
        ),
    )

    guaranteed: bool = True
    """Whether pods are raised to Guaranteed quality of service with whole CPUs."""
    max_raise_ratio: Annotated[float, Field(ge=1)] = 2.0
    """How many times itself a memory request may be raised by; beyond that the limit is no statement of need."""
    max_share_ratio: Annotated[float, Field(ge=1)] = 2.0
    """How many times the fair share of its accelerators a pod may be raised to, lest it strand others of the node."""
    cpu_per_accelerator: Millicores = 4000
    """CPU given per accelerator, where a container states none and no nodes are known."""
    max_cpu_per_accelerator: Millicores = 16000
    """The most CPU given per accelerator from a node's share."""
    node_reserve: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Part of a node's allocatable CPU kept back when it is shared out among its accelerators."""
    aligned_nodes: NodeLabel | None = None
    """The label of nodes whose kubelets are known to align; no node affinity is added where this is left out."""
    no_zone_holds: Literal["Deny", "Warn"] = "Deny"
    """Whether a pod that no kubelet's Topology Manager could ever admit is refused, or only warned about."""
    affinity: Literal["Required", "Preferred"] = "Preferred"
    """Whether pods must go to such nodes or only prefer them; required, a gang larger than these nodes never starts."""
    topology_key: LabelKey = _STOCK_KEY
    """The node label that stands for one NUMA domain, in clusters with a node object per domain."""
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"
    """What the spread constraint does where it can't be met."""
    nccl_topo_file: str | None = None
    """Value of NCCL_TOPO_FILE in containers that hold accelerators."""
    nccl_env: Annotated[dict[str, str], Field(max_length=MOST)] = Field(default_factory=dict)
    """Other environment variables for NCCL in those containers."""

    @field_validator("nccl_env")
    @classmethod
    def _named(cls, found: dict[str, str]) -> dict[str, str]:
        for name in found:
            if not re.fullmatch(VARIABLE, name):
                message = f"{name!r:.60} is no name of an environment variable (letters, digits and _)"
                raise ValueError(message)
        return found


class _Plan:
    """What the rule works out for one selection of shapes and its parameters, remembered with the selection.

    Attributes:
        params: the parameters.
        aligns: whether node affinity to the aligned nodes makes sense.
        spreads: whether a shape carries the topology key.
        raises: what becomes of containers, by their totals.
    """

    __slots__ = ("aligns", "params", "raises", "spreads")

    def __init__(self, shapes: Sequence[NodeShape], params: NumaParams, snapshot: ClusterSnapshot) -> None:
        label = params.aligned_nodes
        self.params = params
        self.aligns = label is not None and (
            snapshot.sync_state("nodes") is not SyncState.SYNCED
            or any(label.value in shape.labels.get(label.key, ()) for shape in shapes)
        )
        self.spreads = any(params.topology_key in shape.labels for shape in shapes)
        self.raises: Memo = {}


def _plan(chosen: NodeCandidates, params: NumaParams, snapshot: ClusterSnapshot) -> _Plan:
    plan: _Plan | None = chosen.memo.get("numa")
    if plan is None or plan.params is not params:
        plan = _Plan(chosen.large_enough, params, snapshot)
        remember(chosen.memo, "numa", plan)
    return plan


def _align(pods: PodSet, label: NodeLabel, params: NumaParams) -> Iterable[Edit]:
    if ("nodeSelector" in pods.spec or "affinity" in pods.spec) and _already_bound(pods, label.key):
        return ()
    if params.affinity == "Required":
        expression = {"key": label.key, "operator": "In", "values": [label.value]}
        return require(pods, [(expression,)], f"node affinity {label.key}={label.value}")
    return (_prefer(pods.field("affinity", "nodeAffinity", PREFERRED_AFFINITY), label.key, label.value),)


@lru_cache(maxsize=64)
def _prefer(place: Path, key: str, value: str) -> Edit:
    expression = {"key": key, "operator": "In", "values": [value]}
    term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return Edit("append", place, term, f"node affinity {key}={value}")


def _already_bound(pods: PodSet, key: str) -> bool:
    if key in mapping(pods.spec, "nodeSelector", pods.field()):
        return True
    path = pods.field("affinity", "nodeAffinity")
    terms = required_terms(pods)
    terms += [mapping(one, "preference", path) for one in mappings(node_affinity(pods), PREFERRED_AFFINITY, path)]
    return any(one.get("key") == key for term in terms for one in mappings(term, "matchExpressions", path))


def _numa_constraints(pods: PodSet, params: NumaParams) -> Iterator[tuple[Path, Object]]:
    for at, one in enumerate(mappings(pods.spec, "topologySpreadConstraints", pods.field())):
        if one.get("topologyKey") == params.topology_key:
            yield pods.field("topologySpreadConstraints", at), one


def _spread(workload: Workload, pods: PodSet, params: NumaParams) -> Iterator[Edit]:
    selector = pod_selector(workload, pods)
    if selector is None:
        return
    present = list(_numa_constraints(pods, params))
    for path, constraint in present:
        if constraint.get("labelSelector") is None:
            yield Edit("set", (*path, "labelSelector"), selector, f"label selector of the spread over {params.topology_key}")
    if not present:
        constraint = {
            "maxSkew": 1,
            "topologyKey": params.topology_key,
            "whenUnsatisfiable": params.when_unsatisfiable,
            "labelSelector": selector,
        }
        yield Edit("append", pods.field("topologySpreadConstraints"), constraint, f"spread over {params.topology_key}")


def _environment(pods: PodSet, params: NumaParams) -> Iterator[Edit]:
    wanted = dict(sorted(params.nccl_env.items()))
    if params.nccl_topo_file:
        wanted["NCCL_TOPO_FILE"] = params.nccl_topo_file
    for container in pods.holders():
        for name, value in wanted.items():
            if container.env(name) is None:
                yield Edit("append", (*container.path, "env"), {"name": name, "value": value}, f"{name} in {container.name}")


def mutate(workload: Workload, params: NumaParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Make the pods Guaranteed, and send them to nodes that align."""
    found: list[Edit] = []
    for pods in workload.gpu_pod_sets():
        chosen = node_candidates(pods, snapshot)
        if chosen.shared_only or not pods.whole_devices():
            continue
        plan = _plan(chosen, params, snapshot)
        targets = raised(pods, chosen.large_enough, params, plan.raises)
        if targets and not not_raised(workload, pods, targets, chosen.large_enough, snapshot):
            found += raise_to(pods, targets)
        if plan.aligns and params.aligned_nodes is not None:
            found += _align(pods, params.aligned_nodes, params)
        if plan.spreads:
            found += _spread(workload, pods, params)
        if params.nccl_env or params.nccl_topo_file:
            found += _environment(pods, params)
    return found


def check(workload: Workload, params: NumaParams, snapshot: ClusterSnapshot) -> Iterable[Finding]:
    """Warn about what keeps the pods from being aligned."""
    found: list[Finding] = []
    for pods in workload.gpu_pod_sets():
        chosen = node_candidates(pods, snapshot)
        if chosen.matching:
            found += check_zones(workload, pods, chosen, snapshot, refuse=params.no_zone_holds == "Deny")
        if chosen.shared_only or not pods.whole_devices():
            continue
        if pods.spec.get("resources") or not pods.totals.is_guaranteed:
            targets = raised(pods, chosen.large_enough, params, _plan(chosen, params, snapshot).raises)
            # What can be raised has nothing wrong with itself: only a bound may keep it as it is.
            found += (
                not_raised(workload, pods, targets, chosen.large_enough, snapshot)
                if targets
                else check_guaranteed(pods, chosen.large_enough, params)
            )
    return found


RULE = Rule(
    id="numa",
    title="Pods that hold whole accelerators are eligible for NUMA alignment and go where nodes align",
    since="0.1.0",
    params=NumaParams,
    mutate=mutate,
    check=check,
    needs=BOUNDING | {"noderesourcetopologies", "nodes"},
    documentation=__doc__,
)
