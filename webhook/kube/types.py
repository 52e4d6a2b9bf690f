"""The cluster as gpugate reads it: a client for raw JSON and the watchers above it.

What the parts share stands here, free of any transport: the kinds to follow and how
following them goes, objects as they come off the wire, and the errors that a reader of
the cluster has to tell apart.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import quote

from gpugate.webhook.kube.decode import decode

JsonObject: TypeAlias = dict[str, Any]
"""One decoded JSON object, as the apiserver sent it."""
Strip: TypeAlias = Callable[[JsonObject], Any]
"""Makes of an object what the sink is given for it: a smaller object, or a record of any kind."""
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
WatchPhase: TypeAlias = Literal["pending", "synced", "absent", "forbidden", "failing"]

NOT_FOUND, CONFLICT, _GONE = 404, 409, 410


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """One kind to follow in the whole cluster.

    Attributes:
        name: such as ``ClusterQueue``; it also names the kind in logs and metrics.
        group: API group, empty for the core group.
        versions: such as ``("v1beta2", "v1beta1")``; the first one served is read.
        plural: the resource as in paths.
        field_selector: narrows list and watch; None takes all.
        label_selector: narrows list and watch; None takes all.
        resource: what facts and rules call it; the plural where it is left out.
    """

    name: str
    group: str
    versions: tuple[str, ...]
    plural: str
    field_selector: str | None = None
    label_selector: str | None = None
    resource: str = ""

    def __post_init__(self) -> None:
        """Name the resource by its plural where nothing else is said."""
        if not self.resource:
            object.__setattr__(self, "resource", self.plural)

    def path(self, version: str, namespace: str = "") -> str:
        """Return the path of the collection in this version, of the whole cluster or of one namespace."""
        root = f"/apis/{self.group}" if self.group else "/api"
        within = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
        return f"{root}/{version}/{within}{self.plural}"

    def type_in(self, version: str) -> JsonObject:
        """Return what objects of the kind say of their type: items of a list come without."""
        return {"apiVersion": f"{self.group}/{version}" if self.group else version, "kind": self.name}


@dataclass(frozen=True, slots=True)
class KindState:
    """What one reflector knows about itself.

    Attributes:
        kind: name of the kind.
        resource: what facts and rules call it, see `WatchedKind`.
        phase: ``failing`` and ``forbidden`` leave the sink with the last known objects.
        objects: how many the sink was given and not told to forget.
        last_event_monotonic: clock in seconds at the last event, bookmarks and a watch's end in due time included.
        last_sync_monotonic: clock in seconds when a list was finished or absence last found.
        relists: lists finished after the first one.
        reconnects: watches resumed without a list.
        sink_errors: calls that the sink, or the strip function, answered with an exception.
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

        A proof is an event, a bookmark, a finished list, absence found, or a watch that lasted as long as it was meant to.
        None before the first. A quiet kind has a bookmark every minute, or, while nothing at all moves in etcd, none: then
        the end of its watch proves it (`Backoff.watch`: after four minutes at the most).
        """
        proofs = [at for at in (self.last_event_monotonic, self.last_sync_monotonic) if at is not None]
        return max(0.0, now - max(proofs)) if self.synced else None


class ListWatch(Protocol):
    """The reading side of an apiserver; `gpugate.webhook.kube.client.ApiClient` is one."""

    async def get(self, path: str) -> JsonObject:
        """Return the object at `path`."""

    async def served(self, group: str, version: str, plural: str) -> bool:
        """Say whether the resource is served now."""

    async def list(
        self,
        path: str,
        *,
        limit: int,
        continue_: str | None,
        field_selector: str | None,
        label_selector: str | None,
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
    """Where the objects go. Calls for one kind come one at a time and in order."""

    def replaced(self, kind: WatchedKind, objects: Sequence[Any], /) -> None:
        """Take a full list of what `Strip` made: what it lacks is gone from the cluster."""

    def changed(self, kind: WatchedKind, event_type: EventType, item: Any, /) -> None:  # noqa: ANN401 - what `Strip` made
        """Take one event; it may repeat one."""

    def absent(self, kind: WatchedKind, /) -> None:
        """Forget all objects: the cluster does not serve the kind."""


class ClusterError(Exception):
    """Anything that went wrong while reading the cluster."""


class ClusterConfigError(ClusterError):
    """No usable way to the cluster is configured; the text names the file and the remedy."""


class ConnectionLostError(ClusterError):
    """The apiserver was not reached, stopped answering, or sent half an answer or no JSON."""


class ApiError(ClusterError):
    """The apiserver answered, and the answer is a refusal.

    Attributes:
        status: HTTP status code, or the code of a Status object inside a watch.
        reason: the machine-readable word, such as ``Forbidden``.
        message: the sentence meant for people.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        """Keep the three parts; the text of the error shows all of them."""
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        """Show all three parts in one line."""
        return f"{self.status} {self.reason}: {self.message}"


class NotServed(ApiError):  # noqa: N818 - a state of the cluster, not a fault
    """The apiserver does not know the kind: no such group, version or resource (404)."""


class Gone(ApiError):  # noqa: N818 - the apiserver's own word for it
    """The resourceVersion or continue token is too old to go on from (410)."""


def refusal(code: int, status: JsonObject) -> ApiError:
    """Return the error that a ``Status`` object of the apiserver stands for.

    Args:
        code: HTTP status code, or ``status.code`` where the object came inside a watch.
        status: the decoded object; missing fields are replaced.
    """
    # A missing object is answered with its name, a missing kind without one.
    named = (status.get("details") or {}).get("name")
    kinds = {_GONE: Gone, NOT_FOUND: ApiError if named else NotServed}
    reason = str(status.get("reason") or "Unknown")
    return kinds.get(code, ApiError)(code, reason, str(status.get("message") or "no message"))


def decoded(body: bytes) -> JsonObject:
    """Return the JSON object in `body`.

    Raises:
        ConnectionLostError: it is none; what stands between us and the apiserver answered.
    """
    try:
        found = decode(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        message = f"the answer is not a JSON object: {body[:80]!r}"
        raise ConnectionLostError(message)
    return found


async def events(chunks: AsyncIterable[bytes]) -> AsyncIterator[JsonObject]:
    """Cut a watch's byte stream, chunked anyhow, into its events: one per line.

    Raises:
        Gone: an ERROR event said that the resourceVersion is too old.
        ApiError: any other ERROR event.
        ConnectionLostError: a line is no JSON object, or the stream ended within one.
    """
    tail = b""
    async for chunk in chunks:
        *lines, tail = (tail + chunk).split(b"\n")
        for line in filter(bytes.strip, lines):
            event = decoded(line)
            if event.get("type") == "ERROR":
                status = event.get("object") or {}
                raise refusal(int(status.get("code") or 500), status)
            yield event
    if tail.strip():
        message = "the watch ended within an event"
        raise ConnectionLostError(message)
