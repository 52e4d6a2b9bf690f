"""Edits of the rule `numa`."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.kube.fields import mapping, mappings
from gpugate.policies.kube.memo import remember
from gpugate.policies.kube.names import PREFERRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.rules.resources.numa.guaranteed_qos import NodeLabel, NumaParams, check_bounds, raise_to, raised
from gpugate.policies.scheduling.node_selection import NodeCandidates, node_candidates
from gpugate.policies.scheduling.pods_per_node import shapes_in_reach
from gpugate.policies.workloads.metadata import pod_selector
from gpugate.policies.workloads.node_affinity import node_affinity, require, required_terms
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


class _Plan(NamedTuple):
    """Whether candidate nodes may have the label of aligned nodes, and whether one has the topology key."""

    params: NumaParams
    aligns: bool
    spreads: bool


def _plan_for(chosen: NodeCandidates, params: NumaParams, snapshot: ClusterSnapshot) -> _Plan:
    """Return the plan for the candidate nodes."""
    plan: _Plan | None = chosen.memo.get("numa")
    if plan is None or plan.params is not params:
        label, shapes = params.aligned_nodes, chosen.large_enough
        aligns = label is not None and (
            snapshot.sync_state("nodes") is not SyncState.SYNCED
            or any(label.value in shape.labels.get(label.key, ()) for shape in shapes)
        )
        plan = _Plan(params, aligns, any(params.topology_key in shape.labels for shape in shapes))
        remember(chosen.memo, "numa", plan)
    return plan


def _align(pods: PodSet, label: NodeLabel, params: NumaParams) -> Iterable[Edit]:
    if ("nodeSelector" in pods.spec or "affinity" in pods.spec) and _already_bound(pods, label.key):
        return ()
    expression = {"key": label.key, "operator": "In", "values": [label.value]}
    note = f"node affinity {label.key}={label.value}"
    if params.affinity == "Required":
        return require(pods, [(expression,)], note)
    term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return (Edit("append", pods.field("affinity", "nodeAffinity", PREFERRED_AFFINITY), term, note),)


def _already_bound(pods: PodSet, key: str) -> bool:
    if key in mapping(pods.spec, "nodeSelector", pods.field()):
        return True
    path = pods.field("affinity", "nodeAffinity")
    terms = required_terms(pods)
    terms += [mapping(term, "preference", path) for term in mappings(node_affinity(pods), PREFERRED_AFFINITY, path)]
    return any(expression.get("key") == key for term in terms for expression in mappings(term, "matchExpressions", path))


def _spread(workload: Workload, pods: PodSet, params: NumaParams) -> Iterator[Edit]:
    selector = pod_selector(workload, pods)
    if selector is None:
        return
    place, constraints = pods.field("topologySpreadConstraints"), mappings(pods.spec, "topologySpreadConstraints", pods.field())
    for at, constraint in enumerate(constraints):
        if constraint.get("topologyKey") == params.topology_key and constraint.get("labelSelector") is None:
            note = f"label selector of the spread over {params.topology_key}"
            yield Edit("set", (*place, at, "labelSelector"), selector, note)
    if all(constraint.get("topologyKey") != params.topology_key for constraint in constraints):
        constraint = {
            "maxSkew": 1,
            "topologyKey": params.topology_key,
            "whenUnsatisfiable": params.when_unsatisfiable,
            "labelSelector": selector,
        }
        yield Edit("append", place, constraint, f"spread over {params.topology_key}")


def _environment(pods: PodSet, params: NumaParams) -> Iterator[Edit]:
    variables = dict(sorted(params.nccl_env.items()))
    if params.nccl_topo_file:
        variables["NCCL_TOPO_FILE"] = params.nccl_topo_file
    for container in pods.holders():
        for name, value in variables.items():
            if container.env(name) is None:
                yield Edit("append", (*container.path, "env"), {"name": name, "value": value}, f"{name} in {container.name}")


def mutate(workload: Workload, params: NumaParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Make the pods Guaranteed, and send them to nodes that align."""
    edits: list[Edit] = []
    for pods in workload.gpu_pod_sets():
        chosen = node_candidates(pods, snapshot)
        if chosen.shared_only or not pods.whole_devices():
            continue
        plan = _plan_for(chosen, params, snapshot)
        shapes = shapes_in_reach(pods, chosen)
        targets = raised(workload, pods, chosen, shapes, params)
        if targets and check_bounds(workload, pods, targets, shapes, snapshot) is None:
            edits += raise_to(pods, targets)
        if plan.aligns and params.aligned_nodes is not None:
            edits += _align(pods, params.aligned_nodes, params)
        if plan.spreads:
            edits += _spread(workload, pods, params)
        if params.nccl_env or params.nccl_topo_file:
            edits += _environment(pods, params)
    return edits
