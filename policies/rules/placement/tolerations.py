"""Accelerator pods tolerate the taints that keep everyone else off accelerator nodes.

## What it does

Adds to pods that ask for an accelerator, and to no others, a toleration for the accelerator's own taint, for the taints that
the policy names, and, where nodes are known, for the accelerator taints found on nodes that offer the accelerator
(`sku=gpu`, `node-role.kubernetes.io/gpu`); `dedicated=gpu` only where every node that the pod may land on has it, since
there it reserves nothing from anybody who asks for the accelerator. A taint that an existing toleration covers in whatever
words gets none.

Taints of maintenance, shutdown and node conditions are never tolerated, whoever puts them in: a policy that names one is
refused.

## Why

GPU nodes are tainted so that CPU pods stay away; a GPU pod without the toleration stays Pending. The apiserver's
ExtendedResourceToleration plugin, where it is on at all, knows neither a provider's own taints nor claims for dynamic
resource allocation.

## Practice

- Basics guide, "Taints and Tolerations": GPU nodes are tainted, and only pods that ask for a GPU tolerate the taint.
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

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from gpugate.policies.cluster.records.common import Taint
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.accelerators import NVIDIA_GPU, taint_key
from gpugate.policies.kube.cel import MOST
from gpugate.policies.kube.fields import mappings
from gpugate.policies.kube.memo import remember
from gpugate.policies.kube.taints import dedicates_to_accelerators, is_never_tolerated, marks_accelerators
from gpugate.policies.patch import Edit
from gpugate.policies.rules.placement.toleration_params import TaintParam, WantedToleration, covers, want
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS, NodeCandidates, node_candidates
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.resources import memo_key
from gpugate.policies.workloads.workload import Workload


class TolerationsParams(Params):
    """Parameters of `tolerations`."""

    taints: Annotated[tuple[TaintParam, ...], Field(max_length=MOST)] = ()
    """Taints of this cluster's accelerator nodes, tolerated by every accelerator pod."""
    from_nodes: bool = True
    """Whether accelerator taints found on nodes that offer the accelerator are tolerated, too."""


def _dedicates_all(taint: Taint, chosen: NodeCandidates) -> bool:
    return dedicates_to_accelerators(taint.key, taint.value) and all(taint in shape.taints for shape in chosen.matching)


def _wanted(pods: PodSet, params: TolerationsParams, chosen: NodeCandidates) -> tuple[WantedToleration, ...]:
    """What the pods must tolerate."""
    keys = {taint_key(name) for name in pods.accelerators()}
    if pods.gpu_claims:
        # Device classes that count as GPUs are all of one maker.
        keys.add(NVIDIA_GPU)
    found = [want(key, None, "NoSchedule") for key in sorted(keys)]
    found += [want(taint.key, taint.value, taint.effect) for taint in params.taints]
    for taint in chosen.taints if params.from_nodes else ():
        if is_never_tolerated(taint.key, taint.value):
            continue
        if taint.key in keys:
            found.append(want(taint.key, None, taint.effect))
        elif marks_accelerators(taint.key, taint.value) or _dedicates_all(taint, chosen):
            found.append(want(*taint))
    return tuple({one[:3]: one for one in found if one.effect != "PreferNoSchedule"}.values())


def _missing(pods: PodSet, params: TolerationsParams, chosen: NodeCandidates) -> tuple[Edit, ...]:
    """What the pods must tolerate and do not, remembered by what they ask for and tolerate: it depends on nothing else."""
    tolerations = mappings(pods.spec, "tolerations", pods.field())
    written = memo_key(tolerations)
    key = ("tolerations", pods.totals, bool(pods.gpu_claims), pods.path, written)
    remembered = None if written is None else chosen.memo.get(key)
    if remembered is not None and remembered[0] is params:
        edits: tuple[Edit, ...] = remembered[1]
        return edits
    present = list(tolerations)
    found = []
    for wanted in _wanted(pods, params, chosen):
        if not any(covers(one, wanted.key, wanted.value, wanted.effect) for one in present):
            present.append(wanted.toleration)
            found.append(Edit("append", pods.field("tolerations"), wanted.toleration, wanted.note))
    if written is not None:
        remember(chosen.memo, key, (params, tuple(found)))
    return tuple(found)


def mutate(workload: Workload, params: TolerationsParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Add the tolerations that are not covered yet."""
    return [edit for pods in workload.templated_gpu_pod_sets() for edit in _missing(pods, params, node_candidates(pods, snapshot))]


RULE = Rule(
    id="tolerations",
    title="Accelerator pods tolerate the taints of accelerator nodes, and no other pod does",
    since="0.1.0",
    params=TolerationsParams,
    mutate=mutate,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS,
    writes=frozenset({"tolerations"}),
    documentation=__doc__,
    applied_at_pods=True,
)
