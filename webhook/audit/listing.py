"""The workloads of a live cluster, read page by page; and the kinds to watch for those who stay."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gpugate.policies.workloads.kinds import KINDS, WorkloadKind
from gpugate.webhook.audit.subjects import Subject, subjects_in
from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.lister import is_refused, pages_of, version_of
from gpugate.webhook.kube.types import ApiError, NotServed, WatchedKind


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
