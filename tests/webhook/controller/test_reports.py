"""The keeper of reports: makes, changes and takes away its own, writes nothing twice, leaves alone what is not its own."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest

from gpugate.webhook.audit.model import Audit, AuditedWorkload
from gpugate.webhook.audit.output.policy_reports import LABELS, LEFT_OUT, NAME, OPEN_REPORT, POLICY_REPORT, ReportKind
from gpugate.webhook.controller.reports import REPORT_KINDS, ReportReconciler, ReportStore, report_stores, stored_of
from gpugate.webhook.kube.errors import ApiError, ConnectionLostError
from gpugate.webhook.kube.types import JsonObject
from gpugate.webhook.runtime.log import Log
from tests.shared.audits import audit, item, workload

pytestmark = pytest.mark.asyncio
KINDS = (OPEN_REPORT, POLICY_REPORT)


class Reports:
    """An apiserver that keeps reports of both kinds, and shows them to a keeper's shelves when told to."""

    def __init__(self, *served: ReportKind, prunes: tuple[str, ...] = (), shows: bool = True) -> None:
        self.stored: dict[str, JsonObject] = {}
        self.calls: list[tuple[str, str]] = []
        self.errors: dict[str, Exception] = {}
        self.prunes = prunes
        self.shows = shows
        self.text = io.StringIO()
        self.log = Log(self.text)
        self._made = 0
        self.serve(*served or (POLICY_REPORT,))
        self.start()

    def serve(self, *served: ReportKind) -> None:
        self.served = served
        for path in [path for path in self.stored if not any(f"/{kind.plural}/" in path for kind in served)]:
            del self.stored[path]

    def start(self) -> None:
        """Another controller comes to lead, which knows what the cluster shows and nothing else."""
        self.shelves = report_stores()
        self.reports = ReportReconciler(self, self.shelves, self.log, pause=0.0, spacing=0.0)
        self.show()

    def show(self) -> None:
        """Let the watches show what is stored."""
        for kind, report_store in self.shelves.items():
            watched = REPORT_KINDS[kind]
            if kind in self.served:
                ones = [one for path, one in self.stored.items() if f"/{kind.plural}/" in path and self._is_ours(one)]
                report_store.replaced(watched, [stored_of(one) for one in ones])
            else:
                report_store.absent(watched)

    @staticmethod
    def _is_ours(one: JsonObject) -> bool:
        return LABELS.items() <= (one["metadata"].get("labels") or {}).items()

    def _called(self, verb: str, path: str) -> None:
        self.calls.append((verb, path))
        for part, error in self.errors.items():
            if part in path:
                raise error
        if not any(path.startswith(f"/apis/{kind.api_version}/") for kind in self.served):
            raise ApiError(404, "NotFound", "no such kind")

    def _keep(self, path: str, item: JsonObject) -> JsonObject:
        kept = {key: value for key, value in deepcopy(item).items() if key not in self.prunes}
        for result in kept.get("results", []):
            for field in self.prunes:
                result.pop(field, None)
        self.stored[path] = kept
        return deepcopy(kept)

    async def get(self, path: str) -> JsonObject:
        self._called("GET", path)
        if path not in self.stored:
            raise ApiError(404, "NotFound", "no such report")
        return deepcopy(self.stored[path])

    async def create(self, path: str, item: JsonObject) -> JsonObject:
        self._called("POST", path)
        full = f"{path}/{item['metadata']['name']}"
        if full in self.stored:
            raise ApiError(409, "AlreadyExists", "there is one")
        self._made += 1
        return self._keep(full, {**item, "metadata": {**item["metadata"], "uid": f"uid-{self._made}"}})

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        self._called("PATCH", path)
        if path not in self.stored:
            raise ApiError(404, "NotFound", "no such report")
        before = self.stored[path]
        if patch["metadata"]["uid"] != before["metadata"]["uid"]:
            raise ApiError(409, "Conflict", "another uid")
        return self._keep(path, merged(before, patch))

    async def delete(self, path: str, *, uid: str = "") -> None:
        self._called("DELETE", path)
        if path not in self.stored:
            raise ApiError(404, "NotFound", "no such report")
        if uid and uid != self.stored[path]["metadata"]["uid"]:
            raise ApiError(409, "Conflict", "another uid")
        del self.stored[path]

    async def reconcile(self, *workloads: AuditedWorkload) -> list[str]:
        """One look, after which the watches show what there is; says which verbs were called."""
        before = len(self.calls)
        await self.reports.reconcile(audit(*workloads))
        if self.shows:
            self.show()
        return [verb for verb, _ in self.calls[before:]]

    def report(self, namespace: str = "team-a", kind: ReportKind = POLICY_REPORT) -> JsonObject | None:
        return self.stored.get(f"{kind.collection(namespace)}/{NAME}")


def merged(before: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    made = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), value)
    return made


W = workload("w", item())


async def test_a_report_is_made_changed_and_taken_away_with_its_last_workload() -> None:
    reports = Reports()
    assert await reports.reconcile(W) == ["POST"]
    found = reports.report()
    assert found is not None
    assert len(found["results"]) == 1
    assert await reports.reconcile(W, workload("x", item())) == ["PATCH"]
    found = reports.report()
    assert found is not None
    assert len(found["results"]) == 2
    assert found["metadata"]["uid"] == "uid-1"
    assert await reports.reconcile(workload("x", item(), namespace="team-b")) == ["POST", "DELETE"]
    assert list(reports.stored) == [f"{POLICY_REPORT.collection('team-b')}/{NAME}"]
    assert [reports.reports.written[action] for action in ("created", "updated", "deleted")] == [2, 1, 1]
    assert reports.reports.written["failed"] == 0
    assert reports.reports.written["bytes"] > 1000


@pytest.mark.parametrize("shows", [True, False])
async def test_what_says_the_same_is_not_written_again_whether_or_not_the_watch_shows_it_yet(shows: bool) -> None:
    reports = Reports(shows=shows)
    await reports.reconcile(W)
    assert [await reports.reconcile(W) for _ in range(3)] == [[], [], []]
    await reports.reconcile(W, workload("x", item()))
    assert await reports.reconcile(W, workload("x", item())) == []


async def test_who_takes_over_writes_nothing_that_says_the_same() -> None:
    reports = Reports()
    await reports.reconcile(W)
    reports.start()
    assert await reports.reconcile(W) == []


@pytest.mark.parametrize("prunes", [("source",), ("properties", "scored"), ("category",)])
async def test_fields_that_an_older_kind_drops_cause_no_writes_without_end(prunes: tuple[str, ...]) -> None:
    reports = Reports(OPEN_REPORT, prunes=prunes)
    assert await reports.reconcile(W) == ["POST"]
    assert [await reports.reconcile(W) for _ in range(3)] == [[], [], []]
    reports.start()
    assert [await reports.reconcile(W) for _ in range(3)] == [["PATCH"], [], []], "once, since nobody knows what was sent"


async def test_what_somebody_else_makes_of_a_report_is_put_right() -> None:
    reports = Reports()
    await reports.reconcile(W)
    found = reports.report()
    assert found is not None
    found["results"] = []
    reports.show()
    assert await reports.reconcile(W) == ["PATCH"]
    found = reports.report()
    assert found is not None
    assert len(found["results"]) == 1
    del reports.stored[f"{POLICY_REPORT.collection('team-a')}/{NAME}"]
    reports.show()
    assert await reports.reconcile(W) == ["POST"]


async def test_the_note_of_what_was_left_out_goes_when_nothing_is() -> None:
    reports = Reports()
    await reports.reconcile(*(workload(f"w{at}", item(message="x" * 500)) for at in range(1000)))
    found = reports.report()
    assert found is not None
    assert int(found["metadata"]["annotations"][LEFT_OUT]) > 0
    await reports.reconcile(W)
    found = reports.report()
    assert found is not None
    assert found["metadata"].get("annotations", {}) == {}
    assert await reports.reconcile(W) == []


async def test_a_report_with_our_name_that_is_not_ours_is_left_alone_and_told_of_once() -> None:
    reports = Reports()
    path = f"{POLICY_REPORT.collection('team-a')}/{NAME}"
    foreign = {"metadata": {"name": NAME, "namespace": "team-a", "uid": "theirs"}, "results": []}
    reports.stored[path] = foreign
    reports.show()
    for _ in range(3):
        await reports.reconcile(W)
    await reports.reconcile()
    assert reports.stored == {path: foreign}
    assert {verb for verb, _ in reports.calls} == {"POST", "GET"}
    assert reports.reports.written["failed"] == 3
    reports.log.flush()
    assert reports.text.getvalue().count("gpugate does not own it") == 1


async def test_a_stray_report_with_our_label_is_taken_away() -> None:
    reports = Reports()
    path = f"{POLICY_REPORT.collection('team-a')}/gpugate-old"
    reports.stored[path] = {"metadata": {"name": "gpugate-old", "namespace": "team-a", "uid": "old", "labels": dict(LABELS)}}
    reports.show()
    assert await reports.reconcile(W) == ["POST", "DELETE"]
    assert list(reports.stored) == [f"{POLICY_REPORT.collection('team-a')}/{NAME}"]


async def test_a_report_that_was_made_anew_by_somebody_is_not_taken_away_by_mistake() -> None:
    reports = Reports()
    await reports.reconcile(W)
    reports.stored[f"{POLICY_REPORT.collection('team-a')}/{NAME}"]["metadata"]["uid"] = "another"
    assert await reports.reconcile() == ["DELETE"]
    assert reports.report() is not None
    assert reports.reports.written["failed"] == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ApiError(403, "Forbidden", "unable to create new content in namespace team-a because it is being terminated"), False),
        (ApiError(403, "Forbidden", "create not allowed while custom resource definition is terminating"), False),
        (ApiError(403, "Forbidden", 'User "x" cannot create resource "policyreports"'), True),
        (ApiError(404, "NotFound", "namespace not found"), False),
        (ApiError(500, "InternalError", "etcd"), True),
        (ApiError(413, "RequestEntityTooLarge", "too large"), True),
        (ConnectionLostError("reset"), True),
    ],
)
async def test_what_fails_is_counted_keeps_nothing_else_from_being_written_and_is_tried_again(error: Exception, told: bool) -> None:
    reports = Reports()
    reports.errors["/team-a/"] = error
    other = workload("o", item(), namespace="team-b")
    assert await reports.reconcile(W, other) == ["POST", "POST"]
    assert [reports.reports.written[action] for action in ("created", "updated", "deleted")] == [1, 0, 0]
    assert reports.reports.written["failed"] == 1
    reports.log.flush()
    assert ("cannot write report" in reports.text.getvalue()) is told
    assert await reports.reconcile(W, other) == ["POST"]
    reports.log.flush()
    assert reports.text.getvalue().count("cannot write report") == told, "once for as long as it lasts"
    reports.errors.clear()
    assert await reports.reconcile(W, other) == ["POST"]
    assert reports.report() is not None


@pytest.mark.parametrize("unknown", KINDS, ids=lambda kind: kind.kind)
async def test_until_it_is_known_which_kinds_are_served_nothing_is_written(unknown: ReportKind) -> None:
    reports = Reports()
    reports.shelves[unknown].served = None
    assert await reports.reconcile(W) == []
    assert await reports.reconcile(W) == ["POST"], "the watch has shown it meanwhile"


async def test_where_no_kind_is_served_nothing_is_written_until_one_comes() -> None:
    reports = Reports()
    reports.serve()
    reports.show()
    assert reports.reports.kind is None
    assert await reports.reconcile(W) == []
    reports.serve(OPEN_REPORT)
    reports.show()
    assert await reports.reconcile(W) == ["POST"]
    assert reports.report(kind=OPEN_REPORT) is not None


async def test_where_both_are_served_the_newer_is_written_and_the_older_taken_away() -> None:
    reports = Reports()
    await reports.reconcile(W)
    reports.serve(*KINDS)
    reports.show()
    assert await reports.reconcile(W) == ["POST", "DELETE"]
    assert list(reports.stored) == [f"{OPEN_REPORT.collection('team-a')}/{NAME}"]
    assert await reports.reconcile(W) == []


async def test_where_the_newer_goes_the_older_is_written_again() -> None:
    reports = Reports(*KINDS)
    await reports.reconcile(W)
    reports.serve(POLICY_REPORT)
    reports.show()
    assert await reports.reconcile(W) == ["POST"]
    assert reports.report() is not None


async def test_bounds_hold_for_ten_thousand_findings() -> None:
    reports = Reports()
    await reports.reconcile(*(workload(f"w{at}", item(message="x" * 10_000)) for at in range(10_000)))
    found = reports.report()
    assert found is not None
    assert found["summary"]["fail"] == 10_000
    assert reports.reports.written["bytes"] < 300_000


class Audits:
    """Rounds of an audit that tests finish by hand."""

    def __init__(self) -> None:
        self.latest: Audit | None = None
        self.done = 0
        self._finished = asyncio.Condition()

    async def finish(self, *workloads: AuditedWorkload) -> None:
        async with self._finished:
            self.latest = audit(*workloads)
            self.done += 1
            self._finished.notify_all()

    async def after(self, number: int) -> Audit:
        async with self._finished:
            await self._finished.wait_for(lambda: self.done > number and self.latest is not None)
        assert self.latest is not None
        return self.latest


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError


async def test_it_follows_the_audits_and_what_becomes_of_the_reports() -> None:
    reports, audits = Reports(), Audits()
    task = asyncio.create_task(reports.reports.run(audits))  # type: ignore[arg-type]
    try:
        await audits.finish(W)
        await until(lambda: reports.report() is not None)
        # Somebody takes it away: it is made again without another audit.
        reports.stored.clear()
        reports.show()
        await until(lambda: reports.report() is not None)
        await audits.finish()
        await until(lambda: not reports.stored)
        reports.errors["/team-a/"] = ConnectionLostError("reset")
        await audits.finish(W)
        await until(lambda: reports.reports.written["failed"] > 0)
        assert not task.done()
        reports.errors.clear()
        await audits.finish(W)
        await until(lambda: reports.report() is not None)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _shelf(event_type: str) -> ReportStore:
    report_store = ReportStore(asyncio.Event())
    one = stored_of({"metadata": {"name": NAME, "namespace": "a", "uid": "u"}})
    report_store.changed(REPORT_KINDS[POLICY_REPORT], "ADDED", one)
    report_store.updated.clear()
    report_store.changed(REPORT_KINDS[POLICY_REPORT], event_type, one)  # type: ignore[arg-type]
    return report_store


async def test_a_shelf_shows_what_comes_and_goes() -> None:
    assert _shelf("MODIFIED").reports.keys() == {("a", NAME)}
    gone = _shelf("DELETED")
    assert gone.reports == {}
    assert gone.updated.is_set()
