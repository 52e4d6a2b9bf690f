"""Read a live cluster once, for the offline commands."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from gpugate.policies.cluster.snapshot import SyncState
from gpugate.webhook.cache.kinds import FACT_KINDS, POLICIES
from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.errors import ApiError, NotServed
from gpugate.webhook.kube.kubeconfig import connect
from gpugate.webhook.kube.lister import is_refused, pages_of, version_of
from gpugate.webhook.kube.types import JsonObject, WatchedKind

#: Kinds that rules look up in the workload's own namespace only.
_OF_A_NAMESPACE: Final = frozenset(
    (
        *("namespaces", "limitranges", "resourcequotas", "localqueues", "resourceclaims", "resourceclaimtemplates"),
        *("podgroups.scheduling.x-k8s.io", "podgroups.scheduling.volcano.sh", "podgroups.scheduling.k8s.io"),
    )
)


async def fetch(
    kubeconfig: Path | None, context: str | None, *, forbidden: dict[str, str] | None = None, namespaces: Collection[str] = ()
) -> tuple[list[JsonObject], dict[str, SyncState]]:
    """Read all objects that snapshots and policies are made from; return them with the sync state of each kind.

    ``forbidden`` collects the error of each kind that may not be read, by resource; None raises it instead. Kinds that are
    forbidden in the whole cluster are read in ``namespaces``, those of the workloads, if that is enough.

    Raises:
        ClusterError: the cluster does not answer, or refuses.
    """
    client = await connect(kubeconfig, context)
    objects: list[JsonObject] = []
    known: dict[str, SyncState] = {}
    try:
        for kind in (*FACT_KINDS, POLICIES):
            try:
                listed = await _list(client, kind, namespaces if _is_enough(kind, forbidden or {}) else ())
            except ApiError as error:
                if forbidden is None or not is_refused(error):
                    message = f"{kind.name}: {error.message}"
                    raise ApiError(error.status, error.reason, message) from None
                forbidden[kind.resource] = error.message
                continue
            known[kind.resource] = SyncState.ABSENT if listed is None else SyncState.SYNCED
            objects.extend(listed or [])
    finally:
        await client.close()
    return objects, known


def _is_enough(kind: WatchedKind, forbidden: Mapping[str, str]) -> bool:
    """Return whether objects of some namespaces are as good as all objects of the kind.

    Pods of all namespaces use nodes. Without nodes, pods only matter to the gangs of their own namespace.
    """
    return kind.resource in _OF_A_NAMESPACE or (kind.resource == "pods" and "nodes" in forbidden)


async def _list(client: ApiClient, kind: WatchedKind, namespaces: Collection[str]) -> list[JsonObject] | None:
    """Return all objects of ``kind``; None if the cluster does not serve it."""
    version = await version_of(client, kind)
    if version is None:
        return None
    try:
        return [item async for page in pages_of(client, kind, version, namespaces) for item in page]
    except NotServed:
        return None
