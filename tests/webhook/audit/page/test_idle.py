"""The page's section on held and idle GPUs: what it shows of which device, and what it says where nothing is known."""

from __future__ import annotations

import dataclasses
import re

from gpugate.policies.cluster.gpu_usage import DeviceUse
from gpugate.webhook.audit.model import Audit, Fleet, Used
from gpugate.webhook.audit.page.render import render
from tests.shared import sample_audits

REALISTIC = sample_audits.realistic()


def section(audit: Audit) -> str:
    found = re.search(r'<section id="idle".*?</section>', render(audit).decode(), re.DOTALL)
    assert found is not None
    return found[0]


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", "", html))


def test_every_device_has_a_line_without_a_script_the_idle_ones_first() -> None:
    html = section(REALISTIC)
    devices = [used.device for one in REALISTIC.workloads for used in one.used]
    assert REALISTIC.fleet is not None
    assert html.count("<tr>\n") == len(devices) + len(REALISTIC.fleet.strays)
    for one in devices:
        assert f"<bdi>{one.place}</bdi>" in html
        assert one.pod in html
    states = re.findall(r'<span class="state s-\w+">([^<]+)<', html)
    assert states == sorted(states, key=["idle", "too large", "busy", "just started", "unknown pod", "free"].index)
    assert "script" not in html


def test_utilisation_against_allocation_is_the_headline_of_the_section_and_of_the_page() -> None:
    words = "41 GPUs held: used 36 % over 1h, 37 % over 30 days"
    assert words in plain(section(REALISTIC))
    summary = render(REALISTIC).decode().partition('<section id="rules"')[0]
    assert f'<a href="#idle">{words}' in summary


def test_signs_of_bad_health_are_told_at_their_device() -> None:
    text = plain(section(REALISTIC))
    assert "last Xid 63, 2 double-bit ECC errors, 1840 PCIe replays, 12 corrected ECC errors, throttled by heat" in text
    assert text.count("Xid") == 1


def test_what_is_not_known_is_a_dash_and_no_zero() -> None:
    bare = DeviceUse("a", "p", "main", "n1", "0", "GPU-1", "NVIDIA L4")
    audit = dataclasses.replace(sample_audits.empty(), fleet=Fleet("2026-03-02T09:30:00Z", (3600,), (bare,)))
    text = plain(section(audit))
    assert re.search("unknown pod n1 GPU 0NVIDIA L4 Pod a/p [^0-9a-z]* unknown", text)
    assert text.count("\N{EN DASH}") == 4
    assert "1 GPU held: utilisation unknown." in text


def test_a_prometheus_without_series_and_none_at_all_are_told_apart() -> None:
    asked = dataclasses.replace(sample_audits.empty(), fleet=Fleet("2026-03-02T09:30:00Z", (), ()))
    assert "had no series of dcgm-exporter" in section(asked)
    assert "Without Prometheus the use of held GPUs is unknown" in section(sample_audits.empty())


def test_devices_for_which_there_is_no_room_are_counted() -> None:
    many = tuple(Used(sample_audits.device(at, "busy", 90.0, 80.0, pod=f"p{at}", namespace="a"), "busy") for at in range(450))
    audit = dataclasses.replace(REALISTIC, workloads=(dataclasses.replace(REALISTIC.workloads[0], used=many),))
    html = section(audit)
    assert html.count("<tr>\n") == 300
    assert "153 more GPUs are counted above but not listed" in plain(html)
