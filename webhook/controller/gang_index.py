"""Index of the gangs among the workloads, with the PodGroup that each needs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from gpugate.policies.cluster.records.pod_groups import GroupKey
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.engine.exemptions import bound_without_exemption
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.gangs.gang import group_of, pods_at_once
from gpugate.policies.gangs.status import GangState
from gpugate.policies.kube.fields import MalformedError, Object
from gpugate.policies.rules.gangs.gang import RULE as GANG
from gpugate.policies.rules.gangs.gang.pod_groups import PodGroupPlan, plan_together
from gpugate.policies.rules.gangs.gang.pod_groups import plan as plan_of_one
from gpugate.policies.workloads.kinds import WorkloadKind, kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.workload import Workload
from gpugate.webhook.cache.state import CurrentState, InForce
from gpugate.webhook.kube.event_series import Reference

Place: TypeAlias = tuple[str, str, str, str]
"""API group, kind, namespace and name of an object."""


_HOUR: Final = 3600


class Planned(NamedTuple):
    """A gang, its plan and the groups that its pods name; the reference of plain pods is the first of them."""

    reference: Reference
    plan: PodGroupPlan
    named: frozenset[GroupKey]


class _StoredGang(NamedTuple):
    kind: WorkloadKind
    namespace: str
    text: bytes
    #: The group that a plain pod names; None for a workload that creates its pods.
    joins: tuple[str, GroupKey] | None

    def open(self, snapshot: ClusterSnapshot) -> Workload:
        return open_workload(self.kind, orjson.loads(self.text), snapshot)


class GangIndex:
    """Stores gangs. Use it from the thread of the event loop only."""

    def __init__(self, state: CurrentState, wall: Callable[[], float] = time.time) -> None:
        self._state = state
        self._wall = wall
        self._gangs: dict[Place, _StoredGang] = {}
        self._joined: dict[tuple[str, GroupKey], dict[Place, None]] = {}
        #: Plans with the values that they depend on.
        self._memos: dict[object, tuple[tuple[object, ...], Planned]] = {}

    def update(self, place: Place, item: Object) -> bool:
        """Store an object; return whether it is or was part of a gang."""
        kind = kind_of(str(item.get("apiVersion")), str(item.get("kind")))
        try:
            gang = None if kind is None else _stored(kind, item)
        except MalformedError:
            gang = None
        if gang is None:
            return self.remove(place)
        if self._gangs.get(place) == gang:
            return False
        self.remove(place)
        self._gangs[place] = gang
        if gang.joins is not None:
            self._joined.setdefault(gang.joins, {})[place] = None
        return True

    def remove(self, place: Place) -> bool:
        """Remove an object; return whether it was part of a gang."""
        before = self._gangs.pop(place, None)
        if before is None:
            return False
        self._memos.pop(place, None)
        if before.joins is not None:
            members = self._joined[before.joins]
            del members[place]
            if not members:
                del self._joined[before.joins]
                self._memos.pop(before.joins, None)
        return True

    def workloads(self) -> Iterator[Workload]:
        """Yield every gang workload, and every plain pod that joins a gang."""
        snapshot = self._state.in_force.snapshot
        for gang in list(self._gangs.values()):
            yield gang.open(snapshot)

    def object_ref(self, state: GangState) -> Reference | None:
        """Return the object for Events about a gang: the workload, or the first of the plain pods; None if it is gone."""
        for (namespace, key), members in self._joined.items():
            if not state.uid and (namespace, key.name) == (state.namespace, state.name):
                return self._reference(min(members))
        name = state.name.partition("/")[0]
        for place in self._gangs if state.uid else ():
            if place[1:] == (state.kind, state.namespace, name):
                return self._reference(place)
        return None

    def _reference(self, place: Place) -> Reference:
        return _reference_to(self._gangs[place].open(EMPTY_SNAPSHOT))

    def plans(self) -> Iterator[Planned]:
        """Yield every gang with its plan, recomputed only after changes of the gang, its namespace or the policies.

        A gang that cannot be read in full is left out, and its PodGroup is kept; the audit reports it.
        """
        in_force = self._state.in_force
        groups: list[tuple[object, list[_StoredGang]]] = [
            (place, [gang]) for place, gang in self._gangs.items() if gang.joins is None
        ]
        groups += [(group, [self._gangs[place] for place in sorted(places)]) for group, places in self._joined.items()]
        for key, gangs in groups:
            with suppress(MalformedError):
                yield self._planned(key, gangs, in_force)

    def _planned(self, key: object, gangs: list[_StoredGang], in_force: InForce) -> Planned:
        snapshot, policies = in_force
        labels = snapshot.namespace_labels(gangs[0].namespace)
        # An exemption ends without any change of objects: recompute the plan every hour.
        now = self._wall()
        sources = (policies.policies, tuple(sorted(labels.items())), int(now // _HOUR), *gangs)
        memo = self._memos.get(key)
        if memo is None or memo[0] != sources:
            workloads = [gang.open(snapshot) for gang in gangs]
            planned = _plan(workloads, policies.bind(labels, workloads[0].labels()), now, joined=gangs[0].joins is not None)
            memo = self._memos[key] = (sources, planned)
        return memo[1]


def _plan(workloads: list[Workload], bound: Sequence[BoundRule], now: float, *, joined: bool) -> Planned:
    first = workloads[0]
    named = {key for workload in workloads for pods in workload.pod_sets if (key := group_of(pods)) is not None}
    rule = bound_without_exemption(first, bound, GANG.id, now)
    plan = plan_together(workloads, rule) if joined else plan_of_one(first, rule)
    return Planned(_reference_to(first), plan, frozenset(named))


def _reference_to(workload: Workload) -> Reference:
    root = workload.root
    uid = str(workload.metadata().get("uid") or "")
    return Reference(str(root.get("apiVersion")), str(root.get("kind")), workload.namespace, workload.name, uid)


def _stored(kind: WorkloadKind, item: Object) -> _StoredGang | None:
    workload = open_workload(kind, item, EMPTY_SNAPSHOT)
    if not workload.is_pod():
        # A workload that is no gang any more may still name a group that waits for its old size.
        is_gang = pods_at_once(workload) is not None or any(group_of(pods) is not None for pods in workload.pod_sets)
        return _StoredGang(kind, workload.namespace, _text(item), None) if is_gang else None
    key = group_of(workload.pod_sets[0]) if workload.controller() is None else None
    return None if key is None else _StoredGang(kind, workload.namespace, _text(item), (workload.namespace, key))


def _text(item: dict[str, Any]) -> bytes:
    """Return ``item`` as JSON without fields that change often and do not matter to gangs."""
    metadata = {key: value for key, value in item["metadata"].items() if key not in {"managedFields", "resourceVersion"}}
    return orjson.dumps({**item, "metadata": metadata})
