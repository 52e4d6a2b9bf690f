"""One Kubernetes Event (``events.k8s.io/v1``) and how often it was told.

Rules of the fields: Kubernetes ``pkg/apis/core/validation/events.go``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from gpugate.webhook.kube.types import JsonObject

#: What the API takes at the most; bytes for the note, since Go counts those.
_LONGEST_NOTE: Final = 1024
_LONGEST_NAME: Final = 253
_DIGITS: Final = 16
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
#: Where an Event about something without a namespace lives; the API allows it nowhere else but in kube-system.
_CLUSTER_NAMESPACE: Final = "default"

Kind: TypeAlias = Literal["Normal", "Warning"]


class Reference(NamedTuple):
    """What an Event is about.

    Attributes:
        api_version: of the object, ``group/version``.
        kind: of the object.
        namespace: where it is, and its Event with it; empty for what has no namespace: its Event lives in ``default``.
        name: of the object.
        uid: of the object; ``kubectl describe`` finds an Event by it. Empty where it is not known.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


def about_namespace(name: str, uid: str = "") -> Reference:
    """The Namespace ``name`` as the subject of an Event that lives in it, where those who work there may read it."""
    return Reference("v1", "Namespace", name, name, uid)


class Key(NamedTuple):
    """What an Event says of what: told again, it is the same Event."""

    regarding: Reference
    kind: Kind
    reason: str
    action: str
    note: str


@dataclass(slots=True)
class EventSeries:
    """One Event, and how often it was told.

    Attributes:
        key: what it says of what.
        name: the Event's own name.
        first: when it was told first, in seconds of Unix time.
        last: when it was told last, likewise.
        heard: when it was told last, on the clock of the limits.
        waits_since: since when something of it waits to be sent, on that clock.
        due: when its count may be sent again, on that clock.
        count: how often it was told.
        updates: how often its count was sent.
        stored: whether the API has it.
    """

    key: Key
    name: str
    first: float
    last: float
    heard: float
    waits_since: float
    due: float = 0.0
    count: int = 1
    updates: int = 0
    stored: bool = False

    @property
    def collection(self) -> str:
        """The path of the collection that it is in."""
        return f"/apis/events.k8s.io/v1/namespaces/{self._home}/events"

    @property
    def _home(self) -> str:
        return self.key.regarding.namespace or _CLUSTER_NAMESPACE

    def progress(self) -> JsonObject:
        """The ``series`` of the Event as it stands."""
        return {"count": self.count, "lastObservedTime": _micro_time(self.last)}

    def event(self, component: str, instance: str) -> JsonObject:
        """The whole Event, as ``component`` in its ``instance`` reports it."""
        key = self.key
        regarding = {
            "apiVersion": key.regarding.api_version,
            "kind": key.regarding.kind,
            "namespace": key.regarding.namespace,
            "name": key.regarding.name,
            "uid": key.regarding.uid,
        }
        event: JsonObject = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": self._home},
            "eventTime": _micro_time(self.first),
            "reportingController": component,
            "reportingInstance": instance,
            "action": key.action,
            "reason": key.reason,
            "regarding": {name: value for name, value in regarding.items() if value},
            "note": key.note,
            "type": key.kind,
        }
        if self.count > 1:
            event["series"] = self.progress()
        return event


def name_of(key: Key, instance: str, wall: float) -> str:
    """A name that no other Event has: of this instance, this moment, these words."""
    text = repr((instance, key, wall)).encode("utf-8", "replace")
    digest = hashlib.sha256(text).hexdigest()[:_DIGITS]
    stem = key.regarding.name[: _LONGEST_NAME - _DIGITS - 1].rstrip("-.")
    return f"{stem if _NAME.fullmatch(stem) else 'gpugate'}.{digest}"


def _micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def cut_bytes(text: str, longest: int = _LONGEST_NOTE) -> str:
    """``text`` in at most ``longest`` bytes of UTF-8, with dots where something is missing at its end."""
    raw = text.encode("utf-8", "replace")
    return raw.decode() if len(raw) <= longest else raw[: longest - 3].decode("utf-8", "ignore") + "..."
