"""Who holds GPUs and does not use them: a real Prometheus with series as dcgm-exporter writes them, and the audit that asks it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.e2e.controller import Controller
from tests.e2e.controlplane import free_port, wait_until
from tests.e2e.gate import Gate
from tests.e2e.monitoring.dcgm import A100, ACTIVE, FREE, T4, USED, UTIL, Device, Spelling, history
from tests.e2e.monitoring.server import PASSWORD, USER, Prometheus, exporter, scrape
from tests.e2e.workloads import pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.controlplane import ControlPlane

GPUGATE = Path(sys.executable).with_name("gpugate")
REPLAYS, DOUBLE_BIT, NVLINK = (
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
)
TEMPERATURE, POWER, XID = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS"


def card(util: Any, used: float, size: float = 81920) -> dict[str, Any]:
    """Values of a whole card: both metrics of utilisation, and memory in MiB."""
    active = (lambda ago: util(ago) / 100) if callable(util) else util / 100
    return {UTIL: util, ACTIVE: active, USED: used, FREE: size - used, TEMPERATURE: 40, POWER: 80, XID: 0}


def once(before: float, then: float, *, at: float) -> Callable[[float], float]:
    """``before`` until ``at`` hours ago, ``then`` since."""
    return lambda ago: before if ago > at else then


DEVICES = [
    # A notebook: 12 % yesterday, hardly anything since.
    Device("gpu-1", 0, card(once(12, 1, at=5), 6200), ("team-a", "notebook", "main")),
    # Two pods of a Deployment, one card each, both at work, the second with a card that needs a look.
    Device("gpu-1", 1, card(95, 70000), ("team-a", "serve-6d4f9-abcde", "main")),
    Device(
        "gpu-1",
        2,
        card(85, 70000) | {DOUBLE_BIT: once(0, 2, at=3), REPLAYS: once(5, 905, at=3), XID: 63, NVLINK: once(1, 9e9, at=3)},
        ("team-a", "serve-6d4f9-fghij", "main"),
    ),
    # A Job whose average is low, though it is busy now and then.
    Device("gpu-2", 0, card(lambda ago: 90 if ago % 1 < 0.25 else 2, 30000), ("team-b", "train-0", "main")),
    # A card that is cut: no DCGM_FI_DEV_GPU_UTIL, and a row of the card itself without a pod.
    Device("gpu-2", 1, {USED: 9000, FREE: 72920, TEMPERATURE: 35}),
    Device("gpu-2", 1, {ACTIVE: 0.02, USED: 4000, FREE: 36000}, ("team-b", "embed", "main"), profile="3g.40gb", instance="2"),
    Device("gpu-2", 1, {ACTIVE: 0.97, USED: 9000, FREE: 700}, ("team-b", "rank", "main"), profile="1g.10gb", instance="9"),
    # A card that cannot be cut, and one that nobody holds.
    Device("gpu-3", 0, card(once(20, 3, at=5), 3000, 15360), ("team-b", "ocr", "main"), model=T4),
    Device("gpu-3", 1, card(0, 3, 15360), model=T4),
    # Given to its pod half an hour ago.
    Device("gpu-3", 2, card(0, 3, 15360), ("team-b", "young", "main"), model=T4, hours=0.5),
]
SINCE = "the peak of the time that they have been held"
TEAMS = {"team-a": "research", "team-b": "vision"}


def kept_pod(
    name: str, namespace: str, gpus: int = 1, owner: dict[str, str] | None = None, resource: str = "nvidia.com/gpu"
) -> Any:
    limits = {resource: str(gpus), "memory": "64Gi", "cpu": "8"}
    owners = [{**owner, "uid": f"uid-{owner['name']}", "controller": True}] if owner else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "ownerReferences": owners},
        "spec": {"containers": [{"name": "main", "image": "a:1", "resources": {"limits": limits, "requests": limits}}]},
        "status": {"phase": "Running"},
    }


def made_by(kind: str, name: str, api_version: str) -> dict[str, str]:
    return {"apiVersion": api_version, "kind": kind, "name": name}


def templated(api_version: str, kind: str, name: str, namespace: str, owner: dict[str, str] | None = None, **spec: Any) -> Any:
    whole = kept_pod(name, namespace, owner=owner)
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {**whole["spec"], "restartPolicy": "Never" if kind == "Job" else "Always"},
    }
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": whole["metadata"],
        "spec": {**selector, **spec, "template": template},
    }


def objects() -> list[Any]:
    """The cluster's objects: pods with their owners, as kubectl gets them."""
    replicas = made_by("ReplicaSet", "serve-6d4f9", "apps/v1")
    return [
        *(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}}
            for name, team in TEAMS.items()
        ),
        kept_pod("notebook", "team-a"),
        templated("apps/v1", "Deployment", "serve", "team-a", replicas=2),
        templated("apps/v1", "ReplicaSet", "serve-6d4f9", "team-a", made_by("Deployment", "serve", "apps/v1"), replicas=2),
        kept_pod("serve-6d4f9-abcde", "team-a", owner=replicas),
        kept_pod("serve-6d4f9-fghij", "team-a", owner=replicas),
        templated("batch/v1", "Job", "train", "team-b", parallelism=1),
        kept_pod("train-0", "team-b", owner=made_by("Job", "train", "batch/v1")),
        kept_pod("embed", "team-b", resource="nvidia.com/mig-3g.40gb"),
        kept_pod("rank", "team-b", resource="nvidia.com/mig-1g.10gb"),
        kept_pod("young", "team-b"),
        kept_pod("ocr", "team-b", owner=made_by("Notebook", "ocr", "example.com/v1")),
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("objects") / "cluster.json"
    file.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": objects()}))
    return file


def with_history(folder: Path, spelling: Spelling, devices: list[Device], **options: Any) -> Prometheus:
    found = Prometheus(folder, **options)
    found.remember(history(devices, spelling, now=time.time(), hours=26))
    found.start()
    return found


@pytest.fixture(scope="module", params=Spelling, ids=lambda one: one.name.lower())
def prometheus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus with 26 hours of all devices, in each spelling of the holder's labels."""
    found = with_history(tmp_path_factory.mktemp("prometheus"), request.param, DEVICES)
    try:
        yield found
    finally:
        found.stop()


def run(*arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(GPUGATE), "audit", "--color=never", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=env)


def audited(*arguments: str | Path) -> Any:
    done = run(*arguments, "-o", "json")
    assert done.returncode in {0, 1}, done.stderr
    return orjson.loads(done.stdout)


def idle_items(audit: Any) -> dict[str, tuple[str, str, str]]:
    """Reason, message and remedy of what the rule says, by workload."""
    return {
        f"{one['kind']} {one['namespace']}/{one['name']}": (item["reason"], item["message"], item["remedy"])
        for one in audit["workloads"]
        for item in one["items"]
        if item["rule"] == "idle"
    }


def test_who_holds_idle_gpus_is_told_with_what_would_have_been_enough(prometheus: Prometheus, files: Path) -> None:
    found = idle_items(audited(files, "--prometheus", prometheus.url))
    assert found == {
        "Pod team-a/notebook": (
            "HeldIdle",
            "1 of 1 GPU held never reached 30 % in 1h: gpu-1 GPU 0 of pod notebook 1 %",
            f"Request nvidia.com/mig-1g.10gb, which is enough for {SINCE} (12 %, 6.1Gi).",
        ),
        "Job team-b/train": (
            "LowAverage",
            found["Job team-b/train"][1],
            (
                f"Share a GPU between 2 such pods by time-slicing, because no MIG slice of {A100} is enough"
                f" for {SINCE} (90 %, 29.3Gi)."
            ),
        ),
        "Pod team-b/embed": (
            "HeldIdle",
            "1 of 1 MIG slice held never reached 30 % in 1h: gpu-2 GPU 1 (3g.40gb) of pod embed 2 %",
            found["Pod team-b/embed"][2],
        ),
        "Notebook team-b/ocr": (
            "HeldIdle",
            "1 of 1 GPU held never reached 30 % in 1h: gpu-3 GPU 0 of pod ocr 3 %",
            f"Share a GPU between 5 such pods by time-slicing, because no MIG slice of {T4} is enough for {SINCE} (20 %, 3Gi).",
        ),
    }
    assert "averaged less than 40 % over 30 days" in found["Job team-b/train"][1]


def test_utilisation_stands_against_allocation_in_all_and_by_team(prometheus: Prometheus, files: Path) -> None:
    usage = audited(files, "--prometheus", prometheus.url)["usage"]
    assert usage["windows"] == [3600, 2592000]
    assert (usage["held"]["devices"], usage["held"]["idle"], usage["held"]["low"], usage["free"]) == (8, 3, 1, 1)
    assert [(one["owner"], one["devices"], one["idle"], one["low"]) for one in usage["owners"]] == [
        ("vision", 5, 2, 1),
        ("research", 3, 1, 0),
    ]
    hour = usage["owners"][1]["utilisation"][0]
    assert hour["seconds"] == 3600
    assert hour["percent"] == pytest.approx((95 + 85 + 1) / 3, abs=0.5)
    lines = {(one["pod"], one["gpu"]): one for one in usage["devices"]}
    assert lines["notebook", "0"]["memory"] == 81920 << 20
    assert lines["notebook", "0"]["workload"] == {"kind": "Pod", "name": "notebook"}
    assert lines["serve-6d4f9-abcde", "1"]["workload"] == {"kind": "Deployment", "name": "serve"}
    assert ("", "1") in lines, "a card that nobody holds"
    assert all("dcgm-exporter" not in pod for pod, _ in lines), "the exporter holds none"
    assert lines["rank", "1"]["state"] == "busy"
    assert lines["young", "2"]["state"] == "young"


def test_a_card_that_needs_a_look_is_told_of(prometheus: Prometheus, files: Path) -> None:
    done = run(files, "--prometheus", prometheus.url, "--no-findings")
    assert (
        "check gpu-1 GPU 2: last Xid 63, 2 double-bit ECC errors, 900 PCIe replays in 24h, held by team-a/serve-6d4f9-fghij"
        in done.stdout
    )
    assert done.stdout.count("check ") == 1
    assert "8 GPUs held: used " in done.stdout
    assert "3 idle, 1 too large for their work; 1 free." in done.stdout


def test_reports_and_the_page_say_it_too(prometheus: Prometheus, files: Path, tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    report = run(files, "--prometheus", prometheus.url, "-o", "policyreport", "--html", page).stdout
    assert "rule: idle" in report
    assert "never reached 30 % in 1h" in report
    text = page.read_text()
    assert "Request nvidia.com/mig-1g.10gb" in text
    assert 'id="idle"' in text


def test_the_policys_thresholds_selectors_and_modes_hold(prometheus: Prometheus, files: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    spec = {"rules": {"idle": {"below": 2, "idleFor": "2h", "averageBelow": 10, "ignoreYounger": "1h"}}}
    policy.write_bytes(
        orjson.dumps({"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy", "metadata": {"name": "p"}, "spec": spec})
    )
    found = idle_items(audited(files, "--prometheus", prometheus.url, "--policy", policy))
    assert {name: reason for name, (reason, _, _) in found.items()} == {
        "Pod team-a/notebook": "HeldIdle",
        "Pod team-b/embed": "LowAverage",
    }
    assert "in 2h: " in found["Pod team-a/notebook"][1]


def test_nothing_is_said_without_prometheus(files: Path) -> None:
    found = audited(files)
    assert idle_items(found) == {}
    assert found["usage"] is None


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Callable[..., Prometheus]]:
    """Makes a Prometheus of its own for a test."""
    made: list[Prometheus] = []

    def make(devices: list[Device], **options: Any) -> Prometheus:
        made.append(with_history(tmp_path / f"prometheus-{len(made)}", Spelling.HONOURED, devices, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_a_missing_metric_is_a_remark_and_no_idleness(bare: Callable[..., Prometheus], files: Path) -> None:
    blind = [Device("gpu-1", 0, {USED: 6200, FREE: 75720}, ("team-a", "notebook", "main"))]
    found = audited(files, "--prometheus", bare(blind).url)
    assert idle_items(found) == {}
    assert any("idle GPUs are not known" in one for one in found["remarks"])
    (line,) = found["usage"]["devices"]
    assert (line["state"], line["spans"], line["memoryPeak"]) == ("unknown", [], 6200 << 20)


def test_a_prometheus_without_dcgm_says_so(bare: Callable[..., Prometheus], files: Path) -> None:
    other = Device("gpu-1", 0, {"up": 1})
    found = audited(files, "--prometheus", bare([other]).url)
    assert "Prometheus has no series of dcgm-exporter (DCGM_FI_...): no GPU figures are known" in found["remarks"]


def test_a_name_and_password_are_asked_for_and_never_shown(bare: Callable[..., Prometheus], files: Path) -> None:
    locked = bare(DEVICES[:1], password=True)
    refused = run(files, "--prometheus", locked.url, "-o", "json")
    (remark,) = orjson.loads(refused.stdout)["remarks"]
    assert remark.startswith(f"Prometheus at {locked.url} refuses: 401 Unauthorized; give --prometheus-token FILE")
    wrong = run(files, "--prometheus", locked.url.replace("//", f"//{USER}:letmein@"), "-o", "json")
    assert "401 Unauthorized" in wrong.stdout
    assert "letmein" not in wrong.stdout + wrong.stderr
    let_in = run(files, "--prometheus", locked.url.replace("//", f"//{USER}:{PASSWORD}@"), "-o", "json")
    assert "Pod team-a/notebook" in idle_items(orjson.loads(let_in.stdout))
    assert PASSWORD not in let_in.stdout + let_in.stderr


def test_nobody_at_the_address_is_one_line_and_the_audit_goes_on(files: Path) -> None:
    found = audited(files, "--prometheus", f"http://127.0.0.1:{free_port()}/prom")
    (remark,) = found["remarks"]
    assert "cannot be reached: " in remark
    assert "\n" not in remark
    assert len(found["workloads"]) == 7


def test_an_address_of_something_else_is_one_line(bare: Callable[..., Prometheus], files: Path) -> None:
    found = audited(files, "--prometheus", f"{bare(DEVICES[:1]).url}/somewhere")
    (remark,) = found["remarks"]
    assert "404 Not Found: is this the address of Prometheus itself?" in remark


def test_a_prometheus_that_was_stopped_is_told_of(bare: Callable[..., Prometheus], files: Path) -> None:
    found = bare(DEVICES[:1])
    assert idle_items(audited(files, "--prometheus", found.url))
    found.stop()
    after = audited(files, "--prometheus", found.url)
    assert idle_items(after) == {}
    assert "cannot be reached" in after["remarks"][0]


@pytest.mark.parametrize("honor_labels", [True, False], ids=["honoured", "renamed"])
def test_a_live_scrape_comes_out_the_same_whether_it_honours_labels_or_not(
    tmp_path: Path, files: Path, *, honor_labels: bool
) -> None:
    policy = tmp_path / "policy.json"
    spec = {"rules": {"idle": {"idleFor": "2s", "ignoreYounger": "2s", "averageOver": "4s", "averageFrom": "4s"}}}
    policy.write_bytes(
        orjson.dumps({"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy", "metadata": {"name": "p"}, "spec": spec})
    )
    devices = [
        Device("gpu-1", 0, card(1, 6200), ("team-a", "notebook", "main")),
        Device("gpu-1", 1, card(95, 70000), ("team-a", "serve-6d4f9-abcde", "main")),
        Device("gpu-1", 3, card(0, 3)),
    ]
    found = Prometheus(tmp_path / "prometheus")
    with exporter(devices) as target:
        try:
            found.start(scrape(target, honor_labels=honor_labels))
            wait_until(lambda: found.value(f"count({UTIL} offset 5s)") == 3, 60, "five seconds of scrapes")
            audit = audited(files, "--prometheus", found.url, "--policy", policy)
        finally:
            found.stop()
    assert set(idle_items(audit)) == {"Pod team-a/notebook"}
    assert (audit["usage"]["held"]["devices"], audit["usage"]["free"]) == (2, 1)


@pytest.fixture
def machine(control_plane: ControlPlane) -> Iterator[str]:
    """gpugate's manifests without its webhooks, and a machine with GPUs."""
    Gate(control_plane).install()
    control_plane.add_gpu_node("idle-h100-1")
    yield "idle-h100-1"
    control_plane.remove_node("idle-h100-1")


def running_pods(cluster: ControlPlane, namespace: str) -> list[str]:
    found = cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
    return sorted(one["metadata"]["name"] for one in found if one["status"].get("phase") == "Running")


def test_the_controller_of_a_live_cluster_asks_on_its_own_and_goes_on_without_an_answer(
    control_plane: ControlPlane, namespace: str, machine: str, bare: Callable[..., Prometheus]
) -> None:
    template = pod("serve", namespace, tolerations=[{"operator": "Exists"}], restartPolicy="Always")
    labels = {"matchLabels": {"app": "serve"}}
    front = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serve", "namespace": namespace}}
    pods_of = {"metadata": {"labels": {"app": "serve"}}, "spec": template["spec"]}
    control_plane.apply({**front, "spec": {"replicas": 2, "selector": labels, "template": pods_of}})
    wait_until(lambda: len(running_pods(control_plane, namespace)) == 2, 60, "both pods to run")
    first, second = running_pods(control_plane, namespace)
    watched = bare(
        [
            Device(machine, 0, card(1, 6200), (namespace, first, "train")),
            Device(machine, 1, card(90, 60000), (namespace, second, "train")),
        ]
    )
    wanted = {f"Deployment {namespace}/serve": f"1 of 2 GPUs held never reached 30 % in 1h: {machine} GPU 0 of pod {first} 1 %"}

    once = idle_items(audited("--kubeconfig", control_plane.kubeconfig, "--prometheus", watched.url, "-n", namespace))
    assert {name: message for name, (_, message, _) in once.items()} == wanted

    controller = Controller(control_plane, "gpugate-controller-idle")
    try:
        controller.start(f"--prometheus={watched.url}", "--interval=1", "--lease-duration=3")

        def told() -> dict[str, str]:
            items = idle_items(controller.audit())
            return {name: message for name, (_, message, _) in items.items() if f" {namespace}/" in name}

        wait_until(lambda: told() == wanted, 30, "the controller to tell of the idle GPU")
        watched.stop()
        wait_until(
            lambda: any("cannot be reached" in one and "GPU figures" in one for one in controller.audit()["remarks"]),
            30,
            "a remark that Prometheus is gone",
        )
        rounds = controller.metric("gpugate_audit_rounds_total")
        wait_until(lambda: controller.metric("gpugate_audit_rounds_total") > rounds + 2, 30, "the audit to go on")
        wait_until(lambda: not told(), 30, "figures that are too old to be dropped")
        assert controller.status("/readyz") == 200
    finally:
        controller.stop()
