"""Summarise nodes, quotas and policies for an audit."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gpugate.policies.cluster.nodes import Node, NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.cluster.usage import NodeUsage
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.quantity import format_millicores, show_bytes
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import Match, Policy
from gpugate.webhook.audit.model import NodeSummary, PolicyLine, QueueLine, QuotaSummary, ShapeSummary

#: An accelerator is stranded if less than this part of its fair share of memory or CPU is free.
LEAST_SHARE: Final = 0.5
_COUNTED: Final = ("cpu", "memory")

NodeOf = Callable[[str], Node | None]
UseOf = Callable[[str], NodeUsage]


def shapes_of(snapshot: ClusterSnapshot, node_of: NodeOf, use_of: UseOf) -> tuple[ShapeSummary, ...]:
    """Return nodes with accelerators by shape, most accelerators first."""
    shapes = [_shape(shape, node_of, use_of) for shape in snapshot.shapes if shape.accelerators]
    # A node may be gone since the snapshot.
    existing = [shape for shape in shapes if shape.nodes]
    return tuple(sorted(existing, key=lambda shape: (-shape.total.devices, shape.title, shape.nodes[0].name)))


def _shape(shape: NodeShape, node_of: NodeOf, use_of: UseOf) -> ShapeSummary:
    nodes = tuple(_node(node, use_of(node.name)) for node in map(node_of, shape.nodes) if node is not None)
    names = sorted((name for name in shape.devices if is_accelerator(name)), key=lambda name: (-shape.devices[name], name))
    return ShapeSummary(shape.title, names[0], nodes, _why_stranded(nodes))


def _node(node: Node, use: NodeUsage) -> NodeSummary:
    devices = sum(count for name, count in node.devices.items() if is_accelerator(name))
    held = min(devices, sum(count for name, count in use.devices.items() if is_accelerator(name)))
    free = devices - held
    usable = min(free, _usable(devices, node.memory, use.memory), _usable(devices, node.cpu, use.cpu))
    return NodeSummary(node.name, devices, held, free - usable, node.memory, use.memory, use.memory_limit, node.cpu, use.cpu)


def _usable(devices: int, allocatable: int, requested: int) -> int:
    """Return for how many accelerators the free amount is enough; for all if the node does not report ``allocatable``."""
    if allocatable <= 0:
        return devices
    return int(max(0, allocatable - requested) * devices / (allocatable * LEAST_SHARE))


def _why_stranded(nodes: Iterable[NodeSummary]) -> str:
    stranded = [node for node in nodes if node.stranded]
    if not stranded:
        return ""
    worst = max(stranded, key=lambda node: (node.stranded, node.name))
    short = [
        f"{show(requested)} of {show(allocatable)} {what} are requested"
        for what, allocatable, requested, show in (
            ("memory", worst.memory, worst.requested, show_bytes),
            ("CPU", worst.cpu, worst.cpu_requested, format_millicores),
        )
        if _usable(worst.devices, allocatable, requested) < worst.devices - worst.held
    ]
    count = sum(node.stranded for node in stranded)
    have = "s on {} have less than half of their" if count > 1 else " on {} has less than half of its"
    return (
        f"{count} free accelerator{have.format(f'{len(stranded)} node' + ('s' if len(stranded) > 1 else ''))}"
        f" fair share of the node left: on {worst.name} {' and '.join(short)} by pods that hold"
        f" {worst.held} of {worst.devices}"
    )


def queues_of(snapshot: ClusterSnapshot) -> tuple[QueueLine, ...]:
    """Return the quotas of the ClusterQueues, sorted."""
    lines = []
    for queue in snapshot.cluster_queues.values():
        stopped = "it is stopped" if queue.stopped else queue.inactive
        for group in queue.groups:
            for flavor, quotas in group.flavors:
                for resource, quota in quotas.items():
                    reserved = queue.reserved.get((flavor, resource), 0)
                    place = (queue.name, queue.cohort, flavor, resource)
                    lines.append(QueueLine(*place, quota.nominal, reserved, queue.pending, stopped))
    return tuple(sorted(lines))


def quotas_of(snapshot: ClusterSnapshot) -> tuple[QuotaSummary, ...]:
    """Return ResourceQuotas on accelerators, with memory and CPU quotas of the same namespaces, sorted."""
    result = []
    for namespace, quotas in snapshot.quotas.items():
        if any(_is_accelerator(name) for quota in quotas for name in quota.hard):
            result += [
                QuotaSummary(namespace, quota.name, name, hard, quota.used.get(name, 0))
                for quota in quotas
                for name, hard in quota.hard.items()
                if _is_accelerator(name) or name.rpartition(".")[2] in _COUNTED
            ]
    return tuple(sorted(result))


def _is_accelerator(resource: str) -> bool:
    return is_accelerator(resource.removeprefix("requests.").removeprefix("limits."))


def policies_of(policies: PolicySet, problems: Mapping[str, str]) -> tuple[PolicyLine, ...]:
    """Return the policies by precedence, and then those with ``problems`` that are not in force."""
    known = {policy.name for policy in policies.policies}
    lines = [
        PolicyLine(policy.name, policy.generation, policy.spec.priority, _modes(policy), problems.get(policy.name, ""))
        for policy in policies.policies
    ]
    lines += [PolicyLine(name, 0, 0, (), problem) for name, problem in sorted(problems.items()) if name not in known]
    return tuple(lines)


def _modes(policy: Policy) -> tuple[tuple[str, str], ...]:
    everywhere = policy.model_copy(update={"spec": policy.spec.model_copy(update={"match": Match()})})
    return tuple(sorted((rule.rule.id, rule.mode.value) for rule in PolicySet([everywhere]).bind({}, {})))
