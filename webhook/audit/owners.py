"""Group objects by owner, and choose those that the audit evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from gpugate.policies.cluster.gpu_usage import Place, place_of
from gpugate.webhook.audit.subjects import ControllerRef, Subject


class AuditTarget(NamedTuple):
    """A subject to evaluate, for itself or for its owner.

    Attributes:
        subject: the object.
        owner: its controller of an unknown kind; None if the object stands for itself.
        number: number of equal pods of that owner.
    """

    subject: Subject
    owner: ControllerRef | None
    number: int


def choose_targets(subjects: Iterable[Subject]) -> list[AuditTarget]:
    """Return the subjects to evaluate, sorted: those without an evaluated owner, and one of each kind of pod of unknown owners.

    A ReplicaSet of a controller is skipped; its pods belong to that controller.
    """
    all_subjects = list(subjects)
    tree = owner_tree_of(all_subjects)
    requesting = [all_subject for all_subject in all_subjects if all_subject.requests_gpu and not _is_skipped(all_subject)]
    alone: list[AuditTarget] = []
    grouped: dict[tuple[str, ControllerRef, bytes], list[Subject]] = {}
    for subject in requesting:
        owner = tree.owner_above(subject)
        if tree.has_evaluated_owner(subject) or (owner is not None and not subject.text):
            continue
        if owner is None or not subject.kind.is_pod or tree.requesting_owner(subject) is not None:
            alone.append(AuditTarget(subject, None, 1))
        else:
            grouped.setdefault((subject.namespace, owner, subject.pod_hash), []).append(subject)
    alone += [AuditTarget(min(pods, key=_order), owner, len(pods)) for (_, owner, _), pods in grouped.items()]
    return sorted(alone, key=lambda chosen: (*_order(chosen.subject), chosen.owner or ()))


def owner_tree_of(subjects: Iterable[Subject]) -> OwnerTree:
    """Return the owner tree of ``subjects``."""
    requesting: list[Subject] = []
    skipped = _ByName()
    for subject in subjects:
        if _is_skipped(subject):
            skipped.put(subject)
        elif subject.requests_gpu:
            requesting.append(subject)
    return OwnerTree(requesting, skipped)


def _is_skipped(subject: Subject) -> bool:
    return subject.kind.is_revision_of_owner and subject.owner is not None


class _ByName:
    """Subjects by the reference of their dependants: namespace, kind, name, and uid if both have one."""

    def __init__(self, subjects: Iterable[Subject] = ()) -> None:
        self._found: dict[tuple[str, str, str, str], Subject] = {}
        for subject in subjects:
            self.put(subject)

    def put(self, subject: Subject) -> None:
        self._found[subject.namespace, subject.kind.group, subject.kind.kind, subject.name] = subject

    def get(self, namespace: str, owner: ControllerRef) -> Subject | None:
        value = self._found.get((namespace, owner.api_version.rpartition("/")[0], owner.kind, owner.name))
        return value if value is not None and (not owner.uid or value.uid in {"", owner.uid}) else None


class OwnerTree:
    """The owners of the subjects that request accelerators."""

    def __init__(self, requesting: Iterable[Subject], skipped: _ByName) -> None:
        self._requesting = _ByName(requesting)
        self._skipped = skipped

    def owner_above(self, subject: Subject) -> ControllerRef | None:
        """Return the owner of a subject, skipping a ReplicaSet of a controller."""
        if subject.owner is None:
            return None
        between = self._skipped.get(subject.namespace, subject.owner)
        return subject.owner if between is None else between.owner

    def requesting_owner(self, subject: Subject) -> Subject | None:
        """Return that owner if it requests accelerators itself."""
        owner = self.owner_above(subject)
        return None if owner is None else self._requesting.get(subject.namespace, owner)

    def has_evaluated_owner(self, subject: Subject) -> bool:
        """Return whether an owner is evaluated instead; False for cyclic references, which the API allows."""
        start = place_of(subject)
        seen: set[tuple[str, ...]] = set()
        requesting_owner = self.requesting_owner(subject)
        result = requesting_owner is not None
        while requesting_owner is not None and place_of(requesting_owner) not in seen:
            if place_of(requesting_owner) == start:
                return False
            seen.add(place_of(requesting_owner))
            requesting_owner = self.requesting_owner(requesting_owner)
        return result


def _order(subject: Subject) -> tuple[str, ...]:
    return (subject.namespace, subject.kind.kind, subject.name, subject.kind.group, subject.uid)


PodName: TypeAlias = tuple[str, str]
"""Namespace and name."""


def owners_of_pods(subjects: Iterable[Subject], chosen: Sequence[AuditTarget]) -> dict[PodName, Place]:
    """Return the evaluated workload of each pod that requests accelerators; pods without one are left out."""
    all_subjects = list(subjects)
    tree = owner_tree_of(all_subjects)
    judged = {place_of(target.subject) for target in chosen}
    groups = {
        (target.subject.namespace, target.owner, target.subject.pod_hash): place_of(target.subject)
        for target in chosen
        if target.owner
    }
    result: dict[PodName, Place] = {}
    for all_subject in all_subjects:
        if not all_subject.kind.is_pod or not all_subject.requests_gpu:
            continue
        top = _top(all_subject, tree)
        owner: ControllerRef | None = tree.owner_above(top)
        place = place_of(top) if owner is None or place_of(top) in judged else groups.get((top.namespace, owner, top.pod_hash))
        if place in judged:
            result[all_subject.namespace, all_subject.name] = place
    return result


def _top(subject: Subject, tree: OwnerTree) -> Subject:
    seen = {place_of(subject)}
    while (requesting_owner := tree.requesting_owner(subject)) is not None and place_of(requesting_owner) not in seen:
        seen.add(place_of(requesting_owner))
        subject = requesting_owner
    return subject
