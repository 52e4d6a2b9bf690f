"""Findings of the rule `attribution`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level
from gpugate.policies.rules.ownership.attribution.keys import AttributionKey, fault_of, told_by
from gpugate.policies.rules.ownership.attribution.mutate import applies, key_path
from gpugate.policies.rules.ownership.attribution.params import AttributionParams
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: AttributionParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse what nobody tells, and what cannot be written."""
    if not applies(workload):
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
        key_path(key),
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
            key_path(key),
            f"the {kind} does not tell its {key.what}, and whether namespace {space} does is not known: there is no {lacking}",
            f"{line}, or give the cluster's namespaces.",
        )
    who = f"the {kind}" if workload.is_pod() else f"the {kind}, its pods"
    if not key.from_namespace:
        return Finding(
            "AttributionMissing",
            key_path(key),
            f"nobody tells the {key.what} of {who.replace(',', ' or')}: there is no {lacking}",
            f"{line}.",
        )
    verb = "label" if key.kind == "Label" else "annotate"
    return Finding(
        "AttributionMissing",
        key_path(key),
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
