"""Open an object under review as a workload."""

from __future__ import annotations

from typing import Final, Protocol

from gpugate.policies.kube.fields import MalformedError, Object, Path, clone, mapping, mappings, string
from gpugate.policies.workloads.kinds import WorkloadKind
from gpugate.policies.workloads.pod_sets import PodSetSource, find_pods
from gpugate.policies.workloads.transition import Transition
from gpugate.policies.workloads.workload import PodSet, Workload


class DeviceClaims(Protocol):
    """Resource claims of the cluster (dynamic resource allocation)."""

    def is_gpu_claim(self, namespace: str, claim: str, template: str) -> bool:
        """Tell whether the ResourceClaim or ResourceClaimTemplate of this name requests a GPU or a part of one."""

    def may_be_slice(self, namespace: str, claim: str, template: str) -> bool:
        """Tell whether the claim may be for a part of a GPU."""


def open_workload(
    kind: WorkloadKind,
    root: Object,
    claims: DeviceClaims,
    *,
    namespace: str = "",
    operation: str = "CREATE",
    old: Object | None = None,
    subresource: str = "",
) -> Workload:
    """Open ``root`` as a workload of ``kind``.

    Args:
        kind: its entry in the table of kinds.
        root: the object; edits change it in place.
        claims: the cluster, for what the pods' resource claims request.
        namespace: the namespace of the request; if empty, that of the object's metadata.
        operation: ``CREATE`` or ``UPDATE``.
        old: the object that an UPDATE replaces.
        subresource: the subresource that the request writes to, if any.

    Raises:
        MalformedError: a field that gpugate reads has a type that the API does not accept.
    """
    metadata = mapping(root, "metadata", ())
    space = namespace or string(metadata, "namespace", ("metadata",)) or "default"
    pod_sets = tuple(_pod_set(source, space, claims) for source in find_pods(kind, root))
    workload = Workload(kind, root, space, pod_sets, operation=operation, old=old, subresource=subresource)
    if old is not None and operation == "UPDATE":
        workload.transition = Transition(workload, old, lambda root: open_workload(kind, root, claims, namespace=space))
    return workload


def open_copy(workload: Workload, claims: DeviceClaims) -> Workload:
    """Open a copy of ``workload`` for the same request; the copy shares the status, which no rule edits."""
    return open_workload(
        workload.kind,
        {key: value if key == "status" else clone(value) for key, value in workload.root.items()},
        claims,
        namespace=workload.namespace,
        operation=workload.operation,
        old=workload.old,
        subresource=workload.subresource,
    )


def _pod_set(source: PodSetSource, namespace: str, claims: DeviceClaims) -> PodSet:
    path, place, template = source.path, source.place, source.template
    if place.resources is not None:
        return _resources_alone(source)
    spec = mapping(template, "spec", path)
    gpu_claims, slices = _gpu_claims(spec, path, namespace, claims) if "resourceClaims" in spec else (_NO_CLAIMS, _NO_CLAIMS)
    return PodSet(template, spec, path, source.numbers.total, gpu_claims, slices, found=source)


def _resources_alone(source: PodSetSource) -> PodSet:
    """Return a pod set of one container for a kind that states only the resources of a container (TrainJob)."""
    resources = source.place.resources or ()
    stated = source.template.get(str(resources[-1]))
    container = {"name": "node", "resources": {} if stated is None else stated}
    try:
        return PodSet({}, {"containers": [container]}, source.path, source.numbers.total, _NO_CLAIMS, found=source)
    except MalformedError as error:
        # Report the path in the object, not in the container made up here.
        stem = (*source.path, "spec", "containers", 0, "resources")
        raise MalformedError((*source.path, resources[-1], *error.path[len(stem) :]), error.problem) from error


_NO_CLAIMS: Final[frozenset[str]] = frozenset()


def _gpu_claims(spec: Object, path: Path, namespace: str, claims: DeviceClaims) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the claims for a GPU, and of those among them that may be for a part of one."""
    names: set[str] = set()
    slices: set[str] = set()
    for claim in mappings(spec, "resourceClaims", (*path, "spec")):
        named = (namespace, str(claim.get("resourceClaimName")), str(claim.get("resourceClaimTemplateName")))
        if claims.is_gpu_claim(*named):
            names.add(str(claim.get("name")))
            if claims.may_be_slice(*named):
                slices.add(str(claim.get("name")))
    return frozenset(names), frozenset(slices)
