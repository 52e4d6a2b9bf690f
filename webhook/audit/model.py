"""Records of an audit, from which every report is made."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpugate.policies.cluster.gpu_usage import DeviceUse
from gpugate.policies.findings import Mode
from gpugate.policies.gangs.status import GangState


class Effect(enum.Enum):
    """Effect of a rule on a workload, the most severe first."""

    REFUSE = "refuse"
    CHANGE = "change"
    WARN = "warn"
    UNKNOWN = "unknown"
    EXEMPT = "exempt"


class Item(NamedTuple):
    """One finding or change of one rule for one workload.

    Attributes:
        mode: mode of the rule: in Warn and DryRun the effect is what enforcing would do, in Enforce and Mutate what re-creating
            the workload would do.
        reason: reason of the finding; ``Changed`` for a change.
        path: the field, ``spec.template.spec.containers[0]``; empty for the whole object.
    """

    rule: str
    policy: str
    mode: Mode
    effect: Effect
    reason: str
    path: str
    message: str
    remedy: str

    @property
    def rehearsed(self) -> bool:
        """Return whether the rule is in Warn or DryRun, so that the item has no effect yet."""
        return self.mode.is_rehearsed


def most_severe(items: Iterable[Item]) -> Effect | None:
    """Return the most severe effect among ``items``; None without items."""
    effects = {item.effect for item in items}
    return next((effect for effect in Effect if effect in effects), None)


class Exemption(NamedTuple):
    """The exemption that a workload requests.

    Attributes:
        rules: rule ids, sorted; ``*`` for every rule.
        until: its end (RFC 3339); empty for never.
        state: ``active``, ``expired``, or ``refused`` if the policy forbids it or a field is missing.
    """

    rules: tuple[str, ...]
    reason: str
    owner: str
    until: str
    state: str


class Used(NamedTuple):
    """One device that a pod holds, with its state by the idle rule; empty if no policy has the rule."""

    device: DeviceUse
    state: str


class Run(NamedTuple):
    """Accelerators that a workload requests, and for how long.

    Attributes:
        since: start of its pods, in seconds since 1970; None if unknown.
        until_end: device-seconds from start to the stated end; None without an end.
        waits: whether its pods have not started.
    """

    devices: int
    since: int | None
    until_end: int | None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class AuditedWorkload:
    """One workload that requests accelerators, with the rules' results.

    Attributes:
        kind: its kind; the owner's kind for a pod of an owner of an unknown kind.
        pods: number of its pods that request accelerators; 0 if unknown.
        devices: requested accelerators in total, sorted by name.
        bound_by: the policies that bind a rule for it, ``name@generation``, sorted.
        used: devices that its pods hold, by Prometheus, sorted.
        belongs: its owner, project and so on, by attribution key.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    team: str
    queue: str
    pods: int
    devices: tuple[tuple[str, int], ...]
    items: tuple[Item, ...]
    exemption: Exemption | None = None
    in_git: bool = False
    bound_by: tuple[str, ...] = ()
    used: tuple[Used, ...] = ()
    belongs: tuple[tuple[str, str], ...] = ()
    runs: tuple[Run, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return the identity and sort key: namespace, kind, name, API version."""
        return (self.namespace, self.kind, self.name, self.api_version)

    @property
    def outcome(self) -> str:
        """Return the most severe effect: ``refuse``, ``change``, ``warn``, ``unknown`` or ``clean``."""
        effect = most_severe(self.items)
        return "clean" if effect is None or effect is Effect.EXEMPT else effect.value

    @property
    def accelerators(self) -> int:
        """Return the number of accelerators of all names."""
        return sum(count for _, count in self.devices)


class NodeSummary(NamedTuple):
    """One node with accelerators. Memory is in bytes, CPU in millicores; no pod can use ``stranded`` accelerators, though free."""

    name: str
    devices: int
    held: int
    stranded: int
    memory: int
    requested: int
    limited: int
    cpu: int
    cpu_requested: int

    @property
    def idle(self) -> int:
        """Return the free accelerators that a pod can use."""
        return max(0, self.devices - self.held - self.stranded)


def total_of(nodes: Sequence[NodeSummary]) -> NodeSummary:
    """Add up ``nodes``."""
    return NodeSummary("", *(sum(figures) for figures in zip(*(node[1:] for node in nodes), strict=True)))


class ShapeSummary(NamedTuple):
    """A group of equal nodes, and why accelerators are stranded; empty if none is."""

    title: str
    device: str
    nodes: tuple[NodeSummary, ...]
    why_stranded: str

    @property
    def total(self) -> NodeSummary:
        """Return the sums of the nodes."""
        return total_of(self.nodes)


class QueueLine(NamedTuple):
    """Quota of one resource in one flavor of one ClusterQueue, in bytes of memory, millicores of CPU or counts."""

    queue: str
    cohort: str
    flavor: str
    resource: str
    nominal: int
    reserved: int
    pending: int
    stopped: str


class QuotaSummary(NamedTuple):
    """One resource of a ResourceQuota (same units)."""

    namespace: str
    name: str
    resource: str
    hard: int
    used: int


class PolicyLine(NamedTuple):
    """One GPUPolicy.

    Attributes:
        generation: its generation; 0 for a file.
        modes: mode by rule id, sorted, of the rules that it binds anywhere.
        problem: why its newest generation is not in force; empty if it is.
    """

    name: str
    generation: int
    priority: int
    modes: tuple[tuple[str, str], ...]
    problem: str


class Fleet(NamedTuple):
    """All devices that Prometheus reports.

    Attributes:
        at: time of the reading, RFC 3339.
        windows: time windows of the figures, in seconds, sorted.
        strays: devices that no audited workload holds, sorted: free ones, and those of unknown pods.
    """

    at: str
    windows: tuple[int, ...]
    strays: tuple[DeviceUse, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of one audit.

    Attributes:
        at: its time, RFC 3339 in UTC.
        policies: the policies, by precedence.
        shapes: nodes with accelerators; empty if nodes are unknown.
        remarks: what could not be read, and why, sorted.
        fleet: devices by Prometheus; None without an answer.
    """

    at: str
    source: str
    policies: tuple[PolicyLine, ...]
    workloads: tuple[AuditedWorkload, ...]
    shapes: tuple[ShapeSummary, ...] = ()
    gangs: tuple[GangState, ...] = ()
    queues: tuple[QueueLine, ...] = ()
    quotas: tuple[QuotaSummary, ...] = ()
    remarks: tuple[str, ...] = ()
    fleet: Fleet | None = None

    def only(self, namespaces: frozenset[str]) -> Audit:
        """Return the part for some namespaces, with all nodes and ClusterQueues."""
        return replace(
            self,
            workloads=tuple(workload for workload in self.workloads if workload.namespace in namespaces),
            gangs=tuple(gang for gang in self.gangs if gang.namespace in namespaces),
            quotas=tuple(quota for quota in self.quotas if quota.namespace in namespaces),
            fleet=self.fleet
            and self.fleet._replace(strays=tuple(device for device in self.fleet.strays if device.namespace in namespaces)),
        )
