"""What `gpugate controller` is told reaches the program."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from gpugate.webhook.cli import controller
from gpugate.webhook.cli.main import app
from gpugate.webhook.controller.audit_loop import AuditSchedule
from gpugate.webhook.controller.leader_election import LeaseDurations
from gpugate.webhook.controller.program import ControllerOptions
from gpugate.webhook.runtime.log import Log


def options_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> ControllerOptions:
    taken: list[ControllerOptions] = []

    async def run(options: ControllerOptions, _log: Log) -> None:
        taken.append(options)

    monkeypatch.setattr(controller, "run", run)
    done = CliRunner().invoke(app, ["controller", *arguments])
    assert done.exit_code == 0, done.output
    return taken[0]


def test_every_figure_arrives_where_it_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = options_of(
        monkeypatch,
        "--listen=127.0.0.1:8181",
        "--namespace=here",
        "--lease-duration=30",
        "--interval=900",
        "--settle=3",
        "--rate=250",
        "--report-spacing=7",
        "--allow-host=audit.example.com",
        "--team-label=squad",
    )
    assert (found.host, found.port, found.namespace) == ("127.0.0.1", 8181, "here")
    assert found.schedule == AuditSchedule(interval=900.0, gather=3.0, slow_facts=60.0, rate=250.0)
    assert found.durations == LeaseDurations(duration=30, deadline=20.0, retry=4.0)
    assert (found.spacing, found.hosts, found.team_labels) == (7.0, ("audit.example.com",), ("squad",))


def test_without_options_the_pace_is_the_documented_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = options_of(monkeypatch)
    assert found.schedule == AuditSchedule(interval=600.0, gather=2.0, slow_facts=60.0, rate=500.0)
    assert found.durations == LeaseDurations()
