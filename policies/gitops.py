"""Whether a GitOps tool keeps an object equal to Git, and whether Kueue accounts for a pod's owner."""

from __future__ import annotations

from typing import Final

from gpugate.policies.fields import Object, mapping, sequence

#: Argo CD's tracking annotation, its tracking label where configured apart from Helm's, and Flux's owner labels.
_ANNOTATIONS: Final = ("argocd.argoproj.io/tracking-id",)
_LABELS: Final = (
    "argocd.argoproj.io/instance",
    "kustomize.toolkit.fluxcd.io/name",
    "helm.toolkit.fluxcd.io/name",
)
_MANAGERS: Final = frozenset(
    {
        "argocd-controller",
        "argocd-application-controller",
        "kustomize-controller",
        "helm-controller",
    }
)

#: What Kueue puts on the pods of a workload that it manages (v0.15.0, ``pkg/controller/constants``).
_KUEUE_LABELS: Final = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/podset", "kueue.x-k8s.io/managed")
_KUEUE_ANNOTATIONS: Final = ("kueue.x-k8s.io/workload", "kueue.x-k8s.io/podset-required-topology")


def git_managed(root: Object) -> bool:
    """Whether Argo CD or Flux applies this object, by its tracking marks or its field managers."""
    metadata = mapping(root, "metadata", ())
    labels = mapping(metadata, "labels", ("metadata",))
    annotations = mapping(metadata, "annotations", ("metadata",))
    if any(key in annotations for key in _ANNOTATIONS) or any(key in labels for key in _LABELS):
        return True
    entries = sequence(metadata, "managedFields", ("metadata",))
    return any(type(entry) is dict and entry.get("manager") in _MANAGERS for entry in entries)


def kueue_marked(root: Object) -> bool:
    """Whether a pod carries a mark that Kueue leaves on the pods of workloads it manages."""
    metadata = mapping(root, "metadata", ())
    labels = mapping(metadata, "labels", ("metadata",))
    annotations = mapping(metadata, "annotations", ("metadata",))
    return any(key in labels for key in _KUEUE_LABELS) or any(key in annotations for key in _KUEUE_ANNOTATIONS)
