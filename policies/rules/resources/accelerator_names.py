"""Accelerators are requested by names and counts that a device plugin provides.

## What it does

Renames the legacy `alpha.kubernetes.io/nvidia-gpu` to `nvidia.com/gpu` and makes requests and limits of an extended
resource equal, as the API demands. Refuses a name that no device plugin provides, with the name that one does, and a count
that is no whole number. Warns about a count of zero, which requests nothing.

## Why

Kubernetes 1.11 removed the legacy name, yet the API server accepts it. A pod with a name that no device plugin provides stays
Pending without an error.

## Practice

- NUMA guide, "Migrating from kube-gpu to the Device Plugin": pod specs replace the legacy resource name by the plugin's.
- NUMA guide, "MIG Profiles on NVIDIA A100 and H100": a slice is requested by its profile; the name that the guide writes for
  it, `nvidia.com/gpu.mig-1g.5gb`, is one of those that no plugin provides.
- Basics guide, "Basic GPU Pod", and field guide, step 1: GPUs are requested under `limits`, by the device plugin's resource.
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
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_KINDS: Final = ("limits", "requests")


class AcceleratorNamesParams(Params):
    """Parameters of `accelerator-names`."""

    served: Annotated[tuple[LabelKey, ...], *UNIQUE] = ()
    """Resource names that this cluster's device plugins provide, though they look like mistakes."""


def mutate(workload: Workload, _params: AcceleratorNamesParams, _snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Rename the legacy resource; make requests and limits equal."""
    edits: list[Edit] = []
    for container in (container for pods in workload.pod_sets for container in pods.containers):
        if not container.stated.is_plain and container.role is not EPHEMERAL:
            is_legacy = LEGACY_GPU in container.stated.extended
            edits += _rename(container) if is_legacy else ()
            for name in container.stated.extended:
                if not is_legacy or name not in {LEGACY_GPU, NVIDIA_GPU}:
                    edits += _equalise(container, name)
    return edits


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
        yield Edit("set", container.place("requests", name), limit, f"request of {name} set to its limit in {container.name}")


def check(workload: Workload, params: AcceleratorNamesParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse names and counts that no device plugin provides."""
    synced = snapshot.known.get("nodes") is SyncState.SYNCED
    for pods in workload.pod_sets:
        for container in pods.containers:
            if not container.stated.is_plain:
                provided = snapshot.offered.union(params.served, snapshot.served_by_claims)
                for name in container.stated.extended:
                    yield from _check_name(container, name, provided)
                    yield from _check_counts(container, name)
        if "resourceClaims" in pods.spec:
            yield from _check_claims(workload, pods, snapshot)
        if not synced or snapshot.offered.issuperset(pods.totals.accelerators):
            continue
        absent = set(pods.totals.accelerators) - snapshot.offered
        for name in sorted(absent.difference(params.served, snapshot.served_by_claims, {LEGACY_GPU})):
            offered = ", ".join(sorted(filter(is_accelerator, snapshot.offered.union(params.served)))) or "no accelerator at all"
            yield Finding(
                "NotOffered",
                pods.field("containers"),
                f"no node offers {name} now; the nodes offer {offered}",
                "Request a resource that the nodes offer, or add nodes that offer this one.",
            )


def _first_kind(container: Container, name: str) -> str:
    return "limits" if container.raw("limits", name) is not None else "requests"


def _check_name(container: Container, name: str, provided: frozenset[str]) -> Iterator[Finding]:
    place = container.place(_first_kind(container, name), name)
    if name == LEGACY_GPU:
        yield Finding(
            "LegacyName",
            place,
            f"Kubernetes 1.11 removed {LEGACY_GPU} and no device plugin provides it, so the pod would stay Pending",
            f"Write {NVIDIA_GPU} instead of {LEGACY_GPU}.",
        )
    elif (proper := suggestion(name)) is not None and name not in provided:
        yield Finding(
            "UnservedName",
            place,
            f"no device plugin provides {name}, so the pod would stay Pending",
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
                f"{written} of {name} is no whole number, and a device plugin allocates whole devices",
                f"Write {container.count(kind, name)}, or request a part of a card by a MIG profile (nvidia.com/mig-1g.5gb)"
                " or on nodes whose device plugin time-slices.",
            )
        elif (container.count(kind, name) or 0) < 0:
            yield Finding("NegativeCount", place, f"{written} of {name} is below zero", "Write the number of devices needed.")
        elif container.count(kind, name) == 0 and kind == _first_kind(container, name):
            yield Finding(
                "ZeroCount",
                place,
                f"0 of {name} requests no device, so no GPU rule applies because of it",
                f"Remove the line {name}: 0, or write the number of devices needed.",
            )
    limit, request = container.count("limits", name), container.count("requests", name)
    if limit is not None and request is not None and limit != request and not container.is_fraction("limits", name):
        yield Finding(
            "UnequalCounts",
            container.place("requests", name),
            f"request {request} and limit {limit} of {name} differ, which the API server rejects for an extended resource",
            f"Write requests[{name}]: {limit}, or remove the request.",
        )


def _check_claims(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    for at, claim in enumerate(mappings(pods.spec, "resourceClaims", pods.field())):
        for field, kind, known in (
            ("resourceClaimName", "ResourceClaim", snapshot.claims),
            ("resourceClaimTemplateName", "ResourceClaimTemplate", snapshot.claim_templates),
        ):
            name = claim.get(field)
            synced = snapshot.sync_state(f"{kind.lower()}s") is SyncState.SYNCED
            if type(name) is str and (workload.namespace, name) not in known and not synced:
                yield Finding(
                    "ClaimUnknown",
                    pods.field("resourceClaims", at, field),
                    f"the {kind} {name} is unknown, so gpugate cannot tell whether the pod requests a GPU",
                    f"Review the workload together with the {kind}, or with the objects of the cluster.",
                )


REASONS: Final[dict[str, Reason]] = {
    "ClaimUnknown": Reason("The ResourceClaim or its template is unknown, and so is what it requests.", action="Unknown"),
    "FractionalCount": Reason("A device count is not a whole number."),
    "LegacyName": Reason("The pod requests alpha.kubernetes.io/nvidia-gpu, which no device plugin provides."),
    "NegativeCount": Reason("A device count is below zero."),
    "NotOffered": Reason("No node offers the requested device now.", action="Warn"),
    "UnequalCounts": Reason("Request and limit of a device differ, which the API server rejects."),
    "UnservedName": Reason("No device plugin provides the requested name."),
    "ZeroCount": Reason("The pod requests 0 devices, so no GPU rule applies to it.", action="Warn"),
}

RULE = Rule(
    id="accelerator-names",
    title="Accelerators are requested by names and counts that a device plugin provides",
    since="0.1.0",
    params=AcceleratorNamesParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"deviceclasses", "nodes"}),
    reads=SCHEDULING_FIELDS,
    writes=frozenset({"resources"}),
    documentation=__doc__,
)
