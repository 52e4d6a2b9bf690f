"""Find pods that can reach GPUs or GPU nodes without requesting a GPU: device variables, hostPath devices, tolerations.

The webhook's match conditions (``webhook/admission/match_conditions.py``) and the audit use this definition. It is coarser than
the rules: a pod that it selects may still be allowed.

Sources: NVIDIA container toolkit (``internal/config/image/cuda_image.go``) reads device lists from annotations ``cdi.k8s.io/``,
from mounts of /dev/null below /var/run/nvidia-container-devices, and from ``NVIDIA_VISIBLE_DEVICES``; AMD's container toolkit
(``internal/oci/oci.go``), Habana's container runtime and Ascend Docker Runtime read variables of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from gpugate.policies.kube.accelerators import may_be_accelerator
from gpugate.policies.kube.cel import UNIQUE
from gpugate.policies.kube.fields import Object, mapping, mappings, sequence
from gpugate.policies.kube.quantity import QuantityError, exact
from gpugate.policies.kube.taints import names_accelerators
from gpugate.policies.workloads.container import Container
from gpugate.policies.workloads.kinds import kinds_named
from gpugate.policies.workloads.node_affinity import REQUIRED, required_terms
from gpugate.policies.workloads.workload import PodSet, Workload

#: Variables by which a container runtime gives devices to a container, with the resource name that requests them.
VARIABLES: Final[Mapping[str, str]] = {
    "AMD_VISIBLE_DEVICES": "amd.com/gpu",
    "ASCEND_VISIBLE_DEVICES": "huawei.com/Ascend",
    "HABANA_VISIBLE_DEVICES": "habana.ai/gaudi",
    "NVIDIA_VISIBLE_DEVICES": "nvidia.com/gpu",
}
#: Values of these variables that give no device.
NO_DEVICES: Final = frozenset({"", "none", "void"})
#: Device files of accelerators, in any spelling of the path (the API accepts no ``..`` in it).
DEVICE_FILES: Final = r"^/[/.]*dev/[/.]*(nvidia|kfd|accel|neuron|davinci)"
#: A part of the paths of mounts that list devices.
DEVICE_LIST: Final = "nvidia-container-devices"
#: The prefix of annotations that name devices to the runtime.
DEVICE_ANNOTATIONS: Final = "cdi.k8s.io/"
#: Priority classes of pods that a cluster needs to run at all.
SYSTEM_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
#: Operators of node affinity that keep pods off nodes with a label.
AVOIDING: Final = frozenset({"DoesNotExist", "NotIn"})

#: Annotations by which a pod requests a part of a GPU from KAI (KAI-Scheduler, ``docs/gpu-sharing``).
_FRACTIONS: Final = frozenset({"gpu-fraction", "gpu-memory"})
_DEVICE_FILES: Final = re.compile(DEVICE_FILES)


@lru_cache(maxsize=1024)
def is_device_file(path: str) -> bool:
    """Tell whether a path of the host is an accelerator's device file."""
    return _DEVICE_FILES.search(path) is not None


def takes(entry: Object) -> bool:
    """Tell whether an entry of a container's environment may give it devices; ``valueFrom`` always may, its value is not known."""
    name = entry.get("name")
    if type(name) is not str or name not in VARIABLES:
        return False
    return entry.get("valueFrom") is not None or value_of(entry) not in NO_DEVICES


def value_of(entry: Object) -> str:
    """Return the value of an entry of a container's environment as text, also if it is a number without quotes."""
    value = entry.get("value")
    return "" if value is None else str(value)


def host_path(volume: Object) -> str:
    """Return the path of a hostPath volume; empty for any other volume."""
    source = volume.get("hostPath")
    path = source.get("path") if type(source) is dict else None
    return path if type(path) is str else ""


def takes_devices(pods: PodSet) -> bool:
    """Tell whether the pods name devices themselves: in the environment, by mounts or by annotations."""
    for container in pods.containers:
        spec = container.spec
        if "env" in spec and any(map(takes, mappings(spec, "env", container.path))):
            return True
        if "volumeMounts" in spec and any(map(_lists_devices, mappings(spec, "volumeMounts", container.path))):
            return True
    if "volumes" in pods.spec and any(is_device_file(host_path(volume)) for volume in pods.volumes()):
        return True
    return any(key.startswith(DEVICE_ANNOTATIONS) for key in pods.annotations())


def _lists_devices(mount: Object) -> bool:
    return DEVICE_LIST in str(mount.get("mountPath"))


def reserved_tolerations(pods: PodSet) -> Iterator[tuple[int, Object]]:
    """Yield the tolerations of taints that keep other pods off accelerator nodes, with their indices."""
    if "tolerations" in pods.spec:
        for at, toleration in enumerate(mappings(pods.spec, "tolerations", pods.field())):
            if names_accelerators(str(toleration.get("key") or ""), str(toleration.get("value") or "")):
                yield at, toleration


def reserved_labels(pods: PodSet) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the labels of accelerator nodes that the pods select, with their paths below the pod spec."""
    if "nodeSelector" in pods.spec:
        for key, value in mapping(pods.spec, "nodeSelector", pods.field()).items():
            if value != "false" and names_accelerators(key):
                yield ("nodeSelector", key), key
    if "affinity" in pods.spec:
        yield from _reserved_terms(required_terms(pods))


def _reserved_terms(terms: Iterable[Object]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    path = ("affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    for at, term in enumerate(terms):
        for number, expression in enumerate(mappings(term, "matchExpressions", ())):
            key = str(expression.get("key") or "")
            avoids = str(expression.get("operator")) in AVOIDING or sequence(expression, "values", ()) == ["false"]
            if not avoids and names_accelerators(key):
                yield (*path, at, "matchExpressions", number), key


def is_of_daemon_set(workload: Workload) -> bool:
    """Tell whether the object is a DaemonSet, or a pod of one."""
    if workload.kind.per_node:
        return True
    owner = workload.controller() if workload.is_pod() else None
    return owner is not None and any(kind.per_node for kind in kinds_named(str(owner.get("kind"))))


def goes_to_reserved_nodes(pods: PodSet) -> bool:
    """Tell whether the pods name accelerator nodes, by taints or labels; not so for pods that a cluster needs to run."""
    if str(pods.spec.get("priorityClassName")) in SYSTEM_CLASSES:
        return False
    return any(True for _ in reserved_tolerations(pods)) or any(True for _ in reserved_labels(pods))


def asks_somehow(pods: PodSet) -> bool:
    """Tell whether the pods request what may be an accelerator, spelled right or not, by resource or by claim."""
    if pods.spec.get("resourceClaims"):
        return True
    for container in pods.containers:
        for amounts in (container.limits, container.requests):
            if any(may_be_accelerator(name) and not _is_zero(amounts[name]) for name in amounts):
                return True
    return False


def _is_zero(amount: object) -> bool:
    """Tell whether an amount is zero in any spelling: ``0.0``, ``0k``."""
    try:
        return not exact(amount)
    except QuantityError:
        return False


def asks_for_a_part(pods: PodSet) -> bool:
    """Tell whether the pods request a part of a GPU from KAI. It is no resource: KAI's binder names the device in a ConfigMap."""
    return not _FRACTIONS.isdisjoint(pods.annotations())


def may_access_devices(workload: Workload) -> bool:
    """Tell whether the object's pods may reach accelerators, or nodes reserved for them, without requesting any."""
    if any(map(takes_devices, workload.pod_sets)):
        return True
    return not is_of_daemon_set(workload) and any(map(goes_to_reserved_nodes, workload.pod_sets))


#: An image with ``*`` for any characters.
ImagePattern: TypeAlias = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9._/:@*-]+$")]
ImagePatterns: TypeAlias = Annotated[tuple[ImagePattern, ...], *UNIQUE]
#: A service account with its namespace; ``*`` for every one in the namespace.
AccountPattern: TypeAlias = Annotated[
    str, Field(min_length=3, max_length=317, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9.*-]+$")
]
AccountPatterns: TypeAlias = Annotated[tuple[AccountPattern, ...], *UNIQUE]

#: Images of agents that run on every accelerator node, from the vendors' own registries.
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
    "gpu-operator-resources/*",
    "gpu-operator-system/*",
    "gpu-operator/*",
    "kube-amd-gpu/*",
    "nvidia-device-plugin/*",
    "nvidia-dra-driver-gpu/*",
    "nvidia-gpu-operator/*",
)


#: The account of the pod by which the GPU operator validates the devices of a node (GPU operator v25.3,
#: ``validator/manifests/plugin-workload-validation.yaml``).
_VALIDATOR: Final = "nvidia-operator-validator"


@lru_cache(maxsize=2048)
def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def has_account(workload: Workload, pods: PodSet, patterns: tuple[str, ...]) -> bool:
    """Tell whether the pods run under a service account that matches ``patterns``."""
    name = pods.spec.get("serviceAccountName") or pods.spec.get("serviceAccount") or "default"
    return _matches(f"{workload.namespace}/{name}"[:600], patterns)


def is_operator_validator(workload: Workload) -> bool:
    """Tell whether the object is the pod by which the GPU operator validates a node, bound to that node from the start.

    If a rule raised its memory to a share of the node, the kubelet of a node in use would reject it, and then no GPU of the node
    would become available.
    """
    if not workload.is_pod():
        return False
    pods = workload.pod_sets[0]
    return (
        pods.spec.get("serviceAccountName") == _VALIDATOR
        and "nodeName" in pods.spec
        and has_account(workload, pods, STACK_ACCOUNTS)
    )


def has_image(container: Container, patterns: tuple[str, ...]) -> bool:
    """Tell whether the container runs an image that matches ``patterns``."""
    return _matches(str(container.spec.get("image"))[:600], patterns)


def runs_stack_image(workload: Workload, container: Container, patterns: tuple[str, ...]) -> bool:
    """Tell whether the container of a DaemonSet runs an image that matches ``patterns``."""
    return is_of_daemon_set(workload) and has_image(container, patterns)
