"""Types of the Kubernetes client: kinds to watch, watch states, and the protocols of API and sink."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import quote

JsonObject: TypeAlias = dict[str, Any]
"""One decoded JSON object, as the apiserver sent it."""
Strip: TypeAlias = Callable[[JsonObject], Any]
"""Reduces an object to what the sink gets: a smaller object, or a record of any type."""
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
WatchPhase: TypeAlias = Literal["pending", "synced", "absent", "forbidden", "failing"]


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """One kind to follow in the whole cluster.

    Attributes:
        name: such as ``ClusterQueue``; also the name in logs and metrics.
        group: API group, empty for the core group.
        versions: such as ``("v1beta2", "v1beta1")``; the first served one is read.
        plural: the resource in API paths.
        field_selector: narrows list and watch; None selects all.
        label_selector: narrows list and watch; None selects all.
        resource: key in snapshots and rules; the plural by default.
    """

    name: str
    group: str
    versions: tuple[str, ...]
    plural: str
    field_selector: str | None = None
    label_selector: str | None = None
    resource: str = ""

    def __post_init__(self) -> None:
        """Default the resource to the plural."""
        if not self.resource:
            object.__setattr__(self, "resource", self.plural)

    def path(self, version: str, namespace: str = "") -> str:
        """Return the path of the collection in this version, of the whole cluster or of one namespace."""
        root = f"/apis/{self.group}" if self.group else "/api"
        within = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
        return f"{root}/{version}/{within}{self.plural}"

    def type_in(self, version: str) -> JsonObject:
        """Return the apiVersion and kind of its objects: items of a list come without them."""
        return {"apiVersion": f"{self.group}/{version}" if self.group else version, "kind": self.name}


@dataclass(frozen=True, slots=True)
class KindState:
    """State of one reflector.

    Attributes:
        kind: name of the kind.
        resource: key in snapshots and rules, see `WatchedKind`.
        phase: in ``failing`` and ``forbidden`` the sink keeps the last known objects.
        objects: number of objects in the sink.
        last_event_monotonic: clock in seconds at the last event, bookmark or timely end of a watch.
        last_sync_monotonic: clock in seconds when a list was finished or absence was last found.
        relists: lists finished after the first one.
        reconnects: watches resumed without a list.
        sink_errors: exceptions of the sink or the strip function.
        error: why the phase is ``failing`` or ``forbidden``.
    """

    kind: str
    resource: str
    phase: WatchPhase = "pending"
    objects: int = 0
    last_event_monotonic: float | None = None
    last_sync_monotonic: float | None = None
    relists: int = 0
    reconnects: int = 0
    sink_errors: int = 0
    error: str | None = None

    @property
    def synced(self) -> bool:
        """True once the kind was listed or is known to be absent, even if it fails since."""
        return self.last_sync_monotonic is not None

    def age(self, now: float) -> float | None:
        """Return the seconds from the last proof that the objects are current until `now`, on the reflector's clock.

        Proofs: an event, a bookmark, a finished list, absence found, or a watch that lasted its full time. None before the first.
        A quiet kind gets a bookmark every minute. If nothing at all changes in etcd there are none, and the end of its watch is
        the
        proof (`Backoff.watch`: after four minutes at most).
        """
        proofs = [at for at in (self.last_event_monotonic, self.last_sync_monotonic) if at is not None]
        return max(0.0, now - max(proofs)) if self.synced else None


class ListWatch(Protocol):
    """The reading part of an API client; `gpugate.webhook.kube.client.ApiClient` implements it."""

    async def get(self, path: str) -> JsonObject:
        """Return the object at `path`."""

    async def served(self, group: str, version: str, plural: str) -> bool:
        """Return whether the cluster serves the resource now."""

    async def list(
        self, path: str, *, limit: int, continue_: str | None, field_selector: str | None, label_selector: str | None
    ) -> JsonObject:
        """Return one page of a consistent, newest list; a limit of 0 means one page."""

    def watch(
        self,
        path: str,
        *,
        resource_version: str | None,
        timeout_seconds: int,
        field_selector: str | None,
        label_selector: str | None,
    ) -> AbstractAsyncContextManager[AsyncIterator[JsonObject]]:
        """Open a stream of events, all objects first where `resource_version` is None; ERROR events come as exceptions."""


class Sink(Protocol):
    """Receives the objects. Calls for one kind come one at a time and in order."""

    def replaced(self, kind: WatchedKind, objects: Sequence[Any], /) -> None:
        """Take a full list of `Strip` results; objects missing from it no longer exist."""

    def changed(self, kind: WatchedKind, event_type: EventType, item: Any, /) -> None:  # noqa: ANN401 - what `Strip` made
        """Take one event; events may repeat."""

    def absent(self, kind: WatchedKind, /) -> None:
        """Forget all objects: the cluster does not serve the kind."""
