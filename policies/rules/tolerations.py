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

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from gpugate.policies.accelerators import NVIDIA_GPU, taint_key
from gpugate.policies.edits import Edit
from gpugate.policies.facts import Facts
from gpugate.policies.feasibility import Selection, selection
from gpugate.policies.fields import Object, mappings
from gpugate.policies.finding import Finding
from gpugate.policies.memo import remember
from gpugate.policies.passing import passing_in_cel
from gpugate.policies.records.common import Taint
from gpugate.policies.resources import memo_key
from gpugate.policies.rule import Params, Rule
from gpugate.policies.taints import NEVER_ROLES, dedicates_to_accelerators, is_never_tolerated, marks_accelerators
from gpugate.policies.validations import MOST, LabelKey, LabelValue, Validation, literal
from gpugate.policies.workload import PodSet, Workload


class TaintParam(Params):
    """A taint that accelerator pods are to tolerate."""

    validations = (
        Validation(
            f"!(self.key in {literal(sorted(NEVER_ROLES))}) && {passing_in_cel('self.key')}"
            f" && (!has(self.value) || {passing_in_cel('self.value', whole_key=False)})",
            "marks maintenance or a node's condition: gpugate never tolerates it",
        ),
    )

    key: LabelKey
    """The taint's key."""
    value: LabelValue | None = None
    """The taint's value; any value where it is left out."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """The taint's effect."""

    @model_validator(mode="after")
    def _never_maintenance(self) -> TaintParam:
        if is_never_tolerated(self.key, self.value or ""):
            shown = self.key if self.value is None else f"{self.key}={self.value}"
            message = f"{shown} marks maintenance or a node's condition: gpugate never tolerates it"
            raise ValueError(message)
        return self


class TolerationsParams(Params):
    """Parameters of `tolerations`."""

    taints: Annotated[tuple[TaintParam, ...], Field(max_length=MOST)] = ()
    """Taints of this cluster's accelerator nodes, tolerated by every accelerator pod."""
    from_nodes: bool = True
    """Whether accelerator taints found on nodes that offer the accelerator are tolerated, too."""


class _Wanted(NamedTuple):
    """A taint to be tolerated, with any value where it is None, and the toleration for it."""

    key: str
    value: str | None
    effect: str
    toleration: Object
    note: str


def _want(key: str, value: str | None, effect: str) -> _Wanted:
    toleration = {"key": key, "operator": "Exists" if value is None else "Equal"}
    if value is not None:
        toleration["value"] = value
    toleration["effect"] = effect
    return _Wanted(key, value, effect, toleration, f"toleration {key}{'' if value is None else '=' + value}:{effect}")


def covers(toleration: Object, key: str, value: str | None, effect: str) -> bool:
    """Whether ``toleration`` tolerates every taint with this key, effect and value (any value where it is None)."""
    if (toleration.get("effect") or effect) != effect:
        return False
    operator = toleration.get("operator") or "Equal"
    if not toleration.get("key"):
        return bool(operator == "Exists")
    if toleration.get("key") != key:
        return False
    return bool(operator == "Exists") or (value is not None and (toleration.get("value") or "") == value)


def _dedicates_all(taint: Taint, chosen: Selection) -> bool:
    return dedicates_to_accelerators(taint.key, taint.value) and all(taint in shape.taints for shape in chosen.reachable)


def _wanted(pods: PodSet, params: TolerationsParams, chosen: Selection) -> tuple[_Wanted, ...]:
    """What the pods must tolerate."""
    keys = {taint_key(name) for name in pods.accelerators()}
    if pods.gpu_claims:
        # Device classes that count as GPUs are all of one maker.
        keys.add(NVIDIA_GPU)
    found = [_want(key, None, "NoSchedule") for key in sorted(keys)]
    found += [_want(taint.key, taint.value, taint.effect) for taint in params.taints]
    for taint in chosen.taints if params.from_nodes else ():
        if is_never_tolerated(taint.key, taint.value):
            continue
        if taint.key in keys:
            found.append(_want(taint.key, None, taint.effect))
        elif marks_accelerators(taint.key, taint.value) or _dedicates_all(taint, chosen):
            found.append(_want(*taint))
    return tuple({one[:3]: one for one in found if one.effect != "PreferNoSchedule"}.values())


def _missing(pods: PodSet, params: TolerationsParams, chosen: Selection) -> tuple[Edit, ...]:
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


def mutate(workload: Workload, params: TolerationsParams, facts: Facts) -> Iterable[Edit]:
    """Add the tolerations that are not covered yet."""
    return [edit for pods in workload.stated() for edit in _missing(pods, params, selection(pods, facts))]


def check(_workload: Workload, _params: TolerationsParams, _facts: Facts) -> Iterable[Finding]:
    """Nothing is refused: a pod without its toleration waits, it does no harm."""
    return ()


RULE = Rule(
    id="tolerations",
    title="Accelerator pods tolerate the taints of accelerator nodes, and no other pod does",
    since="0.1.0",
    params=TolerationsParams,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    documentation=__doc__,
    at_pods=True,
)
