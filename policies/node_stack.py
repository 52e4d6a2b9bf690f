"""The pods that make a node's accelerators usable: drivers, device plugins, exporters. They get at devices without asking."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from gpugate.policies.container import Container
from gpugate.policies.takers import is_of_daemon_set
from gpugate.policies.validations import UNIQUE
from gpugate.policies.workload import PodSet, Workload

#: An image with ``*`` for any characters.
ImagePattern: TypeAlias = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9._/:@*-]+$")]
ImagePatterns: TypeAlias = Annotated[tuple[ImagePattern, ...], *UNIQUE]
#: A service account with its namespace; ``*`` for every one in the namespace.
AccountPattern: TypeAlias = Annotated[
    str, Field(min_length=3, max_length=317, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9.*-]+$")
]
AccountPatterns: TypeAlias = Annotated[tuple[AccountPattern, ...], *UNIQUE]

#: Images of what runs on every accelerator node, from the makers' own registries.
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
#: Service accounts of operators and device plugins in the namespaces that their makers' instructions give them, and in
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


#: The account under which the GPU operator tries out the devices of a node before it calls the node ready (GPU operator v25.3,
#: ``validator/manifests/plugin-workload-validation.yaml``).
_VALIDATOR: Final = "nvidia-operator-validator"


@lru_cache(maxsize=2048)
def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def has_account(workload: Workload, pods: PodSet, patterns: tuple[str, ...]) -> bool:
    """Whether the pods run under one of these service accounts."""
    name = pods.spec.get("serviceAccountName") or pods.spec.get("serviceAccount") or "default"
    return _matches(f"{workload.namespace}/{name}"[:600], patterns)


def tries_a_node_out(workload: Workload) -> bool:
    """Whether it is the pod by which the GPU operator sees that a node's devices work, bound to that node from the start.

    What is written into it for the sake of others (the memory of a share of the node) is refused by the kubelet of a node that
    is in use, and then no GPU of the node is offered to anybody.
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
    """Whether the container runs one of these images."""
    return _matches(str(container.spec.get("image"))[:600], patterns)


def runs_stack_image(workload: Workload, container: Container, patterns: tuple[str, ...]) -> bool:
    """Whether the container runs one of these images on every node, in a DaemonSet."""
    return is_of_daemon_set(workload) and has_image(container, patterns)
