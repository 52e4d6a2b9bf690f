"""Labels and taints of nodes whose names are known, what writes them, and what people write in their place by mistake.

Labels follow the kubelet and the cloud controllers of Kubernetes 1.36, NVIDIA's GPU feature discovery v0.20 and its GPU
operator, AMD's node labeller, and the managed Kubernetes of the large clouds.
"""

from functools import lru_cache
from typing import Final

from gpugate.policies.kube.accelerators import may_be_accelerator
from gpugate.policies.kube.names import HOSTNAME
from gpugate.policies.kube.suggest import closest_match
from gpugate.policies.kube.taints import words_in

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
PRODUCT: Final = "nvidia.com/gpu.product"
PRESENT: Final = "nvidia.com/gpu.present"
MEMORY: Final = "nvidia.com/gpu.memory"

_KUBERNETES: Final = frozenset(
    {
        *(HOSTNAME, ZONE, REGION, "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type"),
        *("node.kubernetes.io/windows-build", "node-role.kubernetes.io/control-plane"),
    }
)
_NVIDIA: Final = frozenset(
    {
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
    }
)
_OTHERS: Final = frozenset(
    {
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
#: Labels that some component writes on nodes.
WRITTEN: Final = _KUBERNETES | _NVIDIA | _OTHERS

#: Labels by which Kubernetes once named what it names otherwise now, and since when it should be no more (``LabelXxxBeta``).
_FORMER: Final = {
    "failure-domain.beta.kubernetes.io/zone": (ZONE, "1.17"),
    "failure-domain.beta.kubernetes.io/region": (REGION, "1.17"),
    "beta.kubernetes.io/instance-type": ("node.kubernetes.io/instance-type", "1.17"),
    "beta.kubernetes.io/arch": ("kubernetes.io/arch", "1.14"),
    "beta.kubernetes.io/os": ("kubernetes.io/os", "1.14"),
}
#: What is written for a label that means the same, where the two names do not look alike.
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
#: Prefixes under which nobody but the component that owns them writes labels.
_OWNED: Final = (
    "nvidia.com/",
    "amd.com/gpu",
    "kubernetes.io/",
    "topology.kubernetes.io/",
    "node.kubernetes.io/",
    "topology.k8s.io/",
)
#: Prefixes under which components write names that depend on the node.
_OPEN: Final = ("nvidia.com/mig-", "nvidia.com/gpu.deploy.", "nvidia.com/gpu.imex", "node-role.kubernetes.io/")
_SPEAKING: Final = frozenset({"gpu", "gpus", "accelerator", "accelerators", "nvidia", "cuda"})
_KIND: Final = frozenset({"card", "class", "kind", "model", "name", "node", "product", "type"})


def deprecated_label(key: str) -> tuple[str, str] | None:
    """The name that Kubernetes gives a label now, and the version that replaced ``key`` by it; None where it is not replaced."""
    return _FORMER.get(key)


@lru_cache(maxsize=1024)
def intended_label(key: str) -> str | None:
    """The label that some component writes, for ``key`` that none does; None where nothing says what is meant."""
    if key in WRITTEN or key in _FORMER or key.startswith(_OPEN):
        return None
    lowered = key.lower()
    if lowered in _MEANT:
        return _MEANT[lowered]
    if lowered.startswith(_OWNED):
        return closest_match(key, WRITTEN)
    return None


@lru_cache(maxsize=1024)
def means_numa(key: str) -> bool:
    """Whether a label is meant to tell the NUMA nodes within a machine, which no label of a node can do."""
    return "numa" in words_in(key) or key.lower().endswith(("numanode", "numa-node", "numa_node"))


@lru_cache(maxsize=1024)
def speaks_of_accelerators(key: str) -> bool:
    """Whether somebody who selects nodes by the label, or tolerates the taint, has accelerators in mind."""
    return may_be_accelerator(key) or not _SPEAKING.isdisjoint(words_in(key))


@lru_cache(maxsize=1024)
def names_cards(key: str) -> bool:
    """Whether a label's name says "which card" or "a card", and nothing more: ``accelerator``, ``gpu-type``."""
    words = words_in(key.rpartition("/")[2])
    return not _SPEAKING.isdisjoint(words) and words <= _SPEAKING | _KIND
