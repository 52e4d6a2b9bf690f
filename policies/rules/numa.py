"""Pods that hold whole accelerators are made eligible for NUMA alignment and sent where nodes align.

## What it does

For pods that hold whole devices (no MIG slices, no time-sliced shares):

- Guaranteed quality of service: in every container, init containers and sidecars too, requests are raised to the limits and
  CPU to whole cores; a container with accelerators and no CPU gets its accelerators' share of the node, or the policy's
  figure. All of it or nothing: where one container has no limit that could be met, or Git or Kueue forbid a change, the pod
  stays as it is and the warning says which lines to commit. Nor is a pod raised off nodes that can hold it now, or a memory
  request by more than the policy's ratio.
- Where the policy names the label of nodes known to align, a node affinity for it, unless no node carries it.
- A topologySpreadConstraint on the policy's NUMA key, with a label selector for the workload's own pods, only where nodes
  carry that key (no stock component sets one: it takes one node object per NUMA domain).
- `NCCL_TOPO_FILE` and other NCCL settings that the policy states, where the container does not set them.

Warns about a pod-level `spec.resources`, which makes the kubelet skip alignment, about a spread constraint that selects no
pods or names a key that no node carries, and about `NCCL_TOPOLOGY_FILE`, which NCCL does not read.

## Why

The kubelet's Topology Manager aligns CPUs, memory and devices only for Guaranteed pods with whole CPUs. A pod across two
NUMA domains loses PCIe and memory bandwidth for its whole run. What a webhook can't do is set the kubelet's policy: nodes
must run `topologyManagerPolicy: single-numa-node` or `restricted`.

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

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from gpugate.policies.container import EPHEMERAL, INIT, LONGEST_NAME, Container
from gpugate.policies.demand import demand_of
from gpugate.policies.edits import Edit
from gpugate.policies.facts import Facts, Known
from gpugate.policies.feasibility import Selection, remember, selection
from gpugate.policies.fields import Object, Path, dotted, lookup, mapping, mappings
from gpugate.policies.finding import Finding, Level
from gpugate.policies.kueue import uncovered
from gpugate.policies.nodes import Shape
from gpugate.policies.quantity import format_millicores
from gpugate.policies.rule import Millicores, Params, Rule
from gpugate.policies.shares import share_of
from gpugate.policies.totals import Totals
from gpugate.policies.workload import PodSet, Workload

#: What guides spread over, as if nodes had it (kubernetes/kubernetes and Node Feature Discovery set no such label).
_STOCK_KEY: Final = "topology.kubernetes.io/NUMANode"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class NodeLabel(Params):
    """A node label."""

    key: str
    """The label's key."""
    value: str = "true"
    """The label's value."""


class NumaParams(Params):
    """Parameters of `numa`."""

    guaranteed: bool = True
    """Whether pods are raised to Guaranteed quality of service with whole CPUs."""
    max_raise_ratio: Annotated[float, Field(ge=1)] = 2.0
    """How many times itself a memory request may be raised by; beyond that the limit is no statement of need."""
    cpu_per_accelerator: Millicores = 4000
    """CPU given per accelerator, where a container states none and no nodes are known."""
    max_cpu_per_accelerator: Millicores = 16000
    """The most CPU given per accelerator from a node's share."""
    node_reserve: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Part of a node's allocatable CPU kept back when it is shared out among its accelerators."""
    aligned_nodes: NodeLabel | None = None
    """The label of nodes whose kubelets are known to align; no node affinity is added where this is left out."""
    affinity: Literal["Required", "Preferred"] = "Preferred"
    """Whether pods must go to such nodes or only prefer them; required, a gang larger than these nodes never starts."""
    topology_key: str = _STOCK_KEY
    """The node label that stands for one NUMA domain, in clusters with a node object per domain."""
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"
    """What the spread constraint does where it can't be met."""
    nccl_topo_file: str | None = None
    """Value of NCCL_TOPO_FILE in containers that hold accelerators."""
    nccl_env: dict[str, str] = Field(default_factory=dict)
    """Other environment variables for NCCL in those containers."""


class _Plan:
    """What the rule works out for one selection of shapes and its parameters, remembered with the selection.

    Attributes:
        params: the parameters.
        aligns: whether node affinity to the aligned nodes makes sense.
        spreads: whether a shape carries the topology key.
        raises: what becomes of containers, by their totals.
    """

    __slots__ = ("aligns", "params", "raises", "spreads")

    def __init__(self, shapes: Sequence[Shape], params: NumaParams, facts: Facts) -> None:
        label = params.aligned_nodes
        self.params = params
        self.aligns = label is not None and (
            facts.state("nodes") is not Known.SYNCED or any(label.value in shape.labels.get(label.key, ()) for shape in shapes)
        )
        self.spreads = any(params.topology_key in shape.labels for shape in shapes)
        self.raises: dict[Totals, tuple[_Target, ...]] = {}


def _plan(chosen: Selection, params: NumaParams, facts: Facts) -> _Plan:
    plan: _Plan | None = chosen.memo.get("numa")
    if plan is None or plan.params is not params:
        plan = _Plan(chosen.roomy, params, facts)
        remember(chosen.memo, "numa", plan)
    return plan


def _whole_cores(amount: int) -> int:
    return -(-amount // 1000) * 1000


class _Target(NamedTuple):
    """What one container's resources are, and what they become under Guaranteed quality of service."""

    at: int
    role: str
    cpu: int
    memory: int
    cpu_limit: int | None
    cpu_request: int | None
    memory_request: int | None

    @property
    def is_met(self) -> bool:
        """Whether nothing is left to raise; a request that is not stated is the limit."""
        return (
            self.cpu_limit == self.cpu
            and (self.cpu_request is None or self.cpu_request == self.cpu)
            and (self.memory_request is None or self.memory_request == self.memory)
        )


def _cpu_share(pods: PodSet, container: Container, shapes: Sequence[Shape], params: NumaParams) -> int:
    """Millicores that belong to the container's accelerators; zero where it asks for none."""
    total = len(pods.gpu_claims.intersection(container.claims())) * params.cpu_per_accelerator
    for name, count in container.accelerators().items():
        share = share_of([shape for shape in shapes if name in shape.devices], name, params.node_reserve)
        each = params.cpu_per_accelerator if share is None else max(1000, min(share.cpu, params.max_cpu_per_accelerator))
        total += count * each
    return total


def _targets(pods: PodSet, shapes: Sequence[Shape], params: NumaParams) -> tuple[list[_Target], list[str]]:
    """What each container becomes, or else what is missing for it, in words."""
    targets: list[_Target] = []
    missing: list[str] = []
    for at, container in enumerate(pods.containers):
        if container.role is EPHEMERAL:
            continue
        memory, memory_request, cpu_limit, cpu_request = container.amounts
        cpu = cpu_limit
        if cpu is None and pods.holds(container):
            cpu = cpu_request or _cpu_share(pods, container, shapes, params)
        if cpu and memory:
            targets.append(_Target(at, container.role, _whole_cores(cpu), memory, cpu_limit, cpu_request, memory_request))
        else:
            lacking = " and ".join(name for name, amount in (("cpu", cpu), ("memory", memory)) if not amount)
            missing.append(f"{container.role} {container.name} has no limit for {lacking}")
    return targets, missing


def _keeps_shapes(pods: PodSet, targets: list[_Target], shapes: Sequence[Shape]) -> bool:
    """Whether every shape that can hold the pod as it is could hold it raised, too."""
    demand = demand_of(pods)
    running = [target for target in targets if target.role != INIT]
    memory = max(demand.memory, sum(target.memory for target in running))
    cpu = max(demand.cpu, sum(target.cpu for target in running))
    return all(
        memory <= shape.memory and cpu <= shape.cpu for shape in shapes if demand.memory <= shape.memory and demand.cpu <= shape.cpu
    )


def _overcommitted(targets: list[_Target], params: NumaParams) -> _Target | None:
    """A container whose memory request would be raised by more than the policy lets it."""
    for target in targets:
        request = target.memory_request
        if request is not None and target.memory > request * params.max_raise_ratio:
            return target
    return None


def _raised(pods: PodSet, shapes: Sequence[Shape], plan: _Plan) -> tuple[_Target, ...]:
    """The containers that are raised, and to what."""
    spec = pods.spec
    if pods.totals.is_guaranteed or not plan.params.guaranteed or spec.get("resources"):
        return ()
    if pods.gpu_claims or "overhead" in spec:
        # These weigh in, too: not to be told from the totals alone.
        return _raisable(pods, shapes, plan.params)
    found = plan.raises.get(pods.totals)
    if found is None:
        found = _raisable(pods, shapes, plan.params)
        remember(plan.raises, pods.totals, found)
    return found


def _raisable(pods: PodSet, shapes: Sequence[Shape], params: NumaParams) -> tuple[_Target, ...]:
    targets, missing = _targets(pods, shapes, params)
    if missing or all(target.is_met for target in targets):
        return ()
    if _overcommitted(targets, params) or not _keeps_shapes(pods, targets, shapes):
        return ()
    return tuple(target for target in targets if not target.is_met)


def _asks_beyond_quota(targets: Sequence[_Target], lacking: frozenset[str]) -> bool:
    """Whether CPU is put in where none was, in a queue whose quota covers none: Kueue would never admit that."""
    return "cpu" in lacking and any(target.cpu_limit is None and target.cpu_request is None for target in targets)


def _raise(pods: PodSet, targets: Sequence[_Target]) -> list[Edit]:
    found: list[Edit] = []
    for target in targets:
        container = pods.containers[target.at]
        # As the limit is written: the apiserver keeps 64G as it is, and what is recorded must be what it keeps.
        make = _raise_container if len(container.name) <= LONGEST_NAME else _raise_container.__wrapped__
        found += make(target, container.raw("limits", "memory"), container.name, container.path, pods.path)
    return found


@lru_cache(maxsize=256, typed=True)
def _raise_container(target: _Target, memory: object, name: str, path: Path, pods: Path) -> tuple[Edit, ...]:
    """The edits that raise one container; those of one team's workloads are much alike."""
    cpu, group = format_millicores(target.cpu), f"guaranteed {dotted(pods)}"
    found: list[tuple[Path, object]] = []
    if target.cpu_limit != target.cpu:
        found.append(((*path, "resources", "limits", "cpu"), cpu))
    if target.cpu_request is not None and target.cpu_request != target.cpu:
        found.append(((*path, "resources", "requests", "cpu"), cpu))
    if target.memory_request is not None and target.memory_request != target.memory:
        found.append(((*path, "resources", "requests", "memory"), memory))
    note = f"{name} made Guaranteed: cpu {cpu}, memory {memory}"
    return tuple(Edit("set", place, value, "" if at else note, group) for at, (place, value) in enumerate(found))


def _align(pods: PodSet, label: NodeLabel, params: NumaParams) -> Iterator[Edit]:
    if ("nodeSelector" in pods.spec or "affinity" in pods.spec) and _already_bound(pods, label.key):
        return
    required = params.affinity == "Required"
    place = pods.field("affinity", "nodeAffinity", _REQUIRED if required else _PREFERRED)
    if not required:
        yield _prefer(place, label.key, label.value)
        return
    expression = {"key": label.key, "operator": "In", "values": [label.value]}
    note = f"node affinity {label.key}={label.value}"
    terms = lookup(pods.root, (*place[len(pods.path) :], "nodeSelectorTerms"))
    if not terms:
        yield Edit("set", place, {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}, note)
        return
    for at in range(len(terms)):
        # Terms are alternatives: each must ask for the label, or the pod could pass by another.
        yield Edit("append", (*place, "nodeSelectorTerms", at, "matchExpressions"), expression, note, "affinity")
        note = ""


@lru_cache(maxsize=64)
def _prefer(place: Path, key: str, value: str) -> Edit:
    expression = {"key": key, "operator": "In", "values": [value]}
    term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return Edit("append", place, term, f"node affinity {key}={value}")


def _already_bound(pods: PodSet, key: str) -> bool:
    if key in mapping(pods.spec, "nodeSelector", pods.field()):
        return True
    affinity = mapping(pods.spec, "affinity", pods.field())
    node = mapping(affinity, "nodeAffinity", pods.field("affinity"))
    path = pods.field("affinity", "nodeAffinity")
    terms = list(mappings(mapping(node, _REQUIRED, path), "nodeSelectorTerms", path))
    terms += [mapping(one, "preference", path) for one in mappings(node, _PREFERRED, path)]
    return any(one.get("key") == key for term in terms for one in mappings(term, "matchExpressions", path))


def _own_selector(workload: Workload, pods: PodSet) -> Object | None:
    """A label selector for the pods of this workload; None where they carry nothing to tell them by."""
    if workload.kind.kind == "Job" and workload.name:
        return {"matchLabels": {"batch.kubernetes.io/job-name": workload.name}}
    selector = mapping(mapping(workload.root, "spec", ()), "selector", ("spec",))
    if workload.kind.group == "apps" and selector.get("matchLabels"):
        return {"matchLabels": dict(mapping(selector, "matchLabels", ("spec", "selector")))}
    labels = pods.labels()
    for key in ("batch.kubernetes.io/job-name", "app.kubernetes.io/name", "app"):
        if key in labels:
            return {"matchLabels": {key: labels[key]}}
    return None


def _numa_constraints(pods: PodSet, params: NumaParams) -> Iterator[tuple[Path, Object]]:
    for at, one in enumerate(mappings(pods.spec, "topologySpreadConstraints", pods.field())):
        if one.get("topologyKey") == params.topology_key:
            yield pods.field("topologySpreadConstraints", at), one


def _spread(workload: Workload, pods: PodSet, params: NumaParams) -> Iterator[Edit]:
    selector = _own_selector(workload, pods)
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


def mutate(workload: Workload, params: NumaParams, facts: Facts) -> Iterable[Edit]:
    """Make the pods Guaranteed, and send them to nodes that align."""
    found: list[Edit] = []
    for pods in workload.asking():
        chosen = selection(pods, facts)
        if chosen.shared_only or not pods.whole_devices():
            continue
        plan = _plan(chosen, params, facts)
        raised = _raised(pods, chosen.roomy, plan)
        if raised and not _asks_beyond_quota(raised, uncovered(workload, facts)):
            found += _raise(pods, raised)
        if plan.aligns and params.aligned_nodes is not None:
            found += _align(pods, params.aligned_nodes, params)
        if plan.spreads:
            found += _spread(workload, pods, params)
        if params.nccl_env or params.nccl_topo_file:
            found += _environment(pods, params)
    return found


def check(workload: Workload, params: NumaParams, facts: Facts) -> Iterable[Finding]:
    """Warn about what keeps the pods from being aligned."""
    found: list[Finding] = []
    for pods in workload.asking():
        chosen = selection(pods, facts)
        if chosen.shared_only or not pods.whole_devices():
            continue
        if pods.spec.get("resources") or not pods.totals.is_guaranteed:
            found += _check_guaranteed(pods, chosen.roomy, params)
            if _asks_beyond_quota(_raised(pods, chosen.roomy, _plan(chosen, params, facts)), uncovered(workload, facts)):
                found.append(_quota_without_cpu(pods))
        if "topologySpreadConstraints" in pods.spec:
            found += _check_constraints(pods, chosen.roomy, params, facts)
        for container in pods.holders():
            if "env" in container.spec and container.env("NCCL_TOPOLOGY_FILE") is not None:
                found.append(_wrong_variable(container))
    return found


def _quota_without_cpu(pods: PodSet) -> Finding:
    return Finding(
        "QueueDoesNotCover",
        pods.field("containers"),
        "the pod states no CPU, and none is put in: its queue's quota covers none, so Kueue would never admit a workload that"
        " asks for some; the pod is not Guaranteed and the kubelet aligns nothing",
        "Have cpu covered by the ClusterQueue, or left out of Kueue's accounting by excludeResourcePrefixes.",
        Level.WARN,
    )


def _wrong_variable(container: Container) -> Finding:
    return Finding(
        "WrongVariable",
        (*container.path, "env"),
        f"{container.name} sets NCCL_TOPOLOGY_FILE, which NCCL does not read",
        "Write NCCL_TOPO_FILE instead of NCCL_TOPOLOGY_FILE.",
        Level.WARN,
    )


def _check_guaranteed(pods: PodSet, shapes: Sequence[Shape], params: NumaParams) -> Iterator[Finding]:
    if pods.spec.get("resources"):
        yield Finding(
            "PodLevelResources",
            pods.field("resources"),
            "pod-level resources make the kubelet skip NUMA alignment for the pod",
            "State the resources of each container instead of spec.resources.",
            Level.WARN,
        )
        return
    if not params.guaranteed:
        return
    targets, missing = _targets(pods, shapes, params)
    if missing:
        yield Finding(
            "NotGuaranteed",
            pods.field("containers"),
            f"the pod is not Guaranteed and the kubelet aligns nothing: {'; '.join(missing)}",
            "Write limits for cpu (whole cores) and memory in every container.",
            Level.WARN,
        )
        return
    if all(target.is_met for target in targets):
        return
    wide = _overcommitted(targets, params)
    if wide is not None:
        container = pods.containers[wide.at]
        yield Finding(
            "RaisedTooFar",
            container.place("requests", "memory"),
            f"the memory limit of {container.name} is more than {params.max_raise_ratio:g} times its request: the request is not"
            " raised to it, and the kubelet aligns nothing",
            "Write the memory that the container needs as both request and limit.",
            Level.WARN,
        )
    elif not _keeps_shapes(pods, targets, shapes):
        yield Finding(
            "RaisedWouldNotFit",
            pods.field("containers"),
            "with requests raised to the limits the pod would no longer fit nodes that can hold it now, so it stays Burstable"
            " and the kubelet aligns nothing",
            "Lower the limits to what the pod really needs, or select the nodes that are large enough.",
            Level.WARN,
        )


def _check_constraints(pods: PodSet, shapes: Sequence[Shape], params: NumaParams, facts: Facts) -> Iterator[Finding]:
    for path, constraint in _numa_constraints(pods, params):
        if constraint.get("labelSelector") is None:
            yield Finding(
                "SelectsNoPods",
                path,
                f"the spread over {params.topology_key} has no labelSelector: it counts no pods and spreads none",
                "Write a labelSelector that matches the workload's own pods.",
                Level.WARN,
            )
        if facts.state("nodes") is not Known.SYNCED and params.topology_key == _STOCK_KEY:
            yield Finding(
                "KeyOnNoNode",
                path,
                f"no stock component puts {_STOCK_KEY} on nodes, and the nodes are not known here: where none carries it,"
                " DoNotSchedule leaves the pod Pending",
                "Remove the constraint; alignment is the work of the kubelet's Topology Manager.",
                Level.WARN,
            )
        elif facts.state("nodes") is Known.SYNCED and not any(params.topology_key in shape.labels for shape in shapes):
            waits = constraint.get("whenUnsatisfiable") != "ScheduleAnyway"
            yield Finding(
                "KeyOnNoNode",
                path,
                f"no node that offers the accelerators carries {params.topology_key}"
                f"{': the pod would stay Pending' if waits else ': the constraint does nothing'}",
                "Remove the constraint; alignment is the work of the kubelet's Topology Manager.",
                Level.WARN,
            )


RULE = Rule(
    id="numa",
    title="Pods that hold whole accelerators are eligible for NUMA alignment and go where nodes align",
    since="0.1.0",
    params=NumaParams,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    documentation=__doc__,
)
