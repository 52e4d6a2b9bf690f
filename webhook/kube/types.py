"""Types of the Kubernetes client: kinds to watch, watch states, and the receiver of the objects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import quote

JsonObject: TypeAlias = dict[str, Any]
#: Reduces an object to a smaller object, or to a record of any type, for the sink.
Strip: TypeAlias = Callable[[JsonObject], Any]
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
WatchPhase: TypeAlias = Literal["pending", "synced", "absent", "forbidden", "failing"]


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """One kind to watch in the whole cluster.

    Attributes:
        name: such as ``ClusterQueue``; also the name in logs and metrics.
        versions: such as ``("v1beta2", "v1beta1")``; the first served one is read.
        plural: the resource in API paths.
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
        scope = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
        return f"{root}/{version}/{scope}{self.plural}"

    def type_in(self, version: str) -> JsonObject:
        """Return the apiVersion and kind of its objects: items of a list come without them."""
        return {"apiVersion": f"{self.group}/{version}" if self.group else version, "kind": self.name}


@dataclass(frozen=True, slots=True)
class KindState:
    """State of one reflector.

    Attributes:
        phase: in ``failing`` and ``forbidden`` the sink keeps the last known objects.
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
        """Return whether the kind was listed or found absent before, even if its watch fails now."""
        return self.last_sync_monotonic is not None

    def age(self, now: float) -> float | None:
        """Return the seconds from the last proof that the objects are current until `now`, on the reflector's clock.

        Proofs: an event, a bookmark, a finished list, absence found, or a watch that lasted its full time. None before the first.
        A kind without changes gets a bookmark every minute; if nothing at all changes in etcd, the end of its watch is the proof
        (`Backoff.watch`: after four minutes at most).
        """
        proofs = [at for at in (self.last_event_monotonic, self.last_sync_monotonic) if at is not None]
        return max(0.0, now - max(proofs)) if self.synced else None


class Sink(Protocol):
    """Receives the objects. Calls for one kind come one at a time and in order."""

    def replaced(self, kind: WatchedKind, objects: Sequence[Any], /) -> None:
        """Take a full list of `Strip` results; objects missing from it no longer exist."""

    def changed(self, kind: WatchedKind, event_type: EventType, item: Any, /) -> None:  # noqa: ANN401 - what `Strip` made
        """Take one event; events may repeat."""

    def absent(self, kind: WatchedKind, /) -> None:
        """Forget all objects: the cluster does not serve the kind."""
