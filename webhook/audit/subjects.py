"""Which of the objects that are there an audit looks at: the topmost that asks for accelerators or gets at them, once each."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.gangs.status import is_over
from gpugate.policies.kube.field_ownership import LAST_APPLIED, applied_in_short, managed_in_short
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.workloads.device_access import asks_somehow, goes_to_reserved_nodes, may_access_devices, takes_devices
from gpugate.policies.workloads.kinds import KINDS, POD, WorkloadKind, kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.workload import Workload
from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.discovery import version_of
from gpugate.webhook.kube.errors import ApiError, NotServed
from gpugate.webhook.kube.lister import is_refused, pages_of
from gpugate.webhook.kube.types import WatchedKind

JsonObject: TypeAlias = dict[str, Any]
#: What the mirror of a static pod is owned by: it came from a file there, and stands for itself.
_NODE: Final = ("v1", "Node")
#: What is kept of a pod's status: where it stands, and why it waits.
_POD_STATUS: Final = ("conditions", "phase", "startTime")


class ControllerRef(NamedTuple):
    """The controller that made an object."""

    api_version: str
    kind: str
    name: str
    uid: str


class Subject(NamedTuple):
    """An object as the audit keeps it.

    Attributes:
        kind: its entry in the table of kinds.
        namespace: its namespace.
        name: its name.
        uid: its uid; empty in a file that lacks it.
        owner: the controller that made it; None where somebody else did.
        asks: whether it asks for accelerators itself, or gets at them without asking, has not ended and is not being deleted.
        text: the object as JSON, without what no rule reads; empty where it does not ask, or is never judged itself.
        sort: of a pod that asks, what its containers ask for or take, as a hash: the pods of one owner may be of several sorts.
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
    """The object as kept; None where it is of a kind that gpugate does not read.

    Raises:
        MalformedError: a field that gpugate reads is of the wrong type.
    """
    kind = kind_of(str(item.get("apiVersion")), str(item.get("kind")))
    if kind is None:
        return None
    workload = open_workload(kind, item, EMPTY_SNAPSHOT)
    judged = may_request_gpu(workload) or may_access_devices(workload)
    requests_gpu = judged and workload.metadata().get("deletionTimestamp") is None and not is_over(item)
    return Subject(
        kind,
        workload.namespace,
        workload.name or str(workload.metadata().get("generateName") or ""),
        str(workload.metadata().get("uid") or ""),
        _owner(workload),
        requests_gpu,
        _written(_kept(item, kind)) if requests_gpu else b"",
        _pod_hash(workload) if requests_gpu and kind is POD else b"",
    )


def _pod_hash(workload: Workload) -> bytes:
    amounts = [(one.limits, one.requests) for pods in workload.pod_sets for one in pods.containers]
    claims = [bool(pods.spec.get("resourceClaims")) for pods in workload.pod_sets]
    ways = [[takes_devices(pods), goes_to_reserved_nodes(pods)] for pods in workload.pod_sets]
    try:
        stated = orjson.dumps([amounts, claims, ways], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # nested without end; the whole object cannot be kept either
        return b""
    return hashlib.blake2b(stated, digest_size=8).digest()


def _written(kept: JsonObject) -> bytes:
    try:
        return orjson.dumps(kept)
    except orjson.JSONEncodeError as error:
        # What YAML and the apiserver may hold: objects within objects without end.
        culprit = next((key for key in kept if not _is_writable(kept[key])), "metadata")
        raise MalformedError((culprit,), f"cannot be kept as JSON: {error}") from None


def _is_writable(value: object) -> bool:
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return True


def trim(subject: Subject) -> Subject | None:
    """``subject`` as a long-lived program keeps it: no more than links to others where it is never judged itself.

    A pod whose owner is of a kind that gpugate reads is judged with that owner; one that neither asks nor links is left out.
    """
    if subject.kind.is_revision_of_owner and subject.owner is not None:
        return subject._replace(text=b"")
    if not subject.requests_gpu:
        return None
    owner = subject.owner
    if subject.kind is POD and owner is not None:
        known = kind_of(owner.api_version, owner.kind)
        # No controller is a pod: who names one is judged for itself.
        if known is not None and known is not POD and not known.is_revision_of_owner:
            return subject._replace(text=b"")
    return subject


def _owner(workload: Workload) -> ControllerRef | None:
    found = workload.controller()
    if found is None or (found.get("apiVersion"), found.get("kind")) == _NODE:
        return None
    return ControllerRef(*(str(found.get(key) or "") for key in ("apiVersion", "kind", "name", "uid")))


def may_request_gpu(workload: Workload) -> bool:
    """Whether the object asks for what may be an accelerator, rightly spelt or not, as the webhooks' conditions see it."""
    return any(map(asks_somehow, workload.pod_sets))


def _kept(item: JsonObject, kind: WorkloadKind) -> JsonObject:
    """``item`` without what no rule reads: who set which field, and most of a pod's status."""
    metadata = dict(item.get("metadata") or {})
    if type(metadata.get("managedFields")) is list:
        metadata["managedFields"] = managed_in_short(metadata["managedFields"])
    if metadata.get("resourceVersion"):
        # That it is stored is all that a rule asks; the number changes with every word in its status.
        metadata["resourceVersion"] = "0"
    annotations = metadata.get("annotations")
    if type(annotations) is dict:
        applied = annotations.get(LAST_APPLIED)
        short = {LAST_APPLIED: applied_in_short(applied)} if type(applied) is str else {}
        metadata["annotations"] = {**annotations, **short}
    kept = {**item, "metadata": metadata}
    status = item.get("status")
    if kind is POD and type(status) is dict:
        kept["status"] = {key: status[key] for key in _POD_STATUS if key in status}
    return kept


def subjects_in(objects: Iterable[JsonObject]) -> Iterator[Subject | str]:
    """The subjects among plain objects; in place of one that cannot be read, a line that says so."""
    for item in objects:
        try:
            found = subject_of(item)
        except MalformedError as error:
            yield f"{describe(item)} cannot be read: {error}"
            continue
        if found is not None:
            yield found


def describe(item: JsonObject) -> str:
    """What an object is called where it cannot be read."""
    metadata = item.get("metadata")
    metadata = metadata if type(metadata) is dict else {}
    place = "/".join(str(metadata[key]) for key in ("namespace", "name") if isinstance(metadata.get(key), str))
    return f"{item.get('kind')!s:.60} {place:.300}".rstrip()


def _watched(kind: WorkloadKind) -> WatchedKind:
    return WatchedKind(kind.kind, kind.group, kind.versions, kind.resource, resource=f"{kind.resource}.{kind.group}".rstrip("."))


SUBJECT_KINDS: Final = tuple(_watched(kind) for kind in KINDS)
"""Every kind of workload, as the audit reads it."""


async def subjects_of(client: ApiClient, namespaces: Collection[str] = ()) -> tuple[list[Subject | str], list[str]]:
    """The subjects of a cluster, and what could not be read, in words.

    Args:
        client: the way to the cluster.
        namespaces: what alone is looked for; a kind that may not be read in the whole cluster is read there.

    Raises:
        ClusterError: the cluster cannot be reached, or lets nothing be read.
    """
    found: list[Subject | str] = []
    remarks: list[str] = []
    refused: ApiError | None = None
    read = 0
    for kind in SUBJECT_KINDS:
        try:
            subjects = await _read(client, kind, namespaces)
        except ApiError as error:
            if not is_refused(error):
                raise
            remarks.append(f"{kind.resource} cannot be read: {error.message}")
            refused = refused or error
        else:
            found += subjects or []
            read += subjects is not None
    if refused is not None and not read:
        # Nothing to find fault with would be no audit, but a false one.
        hint = "" if namespaces else "; with rights in a namespace alone name it by -n"
        message = f"no kind of workload can be read: {refused.message}{hint}; or audit files: kubectl get -n NAMESPACE ... -o yaml"
        raise ApiError(refused.status, refused.reason, message)
    return found, remarks


async def _read(client: ApiClient, kind: WatchedKind, namespaces: Collection[str]) -> list[Subject | str] | None:
    """The subjects of one kind; None where the cluster does not serve it."""
    version = await version_of(client, kind)
    if version is None:
        return None
    try:
        # Page by page, so that no list is held with all its fields.
        return [one async for page in pages_of(client, kind, version, namespaces) for one in subjects_in(page)]
    except NotServed:
        return None
