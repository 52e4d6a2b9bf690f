"""What monitoring tells reaches the workloads of an audit, its sums and its pages, and the rounds of the controller."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console
from typer.testing import CliRunner

from gpugate.policies.cluster.gpu_usage import DeviceUse, Health, Span, Times
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import Policy
from gpugate.webhook.audit.evaluate import AuditContext
from gpugate.webhook.audit.index import AuditInputs, index_of
from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.output.json import document_of
from gpugate.webhook.audit.output.text import print_usage, usage_in_words
from gpugate.webhook.audit.owners import owners_of_pods
from gpugate.webhook.audit.subjects import subjects_in, trim
from gpugate.webhook.audit.totals import device_lines, free_in_all, held_by_owner, held_in_all
from gpugate.webhook.cli import controller
from gpugate.webhook.cli.main import app
from gpugate.webhook.cli.options import monitoring
from gpugate.webhook.controller.informers import observe_workload
from gpugate.webhook.controller.metrics import usage_families
from gpugate.webhook.prometheus.client import Address, PrometheusError
from gpugate.webhook.prometheus.poller import UsagePoller, idle_times
from gpugate.webhook.prometheus.readings import Readings
from gpugate.webhook.runtime.errors import InputError
from gpugate.webhook.runtime.log import Log
from tests.shared.audits import Json, a_pod, deployment, job, job_set, named, owned, replica_set, subject
from tests.shared.reviews import policy
from tests.webhook.controller.test_audit_loop import PODS, Stand

AT = 1_772_443_800.0
MONTH = 2_592_000


def device(pod: str, peak: float = 2.0, average: float = 1.0, *, namespace: str = "team-a", **fields: Any) -> DeviceUse:
    start = {"container": "main", "node": "n1", "number": "0", "uuid": f"GPU-{pod}", "model": "NVIDIA A100-SXM4-80GB"}
    spans = (Span(3600, peak, average), Span(MONTH, max(peak, 12), average))
    figures = {"spans": spans, "held": MONTH, "memory": 80 << 30, "memory_peak": 6 << 30}
    return DeviceUse(**{"namespace": namespace if pod else "", "pod": pod, **start, **figures, **fields})


def readings(*devices: DeviceUse, at: float = AT, remarks: tuple[str, ...] = ()) -> Readings:
    return Readings(at, (3600, MONTH), devices, remarks)


def owner_names(*objects: Json) -> dict[tuple[str, str], tuple[str, ...]]:
    subjects = [subject(one) for one in objects]
    return dict(owners_of_pods(subjects))


def audited(found: Readings | None, *objects: Json, policies: list[Policy] | None = None) -> Audit:
    index = index_of(subjects_in(objects))
    snapshot = EMPTY_SNAPSHOT if found is None else replace(EMPTY_SNAPSHOT, usage=index.usage_of(found))
    chosen = PolicySet([policy(rules={"idle": {}}, mode=None)] if policies is None else policies)
    for _ in index.evaluate(AuditContext(chosen, snapshot), everything=True):
        pass
    return index.build_audit(
        AuditInputs("2026-01-01T00:00:00Z", "tests", chosen, snapshot, lambda _: None, lambda _: None, readings=found)
    )  # type: ignore[arg-type,return-value]


def said(audit: Audit) -> dict[str, list[str]]:
    return {f"{one.kind} {one.name}": [item.reason for item in one.items if item.rule == "idle"] for one in audit.workloads}


def test_a_pod_stands_under_the_topmost_that_asks() -> None:
    front = deployment()
    middle = owned(replica_set(), front)
    top = job_set()
    inner = owned(job("set-workers-0"), top)
    assert owner_names(
        front, middle, owned(a_pod("serve-1-x"), middle), top, inner, owned(a_pod("set-0"), inner), a_pod("alone")
    ) == {
        ("team-a", "serve-1-x"): ("apps", "Deployment", "team-a", "serve"),
        ("team-a", "set-0"): ("jobset.x-k8s.io", "JobSet", "team-a", "set"),
        ("team-a", "alone"): ("", "Pod", "team-a", "alone"),
    }


def test_pods_of_an_owner_of_an_unknown_kind_stand_together_by_sort() -> None:
    owner = named("example.com/v1", "Notebook", "lab")
    found = owner_names(*(owned(a_pod(f"lab-{at}"), owner) for at in range(3)), owned(a_pod("lab-big", gpus=4), owner))
    assert found["team-a", "lab-0"] == found["team-a", "lab-2"] == ("", "Pod", "team-a", "lab-0")
    assert found["team-a", "lab-big"] == ("", "Pod", "team-a", "lab-big")


def test_what_the_controller_keeps_of_pods_is_enough_to_find_their_workload() -> None:
    front = deployment()
    middle = owned(replica_set(), front)
    kept = [one for one in (trim(subject(one)) for one in (front, middle, owned(a_pod("x"), middle))) if one is not None]
    assert owners_of_pods(kept) == {("team-a", "x"): ("apps", "Deployment", "team-a", "serve")}


def test_pods_that_claim_to_have_made_each_other_end_the_search() -> None:
    one, two = a_pod("one"), a_pod("two")
    found = owner_names(owned(one, two), owned(two, one))
    assert set(found) <= {("team-a", "one"), ("team-a", "two")}


def test_the_rule_speaks_of_the_workload_whose_pods_hold_idle_devices() -> None:
    front = deployment()
    middle = owned(replica_set(), front)
    found = audited(readings(device("x"), device("busy", 90, 80)), front, middle, owned(a_pod("x"), middle), a_pod("busy"))
    assert said(found) == {"Deployment serve": ["HeldIdle"], "Pod busy": []}


def test_without_figures_nothing_is_said_and_nothing_is_shown() -> None:
    found = audited(None, a_pod("x"))
    assert said(found) == {"Pod x": []}
    assert found.fleet is None
    assert document_of(found)["usage"] is None
    out = Console(file=io.StringIO(), width=200)
    print_usage(found, out)
    assert out.file.getvalue() == ""  # type: ignore[attr-defined]


def test_sums_stand_by_team_and_count_slices_as_the_part_that_they_are() -> None:
    first, second = a_pod("x"), a_pod("y")
    first["metadata"]["labels"] = {"team": "red"}
    second["metadata"]["labels"] = {"team": "blue"}
    sliced = device("y", 90, 70, profile="3g.40gb", slice="2")
    found = audited(readings(device("x"), sliced, device(""), device("gone", 50, 50)), first, second)
    owners = held_by_owner(found)
    assert [(name, one.devices, one.idle, one.low) for name, one in owners.items()] == [("red", 1, 1, 0), ("blue", 1, 0, 0)]
    assert owners["blue"].window_use[0].parts == pytest.approx(3 / 7)
    whole = held_in_all(found)
    assert (whole.devices, whole.idle, free_in_all(found)) == (3, 1, 1)
    assert whole.window_use[0].percent == pytest.approx(100 * (0.01 + 0.7 * 3 / 7 + 0.5) / (2 + 3 / 7), abs=0.01)
    assert [(one.state, one.device.pod) for one in device_lines(found)] == [
        ("idle", "x"),
        ("busy", "y"),
        ("stray", "gone"),
        ("free", ""),
    ]
    assert (
        usage_in_words(found) == "3 GPUs held: used 33 % over 1h, 33 % over 30 days, equal to 0.8 fully used GPUs; 1 idle; 1 free."
    )


def test_sums_go_by_the_owner_that_is_told_before_the_team() -> None:
    told = a_pod("x")
    told["metadata"]["labels"] = {"team": "red"}
    told["metadata"]["annotations"] = {"owner": "ann"}
    found = audited(readings(device("x")), told)
    assert list(held_by_owner(found)) == [dict(found.workloads[0].belongs)["owner"]] == ["ann"]


def test_a_workload_that_is_exempt_is_not_counted_as_idle() -> None:
    held = a_pod("x")
    held["metadata"]["annotations"] = {"gpugate.io/exempt": "idle", "gpugate.io/exempt-reason": "a demonstration"}
    rules = [policy(rules={"idle": {}}, mode=None, exemptions={"rules": ["idle"]})]
    found = audited(readings(device("x")), held, policies=rules)
    assert said(found) == {"Pod x": ["Exempt"]}
    assert held_in_all(found).idle == 0


def test_a_policy_that_turns_the_rule_off_leaves_the_figures() -> None:
    found = audited(readings(device("x")), a_pod("x"), policies=[policy(rules={"idle": {"mode": "Disabled"}}, mode=None)])
    assert said(found) == {"Pod x": []}
    assert [one.state for one in device_lines(found)] == [""]


def test_devices_of_other_namespaces_are_left_out_where_some_are_asked_for() -> None:
    found = audited(readings(device("x"), device("y", namespace="b"), device("")), a_pod("x")).only(frozenset({"team-a"}))
    assert [one.device.pod for one in device_lines(found)] == ["x"]


def test_what_needs_a_look_is_told_at_the_terminal() -> None:
    bad = Health(86_400, double_bit=1, xid=63)
    found = audited(readings(device("x", health=bad), remarks=("Prometheus is slow",)), a_pod("x"))
    out = io.StringIO()
    print_usage(found, Console(file=out, width=200))
    assert "check n1 GPU 0: last Xid 63, 1 double-bit ECC error in 24h, held by team-a/x" in out.getvalue()
    assert "Prometheus is slow" in found.remarks


def test_times_are_those_of_every_policy_that_binds_the_rule() -> None:
    default = idle_times(PolicySet([]))
    assert default == Times((3600, MONTH), (3600, 86_400, MONTH))
    off = policy("off", rules={"idle": {"mode": "Disabled", "idleFor": "9h"}}, mode=None)
    other = policy("other", rules={"host-memory": {}}, mode=None)
    short = policy("short", rules={"idle": {"idleFor": "10m"}}, mode=None)
    assert idle_times(PolicySet([off, other])) == default
    assert idle_times(PolicySet([short]), PolicySet([policy(mode="Mutate")])).windows == (600, 3600, MONTH)


def test_options_for_prometheus_need_its_address(tmp_path: Path) -> None:
    assert monitoring("", None, None, None) is None
    assert monitoring("http://h", tmp_path, None, ['a="b"']) == Address("http://h", token_file=tmp_path, matchers=('a="b"',))
    for rest in ((tmp_path, None, None), (None, tmp_path, None), (None, None, ['a="b"'])):
        with pytest.raises(InputError, match="need --prometheus URL"):
            monitoring("", *rest)


def test_the_controller_takes_the_address_from_its_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []

    async def run(options: Any, _log: Log) -> None:
        taken.append(options.monitoring)

    monkeypatch.setattr(controller, "run", run)
    for arguments, env in (([], {"GPUGATE_PROMETHEUS": "http://me:pw@h:9090"}), (["--prometheus=https://p"], {}), ([], {})):
        done = CliRunner().invoke(app, ["controller", *arguments], env=env)
        assert done.exit_code == 0, done.output
    assert taken == [Address("http://h:9090", "me", "pw"), Address("https://p"), None]


class Asked:
    """Prometheus as the keeper knows it."""

    def __init__(self, *answers: Readings | Exception) -> None:
        self.answers = list(answers)
        self.times: list[Times] = []
        self.begun = asyncio.Event()
        self.arrived = asyncio.Event()

    async def __call__(self, _address: Address, wanted: Times, _at: float) -> Readings:
        self.times.append(wanted)
        self.begun.set()
        answer = self.answers.pop(0)
        if not self.answers:
            self.arrived.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def kept(asked: Asked, *, wall: float = AT, interval: float = 0.001) -> tuple[UsagePoller, io.StringIO]:
    """A keeper after the last of the answers, and its log."""
    out = io.StringIO()
    log = Log(out)
    keeper = UsagePoller(Address("http://h"), lambda: PolicySet([]), interval, log, fetch=asked, wall=lambda: wall)
    task = asyncio.create_task(keeper.run())
    async with asyncio.timeout(10):
        await asked.arrived.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    log.flush()
    return keeper, out


@pytest.mark.asyncio
async def test_the_last_reading_is_kept_through_a_failure_with_a_remark_until_it_is_old() -> None:
    first = readings(device("x"))
    keeper, out = await kept(Asked(first, PrometheusError("Prometheus at http://h cannot be reached: no")), interval=0.001)
    assert keeper.current() is first
    assert keeper.remarks() == ("Prometheus at http://h cannot be reached: no: GPU figures are those of 2026-03-02T09:30:00Z",)
    assert "cannot be reached" in out.getvalue()
    keeper._wall = lambda: AT + 1
    assert keeper.current() is None
    assert keeper.remarks() == ("Prometheus at http://h cannot be reached: no: no GPU figures are shown",)


@pytest.mark.asyncio
async def test_an_error_that_nobody_foresaw_ends_no_keeper() -> None:
    last = readings(device("x"))
    keeper, out = await kept(Asked(ValueError("odd"), last))
    assert keeper.current() is last
    assert keeper.remarks() == ()
    assert (keeper.asked, keeper.failed) == (2, 1)
    assert "ValueError: odd" in out.getvalue()


@pytest.mark.asyncio
async def test_a_policy_with_other_times_is_asked_for_soon() -> None:
    policies = [PolicySet([])]
    asked = Asked(readings(), readings())
    keeper = UsagePoller(
        Address("http://h"), lambda: policies[0], 3600.0, Log(io.StringIO()), fetch=asked, wall=lambda: AT, pause=0.001
    )
    task = asyncio.create_task(keeper.run())
    async with asyncio.timeout(10):
        await asked.begun.wait()
        policies[0] = PolicySet([policy(rules={"idle": {"idleFor": "10m"}}, mode=None)])
        await asked.arrived.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [one.windows for one in asked.times] == [(3600, MONTH), (600, MONTH)]


@pytest.mark.asyncio
async def test_a_round_takes_the_figures_that_are_there_and_judges_again_only_what_they_changed() -> None:
    stand = Stand(pods=0)
    stand.state.publish(policies=[policy(rules={"idle": {}}, mode=None)])
    latest: list[Readings | None] = [None]
    stand.audit_loop._source.readings = lambda: latest[0]
    stand.informer.replaced(PODS, [observe_workload(a_pod(name)) for name in ("x", "y", "z")])
    async with stand.running():
        await stand.next(0)
        assert stand.audit_loop.latest is not None
        assert stand.audit_loop.latest.fleet is None
        latest[0] = readings(device("x"), device("y", 90, 80))
        await stand.next(1)
        assert stand.last == (2, False), "z has no figures"
        assert [[used.state for used in one.used] for one in stand.audit_loop.latest.workloads] == [["idle"], ["busy"], []]
        assert stand.effects == ["warn", "clean", "clean"]
        latest[0] = readings(device("x"), device("y", 91, 80), at=AT + 1)
        await stand.next(2)
        assert stand.last == (1, False), "x is as it was"
        latest[0] = None
        await stand.next(3)
        assert stand.last == (2, False)
        assert stand.audit_loop.latest.fleet is None
        assert all(not one.used for one in stand.audit_loop.latest.workloads)


def test_metrics_count_held_devices_and_questions() -> None:
    keeper = UsagePoller(Address("http://h"), lambda: PolicySet([]), 60, Log(io.StringIO()))
    found = audited(readings(device("x"), device("y", 90, 80), device("z", 60, 30)), *map(a_pod, "xyz"))
    families = {one.name: [(dict(sample.labels), sample.value) for sample in one.samples] for one in usage_families(found, keeper)}
    assert families["gpugate_gpus_held"] == [({}, 3)]
    assert families["gpugate_gpus_held_idle"] == [({}, 1)]
    assert families["gpugate_gpus_held_low"] == [({}, 1)]
    ratios = {labels["window"]: value for labels, value in families["gpugate_gpus_utilisation_ratio"]}
    assert ratios == pytest.approx({"1h": 0.37, "30 days": 0.37})
    assert {one.name for one in usage_families(None, keeper)} == {"gpugate_prometheus_questions", "gpugate_prometheus_failures"}
    assert list(usage_families(found, None)) == []


def test_the_document_has_every_field_that_the_docs_promise() -> None:
    found = orjson.loads(orjson.dumps(document_of(audited(readings(device("x")), a_pod("x")))["usage"]))
    assert list(found) == ["at", "windows", "free", "held", "owners", "devices"]
    assert list(found["held"]) == ["devices", "idle", "low", "unknown", "utilisation"]
    assert " ".join(found["devices"][0]) == (
        "state namespace pod container workload owner node gpu uuid model profile slice share heldSeconds utilisation spans"
        " memory memoryUsed memoryPeak powerWatts temperatureCelsius health"
    )
