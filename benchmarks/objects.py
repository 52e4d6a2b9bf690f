"""Nodes and pods as a kube-apiserver 1.36 sends them: as large, with all that no rule reads, and the same for the same seed.

An object is written once for each sort of machine or pod, as a template of bytes; one of a hundred thousand is that template
with its own name, uid, node, address and times put in.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

Json = dict[str, Any]
_TIME: Final = "2026-11-03T06:12:45Z"


def fields_of(value: Json) -> Json:
    """``managedFields[].fieldsV1`` for ``value``: one key for each field, elements of lists by their names where they have any."""
    found: Json = {}
    for key, inner in value.items():
        found[f"f:{key}"] = _inner_fields(inner)
    return found


def _inner_fields(inner: object) -> Json:
    if isinstance(inner, dict):
        return {".": {}, **fields_of(inner)}
    if isinstance(inner, list) and inner and isinstance(inner[0], dict):
        keyed: Json = {".": {}}
        for one in inner:
            key = next((name for name in ("name", "type", "ip", "uid", "mountPath") if name in one), None)
            if key is None:
                return {}
            keyed["k:" + orjson.dumps({key: one[key]}).decode()] = {".": {}, **fields_of(one)}
        return keyed
    return {}


def managed(manager: str, fields: Json, subresource: str = "") -> Json:
    """One entry of ``managedFields``: what ``manager`` wrote."""
    entry: Json = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": _TIME, "fieldsType": "FieldsV1"}
    return {**entry, "fieldsV1": fields_of(fields), **({"subresource": subresource} if subresource else {})}


class Machine(NamedTuple):
    """A sort of machine."""

    instance: str
    cpu: int
    memory_gib: int
    gpus: int = 0
    product: str = ""
    gpu_mib: int = 0


MACHINES: Final = (
    Machine("p5.48xlarge", 192, 2048, 8, "NVIDIA-H100-80GB-HBM3", 81559),
    Machine("p4d.24xlarge", 96, 1152, 8, "NVIDIA-A100-SXM4-40GB", 40960),
    Machine("g6e.12xlarge", 48, 384, 4, "NVIDIA-L40S", 46068),
    Machine("g4dn.4xlarge", 16, 64, 1, "Tesla-T4", 15360),
    Machine("m6i.8xlarge", 32, 128),
)
ZONES: Final = ("bench-1a", "bench-1b")
_IMAGES: Final = 30


def _node_labels(machine: Machine, zone: str) -> dict[str, str]:
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": machine.instance,
        "beta.kubernetes.io/os": "linux",
        "failure-domain.beta.kubernetes.io/region": "bench-1",
        "failure-domain.beta.kubernetes.io/zone": zone,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": "%(name)b",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine.instance,
        "topology.kubernetes.io/region": "bench-1",
        "topology.kubernetes.io/zone": zone,
    }
    labels |= {
        f"feature.node.kubernetes.io/cpu-cpuid.{name}": "true" for name in ("ADX", "AESNI", "AVX", "AVX2", "AVX512F", "FMA3")
    }
    if machine.gpus:
        labels |= {
            "nvidia.com/cuda.driver-version.full": "580.95.05",
            "nvidia.com/cuda.driver-version.major": "580",
            "nvidia.com/cuda.runtime-version.full": "13.0",
            "nvidia.com/cuda.runtime-version.major": "13",
            "nvidia.com/gpu.count": str(machine.gpus),
            "nvidia.com/gpu.deploy.container-toolkit": "true",
            "nvidia.com/gpu.deploy.dcgm-exporter": "true",
            "nvidia.com/gpu.deploy.device-plugin": "true",
            "nvidia.com/gpu.machine": machine.instance,
            "nvidia.com/gpu.memory": str(machine.gpu_mib),
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": machine.product,
            "nvidia.com/gpu.replicas": "1",
            "nvidia.com/gpu.sharing-strategy": "none",
            "nvidia.com/mig.capable": "true",
            "nvidia.com/mig.strategy": "none",
        }
    return labels


def _condition(name: str, reason: str, message: str, status: str = "False") -> Json:
    times = {"lastHeartbeatTime": "%(time)b", "lastTransitionTime": _TIME}
    return {"type": name, "status": status, **times, "reason": reason, "message": message}


def _node_status(machine: Machine) -> Json:
    amounts = {
        "cpu": str(machine.cpu),
        "ephemeral-storage": "1888313376Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "%(memory)bKi",
        "pods": "250",
    }
    amounts |= {"nvidia.com/gpu": str(machine.gpus)} if machine.gpus else {}
    digest = hashlib.sha256(machine.instance.encode()).hexdigest()
    images = [
        {
            "names": [
                f"registry.example.com/platform/component-{at:02}@sha256:{digest}",
                f"registry.example.com/platform/component-{at:02}:v1.{at}.0",
            ],
            "sizeBytes": 912_345_678 - 7_654_321 * at,
        }
        for at in range(_IMAGES)
    ]
    kernel = {"kernelVersion": "6.8.0-1021-aws", "osImage": "Ubuntu 24.04.2 LTS", "containerRuntimeVersion": "containerd://2.1.4"}
    return {
        "capacity": amounts,
        "allocatable": {**amounts, "gpugate.io/none": "0"} if not machine.gpus else amounts,
        "conditions": [
            _condition("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            _condition("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            _condition("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            _condition("Ready", "KubeletReady", "kubelet is posting ready status", "True"),
        ],
        "addresses": [{"type": "InternalIP", "address": "%(ip)b"}, {"type": "Hostname", "address": "%(name)b"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": "%(uid)b",
            "systemUUID": "%(uid)b",
            "bootID": "%(uid)b",
            **kernel,
            "kubeletVersion": "v1.36.3",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "images": images,
        "runtimeHandlers": [{"name": "", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": True}}],
        "features": {"supplementalGroupsPolicy": True},
    }


def _node(machine: Machine, zone: str) -> Json:
    labels, status = _node_labels(machine, zone), _node_status(machine)
    annotations = {
        "csi.volume.kubernetes.io/nodeid": '{"ebs.csi.aws.com":"i-0123456789abcdef0"}',
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "nfd.node.kubernetes.io/feature-labels": ",".join(sorted(label for label in labels if "feature" in label)),
    }
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}] if machine.gpus else []
    spec = {"podCIDR": "10.4.0.0/24", "podCIDRs": ["10.4.0.0/24"], "providerID": f"aws:///{zone}/%(name)b", "taints": taints}
    if not taints:
        del spec["taints"]
    written = {key: status[key] for key in ("allocatable", "capacity", "conditions", "images", "nodeInfo")}
    metadata = {
        "name": "%(name)b",
        "uid": "%(uid)b",
        "resourceVersion": "%(version)b",
        "creationTimestamp": _TIME,
        "labels": labels,
        "annotations": annotations,
        "managedFields": [
            managed("kubelet", {"metadata": {"annotations": annotations, "labels": labels}, "spec": spec}),
            managed("nfd-master", {"metadata": {"labels": labels}}),
            managed("kubelet", {"status": written}, "status"),
        ],
    }
    return {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


def template_of(obj: Json) -> bytes:
    """``obj`` as bytes to put values into: ``%(name)b`` stands for one."""
    return orjson.dumps(obj).replace(b"%", b"%%").replace(b"%%(", b"%(")


def uid_of(seed: int, *what: object) -> str:
    """A uid that only the same arguments give."""
    return str(uuid.UUID(bytes=hashlib.md5(repr((seed, *what)).encode(), usedforsecurity=False).digest(), version=4))


def node_name(at: int) -> str:
    """The name of node ``at``."""
    return f"ip-10-{at >> 8}-{at & 255}-7.bench-1.compute.internal"


class Nodes:
    """The nodes of a cluster, by index."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self._seed = seed
        self._templates = [template_of(_node(machine, zone)) for machine in MACHINES for zone in ZONES]

    def render(self, at: int, version: int, *, time: str = _TIME, memory_less_kib: int = 0) -> bytes:
        """Node ``at`` at ``version``, with the heartbeat ``time``; a change of its memory is one that rules see."""
        machine = MACHINES[at % len(self._templates) // len(ZONES)]
        values = {
            "name": node_name(at),
            "uid": uid_of(self._seed, "node", at),
            "version": str(version),
            "time": time,
            "ip": f"10.{at >> 8}.{at & 255}.7",
            # What firmware keeps differs a little from machine to machine.
            "memory": str(machine.memory_gib * 1024 * 1024 - 300_000 - 16 * (at % 97) - memory_less_kib),
        }
        return self._templates[at % len(self._templates)] % {key.encode(): value.encode() for key, value in values.items()}

    def all(self, version: int) -> Iterator[bytes]:
        """All of them."""
        return (self.render(at, version) for at in range(self.count))
