"""Count the equal pods that an empty node of a shape holds, before and after an edit of their requests.

An edit that leaves this number as it is on every node shape in reach takes no node from the pods: as many of them run at once.
"""

from collections.abc import Iterable, Iterator, Sequence

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.kube.quantity import show_amount
from gpugate.policies.scheduling.node_selection import NodeCandidates, open_shapes
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests


def shapes_in_reach(pods: PodSet, chosen: NodeCandidates) -> tuple[NodeShape, ...]:
    """Return the matching shapes whose taints the pods tolerate, or all matching ones if they tolerate those of none."""
    return open_shapes(pods, chosen) or chosen.matching


def shapes_for_shares(pods: PodSet, chosen: NodeCandidates) -> Sequence[NodeShape]:
    """Return the shapes from which shares of a node are computed: those in reach, or all of them if none is."""
    reach = set(map(id, open_shapes(pods, chosen)))
    return [shape for shape in chosen.for_shares if id(shape) in reach] or chosen.for_shares


def pods_per_node(shape: NodeShape, ask: PodRequests, memory: int) -> int:
    """Return how many pods with the requests ``ask`` an empty node of ``shape`` with ``memory`` bytes holds.

    Only memory, CPU and accelerators count; zero if the pods request none of them.
    """
    return min((has // amount for _, amount, has in _bounds(shape, ask, memory)), default=0)


def _bounds(shape: NodeShape, ask: PodRequests, memory: int) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each requested resource, its amount in one pod, and that of the node."""
    amounts = {"memory": (ask.memory, memory), "cpu": (ask.cpu, shape.cpu)}
    amounts |= {name: (count, shape.devices.get(name, 0)) for name, count in ask.devices.items()}
    return ((name, amount, has) for name, (amount, has) in amounts.items() if amount > 0)


def fewer_pods(shapes: Iterable[NodeShape], before: PodRequests, after: PodRequests) -> str:
    """Return the sum that shows which of ``shapes`` holds fewer pods with the requests ``after``; empty if none does."""
    if after.memory <= before.memory and after.cpu <= before.cpu:
        return ""
    for shape in shapes:
        number = pods_per_node(shape, before, shape.memory)
        # The nodes of a shape differ a little in memory: the smallest must hold as many as the largest does.
        memory = shape.memory if after.memory <= before.memory else shape.least_memory
        for name, amount, has in _bounds(shape, after, memory) if number else ():
            if number * amount > has:
                total = f"{show_amount(name, number * amount)} of {name} > {show_amount(name, has)}"
                if number == 1:
                    return f"an empty {shape.title} node holds the pod as it is: {total}"
                sum_of_pods = f"{number} x {show_amount(name, amount)} = {total}"
                return f"an empty {shape.title} node holds {number} of these pods as they are: {sum_of_pods}"
    return ""
