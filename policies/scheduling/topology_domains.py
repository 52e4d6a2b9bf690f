"""Count the pods of a gang that empty nodes hold: in all, and in the largest domain of a topology label.

Nodes count as empty, with the memory of the largest node of their shape: a gang that does not fit here fits nowhere. Domains
with the same label value (racks called ``r1`` in two blocks) count as one, for the same reason.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.kube.fields import mapping
from gpugate.policies.kube.memo import keep, recall
from gpugate.policies.kube.names import HOSTNAME
from gpugate.policies.scheduling.node_selection import NodeCandidates, tolerations_key
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests


def pods_on(shape: NodeShape, demand: PodRequests) -> int:
    """Return the number of pods with the requests ``demand`` that an empty node of ``shape`` holds."""
    amounts = [(shape.devices.get(name, 0), count) for name, count in demand.devices.items()]
    amounts += [(shape.memory, demand.memory), (shape.cpu, demand.cpu)]
    return min((allocatable // amount for allocatable, amount in amounts if amount), default=0)


def nodes_of(pods: PodSet, shape: NodeShape) -> int:
    """Return the maximum number of nodes of ``shape`` that the nodeSelector of ``pods`` matches."""
    selector = mapping(pods.spec, "nodeSelector", pods.field())
    # A label without counts has a different value on every node.
    counts = [shape.counts[key].get(value, 0) if key in shape.counts else 1 for key, value in selector.items()]
    return min([len(shape.nodes), *counts])


class Domain(NamedTuple):
    """Domains with the same numbers of nodes of the same shapes.

    Attributes:
        example: the label value of the first by name.
        number: number of such domains.
        nodes: index of a shape, and number of its nodes in the domain.
    """

    example: str
    number: int
    nodes: tuple[tuple[int, int], ...]


def domains_by(key: str, pods: PodSet, shapes: Sequence[NodeShape], chosen: NodeCandidates) -> tuple[Domain, ...]:
    """Return the domains of label ``key`` among ``shapes`` (those that the pods tolerate), stored with the candidates."""
    tolerations = tolerations_key(pods)
    stored_as = None if tolerations is None else (key, tolerations)
    domains: tuple[Domain, ...] | None = recall(chosen.memo, "domains", stored_as)
    if domains is None:
        domains = _domains(key, shapes)
        keep(chosen.memo, "domains", stored_as, domains)
    return domains


def _domains(key: str, shapes: Sequence[NodeShape]) -> tuple[Domain, ...]:
    nodes_by_value: dict[str, list[tuple[int, int]]] = {}
    for at, shape in enumerate(shapes):
        counts = shape.carriers(key)
        if not counts and key == HOSTNAME:
            counts = dict.fromkeys(shape.nodes, 1)
        for value, count in counts.items():
            nodes_by_value.setdefault(value, []).append((at, count))
    values_by_nodes: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for value, nodes in nodes_by_value.items():
        values_by_nodes.setdefault(tuple(nodes), []).append(value)
    return tuple(sorted(Domain(min(values), len(values), nodes) for nodes, values in values_by_nodes.items()))


def largest(domains: Sequence[Domain], shapes: Sequence[NodeShape], demand: PodRequests) -> tuple[Domain, int]:
    """Return the domain that holds the most pods with the requests ``demand``, and their number.

    Raises:
        ValueError: there are no domains.
    """
    pods = [pods_on(shape, demand) for shape in shapes]
    totals = [sum(count * pods[at] for at, count in domain.nodes) for domain in domains]
    maximum = max(totals)
    return domains[totals.index(maximum)], maximum
