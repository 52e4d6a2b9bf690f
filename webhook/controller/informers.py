"""Feed watched objects to the controller: workloads into the audit index, pods into the snapshot as well."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpugate.policies.cluster.builder import key_of
from gpugate.policies.cluster.gpu_usage import Place
from gpugate.policies.kube.fields import MalformedError
from gpugate.webhook.audit.index import WorkloadIndex
from gpugate.webhook.audit.subjects import Subject, describe, subject_of, trim
from gpugate.webhook.kube.types import EventType, JsonObject, Sink, Strip, WatchedKind

Listener = Callable[[Place, Subject | None], None]
"""Called with every workload that is added, changed or deleted (None)."""


class ObservedWorkload(NamedTuple):
    """A watched workload, reduced; the subject is a text if unreadable, None if the audit does not need it."""

    place: Place
    subject: Subject | str | None


def observe_workload(item: JsonObject) -> ObservedWorkload:
    """Reduce a workload to what the audit keeps."""
    namespace, name = key_of(item)
    place = (str(item.get("apiVersion")).rpartition("/")[0], str(item.get("kind")), namespace, name)
    try:
        subject = subject_of(item)
    except MalformedError as error:
        return ObservedWorkload(place, f"{describe(item)} cannot be read: {error}")
    return ObservedWorkload(place, None if subject is None else trim(subject))


class WorkloadInformer:
    """A sink that maintains the audit index; ``updated`` is set after every change."""

    def __init__(self) -> None:
        self.index = WorkloadIndex()
        self.updated = asyncio.Event()
        self.listeners: list[Listener] = []

    def replaced(self, kind: WatchedKind, objects: Sequence[ObservedWorkload], /) -> None:
        """Take a full list of one kind."""
        listed = {workload.place for workload in objects}
        for place in self.index.places():
            if place[:2] == (kind.group, kind.name) and place not in listed:
                self._put(place, None)
        for workload in objects:
            self._put(workload.place, workload.subject)

    def changed(self, _kind: WatchedKind, event_type: EventType, item: ObservedWorkload, /) -> None:
        """Take one event."""
        self._put(item.place, None if event_type == "DELETED" else item.subject)

    def absent(self, kind: WatchedKind, /) -> None:
        """Forget a kind that the cluster does not serve."""
        self.replaced(kind, ())

    def _put(self, place: Place, subject: Subject | str | None) -> None:
        if not self.index.put(place, subject):
            return
        self.updated.set()
        for listener in self.listeners:
            listener(place, subject if isinstance(subject, Subject) else None)


class Tee:
    """A sink for two sinks, so that a kind that both need is watched once."""

    def __init__(self, first: Sink, first_kind: WatchedKind, second: Sink, second_kind: WatchedKind) -> None:
        self._sinks = ((first, first_kind), (second, second_kind))

    def replaced(self, _kind: WatchedKind, objects: Sequence[tuple[object, object]], /) -> None:
        """Take a full list."""
        for (sink, kind), part in zip(self._sinks, zip(*objects, strict=True) if objects else ((), ()), strict=True):
            sink.replaced(kind, part)

    def changed(self, _kind: WatchedKind, event_type: EventType, item: tuple[object, object], /) -> None:
        """Take one event."""
        for (sink, kind), part in zip(self._sinks, item, strict=True):
            sink.changed(kind, event_type, part)

    def absent(self, _kind: WatchedKind, /) -> None:
        """Forget the kind."""
        for sink, kind in self._sinks:
            sink.absent(kind)


def strip_for_both(first: Strip, second: Strip) -> Strip:
    """Return the strip function for :class:`Tee`."""
    return lambda item: (first(item), second(item))
