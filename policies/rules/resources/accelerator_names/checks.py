"""Findings of the rule `accelerator-names`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.kube.accelerators import LEGACY_GPU, NVIDIA_GPU, is_accelerator, suggestion
from gpugate.policies.kube.fields import mappings
from gpugate.policies.rules.resources.accelerator_names.mutate import KINDS
from gpugate.policies.rules.resources.accelerator_names.params import AcceleratorNamesParams
from gpugate.policies.workloads.container import Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: AcceleratorNamesParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse names and counts that no device plugin serves."""
    synced = snapshot.known.get("nodes") is SyncState.SYNCED
    for pods in workload.pod_sets:
        for container in pods.containers:
            if not container.stated.is_plain:
                for name in container.stated.extended:
                    yield from _check_name(container, name, params, snapshot)
                    yield from _check_counts(container, name)
        if "resourceClaims" in pods.spec:
            yield from _check_claims(workload, pods, snapshot)
        if synced and not snapshot.offered.issuperset(pods.totals.accelerators):
            yield from _check_offered(pods, params, snapshot)


def _where(container: Container, name: str) -> str:
    return "limits" if container.raw("limits", name) is not None else "requests"


def _check_name(container: Container, name: str, params: AcceleratorNamesParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    place = container.place(_where(container, name), name)
    if name == LEGACY_GPU:
        yield Finding(
            "LegacyName",
            place,
            f"{LEGACY_GPU} went with Kubernetes 1.11: no device plugin serves it and the pod would stay Pending",
            f"Write {NVIDIA_GPU} instead of {LEGACY_GPU}.",
        )
        return
    proper = suggestion(name)
    if proper is not None and name not in snapshot.offered and name not in params.served:
        yield Finding(
            "UnservedName",
            place,
            f"no device plugin serves {name}: the pod would stay Pending",
            f"Write {proper} instead of {name}.",
        )


def _check_counts(container: Container, name: str) -> Iterator[Finding]:
    if not is_accelerator(name):
        return
    for kind in KINDS:
        written = container.raw(kind, name)
        if written is None:
            continue
        place = container.place(kind, name)
        if container.is_fraction(kind, name):
            yield Finding(
                "FractionalCount",
                place,
                f"{written} of {name}: devices are handed out whole",
                f"Write {container.count(kind, name)}, or ask for a part of a card by a MIG profile (nvidia.com/mig-1g.5gb)"
                " or on nodes whose device plugin time-slices.",
            )
        elif (container.count(kind, name) or 0) < 0:
            yield Finding("NegativeCount", place, f"{written} of {name} is below zero", "Write the number of devices needed.")
        elif container.count(kind, name) == 0 and kind == _where(container, name):
            yield Finding(
                "ZeroCount",
                place,
                f"0 of {name} asks for nothing: no rule for accelerator pods applies on its account",
                f"Remove the line {name}: 0, or write the number of devices needed.",
            )
    limit, request = container.count("limits", name), container.count("requests", name)
    if limit is not None and request is not None and limit != request and not container.is_fraction("limits", name):
        yield Finding(
            "UnequalCounts",
            container.place("requests", name),
            f"request {request} and limit {limit} of {name} differ: the apiserver refuses that of an extended resource",
            f"Write requests[{name}]: {limit}, or leave the request out.",
        )


def _check_offered(pods: PodSet, params: AcceleratorNamesParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    for name in sorted(pods.accelerators()):
        if name in snapshot.offered or name in params.served or name == LEGACY_GPU:
            continue
        offered = sorted(other for other in (*snapshot.offered, *params.served) if is_accelerator(other))
        yield Finding(
            "NotOffered",
            pods.field("containers"),
            f"no node offers {name} now; the nodes offer {', '.join(offered) or 'no accelerator at all'}",
            "Ask for a resource that the nodes offer, or add nodes that offer this one.",
        )


def _check_claims(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    for at, claim in enumerate(mappings(pods.spec, "resourceClaims", pods.field())):
        for field, known, resource in (
            ("resourceClaimName", snapshot.claims, "resourceclaims"),
            ("resourceClaimTemplateName", snapshot.claim_templates, "resourceclaimtemplates"),
        ):
            name = claim.get(field)
            if type(name) is not str or (workload.namespace, name) in known or snapshot.sync_state(resource) is SyncState.SYNCED:
                continue
            yield Finding(
                "ClaimUnknown",
                pods.field("resourceClaims", at, field),
                f"{name} is not known here, so it is not known whether the pod asks for a GPU through it",
                "Review the claim or its template together with the workload, or give the cluster's.",
            )
