"""Putting the world of the evidence into a cluster, and taking it away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.e2e.controlplane.nodes import CPU_ONLY, is_schedulable, node_manifest
from tests.e2e.controlplane.waiting import wait_until
from tests.e2e.evidence.homes import HOMES, URGENT
from tests.e2e.evidence.queues import CLUSTER_QUEUES, FLAVOR_POOL, HOLDERS, objects
from tests.e2e.evidence.world import POOLS, RUNTIME_CLASSES

if TYPE_CHECKING:
    from tests.e2e.controlplane import ControlPlane

#: All rules at their defaults but for what is policy and says nothing of what can run: how much a pod may strand.
POLICY: dict[str, Any] = {"mode": "Enforce", "rules": {"stranding": {"refuseFactor": 1_000_000}}}
_KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


def build(cluster: ControlPlane) -> None:
    """Make the world, in a cluster without nodes of others: they would let in what is impossible here."""
    strangers = [one["metadata"]["name"] for one in _nodes(cluster)]
    assert not strangers, f"nodes of other tests are left: {strangers}"
    nodes = [node for pool in POOLS.values() for node in pool.nodes()]

    def add(node: dict[str, Any]) -> None:
        answer = cluster.request("POST", "/api/v1/nodes", node)
        assert answer.status == 201, answer.body

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, (*nodes, node_manifest("ev-cpu-1", CPU_ONLY))))
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": URGENT}, "value": 1000}
    # Nobody is pushed aside by it: what an object does is to depend on it alone.
    priority |= {"preemptionPolicy": "Never"}
    classes = [one.manifest() for one in RUNTIME_CLASSES.values()]
    homes = [obj for home in HOMES.values() for obj in home.manifests()]
    cluster.apply(priority, *classes, *homes, *objects())
    wait_until(lambda: all(map(is_schedulable, _nodes(cluster))), 60, "the nodes to be ready")
    wait_until(lambda: _are_active(cluster), 60, "the ClusterQueues to be active")


def _nodes(cluster: ControlPlane) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.request("GET", "/api/v1/nodes").body["items"]
    return found


def _are_active(cluster: ControlPlane) -> bool:
    found = set()
    for one in cluster.request("GET", f"{_KUEUE}/clusterqueues").body["items"]:
        conditions = one.get("status", {}).get("conditions", [])
        if any(condition["type"] == "Active" and condition["status"] == "True" for condition in conditions):
            found.add(one["metadata"]["name"])
    return found.issuperset(holder.name for holder in CLUSTER_QUEUES)


def remove(cluster: ControlPlane) -> None:
    """Take the world away."""
    paths = [f"/api/v1/nodes/{one['metadata']['name']}" for one in _nodes(cluster) if one["metadata"]["name"].startswith("ev-")]
    paths += [f"/api/v1/namespaces/{name}" for name in HOMES]
    paths += [f"/apis/node.k8s.io/v1/runtimeclasses/{name}" for name in RUNTIME_CLASSES]
    paths += [f"/apis/scheduling.k8s.io/v1/priorityclasses/{URGENT}"]
    for holder in reversed(list(HOLDERS.values())):
        paths.append(f"{_KUEUE}/{'cohorts' if holder.is_cohort else 'clusterqueues'}/{holder.name}")
    paths += [f"{_KUEUE}/resourceflavors/{flavor}" for flavor in FLAVOR_POOL]
    for path in (*paths, f"{_KUEUE}/topologies/ev-topology"):
        cluster.request("DELETE", path)
    wait_until(lambda: _are_gone(cluster), 120, "the namespaces of the evidence to go", interval=0.5)


def _are_gone(cluster: ControlPlane) -> bool:
    left = cluster.request("GET", "/api/v1/namespaces").body["items"]
    return HOMES.keys().isdisjoint(one["metadata"]["name"] for one in left)
