"""Find pods that can reach GPUs or GPU nodes without requesting a GPU: device variables, hostPath devices, tolerations.

The webhook's match conditions (``webhook/admission/conditions.py``) and the audit share this definition. It selects more pods
than the rules report.

Facts: NVIDIA container toolkit (``internal/config/image/cuda_image.go``) reads device lists from annotations ``cdi.k8s.io/``,
from mounts of /dev/null below /var/run/nvidia-container-devices, and from ``NVIDIA_VISIBLE_DEVICES``; AMD's container toolkit
(``internal/oci/oci.go``), Habana's container runtime and Ascend Docker Runtime read variables of their own.
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from gpugate.policies.kube.accelerators import may_be_accelerator
from gpugate.policies.kube.cel import UNIQUE
from gpugate.policies.kube.fields import Object, lookup, mapping, mappings, sequence
from gpugate.policies.kube.memo import cached
from gpugate.policies.kube.names import MIRROR, REQUIRED_AFFINITY
from gpugate.policies.kube.quantity import QuantityError, exact
from gpugate.policies.kube.taints import names_accelerators
from gpugate.policies.workloads.container import Container
from gpugate.policies.workloads.kinds import kinds_named
from gpugate.policies.workloads.node_affinity import required_terms
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Variables by which a container runtime gives devices to a container, with the resource that requests such devices.
VARIABLES: Final[Mapping[str, str]] = {
    "AMD_VISIBLE_DEVICES": "amd.com/gpu",
    "ASCEND_VISIBLE_DEVICES": "huawei.com/Ascend",
    "HABANA_VISIBLE_DEVICES": "habana.ai/gaudi",
    "NVIDIA_VISIBLE_DEVICES": "nvidia.com/gpu",
}
#: Values of these variables that give no device.
NO_DEVICES: Final = frozenset({"", "none", "void"})
#: Device files of accelerators, in any spelling of the path (the API rejects ``..`` in it).
DEVICE_FILES: Final = r"^/[/.]*dev/[/.]*(nvidia|kfd|accel|neuron|davinci)"
#: Part of the paths of mounts that list devices.
DEVICE_LIST: Final = "nvidia-container-devices"
#: Prefix of the annotations that name devices to the runtime.
DEVICE_ANNOTATIONS: Final = "cdi.k8s.io/"
#: Priority classes of pods that a cluster needs to run.
SYSTEM_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
#: Namespaces of pods that a cluster needs to run.
SYSTEM_NAMESPACES: Final = frozenset({"kube-system"})
#: Operators of node affinity that keep pods off the nodes with a label.
AVOIDING: Final = frozenset({"DoesNotExist", "NotIn"})

#: Annotations by which a pod requests a part of a GPU from KAI (KAI-Scheduler, ``docs/gpu-sharing``).
_FRACTIONS: Final = frozenset({"gpu-fraction", "gpu-memory"})
_DEVICE_FILES: Final = re.compile(DEVICE_FILES)
#: Effects of a toleration that let pods onto nodes with a taint of effect NoSchedule.
_KEEPING_OFF: Final = (None, "", "NoSchedule")
#: The name of the node in an entry of the managed fields.
_NODE_NAME: Final = ("fieldsV1", "f:spec", "f:nodeName")


@cached(1024)
def is_device_file(path: str) -> bool:
    """Whether the host path is an accelerator's device file."""
    return _DEVICE_FILES.search(path) is not None


def takes(entry: Object) -> bool:
    """Whether an environment entry may give devices to its container; a value from another object is unknown, so it may."""
    name = entry.get("name")
    if type(name) is not str or name not in VARIABLES:
        return False
    return entry.get("valueFrom") is not None or value_of(entry) not in NO_DEVICES


def value_of(entry: Object) -> str:
    """Return the value of an environment entry; a number without quotes counts as its text."""
    value = entry.get("value")
    return "" if value is None else str(value)


def host_path(volume: Object) -> str:
    """Return the path of a hostPath volume; empty for any other volume."""
    source = volume.get("hostPath")
    path = source.get("path") if type(source) is dict else None
    return path if type(path) is str else ""


def takes_devices(pods: PodSet) -> bool:
    """Whether the pods name devices themselves: in the environment, by mounts or by annotations."""
    for container in pods.containers:
        spec = container.spec
        if "env" in spec and any(map(takes, mappings(spec, "env", container.path))):
            return True
        mounts = mappings(spec, "volumeMounts", container.path) if "volumeMounts" in spec else ()
        if any(DEVICE_LIST in str(mount.get("mountPath")) for mount in mounts):
            return True
    if "volumes" in pods.spec and any(is_device_file(host_path(volume)) for volume in pods.volumes()):
        return True
    return any(key.startswith(DEVICE_ANNOTATIONS) for key in pods.annotations())


def reserved_tolerations(pods: PodSet) -> Iterator[tuple[int, Object]]:
    """Yield the tolerations, with their indices, of taints that may reserve accelerator nodes."""
    if "tolerations" in pods.spec:
        for index, toleration in enumerate(mappings(pods.spec, "tolerations", pods.field())):
            if names_accelerators(str(toleration.get("key") or ""), str(toleration.get("value") or "")):
                yield index, toleration


def reserved_labels(pods: PodSet) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the labels of accelerator nodes that the pods select, with their paths below the pod spec."""
    if "nodeSelector" in pods.spec:
        for key, value in mapping(pods.spec, "nodeSelector", pods.field()).items():
            if value != "false" and names_accelerators(key):
                yield ("nodeSelector", key), key
    path = ("affinity", "nodeAffinity", REQUIRED_AFFINITY, "nodeSelectorTerms")
    for term_index, term in enumerate(required_terms(pods) if "affinity" in pods.spec else ()):
        for index, expression in enumerate(mappings(term, "matchExpressions", ())):
            key, operator = str(expression.get("key") or ""), str(expression.get("operator"))
            if operator not in AVOIDING and sequence(expression, "values", ()) != ["false"] and names_accelerators(key):
                yield (*path, term_index, "matchExpressions", index), key


def toleration_of_everything(pods: PodSet) -> int | None:
    """Return the index of the toleration of every taint that keeps pods off a node; None if there is none."""
    if "tolerations" in pods.spec:
        for index, toleration in enumerate(mappings(pods.spec, "tolerations", pods.field())):
            if not toleration.get("key") and toleration.get("operator") == "Exists" and toleration.get("effect") in _KEEPING_OFF:
                return index
    return None


def names_a_node(workload: Workload, pods: PodSet) -> bool:
    """Whether a user wrote the name of a node. The scheduler binds a pod through a subresource, and manages no field by that."""
    if "nodeName" not in pods.spec:
        return False
    metadata = workload.metadata()
    if not workload.is_pod() or not metadata.get("uid"):
        return True
    return any(lookup(entry, _NODE_NAME) is not None for entry in mappings(metadata, "managedFields", ("metadata",)))


def may_crowd_gpu_nodes(workload: Workload) -> bool:
    """Whether the object's pods may take room on accelerator nodes without naming what these are reserved for.

    The webhooks do not receive such objects, since most of them have nothing to do with accelerators; review and audit see them.
    Pods of DaemonSets, mirrors of static pods and pods that a cluster needs are on every node and do not count.
    """
    crowding = any(
        str(pods.spec.get("priorityClassName")) not in SYSTEM_CLASSES
        and (toleration_of_everything(pods) is not None or names_a_node(workload, pods))
        for pods in workload.pod_sets
    )
    if not crowding or workload.namespace in SYSTEM_NAMESPACES or is_of_daemon_set(workload):
        return False
    return not (workload.is_pod() and MIRROR in workload.annotations())


def is_of_daemon_set(workload: Workload) -> bool:
    """Whether the object is a DaemonSet, or a pod that one created."""
    if workload.kind.per_node:
        return True
    owner = workload.controller() if workload.is_pod() else None
    if owner is None or (workload.owner_doubt is not None and not workload.owner_doubt.may_take_devices(owner)):
        return False
    return any(kind.per_node for kind in kinds_named(str(owner.get("kind"))))


def goes_to_reserved_nodes(pods: PodSet) -> bool:
    """Whether the pods select accelerator nodes by taints or labels; pods that the cluster needs to run do not count."""
    if str(pods.spec.get("priorityClassName")) in SYSTEM_CLASSES:
        return False
    return any(True for _ in reserved_tolerations(pods)) or any(True for _ in reserved_labels(pods))


def asks_somehow(pods: PodSet) -> bool:
    """Whether the pods may request an accelerator by resource or claim, also by a misspelled name."""
    if pods.spec.get("resourceClaims"):
        return True
    amounts = (amounts for container in pods.containers for amounts in (container.limits, container.requests))
    return any(may_be_accelerator(name) and not _is_zero(amount) for items in amounts for name, amount in items.items())


def _is_zero(amount: object) -> bool:
    """Whether an amount is zero in any spelling: ``0.0``, ``0k``."""
    try:
        return not exact(amount)
    except QuantityError:
        return False


def asks_for_a_part(pods: PodSet) -> bool:
    """Whether the pods request a part of a GPU from KAI by annotation; its binder names the device in a ConfigMap."""
    return not _FRACTIONS.isdisjoint(pods.annotations())


def may_access_devices(workload: Workload) -> bool:
    """Whether the object's pods may reach accelerators, or the nodes reserved for them, without a request."""
    if any(map(takes_devices, workload.pod_sets)):
        return True
    return not is_of_daemon_set(workload) and any(map(goes_to_reserved_nodes, workload.pod_sets))


#: An image with ``*`` for any characters.
ImagePattern: TypeAlias = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9._/:@*-]+$")]
ImagePatterns: TypeAlias = Annotated[tuple[ImagePattern, ...], *UNIQUE]
#: A namespace and service account; ``*`` for all accounts of the namespace.
AccountPattern: TypeAlias = Annotated[
    str, Field(min_length=3, max_length=317, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9.*-]+$")
]
AccountPatterns: TypeAlias = Annotated[tuple[AccountPattern, ...], *UNIQUE]

#: Images of the agents on accelerator nodes, from the registries of their vendors.
STACK_IMAGES: Final = (
    "docker.io/rocm/device-metrics-exporter*",
    "docker.io/rocm/k8s-device-plugin*",
    "nvcr.io/nvidia/cloud-native/*",
    "nvcr.io/nvidia/driver*",
    "nvcr.io/nvidia/gpu-feature-discovery*",
    "nvcr.io/nvidia/gpu-operator*",
    "nvcr.io/nvidia/k8s-device-plugin*",
    "nvcr.io/nvidia/k8s-dra-driver-gpu*",
    "nvcr.io/nvidia/k8s/container-toolkit*",
    "nvcr.io/nvidia/k8s/dcgm-exporter*",
    "public.ecr.aws/neuron/neuron-device-plugin*",
    "public.ecr.aws/neuron/neuron-monitor*",
    "rocm/device-metrics-exporter*",
    "rocm/k8s-device-plugin*",
    "vault.habana.ai/docker-k8s-device-plugin/*",
    "vault.habana.ai/gaudi-metric-exporter/*",
)
#: Service accounts of operators and device plugins in the namespaces of their vendors' instructions, and in
#: ``gpu-operator-system``, where the orchestration guide installs the GPU operator.
STACK_ACCOUNTS: Final = (
    *("gpu-operator-resources/*", "gpu-operator-system/*", "gpu-operator/*", "kube-amd-gpu/*", "nvidia-device-plugin/*"),
    *("nvidia-dra-driver-gpu/*", "nvidia-gpu-operator/*"),
)
#: The service account with which the GPU operator tests the devices of a node before it reports the node as ready (GPU operator
#: v25.3, ``validator/manifests/plugin-workload-validation.yaml``).
_VALIDATOR: Final = "nvidia-operator-validator"


@lru_cache(maxsize=2048)
def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def has_account(workload: Workload, pods: PodSet, patterns: tuple[str, ...]) -> bool:
    """Whether the pods run under one of these service accounts."""
    name = pods.spec.get("serviceAccountName") or pods.spec.get("serviceAccount") or "default"
    return _matches(f"{workload.namespace}/{name}"[:600], patterns)


def is_operator_validator(workload: Workload) -> bool:
    """Whether the object is the pod with which the GPU operator tests a node's devices, bound to that node at creation.

    With a share of the node's memory, the kubelet of a node in use would reject it, and the node would then offer no GPU.
    """
    pods = workload.pod_sets[0] if workload.is_pod() else None
    if pods is None or "nodeName" not in pods.spec or pods.spec.get("serviceAccountName") != _VALIDATOR:
        return False
    return has_account(workload, pods, STACK_ACCOUNTS)


def has_image(container: Container, patterns: tuple[str, ...]) -> bool:
    """Whether the container runs one of these images."""
    return _matches(str(container.spec.get("image"))[:600], patterns)


def runs_stack_image(workload: Workload, container: Container, patterns: tuple[str, ...]) -> bool:
    """Whether the container runs one of these images on every node, in a DaemonSet."""
    return is_of_daemon_set(workload) and has_image(container, patterns)
