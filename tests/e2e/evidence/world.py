"""The nodes that the evidence is gathered on, in pools, and the RuntimeClasses for them.

Memory is in MiB, CPU in millicores, devices in pieces, everywhere in this package.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.e2e.controlplane.nodes import A100, GPU_TAINT, H100, T4, NodeShape, node_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GIB = 1024
GPU, MIG_SMALL, MIG_LARGE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
#: Network cards of AWS: an extended resource that is no accelerator.
EFA = "vpc.amazonaws.com/efa"
POOL, RACK, BLOCK = "evidence.e2e/pool", "evidence.e2e/rack", "evidence.e2e/block"
SPOT_TAINT: Mapping[str, str] = {"key": "evidence.e2e/spot", "value": "true", "effect": "NoSchedule"}
Amounts = dict[str, int]


@dataclass(frozen=True)
class Pool:
    """Alike nodes.

    Attributes:
        name: also the value of their pool label.
        shape: what one of them has.
        size: how many there are.
        devices: device name to count, of one node.
        taints: keep pods off that do not tolerate them.
        others: other extended resources, of one node.
    """

    name: str
    shape: NodeShape
    size: int
    devices: Mapping[str, int]
    taints: Sequence[Mapping[str, str]] = (GPU_TAINT,)
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def room(self) -> Amounts:
        """What one empty node has."""
        return {"memory": int(self.shape.memory[:-2]) * GIB, "cpu": int(self.shape.cpu) * 1000, **self.devices, **self.others}

    def node_names(self) -> list[str]:
        """The names of its nodes."""
        return [f"ev-{self.name}-{number}" for number in range(1, self.size + 1)]

    def nodes(self) -> list[dict[str, Any]]:
        """Its nodes, two to a rack and two racks to a block."""
        found = []
        for at, name in enumerate(self.node_names()):
            labels = {POOL: self.name, RACK: f"{self.name}-r{at // 2}", BLOCK: f"{self.name}-b{at // 4}"}
            if len(self.devices) > 1:
                labels["nvidia.com/mig.strategy"] = "mixed"
            node = node_manifest(name, self.shape, labels=labels, taints=self.taints)
            for kind in ("capacity", "allocatable"):
                node["status"][kind] |= {name: str(count) for name, count in (*self.devices.items(), *self.others.items())}
            found.append(node)
        return found


_H200 = replace(H100, product="NVIDIA-H200", instance_type="p5en.48xlarge", cpu="256", memory="3072Gi", gpu_memory_mib=143771)
POOLS: Mapping[str, Pool] = {
    pool.name: pool
    for pool in (
        Pool("h100", H100, 16, {GPU: 8}, others={EFA: 32}),
        Pool("a100", A100, 12, {GPU: 8}),
        Pool("t4", T4, 16, {GPU: 1}),
        Pool("sliced", replace(A100, gpus=4), 8, {GPU: 4, MIG_SMALL: 14, MIG_LARGE: 4}),
        Pool("spot", _H200, 8, {GPU: 8}, (GPU_TAINT, SPOT_TAINT)),
    )
}


@dataclass(frozen=True)
class RuntimeClass:
    """What a RuntimeClass puts into a pod."""

    name: str
    overhead: Mapping[str, int]
    selector: Mapping[str, str] = field(default_factory=dict)

    def manifest(self) -> dict[str, Any]:
        """The object."""
        found = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": self.name}, "handler": "sandbox"}
        if self.selector:
            found |= {"scheduling": {"nodeSelector": dict(self.selector)}}
        return {**found, "overhead": {"podFixed": texts_of(self.overhead)}}


SANDBOX, A100_SANDBOX = "evidence-sandbox", "evidence-sandbox-a100"
RUNTIME_CLASSES: Mapping[str, RuntimeClass] = {
    SANDBOX: RuntimeClass(SANDBOX, {"memory": 2 * GIB, "cpu": 500}),
    A100_SANDBOX: RuntimeClass(A100_SANDBOX, {"memory": GIB, "cpu": 250}, {POOL: "a100"}),
}


def text_of(resource: str, amount: int) -> str:
    """The quantity as people write it."""
    if resource == "memory":
        return f"{amount // GIB}Gi" if amount % GIB == 0 else f"{amount}Mi"
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    return str(amount)


def texts_of(amounts: Mapping[str, int]) -> dict[str, str]:
    """The quantities as people write them."""
    return {resource: text_of(resource, amount) for resource, amount in amounts.items()}
