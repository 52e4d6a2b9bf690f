"""Write the reports of the cluster: one for each namespace, updated on differences, deleted with its last workload."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

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
from gpugate.webhook.controller.leader_election import LeaderOnlyClient
from gpugate.webhook.kube.errors import CONFLICT, NOT_FOUND, ApiError, ClusterError
from gpugate.webhook.kube.types import EventType, JsonObject, WatchedKind
from gpugate.webhook.runtime.log import Log

#: The kinds of reports; the first served one is written.
REPORT_KINDS: Final = {
    kind: WatchedKind(kind.kind, group, (version,), kind.plural, label_selector=SELECTOR, resource=f"{kind.plural}.{group}")
    for kind in (OPEN_REPORT, POLICY_REPORT)
    for group, _, version in (kind.api_version.partition("/"),)
}
#: Transient error statuses: a namespace or kind was just deleted, or another controller wrote.
_TRANSIENT: Final = frozenset({NOT_FOUND, CONFLICT})
#: Messages of a 403 about a namespace or kind that is being deleted, unlike missing rights.
_ENDING: Final = ("because it is being terminated", "definition is terminating")
#: Seconds after failed writes, doubled with each further failure; at least the normal interval.
_SHORTEST_BREAK: Final = 1.0
_LONGEST_BREAK: Final = 60.0


class Stored(NamedTuple):
    """A report in the cluster, with its resourceVersion and a hash of its content."""

    namespace: str
    name: str
    uid: str
    version: str
    digest: bytes


def stored_of(item: JsonObject) -> Stored:
    """Reduce a report of the cluster to what is kept."""
    metadata = item["metadata"]
    namespace, name, uid, version = (str(metadata.get(key) or "") for key in ("namespace", "name", "uid", "resourceVersion"))
    return Stored(namespace, name, uid, version, digest_of(item))


def digest_of(report: JsonObject) -> bytes:
    """Hash the fields of a report that gpugate writes."""
    metadata = report.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    written = [
        {key: labels.get(key) for key in LABELS},
        annotations.get(LEFT_OUT),
        report.get("source"),
        report.get("summary"),
        report.get("results"),
    ]
    return hashlib.blake2b(orjson.dumps(written, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


class ReportStore:
    """A sink with gpugate's reports of one kind; ``served`` is None until that is known."""

    def __init__(self, updated: asyncio.Event) -> None:
        self.served: bool | None = None
        self.reports: dict[tuple[str, str], Stored] = {}
        self.updated = updated

    def replaced(self, _kind: WatchedKind, objects: Sequence[Stored], /) -> None:
        """Take a full list."""
        self.served = True
        self.updated.set()
        self.reports = {(report.namespace, report.name): report for report in objects}

    def changed(self, _kind: WatchedKind, event_type: EventType, item: Stored, /) -> None:
        """Take one event."""
        self.updated.set()
        if event_type == "DELETED":
            self.reports.pop((item.namespace, item.name), None)
        else:
            self.reports[(item.namespace, item.name)] = item

    def absent(self, _kind: WatchedKind, /) -> None:
        """Forget all reports: the cluster does not serve the kind."""
        self.updated.set()
        self.served = False
        self.reports = {}


class ReportReconciler:
    """Writes the results of audits into the cluster's reports; ``written`` counts calls by action, and the bytes of JSON sent."""

    def __init__(
        self,
        client: LeaderOnlyClient,
        report_stores: Mapping[ReportKind, ReportStore],
        log: Log,
        *,
        pause: float = 0.02,
        spacing: float = 5.0,
    ) -> None:
        """Prepare a reconciler that waits ``pause`` seconds after each write and ``spacing`` seconds after each reconciliation."""
        self.written: Counter[str] = Counter()
        self._client = client
        self._report_stores = report_stores
        self._log = log
        self._pause = pause
        self._spacing = spacing
        #: Digests of the sent and the stored report by namespace: an older CRD may drop fields.
        self._digests: dict[tuple[ReportKind, str], tuple[bytes, bytes]] = {}
        #: Logged reports of other owners with the name, by uid.
        self._reported: set[str] = set()
        #: Last logged error by namespace.
        self._failing: dict[str, str] = {}

    async def run(self, audit_loop: AuditLoop) -> None:
        """Reconcile after each audit until cancelled."""
        number, failures = -1, 0
        updated = next(iter(self._report_stores.values())).updated
        while True:
            # Retry failed writes without a change: the next audit may be minutes away.
            retry = min(_LONGEST_BREAK, max(self._spacing, _SHORTEST_BREAK) * 2.0 ** min(failures - 1, 16)) if failures else None
            await _wait_for_change(audit_loop, number, updated, retry)
            number, failed = audit_loop.done, self.written["failed"]
            updated.clear()
            if audit_loop.latest is not None:
                await self.reconcile(audit_loop.latest)
            failures = failures + 1 if self.written["failed"] > failed else 0
            await asyncio.sleep(self._spacing)

    @property
    def kind(self) -> ReportKind | None:
        """Return the kind to write: the first served one; None if none is served or that is unknown."""
        if any(report_store.served is None for report_store in self._report_stores.values()):
            return None
        return next((kind for kind, report_store in self._report_stores.items() if report_store.served), None)

    async def reconcile(self, audit: Audit) -> None:
        """Make the reports match ``audit``; failed writes are counted and retried by the next call."""
        kind = self.kind
        if kind is None:
            return
        reports = {report["metadata"]["namespace"]: report for report in reports_of(audit.workloads, kind)}
        self._digests = {key: digests for key, digests in self._digests.items() if key[1] in reports}
        for namespace, report in reports.items():
            before = self._report_stores[kind].reports.get((namespace, NAME))
            digest = digest_of(report)
            if before is None or (before.digest != digest and (digest, before.digest) != self._digests.get((kind, namespace))):
                await self._write(kind, report, before)
        for other, store in self._report_stores.items():
            for stored in list(store.reports.values()):
                if other is not kind or stored.name != NAME or stored.namespace not in reports:
                    await self._delete(other, stored)
        present = reports.keys() | {stored.namespace for store in self._report_stores.values() for stored in store.reports.values()}
        self._failing = {namespace: error for namespace, error in self._failing.items() if namespace in present}

    async def _write(self, kind: ReportKind, report: JsonObject, before: Stored | None) -> None:
        namespace = report["metadata"]["namespace"]
        collection = kind.collection(namespace)

        async def write() -> None:
            if before is None:
                try:
                    self._remember(kind, report, await self._client.create(collection, report))
                except ApiError as error:
                    if error.status == CONFLICT:
                        await self._adopt_or_report(kind, namespace)
                    raise
                self.written.update(created=1, bytes=len(orjson.dumps(report)))
                return
            # A merge patch replaces whole lists, and removes the annotation if nothing is left out any more.
            annotations = {LEFT_OUT: None, **report["metadata"].get("annotations", {})}
            # The resourceVersion stops a former leader that still writes.
            metadata = {"uid": before.uid, "resourceVersion": before.version, "labels": report["metadata"]["labels"]}
            patch = {**report, "metadata": {**metadata, "annotations": annotations}}
            self._remember(kind, report, await self._client.patch(f"{collection}/{NAME}", patch))
            self.written.update(updated=1, bytes=len(orjson.dumps(report)))

        await self._try(write, "cannot write report", namespace)

    async def _adopt_or_report(self, kind: ReportKind, namespace: str) -> None:
        """Check the owner of a report with the name: adopt gpugate's own, and log another owner's."""
        answer = await self._client.get(f"{kind.collection(namespace)}/{NAME}")
        stored = stored_of(answer)
        labels = answer["metadata"].get("labels") or {}
        if all(labels.get(key) == value for key, value in LABELS.items()):
            self._report_stores[kind].reports[(namespace, NAME)] = stored
        elif stored.uid not in self._reported:
            self._reported.add(stored.uid)
            self._log.warning(
                "another owner has a report of this name",
                namespace=namespace,
                error=f"{kind.kind} {namespace}/{NAME} has no label {SELECTOR}, so gpugate does not own it and does not change it:"
                " the namespace has no report of gpugate until you delete it",
            )

    def _remember(self, kind: ReportKind, sent: JsonObject, stored: JsonObject) -> None:
        """Store what the cluster has now, before the watch shows it."""
        report = stored_of(stored)
        self._digests[(kind, report.namespace)] = (digest_of(sent), report.digest)
        self._report_stores[kind].reports[(report.namespace, report.name)] = report

    async def _delete(self, kind: ReportKind, report: Stored) -> None:
        async def delete() -> None:
            await self._client.delete(f"{kind.collection(report.namespace)}/{report.name}", uid=report.uid)
            self._report_stores[kind].reports.pop((report.namespace, report.name), None)
            self.written["deleted"] += 1

        await self._try(delete, "cannot delete report", report.namespace)

    async def _try(self, call: Callable[[], Awaitable[None]], problem: str, namespace: str) -> None:
        try:
            await call()
        except ClusterError as error:
            self.written["failed"] += 1
            transient = isinstance(error, ApiError) and (
                error.status in _TRANSIENT or any(words in error.message for words in _ENDING)
            )
            # Log each error once.
            if not transient and self._failing.get(namespace) != str(error):
                self._failing[namespace] = str(error)
                self._log.warning(problem, namespace=namespace, error=str(error))
        else:
            self._failing.pop(namespace, None)
        await asyncio.sleep(self._pause)


async def _wait_for_change(audit_loop: AuditLoop, number: int, updated: asyncio.Event, seconds: float | None) -> None:
    """Wait for a round after ``number``, or for a change of the reports; at most ``seconds``."""
    waiting = [asyncio.ensure_future(audit_loop.after(number)), asyncio.ensure_future(updated.wait())]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def report_stores(kinds: Iterable[ReportKind] = REPORT_KINDS) -> dict[ReportKind, ReportStore]:
    """Return an empty store for each kind of report."""
    updated = asyncio.Event()
    return {kind: ReportStore(updated) for kind in kinds}
