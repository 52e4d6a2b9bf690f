"""The bodies that cost gpugate most, of those that an apiserver sends to it: what an attacker with ``edit`` would send in a loop.

`make bench-worst` looks for costly objects in process. Through an apiserver fewer of them arrive: it decodes an object strictly,
gives up a webhook's conditions that look at too much, and after `/mutate` it validates. So `WORST` is chosen by the CPU that the
replica spends on a request to a real apiserver (`python -m tests.e2e.attack_bench --choose`), from all of `CANDIDATES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from benchmarks.bodies import letters

Object = dict[str, Any]

_GPU: Final[Object] = {"limits": {"nvidia.com/gpu": 1}}
_PATHS: Final = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
}


class Body(NamedTuple):
    """One request to an apiserver.

    Attributes:
        name: what it has much of.
        method: ``POST``, or ``PUT`` for an UPDATE.
        path: where it is sent to.
        content: the object in JSON.
        before: what is stored under its name before: a small object for a creation, so that nothing large is ever stored, and
            an object as large as the new one for an UPDATE.
    """

    name: str
    method: str
    path: str
    content: bytes
    before: bytes


def _container(name: str, *, gpu: bool = True, **fields: object) -> Object:
    return {"name": name, "image": "example.com/train:1", **({"resources": _GPU} if gpu else {}), **fields}


def _spec(**fields: object) -> Object:
    return {"restartPolicy": "Never", "containers": [_container("main")], **fields}


def _containers(count: int, prefix: str = "c") -> list[Object]:
    """Return ``count`` small containers, the first of which asks for a GPU: the webhook's conditions stop there."""
    return [_container("main"), *({"name": f"{prefix}{number}", "image": "a"} for number in range(1, count))]


def _key(number: int) -> str:
    return f"k{letters(number)}"


def _init_containers() -> Object:
    return _spec(initContainers=[_container(f"i{number}") for number in range(600)])


def _gpu_containers() -> Object:
    return _spec(containers=[_container(f"c{number}") for number in range(300)])


def _all_containers() -> Object:
    return _spec(containers=_containers(5000))


def _images() -> Object:
    return _spec(containers=[_container("main"), *({"name": f"c{at}", "image": f"e.com/i{at}"} for at in range(1, 15_000))])


def _node_selector() -> Object:
    return _spec(nodeSelector={_key(number): "a" for number in range(35_000)})


def _tolerations(count: int) -> Object:
    return _spec(tolerations=[{"key": _key(at), "operator": "Exists"} for at in range(count)])


def _tolerations_of_one_key() -> Object:
    return _spec(tolerations=[{"key": "nvidia.com/gpu", "operator": "Equal", "value": f"v{at}"} for at in range(500)])


def _labels_of_nvidia() -> Object:
    """Return a pod with preferences for labels that resemble those of GPU nodes."""
    preferred = [{"key": f"nvidia.com/gpu.{_key(at)}", "operator": "NotIn", "values": ["a"]} for at in range(2000)]
    return _preferring([{"weight": 1, "preference": {"matchExpressions": preferred}}])


def _preferring(terms: list[Object]) -> Object:
    return _spec(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}})


def _last_volumes() -> Object:
    spec = _mounted_volumes(1000, 0, 0)
    mounts = [{"name": f"v{at}", "mountPath": f"/v{at}"} for at in range(960, 994)]
    return {**spec, "containers": [_container(f"c{number}", volumeMounts=mounts) for number in range(120)]}


def _memory_volumes() -> Object:
    return _spec(volumes=[{"name": f"v{number}", "emptyDir": {"medium": "Memory"}} for number in range(6000)])


def _mounted_volumes(volumes: int, containers: int, mounts: int) -> Object:
    """Return memory volumes, each as large as its node, mounted by every container."""
    mounted = [{"name": f"v{at}", "mountPath": f"/v{at}"} for at in range(mounts)]
    return _spec(
        containers=[_container(f"c{number}", volumeMounts=mounted) for number in range(containers)],
        volumes=[{"name": f"v{at}", "emptyDir": {"medium": "Memory"}} for at in range(volumes)],
    )


def _environment(count: int) -> Object:
    return _spec(containers=[_container("main", env=[{"name": f"E{_key(at)}", "value": "1"} for at in range(count)])])


def _expression(number: int) -> Object:
    return {"key": _key(number), "operator": "In", "values": ["a"]}


def _required_terms(count: int) -> Object:
    terms = [{"matchExpressions": [_expression(number)]} for number in range(count)]
    return _spec(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})


def _preferred_terms(count: int) -> Object:
    return _preferring([{"weight": 1, "preference": {"matchExpressions": [_expression(number)]}} for number in range(count)])


def _expressions(count: int) -> Object:
    return _preferring([{"weight": 1, "preference": {"matchExpressions": [_expression(number) for number in range(count)]}}])


def _pod_affinity_terms(count: int) -> Object:
    terms = [{"topologyKey": _key(number), "labelSelector": {"matchLabels": {"app": "a"}}} for number in range(count)]
    return _spec(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def _spread_constraints(count: int) -> Object:
    return _spec(
        topologySpreadConstraints=[
            {"topologyKey": _key(at), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
            for at in range(count)
        ]
    )


def _at_the_limits() -> Object:
    """Return a pod that is just within every limit of the rule `object-size` that is cheap to fill."""
    spec = _mounted_volumes(1000, 120, 30)
    spec |= {"initContainers": [{"name": f"i{at}", "image": f"e.com/i{at}"} for at in range(250)]}
    spec |= {key: value for made in (_tolerations(500), _spread_constraints(250)) for key, value in made.items() if key not in spec}
    spec["nodeSelector"] = {_key(number): "a" for number in range(500)}
    spec["affinity"] = _required_terms(250)["affinity"]
    spec["containers"][0]["env"] = _environment(4000)["containers"][0]["env"]
    return spec


def _one_of_each() -> Object:
    """Return a pod with a middling number of everything, small enough to be sent often."""
    return {
        **_mounted_volumes(60, 60, 4),
        "initContainers": [_container(f"i{number}") for number in range(60)],
        "tolerations": _tolerations(200)["tolerations"],
        "affinity": _required_terms(100)["affinity"],
        "topologySpreadConstraints": _spread_constraints(100)["topologySpreadConstraints"],
    }


#: Name and kind of a body, and what makes its pod spec.
_SPECS: Final[dict[str, tuple[str, Callable[[], Object]]]] = {
    "600 init containers with a GPU each": ("Pod", _init_containers),
    "300 containers with a GPU each": ("Pod", _gpu_containers),
    "120 containers with a GPU each": ("Pod", lambda: _spec(containers=[_container(f"c{number}") for number in range(120)])),
    "60 containers with a GPU each": ("Pod", lambda: _spec(containers=[_container(f"c{number}") for number in range(60)])),
    "5,000 containers": ("Pod", _all_containers),
    "250 containers": ("Pod", lambda: _spec(containers=_containers(250))),
    "15,000 images": ("Pod", _images),
    "35,000 nodeSelector keys": ("Pod", _node_selector),
    "500 nodeSelector keys": ("Pod", lambda: _spec(nodeSelector={_key(number): "a" for number in range(500)})),
    "60,000 tolerations": ("Pod", lambda: _spec(tolerations=[{"operator": "Exists"}] * 60_000)),
    "500 tolerations": ("Pod", lambda: _tolerations(500)),
    "500 tolerations of one key": ("Pod", _tolerations_of_one_key),
    "6,000 memory volumes": ("Pod", _memory_volumes),
    "1,000 memory volumes, 130 mounts in each of 30 containers": ("Pod", lambda: _mounted_volumes(1000, 30, 130)),
    "1,000 memory volumes, 34 mounts in each of 120 containers": ("Pod", _last_volumes),
    "2,000 labels under nvidia.com": ("Pod", _labels_of_nvidia),
    "1 MB of environment variables": ("Pod", lambda: _environment(30_000)),
    "8,000 environment variables": ("Pod", lambda: _environment(8000)),
    "8,000 required terms": ("Pod", lambda: _required_terms(8000)),
    "250 required terms": ("Pod", lambda: _required_terms(250)),
    "250 preferred terms": ("Pod", lambda: _preferred_terms(250)),
    "2,000 expressions in a preferred term": ("Pod", lambda: _expressions(2000)),
    "8,000 terms of pod affinity": ("Pod", lambda: _pod_affinity_terms(8000)),
    "250 terms of pod affinity": ("Pod", lambda: _pod_affinity_terms(250)),
    "250 spread constraints": ("Pod", lambda: _spread_constraints(250)),
    "10,000 spread constraints": ("Pod", lambda: _spread_constraints(10_000)),
    "all limits at once": ("Pod", _at_the_limits),
    "something of everything": ("Pod", _one_of_each),
    "20,000 containers in a Job": ("Job", lambda: _spec(containers=_containers(20_000))),
    "something of everything in a Job": ("Job", _one_of_each),
    "all limits at once in a Job": ("Job", _at_the_limits),
    "all limits at once in a Deployment": ("Deployment", lambda: _at_the_limits() | {"restartPolicy": "Always"}),
}


def body(name: str, namespace: str) -> Body:
    """Return the body of this name for objects of ``namespace``.

    An object of its name exists: the apiserver calls both webhooks before it finds that out, and answers 409. So the loop can go
    on for ever, and no program that watches the cluster is busy with what was stored. An UPDATE is sent as a dry run.
    """
    kind, make = _SPECS[name.removesuffix(_UPDATE)]
    path, spec = _PATHS[kind].format(namespace), make()
    metadata = {"name": f"a{CANDIDATES.index(name)}", "namespace": namespace, "labels": {"app": "a"}}
    if name.endswith(_UPDATE):
        before, changed = _object(kind, metadata, spec), _object(kind, {**metadata, "labels": {"app": "b"}}, spec)
        return Body(name, "PUT", f"{path}/{metadata['name']}?dryRun=All", orjson.dumps(changed), orjson.dumps(before))
    small = {"restartPolicy": spec["restartPolicy"], "containers": [_container("main", gpu=False)]}
    if kind == "Pod":
        small["schedulingGates"] = [{"name": "example.com/never"}]
    return Body(name, "POST", path, orjson.dumps(_object(kind, metadata, spec)), orjson.dumps(_object(kind, metadata, small)))


def _object(kind: str, metadata: Object, spec: Object) -> Object:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": spec}
    if kind == "Job":
        return {"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": {"suspend": True, "template": template}}
    if kind == "Deployment":
        chosen = {"replicas": 0, "paused": True, "selector": {"matchLabels": {"app": "a"}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": chosen}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


_UPDATE: Final = ", UPDATE"
#: The names of all bodies that were tried.
CANDIDATES: Final = (*_SPECS, *(name + _UPDATE for name, (kind, _) in _SPECS.items() if kind == "Deployment"))
#: The ten that cost a replica most CPU for one request to a real apiserver. 60,000 tolerations cost it as much as the last of them,
#: and the apiserver itself seconds, so that a loop with them hardly gets to anything else.
WORST: Final = (
    "all limits at once in a Deployment",
    "all limits at once in a Deployment, UPDATE",
    "all limits at once in a Job",
    "all limits at once",
    "500 tolerations",
    "500 tolerations of one key",
    "1,000 memory volumes, 34 mounts in each of 120 containers",
    "2,000 labels under nvidia.com",
    "2,000 expressions in a preferred term",
    "250 terms of pod affinity",
)
#: The ten that cost a replica most CPU for each second of CPU that they cost the apiserver: they can be sent most often.
DENSEST: Final = (
    "500 nodeSelector keys",
    "500 tolerations",
    "500 tolerations of one key",
    "250 required terms",
    "250 terms of pod affinity",
    "250 preferred terms",
    "2,000 expressions in a preferred term",
    "250 spread constraints",
    "something of everything",
    "120 containers with a GPU each",
)
