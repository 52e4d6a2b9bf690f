"""Group objects by owner, and choose those that the audit evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from gpugate.policies.cluster.gpu_usage import Place, place_of
from gpugate.policies.workloads.kinds import POD
from gpugate.webhook.audit.subjects import ControllerRef, Subject


class AuditTarget(NamedTuple):
    """A subject to judge, and in whose name.

    Attributes:
        subject: the object.
        owner: the controller of an unknown kind that made it; None where the object stands for itself.
        number: how many alike it stands for: the pods of that owner.
    """

    subject: Subject
    owner: ControllerRef | None
    number: int


def choose(subjects: Iterable[Subject]) -> list[AuditTarget]:
    """The subjects to judge, sorted: those that no other of them made, and for an owner of an unknown kind one pod of each sort.

    A ReplicaSet that a controller made says nothing of its own, and its pods stand under that controller.
    """
    every = list(subjects)
    family = family_of(every)
    asking = [one for one in every if one.asks and not _is_passed_over(one)]
    alone: list[AuditTarget] = []
    grouped: dict[tuple[str, ControllerRef, bytes], list[Subject]] = {}
    for one in asking:
        owner = family.above(one)
        if family.stands_under_another(one) or (owner is not None and not one.text):
            continue
        if owner is None or one.kind is not POD or family.maker(one) is not None:
            alone.append(AuditTarget(one, None, 1))
        else:
            grouped.setdefault((one.namespace, owner, one.sort), []).append(one)
    alone += [AuditTarget(min(pods, key=_order), owner, len(pods)) for (_, owner, _), pods in grouped.items()]
    return sorted(alone, key=lambda chosen: (*_order(chosen.subject), chosen.owner or ()))


def family_of(subjects: Iterable[Subject]) -> OwnerTree:
    """Who made whom among ``subjects``."""
    asking: list[Subject] = []
    passed = _Named()
    for one in subjects:
        if _is_passed_over(one):
            passed.put(one)
        elif one.asks:
            asking.append(one)
    return OwnerTree(asking, passed)


def _is_passed_over(one: Subject) -> bool:
    return one.kind.is_revision_of_owner and one.owner is not None


class _Named:
    """Subjects, to be found by who names them as owner: in their own namespace, by name, and by uid where both have one."""

    def __init__(self, subjects: Iterable[Subject] = ()) -> None:
        self._found: dict[tuple[str, str, str, str], Subject] = {}
        for one in subjects:
            self.put(one)

    def put(self, one: Subject) -> None:
        self._found[one.namespace, one.kind.group, one.kind.kind, one.name] = one

    def get(self, namespace: str, owner: ControllerRef) -> Subject | None:
        found = self._found.get((namespace, owner.api_version.rpartition("/")[0], owner.kind, owner.name))
        return found if found is not None and (not owner.uid or found.uid in {"", owner.uid}) else None


class OwnerTree:
    """Who made whom, among the subjects that ask."""

    def __init__(self, asking: Iterable[Subject], passed: _Named) -> None:
        self._asking = _Named(asking)
        self._passed = passed

    def above(self, one: Subject) -> ControllerRef | None:
        """Who made ``one``, a ReplicaSet passed over."""
        if one.owner is None:
            return None
        between = self._passed.get(one.namespace, one.owner)
        return one.owner if between is None else between.owner

    def maker(self, one: Subject) -> Subject | None:
        """The same, where it asks for accelerators itself."""
        owner = self.above(one)
        return None if owner is None else self._asking.get(one.namespace, owner)

    def stands_under_another(self, one: Subject) -> bool:
        """Whether another is judged in its place; not where they claim to have made each other, which nobody checks."""
        start = place_of(one)
        seen: set[tuple[str, ...]] = set()
        maker = self.maker(one)
        found = maker is not None
        while maker is not None and place_of(maker) not in seen:
            if place_of(maker) == start:
                return False
            seen.add(place_of(maker))
            maker = self.maker(maker)
        return found


def _order(subject: Subject) -> tuple[str, ...]:
    return (subject.namespace, subject.kind.kind, subject.name, subject.kind.group, subject.uid)


PodName: TypeAlias = tuple[str, str]
"""Namespace and name."""


def audited_owner_of_pods(subjects: Iterable[Subject], chosen: Sequence[AuditTarget]) -> dict[PodName, Place]:
    """The place of the subject that is judged for each pod that asks for accelerators; pods of which none is are left out."""
    every = list(subjects)
    family = family_of(every)
    judged = {place_of(one.subject) for one in chosen}
    groups = {(one.subject.namespace, one.owner, one.subject.sort): place_of(one.subject) for one in chosen if one.owner}
    found: dict[PodName, Place] = {}
    for one in every:
        if one.kind is not POD or not one.asks:
            continue
        top = _top(one, family)
        owner: ControllerRef | None = family.above(top)
        place = place_of(top) if owner is None or place_of(top) in judged else groups.get((top.namespace, owner, top.sort))
        if place in judged:
            found[one.namespace, one.name] = place
    return found


def _top(subject: Subject, family: OwnerTree) -> Subject:
    seen = {place_of(subject)}
    while (maker := family.maker(subject)) is not None and place_of(maker) not in seen:
        seen.add(place_of(maker))
        subject = maker
    return subject
