"""Count the pods of a gang that empty nodes hold: in all, and in the largest domain of a topology label.

A node is taken as empty, and a shape's memory as that of its node with most: a gang that does not fit here fits nowhere.
Two domains of the same label value (racks called ``r1`` in two blocks) count as one, for the same reason.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.kube.fields import mapping
from gpugate.policies.kube.memo import remember
from gpugate.policies.kube.names import HOSTNAME
from gpugate.policies.scheduling.node_selection import NodeCandidates, tolerations_key
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests


def pods_on(shape: NodeShape, demand: PodRequests) -> int:
    """Return how many pods with ``demand`` each one empty node of ``shape`` holds."""
    rooms = [shape.devices.get(name, 0) // count for name, count in demand.devices.items() if count]
    if demand.memory:
        rooms.append(shape.memory // demand.memory)
    if demand.cpu:
        rooms.append(shape.cpu // demand.cpu)
    return min(rooms, default=0)


def nodes_of(pods: PodSet, shape: NodeShape) -> int:
    """Return the maximum number of nodes of ``shape`` that the nodeSelector of ``pods`` matches."""
    left = len(shape.nodes)
    for key, value in mapping(pods.spec, "nodeSelector", pods.field()).items():
        # A label without counts has a different value on every node.
        left = min(left, shape.counts[key].get(value, 0) if key in shape.counts else 1)
    return left


class Domain(NamedTuple):
    """Domains with the same numbers of nodes of the same shapes.

    Attributes:
        example: the label value of the first by name.
        number: number of such domains.
        nodes: index of a shape among the given shapes, and number of its nodes in the domain.
    """

    example: str
    number: int
    nodes: tuple[tuple[int, int], ...]


def domains_by(key: str, pods: PodSet, shapes: Sequence[NodeShape], chosen: NodeCandidates) -> tuple[Domain, ...]:
    """Return the domains of label ``key`` among ``shapes`` (those that the pods tolerate), stored with the candidates."""
    tolerations = tolerations_key(pods)
    place = None if tolerations is None else ("domains", key, tolerations)
    domains: tuple[Domain, ...] | None = None if place is None else chosen.memo.get(place)
    if domains is None:
        domains = _domains(key, shapes)
        if place is not None:
            remember(chosen.memo, place, domains)
    return domains


def _domains(key: str, shapes: Sequence[NodeShape]) -> tuple[Domain, ...]:
    made: dict[str, list[tuple[int, int]]] = {}
    for at, shape in enumerate(shapes):
        counts = shape.carriers(key)
        if not counts and key == HOSTNAME:
            counts = dict.fromkeys(shape.nodes, 1)
        for value, count in counts.items():
            made.setdefault(value, []).append((at, count))
    alike: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for value, nodes in made.items():
        alike.setdefault(tuple(nodes), []).append(value)
    return tuple(sorted(Domain(min(values), len(values), nodes) for nodes, values in alike.items()))


def largest(domains: Sequence[Domain], shapes: Sequence[NodeShape], demand: PodRequests) -> tuple[Domain, int]:
    """Return the domain that holds most pods with ``demand`` each, and how many it holds.

    Raises:
        ValueError: there are no domains.
    """
    rooms = [pods_on(shape, demand) for shape in shapes]
    held = [(sum(count * rooms[at] for at, count in domain.nodes), domain) for domain in domains]
    most = max(room for room, _ in held)
    return next(domain for room, domain in held if room == most), most
