"""Opening an object under review as a workload."""

from __future__ import annotations

from typing import Final

from gpugate.policies.facts import Facts
from gpugate.policies.fields import MalformedError, Object, Path, mapping, mappings, string
from gpugate.policies.kinds import Kind
from gpugate.policies.places import Found, find_pods
from gpugate.policies.records.classes import ClaimDevices
from gpugate.policies.workload import PodSet, Workload


def open_workload(
    kind: Kind,
    root: Object,
    facts: Facts,
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
        facts: the cluster, for what the pods' resource claims stand for.
        namespace: where the request puts it; its own metadata says so where this is empty.
        operation: ``CREATE`` or ``UPDATE``.
        old: the object that an UPDATE replaces.
        subresource: the sub-resource that is written to, if any.

    Raises:
        MalformedError: a field that gpugate reads has a type that the API does not accept.
    """
    metadata = mapping(root, "metadata", ())
    space = namespace or string(metadata, "namespace", ("metadata",)) or "default"
    pod_sets = tuple(_pod_set(found, space, facts) for found in find_pods(kind, root))
    return Workload(kind, root, space, pod_sets, operation=operation, old=old, subresource=subresource)


def _pod_set(found: Found, namespace: str, facts: Facts) -> PodSet:
    path, place, template = found.path, found.place, found.template
    if place.resources is not None:
        return _resources_alone(found)
    spec = mapping(template, "spec", path)
    claims, slices = _gpu_claims(spec, path, namespace, facts) if "resourceClaims" in spec else (_NO_CLAIMS, _NO_CLAIMS)
    return PodSet(template, spec, path, found.numbers.total, claims, slices, found=found)


def _resources_alone(found: Found) -> PodSet:
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


def _gpu_claims(spec: Object, path: Path, namespace: str, facts: Facts) -> tuple[frozenset[str], frozenset[str]]:
    """The claims that stand for a GPU, and those among them that may stand for a part of one."""
    names: set[str] = set()
    slices: set[str] = set()
    for claim in mappings(spec, "resourceClaims", (*path, "spec")):
        named = facts.claims.get((namespace, str(claim.get("resourceClaimName"))))
        made = facts.claim_templates.get((namespace, str(claim.get("resourceClaimTemplateName"))))
        for found in (named, made):
            if found is not None and _is_gpu(found, facts):
                names.add(str(claim.get("name")))
                if found.may_be_slice:
                    slices.add(str(claim.get("name")))
    return frozenset(names), frozenset(slices)


def _is_gpu(claim: ClaimDevices, facts: Facts) -> bool:
    """Whether the claim asks for a GPU: by NVIDIA's own classes, or by an administrator's class of NVIDIA's driver."""
    if claim.is_gpu:
        return True
    classes = (facts.device_classes.get(name) for name in claim.classes)
    return any(one is not None and one.is_gpu for one in classes)
