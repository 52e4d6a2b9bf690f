"""Tell who manages an object and its fields: users, GitOps tools, Kueue, or the defaults of the API server."""

from typing import Any, Final

import orjson

from gpugate.policies.kube.fields import Object, Path, lookup, mapping, mappings, sequence
from gpugate.policies.kube.names import QUEUE_NAME, REQUIRED_TOPOLOGY

#: Annotation with the manifest that ``kubectl apply`` or Argo CD's client-side apply sent.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

#: Defaulted fields that rules read; records of an object keep no others.
ASKED: Final = frozenset({"backoffLimit", "podReplacementPolicy", "replicas"})

#: Argo CD's tracking annotation, its tracking label if configured apart from Helm's, and Flux's owner labels.
_ANNOTATIONS: Final = frozenset({"argocd.argoproj.io/tracking-id"})
_LABELS: Final = frozenset({"argocd.argoproj.io/instance", "kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name"})
GITOPS_MANAGERS: Final = frozenset(
    {"argocd-controller", "argocd-application-controller", "kustomize-controller", "helm-controller"}
)

#: Labels and annotations that Kueue adds to the pods of a workload that it manages (v0.15.0, ``pkg/controller/constants``).
_KUEUE_LABELS: Final = frozenset({QUEUE_NAME, "kueue.x-k8s.io/podset", "kueue.x-k8s.io/managed"})
_KUEUE_ANNOTATIONS: Final = frozenset({"kueue.x-k8s.io/workload", REQUIRED_TOPOLOGY})
#: Prefix of all Kueue labels and annotations.
_KUEUE: Final = "kueue.x-k8s.io/"
_TOPOLOGY: Final = "-topology"


def is_gitops_managed(root: Object) -> bool:
    """Return whether Argo CD or Flux applies this object, by its tracking labels and annotations or its field managers."""
    metadata, labels, annotations = _marks(root)
    if not _ANNOTATIONS.isdisjoint(annotations) or not _LABELS.isdisjoint(labels):
        return True
    for entry in sequence(metadata, "managedFields", ("metadata",)):
        if type(entry) is dict and entry.get("manager") in GITOPS_MANAGERS:
            return True
    return False


def has_kueue_marks(root: Object) -> bool:
    """Return whether a pod carries a label or annotation of a workload that Kueue manages."""
    _, labels, annotations = _marks(root)
    return not _KUEUE_LABELS.isdisjoint(labels) or not _KUEUE_ANNOTATIONS.isdisjoint(annotations)


def with_kueue_marks(template: Object, before: Object) -> Object:
    """Return ``template`` with the labels and annotations that Kueue's webhooks added ``before``.

    A request that replaces the object lacks them, and Kueue adds them again after gpugate (v0.15.0,
    ``pkg/controller/jobs/deployment``). Topology annotations are left out: users write those.
    """
    metadata, _, _ = _marks(template)
    _, *holders = _marks(before)
    result = dict(metadata)
    for holder, had in zip(("labels", "annotations"), holders, strict=True):
        present = metadata.get(holder) or {}
        marks = {key: value for key, value in had.items() if str(key).startswith(_KUEUE) and not str(key).endswith(_TOPOLOGY)}
        if marks and type(present) is dict:
            result[holder] = {**marks, **present}
    return template if result == metadata else {**template, "metadata": result}


def _marks(root: Object) -> tuple[Object, Object, Object]:
    """Return the object's metadata, labels and annotations."""
    metadata = mapping(root, "metadata", ())
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    return (
        metadata,
        labels if type(labels) is dict else mapping(metadata, "labels", ("metadata",)),
        annotations if type(annotations) is dict else mapping(metadata, "annotations", ("metadata",)),
    )


def is_user_set(root: Object, path: Path) -> bool | None:
    """Return whether the user set the field at ``path``, which the API server defaults; None if unknown.

    The last-applied annotation and the managed fields of a server-side apply show it. Managed fields of other requests name
    defaults, too. An object without managed fields has not passed the API server, so all its fields are the user's.
    """
    if lookup(root, path) is None:
        return False
    metadata = mapping(root, "metadata", ())
    applied = mapping(metadata, "annotations", ("metadata",)).get(LAST_APPLIED)
    if type(applied) is str:
        return _is_in(applied, path)
    managed = mappings(metadata, "managedFields", ("metadata",))
    if not managed:
        return True
    place = ("fieldsV1", *(f"f:{part}" for part in path))
    if any(entry.get("operation") == "Apply" and lookup(entry, place) is not None for entry in managed):
        return True
    return None if any(entry.get("operation") != "Apply" for entry in managed) else False


def _is_in(applied: str, path: Path) -> bool | None:
    try:
        return lookup(orjson.loads(applied), path) is not None
    except orjson.JSONDecodeError:
        return None


def applied_in_short(applied: str) -> str:
    """Return the last-applied annotation reduced to the fields that rules read; empty if it is no JSON."""
    try:
        return orjson.dumps(_pruned(orjson.loads(applied), ASKED) or {}).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return ""


def managed_in_short(fields: Any) -> list[Object]:  # noqa: ANN401 - any JSON value
    """Return the managed fields reduced to the fields that rules read, without duplicates, in order."""
    names = frozenset(f"f:{name}" for name in ASKED)
    entries: list[Object] = []
    for entry in fields if isinstance(fields, list) else ():
        if isinstance(entry, dict):
            kept = {key: entry[key] for key in ("manager", "operation") if isinstance(entry.get(key), str)}
            told = _pruned(entry.get("fieldsV1"), names)
            short = {**kept, "fieldsV1": told} if told else kept
            if short not in entries:
                entries.append(short)
    return entries


def _pruned(value: Any, names: frozenset[str]) -> Object:  # noqa: ANN401 - any JSON value
    """Return the maps of ``value`` that lead to fields in ``names``, with empty maps in place of those fields."""
    kept: Object = {}
    for key, item in value.items() if isinstance(value, dict) else ():
        if key in names and item is not None:
            kept[key] = {}
        elif below := _pruned(item, names):
            kept[key] = below
    return kept
