"""Memory of the cards of a node shape, and the share of a card that one shared device has.

The figures are those of NVIDIA's GPU Feature Discovery (k8s-device-plugin, ``internal/lm/resource.go``), in MiB:
``nvidia.com/gpu.memory`` for whole cards (of a slice under MIG's single strategy), ``nvidia.com/mig-<profile>.memory`` for
slices under the mixed strategy. A card without its label is unknown. A slice without its label has the size in its profile's
name, which is rounded up (``1g.5gb`` has 4864 MiB), so no pod is denied that the slice can hold.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.accelerators import LEGACY_GPU, NVIDIA_GPU, Form, form_of
from gpugate.policies.kube.fields import whole_number
from gpugate.policies.kube.quantity import GIB, MIB
from gpugate.policies.scheduling.node_selection import (
    SHARING_STRATEGIES,
    matches_node_selector,
    node_candidates,
    open_shapes,
    tolerated_shapes,
)
from gpugate.policies.workloads.pod_set import PodSet

#: Label with the memory of a node's cards in MiB.
MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
_SHARED: Final = ".shared"
_PROFILE: Final = re.compile(r"nvidia\.com/(?:mig|gpu)-(?:\d+c\.)?\d+g\.?(\d{1,6})gb", re.ASCII)
_MOST_DIGITS: Final = 12


class GpuCard(NamedTuple):
    """The device of one resource name on the nodes of one shape.

    Attributes:
        title: name in messages.
        per_node: number of such devices on one node.
        memory: bytes of the card or slice; None if unknown.
        replicas: number of pods that share the card; 1 if they do not.
    """

    title: str
    shape: NodeShape
    per_node: int
    memory: int | None
    replicas: int

    @property
    def share(self) -> int:
        """Bytes of its memory per pod that shares it."""
        return (self.memory or 0) // self.replicas


def card_of(shape: NodeShape, resource: str) -> GpuCard:
    """Return the device of ``resource`` on ``shape``, which has it."""
    base, profile = resource.removesuffix(_SHARED), _PROFILE.match(resource)
    title, memory, replicas = shape.title, None, 1
    if base in {NVIDIA_GPU, LEGACY_GPU}:
        memory, replicas = _mebibytes(shape, MEMORY_LABEL), _replicas(shape, NVIDIA_GPU, resource)
    elif profile is not None:
        title = f"{base} of {title}"
        memory, replicas = _mebibytes(shape, f"{base}.memory") or int(profile[1]) * GIB, _replicas(shape, base, resource)
    return GpuCard(title, shape, shape.devices[resource], memory, replicas)


def _cards_for(shapes: Iterable[NodeShape], names: Iterable[str]) -> list[GpuCard]:
    """Return the largest device of each of ``shapes`` among those called ``names``; a device of unknown memory goes first."""
    return [
        max((card_of(shape, name) for name in sorted(names)), key=lambda card: (card.memory is None, card.memory or 0))
        for shape in shapes
    ]


def all_cards(shapes: Iterable[NodeShape]) -> list[GpuCard]:
    """Return the devices of ``shapes`` with known memory, smallest first."""
    cards = [card_of(shape, name) for shape in shapes for name in shape.devices if form_of(name) is not None]
    return sorted((card for card in cards if card.memory is not None), key=lambda card: (card.memory, card.title))


def cards_in_reach(pods: PodSet, snapshot: ClusterSnapshot) -> list[GpuCard]:
    """Return the devices that a pod can get: those of the nodes that match it and have enough of them."""
    names = pods.accelerators()
    return _cards_for(_with_as_many(pods, open_shapes(pods, node_candidates(pods, snapshot))), names) if names else []


def _with_as_many(pods: PodSet, shapes: Iterable[NodeShape]) -> list[NodeShape]:
    names = pods.accelerators()
    return [shape for shape in shapes if all(shape.devices[name] >= count for name, count in names.items())]


def all_labelled(pods: PodSet, snapshot: ClusterSnapshot) -> bool:
    """Return whether every node that matches the pods, regardless of their node affinity, has the memory label.

    Later rules may add node affinity; the answer must not depend on that.
    """
    shapes = node_candidates(pods, snapshot).with_resource
    shapes = tolerated_shapes(pods, (shape for shape in shapes if matches_node_selector(pods, shape)))
    return all(card.memory is not None for card in _cards_for(_with_as_many(pods, shapes), (NVIDIA_GPU,)))


def bound_above(enough: int) -> int:
    """Return the bound for ``Gt`` (strict) that selects nodes whose cards have ``enough`` bytes."""
    return -(-enough // MIB) - 1


def _mebibytes(shape: NodeShape, label: str) -> int | None:
    """Return the largest value of ``label`` in bytes; None if a node of the shape has no valid value."""
    sizes = [_number(value) for value in shape.labels.get(label, ())]
    return max(sizes) * MIB if sizes and all(sizes) else None


def _replicas(shape: NodeShape, base: str, resource: str) -> int:
    """Return the maximum number of pods that share one card; 1 if they do not."""
    strategies = {value for key in (base, NVIDIA_GPU) for value in shape.labels.get(f"{key}.sharing-strategy", ())}
    if form_of(resource) is not Form.SHARED and SHARING_STRATEGIES.isdisjoint(strategies):
        return 1
    return max(1, min(map(_number, shape.labels.get(f"{base}.replicas", ())), default=1))


def _number(value: str | None) -> int:
    """Return the number in a label; 0 if it is no whole number."""
    return whole_number(value, _MOST_DIGITS) or 0
