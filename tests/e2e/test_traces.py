"""What a refusal leaves behind at a real apiserver: Events, audit annotations, counts, log lines, and recordings to replay."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.gate import Gate, enforcing
from tests.e2e.workloads import container, gpus, job, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("door")]

_MACHINES = ("traces-h100-1", "traces-h100-2")
_ACCOUNT = "system:serviceaccount:gpugate-system:gpugate"
_COUNTED = re.compile(r'^gpugate_events_total\{outcome="(\w+)"\} (\S+)$', re.MULTILINE)
BURST, SENDERS = 500, 16
#: Calls that a burst of the same refusals may cost: one that makes the Event, and few that raise its count.
FEW = 12
#: Events that one object may get at once, however many different things are said of it.
MOST_AT_ONCE = 10


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the door's reviews are written down."""
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def door(control_plane: ControlPlane, records: Path) -> Iterator[Gate]:
    """gpugate, enforcing and recording, which knows the apiserver by its certificate, with two machines of 8 GPUs behind it."""
    recording = Gate(control_plane, "gpugate", f"--record={records}", *Gate.authenticating(control_plane))
    with enforcing(control_plane, recording, *_MACHINES) as found:
        yield found


def report(text: str) -> None:
    print(f"traces: {text}", flush=True)


def overcommitted() -> dict[str, Any]:
    """A container that host-memory refuses."""
    return container(gpus(1, "64Gi", request="8Gi"))


def events(cluster: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    """gpugate's Events in ``namespace``."""
    found: list[dict[str, Any]] = cluster.kubectl_json("get", "events.events.k8s.io", "-n", namespace)["items"]
    return [one for one in found if one["reportingController"] == "gpugate.io/webhook"]


def one_event(cluster: ControlPlane, namespace: str) -> dict[str, Any]:
    """The only Event in ``namespace``, once it is there."""
    wait_until(lambda: events(cluster, namespace), 20, f"an Event in {namespace}")
    (found,) = events(cluster, namespace)
    return found


def count_of(event: dict[str, Any]) -> int:
    """How often it was told."""
    return int((event.get("series") or {}).get("count", 1))


def create(cluster: ControlPlane, path: str, obj: dict[str, Any]) -> int:
    """The HTTP status of a creation at ``path``."""
    return cluster.request("POST", path, obj).status


def pods_path(namespace: str, query: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods{query}"


def jobs_path(namespace: str, query: str = "") -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs{query}"


def audited(cluster: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    """Audit events about objects in ``namespace``."""
    found = [orjson.loads(line) for line in cluster.audit_log.read_bytes().splitlines()]
    return [one for one in found if one.get("objectRef", {}).get("namespace") == namespace and one["stage"] == "ResponseComplete"]


def calls_for_events(cluster: ControlPlane, namespace: str) -> list[str]:
    """The verbs of gpugate's own calls about Events in ``namespace``."""
    return [
        one["verb"]
        for one in audited(cluster, namespace)
        if one["user"]["username"] == _ACCOUNT and one["objectRef"]["resource"] == "events"
    ]


def annotation_of(cluster: ControlPlane, namespace: str, key: str) -> str:
    """The audit annotation ``key`` of an audit event in ``namespace``, once it is there."""

    def read() -> list[str]:
        return [one["annotations"][key] for one in audited(cluster, namespace) if key in one.get("annotations", {})]

    return str(wait_until(read, 20, f"the audit annotation {key}")[0])


def counted(door: Gate) -> dict[str, int]:
    """How often what became of an Event."""
    return {name: int(float(value)) for name, value in _COUNTED.findall(door.get("/metrics"))}


def let_in(cluster: ControlPlane, door: Gate, namespace: str, name: str = "train") -> dict[str, Any]:
    """A suspended Job in the cluster whose pods the enforced policy refuses."""
    door.set_policy({"mode": "Disabled"})
    made = job(name, namespace, overcommitted())
    made["spec"]["suspend"] = True
    assert create(cluster, jobs_path(namespace), made) == 201
    door.set_policy({"mode": "Enforce"})
    found: dict[str, Any] = cluster.kubectl_json("get", "job", name, "-n", namespace)
    return found


def pod_of(owner: dict[str, Any], namespace: str, number: int) -> dict[str, Any]:
    """A pod as the Job's controller would make it."""
    made = pod(f"train-{number}", namespace, overcommitted())
    made["metadata"] |= {
        "generateName": "train-",
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": owner["metadata"]["uid"], "controller": True}
        ],
    }
    return made


def test_a_refused_pod_of_a_job_is_told_by_the_description_of_the_job(
    control_plane: ControlPlane, door: Gate, namespace: str
) -> None:
    let_in(control_plane, door, namespace)
    control_plane.kubectl("patch", "job", "train", "-n", namespace, "-p", '{"spec": {"suspend": false}}')
    event = one_event(control_plane, namespace)
    assert (event["reason"], event["type"], event["action"]) == ("Refused", "Warning", "Create")
    described = control_plane.kubectl("describe", "job", "train", "-n", namespace).stdout
    told = [line for line in described.splitlines() if "gpugate refuses its Pods" in line]
    assert len(told) == 1
    assert "host-memory: spec.containers[0].resources.limits.memory: limit 64Gi / request 8Gi = 8" in told[0]
    assert "Write resources.requests.memory: 32Gi or more" in told[0]
    listed = control_plane.kubectl("events", "-n", namespace, "--for", "job/train", "--types=Warning").stdout
    assert "gpugate refuses its Pods: host-memory" in listed


def test_a_refused_job_is_told_in_its_own_namespace(control_plane: ControlPlane, door: Gate, namespace: str) -> None:
    assert create(control_plane, jobs_path(namespace), job("greedy", namespace, overcommitted())) == 403
    event = one_event(control_plane, namespace)
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Namespace", "name": namespace, "namespace": namespace}
    listed = control_plane.kubectl("events", "-n", namespace).stdout
    assert "gpugate refuses Job greedy: host-memory: " in listed
    asked = control_plane.kubectl("events", "-n", namespace, "--for", f"namespace/{namespace}").stdout
    assert "gpugate refuses Job greedy: " in asked
    assert door.events(message="review", namespace=namespace, outcome="refused")


def test_a_refused_update_is_told_by_the_description_of_the_object(control_plane: ControlPlane, namespace: str) -> None:
    gang = job("gang", namespace, container(gpus(1, "32Gi")), size=2)
    assert create(control_plane, jobs_path(namespace), gang) == 201
    smaller = '{"spec": {"parallelism": 1, "completions": 1}}'
    wait_until(
        lambda: (
            control_plane.kubectl(
                "patch", "job", "gang", "-n", namespace, "-p", smaller, "--dry-run=server", check=False
            ).returncode
        ),
        30,
        "the gang to be one that runs",
    )
    assert events(control_plane, namespace) == []
    assert control_plane.kubectl("patch", "job", "gang", "-n", namespace, "-p", smaller, check=False).returncode != 0
    assert one_event(control_plane, namespace)["regarding"]["name"] == "gang"
    assert "gpugate refuses this UPDATE: gang" in control_plane.kubectl("describe", "job", "gang", "-n", namespace).stdout


def test_a_burst_of_refusals_is_one_event_and_a_handful_of_calls(control_plane: ControlPlane, door: Gate, namespace: str) -> None:
    owner = let_in(control_plane, door, namespace)
    begun = time.monotonic()
    with ThreadPoolExecutor(SENDERS) as pool:
        statuses = list(
            pool.map(lambda number: create(control_plane, pods_path(namespace), pod_of(owner, namespace, number)), range(BURST))
        )
    seconds = time.monotonic() - begun
    assert set(statuses) == {403}
    wait_until(lambda: count_of(one_event(control_plane, namespace)) == BURST, 90, f"an Event told {BURST} times")
    calls = calls_for_events(control_plane, namespace)
    report(f"{BURST} refusals of a Job's pods in {seconds:.1f} s: 1 Event, {len(calls)} calls ({calls.count('patch')} patches)")
    assert calls.count("create") == 1
    assert len(calls) <= FEW


def test_a_burst_of_different_refusals_is_a_bounded_number_of_events(
    control_plane: ControlPlane, door: Gate, namespace: str
) -> None:
    before = counted(door)
    with ThreadPoolExecutor(SENDERS) as pool:
        sent = pool.map(
            lambda number: create(control_plane, pods_path(namespace), pod(f"p-{number}", namespace, overcommitted())), range(BURST)
        )
        assert set(sent) == {403}

    def limited() -> int:
        return counted(door).get("limited", 0) - before.get("limited", 0)

    minute_tokens = 2
    wait_until(lambda: limited() >= BURST - MOST_AT_ONCE - minute_tokens, 20, "the door to have counted them")
    wait_until(lambda: len(events(control_plane, namespace)) >= MOST_AT_ONCE, 20, "the Events")
    found, calls = events(control_plane, namespace), calls_for_events(control_plane, namespace)
    report(f"{BURST} different refusals: {len(found)} Events, {len(calls)} calls, {limited()} not told")
    assert len(found) <= MOST_AT_ONCE + minute_tokens
    assert len(calls) <= MOST_AT_ONCE + minute_tokens


def test_a_dry_run_leaves_no_event(control_plane: ControlPlane, namespace: str) -> None:
    bad = orjson.dumps(job("greedy", namespace, overcommitted())).decode()
    refused = control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=bad, check=False)
    assert "gpugate refuses Job" in refused.stderr
    # What is told later arrives after what would have been told before.
    assert create(control_plane, pods_path(namespace), pod("later", namespace, overcommitted())) == 403
    event = one_event(control_plane, namespace)
    assert "Pod later" in event["note"]
    assert calls_for_events(control_plane, namespace) == ["create"]


def test_what_dryrun_would_refuse_is_told_audited_counted_and_logged(
    control_plane: ControlPlane, door: Gate, namespace: str
) -> None:
    door.set_policy({"mode": "DryRun"})
    try:
        assert create(control_plane, pods_path(namespace), pod("train", namespace, overcommitted())) == 201
    finally:
        door.set_policy({"mode": "Enforce"})
    event = one_event(control_plane, namespace)
    assert (event["reason"], event["type"], event["regarding"]["kind"]) == ("WouldRefuse", "Normal", "Pod")
    described = control_plane.kubectl("describe", "pod", "train", "-n", namespace).stdout
    assert "dry run: gpugate would refuse this Pod: host-memory: " in described
    annotation = annotation_of(control_plane, namespace, "pods.validate.gpugate.io/host-memory.dryrun-deny")
    assert annotation.startswith("Overcommit at spec.containers[0].resources.limits.memory: limit 64Gi / request 8Gi = 8")
    (line,) = [one for one in door.events(message="review", namespace=namespace, endpoint="validate") if "wouldDeny" in one]
    assert line["wouldDeny"][0].startswith("host-memory/Overcommit: limit 64Gi / request 8Gi = 8")
    assert 'gpugate_refusals_total{dry_run="false",mode="DryRun",rule="host-memory"}' in door.get("/metrics")


def test_a_refusal_is_audited_counted_and_logged(control_plane: ControlPlane, door: Gate, namespace: str) -> None:
    assert create(control_plane, pods_path(namespace), pod("greedy", namespace, overcommitted())) == 403
    annotation = annotation_of(control_plane, namespace, "pods.validate.gpugate.io/host-memory.deny")
    assert annotation.startswith("Overcommit at spec.containers[0].resources.limits.memory: limit 64Gi / request 8Gi = 8")
    (line,) = wait_until(lambda: door.events(message="review", namespace=namespace, outcome="refused"), 10, "the log")
    assert line["denied"][0].startswith("host-memory/Overcommit: limit 64Gi / request 8Gi = 8")
    assert 'gpugate_refusals_total{dry_run="false",mode="Enforce",rule="host-memory"}' in door.get("/metrics")


def test_where_it_may_write_no_event_reviews_go_on_and_the_log_says_so_once(
    control_plane: ControlPlane, door: Gate, namespace: str
) -> None:
    rules = control_plane.kubectl_json("get", "clusterrole", "gpugate")["rules"]
    at = next(number for number, rule in enumerate(rules) if rule["apiGroups"] == ["events.k8s.io"])
    taken = f'[{{"op": "remove", "path": "/rules/{at}"}}]'
    control_plane.kubectl("patch", "clusterrole", "gpugate", "--type=json", "-p", taken)
    before, names = counted(door).get("refused", 0), (f"p-{number}" for number in range(MOST_AT_ONCE))

    def given_up() -> bool:
        assert create(control_plane, pods_path(namespace), pod(next(names), namespace, overcommitted())) == 403
        return counted(door).get("refused", 0) > before

    try:
        wait_until(given_up, 20, "the Event to be given up", interval=0.5)
    finally:
        control_plane.kubectl("replace", "-f", "-", input=orjson.dumps(_cluster_role(control_plane, rules)))
    (line,) = door.events(message="the apiserver rejects an Event", namespace=namespace)
    assert "403 Forbidden" in line["error"]


def _cluster_role(cluster: ControlPlane, rules: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = cluster.kubectl_json("get", "clusterrole", "gpugate")
    return {**found, "rules": rules}


def test_a_server_without_events_answers_the_same_and_tells_nobody(control_plane: ControlPlane, door: Gate, namespace: str) -> None:
    quiet = Gate(control_plane, "gpugate-quiet", "--no-events")
    try:
        quiet.start()
        quiet.set_policy({"mode": "Enforce"})
        door.register(quiet.url)
        wait_until(
            lambda: (
                create(control_plane, pods_path(namespace), pod("greedy", namespace, overcommitted())) == 403
                and quiet.reviews(endpoint="validate", outcome="refused")
            ),
            30,
            "the apiserver to call the other server",
        )
    finally:
        door.register()
        quiet.stop()
    door.wait_in_force()
    # What is told now arrives after what would have been told before.
    assert create(control_plane, pods_path(namespace), pod("later", namespace, overcommitted())) == 403
    wait_until(lambda: any("Pod later" in one["note"] for one in events(control_plane, namespace)), 20, "the Event")
    told = [one["note"] for one in events(control_plane, namespace)]
    refused_by_the_door = door.events(message="review", namespace=namespace, name="greedy", outcome="refused")
    assert any("Pod greedy" in note for note in told) == bool(refused_by_the_door)


def test_a_recording_gives_the_same_answers_again_and_shows_what_another_policy_would(
    control_plane: ControlPlane, door: Gate, namespace: str, records: Path, tmp_path: Path
) -> None:
    door.set_policy({"mode": "DryRun"})
    before = set(records.glob("*.jsonl"))
    marks = {path: path.stat().st_size for path in before}
    secret = container(gpus(1, "32Gi"), env=[{"name": "WANDB_API_KEY", "value": "hunter2"}], args=["--token=hunter2"])
    try:
        assert create(control_plane, pods_path(namespace), pod("good", namespace, secret)) == 201
        assert create(control_plane, pods_path(namespace), pod("greedy", namespace, overcommitted())) == 201

        def recorded() -> list[bytes]:
            lines = [
                line
                for path in records.glob("*.jsonl")
                for line in path.read_bytes()[marks.get(path, 0) :].splitlines(keepends=True)
            ]
            mine = [line for line in lines if orjson.loads(line)["request"].get("namespace") == namespace]
            return mine if len(mine) >= 4 else []

        lines = wait_until(recorded, 20, "the recording")
    finally:
        door.set_policy({"mode": "Enforce"})
    assert b"hunter2" not in b"".join(lines)
    week = tmp_path / "week.jsonl"
    week.write_bytes(b"".join(lines))
    for mode, wanted in (("DryRun", {"same": 4}), ("Enforce", {"same": 1, "changed": 2, "refused": 1})):
        policy = tmp_path / f"{mode}.json"
        policy.write_bytes(
            orjson.dumps(
                {
                    "apiVersion": "gpugate.io/v1alpha1",
                    "kind": "GPUPolicy",
                    "metadata": {"name": "p"},
                    "spec": {"profile": "recommended", "mode": mode},
                }
            )
        )
        command: list[str | Path] = [Path(sys.executable).with_name("gpugate"), "replay", week, f"--policy={policy}", "-o", "json"]
        done = subprocess.run([*command, f"--kubeconfig={control_plane.kubeconfig}"], capture_output=True, check=False)
        document = orjson.loads(done.stdout)
        assert {name: count for name, count in document["counts"].items() if count} == wanted, done.stderr
