"""Objects that once cost seconds: each was measured, and stays as a case for `make bench-worst` and the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from benchmarks.bodies import Object


class Case(NamedTuple):
    """One object by its number of entries.

    Attributes:
        kind: ``apiVersion kind``.
        name: what it is, with the number as measured.
        number: how many entries it had.
        build: returns the object with some number of entries.
        before: what a review of it cost.
    """

    kind: str
    name: str
    number: int
    build: Callable[[int], Object]
    before: str


def _container(at: int, **more: object) -> Object:
    return {"name": f"c{at}", "image": "example.com/train:1", "resources": {"limits": {"nvidia.com/gpu": 1}}, **more}


def _pod(**spec: object) -> Object:
    metadata = {"name": "worst", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [_container(0)], **spec}}


def _templated(api_version: str, kind: str, **spec: object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "worst", "namespace": "default"}, "spec": spec}


def _init_containers(number: int) -> Object:
    return _pod(initContainers=[_container(at + 1) for at in range(number)])


def _containers(number: int) -> Object:
    return _pod(containers=[_container(at) for at in range(number)])


def _plain_containers(number: int) -> Object:
    return _pod(containers=[_container(0), *({"name": f"c{at}", "image": "a"} for at in range(1, number))])


def _selector_keys(number: int) -> Object:
    return _pod(nodeSelector={f"example.com/k{at}": "v" for at in range(number)})


def _tolerations(number: int) -> Object:
    return _pod(tolerations=[{"key": f"k{at}", "operator": "Exists"} for at in range(number)])


def _volumes(number: int) -> Object:
    return _pod(volumes=[{"name": f"v{at}", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}} for at in range(number)])


def _images(number: int) -> Object:
    return _pod(containers=[_container(0), *({"name": f"c{at}", "image": f"example.com/i{at}:1"} for at in range(1, number))])


def _job(number: int) -> Object:
    return _templated("batch/v1", "Job", template={"spec": _containers(number)["spec"] | {"restartPolicy": "Never"}})


def _job_set(number: int) -> Object:
    jobs = [
        {"name": f"j{at}", "replicas": 1, "template": {"spec": {"template": {"spec": {"containers": [_container(0)]}}}}}
        for at in range(number)
    ]
    return _templated("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=jobs)


def _ray_cluster(number: int) -> Object:
    groups = [{"groupName": f"g{at}", "replicas": 1, "template": {"spec": {"containers": [_container(0)]}}} for at in range(number)]
    head = {"template": {"spec": {"containers": [{"name": "head", "image": "a"}]}}}
    return _templated("ray.io/v1", "RayCluster", headGroupSpec=head, workerGroupSpecs=groups)


def _env(number: int) -> Object:
    return _pod(containers=[_container(0, env=[{"name": f"V{at}", "value": "x" * 20} for at in range(number)])])


CASES: Final = (
    Case("v1 Pod", "600 init containers with a GPU each", 600, _init_containers, "17.8 s"),
    Case("v1 Pod", "300 containers with a GPU each", 300, _containers, "10.6 s"),
    Case("v1 Pod", "5,000 containers, one with a GPU", 5_000, _plain_containers, "over 146 s"),
    Case("v1 Pod", "35,000 labels in a nodeSelector", 35_000, _selector_keys, "33 s"),
    Case("v1 Pod", "60,000 tolerations", 60_000, _tolerations, "5.1 s"),
    Case("v1 Pod", "6,000 volumes in memory", 6_000, _volumes, "2.7 s"),
    Case("v1 Pod", "15,000 images", 15_000, _images, "over 25 s"),
    Case("batch/v1 Job", "a Job of 20,000 containers", 20_000, _job, "over 25 s"),
    Case("jobset.x-k8s.io/v1alpha2 JobSet", "7,000 replicatedJobs", 7_000, _job_set, "over 25 s"),
    Case("ray.io/v1 RayCluster", "7,000 workerGroupSpecs", 7_000, _ray_cluster, "over 25 s"),
    Case("v1 Pod", "60 containers with a GPU each", 60, _containers, "6 times one container"),
    Case("v1 Pod", "1 MB of environment variables", 20_000, _env, "26 times none"),
)


def body_of(case: Case) -> Object:
    """Return the object of ``case`` with the number of entries that was measured."""
    return case.build(case.number)
