"""Known labels of nodes, their former names, and wrong names that users write for them.

The labels are those of the kubelet and the cloud controllers of Kubernetes 1.36, of NVIDIA's GPU feature discovery v0.20
and GPU operator, of AMD's node labeller, and of the managed Kubernetes services of the large clouds.
"""

from typing import Final

from gpugate.policies.kube.accelerators import may_be_accelerator
from gpugate.policies.kube.memo import cached
from gpugate.policies.kube.names import HOSTNAME
from gpugate.policies.kube.suggest import closest_match
from gpugate.policies.kube.taints import words_in

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
PRODUCT: Final = "nvidia.com/gpu.product"
PRESENT: Final = "nvidia.com/gpu.present"
MEMORY: Final = "nvidia.com/gpu.memory"

#: Labels that some component sets on nodes.
WRITTEN: Final = frozenset(
    {
        *(HOSTNAME, ZONE, REGION, "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type"),
        *("node.kubernetes.io/windows-build", "node-role.kubernetes.io/control-plane"),
        *(f"nvidia.com/cuda.driver-version.{part}" for part in ("full", "major", "minor", "revision")),
        *(f"nvidia.com/cuda.runtime-version.{part}" for part in ("full", "major", "minor")),
        *(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev")),
        *("nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor", "nvidia.com/gfd.timestamp"),
        *(f"nvidia.com/gpu.engines.{part}" for part in ("copy", "decoder", "encoder", "jpeg", "ofa")),
        *(f"nvidia.com/gpu.{part}" for part in ("clique", "compute.major", "compute.minor", "count", "family", "machine", "mode")),
        *(MEMORY, "nvidia.com/gpu.multiprocessors", PRODUCT, PRESENT, "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"),
        *("nvidia.com/gpu.slices.ci", "nvidia.com/gpu.slices.gi", "nvidia.com/gpu.workload.config"),
        *("nvidia.com/mig.capable", "nvidia.com/mig.config", "nvidia.com/mig.config.state", "nvidia.com/mig.strategy"),
        *("nvidia.com/mps.capable", "nvidia.com/vgpu.present", "nvidia.com/vgpu.host-driver-version"),
        *("nvidia.com/vgpu.host-driver-branch", "nvidia.com/device-plugin.config", "nvidia.com/gpu-driver-upgrade-state"),
        *(
            f"amd.com/gpu.{part}"
            for part in ("cu-count", "device-id", "driver-version", "family", "product-name", "simd-count", "vram")
        ),
        *("cloud.google.com/gke-accelerator", "cloud.google.com/gke-accelerator-count", "cloud.google.com/gke-nodepool"),
        *("cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible", "cloud.google.com/gke-gpu-driver-version"),
        *("karpenter.sh/capacity-type", "karpenter.sh/nodepool", "eks.amazonaws.com/capacityType", "eks.amazonaws.com/nodegroup"),
        *(f"karpenter.k8s.aws/instance-gpu-{part}" for part in ("count", "manufacturer", "memory", "name")),
        *("kubernetes.azure.com/accelerator", "kubernetes.azure.com/agentpool", "kubernetes.azure.com/scalesetpriority"),
    }
)

#: Deprecated labels of Kubernetes (``LabelXxxBeta``), each with its successor and the version of the deprecation.
DEPRECATED: Final = {
    "failure-domain.beta.kubernetes.io/zone": (ZONE, "1.17"),
    "failure-domain.beta.kubernetes.io/region": (REGION, "1.17"),
    "beta.kubernetes.io/instance-type": ("node.kubernetes.io/instance-type", "1.17"),
    "beta.kubernetes.io/arch": ("kubernetes.io/arch", "1.14"),
    "beta.kubernetes.io/os": ("kubernetes.io/os", "1.14"),
}
#: Wrong names in lower case that do not look like the right one.
_MEANT: Final = {
    "nvidia.com/gpu": PRESENT,
    "nvidia.com/gpus": "nvidia.com/gpu.count",
    "nvidia.com/gpu.arch": "nvidia.com/gpu.family",
    "nvidia.com/gpu.architecture": "nvidia.com/gpu.family",
    "nvidia.com/gpu.compute": "nvidia.com/gpu.compute.major",
    "nvidia.com/gpu.compute-capability": "nvidia.com/gpu.compute.major",
    "nvidia.com/gpu.model": PRODUCT,
    "nvidia.com/gpu.name": PRODUCT,
    "nvidia.com/gpu.number": "nvidia.com/gpu.count",
    "nvidia.com/gpu.type": PRODUCT,
    "nvidia.com/gpu.vram": MEMORY,
    "nvidia.com/cuda.version": "nvidia.com/cuda.runtime-version.full",
    "nvidia.com/driver.version": "nvidia.com/cuda.driver-version.full",
    "nvidia.com/gpu.driver": "nvidia.com/cuda.driver-version.full",
    "nvidia.com/gpu.driver-version": "nvidia.com/cuda.driver-version.full",
    "nvidia.com/mig.profile": "nvidia.com/mig.config",
    "kubernetes.io/host": HOSTNAME,
    "kubernetes.io/node": HOSTNAME,
    "topology.kubernetes.io/host": HOSTNAME,
    "topology.kubernetes.io/hostname": HOSTNAME,
    "topology.kubernetes.io/node": HOSTNAME,
    "node.kubernetes.io/hostname": HOSTNAME,
    "kubernetes.io/zone": ZONE,
    "kubernetes.io/region": REGION,
    "kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
#: Prefixes under which only the component that owns them sets labels.
_OWNED: Final = (
    *("nvidia.com/", "amd.com/gpu", "topology.k8s.io/"),
    *("kubernetes.io/", "node.kubernetes.io/", "topology.kubernetes.io/"),
)
#: Prefixes under which components set names that depend on the node.
_OPEN: Final = ("nvidia.com/mig-", "nvidia.com/gpu.deploy.", "nvidia.com/gpu.imex", "node-role.kubernetes.io/")
_SPEAKING: Final = frozenset({"gpu", "gpus", "accelerator", "accelerators", "nvidia", "cuda"})
_KIND: Final = frozenset({"card", "class", "kind", "model", "name", "node", "product", "type"})


@cached(1024)
def intended_label(key: str) -> str | None:
    """Return the known label that ``key``, an unknown one, stands for; None if there is none."""
    if key in WRITTEN or key in DEPRECATED or key.startswith(_OPEN):
        return None
    lowered = key.lower()
    if lowered in _MEANT:
        return _MEANT[lowered]
    return closest_match(key, WRITTEN) if lowered.startswith(_OWNED) else None


@cached(1024)
def means_numa(key: str) -> bool:
    """Return whether a label is meant for the NUMA nodes of a machine, which no label of a node can tell apart."""
    return "numa" in words_in(key) or key.lower().endswith(("numanode", "numa-node", "numa_node"))


@cached(1024)
def speaks_of_accelerators(key: str) -> bool:
    """Return whether a label or taint is about accelerators."""
    return may_be_accelerator(key) or not _SPEAKING.isdisjoint(words_in(key))


@cached(1024)
def names_cards(key: str) -> bool:
    """Return whether a label means only "a GPU" or "this GPU model": ``accelerator``, ``gpu-type``."""
    words = words_in(key.rpartition("/")[2])
    return not _SPEAKING.isdisjoint(words) and words <= _SPEAKING | _KIND
