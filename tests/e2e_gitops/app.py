"""The app that a team keeps in Git: one object of each kind, stated as its people would state it."""

from __future__ import annotations

from typing import Any

from tests.e2e.workloads import IMAGE, container, deployment, gpus, job

QUEUE = "team"
#: What the ClusterQueue of an app's namespace has: one gang, and all that is not a gang.
QUOTA = 24

Object = dict[str, Any]


def app(namespace: str) -> list[Object]:
    """The app in this namespace.

    It leaves to gpugate what people forget: queues, /dev/shm, tolerations. And it states what gpugate would have otherwise,
    and must leave alone: a Deployment's memory request below its limit, a StatefulSet's own list of tolerations.
    """
    stated = [
        config_map(namespace),
        gang("train", namespace),
        gang("train-next", namespace),
        deployment("serve", namespace, container(gpus(1, "32Gi", request="24Gi"), name="serve")),
        stateful_set(namespace),
        pytorch_job(namespace),
        job_set(namespace),
    ]
    return [without_empty(one) for one in stated]


def without_empty(obj: Object) -> Object:
    """The manifest without the empty maps and lists that nobody needs to state: Argo CD's default diff minds them."""
    kept = {key: _lean(value) for key, value in obj.items()}
    return {key: value for key, value in kept.items() if value not in ({}, [])}


def _lean(value: Any) -> Any:
    if isinstance(value, dict):
        return without_empty(value)
    return [_lean(item) for item in value] if isinstance(value, list) else value


def older_app(namespace: str) -> list[Object]:
    """The app of people who knew no gpugate: whatever it needs to run is in Git."""
    found = app(namespace)
    for obj in found:
        if obj["kind"] in {"Job", "PyTorchJob", "JobSet"}:
            obj["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = QUEUE
        for spec in pod_specs(obj):
            spec.setdefault("tolerations", []).append({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"})
    return found


def pod_specs(obj: Object) -> list[Object]:
    """The specs of the pods that an object makes."""
    spec = obj.get("spec", {})
    if obj["kind"] == "PyTorchJob":
        return [replica["template"]["spec"] for replica in spec["pytorchReplicaSpecs"].values()]
    if obj["kind"] == "JobSet":
        return [one["template"]["spec"]["template"]["spec"] for one in spec["replicatedJobs"]]
    return [spec["template"]["spec"]] if "template" in spec else []


def gang(name: str, namespace: str) -> Object:
    """A Job whose two pods of 8 GPUs start together; the quota holds one such gang."""
    return job(name, namespace, container(gpus(8, "512Gi", cpu="64")), size=2)


def config_map(namespace: str, **data: str) -> Object:
    """A ConfigMap, which is none of gpugate's business."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": namespace},
        "data": {"epochs": "3", **data},
    }


def stateful_set(namespace: str) -> Object:
    """A StatefulSet of two pods with a GPU each."""
    labels = {"app": "shards"}
    spec = {
        "containers": [container(gpus(1, "32Gi"), name="shard")],
        "tolerations": [{"key": "example.com/own", "operator": "Exists"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "shards", "namespace": namespace},
        "spec": {
            "replicas": 2,
            "serviceName": "shards",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def pytorch_job(namespace: str) -> Object:
    """A PyTorchJob; no operator runs for it here."""

    def replica() -> Object:
        trainer = {"name": "pytorch", "image": IMAGE, "resources": gpus(1, "32Gi")}
        return {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [trainer]}}}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "tune", "namespace": namespace},
        "spec": {"pytorchReplicaSpecs": {role: replica() for role in ("Master", "Worker")}},
    }


def job_set(namespace: str) -> Object:
    """A JobSet; no operator runs for it here."""
    inner = job("unused", namespace, container(gpus(1, "32Gi")), size=2)["spec"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "sweep", "namespace": namespace},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": inner}}]},
    }
