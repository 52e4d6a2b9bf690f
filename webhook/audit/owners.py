"""Group objects by owner, and choose those that the audit evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from gpugate.policies.cluster.gpu_usage import Place, place_of
from gpugate.webhook.audit.subjects import ControllerRef, Subject


class AuditTarget(NamedTuple):
    """A subject to evaluate, for itself, or for ``number`` equal pods of an owner of an unknown kind."""

    subject: Subject
    owner: ControllerRef | None
    number: int


def choose_targets(subjects: Iterable[Subject]) -> list[AuditTarget]:
    """Return the subjects to evaluate, sorted: those without an evaluated owner, and one of each kind of pod of unknown owners.

    A ReplicaSet of a controller is skipped; its pods belong to that controller.
    """
    objects = list(subjects)
    tree = OwnerTree(objects)
    alone: list[AuditTarget] = []
    grouped: dict[tuple[str, ControllerRef, bytes], list[Subject]] = {}
    for subject in objects:
        owner = tree.owner_above(subject)
        if not _is_requesting(subject) or tree.has_evaluated_owner(subject) or (owner is not None and not subject.text):
            continue
        if owner is None or not subject.kind.is_pod or tree.requesting_owners(subject):
            alone.append(AuditTarget(subject, None, 1))
        else:
            grouped.setdefault((subject.namespace, owner, subject.pod_hash), []).append(subject)
    alone += [AuditTarget(min(pods, key=_order), owner, len(pods)) for (_, owner, _), pods in grouped.items()]
    return sorted(alone, key=lambda target: (*_order(target.subject), target.owner or ()))


def _is_skipped(subject: Subject) -> bool:
    return subject.kind.is_revision_of_owner and subject.owner is not None


def _is_requesting(subject: Subject) -> bool:
    return subject.requests_gpu and not _is_skipped(subject)


class _ByName(dict[tuple[str, str, str, str], Subject]):
    """Subjects by the reference of their dependents: namespace, group, kind and name, and uid if both have one."""

    def __init__(self, subjects: Iterable[Subject]) -> None:
        super().__init__(
            ((subject.namespace, subject.kind.group, subject.kind.kind, subject.name), subject) for subject in subjects
        )

    def find(self, namespace: str, owner: ControllerRef) -> Subject | None:
        subject = self.get((namespace, owner.api_version.rpartition("/")[0], owner.kind, owner.name))
        return subject if subject is not None and (not owner.uid or subject.uid in {"", owner.uid}) else None


class OwnerTree:
    """The owners of the subjects that request accelerators."""

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self._requesting = _ByName(filter(_is_requesting, subjects))
        self._skipped = _ByName(filter(_is_skipped, subjects))

    def owner_above(self, subject: Subject) -> ControllerRef | None:
        """Return the owner of a subject, skipping a ReplicaSet of a controller."""
        if subject.owner is None:
            return None
        between = self._skipped.find(subject.namespace, subject.owner)
        return subject.owner if between is None else between.owner

    def requesting_owners(self, subject: Subject) -> list[Subject]:
        """Return the owners above a subject that request accelerators, the nearest first; the API allows cyclic references."""
        owners: dict[Place, Subject] = {}
        above = self.owner_above(subject)
        while above is not None:
            owner = self._requesting.find(subject.namespace, above)
            if owner is None or place_of(owner) in owners:
                break
            owners[place_of(owner)] = owner
            above = self.owner_above(owner)
        return list(owners.values())

    def has_evaluated_owner(self, subject: Subject) -> bool:
        """Return whether an owner is evaluated instead; False for an object in a cycle of references."""
        owners = self.requesting_owners(subject)
        return bool(owners) and place_of(subject) not in map(place_of, owners)


def _order(subject: Subject) -> tuple[str, ...]:
    return (subject.namespace, subject.kind.kind, subject.name, subject.kind.group, subject.uid)


PodName: TypeAlias = tuple[str, str]
"""Namespace and name."""


def owners_of_pods(subjects: Iterable[Subject]) -> dict[PodName, Place]:
    """Return the evaluated workload of each pod that requests accelerators; pods without one are left out."""
    objects = list(subjects)
    tree = OwnerTree(objects)
    targets = choose_targets(objects)
    evaluated = {place_of(target.subject) for target in targets}
    groups = {
        (target.subject.namespace, target.owner, target.subject.pod_hash): place_of(target.subject)
        for target in targets
        if target.owner
    }
    result: dict[PodName, Place] = {}
    for subject in objects:
        if not subject.kind.is_pod or not subject.requests_gpu:
            continue
        top = (tree.requesting_owners(subject) or [subject])[-1]
        owner = tree.owner_above(top)
        place = place_of(top) if owner is None or place_of(top) in evaluated else groups.get((top.namespace, owner, top.pod_hash))
        if place in evaluated:
            result[subject.namespace, subject.name] = place
    return result
