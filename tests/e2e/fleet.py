"""Many workloads of all sorts: right ones, wrong ones, of several teams; made cheap for the cluster that has to hold them."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.e2e.workloads import IMAGE, job, pod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.controlplane.access import ApiResponse

COLLECTIONS = {
    "Pod": ("/api/v1", "pods"),
    "Job": ("/apis/batch/v1", "jobs"),
    "CronJob": ("/apis/batch/v1", "cronjobs"),
    "Deployment": ("/apis/apps/v1", "deployments"),
}
_SENDERS = 16
_NAMES = ("nvidia.com/gpu",) * 12 + ("nvidia.com/mig-1g5gb", "nvidia.com/gpus")
_MEMORY = ((None, None), ("32Gi", "32Gi"), ("64Gi", None), ("64Gi", "48Gi"), ("64Gi", "4Gi"), ("6Ti", "6Ti"))


def fleet(namespaces: list[str], count: int, seed: int = 7) -> list[dict[str, Any]]:
    """``count`` workloads in ``namespaces``; the same for the same seed. None of them starts anything."""
    chance = random.Random(seed)  # noqa: S311 - a test that anybody can repeat
    return [_one(f"w-{number:05}", namespaces[number % len(namespaces)], chance) for number in range(count)]


def _one(name: str, namespace: str, chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.1:
        return _right(name, namespace)
    kind = chance.choice(("Pod", "Pod", "Job", "Job", "CronJob", "CronJob", "Deployment"))
    container = _container(chance)
    size = chance.choice((1, 1, 2, 4))
    spec = {"containers": [container], **_extras(chance)}
    if kind == "Pod":
        made = pod(name, namespace, **spec, schedulingGates=[{"name": "e2e.gpugate.io/never"}])
        made["spec"]["containers"] = [container]
    elif kind == "Deployment":
        made = _deployment(name, namespace, spec)
    else:
        made = job(name, namespace, container, size=size, **_extras(chance))
        made["spec"]["suspend"] = True
        if kind == "CronJob":
            schedule = {"schedule": "0 3 1 1 *", "suspend": True, "jobTemplate": {"spec": made["spec"]}}
            made["spec"].pop("suspend")
            made = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": made["metadata"], "spec": schedule}
    return _marked(made, chance)


def _right(name: str, namespace: str) -> dict[str, Any]:
    """A pod in which no rule finds anything to do."""
    amounts = {"nvidia.com/gpu": "1", "memory": "64Gi", "cpu": "8"}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    container = {"name": "train", "image": IMAGE, "resources": {"limits": amounts, "requests": amounts}, "volumeMounts": mounts}
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}]
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    gates = [{"name": "e2e.gpugate.io/never"}]
    return pod(name, namespace, container, volumes=volumes, tolerations=tolerations, schedulingGates=gates)


def _container(chance: random.Random) -> dict[str, Any]:
    limits = {chance.choice(_NAMES): str(chance.choice((1, 1, 2, 4, 8)))}
    limit, request = chance.choice(_MEMORY)
    resources: dict[str, Any] = {"limits": {**limits, **({"memory": limit} if limit else {})}}
    if request:
        resources["requests"] = {"memory": request}
    return {"name": "train", "image": IMAGE, "resources": resources}


def _extras(chance: random.Random) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if chance.random() < 0.3:
        extras["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    if chance.random() < 0.1:
        extras["nodeSelector"] = {"nvidia.com/gpu.product": chance.choice(("NVIDIA-H100-80GB-HBM3", "no-such-card"))}
    return extras


def _deployment(name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    made = {"replicas": 0, "paused": True, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace}, "spec": made}


def _marked(made: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    metadata = made["metadata"]
    labels, annotations = metadata.setdefault("labels", {}), metadata.setdefault("annotations", {})
    labels["team"] = chance.choice(("vision", "speech", "search", "ads", "labs"))
    draw = chance.random()
    if draw < 0.05:
        annotations |= {"gpugate.io/exempt": "host-memory", "gpugate.io/exempt-reason": "moves house in spring"}
    elif draw < 0.1:
        annotations["argocd.argoproj.io/tracking-id"] = f"team:{made['kind']}:{metadata['namespace']}/{metadata['name']}"
    return made


def send(cluster: ControlPlane, objects: Iterable[dict[str, Any]]) -> list[ApiResponse]:
    """Create the objects, many at once; the answers in the same order."""

    def create(one: dict[str, Any]) -> ApiResponse:
        root, plural = COLLECTIONS[one["kind"]]
        return cluster.request("POST", f"{root}/namespaces/{one['metadata']['namespace']}/{plural}", one)

    with ThreadPoolExecutor(_SENDERS) as pool:
        return list(pool.map(create, objects))


def remove(cluster: ControlPlane, namespaces: Iterable[str]) -> None:
    """Delete every workload of these namespaces."""
    paths = [f"{root}/namespaces/{name}/{plural}" for name in namespaces for root, plural in COLLECTIONS.values()]
    with ThreadPoolExecutor(_SENDERS) as pool:
        list(pool.map(lambda path: cluster.request("DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background"), paths))


def left(cluster: ControlPlane, namespaces: Iterable[str]) -> int:
    """How many workloads these namespaces have."""
    return sum(
        len(cluster.request("GET", f"{root}/namespaces/{name}/{plural}").body["items"])
        for name in namespaces
        for root, plural in COLLECTIONS.values()
    )
