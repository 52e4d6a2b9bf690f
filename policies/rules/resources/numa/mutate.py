"""Edits of the rule `numa`."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.kube.fields import Object, Path, mapping, mappings
from gpugate.policies.kube.memo import remember
from gpugate.policies.kube.names import PREFERRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.rules.resources.numa.guaranteed_qos import Memo, not_raised, raise_to, raised
from gpugate.policies.rules.resources.numa.params import NodeLabel, NumaParams
from gpugate.policies.scheduling.node_selection import NodeCandidates, node_candidates
from gpugate.policies.workloads.metadata import pod_selector
from gpugate.policies.workloads.node_affinity import node_affinity, require, required_terms
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


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


def plan_for(chosen: NodeCandidates, params: NumaParams, snapshot: ClusterSnapshot) -> _Plan:
    """Return the plan for the candidate nodes, kept with them."""
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
        plan = plan_for(chosen, params, snapshot)
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
