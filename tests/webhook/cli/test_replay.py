"""`gpugate replay`: recorded reviews answered again, by the same policy alike and by another one with what differs."""

from __future__ import annotations

import asyncio
import io
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson
import pytest

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import Policy
from gpugate.webhook.admission.handler import AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.recorder import ReviewRecorder
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.files.documents import Document, read_all
from gpugate.webhook.files.inputs import load_facts, load_policies
from gpugate.webhook.review.replay import AnswerChange, Replayed, read, replay
from gpugate.webhook.runtime.log import Log
from tests.shared.reviews import CLUSTER, POLICY, WORKLOADS, admission, overcommitted_pod, patched, pod, policy, well_formed
from tests.shared.running import run

FITTING = {"memory": "64Gi", "request": "64Gi"}


def record(
    directory: Path, reviews: list[dict[str, Any]], policies: list[Policy], snapshot: ClusterSnapshot = EMPTY_SNAPSHOT
) -> None:
    """Send ``reviews`` through both doors as an apiserver does, and record them."""

    async def answered() -> None:
        log = Log(io.StringIO())
        review_recorder = ReviewRecorder(directory, 64 << 20, log)
        door = AdmissionHandler(CurrentState(snapshot, policies), Metrics(), log, review_recorder=review_recorder)
        for review in reviews:
            first = well_formed(door.answer("mutate", orjson.dumps(review)))
            if first["allowed"]:
                passed = deepcopy(review)
                passed["request"]["object"] = patched(review["request"]["object"], first)
                door.answer("validate", orjson.dumps(passed))
        task = asyncio.create_task(review_recorder.run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(answered())


def again(directory: Path, policies: list[Policy], snapshot: ClusterSnapshot = EMPTY_SNAPSHOT) -> list[Replayed]:
    return list(replay(read([str(directory)]), PolicySet(policies), snapshot))


def effects(found: list[Replayed]) -> list[str]:
    return [one.effect.value for one in found]


def write_policy(path: Path, **spec: Any) -> str:
    content = {"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy", "metadata": {"name": "new"}, "spec": spec}
    path.write_bytes(orjson.dumps(content))
    return str(path)


@pytest.mark.parametrize("mode", ["Enforce", "Mutate", "Warn", "DryRun"])
def test_every_example_is_answered_the_same_by_the_same_policy_and_facts(tmp_path: Path, mode: str) -> None:
    snapshot = load_facts([CLUSTER])
    chosen = load_policies([POLICY]) if mode == "Enforce" else [policy(mode=mode)]
    objects = [one.value for one in read_all([str(WORKLOADS)]) if isinstance(one, Document)]
    reviews = [admission(one, namespace=one["metadata"].get("namespace", "default")) for one in objects]
    reviews += [admission(one, operation="UPDATE", old=one, namespace="team-a") for one in objects]
    record(tmp_path, reviews, chosen, snapshot)
    found = again(tmp_path, chosen, snapshot)
    assert len(found) > 100
    assert set(effects(found)) == {"same"}
    for one in found:
        assert one.recorded is not None
        assert sorted(f"{each.rule}/{each.finding.reason}" for each in one.denied) == sorted(one.recorded.denied)
    assert mode != "Enforce" or any(one.denied for one in found)


def test_enforcing_after_dryrun_shows_what_would_be_changed_and_refused(tmp_path: Path) -> None:
    record(tmp_path, [admission(pod(**FITTING)), admission(overcommitted_pod())], [policy(mode="DryRun")])
    found = again(tmp_path, [policy()])
    assert [(one.recorded.endpoint if one.recorded else "", one.effect) for one in found] == [
        ("mutate", AnswerChange.CHANGED),
        # The shared memory that the recorded object lacks is put in before the check, as it would be.
        ("validate", AnswerChange.SAME),
        ("mutate", AnswerChange.CHANGED),
        ("validate", AnswerChange.REFUSED),
    ]
    assert [one.rule for one in found[-1].denied] == ["host-memory"]


def test_going_back_to_dryrun_shows_what_would_be_freed_and_no_longer_changed(tmp_path: Path) -> None:
    record(tmp_path, [admission(pod(**FITTING)), admission(overcommitted_pod())], [policy()])
    found = again(tmp_path, [policy(mode="DryRun")])
    assert effects(found) == ["unchanged", "same", "unchanged", "freed"]
    assert "shared-memory" in found[0].lost


def test_what_the_validating_door_alone_sees_is_checked_as_it_is(tmp_path: Path) -> None:
    old = pod(memory="48Gi", request="48Gi", uid="1")
    resized = overcommitted_pod("train", uid="1")
    record(tmp_path, [admission(resized, operation="UPDATE", old=old, subResource="resize")], [policy(mode="DryRun")])
    assert effects(again(tmp_path, [policy()])) == ["same", "refused"]


def test_the_text_groups_alike_reviews_and_counts_by_rule(tmp_path: Path) -> None:
    pods = [admission(overcommitted_pod(f"train-{number}", generateName="train-")) for number in range(5)]
    record(tmp_path / "records", pods, [policy(mode="DryRun")])
    strict = write_policy(tmp_path / "new.json", rules={"host-memory": {"mode": "Enforce"}})
    done = run("replay", str(tmp_path / "records"), "--policy", strict)
    assert done.returncode == 1
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("refused   CREATE Pod team-a/train-*  ")
    assert lines[0].endswith(":2 and 4 more")
    assert lines[1].startswith("    host-memory: spec.containers[0].resources.limits.memory: ")
    assert lines[-1] == "10 reviews: 5 newly refused, 5 the same"
    table = next(line for line in lines if line.startswith("host-memory "))
    assert table.split() == ["host-memory", "5", "0", "0", "0"]


def test_the_json_has_both_answers(tmp_path: Path) -> None:
    record(tmp_path / "records", [admission(overcommitted_pod())], [policy(mode="DryRun", name="week")])
    strict = write_policy(tmp_path / "new.json", rules={"host-memory": {"mode": "Enforce"}})
    done = run("replay", str(tmp_path / "records"), "--policy", strict, "-o", "json")
    assert done.returncode == 1
    document = orjson.loads(done.stdout)
    assert document["reviews"] == 2
    assert {name: count for name, count in document["counts"].items() if count} == {"refused": 1, "same": 1}
    assert document["rules"] == {"host-memory": {"refused": 1}}
    entry = document["entries"][1]
    assert entry["then"] == {"endpoint": "validate", "allowed": True, "changed": [], "denied": [], "policies": ["week@0"]}
    assert entry["now"]["allowed"] is False
    assert [one["reason"] for one in entry["now"]["denied"]] == ["Overcommit"]
    assert (entry["effect"], entry["place"], entry["namespace"], entry["name"]) == ("refused", 2, "team-a", "greedy")


def test_plain_reviews_without_a_recorded_answer_are_judged_by_both_phases(tmp_path: Path) -> None:
    several = tmp_path / "several.yaml"
    several.write_text(
        f"{orjson.dumps(admission(overcommitted_pod())).decode()}\n---\n{orjson.dumps(admission(pod(**FITTING))).decode()}\n"
    )
    done = run("replay", str(several), "-o", "json")
    assert done.returncode == 1, done.stderr
    assert [one["effect"] for one in orjson.loads(done.stdout)["entries"]] == ["refused", "changed"]
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [admission(pod(**FITTING)), admission(None, operation="DELETE", old=pod())],
    }
    done = run("replay", "-", "-o", "json", stdin=orjson.dumps(listed))
    assert done.returncode == 0, done.stderr
    assert [one["effect"] for one in orjson.loads(done.stdout)["entries"]] == ["changed", "skipped"]


def test_bad_lines_are_named_by_file_and_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    good = orjson.dumps(admission(overcommitted_pod()))
    path = tmp_path / "reviews.jsonl"
    path.write_bytes(
        b"\n".join([good, b'{"half": ', b"[1]", b'{"kind": "Pod"}', b"", good, b'{"apiVersion": "admission.k8s.io/v1", "kind":'])
    )
    done = run("replay", str(path))
    assert done.returncode == 2
    errors = done.stderr.splitlines()
    assert [error.split(":")[:3] for error in errors] == [["gpugate", f" {path}", str(line)] for line in (2, 3, 4, 7)]
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1] == "6 reviews: 2 newly refused, 4 unreadable"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "kind must be AdmissionReview"),
        (orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": 7}), "request must be an object"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (orjson.dumps(admission({**pod(), "spec": {"containers": 7}})), "spec.containers: must be a list"),
    ],
    ids=["no review", "no request", "no text", "malformed"],
)
def test_what_is_no_review_is_one_clear_error(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(content)
    done = run("replay", str(path))
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["missing.jsonl"], ["."]], ids=str)
def test_an_input_that_is_not_there_or_holds_nothing_is_unusable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("replay", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"gpugate: {arguments[0]}: ")


def test_an_empty_recording_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "reviews.jsonl").write_bytes(b"")
    done = run("replay", str(tmp_path))
    assert (done.returncode, done.stderr) == (2, "gpugate: the input contains no review\n")


@pytest.mark.parametrize(
    "recorded",
    [7, {}, {"allowed": "yes"}, {"allowed": True, "endpoint": 7, "changed": "x", "findings": [7, {"severity": 1}], "policies": {}}],
    ids=str,
)
def test_a_recorded_answer_of_any_other_shape_breaks_nothing(recorded: Any) -> None:
    done = run("replay", "-", stdin=orjson.dumps({**admission(pod(**FITTING)), "recorded": recorded}))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1 review: 1 newly changed"


def test_names_in_a_recording_cannot_write_to_the_terminal() -> None:
    done = run("replay", "-", stdin=orjson.dumps(admission(overcommitted_pod("\x1b[31mred"), name="\x1b[31mred")))
    assert "\x1b" not in done.stdout
