"""The books of an audit: the objects as they are, and what was found of each when it was last looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpugate.policies.cluster.gpu_usage import Place, place_of
from gpugate.policies.cluster.nodes import Node
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.cluster.usage import NodeUsage
from gpugate.policies.gangs.status import GangState
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.policy.binding import PolicySet
from gpugate.webhook.audit import cluster_summary as picture
from gpugate.webhook.audit.attribution_of_pods import PodName, audited_owner_of_pods
from gpugate.webhook.audit.evaluate import AuditContext, audit_one, sort_key, unreadable
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Fleet
from gpugate.webhook.audit.subjects import AuditTarget, Subject, choose
from gpugate.webhook.prometheus.readings import Readings
from gpugate.webhook.runtime.times import rfc3339


class _Entry(NamedTuple):
    """What was judged, and what came of it; a text where it could not be judged."""

    chosen: AuditTarget
    found: AuditedWorkload | str


class Surroundings(NamedTuple):
    """What a whole audit shows beside the workloads.

    Attributes:
        at: when, RFC 3339.
        source: what was looked at, in words.
        policies: the policies in force.
        snapshot: the cluster.
        node_of: gives a node by its name.
        use_of: gives what the pods on a node come to.
        problems: why the newest state of a policy is not in force, by policy.
        remarks: what could not be looked at.
        gangs: the gangs.
        readings: what monitoring told of devices; None where it was not asked, or gave no answer.
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
    """The objects of a cluster, and what the rules make of them."""

    def __init__(self) -> None:
        self._subjects: dict[Place, Subject] = {}
        self._unreadable: dict[Place, str] = {}
        self._entries: dict[Place, _Entry] = {}

    def put(self, place: Place, subject: Subject | str | None) -> bool:
        """Take the object at ``place`` as it is now, and say whether it differs from what was known.

        A text stands for an object that cannot be read, None for one that is gone.
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
        """Every place that has an object."""
        return [*self._subjects, *self._unreadable]

    def homes(self) -> dict[PodName, Place]:
        """Under which place each pod that asks for accelerators is judged."""
        subjects = self._subjects.values()
        return audited_owner_of_pods(subjects, choose(subjects))

    def judge(self, lens: AuditContext, *, anew: bool, also: Container[Place] = ()) -> Iterator[AuditedWorkload | str | None]:
        """Judge what has changed, or with ``anew`` everything, one workload as each value is read; None where one is as it was.

        What is no longer there is forgotten when the iterator starts. ``also`` are places that are judged in any case.
        """
        chosen = {place_of(one.subject): one for one in choose(self._subjects.values())}
        for place in self._entries.keys() - chosen.keys():
            del self._entries[place]
        for place, one in chosen.items():
            before = self._entries.get(place)
            if not anew and before is not None and before.chosen == one and place not in also:
                yield None
                continue
            found = _judged(one, lens)
            self._entries[place] = _Entry(one, found)
            yield found

    def chosen(self) -> list[AuditTarget]:
        """What the last audit judged."""
        return [one.chosen for one in self._entries.values()]

    def workloads(self) -> tuple[AuditedWorkload, ...]:
        """What was found, sorted; the sorts of pods of one owner are one workload."""
        found: dict[tuple[str, ...], list[AuditedWorkload]] = {}
        for one in self._entries.values():
            if isinstance(one.found, AuditedWorkload):
                found.setdefault((*one.found.key, one.found.uid), []).append(one.found)
        return tuple(together(found[key]) for key in sorted(found))

    def remarks(self) -> tuple[str, ...]:
        """What could not be read or judged, sorted."""
        return tuple(
            sorted({*self._unreadable.values(), *(one.found for one in self._entries.values() if isinstance(one.found, str))})
        )

    def whole(self, around: Surroundings) -> Audit:
        """The audit as a whole."""
        workloads = self.workloads()
        return Audit(
            at=around.at,
            source=around.source,
            policies=picture.policies_of(around.policies, around.problems),
            workloads=workloads,
            shapes=picture.shapes_of(around.snapshot, around.node_of, around.use_of),
            gangs=around.gangs,
            queues=picture.queues_of(around.snapshot),
            quotas=picture.quotas_of(around.snapshot),
            remarks=tuple(sorted({*around.remarks, *self.remarks(), *(around.readings.remarks if around.readings else ())})),
            fleet=_fleet(around.readings, workloads) if around.readings is not None else None,
        )


def _fleet(readings: Readings, workloads: Sequence[AuditedWorkload]) -> Fleet:
    held = {used.device for one in workloads for used in one.used}
    return Fleet(rfc3339(readings.at), readings.windows, tuple(one for one in readings.devices if one not in held))


def together(sorts: Sequence[AuditedWorkload]) -> AuditedWorkload:
    """Several sorts of pods of one owner as one workload: their sums, and all that is said of any of them."""
    first = sorts[0]
    if len(sorts) == 1:
        return first
    devices: Counter[str] = Counter()
    for one in sorts:
        devices.update(dict(one.devices))
    return replace(
        first,
        pods=sum(one.pods for one in sorts),
        devices=tuple(sorted(devices.items())),
        items=tuple(sorted({item for one in sorts for item in one.items}, key=sort_key)),
        exemption=next((one.exemption for one in sorts if one.exemption), None),
        bound_by=tuple(sorted({name for one in sorts for name in one.bound_by})),
        used=tuple(used for one in sorts for used in one.used),
        runs=tuple(run for one in sorts for run in one.runs),
    )


def _judged(one: AuditTarget, lens: AuditContext) -> AuditedWorkload | str:
    try:
        return audit_one(one, lens)
    except MalformedError as error:
        return unreadable(one, error)
    except RecursionError:
        return f"{one.subject.kind.kind} {one.subject.namespace}/{one.subject.name} is nested too deeply to be judged"


def filled(subjects: Iterable[Subject | str]) -> WorkloadIndex:
    """Books with all of these subjects, the last of each name; a text stands for an object that cannot be read."""
    books = WorkloadIndex()
    unnamed: Counter[Place] = Counter()
    for number, one in enumerate(subjects):
        if isinstance(one, str):
            books.put(("", "", "", str(number)), one)
            continue
        place, found = place_of(one), one
        if one.name.endswith("-"):  # a generateName, by which a file may state many
            unnamed[place] += 1
            if unnamed[place] > 1:
                found = one._replace(name=f"{one.name}({unnamed[place]})")
        books.put(place_of(found), found)
    return books
