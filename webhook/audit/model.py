"""What an audit found: plain records, from which every report is made."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpugate.policies.cluster.gpu_usage import DeviceUse
from gpugate.policies.findings import Mode
from gpugate.policies.gangs.status import GangState


class Effect(enum.Enum):
    """What a rule makes of a workload, the gravest first."""

    REFUSE = "refuse"
    CHANGE = "change"
    WARN = "warn"
    UNKNOWN = "unknown"
    EXEMPT = "exempt"


class Item(NamedTuple):
    """One thing that one rule has to say of one workload.

    Attributes:
        rule: the rule's id.
        policy: the policy that binds it, ``name@generation``.
        mode: the mode it has there: in DryRun the effect is what enforcing would do, in Enforce or Warn it is what would
            happen, were the workload made today.
        effect: what it is.
        reason: the finding's stable word; ``Changed`` for a change.
        path: the field it is about, ``spec.template.spec.containers[0]``; empty for the whole.
        message: what is wrong with the sums, or what is changed.
        remedy: what to write instead; empty for a change, which is its own remedy.
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
        """Whether nothing has come of it yet, since the rule is in DryRun."""
        return self.mode is Mode.DRY_RUN


class Exemption(NamedTuple):
    """What a workload asks to be exempt from.

    Attributes:
        rules: rule ids, sorted; ``*`` for every rule.
        reason: why.
        owner: who answers for it; empty where nobody is named.
        until: when it ends (RFC 3339); empty for never.
        state: ``active``, ``expired``, or ``refused`` where the policy allows it not or something is lacking.
    """

    rules: tuple[str, ...]
    reason: str
    owner: str
    until: str
    state: str


class Used(NamedTuple):
    """One device that a pod holds, and what becomes of it.

    Attributes:
        device: the device, with its figures.
        state: ``idle``, ``low``, ``busy``, ``young`` or ``unknown`` by the policy; empty where none judges it.
    """

    device: DeviceUse
    state: str


class Run(NamedTuple):
    """Accelerators that a workload asks for, and the time that it asks them for.

    Attributes:
        devices: how many.
        since: when its pods began, in seconds since 1970; None where it does not tell.
        until_end: device-seconds from then to the end that it states; None where it states none.
        waits: whether it tells that its pods have not begun.
    """

    devices: int
    since: int | None
    until_end: int | None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class AuditedWorkload:
    """One workload that asks for accelerators, and all that the rules have to say of it.

    Attributes:
        api_version: its API version.
        kind: its kind; that of the unknown owner where the workload is a pod of one.
        namespace: its namespace.
        name: its name.
        uid: its uid; empty where it comes from a file without one.
        team: who it belongs to, by its labels or its namespace's; empty where they name nobody.
        queue: the Kueue queue that it is in; empty for none.
        pods: how many pods that ask for accelerators it is to have; 0 where it does not say.
        devices: accelerators that these ask for in all, sorted by name.
        items: what the rules say, sorted.
        exemption: what it asks to be exempt from; None where nothing.
        in_git: whether a GitOps tool applies it.
        bound_by: the policies that bind a rule for it, ``name@generation``, sorted.
        used: the devices that its pods hold, as far as monitoring tells, sorted.
        belongs: who it belongs to, by what is told: ``owner``, ``project``.
        runs: its accelerators with the time that it asks for them.
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
        """By which workloads are told apart, and sorted: namespace, kind, name, API version."""
        return (self.namespace, self.kind, self.name, self.api_version)

    @property
    def outcome(self) -> str:
        """``refuse``, ``change``, ``warn``, ``unknown`` or ``clean``: the gravest that a rule says."""
        found = {one.effect for one in self.items}
        return next((one.value for one in Effect if one in found and one is not Effect.EXEMPT), "clean")

    @property
    def accelerators(self) -> int:
        """Accelerators of all names together."""
        return sum(count for _, count in self.devices)


class NodeSummary(NamedTuple):
    """One node with accelerators. Amounts of memory are bytes, of CPU millicores.

    Attributes:
        name: its name.
        devices: accelerators that it has.
        held: accelerators that pods hold.
        stranded: free accelerators that no pod can get at, since what each needs of memory or CPU beside it is promised already.
        memory: allocatable memory.
        requested: memory that its pods request.
        limited: memory that its pods may grow to.
        cpu: allocatable CPU.
        cpu_requested: CPU that its pods request.
    """

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
        """Free accelerators that a pod could get."""
        return max(0, self.devices - self.held - self.stranded)


class ShapeSummary(NamedTuple):
    """Nodes that are alike.

    Attributes:
        title: what people call them (the product).
        device: the accelerator's resource name.
        nodes: the nodes, sorted by name.
        why_stranded: in words, what keeps the stranded accelerators from use; empty where none is stranded.
    """

    title: str
    device: str
    nodes: tuple[NodeSummary, ...]
    why_stranded: str


class QueueLine(NamedTuple):
    """Quota of one resource in one flavor of one ClusterQueue (memory in bytes, CPU in millicores, else counts).

    Attributes:
        queue: the ClusterQueue.
        cohort: its cohort; empty for none.
        flavor: the flavor.
        resource: the resource.
        nominal: its quota.
        reserved: what is reserved now, of its own or borrowed.
        pending: workloads that wait in the queue.
        stopped: why it admits nothing; empty where it does.
    """

    queue: str
    cohort: str
    flavor: str
    resource: str
    nominal: int
    reserved: int
    pending: int
    stopped: str


class NamespaceQuota(NamedTuple):
    """One resource of a ResourceQuota (same units)."""

    namespace: str
    name: str
    resource: str
    hard: int
    used: int


class PolicyLine(NamedTuple):
    """One GPUPolicy.

    Attributes:
        name: its name.
        generation: 0 where it comes from a file.
        priority: its priority.
        modes: mode by rule id, sorted, of the rules that it binds somewhere.
        problem: why its newest state is not in force; empty where it is.
    """

    name: str
    generation: int
    priority: int
    modes: tuple[tuple[str, str], ...]
    problem: str


class Fleet(NamedTuple):
    """What monitoring told of all devices.

    Attributes:
        at: when, RFC 3339.
        windows: over which times figures are, in seconds, sorted.
        strays: devices that no workload of the audit holds, sorted: free ones without a pod, and those of pods that are not known.
    """

    at: str
    windows: tuple[int, ...]
    strays: tuple[DeviceUse, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """All that one audit found.

    Attributes:
        at: when, RFC 3339 in UTC.
        source: the cluster or files that it looked at, in words.
        policies: the policies, the one that wins first.
        workloads: every workload that asks for accelerators, sorted.
        shapes: nodes with accelerators; empty where nodes are not known.
        gangs: every gang with its state, sorted.
        queues: quotas of ClusterQueues.
        quotas: ResourceQuotas that bound accelerators, memory or CPU.
        remarks: what could not be looked at, and why, sorted.
        fleet: what monitoring told of all devices; None where it was not asked, or gave no answer.
    """

    at: str
    source: str
    policies: tuple[PolicyLine, ...]
    workloads: tuple[AuditedWorkload, ...]
    shapes: tuple[ShapeSummary, ...] = ()
    gangs: tuple[GangState, ...] = ()
    queues: tuple[QueueLine, ...] = ()
    quotas: tuple[NamespaceQuota, ...] = ()
    remarks: tuple[str, ...] = ()
    fleet: Fleet | None = None

    def only(self, namespaces: frozenset[str]) -> Audit:
        """The part that is about some namespaces; nodes and ClusterQueues belong to all."""
        return replace(
            self,
            workloads=tuple(one for one in self.workloads if one.namespace in namespaces),
            gangs=tuple(one for one in self.gangs if one.namespace in namespaces),
            quotas=tuple(one for one in self.quotas if one.namespace in namespaces),
            fleet=self.fleet and self.fleet._replace(strays=tuple(one for one in self.fleet.strays if one.namespace in namespaces)),
        )
