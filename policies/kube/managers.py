"""Find out who manages an object and its fields: users, GitOps tools, Kueue, or the defaults of the API server."""

from typing import Any, Final

import orjson

from gpugate.policies.kube.fields import Object, Path, lookup, mapping, mappings, metadata_map, sequence
from gpugate.policies.kube.names import QUEUE_NAME, REQUIRED_TOPOLOGY

#: Annotation with the manifest that ``kubectl apply`` or Argo CD's client-side apply sent.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

#: Defaulted fields of which rules read whether a user set them; records of an object keep no others.
DEFAULTED_FIELDS: Final = frozenset({"backoffLimit", "podReplacementPolicy", "replicas"})

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
    labels, annotations = metadata_map(root, "labels"), metadata_map(root, "annotations")
    if not _ANNOTATIONS.isdisjoint(annotations) or not _LABELS.isdisjoint(labels):
        return True
    entries = sequence(mapping(root, "metadata", ()), "managedFields", ("metadata",))
    return any(
        type(entry) is dict and type(entry.get("manager")) is str and entry["manager"] in GITOPS_MANAGERS for entry in entries
    )


def has_kueue_marks(root: Object) -> bool:
    """Return whether a pod has a label or annotation of a workload that Kueue manages."""
    labels, annotations = metadata_map(root, "labels"), metadata_map(root, "annotations")
    return not _KUEUE_LABELS.isdisjoint(labels) or not _KUEUE_ANNOTATIONS.isdisjoint(annotations)


def with_kueue_marks(template: Object, before: Object) -> Object:
    """Return ``template`` with the labels and annotations that Kueue's webhooks added ``before``.

    A request that replaces the object lacks them, and Kueue adds them again after gpugate (v0.15.0,
    ``pkg/controller/jobs/deployment``). Topology annotations are left out: users write those.
    """
    metadata = mapping(template, "metadata", ())
    result = dict(metadata)
    for field in ("labels", "annotations"):
        present = metadata_map(template, field)
        stored = {str(key): value for key, value in metadata_map(before, field).items()}
        marks = {key: value for key, value in stored.items() if key.startswith(_KUEUE) and not key.endswith(_TOPOLOGY)}
        if marks:
            result[field] = {**marks, **present}
    return template if result == metadata else {**template, "metadata": result}


def is_user_set(root: Object, path: Path) -> bool | None:
    """Return whether the user set the field at ``path``, which the API server defaults; None if unknown.

    The last-applied annotation and the managed fields of a server-side apply show it. Managed fields of other requests name
    defaults, too. An object without managed fields has not passed the API server, so all its fields are the user's.
    """
    if lookup(root, path) is None:
        return False
    metadata = mapping(root, "metadata", ())
    applied = metadata_map(root, "annotations").get(LAST_APPLIED)
    if type(applied) is str:
        try:
            return lookup(orjson.loads(applied), path) is not None
        except orjson.JSONDecodeError:
            return None
    managed = mappings(metadata, "managedFields", ("metadata",))
    if not managed:
        return True
    managed_path = ("fieldsV1", *(f"f:{part}" for part in path))
    if any(entry.get("operation") == "Apply" and lookup(entry, managed_path) is not None for entry in managed):
        return True
    return None if any(entry.get("operation") != "Apply" for entry in managed) else False


def applied_in_short(applied: str) -> str:
    """Return the last-applied annotation reduced to the fields that rules read; empty if it is no JSON."""
    try:
        return orjson.dumps(_pruned(orjson.loads(applied), DEFAULTED_FIELDS) or {}).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return ""


def managed_in_short(fields: Any) -> list[Object]:  # noqa: ANN401 - any JSON value
    """Return the managed fields reduced to the fields that rules read, without duplicates, in order."""
    # The name of a node shows that a user wrote it, and not the scheduler.
    names = frozenset(f"f:{name}" for name in (*DEFAULTED_FIELDS, "nodeName"))
    entries: list[Object] = []
    for entry in fields if isinstance(fields, list) else ():
        if isinstance(entry, dict):
            reduced: Object = {key: entry[key] for key in ("manager", "operation") if isinstance(entry.get(key), str)}
            if fields_v1 := _pruned(entry.get("fieldsV1"), names):
                reduced["fieldsV1"] = fields_v1
            if reduced not in entries:
                entries.append(reduced)
    return entries


def _pruned(value: Any, names: frozenset[str]) -> Object:  # noqa: ANN401 - any JSON value
    """Return the maps of ``value`` that lead to fields in ``names``, with empty maps in place of those fields."""
    result: Object = {}
    for key, item in value.items() if isinstance(value, dict) else ():
        if key in names and item is not None:
            result[key] = {}
        elif below := _pruned(item, names):
            result[key] = below
    return result
