"""Objects of the kinds that keep their pods elsewhere than a Deployment does, from templates and numbers as they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Object = dict[str, Any]


class Draws(NamedTuple):
    """What an object is made from: called once for each place, so that no two places share a value."""

    template: Callable[[], Object]
    number: Callable[[], Any]
    flag: Callable[[], bool]


_ROLES = {
    "JAXJob": ("jaxReplicaSpecs", ("Worker",)),
    "MPIJob": ("mpiReplicaSpecs", ("Launcher", "Worker")),
    "PaddleJob": ("paddleReplicaSpecs", ("Master", "Worker")),
    "PyTorchJob": ("pytorchReplicaSpecs", ("Master", "Worker")),
    "TFJob": ("tfReplicaSpecs", ("Chief", "PS", "Worker", "Evaluator")),
    "XGBoostJob": ("xgbReplicaSpecs", ("Master", "Worker")),
}


def _kubeflow(kind: str) -> Callable[[Draws], Object]:
    def spec(draws: Draws) -> Object:
        field, roles = _ROLES[kind]
        found: Object = {"runPolicy": {"suspend": draws.flag()}}
        if kind == "MPIJob" and draws.flag():
            found["runPolicy"]["backoffLimit"] = 4 if draws.flag() else 1
        if draws.flag():
            found["runPolicy"]["schedulingPolicy"] = {"minAvailable": draws.number()}
        if kind in {"PaddleJob", "PyTorchJob"} and draws.flag():
            found["elasticPolicy"] = {"minReplicas": draws.number(), "maxReplicas": draws.number()}
        found[field] = {
            role.lower() if draws.flag() else role: {"replicas": draws.number(), "template": draws.template()}
            for role in roles
            if role == "Worker" or draws.flag()
        }
        return found

    return spec


def _train_job(draws: Draws) -> Object:
    containers = draws.template()["spec"]["containers"]
    trainer = {"numNodes": draws.number(), "resourcesPerNode": containers[0].get("resources") if containers else None}
    return {"runtimeRef": {"name": "torch-distributed"}, "suspend": draws.flag(), "trainer": trainer}


def _job_set(draws: Draws) -> Object:
    jobs = []
    for name in ("first", "second")[: 1 + draws.flag()]:
        spec = {"parallelism": draws.number(), "completions": draws.number(), "template": draws.template()}
        job: Object = {"name": name, "replicas": draws.number(), "template": {"spec": spec}}
        if name == "second" and draws.flag():
            job["dependsOn"] = [{"name": "first", "status": "Complete"}]
        jobs.append(job)
    return {"suspend": draws.flag(), "replicatedJobs": jobs}


def _leader_worker_set(draws: Draws) -> Object:
    template: Object = {"size": draws.number(), "workerTemplate": draws.template()}
    if draws.flag():
        template["leaderTemplate"] = draws.template()
    return {"replicas": draws.number(), "leaderWorkerTemplate": template}


def _ray_cluster(draws: Draws) -> Object:
    workers = []
    for name in ("small", "large")[: 1 + draws.flag()]:
        group: Object = {"groupName": name, "replicas": draws.number(), "minReplicas": draws.number(), "template": draws.template()}
        if draws.flag():
            group["numOfHosts"] = draws.number()
        workers.append(group)
    return {
        "enableInTreeAutoscaling": draws.flag(),
        "headGroupSpec": {"template": draws.template()},
        "workerGroupSpecs": workers,
    }


def _ray_job(draws: Draws) -> Object:
    found = {"suspend": draws.flag(), "backoffLimit": 3 if draws.flag() else 0, "rayClusterSpec": _ray_cluster(draws)}
    return found | ({"submitterPodTemplate": draws.template()} if draws.flag() else {})


def _volcano_job(draws: Draws) -> Object:
    tasks = []
    for name in ("first", "second")[: 1 + draws.flag()]:
        task: Object = {"name": name, "replicas": draws.number(), "template": draws.template()}
        if name == "second" and draws.flag():
            task["dependsOn"] = {"name": ["first"]}
        tasks.append(task)
    found: Object = {"minAvailable": draws.number(), "tasks": tasks}
    if draws.flag():
        found |= {"maxRetry": 4, "policies": [{"event": "PodEvicted", "action": "RestartJob" if draws.flag() else "AbortJob"}]}
    return found


def _app_wrapper(draws: Draws) -> Object:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    components: list[Object] = [{"template": job | {"spec": {"parallelism": draws.number(), "template": draws.template()}}}]
    if draws.flag():
        components.append({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **draws.template()}})
    if draws.flag():
        components.append(
            {"template": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": _kubeflow("PyTorchJob")(draws)}}
        )
    if draws.flag():
        unknown = {"apiVersion": "example.com/v1", "kind": "Training", "spec": {"roles": [{"template": draws.template()}]}}
        declared = [{"path": "template.spec.roles[0].template", "replicas": draws.number()}]
        components.append({"podSets": declared, "template": unknown})
    return {"suspend": draws.flag(), "components": components}


_SHAPES: dict[str, tuple[str, Callable[[Draws], Object]]] = {
    **{kind: ("kubeflow.org/v1", _kubeflow(kind)) for kind in _ROLES},
    "AppWrapper": ("workload.codeflare.dev/v1beta2", _app_wrapper),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", _job_set),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", _leader_worker_set),
    "RayCluster": ("ray.io/v1", _ray_cluster),
    "RayJob": ("ray.io/v1", _ray_job),
    "RayService": ("ray.io/v1", lambda draws: {"rayClusterConfig": _ray_cluster(draws)}),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", _train_job),
    "VolcanoJob": ("batch.volcano.sh/v1alpha1", _volcano_job),
}
KINDS = sorted(_SHAPES)


def shaped(name: str, metadata: Object, draws: Draws) -> Object:
    """An object of the kind ``name`` (``VolcanoJob`` for Volcano's Job)."""
    api_version, spec = _SHAPES[name]
    kind = "Job" if name == "VolcanoJob" else name
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec(draws)}


def typical(name: str, *, flags: bool = False, number: int = 2, metadata: Object | None = None, gpus: int = 8) -> Object:
    """An object of the kind ``name`` with pods of ``gpus`` in all places, all that may be left out given where ``flags`` is set."""

    def template() -> Object:
        limits = {"nvidia.com/gpu": gpus, "memory": "64Gi"}
        return {"spec": {"containers": [{"name": "main", "image": "example.com/image", "resources": {"limits": limits}}]}}

    own = {"name": "w", "namespace": "team-a", **(metadata or {})}
    return shaped(name, own, Draws(template, lambda: number, lambda: flags))
