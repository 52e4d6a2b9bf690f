"""Index of the audited objects with the last result of each."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpugate.policies.cluster.gpu_usage import DeviceUse, Place, Usage, place_of
from gpugate.policies.cluster.nodes import Node
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.cluster.usage import NodeUsage
from gpugate.policies.gangs.status import GangState
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.policy.binding import PolicySet
from gpugate.webhook.audit import cluster_summary
from gpugate.webhook.audit.evaluate import AuditContext, evaluate, sort_key
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Fleet
from gpugate.webhook.audit.owners import AuditTarget, choose_targets, owners_of_pods
from gpugate.webhook.audit.subjects import Subject
from gpugate.webhook.prometheus.readings import Readings
from gpugate.webhook.runtime.times import rfc3339


class _Entry(NamedTuple):
    """An evaluated target and its result; a text if evaluation failed."""

    target: AuditTarget
    result: AuditedWorkload | str


class AuditInputs(NamedTuple):
    """Everything that an audit shows beside the workloads.

    Attributes:
        at: time of the audit, RFC 3339.
        problems: why the newest generation of a policy is not in force, by policy.
        readings: device figures of Prometheus; None without them.
    """

    at: str
    source: str
    policies: PolicySet
    snapshot: ClusterSnapshot
    node_of: Callable[[str], Node | None]
    use_of: Callable[[str], NodeUsage]
    problems: Mapping[str, str] = {}
    remarks: tuple[str, ...] = ()
    gangs: tuple[GangState, ...] = ()
    readings: Readings | None = None


class WorkloadIndex:
    """The objects of a cluster and the rules' results for them."""

    def __init__(self) -> None:
        self._subjects: dict[Place, Subject] = {}
        self._unreadable: dict[Place, str] = {}
        self._entries: dict[Place, _Entry] = {}

    def put(self, place: Place, subject: Subject | str | None) -> bool:
        """Store the object at ``place``; return whether it differs from the stored one.

        A text stands for an unreadable object, None for a deleted one.
        """
        before = self._subjects.get(place) or self._unreadable.get(place)
        if before == subject:
            return False
        self._subjects.pop(place, None)
        self._unreadable.pop(place, None)
        if isinstance(subject, Subject):
            self._subjects[place] = subject
        elif subject is not None:
            self._unreadable[place] = subject
        return True

    def places(self) -> list[Place]:
        """Return every place with an object."""
        return [*self._subjects, *self._unreadable]

    def usage_of(self, readings: Readings) -> Usage:
        """Return the devices of each evaluated workload by ``readings``."""
        owners = owners_of_pods(self._subjects.values())
        groups: defaultdict[Place, list[DeviceUse]] = defaultdict(list)
        for device in readings.devices:
            place = owners.get((device.namespace, device.pod)) if device.pod else None
            if place is not None:
                groups[place].append(device)
        return Usage({place: tuple(devices) for place, devices in groups.items()})

    def evaluate(
        self, context: AuditContext, *, everything: bool, also: Container[Place] = ()
    ) -> Iterator[AuditedWorkload | str | None]:
        """Evaluate changed targets, or ``everything``; yield the result of each, None for an unchanged one.

        Starting the iterator drops deleted targets. Places in ``also`` are evaluated in any case.
        """
        targets = {place_of(target.subject): target for target in choose_targets(self._subjects.values())}
        for place in self._entries.keys() - targets.keys():
            del self._entries[place]
        for place, target in targets.items():
            before = self._entries.get(place)
            if not everything and before is not None and before.target == target and place not in also:
                yield None
                continue
            result = _evaluate(target, context)
            self._entries[place] = _Entry(target, result)
            yield result

    def targets(self) -> list[AuditTarget]:
        """Return the targets of the last audit."""
        return [entry.target for entry in self._entries.values()]

    def workloads(self) -> tuple[AuditedWorkload, ...]:
        """Return the results, sorted; different pods of one owner are one workload."""
        groups: dict[tuple[str, ...], list[AuditedWorkload]] = {}
        for entry in self._entries.values():
            if isinstance(entry.result, AuditedWorkload):
                groups.setdefault((*entry.result.key, entry.result.uid), []).append(entry.result)
        return tuple(_merge(groups[key]) for key in sorted(groups))

    def remarks(self) -> tuple[str, ...]:
        """Return what could not be read or evaluated, sorted."""
        failed = (entry.result for entry in self._entries.values() if isinstance(entry.result, str))
        return tuple(sorted({*self._unreadable.values(), *failed}))

    def build_audit(self, inputs: AuditInputs) -> Audit:
        """Build the audit."""
        workloads = self.workloads()
        return Audit(
            at=inputs.at,
            source=inputs.source,
            policies=cluster_summary.policies_of(inputs.policies, inputs.problems),
            workloads=workloads,
            shapes=cluster_summary.shapes_of(inputs.snapshot, inputs.node_of, inputs.use_of),
            gangs=inputs.gangs,
            queues=cluster_summary.queues_of(inputs.snapshot),
            quotas=cluster_summary.quotas_of(inputs.snapshot),
            remarks=tuple(sorted({*inputs.remarks, *self.remarks(), *(inputs.readings.remarks if inputs.readings else ())})),
            fleet=_fleet(inputs.readings, workloads) if inputs.readings is not None else None,
        )


def _fleet(readings: Readings, workloads: Sequence[AuditedWorkload]) -> Fleet:
    held = {used.device for workload in workloads for used in workload.used}
    return Fleet(rfc3339(readings.at), readings.windows, tuple(device for device in readings.devices if device not in held))


def _merge(parts: Sequence[AuditedWorkload]) -> AuditedWorkload:
    """Merge the results of different pods of one owner into one workload."""
    first = parts[0]
    if len(parts) == 1:
        return first
    devices: Counter[str] = Counter()
    for part in parts:
        devices.update(dict(part.devices))
    return replace(
        first,
        pods=sum(part.pods for part in parts),
        devices=tuple(sorted(devices.items())),
        items=tuple(sorted({item for part in parts for item in part.items}, key=sort_key)),
        exemption=next((part.exemption for part in parts if part.exemption), None),
        bound_by=tuple(sorted({name for part in parts for name in part.bound_by})),
        used=tuple(used for part in parts for used in part.used),
        runs=tuple(run for part in parts for run in part.runs),
    )


def _evaluate(target: AuditTarget, context: AuditContext) -> AuditedWorkload | str:
    title = f"{target.subject.kind.kind} {target.subject.namespace}/{target.subject.name}"
    try:
        return evaluate(target, context)
    except MalformedError as error:
        return f"{title} cannot be evaluated: {error}"
    except RecursionError:
        return f"{title} is nested too deeply"


def index_of(subjects: Iterable[Subject | str]) -> WorkloadIndex:
    """Return an index of these subjects, the last of each name; a text stands for an unreadable object."""
    index = WorkloadIndex()
    unnamed: Counter[Place] = Counter()
    for number, subject in enumerate(subjects):
        if isinstance(subject, str):
            index.put(("", "", "", str(number)), subject)
            continue
        named = subject
        if subject.name.endswith("-"):  # a generateName: a file may contain several
            unnamed[place_of(subject)] += 1
            count = unnamed[place_of(subject)]
            named = subject if count == 1 else subject._replace(name=f"{subject.name}({count})")
        index.put(place_of(named), named)
    return index
