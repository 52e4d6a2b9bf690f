"""Which of the objects that are there an audit looks at: the topmost that asks for accelerators or gets at them, once each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from gpugate.policies.cluster.gpu_usage import place_of
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.gangs.status import is_over
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.kube.managers import LAST_APPLIED, applied_in_short, managed_in_short
from gpugate.policies.workloads.device_access import asks_somehow, goes_to_reserved_nodes, may_access_devices, takes_devices
from gpugate.policies.workloads.kinds import WorkloadKind, kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.workload import Workload

JsonObject: TypeAlias = dict[str, Any]

#: What the mirror of a static pod is owned by: it came from a file there, and stands for itself.
_NODE: Final = ("v1", "Node")
#: What is kept of a pod's status: where it stands, and why it waits.
_POD_STATUS: Final = ("conditions", "phase", "startTime")


class ControllerRef(NamedTuple):
    """The controller that made an object."""

    api_version: str
    kind: str
    name: str
    uid: str


class Subject(NamedTuple):
    """An object as the audit keeps it.

    Attributes:
        kind: its entry in the table of kinds.
        namespace: its namespace.
        name: its name.
        uid: its uid; empty in a file that lacks it.
        owner: the controller that made it; None where somebody else did.
        asks: whether it asks for accelerators itself, or gets at them without asking, has not ended and is not being deleted.
        text: the object as JSON, without what no rule reads; empty where it does not ask, or is never judged itself.
        sort: of a pod that asks, what its containers ask for or take, as a hash: the pods of one owner may be of several sorts.
    """

    kind: WorkloadKind
    namespace: str
    name: str
    uid: str
    owner: ControllerRef | None
    asks: bool
    text: bytes
    sort: bytes = b""


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


def subject_of(item: JsonObject) -> Subject | None:
    """The object as kept; None where it is of a kind that gpugate does not read.

    Raises:
        MalformedError: a field that gpugate reads is of the wrong type.
    """
    kind = kind_of(str(item.get("apiVersion")), str(item.get("kind")))
    if kind is None:
        return None
    workload = open_workload(kind, item, EMPTY_SNAPSHOT)
    judged = may_ask(workload) or may_access_devices(workload)
    asks = judged and workload.metadata().get("deletionTimestamp") is None and not is_over(item)
    return Subject(
        kind,
        workload.namespace,
        workload.name or str(workload.metadata().get("generateName") or ""),
        str(workload.metadata().get("uid") or ""),
        _owner(workload),
        asks,
        _written(_kept(item, kind)) if asks else b"",
        _sort_of(workload) if asks and kind.is_pod else b"",
    )


def _sort_of(workload: Workload) -> bytes:
    amounts = [(one.limits, one.requests) for pods in workload.pod_sets for one in pods.containers]
    claims = [bool(pods.spec.get("resourceClaims")) for pods in workload.pod_sets]
    ways = [[takes_devices(pods), goes_to_reserved_nodes(pods)] for pods in workload.pod_sets]
    try:
        stated = orjson.dumps([amounts, claims, ways], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # nested without end; the whole object cannot be kept either
        return b""
    return hashlib.blake2b(stated, digest_size=8).digest()


def _written(kept: JsonObject) -> bytes:
    try:
        return orjson.dumps(kept)
    except orjson.JSONEncodeError as error:
        # What YAML and the apiserver may hold: objects within objects without end.
        culprit = next((key for key in kept if not _is_writable(kept[key])), "metadata")
        raise MalformedError((culprit,), f"cannot be kept as JSON: {error}") from None


def _is_writable(value: object) -> bool:
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return True


def trim(subject: Subject) -> Subject | None:
    """``subject`` as a long-lived program keeps it: no more than links to others where it is never judged itself.

    A pod whose owner is of a kind that gpugate reads is judged with that owner; one that neither asks nor links is left out.
    """
    if subject.kind.is_revision_of_owner and subject.owner is not None:
        return subject._replace(text=b"")
    if not subject.asks:
        return None
    owner = subject.owner
    if subject.kind.is_pod and owner is not None:
        known = kind_of(owner.api_version, owner.kind)
        # No controller is a pod: who names one is judged for itself.
        if known is not None and not known.is_pod and not known.is_revision_of_owner:
            return subject._replace(text=b"")
    return subject


def _owner(workload: Workload) -> ControllerRef | None:
    found = workload.controller()
    if found is None or (found.get("apiVersion"), found.get("kind")) == _NODE:
        return None
    return ControllerRef(*(str(found.get(key) or "") for key in ("apiVersion", "kind", "name", "uid")))


def may_ask(workload: Workload) -> bool:
    """Whether the object asks for what may be an accelerator, rightly spelt or not, as the webhooks' conditions see it."""
    return any(map(asks_somehow, workload.pod_sets))


def _kept(item: JsonObject, kind: WorkloadKind) -> JsonObject:
    """``item`` without what no rule reads: who set which field, and most of a pod's status."""
    metadata = dict(item.get("metadata") or {})
    if type(metadata.get("managedFields")) is list:
        metadata["managedFields"] = managed_in_short(metadata["managedFields"])
    if metadata.get("resourceVersion"):
        # That it is stored is all that a rule asks; the number changes with every word in its status.
        metadata["resourceVersion"] = "0"
    annotations = metadata.get("annotations")
    if type(annotations) is dict:
        applied = annotations.get(LAST_APPLIED)
        short = {LAST_APPLIED: applied_in_short(applied)} if type(applied) is str else {}
        metadata["annotations"] = {**annotations, **short}
    kept = {**item, "metadata": metadata}
    status = item.get("status")
    if kind.is_pod and type(status) is dict:
        kept["status"] = {key: status[key] for key in _POD_STATUS if key in status}
    return kept


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
        if owner is None or not one.kind.is_pod or family.maker(one) is not None:
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


def subjects_in(objects: Iterable[JsonObject]) -> Iterator[Subject | str]:
    """The subjects among plain objects; in place of one that cannot be read, a line that says so."""
    for item in objects:
        try:
            found = subject_of(item)
        except MalformedError as error:
            yield f"{describe(item)} cannot be read: {error}"
            continue
        if found is not None:
            yield found


def describe(item: JsonObject) -> str:
    """What an object is called where it cannot be read."""
    metadata = item.get("metadata")
    metadata = metadata if type(metadata) is dict else {}
    place = "/".join(str(metadata[key]) for key in ("namespace", "name") if isinstance(metadata.get(key), str))
    return f"{item.get('kind')!s:.60} {place:.300}".rstrip()
