"""Recording reviews: bounded, private, never in the way; and what was recorded is what a replay reads."""

from __future__ import annotations

import asyncio
import io
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from gpugate.webhook.admission.admission_review import AdmissionResponse
from gpugate.webhook.admission.handler import AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.recorder import ReviewRecorder
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log
from tests.shared.reviews import POLICY, InProcess, admission, overcommitted_pod, pod, policy
from tests.shared.running import PATIENCE, run, serving

ALLOWED = AdmissionResponse(allowed=True, patch=[], warnings=[], audit={})
MIB = 1 << 20


class Desk:
    """A recording, and what came of it."""

    def __init__(self, directory: Path, limit: int = 8 * MIB) -> None:
        self.directory = directory
        self.counts: Counter[str] = Counter()
        self._stream = io.StringIO()
        self._log = Log(self._stream)
        self.review_recorder = ReviewRecorder(
            directory, limit, self._log, count=lambda outcome, number: self.counts.update({outcome: number})
        )

    async def write(self) -> None:
        """Write all that was taken, as at the end of the server."""
        task = asyncio.create_task(self.review_recorder.run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def record(self, review: dict[str, Any], **decided: Any) -> None:
        body = orjson.dumps(review)
        self.review_recorder.record(
            "validate", body, decided.get("verdict", ALLOWED), decided.get("decision"), decided.get("policies", ())
        )

    @property
    def files(self) -> list[Path]:
        return sorted(self.directory.glob("*.jsonl"))

    @property
    def records(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for path in self.files for line in path.read_bytes().splitlines()]

    @property
    def lines(self) -> list[dict[str, Any]]:
        self._log.flush()
        return [orjson.loads(line) for line in self._stream.getvalue().splitlines()]


@pytest.mark.asyncio
async def test_a_record_is_the_review_and_beside_it_what_was_answered(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "made" / "here")
    state = CurrentState(policies=[policy(name="strict", rules={"numa": {"mode": "DryRun"}}).model_copy(update={"generation": 3})])
    door = AdmissionHandler(state, Metrics(), Log(io.StringIO()), review_recorder=desk.review_recorder)
    door.answer("mutate", orjson.dumps(admission(pod(memory="64Gi", request="32Gi"))))
    door.answer("validate", orjson.dumps(admission(overcommitted_pod())))
    door.answer("validate", orjson.dumps(admission(None, operation="DELETE", old=pod())))
    await desk.write()
    changed, refused = desk.records
    assert changed["request"] == admission(pod(memory="64Gi", request="32Gi"))["request"]
    then = changed["recorded"]
    assert (then["endpoint"], then["allowed"], then["policies"]) == ("mutate", True, ["strict@3"])
    assert "shared-memory" in then["changed"]
    assert then["wouldChange"] == ["numa"]
    then = refused["recorded"]
    assert (then["endpoint"], then["allowed"]) == ("validate", False)
    assert {"rule": "host-memory", "reason": "Overcommit", "severity": "deny"} in then["findings"]
    assert desk.counts == {"written": 2}


@pytest.mark.asyncio
async def test_recordings_are_for_their_owner_alone(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "records")
    desk.record(admission(pod()))
    before = os.umask(0)
    try:
        await desk.write()
    finally:
        os.umask(before)
    (path,) = desk.files
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.asyncio
async def test_recordings_never_take_more_than_their_limit_and_the_newest_stay(tmp_path: Path) -> None:
    desk = Desk(tmp_path, MIB)
    (tmp_path / "notes.txt").write_text("somebody else's")
    for number in range(60):
        for _ in range(100):
            desk.record(admission(pod(f"p-{number}", labels={"filler": "x" * 500})))
        await desk.write()
        assert sum(path.stat().st_size for path in desk.files) <= MIB
    names = [record["request"]["name"] for record in desk.records]
    assert names[-1] == "p-59"
    assert "p-0" not in names
    assert sum(path.stat().st_size for path in desk.files) > MIB // 2
    assert any(line["message"] == "removed the oldest recordings" for line in desk.lines)
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.asyncio
async def test_what_is_more_than_can_wait_is_dropped_and_counted(tmp_path: Path) -> None:
    desk = Desk(tmp_path, 64 * MIB)
    body = orjson.dumps(admission(pod(labels={"filler": "x" * MIB})))
    for _ in range(40):
        desk.review_recorder.record("validate", body, ALLOWED, None, ())
    assert desk.counts["dropped"] >= 40 - 16
    small = orjson.dumps(admission(pod()))
    for _ in range(3000):
        desk.review_recorder.record("validate", small, ALLOWED, None, ())
    assert len(desk.review_recorder._waiting) <= 2000
    assert desk.review_recorder._bytes <= 16 * MIB
    await desk.write()
    assert desk.counts["written"] + desk.counts["dropped"] == 3040
    assert desk.review_recorder._bytes == 0


@pytest.mark.asyncio
async def test_where_nothing_can_be_written_one_line_says_so_and_reviews_go_on(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    desk = Desk(blocked / "records")
    for _ in range(5):
        desk.record(admission(pod()))
        await desk.write()
    assert desk.counts == {"failed": 5}
    (line,) = desk.lines
    assert (line["level"], line["message"]) == ("warning", "cannot record reviews")


@pytest.mark.asyncio
async def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path)
    desk.record(admission(pod("first")))
    await desk.write()
    real = os.write

    def full(stream: int, data: Any) -> int:
        real(stream, bytes(data)[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    desk.record(admission(pod("lost")))
    await desk.write()
    monkeypatch.setattr(os, "write", real)
    desk.record(admission(pod("third")))
    await desk.write()
    assert [record["request"]["name"] for record in desk.records] == ["first", "third"]
    assert desk.counts == {"written": 2, "failed": 1}
    assert [line["error"] for line in desk.lines] == ["No space left on device"]


@pytest.mark.asyncio
async def test_a_review_that_cannot_be_reduced_is_not_written_as_it_came(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.review_recorder.record("validate", b'{"secret": "hunter2"}', ALLOWED, None, ())
    desk.record(admission(pod()))
    await desk.write()
    assert len(desk.records) == 1
    assert desk.counts == {"failed": 1, "written": 1}


@pytest.mark.asyncio
async def test_a_recording_that_somebody_removed_is_begun_anew(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    written = asyncio.Queue[str]()
    desk.review_recorder._count = lambda outcome, _number: written.put_nowait(outcome)
    task = asyncio.create_task(desk.review_recorder.run())
    try:
        for name in ("first", "second"):
            desk.record(admission(pod(name)))
            assert await asyncio.wait_for(written.get(), PATIENCE) == "written"
            if name == "first":
                desk.files[0].unlink()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [record["request"]["name"] for record in desk.records] == ["second"]


def test_the_server_records_and_a_replay_by_the_same_policy_finds_no_difference(tmp_path: Path) -> None:
    records = tmp_path / "records"
    with serving(tmp_path, "--policy", str(POLICY), "--record", str(records), "--record-limit", "4Mi") as server:
        for review in (admission(pod(memory="64Gi", request="64Gi")), admission(overcommitted_pod())):
            for path in ("/mutate", "/validate"):
                assert server.post(path, review).status == 200
        server.terminate()
        server.wait()
    (path,) = records.glob("*.jsonl")
    assert len(path.read_bytes().splitlines()) == 4
    done = run("replay", str(records), "--policy", str(POLICY))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "4 reviews: 4 the same"


@pytest.mark.parametrize("size", ["64", "1023Ki", "many", "-1Gi", ""])
def test_a_limit_that_is_no_size_is_one_clear_error(tmp_path: Path, size: str) -> None:
    done = run("serve", "--self-signed", str(tmp_path), "--record", str(tmp_path), "--record-limit", size)
    assert done.returncode == 2
    assert done.stderr == f"gpugate: --record-limit {size}: write a size of at least 1Mi, for example 64Mi\n"


def test_without_recording_nothing_is_kept() -> None:
    door = InProcess()
    door.ask(admission(pod()))
    assert "gpugate_recordings_total{" not in door.metrics.text().decode()
