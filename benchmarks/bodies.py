"""Objects whose lists and maps have grown: what a user with ``edit`` may send, realistic or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ruamel.yaml import YAML

from benchmarks.bench import EXAMPLES
from gpugate.policies.kube.fields import clone
from gpugate.policies.workloads.kinds import KINDS, kind_of

Object = dict[str, Any]
Place = tuple[str | int, ...]

#: A pod spec with every list and map that the API has and the kubelet, a scheduler or a rule looks at, each with one entry.
_POD: Final[Object] = {
    "containers": [
        {
            "name": "main",
            "image": "example.com/team/train:1",
            "command": ["python"],
            "args": ["train.py"],
            "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}, "requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
            "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
            "envFrom": [{"configMapRef": {"name": "settings"}}],
            "ports": [{"containerPort": 8080}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "volumeDevices": [{"name": "disk", "devicePath": "/dev/disk"}],
            "securityContext": {"capabilities": {"add": ["IPC_LOCK"], "drop": ["ALL"]}},
        }
    ],
    "initContainers": [
        {
            "name": "init",
            "image": "example.com/team/init:1",
            "resources": {"limits": {"nvidia.com/gpu": 1}},
            "restartPolicy": "Always",
        }
    ],
    "ephemeralContainers": [{"name": "debug", "image": "example.com/team/debug:1", "targetContainerName": "main"}],
    "volumes": [
        {"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "host", "hostPath": {"path": "/dev/nvidia0"}},
        {"name": "all", "projected": {"sources": [{"configMap": {"name": "settings", "items": [{"key": "a", "path": "b"}]}}]}},
    ],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeSelector": {"nvidia.com/gpu.product": "H100"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["H100"]}],
                        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}],
                    }
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
            ],
        },
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "rack",
                    "namespaces": ["default"],
                    "labelSelector": {
                        "matchLabels": {"app": "a"},
                        "matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}],
                    },
                }
            ]
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}}
            ]
        },
    },
    "topologySpreadConstraints": [
        {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "a"}}}
    ],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
    "schedulingGates": [{"name": "example.com/wait"}],
    "readinessGates": [{"conditionType": "example.com/ready"}],
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
    "imagePullSecrets": [{"name": "pull"}],
    "securityContext": {"supplementalGroups": [1], "sysctls": [{"name": "net.core.somaxconn", "value": "1"}]},
    "overhead": {"memory": "1Gi"},
}
_METADATA: Final[Object] = {
    "labels": {"app": "a"},
    "annotations": {"gpugate.io/gpu": "h100"},
    "finalizers": ["example.com/wait"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1"}],
    "managedFields": [
        {"manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}
    ],
}


class Growth(NamedTuple):
    """How often the entry of one list or map is repeated.

    Attributes:
        place: path of the list or map in the object.
        times: number of its entries.
    """

    place: Place
    times: int


def kinds() -> dict[str, Object]:
    """Return one object of every kind, ``apiVersion kind`` to object, whose pod templates have every list and map."""
    objects: dict[str, Object] = {}
    for path in sorted((EXAMPLES / "workloads").glob("*.yaml")):
        for root in YAML(typ="safe").load_all(path.read_text(encoding="utf-8")):
            kind = kind_of(str(root.get("apiVersion")), str(root.get("kind"))) if isinstance(root, dict) else None
            if kind is not None:
                objects.setdefault(f"{root['apiVersion']} {root['kind']}", root)
    objects.setdefault("apps/v1 ReplicaSet", {**objects["apps/v1 Deployment"], "kind": "ReplicaSet"})
    missing = {kind.kind for kind in KINDS} - {name.split()[1] for name in objects}
    if missing:
        message = f"examples/workloads has no object of the kinds {sorted(missing)}"
        raise LookupError(message)
    return {name: _enriched(root) for name, root in objects.items()}


def _enriched(root: Object) -> Object:
    """Return a copy of ``root`` whose metadata and pod specs have every list and map."""
    copy: Object = clone(root)
    copy["metadata"] = {"namespace": "default", **copy.get("metadata", {}), **clone(_METADATA)}
    for holder in list(_holders_of_pods(copy)):
        holder["spec"] = {**holder["spec"], **clone(_POD)}
        holder["metadata"] = {**(holder.get("metadata") or {}), "labels": {"app": "a"}, "annotations": {"gpugate.io/vram": "40Gi"}}
    return copy


def _holders_of_pods(value: Any) -> Iterator[Object]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        if isinstance(value.get("spec"), dict) and "containers" in value["spec"]:
            yield value
        for item in value.values():
            yield from _holders_of_pods(item)
    elif isinstance(value, list):
        for item in value:
            yield from _holders_of_pods(item)


def places(value: Any, path: Place = ()) -> Iterator[Place]:  # noqa: ANN401 - any JSON
    """Return the path of every list, and of every map whose keys users choose, that has entries."""
    if isinstance(value, dict):
        if path and value and all(isinstance(item, str | int) for item in value.values()) and len(value) <= 2:
            yield path
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list) and value:
        yield path
        for at, item in enumerate(value):
            yield from places(item, (*path, at))


def grown(root: Object, growths: list[Growth]) -> Object:
    """Return a copy of ``root`` with repeated entries; names in them differ, so that the API would accept them."""
    copy: Object = clone(root)
    # Inner lists first: their copies grow along with the entry that holds them.
    for growth in sorted(growths, key=lambda growth: -len(growth.place)):
        holder: Any = copy
        for part in growth.place[:-1]:
            holder = holder[part]
        value = holder[growth.place[-1]]
        if isinstance(value, dict):
            key, entry = next(iter(value.items()))
            holder[growth.place[-1]] = {f"{key}{letters(number)}": entry for number in range(growth.times)}
        else:
            holder[growth.place[-1]] = [_renamed(value[0], number) for number in range(growth.times)]
    return copy


def letters(number: int) -> str:
    """Return ``number`` in letters, nothing for 0: names that differ in digits alone are no misspellings of each other."""
    text = ""
    while number:
        number, digit = divmod(number, 26)
        text += chr(ord("a") + digit)
    return text


def _renamed(entry: Any, number: int) -> Any:  # noqa: ANN401 - any JSON
    """Return a copy of ``entry`` that differs from the others by its names and paths."""
    if isinstance(entry, str):
        return f"{entry}{letters(number)}"
    if not isinstance(entry, dict):
        return entry + number if type(entry) is int else entry
    renamed = dict(entry)
    for key in ("name", "key", "mountPath", "topologyKey", "image", "uid"):
        if isinstance(entry.get(key), str):
            renamed[key] = f"{entry[key]}{letters(number)}"
    if type(entry.get("containerPort")) is int:
        renamed["containerPort"] = 1 + number % 65_535
    return renamed


def title(growths: list[Growth]) -> str:
    """Format the growths for a table, ``4096 x spec.containers``."""
    return ", ".join(f"{growth.times} x {'.'.join(str(part) for part in growth.place)}" for growth in growths)


def review(root: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> Object:
    """Return the AdmissionReview that creates ``root``, or updates ``old`` to it."""
    group, _, version = str(root["apiVersion"]).rpartition("/")
    request = {
        "uid": "1",
        "kind": {"group": group, "version": version, "kind": root["kind"]},
        "operation": "UPDATE" if old else "CREATE",
        "namespace": root["metadata"]["namespace"],
        "name": root["metadata"].get("name", ""),
        "userInfo": {"username": "user"},
        "object": root,
        "oldObject": old,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
