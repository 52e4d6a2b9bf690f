"""Every accelerator workload says who it belongs to.

## What it does

For each key of the policy (owner, project and cost centre, where it names no others) it looks for a value: on the workload, in
whatever accepted spelling, as label or annotation; in its pods' template; on its namespace. What is found is written under the
key's own name, on the workload and on its pods' templates, where nobody has written it yet. What is there is never overwritten.

Refuses a workload for which nobody tells what the policy requires, and a value that the label cannot hold. What a controller
makes is not asked again: its owner was, and its template has passed it on. Pods of an owner of a kind that gpugate does not read
are asked themselves.

## Why

The bill for GPUs is for the cluster. Cost tools divide it by the labels of pods: OpenCost takes those of the pod before those of
its namespace, and reads annotations only where it is told to (`EMIT_POD_ANNOTATIONS_METRIC`). A workload without them is
nobody's, and what has run cannot be labelled afterwards. The names have a prefix, so that no selector of somebody's Service or
NetworkPolicy takes the pods for its own by them.

## Practice

- Orchestration guide, "Per-Pod Cost Accounting": owner, project and cost centre stand in the metadata of what costs money.
- Orchestration guide, "Cost Analysis and Optimization": teams see what they ask for: the audit sums devices and their hours by
  these keys.

## Example

Before: a Job in a namespace with the label `team: vision`. After:

```yaml
metadata:
  labels:
    gpugate.io/owner: vision
spec:
  template:
    metadata:
      labels:
        gpugate.io/owner: vision
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Self

from pydantic import model_validator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, Mode
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.cel import CelRule
from gpugate.policies.kube.fields import Path
from gpugate.policies.patch import Edit
from gpugate.policies.rules.ownership.attribution.keys import DEFAULT_KEYS, AttributionKey, Keys, fault_of, told_by, told_by_pods
from gpugate.policies.workloads.workload import Workload


class AttributionParams(Params):
    """Parameters of `attribution`."""

    validations = (
        CelRule(
            "!has(self.keys) || self.keys.all(one, self.keys.exists_one(other, other.what == one.what))",
            "keys: two have the same what",
        ),
        CelRule(
            "!has(self.keys) || self.keys.all(one, self.keys.exists_one(other, other.name == one.name))",
            "keys: two have the same name",
        ),
    )

    keys: Keys = DEFAULT_KEYS
    """What a workload has to say of who it belongs to."""

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        for field in ("what", "name"):
            values = [getattr(one, field) for one in self.keys]
            for at, value in enumerate(values):
                if value in values[:at]:
                    message = f"keys: two have the same {field}, {value}"
                    raise ValueError(message)
        return self


def _applies(workload: Workload) -> bool:
    """Whether nobody was asked before: what a controller of a known kind makes has an owner who was."""
    return bool(workload.gpu_pod_sets()) and workload.owner_kind() is None


def mutate(workload: Workload, params: AttributionParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Write what is told in other words, in the template or by the namespace under the key's own name."""
    if not _applies(workload):
        return ()
    return [edit for key in params.keys for edit in _edits(workload, key, snapshot)]


def _edits(workload: Workload, key: AttributionKey, snapshot: ClusterSnapshot) -> Iterator[Edit]:
    told = told_by(workload, key, snapshot)
    if told is None or fault_of(key, told.value):
        return
    own = workload.labels() if key.kind == "Label" else workload.annotations()
    if not own.get(key.name):
        note = f"{key.what} {told.value}"
        yield Edit("set", _path(key), told.value, f"{note} ({told.source})" if told.source else note)
    for pods in workload.pod_sets if key.to_pods and not workload.is_pod() else ():
        present = pods.labels() if key.kind == "Label" else pods.annotations()
        if pods.is_whole and not present.get(key.name):
            value = told_by_pods(pods, key) or told.value
            if not fault_of(key, value):
                yield Edit("set", pods.meta(key.holder, key.name), value, f"{key.what} {value} on its pods")


def _path(key: AttributionKey) -> Path:
    return ("metadata", key.holder, key.name)


def check(workload: Workload, params: AttributionParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse what nobody tells, and what cannot be written."""
    if not _applies(workload):
        return
    for key in params.keys:
        told = told_by(workload, key, snapshot)
        if told is not None:
            fault = fault_of(key, told.value)
            if fault:
                yield _invalid(workload, key, f"{told.value[:60]!r} {told.source}".rstrip(), fault)
        elif key.required:
            yield _missing(workload, key, snapshot)


def _invalid(workload: Workload, key: AttributionKey, said: str, fault: str) -> Finding:
    return Finding(
        "AttributionInvalid",
        _path(key),
        f"the {key.what} {said} {fault}: it cannot be written as {key.kind.lower()} {key.name}, where cost tools look for it",
        f"Write {key.name}: <{key.what}> below {_below(workload, key)}, in a shorter or plainer word.",
        Level.DENY if key.required else Level.WARN,
    )


def _missing(workload: Workload, key: AttributionKey, snapshot: ClusterSnapshot) -> Finding:
    line = f"Write {key.name}: <{key.what}> below {_below(workload, key)}"
    also = f" (or {', '.join(key.aliases)}, as label or annotation)" if key.aliases else ""
    kind, space = workload.kind.kind, workload.namespace
    lacking = f"{key.kind.lower()} {key.name}{also}"
    if key.from_namespace and (snapshot.sync_state("namespaces") is not SyncState.SYNCED or space not in snapshot.namespaces):
        return Finding(
            "AttributionUndecided",
            _path(key),
            f"the {kind} does not tell its {key.what}, and whether namespace {space} does is not known: there is no {lacking}",
            f"{line}, or give the cluster's namespaces.",
        )
    who = f"the {kind}" if workload.is_pod() else f"the {kind}, its pods"
    if not key.from_namespace:
        return Finding(
            "AttributionMissing",
            _path(key),
            f"nobody tells the {key.what} of {who.replace(',', ' or')}: there is no {lacking}",
            f"{line}.",
        )
    verb = "label" if key.kind == "Label" else "annotate"
    return Finding(
        "AttributionMissing",
        _path(key),
        f"neither {who} nor namespace {space} tells the {key.what}: there is no {lacking}",
        f"{line}; or tell it for all of the namespace: kubectl {verb} namespace {space} {key.of_namespace[0]}=<{key.what}>.",
        rests_on=("namespaces",),
    )


def _below(workload: Workload, key: AttributionKey) -> str:
    """Where the line belongs: in what somebody wrote, not in what was made of it."""
    owner = workload.controller()
    if owner is None:
        return f"metadata.{key.holder}"
    return f"metadata.{key.holder} of the template that {owner.get('kind')} {owner.get('name')} has for it"


REASONS: Final[dict[str, Reason]] = {
    "AttributionInvalid": Reason(
        "The value is no valid label or annotation value.", facts=("namespaces",), warns="the key is not required"
    ),
    "AttributionMissing": Reason("A required key is missing from the workload and its namespace."),
    "AttributionUndecided": Reason("The namespace is not known, so neither is whether it has the key.", action="Unknown"),
}

RULE = Rule(
    id="attribution",
    title="Accelerator workloads say who they belong to: owner, project and cost centre",
    since="0.1.0",
    params=AttributionParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"namespaces"}),
    reads=frozenset({"annotations", "labels"}),
    writes=frozenset({"annotations", "labels"}),
    documentation=__doc__,
    default_max_mode=Mode.DISABLED,
    default_mode_reason=(
        "Which keys a company divides its costs by, and whether a workload without them is refused, is for it to say."
    ),
)
