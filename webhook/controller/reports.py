"""Reports in the cluster: one for each namespace, written where it differs, taken away with its last workload."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import orjson

from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.output.policy_reports import (
    LABELS,
    LEFT_OUT,
    NAME,
    OPEN_REPORT,
    POLICY_REPORT,
    SELECTOR,
    ReportKind,
    reports_of,
)
from gpugate.webhook.controller.audit_loop import AuditLoop
from gpugate.webhook.kube.types import CONFLICT, NOT_FOUND, ApiError, ClusterError, EventType, WatchedKind
from gpugate.webhook.runtime.log import Log

JsonObject: TypeAlias = dict[str, Any]

#: The kinds of reports, the one that is written where both are installed first.
REPORT_KINDS: Final = {
    kind: WatchedKind(
        kind.kind,
        kind.api_version.partition("/")[0],
        (kind.api_version.partition("/")[2],),
        kind.plural,
        label_selector=SELECTOR,
        resource=f"{kind.plural}.{kind.api_version.partition('/')[0]}",
    )
    for kind in (OPEN_REPORT, POLICY_REPORT)
}
#: Statuses of a namespace or kind that has just gone, and of what another has just written: the next look knows.
_PASSING: Final = frozenset({NOT_FOUND, CONFLICT})
#: What the apiserver says, with 403, of a namespace or kind that is being deleted; of missing rights it says something else.
_ENDING: Final = ("because it is being terminated", "definition is terminating")
#: Seconds after a look that could not write all, doubled with each after it; never less than between any two looks.
_SHORTEST_BREAK: Final = 1.0
_LONGEST_BREAK: Final = 60.0


class Stored(NamedTuple):
    """A report as it is in the cluster.

    Attributes:
        namespace: its namespace.
        name: its name.
        uid: its uid.
        version: its resourceVersion.
        digest: what it says, as a hash.
    """

    namespace: str
    name: str
    uid: str
    version: str
    digest: bytes


def stored_of(item: JsonObject) -> Stored:
    """What is kept of a report that the cluster has."""
    metadata = item["metadata"]
    namespace, uid, version = (str(metadata.get(key) or "") for key in ("namespace", "uid", "resourceVersion"))
    return Stored(namespace, str(metadata["name"]), uid, version, digest_of(item))


def digest_of(report: JsonObject) -> bytes:
    """A hash of all that gpugate writes into a report."""
    metadata = report.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    said = [
        {key: labels.get(key) for key in LABELS},
        annotations.get(LEFT_OUT),
        report.get("source"),
        report.get("summary"),
        report.get("results"),
    ]
    return hashlib.blake2b(orjson.dumps(said, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


class ReportStore:
    """A sink with gpugate's reports of one kind.

    Attributes:
        served: whether the cluster serves the kind; None while that is not known.
        reports: the reports by namespace and name.
        stirred: set whenever one of the two has changed.
    """

    def __init__(self, stirred: asyncio.Event) -> None:
        self.served: bool | None = None
        self.reports: dict[tuple[str, str], Stored] = {}
        self.stirred = stirred

    def replaced(self, _kind: WatchedKind, objects: Sequence[Stored], /) -> None:
        """Take a full list."""
        self.served = True
        self.stirred.set()
        self.reports = {(one.namespace, one.name): one for one in objects}

    def changed(self, _kind: WatchedKind, event_type: EventType, item: Stored, /) -> None:
        """Take one event."""
        self.stirred.set()
        if event_type == "DELETED":
            self.reports.pop((item.namespace, item.name), None)
        else:
            self.reports[(item.namespace, item.name)] = item

    def absent(self, _kind: WatchedKind, /) -> None:
        """Take that the cluster does not serve the kind."""
        self.stirred.set()
        self.served = False
        self.reports = {}


class ReportApi(Protocol):
    """What a keeper of reports needs of an apiserver."""

    async def get(self, path: str) -> JsonObject:
        """Return the object at ``path``."""

    async def create(self, path: str, item: JsonObject) -> JsonObject:
        """Create an object in the collection at ``path``."""

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """Merge ``patch`` into the object at ``path``."""

    async def delete(self, path: str, *, uid: str = "") -> None:
        """Delete the object at ``path``."""


class Written(NamedTuple):
    """What a keeper has done since it was made.

    Attributes:
        created: reports made.
        updated: reports changed.
        deleted: reports taken away.
        bytes: bytes of JSON sent.
        failed: calls that were refused or lost.
    """

    created: int = 0
    updated: int = 0
    deleted: int = 0
    bytes: int = 0
    failed: int = 0


class ReportReconciler:
    """Writes what an audit found into the cluster's reports.

    Attributes:
        written: what was done so far.
    """

    def __init__(
        self,
        client: ReportApi,
        report_stores: Mapping[ReportKind, ReportStore],
        log: Log,
        *,
        pause: float = 0.02,
        spacing: float = 5.0,
    ) -> None:
        """Prepare a reconciler.

        Args:
            client: the apiserver.
            report_stores: the reports that exist, by kind.
            log: where failures are told.
            pause: what it waits after each call that writes, in seconds.
            spacing: what it waits after a look at all of them, in seconds: a report that changes all the time is written so often.
        """
        self.written = Written()
        self._client = client
        self._report_stores = report_stores
        self._log = log
        self._pause = pause
        self._spacing = spacing
        #: What was sent by namespace, and what the cluster made of it: an older CRD may not take every field.
        self._taken: dict[tuple[ReportKind, str], tuple[bytes, bytes]] = {}
        #: Reports of somebody else that bear the name, by uid, of which the log was told.
        self._told: set[str] = set()
        #: What was told of a namespace whose report could not be written or taken away.
        self._failing: dict[str, str] = {}

    async def run(self, rounds: AuditLoop) -> None:
        """Follow the audits until cancelled."""
        number, broken = -1, 0
        stirred = next(iter(self._report_stores.values())).stirred
        while True:
            # What was not taken is tried again though nothing changes: the next audit may be minutes away.
            again = min(_LONGEST_BREAK, max(self._spacing, _SHORTEST_BREAK) * 2.0 ** min(broken - 1, 16)) if broken else None
            await _either(rounds, number, stirred, again)
            number, failed = rounds.done, self.written.failed
            stirred.clear()
            if rounds.latest is not None:
                await self.keep(rounds.latest)
            broken = broken + 1 if self.written.failed > failed else 0
            await asyncio.sleep(self._spacing)

    @property
    def kind(self) -> ReportKind | None:
        """The kind that is written: the first that the cluster serves; None where it serves none, or that is not known yet."""
        if any(shelf.served is None for shelf in self._report_stores.values()):
            return None
        return next((kind for kind, shelf in self._report_stores.items() if shelf.served), None)

    async def keep(self, audit: Audit) -> None:
        """Make the reports say what ``audit`` found; what cannot be written now is counted, and left to the next call."""
        kind = self.kind
        if kind is None:
            return
        wanted = {one["metadata"]["namespace"]: one for one in reports_of(audit.workloads, kind)}
        self._taken = {(of, namespace): taken for (of, namespace), taken in self._taken.items() if namespace in wanted}
        shelf = self._report_stores[kind].reports
        for namespace, report in wanted.items():
            before = shelf.get((namespace, NAME))
            digest = digest_of(report)
            if before is None or (before.digest != digest and (digest, before.digest) != self._taken.get((kind, namespace))):
                await self._write(kind, report, before)
        for other, found in self._report_stores.items():
            for one in list(found.reports.values()):
                if other is not kind or one.name != NAME or one.namespace not in wanted:
                    await self._delete(other, one)
        here = wanted.keys() | {one.namespace for found in self._report_stores.values() for one in found.reports.values()}
        self._failing = {namespace: told for namespace, told in self._failing.items() if namespace in here}

    async def _write(self, kind: ReportKind, report: JsonObject, before: Stored | None) -> None:
        namespace = report["metadata"]["namespace"]
        collection = kind.collection(namespace)
        size = len(orjson.dumps(report))

        async def write() -> Written:
            if before is None:
                try:
                    self._took(kind, report, await self._client.create(collection, report))
                except ApiError as error:
                    if error.status == CONFLICT:
                        await self._look_at(kind, namespace)
                    raise
                return Written(created=1, bytes=size)
            # A merge patch gives the lists whole, and takes off the annotation where nothing is left out any more.
            annotations = {LEFT_OUT: None, **report["metadata"].get("annotations", {})}
            # The version holds off a leader that was and does not know it yet: what another wrote since is newer.
            held = {"uid": before.uid, "resourceVersion": before.version}
            patch = {**report, "metadata": {**held, "labels": report["metadata"]["labels"], "annotations": annotations}}
            self._took(kind, report, await self._client.patch(f"{collection}/{NAME}", patch))
            return Written(updated=1, bytes=size)

        await self._try(write, "report not written", namespace)

    async def _look_at(self, kind: ReportKind, namespace: str) -> None:
        """See whose the report is that has the name: this one's, which its watch is yet to show, or somebody else's."""
        found = await self._client.get(f"{kind.collection(namespace)}/{NAME}")
        stored = stored_of(found)
        labels = found["metadata"].get("labels") or {}
        if all(labels.get(key) == value for key, value in LABELS.items()):
            self._report_stores[kind].reports[(namespace, NAME)] = stored
        elif stored.uid not in self._told:
            self._told.add(stored.uid)
            self._log.warning(
                "the report's name is taken",
                namespace=namespace,
                error=f"{kind.kind} {namespace}/{NAME} is not gpugate's, since it lacks the label {SELECTOR}, and is left alone:"
                " this namespace has no report of gpugate's until you delete it",
            )

    def _took(self, kind: ReportKind, sent: JsonObject, stored: JsonObject) -> None:
        """Keep what the cluster has now, which its watch shows a moment later."""
        found = stored_of(stored)
        self._taken[(kind, found.namespace)] = (digest_of(sent), found.digest)
        self._report_stores[kind].reports[(found.namespace, found.name)] = found

    async def _delete(self, kind: ReportKind, one: Stored) -> None:
        async def delete() -> Written:
            await self._client.delete(f"{kind.collection(one.namespace)}/{one.name}", uid=one.uid)
            # As its watch shows a moment later.
            self._report_stores[kind].reports.pop((one.namespace, one.name), None)
            return Written(deleted=1)

        await self._try(delete, "report not taken away", one.namespace)

    async def _try(self, call: Callable[[], Any], problem: str, namespace: str) -> None:
        try:
            done: Written = await call()
        except ClusterError as error:
            done = Written(failed=1)
            passing = isinstance(error, ApiError) and (error.status in _PASSING or any(words in error.message for words in _ENDING))
            # It is tried again and again, and told once.
            if not passing and self._failing.get(namespace) != str(error):
                self._failing[namespace] = str(error)
                self._log.warning(problem, namespace=namespace, error=str(error))
        else:
            self._failing.pop(namespace, None)
        self.written = Written(*map(sum, zip(self.written, done, strict=True)))
        await asyncio.sleep(self._pause)


async def _either(rounds: AuditLoop, number: int, stirred: asyncio.Event, seconds: float | None) -> None:
    """Wait for another round than ``number``, or for a change of the reports themselves; ``seconds`` at the most."""
    waiting = [asyncio.ensure_future(rounds.after(number)), asyncio.ensure_future(stirred.wait())]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


def report_stores(kinds: Iterable[ReportKind] = REPORT_KINDS) -> dict[ReportKind, ReportStore]:
    """An empty shelf for each kind of report."""
    stirred = asyncio.Event()
    return {kind: ReportStore(stirred) for kind in kinds}
