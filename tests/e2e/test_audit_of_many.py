"""Many workloads: DryRun reports what Enforce then does, and an audit of ten thousand costs what the documentation says."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controller import Controller
from tests.e2e.controlplane import crds, wait_until
from tests.e2e.controlplane.programs import find_programs
from tests.e2e.fleet import fleet, left, remove, send
from tests.e2e.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.controlplane.access import ApiResponse

pytestmark = pytest.mark.e2e

COUNT, MANY = 1000, 10_000
POLICY_REPORTS = "policyreports.wgpolicyk8s.io"
REPORTS = "/apis/wgpolicyk8s.io/v1alpha2/policyreports"
#: The rules that a refusal names: at its beginning, or one to a line.
_RULES = re.compile(r"(?:: |^- )([a-z]+(?:-[a-z]+)*): ", re.MULTILINE)


@pytest.fixture(scope="module", autouse=True)
def reports_served(control_plane: ControlPlane) -> Iterator[None]:
    crds.install_report_kind(control_plane, find_programs(), POLICY_REPORTS)
    yield
    crds.remove_crd(control_plane, POLICY_REPORTS)


@pytest.fixture
def namespaces(control_plane: ControlPlane, namespace: str) -> Iterator[list[str]]:
    found = [f"{namespace}-{number}" for number in range(10)]
    for at, name in enumerate(found):
        labels = {"tier": "research" if at % 3 == 0 else "product"}
        control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    yield found
    for name in found:
        control_plane.request("DELETE", f"/api/v1/namespaces/{name}")


def set_policies(gate: Gate, mode: str) -> None:
    """Two policies: one for everybody with exemptions, and one for research, which is more lenient."""
    gate.set_policy({"mode": mode, "exemptions": {"rules": ["host-memory"]}})
    lenient = {"host-memory": {"mode": mode, "maxOvercommitRatio": 20}, "tolerations": {"mode": "Disabled"}}
    match = {"namespaceSelector": {"matchLabels": {"tier": "research"}}}
    gate.set_policy({"match": match, "priority": 10, "rules": lenient}, name="research")


def told(control_plane: ControlPlane, effect: str) -> dict[str, set[str]]:
    """Rules by workload, of the reports' results with this effect."""
    found: dict[str, set[str]] = {}
    for report in control_plane.request("GET", REPORTS).body["items"]:
        assert "annotations" not in report["metadata"], "nothing is left out of a report this small"
        for one in report["results"]:
            if one["properties"]["effect"] == effect:
                found.setdefault(one["resources"][0]["name"], set()).add(one["rule"])
    return found


def content(answer: ApiResponse) -> Any:
    """What of a stored object somebody stated or gpugate put in."""
    metadata = answer.body["metadata"]
    return answer.body["spec"], metadata.get("labels"), metadata.get("annotations")


def test_dry_run_on_a_thousand_workloads_reports_what_enforce_then_does_to_them(
    control_plane: ControlPlane, gate: Gate, namespaces: list[str]
) -> None:
    objects = fleet(namespaces, COUNT)
    names = [one["metadata"]["name"] for one in objects]
    controller = Controller(control_plane)
    try:
        set_policies(gate, "DryRun")
        first = send(control_plane, objects)
        assert [answer.status for answer in first] == [201] * COUNT, "DryRun refuses nothing"
        controller.start("--lease-duration=3")
        controller.wait_leading()
        wait_until(lambda: controller.metric("gpugate_audit_workloads") >= COUNT, 60, "all workloads to be audited")
        wait_until(lambda: len(told(control_plane, "change")) > 0, 60, "reports")
        settled(control_plane)
        refusals, changes = told(control_plane, "refuse"), told(control_plane, "change")

        remove(control_plane, namespaces)
        wait_until(lambda: left(control_plane, namespaces) == 0, 120, "the workloads to go")
        set_policies(gate, "Enforce")
        gate.wait_in_force()
        second = send(control_plane, objects)
        answers = dict(zip(names, second, strict=True))
        refused = {name: set(_RULES.findall(one.body["message"])) for name, one in answers.items() if one.status == 403}
        assert {answer.status for answer in second} <= {201, 403}
        assert refusals == refused
        changed = {
            name
            for name, before, after in zip(names, first, second, strict=True)
            if after.status == 201 and content(before) != content(after)
        }
        assert changes.keys() - refusals.keys() == changed
        assert len(refused) > COUNT // 10
        assert len(changed) > COUNT // 3
        assert COUNT - len(refused) - len(changed) > 0, "some are right as they are"
    finally:
        controller.stop()
        remove(control_plane, namespaces)


def settled(control_plane: ControlPlane) -> None:
    """Wait until no report was written for a second."""
    seen = [""]

    def same() -> bool:
        items = control_plane.request("GET", REPORTS).body["items"]
        seen.append(" ".join(one["metadata"]["resourceVersion"] for one in items))
        return seen[-1] == seen[-2]

    wait_until(same, 60, "the reports to settle", interval=1.0)


def peak_memory(pid: int) -> int:
    """The most memory that a process has held, in bytes."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def test_ten_thousand_workloads_are_audited_at_a_cost_that_is_written_down(
    control_plane: ControlPlane, gate: Gate, namespaces: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    gate.unregister()  # the webhooks have no part in this, and the objects come faster
    controller = Controller(control_plane)
    try:
        set_policies(gate, "DryRun")
        answers = send(control_plane, fleet(namespaces, MANY, seed=11))
        assert {one.status for one in answers} == {201}
        started = time.monotonic()
        controller.start("--lease-duration=3", "--rate=100000", "--interval=3600", ready=False)
        wait_until(lambda: controller.status("/readyz") == 200, 120, "the first audit")
        first = time.monotonic() - started
        controller.wait_leading()
        wait_until(
            lambda: len(control_plane.request("GET", REPORTS).body["items"]) >= len(namespaces), 60, "a report for each namespace"
        )
        settled(control_plane)
        items = [one for one in control_plane.request("GET", REPORTS).body["items"] if one["metadata"]["namespace"] in namespaces]
        sizes = list(control_plane.stored("/registry/wgpolicyk8s.io/policyreports/").values())
        calls = {
            verb: controller.metric("gpugate_api_calls_total", verb=verb) for verb in ("get", "watch", "create", "patch", "delete")
        }
        figures = {
            "workloads": controller.metric("gpugate_audit_workloads"),
            "seconds to the first audit": round(first, 1),
            "seconds of the round": round(controller.metric("gpugate_audit_round_seconds"), 2),
            "peak memory, MiB": peak_memory(controller.pid) // 2**20,
            "calls": calls,
            "report writes": controller.metric("gpugate_report_writes_total"),
            "reports": len(items),
            "bytes of reports in etcd": sum(sizes),
            "largest report": max(sizes),
            "left out": sum(int(one["metadata"].get("annotations", {}).get("gpugate.io/results-left-out", "0")) for one in items),
            "results": sum(len(one["results"]) for one in items),
        }
        with capsys.disabled():
            print("\n", figures)
        assert controller.metric("gpugate_audit_workloads") >= MANY
        assert len(items) == len(namespaces), "one report a namespace"
        assert max(sizes) < 300 * 1024
        assert sum(sizes) < 10 * 2**20, "a peer's reports of as many workloads take 483 MB"
        assert controller.metric("gpugate_report_writes_total") <= 5 * len(namespaces)
        assert calls["watch"] + calls["get"] < 300, "no call for each workload"
        assert peak_memory(controller.pid) < 600 * 2**20
        writes = controller.metric("gpugate_report_writes_total")
        set_policies(gate, "Warn")
        rounds = controller.metric("gpugate_audit_rounds_total")
        wait_until(lambda: controller.metric("gpugate_audit_rounds_total") > rounds, 60, "another round")
        assert controller.metric("gpugate_report_writes_total") - writes <= 3 * len(namespaces)
    finally:
        controller.stop()
        remove(control_plane, namespaces)
        gate.register()
