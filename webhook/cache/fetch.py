"""One look at a live cluster, for the offline commands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from gpugate.policies.cluster.snapshot import SyncState
from gpugate.webhook.cache.kinds import FACT_KINDS, POLICIES
from gpugate.webhook.kube.client import ApiClient, connect
from gpugate.webhook.kube.lister import is_refused, pages_of, version_of
from gpugate.webhook.kube.types import ApiError, JsonObject, NotServed, WatchedKind

#: What rules look up in a workload's own namespace: who judges that namespace alone needs no more of it.
_OF_A_NAMESPACE: Final = frozenset(
    {
        "namespaces",
        "limitranges",
        "resourcequotas",
        "localqueues",
        "podgroups.scheduling.x-k8s.io",
        "podgroups.scheduling.volcano.sh",
        "podgroups.scheduling.k8s.io",
        "resourceclaims",
        "resourceclaimtemplates",
    }
)


async def fetch(
    kubeconfig: Path | None, context: str | None, *, forbidden: dict[str, str] | None = None, namespaces: Collection[str] = ()
) -> tuple[list[JsonObject], dict[str, SyncState]]:
    """Every object that rules and policies are made from, and how far each kind is known.

    Args:
        kubeconfig: kubeconfig of the cluster.
        context: context in it.
        forbidden: takes, by resource, why a kind may not be read, which is then not known; without it that is an error.
        namespaces: where alone workloads are judged; what may not be read in the whole cluster is read there, if that is enough.

    Raises:
        ClusterError: the cluster cannot be reached, or refuses.
    """
    client = await connect(kubeconfig, context)
    objects: list[JsonObject] = []
    known: dict[str, SyncState] = {}
    try:
        for kind in (*FACT_KINDS, POLICIES):
            try:
                found = await _list(client, kind, namespaces if _is_enough(kind, forbidden or {}) else ())
            except ApiError as error:
                if forbidden is None or not is_refused(error):
                    message = f"{kind.name}: {error.message}"
                    raise ApiError(error.status, error.reason, message) from None
                forbidden[kind.resource] = error.message
                continue
            known[kind.resource] = SyncState.ABSENT if found is None else SyncState.SYNCED
            objects.extend(found or [])
    finally:
        await client.close()
    return objects, known


def _is_enough(kind: WatchedKind, forbidden: Mapping[str, str]) -> bool:
    """Whether the objects of some namespaces tell as much of these as all objects would.

    Pods take room on nodes, wherever they are from; where no node is known, they tell of the gangs of their namespace alone.
    """
    return kind.resource in _OF_A_NAMESPACE or (kind.resource == "pods" and "nodes" in forbidden)


async def _list(client: ApiClient, kind: WatchedKind, namespaces: Collection[str]) -> list[JsonObject] | None:
    """All objects of ``kind``; None where the cluster does not serve it."""
    version = await version_of(client, kind)
    if version is None:
        return None
    try:
        return [one async for page in pages_of(client, kind, version, namespaces) for one in page]
    except NotServed:
        return None
