"""Under which workload of an audit each pod stands, so that what is known of pods is known of workloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from gpugate.policies.cluster.gpu_usage import DeviceUse, Place, Usage, place_of
from gpugate.webhook.audit.subjects import AuditTarget, ControllerRef, OwnerTree, Subject, family_of
from gpugate.webhook.prometheus.readings import Readings

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
        if not one.kind.is_pod or not one.asks:
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


def usage_of(readings: Readings, homes: dict[PodName, Place]) -> Usage:
    """What ``readings`` say of the devices of each workload."""
    found: dict[Place, list[DeviceUse]] = {}
    for one in readings.devices:
        place = homes.get((one.namespace, one.pod)) if one.pod else None
        if place is not None:
            found.setdefault(place, []).append(one)
    return Usage({place: tuple(devices) for place, devices in found.items()})
