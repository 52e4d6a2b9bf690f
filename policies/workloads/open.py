"""Opening an object under review as a workload."""

from __future__ import annotations

from typing import Final, Protocol

from gpugate.policies.kube.fields import MalformedError, Object, Path, mapping, mappings, string
from gpugate.policies.workloads.kinds import WorkloadKind
from gpugate.policies.workloads.pod_sets import PodSetSource, find_pods
from gpugate.policies.workloads.workload import PodSet, Workload


class DeviceClaims(Protocol):
    """What the cluster knows of resource claims (dynamic resource allocation)."""

    def is_gpu_claim(self, namespace: str, claim: str, template: str) -> bool:
        """Whether the ResourceClaim or ResourceClaimTemplate of this name requests a GPU or a part of one."""

    def may_be_slice(self, namespace: str, claim: str, template: str) -> bool:
        """Whether what it requests may be a part of a GPU."""


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
    """``root`` as a workload of ``kind``.

    Args:
        kind: its entry in the table of kinds.
        root: the object; edits change it in place.
        claims: the cluster, for what the pods' resource claims stand for.
        namespace: where the request puts it; its own metadata says so where this is empty.
        operation: ``CREATE`` or ``UPDATE``.
        old: the object that an UPDATE replaces.
        subresource: the sub-resource that is written to, if any.

    Raises:
        MalformedError: a field that gpugate reads has a type that the API does not accept.
    """
    metadata = mapping(root, "metadata", ())
    space = namespace or string(metadata, "namespace", ("metadata",)) or "default"
    pod_sets = tuple(_pod_set(found, space, claims) for found in find_pods(kind, root))
    return Workload(kind, root, space, pod_sets, operation=operation, old=old, subresource=subresource)


def _pod_set(found: PodSetSource, namespace: str, claims: DeviceClaims) -> PodSet:
    path, place, template = found.path, found.place, found.template
    if place.resources is not None:
        return _resources_alone(found)
    spec = mapping(template, "spec", path)
    gpu_claims, slices = _gpu_claims(spec, path, namespace, claims) if "resourceClaims" in spec else (_NO_CLAIMS, _NO_CLAIMS)
    return PodSet(template, spec, path, found.numbers.total, gpu_claims, slices, found=found)


def _resources_alone(found: PodSetSource) -> PodSet:
    """The pods of a place that keeps the resources of a container and nothing else: one container that has these."""
    resources = found.place.resources or ()
    held = found.template.get(str(resources[-1]))
    container = {"name": "node", "resources": {} if held is None else held}
    try:
        return PodSet({}, {"containers": [container]}, found.path, found.numbers.total, _NO_CLAIMS, found=found)
    except MalformedError as error:
        # The container's own path, without what stands for it here.
        stem = (*found.path, "spec", "containers", 0, "resources")
        raise MalformedError((*found.path, resources[-1], *error.path[len(stem) :]), error.problem) from error


_NO_CLAIMS: Final[frozenset[str]] = frozenset()


def _gpu_claims(spec: Object, path: Path, namespace: str, claims: DeviceClaims) -> tuple[frozenset[str], frozenset[str]]:
    """The claims that stand for a GPU, and those among them that may stand for a part of one."""
    names: set[str] = set()
    slices: set[str] = set()
    for claim in mappings(spec, "resourceClaims", (*path, "spec")):
        named = (namespace, str(claim.get("resourceClaimName")), str(claim.get("resourceClaimTemplateName")))
        if claims.is_gpu_claim(*named):
            names.add(str(claim.get("name")))
            if claims.may_be_slice(*named):
                slices.add(str(claim.get("name")))
    return frozenset(names), frozenset(slices)
