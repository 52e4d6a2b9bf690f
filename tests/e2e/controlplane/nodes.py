"""Node objects that stand in for GPU machines, labelled as NVIDIA's GPU feature discovery labels them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FAKE_ANNOTATION = "kwok.x-k8s.io/node"
"""Nodes that carry it are kept alive by KWOK."""
FINISH_ANNOTATION = "e2e.gpugate.io/finish"
"""A running pod that carries it succeeds; without it even a Job's pod runs until it is deleted."""
GPU_TAINT: Mapping[str, str] = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@dataclass(frozen=True)
class NodeShape:
    """What one kind of machine has."""

    instance_type: str
    cpu: str
    memory: str
    gpus: int = 0
    product: str = ""
    """As in the label nvidia.com/gpu.product; empty on a machine without GPUs."""
    family: str = ""
    gpu_memory_mib: int = 0
    """Of one GPU."""
    compute: tuple[int, int] = (0, 0)
    """CUDA compute capability."""

    def labels(self) -> dict[str, str]:
        """The labels that a cloud provider and GPU feature discovery set."""
        labels = {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": self.instance_type,
            "topology.kubernetes.io/region": "e2e-1",
            "topology.kubernetes.io/zone": "e2e-1a",
        }
        if self.gpus:
            labels |= {
                "nvidia.com/cuda.driver.major": "570",
                "nvidia.com/cuda.driver.minor": "86",
                "nvidia.com/cuda.driver.rev": "15",
                "nvidia.com/cuda.runtime.major": "12",
                "nvidia.com/cuda.runtime.minor": "8",
                "nvidia.com/cuda.driver-version.full": "570.86.15",
                "nvidia.com/cuda.driver-version.major": "570",
                "nvidia.com/cuda.driver-version.minor": "86",
                "nvidia.com/cuda.driver-version.revision": "15",
                "nvidia.com/cuda.runtime-version.full": "12.8",
                "nvidia.com/cuda.runtime-version.major": "12",
                "nvidia.com/cuda.runtime-version.minor": "8",
                "nvidia.com/gpu.compute.major": str(self.compute[0]),
                "nvidia.com/gpu.compute.minor": str(self.compute[1]),
                "nvidia.com/gpu.count": str(self.gpus),
                "nvidia.com/gpu.family": self.family,
                "nvidia.com/gpu.machine": self.instance_type,
                "nvidia.com/gpu.memory": str(self.gpu_memory_mib),
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.product": self.product,
                "nvidia.com/gpu.replicas": "1",
                "nvidia.com/gpu.sharing-strategy": "none",
                "nvidia.com/mig.capable": str(self.compute >= (8, 0)).lower(),
                "nvidia.com/mig.strategy": "none",
            }
        return labels

    def resources(self) -> dict[str, str]:
        """Capacity of a node; allocatable is the same, to keep the sums of a test simple."""
        resources = {"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": "2Ti", "pods": "250"}
        return resources | ({"nvidia.com/gpu": str(self.gpus)} if self.gpus else {})


H100 = NodeShape("p5.48xlarge", "192", "2048Gi", 8, "NVIDIA-H100-80GB-HBM3", "hopper", 81559, (9, 0))
A100 = NodeShape("p4d.24xlarge", "96", "1152Gi", 8, "NVIDIA-A100-SXM4-40GB", "ampere", 40960, (8, 0))
T4 = NodeShape("g4dn.4xlarge", "16", "64Gi", 1, "Tesla-T4", "turing", 15360, (7, 5))
CPU_ONLY = NodeShape("m6i.8xlarge", "32", "128Gi")

SHAPES: Mapping[str, NodeShape] = {shape.product: shape for shape in (H100, A100, T4)}


def shape_of(product: str, *, gpus: int | None = None, cpu: str | None = None, memory: str | None = None) -> NodeShape:
    """The shape of a known GPU product, with what is given in place of its own figures.

    A product that is not known gets the figures of an H100 machine under its own name.
    """
    shape = SHAPES.get(product) or replace(H100, product=product)
    return replace(
        shape,
        gpus=shape.gpus if gpus is None else gpus,
        cpu=shape.cpu if cpu is None else cpu,
        memory=shape.memory if memory is None else memory,
    )


def node_manifest(
    name: str,
    shape: NodeShape,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """A Node that KWOK keeps alive. `labels` add to the shape's; `taints` replace the GPU taint (empty: none)."""
    if taints is None:
        taints = [GPU_TAINT] if shape.gpus else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**shape.labels(), "kubernetes.io/hostname": name, **(labels or {})},
            "annotations": {FAKE_ANNOTATION: "fake"},
        },
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {"capacity": shape.resources(), "allocatable": shape.resources()},
    }


def is_schedulable(node: Mapping[str, Any]) -> bool:
    """Whether a Node is Ready and free of the taints that Kubernetes itself puts on new ones."""
    conditions = {c["type"]: c["status"] for c in node.get("status", {}).get("conditions", [])}
    taints = [taint["key"] for taint in node["spec"].get("taints", [])]
    return conditions.get("Ready") == "True" and not any(key.startswith("node.kubernetes.io/") for key in taints)
