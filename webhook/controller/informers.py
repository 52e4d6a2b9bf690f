"""What the controller is fed: workloads into the books of the audit, pods into the facts as well."""

from __future__ import annotations

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
"""Is told of every workload that comes, changes or goes (None)."""


class Seen(NamedTuple):
    """A workload as it comes off the wire.

    Attributes:
        place: where it stands in the books.
        subject: what is kept of it; a text where it cannot be read, None where it is none of the audit's business.
    """

    place: Place
    subject: Subject | str | None


def see(item: JsonObject) -> Seen:
    """A workload, reduced to what is kept of it."""
    namespace, name = key_of(item)
    place = (str(item.get("apiVersion")).rpartition("/")[0], str(item.get("kind")), namespace, name)
    try:
        found = subject_of(item)
    except MalformedError as error:
        return Seen(place, f"{describe(item)} cannot be read: {error}")
    return Seen(place, None if found is None else trim(found))


class WorkloadInformer:
    """A sink that keeps the books of the audit.

    Attributes:
        books: the books.
        stirred: set whenever something in them has changed.
        listeners: who is told of every change.
    """

    def __init__(self) -> None:
        self.books = WorkloadIndex()
        self.stirred = asyncio.Event()
        self.listeners: list[Listener] = []

    def replaced(self, kind: WatchedKind, objects: Sequence[Seen], /) -> None:
        """Take a full list of one kind."""
        kept = {one.place for one in objects}
        for place in self.books.places():
            if place[:2] == (kind.group, kind.name) and place not in kept:
                self._put(place, None)
        for one in objects:
            self._put(one.place, one.subject)

    def changed(self, _kind: WatchedKind, event_type: EventType, item: Seen, /) -> None:
        """Take one event."""
        self._put(item.place, None if event_type == "DELETED" else item.subject)

    def absent(self, kind: WatchedKind, /) -> None:
        """Forget a kind that the cluster does not serve."""
        self.replaced(kind, ())

    def _put(self, place: Place, subject: Subject | str | None) -> None:
        if not self.books.put(place, subject):
            return
        self.stirred.set()
        for listener in self.listeners:
            listener(place, subject if isinstance(subject, Subject) else None)


class Both(NamedTuple):
    """One object for two sinks."""

    first: object
    second: object


class Tee:
    """A sink that feeds two, so that a kind which both want is read once."""

    def __init__(self, first: Sink, first_kind: WatchedKind, second: Sink, second_kind: WatchedKind) -> None:
        self._sinks = ((first, first_kind), (second, second_kind))

    def replaced(self, _kind: WatchedKind, objects: Sequence[Both], /) -> None:
        """Take a full list."""
        for (sink, kind), part in zip(self._sinks, zip(*objects, strict=True) if objects else ((), ()), strict=True):
            sink.replaced(kind, part)

    def changed(self, _kind: WatchedKind, event_type: EventType, item: Both, /) -> None:
        """Take one event."""
        for (sink, kind), part in zip(self._sinks, item, strict=True):
            sink.changed(kind, event_type, part)

    def absent(self, _kind: WatchedKind, /) -> None:
        """Forget the kind."""
        for sink, kind in self._sinks:
            sink.absent(kind)


def strip_for_both(first: Strip, second: Strip) -> Strip:
    """What makes of an object what :class:`Tee` takes."""
    return lambda item: Both(first(item), second(item))
