"""The keeper of reports beside others who write them: a leader that was, and whoever else uses the name."""

from __future__ import annotations

import asyncio
import copy
import io
from typing import Any, cast

import pytest

from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.output.policy_reports import LABELS, NAME, POLICY_REPORT
from gpugate.webhook.controller import reports
from gpugate.webhook.controller.audit_loop import AuditLoop
from gpugate.webhook.controller.reports import REPORT_KINDS, ReportReconciler, report_stores, stored_of
from gpugate.webhook.kube.errors import ApiError
from gpugate.webhook.runtime.log import Log
from tests.shared.audits import audit, item, workload

Object = dict[str, Any]
pytestmark = pytest.mark.asyncio


class _Reports:
    """PolicyReports as an apiserver keeps them, by path."""

    def __init__(self) -> None:
        self.stored: dict[str, Object] = {}
        self.calls: list[str] = []
        self._version = 0

    def put(self, path: str, report: Object, uid: str) -> Object:
        self._version += 1
        metadata = {**report["metadata"], "uid": uid, "resourceVersion": str(self._version)}
        self.stored[path] = {**report, "metadata": metadata}
        return self.stored[path]

    async def get(self, path: str) -> Object:
        self.calls.append("get")
        return self.stored[path]

    async def create(self, path: str, report: Object) -> Object:
        self.calls.append("create")
        place = f"{path}/{report['metadata']['name']}"
        if place in self.stored:
            raise ApiError(409, "AlreadyExists", "already exists")
        return self.put(place, report, f"uid-{len(self.calls)}")

    async def patch(self, path: str, patch: Object) -> Object:
        self.calls.append("patch")
        before = self.stored[path]
        for key in ("uid", "resourceVersion"):
            if key in patch["metadata"] and patch["metadata"][key] != before["metadata"][key]:
                raise ApiError(409, "Conflict", f"another {key}")
        merged = {**before, **patch, "metadata": {**before["metadata"], **patch["metadata"]}}
        return self.put(path, merged, before["metadata"]["uid"])

    async def delete(self, path: str, *, uid: str = "") -> None:  # noqa: ARG002
        self.calls.append("delete")
        self.stored.pop(path, None)


class _Stand:
    """A keeper whose watch shows what the test lets it show."""

    def __init__(self, api: _Reports) -> None:
        self.api, self.text = api, io.StringIO()
        self.shelves = report_stores()
        for kind, report_store in self.shelves.items():
            (report_store.replaced(REPORT_KINDS[kind], []) if kind is POLICY_REPORT else report_store.absent(REPORT_KINDS[kind]))
        self.keeper = ReportReconciler(api, self.shelves, Log(self.text), pause=0)

    async def reconcile(self, *names: str) -> None:
        await self.keeper.reconcile(audit(*(workload(name, item(), namespace="team-a") for name in names)))

    def show(self) -> None:
        """Let the watch catch up."""
        ours = [one for one in self.api.stored.values() if one["metadata"].get("labels") == LABELS]
        self.shelves[POLICY_REPORT].replaced(REPORT_KINDS[POLICY_REPORT], [stored_of(one) for one in ours])

    def log(self) -> str:
        self.keeper._log.flush()
        return self.text.getvalue()


_PATH = f"{POLICY_REPORT.collection('team-a')}/{NAME}"


def _named(report: Object) -> set[str]:
    return {one["resources"][0]["name"] for one in report["results"]}


async def test_what_another_leader_wrote_since_is_not_written_over() -> None:
    api = _Reports()
    first, second = _Stand(api), _Stand(api)
    await first.reconcile("old")
    second.show()
    await second.reconcile("old", "new")
    await first.reconcile("older")
    assert _named(api.stored[_PATH]) == {"old", "new"}, "the first stood still meanwhile, and knows less"
    first.show()
    await first.reconcile("newest")
    assert _named(api.stored[_PATH]) == {"newest"}, "it leads again, and has seen what was written"


async def test_a_report_of_somebody_else_is_left_alone_and_the_log_says_so_once() -> None:
    api = _Reports()
    theirs = api.put(_PATH, {"metadata": {"name": NAME, "namespace": "team-a", "labels": {}}, "summary": {"pass": 1}}, "theirs")
    before = copy.deepcopy(theirs)
    stand = _Stand(api)
    for _ in range(3):
        await stand.reconcile("w")
    assert api.stored[_PATH] == before
    assert stand.log().count("another owner has a report of this name") == 1
    assert "has no report of gpugate until you delete it" in stand.log()
    del api.stored[_PATH]
    await stand.reconcile("w")
    assert _named(api.stored[_PATH]) == {"w"}


async def test_a_report_of_its_own_that_its_watch_does_not_show_yet_is_put_right() -> None:
    api = _Reports()
    await _Stand(api).reconcile("before")
    late = _Stand(api)
    await late.reconcile("now")
    assert api.calls == ["create", "create", "get"]
    await late.reconcile("now")
    assert _named(api.stored[_PATH]) == {"now"}
    assert late.log() == ""


class _OneRound:
    """An audit after which nothing happens for a long time."""

    def __init__(self, latest: Audit) -> None:
        self.latest, self.done = latest, 1

    async def after(self, number: int) -> Audit:
        if number < self.done:
            return self.latest
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("status", [429, 500, 403])
async def test_what_the_apiserver_did_not_take_is_written_though_no_audit_follows(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_SHORTEST_BREAK", 0.01)
    api = _Reports()
    stand = _Stand(api)
    stand.keeper._spacing = 0
    taken = api.create
    refusals = iter(range(3))

    async def create(path: str, report: Object) -> Object:
        if next(refusals, None) is not None:
            raise ApiError(status, "Refused", "for now")
        return await taken(path, report)

    monkeypatch.setattr(api, "create", create)
    audit_loop = _OneRound(audit(workload("w", item(), namespace="team-a")))
    running = asyncio.create_task(stand.keeper.run(cast("AuditLoop", audit_loop)))
    try:
        async with asyncio.timeout(10):
            while _PATH not in api.stored:  # noqa: ASYNC110 - an apiserver tells nobody
                await asyncio.sleep(0.005)
    finally:
        running.cancel()
    assert stand.keeper.written["failed"] == 3
    assert _named(api.stored[_PATH]) == {"w"}


async def test_nothing_is_kept_of_namespaces_that_are_gone() -> None:
    api = _Reports()
    stand = _Stand(api)
    taken = api.create

    async def create(path: str, report: Object) -> Object:
        if "broken" in path:
            raise ApiError(500, "InternalError", "etcd")
        return await taken(path, report)

    api.create = create  # type: ignore[method-assign]
    for number in range(3):
        names = (f"team-{number}", f"broken-{number}")
        await stand.keeper.reconcile(audit(*(workload("w", item(), namespace=name) for name in names)))
        api.stored.clear()
        stand.show()
    assert {namespace for _, namespace in stand.keeper._digests} == {"team-2"}
    assert stand.keeper._failing.keys() == {"broken-2"}
