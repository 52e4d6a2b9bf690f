"""Accelerators are asked for by names and counts that a device plugin serves.

## What it does

Renames the legacy `alpha.kubernetes.io/nvidia-gpu` to `nvidia.com/gpu` and makes requests and limits of an extended
resource equal, as the API demands. Refuses a name that no device plugin serves, with the name that one does, and a count
that is no whole number. Warns about a count of zero, which asks for nothing.

## Why

The legacy name went with Kubernetes 1.11, yet the apiserver takes it. A pod that asks for a name nobody serves stays
Pending without an error.

## Practice

- NUMA guide, "Migrating from kube-gpu to the Device Plugin": pod specs leave the legacy resource name for the plugin's.
- NUMA guide, "MIG Profiles on NVIDIA A100 and H100": a slice is asked for by its profile; the name that the guide writes for
  it, `nvidia.com/gpu.mig-1g.5gb`, is one of those that no plugin serves.
- Basics guide, "Basic GPU Pod", and field guide, step 1: GPUs are asked for under `limits`, by the device plugin's resource.
- Orchestration guide, "GPU Resource Scheduling Fundamentals": requests and limits of GPUs are one number, and a whole one.

## Example

Before:

```yaml
resources:
  limits:
    alpha.kubernetes.io/nvidia-gpu: 1
```

After:

```yaml
resources:
  limits:
    nvidia.com/gpu: 1
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.accelerators import LEGACY_GPU, NVIDIA_GPU, is_accelerator, suggestion
from gpugate.policies.kube.cel import UNIQUE, LabelKey
from gpugate.policies.kube.fields import mappings
from gpugate.policies.patch import Edit
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.workload import PodSet, Workload

_KINDS = ("limits", "requests")


class AcceleratorNamesParams(Params):
    """Parameters of `accelerator-names`."""

    served: Annotated[tuple[LabelKey, ...], *UNIQUE] = ()
    """Resource names that this cluster's device plugins serve, though they look like mistakes."""


def mutate(workload: Workload, _params: AcceleratorNamesParams, _facts: ClusterSnapshot) -> Iterable[Edit]:
    """Rename the legacy resource; make requests and limits equal."""
    odd = [one for pods in workload.pod_sets for one in pods.containers if not one.stated.is_plain and one.role is not EPHEMERAL]
    return [edit for container in odd for edit in _correct(container)] if odd else ()


def _correct(container: Container) -> Iterator[Edit]:
    names: Iterable[str] = container.stated.extended
    if LEGACY_GPU in names:
        yield from _rename(container)
        names = [name for name in names if name not in {LEGACY_GPU, NVIDIA_GPU}]
    for name in names:
        yield from _equalise(container, name)


def _rename(container: Container) -> Iterator[Edit]:
    group = f"rename {container.name}"
    legacy = {kind: container.raw(kind, LEGACY_GPU) for kind in _KINDS}
    proper = {kind: container.raw(kind, NVIDIA_GPU) for kind in _KINDS}
    amount = next((value for value in (*proper.values(), *legacy.values()) if value is not None), None)
    note = f"{LEGACY_GPU} renamed to {NVIDIA_GPU} in {container.name}"
    for kind in _KINDS:
        if legacy[kind] is not None:
            yield Edit("remove", container.place(kind, LEGACY_GPU), None, note, group)
    yield Edit("set", container.place("limits", NVIDIA_GPU), amount, "", group)
    if legacy["requests"] is not None or proper["requests"] is not None:
        yield Edit("set", container.place("requests", NVIDIA_GPU), amount, "", group)


def _equalise(container: Container, name: str) -> Iterator[Edit]:
    limit, request = container.raw("limits", name), container.raw("requests", name)
    if request is None or request == limit or container.is_fraction("requests", name):
        return
    if limit is None:
        yield Edit("set", container.place("limits", name), request, f"limit of {name} set to its request in {container.name}")
    elif container.count("limits", name) != container.count("requests", name) and not container.is_fraction("limits", name):
        yield Edit("set", container.place("requests", name), limit, f"request of {name} made its limit in {container.name}")


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
    for kind in _KINDS:
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


REASONS: Final[dict[str, Reason]] = {
    "ClaimUnknown": Reason("The ResourceClaim or its template is not known, so neither is what it requests.", action="Unknown"),
    "FractionalCount": Reason("A device count is not a whole number."),
    "LegacyName": Reason("The pod requests alpha.kubernetes.io/nvidia-gpu, which no device plugin serves."),
    "NegativeCount": Reason("A device count is below zero."),
    "NotOffered": Reason("No node offers the requested device now.", action="Warn"),
    "UnequalCounts": Reason("Request and limit of a device differ, which the API server rejects."),
    "UnservedName": Reason("No device plugin serves the requested name."),
    "ZeroCount": Reason("The pod requests 0 devices, so no GPU rule applies to it.", action="Warn"),
}

RULE = Rule(
    id="accelerator-names",
    title="Accelerators are asked for by names and counts that a device plugin serves",
    since="0.1.0",
    params=AcceleratorNamesParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS,
    writes=frozenset({"resources"}),
    documentation=__doc__,
)
