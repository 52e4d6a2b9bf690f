"""Read which kinds the cluster serves, all API groups at once.

Source: KEP-3352 (aggregated discovery), on by default since Kubernetes 1.27.
"""

from typing import Final

from gpugate.policies.workloads.kinds.owners import ServedKinds
from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.types import JsonObject

#: The list with the kinds of all groups, or, from an older apiserver, the list of the groups.
_ACCEPT: Final = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


async def read_served_kinds(client: ApiClient) -> ServedKinds:
    """Return the kinds that the cluster serves now, but for those of the core group.

    Raises:
        ClusterError: the apiserver did not answer.
    """
    return _kinds_in(await client.get("/apis", accept=_ACCEPT))


def _kinds_in(answer: JsonObject) -> ServedKinds:
    if answer.get("kind") != "APIGroupDiscoveryList":
        return ServedKinds({str(group.get("name")): None for group in answer.get("groups") or ()})
    return ServedKinds({str(group["metadata"]["name"]): _kinds_of(group) for group in answer.get("items") or ()})


def _kinds_of(group: JsonObject) -> frozenset[str] | None:
    """Return the kinds of a group; None while an aggregated apiserver does not answer for one of its versions."""
    versions = group.get("versions") or ()
    if any(version.get("freshness") == "Stale" for version in versions):
        return None
    resources = (resource for version in versions for resource in version.get("resources") or ())
    return frozenset(str((resource.get("responseKind") or {}).get("kind")) for resource in resources)
