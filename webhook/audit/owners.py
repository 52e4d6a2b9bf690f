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


def choose_targets(subjects: Iterable[Subject]) -> list[AuditTarget]:
    """The subjects to judge, sorted: those that no other of them made, and for an owner of an unknown kind one pod of each sort.

    A ReplicaSet that a controller made says nothing of its own, and its pods stand under that controller.
    """
    all_subjects = list(subjects)
    tree = owner_tree_of(all_subjects)
    requesting = [one for one in all_subjects if one.requests_gpu and not _is_skipped(one)]
    alone: list[AuditTarget] = []
    grouped: dict[tuple[str, ControllerRef, bytes], list[Subject]] = {}
    for one in requesting:
        owner = tree.owner_above(one)
        if tree.has_evaluated_owner(one) or (owner is not None and not one.text):
            continue
        if owner is None or one.kind is not POD or tree.requesting_owner(one) is not None:
            alone.append(AuditTarget(one, None, 1))
        else:
            grouped.setdefault((one.namespace, owner, one.pod_hash), []).append(one)
    alone += [AuditTarget(min(pods, key=_order), owner, len(pods)) for (_, owner, _), pods in grouped.items()]
    return sorted(alone, key=lambda chosen: (*_order(chosen.subject), chosen.owner or ()))


def owner_tree_of(subjects: Iterable[Subject]) -> OwnerTree:
    """Who made whom among ``subjects``."""
    requesting: list[Subject] = []
    skipped = _ByName()
    for one in subjects:
        if _is_skipped(one):
            skipped.put(one)
        elif one.requests_gpu:
            requesting.append(one)
    return OwnerTree(requesting, skipped)


def _is_skipped(one: Subject) -> bool:
    return one.kind.is_revision_of_owner and one.owner is not None


class _ByName:
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

    def __init__(self, requesting: Iterable[Subject], skipped: _ByName) -> None:
        self._requesting = _ByName(requesting)
        self._skipped = skipped

    def owner_above(self, one: Subject) -> ControllerRef | None:
        """Who made ``one``, a ReplicaSet passed over."""
        if one.owner is None:
            return None
        between = self._skipped.get(one.namespace, one.owner)
        return one.owner if between is None else between.owner

    def requesting_owner(self, one: Subject) -> Subject | None:
        """The same, where it asks for accelerators itself."""
        owner = self.owner_above(one)
        return None if owner is None else self._requesting.get(one.namespace, owner)

    def has_evaluated_owner(self, one: Subject) -> bool:
        """Whether another is judged in its place; not where they claim to have made each other, which nobody checks."""
        start = place_of(one)
        seen: set[tuple[str, ...]] = set()
        requesting_owner = self.requesting_owner(one)
        found = requesting_owner is not None
        while requesting_owner is not None and place_of(requesting_owner) not in seen:
            if place_of(requesting_owner) == start:
                return False
            seen.add(place_of(requesting_owner))
            requesting_owner = self.requesting_owner(requesting_owner)
        return found


def _order(subject: Subject) -> tuple[str, ...]:
    return (subject.namespace, subject.kind.kind, subject.name, subject.kind.group, subject.uid)


PodName: TypeAlias = tuple[str, str]
"""Namespace and name."""


def owners_of_pods(subjects: Iterable[Subject], chosen: Sequence[AuditTarget]) -> dict[PodName, Place]:
    """The place of the subject that is judged for each pod that asks for accelerators; pods of which none is are left out."""
    all_subjects = list(subjects)
    tree = owner_tree_of(all_subjects)
    judged = {place_of(one.subject) for one in chosen}
    groups = {(one.subject.namespace, one.owner, one.subject.pod_hash): place_of(one.subject) for one in chosen if one.owner}
    found: dict[PodName, Place] = {}
    for one in all_subjects:
        if one.kind is not POD or not one.requests_gpu:
            continue
        top = _top(one, tree)
        owner: ControllerRef | None = tree.owner_above(top)
        place = place_of(top) if owner is None or place_of(top) in judged else groups.get((top.namespace, owner, top.pod_hash))
        if place in judged:
            found[one.namespace, one.name] = place
    return found


def _top(subject: Subject, tree: OwnerTree) -> Subject:
    seen = {place_of(subject)}
    while (requesting_owner := tree.requesting_owner(subject)) is not None and place_of(requesting_owner) not in seen:
        seen.add(place_of(requesting_owner))
        subject = requesting_owner
    return subject
