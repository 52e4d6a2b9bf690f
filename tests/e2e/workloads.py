"""Objects that the end-to-end tests send, as small as each test allows."""

from __future__ import annotations

from typing import Any

from tests.e2e.controlplane import FINISH_ANNOTATION

IMAGE = "registry.example.com/train:1"


def container(resources: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A container that asks for one GPU, or for ``resources``."""
    return {"name": "train", "image": IMAGE, "resources": resources or {"limits": {"nvidia.com/gpu": "1"}}, **fields}


def cpu_container() -> dict[str, Any]:
    """A container that asks for no accelerator."""
    return container({"requests": {"cpu": "100m", "memory": "64Mi"}})


def gpus(count: int, memory: str = "64Gi", cpu: str = "8", request: str | None = None) -> dict[str, Any]:
    """Resources with ``count`` GPUs, and a memory request below the limit where one is given."""
    limits = {"nvidia.com/gpu": str(count), "memory": memory, "cpu": cpu}
    return {"limits": limits, "requests": {**limits, "memory": request or memory}}


def pod(name: str, namespace: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A plain pod."""
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(*containers, **spec)}


def pod_spec(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A pod spec that runs once."""
    return {"restartPolicy": "Never", "containers": list(containers or [container()]), **fields}


def job(
    name: str,
    namespace: str,
    *containers: dict[str, Any],
    size: int = 1,
    completions: int | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Job of ``size`` pods at once, that finish when told to."""
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}, "labels": labels or {}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "parallelism": size,
            "completions": size if completions is None else completions,
            "completionMode": "Indexed",
            "template": {"metadata": {"annotations": {}}, "spec": pod_spec(*containers, **spec)},
        },
    }


def deployment(name: str, namespace: str, *containers: dict[str, Any], replicas: int = 1) -> dict[str, Any]:
    """A Deployment."""
    spec = {**pod_spec(*containers), "restartPolicy": "Always"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }


def queue(namespace: str, name: str, gpu_quota: int, *, only_gpus: bool = False) -> list[dict[str, Any]]:
    """A flavor, a ClusterQueue with quota, and a LocalQueue called ``name`` in ``namespace``."""
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": namespace},
        "spec": {},
    }
    quotas = [("nvidia.com/gpu", str(gpu_quota)), ("cpu", "1k"), ("memory", "64Ti")]
    quotas = quotas[:1] if only_gpus else quotas
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quotas]
    cluster_queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": namespace},
        "spec": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceGroups": [
                {
                    "coveredResources": [resource for resource, _ in quotas],
                    "flavors": [{"name": namespace, "resources": resources}],
                }
            ],
        },
    }
    local_queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": namespace},
    }
    return [flavor, cluster_queue, local_queue]


FINISH = {FINISH_ANNOTATION: "true"}
