"""GPU pods tolerate the taints that keep other pods off GPU nodes.

## What it does

Adds tolerations to pods that request an accelerator, and to no others: for the accelerator's own taint, for the taints in the
policy, and, if the nodes are known, for the accelerator taints of nodes that offer the accelerator (`sku=gpu`,
`node-role.kubernetes.io/gpu`). Tolerates `dedicated=gpu` only if every node that the pod may run on has it: there the taint
reserves nothing from pods that request the accelerator. Adds nothing for a taint that an existing toleration covers.

Never tolerates taints of maintenance, shutdown and node conditions: a policy that names one is invalid.

## Why

GPU nodes are tainted to keep CPU pods off; a GPU pod without the toleration stays Pending. The ExtendedResourceToleration plugin
of the API server, where it is enabled, knows neither a provider's own taints nor claims of dynamic resource allocation.

## Practice

- Basics guide, "Taints and Tolerations": GPU nodes are tainted, and only pods that request a GPU tolerate the taint.
- Orchestration guide, "Pod Scheduling Issues": taints are among the usual causes of pods that stay Pending.

## Example

Before: no `tolerations`. After:

```yaml
tolerations:
  - key: nvidia.com/gpu
    operator: Exists
    effect: NoSchedule
```
"""

from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import Field

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.accelerators import NVIDIA_GPU, taint_key
from gpugate.policies.kube.cel import MOST
from gpugate.policies.kube.memo import keep, recall
from gpugate.policies.kube.taints import dedicates_to_accelerators, is_never_tolerated, marks_accelerators
from gpugate.policies.patch import Edit
from gpugate.policies.rules.placement.tolerated_taints import TaintParam, ToleratedTaint, missing_tolerations
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS, NodeCandidates, node_candidates, tolerations_key
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


class TolerationsParams(Params):
    """Parameters of `tolerations`."""

    taints: Annotated[tuple[TaintParam, ...], Field(max_length=MOST)] = ()
    """Taints of this cluster's GPU nodes that every GPU pod tolerates."""
    from_nodes: bool = True
    """Whether pods tolerate accelerator taints of nodes that offer the accelerator, too."""


def _taints(pods: PodSet, params: TolerationsParams, candidates: NodeCandidates) -> Iterator[ToleratedTaint]:
    """Yield the taints that the pods must tolerate."""
    keys = {taint_key(name) for name in pods.accelerators()}
    if pods.gpu_claims:
        # All device classes that count as GPUs are NVIDIA's.
        keys.add(NVIDIA_GPU)
    yield from (ToleratedTaint(key, None, "NoSchedule") for key in sorted(keys))
    yield from (ToleratedTaint(taint.key, taint.value, taint.effect) for taint in params.taints)
    for taint in candidates.taints if params.from_nodes else ():
        if is_never_tolerated(taint.key, taint.value):
            continue
        if taint.key in keys:
            yield ToleratedTaint(taint.key, None, taint.effect)
        elif marks_accelerators(taint.key, taint.value) or (
            dedicates_to_accelerators(taint.key, taint.value) and all(taint in shape.taints for shape in candidates.matching)
        ):
            yield ToleratedTaint(*taint)


def _edits(pods: PodSet, params: TolerationsParams, candidates: NodeCandidates) -> tuple[Edit, ...]:
    written = tolerations_key(pods)
    key = None if written is None else (pods.totals, bool(pods.gpu_claims), pods.path, written)
    edits: tuple[Edit, ...] | None = recall(candidates.memo, "tolerations", key, params)
    if edits is None:
        edits = tuple(missing_tolerations(pods, _taints(pods, params, candidates)))
        keep(candidates.memo, "tolerations", key, edits, params)
    return edits


def mutate(workload: Workload, params: TolerationsParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Add the tolerations that are not covered yet."""
    return [edit for pods in workload.templated_gpu_pod_sets() for edit in _edits(pods, params, node_candidates(pods, snapshot))]


RULE = Rule(
    id="tolerations",
    title="GPU pods, and no others, tolerate the taints of GPU nodes",
    since="0.1.0",
    params=TolerationsParams,
    mutate=mutate,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS,
    writes=frozenset({"tolerations"}),
    documentation=__doc__,
    applied_at_pods=True,
)
