"""Check API versions that servers no longer serve, and kinds in a wrong group.

Sources: Kubernetes' Deprecated API Migration Guide and the ``prerelease-lifecycle`` of ``k8s.io/api`` (``tests/e2e/test_setup.py``
checks each built-in line against a real apiserver); for the rest the CRDs of Kueue v0.15, JobSet v0.10, LeaderWorkerSet v0.7,
KubeRay v1.5, Kubeflow's training operator v1.9 and trainer v2.1, Volcano v1.10 and scheduler-plugins v0.34.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import Object
from gpugate.policies.lint.context import group_of, text_at
from gpugate.policies.workloads.kinds import kinds_named


class Retired(NamedTuple):
    """A version of a kind that is no longer served.

    Attributes:
        right: the ``apiVersion`` to write; empty if the kind itself is gone.
        gone: since when, or by which release, it is not served.
        instead: what to use in place of a kind that is gone, a sentence; else what differs in the new version, a clause.
        is_served: whether current servers still serve it as deprecated.
    """

    right: str
    gone: str
    instead: str = ""
    is_served: bool = False


_SELECTOR: Final = "which requires spec.selector"
_FIELDS: Final = "which has other fields"
_POD_SECURITY: Final = "Label namespaces with pod-security.kubernetes.io/enforce (Pod Security Admission)."
_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
_ADMISSION_KINDS: Final = "MutatingWebhookConfiguration ValidatingWebhookConfiguration"


def _lines(api_version: str, kinds: str, right: str, since: str, instead: str = "") -> dict[tuple[str, str], Retired]:
    return {(api_version, kind): Retired(right, f"since Kubernetes {since}", instead) for kind in kinds.split()}


#: Versions of Kubernetes' own kinds, by ``apiVersion`` and kind.
BUILT_IN: Final[dict[tuple[str, str], Retired]] = {
    **_lines("extensions/v1beta1", "DaemonSet Deployment ReplicaSet", "apps/v1", "1.16", _SELECTOR),
    **_lines("extensions/v1beta1", "NetworkPolicy", "networking.k8s.io/v1", "1.16"),
    **_lines("extensions/v1beta1", "Ingress", "networking.k8s.io/v1", "1.22", _FIELDS),
    **_lines("extensions/v1beta1", "PodSecurityPolicy", "", "1.16", _POD_SECURITY),
    **_lines("apps/v1beta1", "Deployment StatefulSet", "apps/v1", "1.16", _SELECTOR),
    **_lines("apps/v1beta2", "DaemonSet Deployment ReplicaSet StatefulSet", "apps/v1", "1.16", _SELECTOR),
    **_lines("batch/v2alpha1", "CronJob", "batch/v1", "1.21"),
    **_lines("batch/v1beta1", "CronJob", "batch/v1", "1.25"),
    **_lines("autoscaling/v2beta1", "HorizontalPodAutoscaler", "autoscaling/v2", "1.25"),
    **_lines("autoscaling/v2beta2", "HorizontalPodAutoscaler", "autoscaling/v2", "1.26"),
    **_lines("policy/v1beta1", "PodDisruptionBudget", "policy/v1", "1.25"),
    **_lines("policy/v1beta1", "PodSecurityPolicy", "", "1.25", _POD_SECURITY),
    ("scheduling.k8s.io/v1alpha1", "PriorityClass"): Retired("scheduling.k8s.io/v1", "by Kubernetes 1.36"),
    **_lines("scheduling.k8s.io/v1beta1", "PriorityClass", "scheduling.k8s.io/v1", "1.22"),
    **_lines("node.k8s.io/v1beta1", "RuntimeClass", "node.k8s.io/v1", "1.25"),
    **_lines("networking.k8s.io/v1beta1", "Ingress", "networking.k8s.io/v1", "1.22", _FIELDS),
    **_lines("networking.k8s.io/v1beta1", "IngressClass", "networking.k8s.io/v1", "1.22"),
    **_lines(f"{_RBAC}/v1beta1", "ClusterRole ClusterRoleBinding Role RoleBinding", f"{_RBAC}/v1", "1.22"),
    **_lines("storage.k8s.io/v1beta1", "CSIDriver CSINode StorageClass VolumeAttachment", "storage.k8s.io/v1", "1.22"),
    **_lines("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", "apiextensions.k8s.io/v1", "1.22", "which needs a schema"),
    **_lines(f"{_ADMISSION}/v1beta1", _ADMISSION_KINDS, f"{_ADMISSION}/v1", "1.22"),
    **_lines("apiregistration.k8s.io/v1beta1", "APIService", "apiregistration.k8s.io/v1", "1.22"),
    **_lines("certificates.k8s.io/v1beta1", "CertificateSigningRequest", "certificates.k8s.io/v1", "1.22"),
    **_lines("coordination.k8s.io/v1beta1", "Lease", "coordination.k8s.io/v1", "1.22"),
    **_lines("discovery.k8s.io/v1beta1", "EndpointSlice", "discovery.k8s.io/v1", "1.25"),
    **_lines("settings.k8s.io/v1alpha1", "PodPreset", "", "1.20", "Use a mutating admission policy or webhook."),
    **_lines("resource.k8s.io/v1alpha2", "ResourceClaim ResourceClaimTemplate", "resource.k8s.io/v1", "1.31", _FIELDS),
    **_lines("resource.k8s.io/v1alpha2", "ResourceClass", "", "1.31", "Use a DeviceClass of resource.k8s.io/v1."),
}


def _others(versions: str, group: str, kinds: str, right: str, release: str) -> dict[tuple[str, str], Retired]:
    return {(f"{group}/{version}", kind): Retired(right, f"by {release}") for version in versions.split() for kind in kinds.split()}


_KUEUE: Final = "ClusterQueue LocalQueue ResourceFlavor Workload WorkloadPriorityClass AdmissionCheck Cohort Topology"
_V1_JOBS: Final = "TFJob PyTorchJob XGBoostJob PaddleJob MXJob"
_RAY: Final = "RayCluster RayJob RayService"
#: Versions of the kinds of operators, by ``apiVersion`` and kind.
OF_OPERATORS: Final[dict[tuple[str, str], Retired]] = {
    **_others("v1alpha1", "kueue.x-k8s.io", _KUEUE, "kueue.x-k8s.io/v1beta1", "Kueue 0.15"),
    **_others("v1alpha2", "kueue.x-k8s.io", _KUEUE, "kueue.x-k8s.io/v1beta1", "Kueue 0.15"),
    **_others("v1alpha1 v1alpha2 v1beta1 v1beta2", "kubeflow.org", _V1_JOBS, "kubeflow.org/v1", "Kubeflow's training operator 1.9"),
    **_others("v1alpha1 v1alpha2", "kubeflow.org", "MPIJob", "kubeflow.org/v2beta1", "Kubeflow's MPI operator 0.7"),
    **_others("v1alpha1", "jobset.x-k8s.io", "JobSet", "jobset.x-k8s.io/v1alpha2", "JobSet 0.10"),
    **_others("v1alpha1", "leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet 0.7"),
    **_others("v1alpha1 v1alpha2", "scheduling.volcano.sh", "PodGroup Queue", "scheduling.volcano.sh/v1beta1", "Volcano 1.10"),
    **_others("v1alpha1", "scheduling.incubator.k8s.io", "PodGroup Queue", "scheduling.volcano.sh/v1beta1", "Volcano 1.10"),
    **_others("v1alpha1", "scheduling.sigs.k8s.io", "PodGroup", "scheduling.x-k8s.io/v1alpha1", "scheduler-plugins 0.34"),
    **{("ray.io/v1alpha1", kind): Retired("ray.io/v1", "since KubeRay 1.0", is_served=True) for kind in _RAY.split()},
}
RETIRED: Final = {**BUILT_IN, **OF_OPERATORS}
#: Groups whose kinds are all in these tables or in the table of workload kinds.
_CLOSED: Final = frozenset({"", "apps", "batch", "extensions", "kubeflow.org", "batch.volcano.sh", "scheduling.k8s.io"})


def check(obj: Object) -> Iterator[Finding]:
    """Check for a retired API version, or a kind that its group does not have."""
    api_version, kind = text_at(obj, "apiVersion"), text_at(obj, "kind")
    retired = RETIRED.get((api_version, kind))
    if retired is not None:
        yield _not_served(api_version, kind, retired)
        return
    known, group = kinds_named(kind), group_of(api_version)
    if known and group in _CLOSED and not any(candidate.group == group for candidate in known):
        right = " or ".join(f"{candidate.group}/{candidate.versions[-1]}".lstrip("/") for candidate in known)
        message = f"{api_version} has no kind {kind}, so API servers reject the object"
        yield Finding("WrongGroup", ("apiVersion",), message, f"Write apiVersion: {right}.")


def _not_served(api_version: str, kind: str, retired: Retired) -> Finding:
    if retired.is_served:
        message = f"{api_version} of {kind} is deprecated {retired.gone}"
    elif retired.right:
        message = f"{api_version} of {kind} is not served {retired.gone}, so API servers reject the object"
    else:
        message = f"{kind} does not exist {retired.gone}, so API servers reject the object"
    clause = f", {retired.instead}" if retired.instead else ""
    remedy = f"Write apiVersion: {retired.right}{clause}." if retired.right else retired.instead
    return Finding("RetiredVersion", ("apiVersion",), message, remedy, Level.WARN if retired.is_served else Level.DENY)


def current(api_version: str, kind: str) -> str:
    """Return the ``apiVersion`` to review an object by: the current one if its own is retired."""
    retired = RETIRED.get((api_version, kind))
    return retired.right if retired and retired.right else api_version
