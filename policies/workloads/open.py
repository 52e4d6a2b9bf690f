"""Open an object under review as a workload."""

from typing import Final, Protocol

from gpugate.policies.kube.fields import MalformedError, Object, Path, clone, mapping, mappings, string
from gpugate.policies.workloads.kinds import WorkloadKind
from gpugate.policies.workloads.kinds.owners import OwnerDoubt
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.pod_set_sources import PodSetSource, find_pods, listed_templates
from gpugate.policies.workloads.transition import Transition
from gpugate.policies.workloads.workload import Workload


class DeviceClaims(Protocol):
    """The resource claims of the cluster (dynamic resource allocation)."""

    def is_gpu_claim(self, namespace: str, claim: str, template: str) -> bool:
        """Whether the ResourceClaim or ResourceClaimTemplate of this name requests a GPU or a part of one."""

    def may_be_slice(self, namespace: str, claim: str, template: str) -> bool:
        """Whether the GPU claim may request a part of a GPU."""


def open_workload(  # noqa: PLR0913 - one argument a property of the request
    kind: WorkloadKind,
    root: Object,
    claims: DeviceClaims,
    *,
    namespace: str = "",
    operation: str = "CREATE",
    old: Object | None = None,
    subresource: str = "",
    most_unread: int | None = None,
    owner_doubt: OwnerDoubt | None = None,
) -> Workload:
    """Return ``root`` as a workload of ``kind``; a field of a wrong type raises a ``MalformedError``.

    Edits change ``root`` in place. An empty ``namespace`` means that of its metadata; ``old`` is the object before an UPDATE.
    With ``most_unread``, containers and claims are left to :func:`read_pods`, so that limits can come first, and no pod set is
    opened of an object with more pod templates than that.
    """
    metadata = mapping(root, "metadata", ())
    space = namespace or string(metadata, "namespace", ("metadata",)) or "default"
    listed = 0 if most_unread is None or kind.is_pod else listed_templates(kind, root, most_unread)
    unread = most_unread is not None
    unopened = listed if unread and listed > (most_unread or 0) else 0
    pod_sets = () if unopened else tuple([_pod_set(source, space, claims, unread=unread) for source in find_pods(kind, root)])
    workload = Workload(
        kind,
        root,
        space,
        pod_sets,
        operation=operation,
        old=old,
        subresource=subresource,
        unopened=unopened,
        owner_doubt=owner_doubt,
    )
    if old is not None and operation == "UPDATE":

        def open_other(root: Object) -> Workload:
            return open_workload(kind, root, claims, namespace=space, owner_doubt=workload.owner_doubt)

        def read(other: Workload) -> None:
            read_pods(other, claims)

        workload.transition = Transition(workload, old, open_other, read)
    return workload


def read_pods(workload: Workload, claims: DeviceClaims) -> None:
    """Read the containers and claims that are unread; raise a ``MalformedError`` for a field of a wrong type."""
    for pods in workload.pod_sets:
        if not pods.containers:
            pods.gpu_claims, pods.slice_claims = _gpu_claims(pods.spec, pods.path, workload.namespace, claims)
            pods.read_containers()


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
        owner_doubt=workload.owner_doubt,
    )


def _pod_set(source: PodSetSource, namespace: str, claims: DeviceClaims, *, unread: bool) -> PodSet:
    path, template = source.path, source.template
    if source.place.resources is not None:
        return _pod_set_of_resources(source, source.place.resources, unread=unread)
    spec = mapping(template, "spec", path)
    gpu_claims, slices = (_NO_CLAIMS, _NO_CLAIMS) if unread else _gpu_claims(spec, path, namespace, claims)
    return PodSet(template, spec, path, source.numbers.total, gpu_claims, slices, source=source, unread=unread)


def _pod_set_of_resources(source: PodSetSource, resources: Path, *, unread: bool) -> PodSet:
    """Return a pod set with one container that has the resources, for a kind without a pod template."""
    stated = source.template.get(str(resources[-1]))
    maps = stated.values() if isinstance(stated, dict) else ()
    unread = unread and sum(len(amounts) for amounts in maps if isinstance(amounts, dict)) > _MANY_RESOURCES
    container = {"name": "node", "resources": {} if stated is None else stated}
    try:
        return PodSet({}, {"containers": [container]}, source.path, source.numbers.total, _NO_CLAIMS, source=source, unread=unread)
    except MalformedError as error:
        # The object has no such container: name the field in the object.
        stem = (*source.path, "spec", "containers", 0, "resources")
        raise MalformedError((*source.path, resources[-1], *error.path[len(stem) :]), error.problem) from error


_NO_CLAIMS: Final[frozenset[str]] = frozenset()
#: More names of resources than this are counted before they are read.
_MANY_RESOURCES: Final = 1000


def _gpu_claims(spec: Object, path: Path, namespace: str, claims: DeviceClaims) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the claims that request a GPU, and of those that may request a part of a GPU."""
    gpus: set[str] = set()
    slices: set[str] = set()
    if "resourceClaims" not in spec:
        return _NO_CLAIMS, _NO_CLAIMS
    for claim in mappings(spec, "resourceClaims", (*path, "spec")):
        name = str(claim.get("name"))
        key = (namespace, str(claim.get("resourceClaimName")), str(claim.get("resourceClaimTemplateName")))
        if claims.is_gpu_claim(*key):
            gpus.add(name)
            if claims.may_be_slice(*key):
                slices.add(name)
    return frozenset(gpus), frozenset(slices)
