"""One Kubernetes Event (``events.k8s.io/v1``) and its count.

Rules of the fields: Kubernetes ``pkg/apis/core/validation/events.go``.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from gpugate.webhook.kube.types import JsonObject

#: Limits of the API; bytes for the note, since Go counts bytes.
_LONGEST_NOTE: Final = 1024
_LONGEST_NAME: Final = 253
_DIGITS: Final = 16
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
#: Namespace of Events about cluster-scoped objects; the API allows only this one and kube-system.
_CLUSTER_NAMESPACE: Final = "default"

Kind: TypeAlias = Literal["Normal", "Warning"]


class Reference(NamedTuple):
    """The object that an Event is about.

    Attributes:
        namespace: of the object and its Event; empty for cluster-scoped objects, whose Events are in ``default``.
        uid: ``kubectl describe`` finds Events by it; empty if unknown.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


def about_namespace(name: str, uid: str = "") -> Reference:
    """Return a reference to the Namespace ``name``; Events about it are in that namespace, where its users may read them."""
    return Reference("v1", "Namespace", name, name, uid)


class Key(NamedTuple):
    """Identity of an Event: the same key again raises the count of the same Event."""

    regarding: Reference
    kind: Kind
    reason: str
    action: str
    note: str


@dataclass(slots=True)
class EventSeries:
    """One Event, and how often it occurred.

    Attributes:
        first: first occurrence, seconds of Unix time.
        last: last occurrence, seconds of Unix time.
        last_seen: last occurrence, on the monotonic clock of the limits.
        waits_since: start of waiting to be sent, on that clock.
        due: earliest time of the next count update, on that clock.
        updates: number of count updates sent.
        stored: whether the API has the Event.
    """

    key: Key
    name: str
    first: float
    last: float
    last_seen: float
    waits_since: float
    due: float = 0.0
    count: int = 1
    updates: int = 0
    stored: bool = False

    @property
    def collection(self) -> str:
        """Return the path of the Event's collection."""
        return f"/apis/events.k8s.io/v1/namespaces/{self._event_namespace}/events"

    @property
    def _event_namespace(self) -> str:
        return self.key.regarding.namespace or _CLUSTER_NAMESPACE

    def progress(self) -> JsonObject:
        """Return the ``series`` field of the Event."""
        return {"count": self.count, "lastObservedTime": _micro_time(self.last)}

    def event(self, component: str, instance: str) -> JsonObject:
        """Return the whole Event, reported by ``instance`` of ``component``."""
        key = self.key
        regarding = dict(zip(("apiVersion", "kind", "namespace", "name", "uid"), key.regarding, strict=True))
        event: JsonObject = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": self._event_namespace},
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
    """Return a unique Event name, from instance, time and key."""
    text = repr((instance, key, wall)).encode("utf-8", "replace")
    digest = hashlib.sha256(text).hexdigest()[:_DIGITS]
    stem = key.regarding.name[: _LONGEST_NAME - _DIGITS - 1].rstrip("-.")
    return f"{stem if _NAME.fullmatch(stem) else 'gpugate'}.{digest}"


def _micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def cut_bytes(text: str, longest: int = _LONGEST_NOTE) -> str:
    """Cut ``text`` to at most ``longest`` bytes of UTF-8, with dots for a missing end."""
    raw = text.encode("utf-8", "replace")
    return raw.decode() if len(raw) <= longest else raw[: longest - 3].decode("utf-8", "ignore") + "..."
