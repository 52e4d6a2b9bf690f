"""Reduce objects of the cluster to audit subjects: those that request accelerators, or can access them or crowd their nodes."""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.gangs.status import is_over
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.kube.managers import LAST_APPLIED, applied_in_short, managed_in_short
from gpugate.policies.workloads.device_access import (
    asks_somehow,
    goes_to_reserved_nodes,
    may_access_devices,
    may_crowd_gpu_nodes,
    names_a_node,
    takes_devices,
    toleration_of_everything,
)
from gpugate.policies.workloads.kinds import KINDS, WorkloadKind, kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.workload import Workload
from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.errors import ApiError, NotServed
from gpugate.webhook.kube.lister import is_refused, pages_of, version_of
from gpugate.webhook.kube.types import WatchedKind

JsonObject: TypeAlias = dict[str, Any]
#: Owner of the mirror of a static pod, which has no controller.
_NODE: Final = ("v1", "Node")
#: Kept fields of a pod's status.
_POD_STATUS: Final = ("conditions", "phase", "startTime")


class ControllerRef(NamedTuple):
    """Reference to the controller of an object."""

    api_version: str
    kind: str
    name: str
    uid: str


class Subject(NamedTuple):
    """An object as the audit keeps it.

    Attributes:
        owner: its controller; None without one.
        requests_gpu: whether it requests or can access accelerators or their nodes, is not finished and not being deleted.
        text: the object as JSON without fields that no rule reads; empty if it is never evaluated itself.
        pod_hash: hash of a pod's requests and device access: pods of one owner may differ.
    """

    kind: WorkloadKind
    namespace: str
    name: str
    uid: str
    owner: ControllerRef | None
    requests_gpu: bool
    text: bytes
    pod_hash: bytes = b""


def subject_of(item: JsonObject) -> Subject | None:
    """Return the subject of an object; None for a kind that gpugate does not read.

    Raises:
        MalformedError: a field that gpugate reads has the wrong type.
    """
    kind = kind_of(str(item.get("apiVersion")), str(item.get("kind")))
    if kind is None:
        return None
    workload = open_workload(kind, item, EMPTY_SNAPSHOT)
    takes_gpu = may_request_gpu(workload) or may_access_devices(workload) or may_crowd_gpu_nodes(workload)
    requests_gpu = takes_gpu and workload.metadata().get("deletionTimestamp") is None and not is_over(item)
    return Subject(
        kind,
        workload.namespace,
        workload.name or str(workload.metadata().get("generateName") or ""),
        str(workload.metadata().get("uid") or ""),
        _owner(workload),
        requests_gpu,
        _as_json(_kept(item, kind)) if requests_gpu else b"",
        _pod_hash(workload) if requests_gpu and kind.is_pod else b"",
    )


def _pod_hash(workload: Workload) -> bytes:
    amounts = [(container.limits, container.requests) for pods in workload.pod_sets for container in pods.containers]
    claims = [bool(pods.spec.get("resourceClaims")) for pods in workload.pod_sets]
    access = [
        [takes_devices(pods), goes_to_reserved_nodes(pods), toleration_of_everything(pods), names_a_node(workload, pods)]
        for pods in workload.pod_sets
    ]
    try:
        text = orjson.dumps([amounts, claims, access], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # nested too deeply; the whole object cannot be kept either
        return b""
    return hashlib.blake2b(text, digest_size=8).digest()


def _as_json(kept: JsonObject) -> bytes:
    try:
        return orjson.dumps(kept)
    except orjson.JSONEncodeError as error:
        # YAML and the apiserver allow endless nesting.
        field = next((key for key in kept if not _is_writable(kept[key])), "metadata")
        raise MalformedError((field,), f"cannot be stored as JSON: {error}") from None


def _is_writable(value: object) -> bool:
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return True


def trim(subject: Subject) -> Subject | None:
    """Reduce ``subject`` for a long-lived program: only references if it is never evaluated itself; None if it is not needed.

    A pod whose owner is of a known kind is evaluated with that owner.
    """
    if subject.kind.is_revision_of_owner and subject.owner is not None:
        return subject._replace(text=b"")
    if not subject.requests_gpu:
        return None
    owner = subject.owner
    if subject.kind.is_pod and owner is not None:
        known = kind_of(owner.api_version, owner.kind)
        # A pod is no controller: a pod owned by a pod is evaluated itself.
        if known is not None and not known.is_pod and not known.is_revision_of_owner:
            return subject._replace(text=b"")
    return subject


def _owner(workload: Workload) -> ControllerRef | None:
    owner = workload.controller()
    if owner is None or (owner.get("apiVersion"), owner.get("kind")) == _NODE:
        return None
    return ControllerRef(*(str(owner.get(key) or "") for key in ("apiVersion", "kind", "name", "uid")))


def may_request_gpu(workload: Workload) -> bool:
    """Return whether the object requests a possible accelerator, misspelt names included, as the match conditions see it."""
    return any(map(asks_somehow, workload.pod_sets))


def _kept(item: JsonObject, kind: WorkloadKind) -> JsonObject:
    """Drop fields of ``item`` that no rule reads: most of managedFields and of a pod's status."""
    metadata = dict(item.get("metadata") or {})
    if type(metadata.get("managedFields")) is list:
        metadata["managedFields"] = managed_in_short(metadata["managedFields"])
    if metadata.get("resourceVersion"):
        # Rules only check that it is stored; the number changes with every status update.
        metadata["resourceVersion"] = "0"
    annotations = metadata.get("annotations")
    if type(annotations) is dict:
        applied = annotations.get(LAST_APPLIED)
        short = {LAST_APPLIED: applied_in_short(applied)} if type(applied) is str else {}
        metadata["annotations"] = {**annotations, **short}
    kept = {**item, "metadata": metadata}
    status = item.get("status")
    if kind.is_pod and type(status) is dict:
        kept["status"] = {key: status[key] for key in _POD_STATUS if key in status}
    return kept


def subjects_in(objects: Iterable[JsonObject]) -> Iterator[Subject | str]:
    """Yield the subjects among plain objects; a text for each unreadable one."""
    for item in objects:
        try:
            subject = subject_of(item)
        except MalformedError as error:
            yield f"{describe(item)} cannot be read: {error}"
            continue
        if subject is not None:
            yield subject


def describe(item: JsonObject) -> str:
    """Return the title of an unreadable object."""
    metadata = item.get("metadata")
    metadata = metadata if type(metadata) is dict else {}
    place = "/".join(str(metadata[key]) for key in ("namespace", "name") if isinstance(metadata.get(key), str))
    return f"{item.get('kind')!s:.60} {place:.300}".rstrip()


SUBJECT_KINDS: Final = tuple(
    WatchedKind(kind.kind, kind.group, kind.versions, kind.resource, resource=kind.full_resource) for kind in KINDS
)
"""Every kind of workload, as the audit reads it."""


async def subjects_of(client: ApiClient, namespaces: Collection[str] = ()) -> tuple[list[Subject | str], list[str]]:
    """Return the subjects of a cluster, and remarks on kinds that could not be read.

    Kinds that are forbidden in the whole cluster are read in ``namespaces``.

    Raises:
        ClusterError: the cluster does not answer, or forbids every kind.
    """
    subjects: list[Subject | str] = []
    remarks: list[str] = []
    refused: ApiError | None = None
    read = 0
    for kind in SUBJECT_KINDS:
        try:
            of_kind = await _read(client, kind, namespaces)
        except ApiError as error:
            if not is_refused(error):
                raise
            remarks.append(f"{kind.resource} cannot be read: {error.message}")
            refused = refused or error
        else:
            subjects += of_kind or []
            read += of_kind is not None
    if refused is not None and not read:
        # An audit without any workload would be wrong.
        hint = "" if namespaces else "; with access to one namespace only, give it with -n"
        message = f"no kind of workload can be read: {refused.message}{hint}; or audit files: kubectl get -n NAMESPACE ... -o yaml"
        raise ApiError(refused.status, refused.reason, message)
    return subjects, remarks


async def _read(client: ApiClient, kind: WatchedKind, namespaces: Collection[str]) -> list[Subject | str] | None:
    """Return the subjects of one kind; None if the cluster does not serve it."""
    version = await version_of(client, kind)
    if version is None:
        return None
    try:
        # Page by page, so that no full list is held.
        return [subject async for page in pages_of(client, kind, version, namespaces) for subject in subjects_in(page)]
    except NotServed:
        return None
