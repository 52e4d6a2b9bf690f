"""The workloads of a live cluster, read page by page; and the kinds to watch for those who stay."""

from __future__ import annotations

from typing import Final

from gpugate.policies.kinds import KINDS, Kind
from gpugate.webhook.audit.subjects import Subject, subjects_in
from gpugate.webhook.cluster import ApiError, NotServed, WatchedKind
from gpugate.webhook.cluster.client import ApiClient

_PAGE: Final = 500
_REFUSED: Final = frozenset({401, 403})


def _watched(kind: Kind) -> WatchedKind:
    return WatchedKind(kind.kind, kind.group, kind.versions, kind.resource, resource=f"{kind.resource}.{kind.group}".rstrip("."))


SUBJECT_KINDS: Final = tuple(_watched(kind) for kind in KINDS)
"""Every kind of workload, as the audit reads it."""


async def subjects_of(client: ApiClient) -> tuple[list[Subject | str], list[str]]:
    """The subjects of a cluster, and what could not be read, in words.

    Raises:
        ClusterError: the cluster cannot be reached, or lets nothing be read.
    """
    found: list[Subject | str] = []
    remarks: list[str] = []
    refused: ApiError | None = None
    read = 0
    for kind in SUBJECT_KINDS:
        try:
            subjects = await _read(client, kind)
        except ApiError as error:
            if error.status not in _REFUSED:
                raise
            remarks.append(f"{kind.resource} cannot be read: {error.message}")
            refused = refused or error
        else:
            found += subjects or []
            read += subjects is not None
    if refused is not None and not read:
        # Nothing to find fault with would be no audit, but a false one.
        message = f"no kind of workload can be read: {refused.message}; audit files instead: kubectl get -n NAMESPACE ... -o yaml"
        raise ApiError(refused.status, refused.reason, message)
    return found, remarks


async def _read(client: ApiClient, kind: WatchedKind) -> list[Subject | str] | None:
    """The subjects of one kind; None where the cluster does not serve it."""
    for version in kind.versions:
        try:
            if await client.served(kind.group, version, kind.plural):
                return await _pages(client, kind, version)
        except NotServed:
            continue
    return None


async def _pages(client: ApiClient, kind: WatchedKind, version: str) -> list[Subject | str]:
    found: list[Subject | str] = []
    token: str | None = None
    typed = {"apiVersion": f"{kind.group}/{version}" if kind.group else version, "kind": kind.name}
    while True:
        page = await client.list(kind.path(version), limit=_PAGE, continue_=token)
        found += subjects_in({**item, **typed} for item in page.get("items") or [])
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return found
