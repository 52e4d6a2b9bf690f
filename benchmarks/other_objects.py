"""Objects of every other kind that facts are made from, as they come off the wire; see :mod:`benchmarks.objects`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from benchmarks.objects import MACHINES, Json, managed, node_name, uid_of
from benchmarks.pods import GANG, NAMESPACES

_KUEUE: Final = "kueue.x-k8s.io/v1beta2"
_RESOURCES: Final = {"cpu": "400", "memory": "4Ti", "nvidia.com/gpu": "32"}
_TIME: Final = "2026-11-03T06:12:45Z"


def _namespace(_at: int) -> Json:
    labels = {"kubernetes.io/metadata.name": "%NAME%", "pod-security.kubernetes.io/enforce": "baseline", "cost-center": "research"}
    return {"metadata": {"labels": labels}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


def _limit_range(_at: int) -> Json:
    limit = {"type": "Container", "default": {"memory": "512Mi"}, "defaultRequest": {"cpu": "100m", "memory": "256Mi"}}
    return {"spec": {"limits": [limit]}}


def _quota(_at: int) -> Json:
    hard = {"requests.cpu": "4000", "requests.memory": "40Ti", "requests.nvidia.com/gpu": "256", "pods": "5000"}
    return {"spec": {"hard": hard}, "status": {"hard": hard, "used": {**hard, "pods": "812"}}}


def _priority(at: int) -> Json:
    return {
        "value": 1000 * at,
        "globalDefault": False,
        "description": "How urgent it is.",
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _runtime(_at: int) -> Json:
    return {"handler": "kata", "overhead": {"podFixed": {"cpu": "250m", "memory": "160Mi"}}}


def _local_queue(_at: int) -> Json:
    used = [{"name": f"flavor-{at}", "resources": [{"name": name, "total": "0"} for name in _RESOURCES]} for at in range(3)]
    status = {
        "admittedWorkloads": 4,
        "pendingWorkloads": 2,
        "reservingWorkloads": 4,
        "flavorsReservation": used,
        "flavorsUsage": used,
    }
    return {"spec": {"clusterQueue": "clusterqueue-1", "stopPolicy": "None"}, "status": {**status, "conditions": _active()}}


def _active() -> list[Json]:
    return [{"type": "Active", "status": "True", "reason": "Ready", "message": "Can submit", "lastTransitionTime": _TIME}]


def _cluster_queue(_at: int) -> Json:
    flavors = [
        {"name": f"flavor-{at}", "resources": [{"name": name, "nominalQuota": amount} for name, amount in _RESOURCES.items()]}
        for at in range(3)
    ]
    group = {"coveredResources": list(_RESOURCES), "flavors": flavors}
    used = [{"name": one["name"], "resources": [{"name": name, "total": "8"} for name in _RESOURCES]} for one in flavors]
    spec = {"cohortName": "cohort-1", "namespaceSelector": {}, "resourceGroups": [group], "queueingStrategy": "BestEffortFIFO"}
    return {"spec": spec, "status": {"flavorsReservation": used, "flavorsUsage": used, "conditions": _active()}}


def _cohort(_at: int) -> Json:
    return {"spec": {"parentName": "cohort-0"}}


def _flavor(at: int) -> Json:
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    product = MACHINES[at % 4].product
    return {"spec": {"nodeLabels": {"nvidia.com/gpu.product": product}, "nodeTaints": taints, "topologyName": "topology-0"}}


def _topology(_at: int) -> Json:
    return {"spec": {"levels": [{"nodeLabel": "topology.kubernetes.io/zone"}, {"nodeLabel": "kubernetes.io/hostname"}]}}


def _workload(at: int) -> Json:
    stated = {
        "limits": {"nvidia.com/gpu": "8", "memory": "768Gi"},
        "requests": {"nvidia.com/gpu": "8", "memory": "768Gi", "cpu": "80"},
    }
    container = {"name": "train", "image": "registry.example.com/team/train:v1", "resources": stated}
    template = {"metadata": {}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "%NAME%", "uid": uid_of(at, "job"), "controller": True}
    spec = {"queueName": "research", "active": True, "podSets": [{"name": "main", "count": GANG, "template": template}]}
    return {"metadata": {"ownerReferences": [owner]}, "spec": spec, "status": {"conditions": _active()}}


def _pod_group(_at: int) -> Json:
    return {"spec": {"minMember": GANG, "scheduleTimeoutSeconds": 600}, "status": {"phase": "Running", "running": GANG}}


def _kubernetes_group(_at: int) -> Json:
    return {"spec": {"schedulingPolicy": {"gang": {"minCount": GANG}}}}


def _node_topology(_at: int) -> Json:
    amounts = (("cpu", "96"), ("memory", "1099511627776"), ("nvidia.com/gpu", "4"))
    resources = [{"name": name, "capacity": amount, "allocatable": amount, "available": amount} for name, amount in amounts]
    zones = [
        {
            "name": f"node-{zone}",
            "type": "Node",
            "resources": resources,
            "costs": [{"name": f"node-{at}", "value": 10} for at in (0, 1)],
        }
        for zone in (0, 1)
    ]
    attributes = [{"name": "topologyManagerPolicy", "value": "best-effort"}, {"name": "topologyManagerScope", "value": "pod"}]
    return {"attributes": attributes, "topologyPolicies": ["SingleNUMANodePodLevel"], "zones": zones}


def _device_class(_at: int) -> Json:
    return {"spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]}}


_DEVICES: Final = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}]}}


def _claim(_at: int) -> Json:
    return {"spec": _DEVICES}


def _claim_template(_at: int) -> Json:
    return {"spec": {"spec": _DEVICES}}


def _configuration(_at: int) -> Json:
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: false\n"
    return {"data": {"controller_manager_config.yaml": text}}


#: By resource as facts call it: version, kind, whether objects have a namespace, how they are made, how many a cluster has.
KINDS: Final[dict[str, tuple[str, str, bool, Callable[[int], Json], int]]] = {
    "namespaces": ("v1", "Namespace", False, _namespace, NAMESPACES),
    "limitranges": ("v1", "LimitRange", True, _limit_range, NAMESPACES),
    "resourcequotas": ("v1", "ResourceQuota", True, _quota, NAMESPACES),
    "priorityclasses": ("scheduling.k8s.io/v1", "PriorityClass", False, _priority, 6),
    "runtimeclasses": ("node.k8s.io/v1", "RuntimeClass", False, _runtime, 3),
    "localqueues": (_KUEUE, "LocalQueue", True, _local_queue, NAMESPACES),
    "clusterqueues": (_KUEUE, "ClusterQueue", False, _cluster_queue, 20),
    "cohorts": (_KUEUE, "Cohort", False, _cohort, 4),
    "resourceflavors": (_KUEUE, "ResourceFlavor", False, _flavor, 8),
    "topologies": (_KUEUE, "Topology", False, _topology, 1),
    "workloadpriorityclasses": (_KUEUE, "WorkloadPriorityClass", False, _priority, 6),
    "workloads": (_KUEUE, "Workload", True, _workload, 2000),
    "configurations": ("v1", "ConfigMap", True, _configuration, 1),
    "podgroups.scheduling.x-k8s.io": ("scheduling.x-k8s.io/v1alpha1", "PodGroup", True, _pod_group, 500),
    "podgroups.scheduling.volcano.sh": ("scheduling.volcano.sh/v1beta1", "PodGroup", True, _pod_group, 500),
    "podgroups.scheduling.k8s.io": ("scheduling.k8s.io/v1beta1", "PodGroup", True, _kubernetes_group, 500),
    "noderesourcetopologies": ("topology.node.k8s.io/v1alpha2", "NodeResourceTopology", False, _node_topology, 5000),
    "deviceclasses": ("resource.k8s.io/v1", "DeviceClass", False, _device_class, 4),
    "resourceclaims": ("resource.k8s.io/v1", "ResourceClaim", True, _claim, 1000),
    "resourceclaimtemplates": ("resource.k8s.io/v1", "ResourceClaimTemplate", True, _claim_template, 200),
}


def render(resource: str, at: int, version: int, seed: int) -> bytes:
    """Object ``at`` of ``resource``, at ``version``."""
    api_version, kind, namespaced, make, _ = KINDS[resource]
    body = make(at)
    name = f"{kind.lower()}-{at}"
    if resource == "namespaces":
        name = f"team-{at}"
    elif resource == "localqueues":
        name = "research"
    elif resource == "noderesourcetopologies":
        name = node_name(at)
    elif resource == "configurations":
        name = "kueue-manager-config"
    given: dict[str, Any] = body.pop("metadata", {})
    metadata: Json = {
        "name": name,
        **({"namespace": f"team-{at % NAMESPACES}"} if namespaced else {}),
        "uid": uid_of(seed, resource, at),
    }
    metadata |= {"resourceVersion": str(version), "generation": 1, "creationTimestamp": _TIME, **given}
    metadata["managedFields"] = [managed("kubectl-client-side-apply", body)]
    return orjson.dumps({"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}).replace(b"%NAME%", name.encode())
