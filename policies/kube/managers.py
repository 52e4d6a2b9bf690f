"""Whether a GitOps tool keeps an object equal to Git, and whether Kueue accounts for a pod's owner."""

from __future__ import annotations

from typing import Final

from gpugate.policies.kube.fields import Object, mapping, sequence

#: Argo CD's tracking annotation, its tracking label where configured apart from Helm's, and Flux's owner labels.
_ANNOTATIONS: Final = frozenset({"argocd.argoproj.io/tracking-id"})
_LABELS: Final = frozenset(
    {
        "argocd.argoproj.io/instance",
        "kustomize.toolkit.fluxcd.io/name",
        "helm.toolkit.fluxcd.io/name",
    }
)
GITOPS_MANAGERS: Final = frozenset(
    {
        "argocd-controller",
        "argocd-application-controller",
        "kustomize-controller",
        "helm-controller",
    }
)

#: What Kueue puts on the pods of a workload that it manages (v0.15.0, ``pkg/controller/constants``).
_KUEUE_LABELS: Final = frozenset({"kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/podset", "kueue.x-k8s.io/managed"})
_KUEUE_ANNOTATIONS: Final = frozenset({"kueue.x-k8s.io/workload", "kueue.x-k8s.io/podset-required-topology"})
#: Of marks of any sort.
_KUEUE: Final = "kueue.x-k8s.io/"
_TOPOLOGY: Final = "-topology"


def is_gitops_managed(root: Object) -> bool:
    """Whether Argo CD or Flux applies this object, by its tracking marks or its field managers."""
    metadata, labels, annotations = _marks(root)
    if not _ANNOTATIONS.isdisjoint(annotations) or not _LABELS.isdisjoint(labels):
        return True
    for entry in sequence(metadata, "managedFields", ("metadata",)):
        if type(entry) is dict and entry.get("manager") in GITOPS_MANAGERS:
            return True
    return False


def has_kueue_marks(root: Object) -> bool:
    """Whether a pod carries a mark that Kueue leaves on the pods of workloads it manages."""
    _, labels, annotations = _marks(root)
    return not _KUEUE_LABELS.isdisjoint(labels) or not _KUEUE_ANNOTATIONS.isdisjoint(annotations)


def with_kueue_marks(template: Object, before: Object) -> Object:
    """``template`` with the marks that Kueue's webhooks had put into it ``before``.

    A request that replaces the object comes without them, and Kueue puts them back after gpugate (v0.15.0,
    ``pkg/controller/jobs/deployment``). What is said of topologies is said by people.
    """
    metadata, _, _ = _marks(template)
    _, *holders = _marks(before)
    found = dict(metadata)
    for holder, had in zip(("labels", "annotations"), holders, strict=True):
        present = metadata.get(holder) or {}
        marks = {key: value for key, value in had.items() if str(key).startswith(_KUEUE) and not str(key).endswith(_TOPOLOGY)}
        if marks and type(present) is dict:
            found[holder] = {**marks, **present}
    return template if found == metadata else {**template, "metadata": found}


def _marks(root: Object) -> tuple[Object, Object, Object]:
    """The object's metadata, labels and annotations."""
    metadata = mapping(root, "metadata", ())
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    return (
        metadata,
        labels if type(labels) is dict else mapping(metadata, "labels", ("metadata",)),
        annotations if type(annotations) is dict else mapping(metadata, "annotations", ("metadata",)),
    )
