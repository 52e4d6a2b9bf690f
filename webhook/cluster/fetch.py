"""One look at a live cluster, for the offline commands."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gpugate.policies.facts import Known
from gpugate.webhook.cluster import ApiError, JsonObject, NotServed, WatchedKind
from gpugate.webhook.cluster.client import ApiClient, connect
from gpugate.webhook.cluster.kinds import FACT_KINDS, POLICIES

_FORBIDDEN: Final = 403


async def fetch(
    kubeconfig: Path | None, context: str | None, *, forbidden: dict[str, str] | None = None
) -> tuple[list[JsonObject], dict[str, Known]]:
    """Every object that rules and policies are made from, and how far each kind is known.

    Args:
        kubeconfig: kubeconfig of the cluster.
        context: context in it.
        forbidden: takes, by resource, why a kind may not be read, which is then not known; without it that is an error.

    Raises:
        ClusterError: the cluster cannot be reached, or refuses.
    """
    client = await connect(kubeconfig, context)
    objects: list[JsonObject] = []
    known: dict[str, Known] = {}
    try:
        for kind in (*FACT_KINDS, POLICIES):
            try:
                found = await _list(client, kind)
            except ApiError as error:
                if forbidden is None or error.status != _FORBIDDEN:
                    raise
                forbidden[kind.resource] = error.message
                continue
            known[kind.resource] = Known.ABSENT if found is None else Known.SYNCED
            objects.extend(found or [])
    finally:
        await client.close()
    return objects, known


async def _list(client: ApiClient, kind: WatchedKind) -> list[JsonObject] | None:
    """All objects of ``kind``; None where the cluster does not serve it."""
    for version in kind.versions:
        try:
            if not await client.served(kind.group, version, kind.plural):
                continue
            return await _pages(client, kind, version)
        except NotServed:
            continue
        except ApiError as error:
            message = f"{kind.name}: {error.message}"
            raise ApiError(error.status, error.reason, message) from None
    return None


async def _pages(client: ApiClient, kind: WatchedKind, version: str) -> list[JsonObject]:
    objects: list[JsonObject] = []
    token: str | None = None
    while True:
        page = await client.list(kind.path(version), continue_=token, field_selector=kind.field_selector)
        group = f"{kind.group}/{version}" if kind.group else version
        objects.extend({"apiVersion": group, **item, "kind": kind.name} for item in page.get("items") or [])
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return objects
