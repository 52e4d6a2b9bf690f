"""From series to devices: holders in every spelling, slices, restarts of the exporter, missing figures, signs of bad health."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from gpugate.policies.cluster.gpu_usage import Times
from gpugate.webhook.prometheus.client import PrometheusError, QueryError, TimeSeries
from gpugate.webhook.prometheus.queries import NO_HOLDER, DeviceHolder, Queries, exporters_among, holder_of
from gpugate.webhook.prometheus.readings import MOST_TIMES, Readings, read

pytestmark = pytest.mark.asyncio
EXPORTER = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x", "container": "nvidia-dcgm-exporter"}
CARD = {"Hostname": "n1", "gpu": "0", "UUID": "GPU-a", "modelName": "NVIDIA A100-SXM4-80GB"}
HELD = {"namespace": "a", "pod": "p", "container": "main"}
DAY, HOUR = 86_400, 3600
WANTED = Times((HOUR, 30 * DAY), (HOUR, DAY))
Row = tuple[str, dict[str, str], float]


class Fake:
    """Answers as Prometheus would: rows of each question, by what is in it."""

    def __init__(self, rows: dict[str, list[Row]], broken: str = "", error: type[PrometheusError] = QueryError) -> None:
        self._rows = rows
        self._broken = broken
        self._error = error
        self.asked: list[str] = []

    async def query(self, query: str, at: float) -> list[TimeSeries]:
        assert at == 1e9
        self.asked.append(query)
        if self._broken and self._broken in query:
            raise self._error("Prometheus at http://h does not answer a query: too many samples")
        for part, rows in self._rows.items():
            if part in query:
                return [TimeSeries({**labels, **({"__name__": name} if name else {})}, value) for name, labels, value in rows]
        return []


def now(labels: dict[str, str], **metrics: float) -> list[Row]:
    return [(f"DCGM_FI_{name}", labels, value) for name, value in metrics.items()]


def over(metric: str, labels: dict[str, str], seconds: int, peak: float, total: float, count: float) -> dict[str, list[Row]]:
    where = f"_over_time(DCGM_FI_{metric}[{seconds}s])"
    return {
        f"max{where}": [("", labels, peak)],
        f"sum{where}": [("", labels, total)],
        f"count{where}": [("", labels, count)],
    }


def gauges(*rows: Row) -> dict[str, list[Row]]:
    return {"DCGM_FI_DEV_GPU_UTIL|DCGM_FI_PROF_GR_ENGINE_ACTIVE|DCGM_FI_DEV_FB_USED|DCGM_FI_DEV_FB_FREE": list(rows)}


async def reading(rows: dict[str, list[Row]], wanted: Times = WANTED, **fake: str) -> Readings:
    return await read(Fake(rows, **fake), wanted, 1e9)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (HELD, DeviceHolder("a", "p", "main")),
        ({**HELD, "vgpu": "1"}, DeviceHolder("a", "p", "main", "1")),
        (
            {**EXPORTER, "exported_namespace": "a", "exported_pod": "p", "exported_container": "main"},
            DeviceHolder("a", "p", "main"),
        ),
        ({**EXPORTER, "pod_namespace": "a", "pod_name": "p", "container_name": "main"}, DeviceHolder("a", "p", "main")),
        (EXPORTER, NO_HOLDER),
        ({**EXPORTER, "container": "exporter"}, NO_HOLDER),
        ({"namespace": "m", "pod": "gpu-metrics-1"}, NO_HOLDER),
        ({}, NO_HOLDER),
        ({"namespace": "a", "pod": "p", "container": "exporter"}, DeviceHolder("a", "p", "exporter")),
    ],
)
async def test_a_holder_is_found_in_every_spelling_and_the_exporter_is_none(labels: dict[str, str], wanted: DeviceHolder) -> None:
    exporters = exporters_among([{"namespace": "m", "pod": "gpu-metrics-1", "exported_pod": "p"}, {"pod": "p"}])
    assert holder_of(labels, exporters) == wanted


async def test_the_larger_of_both_utilisations_counts_and_averages_are_over_samples() -> None:
    labels = CARD | HELD
    found = await reading(
        gauges(*now(labels, DEV_GPU_UTIL=10, PROF_GR_ENGINE_ACTIVE=0.5, DEV_FB_USED=100, DEV_FB_FREE=900, DEV_FB_RESERVED=24))
        | over("DEV_GPU_UTIL", labels, HOUR, 20, 600, 60)
        | over("PROF_GR_ENGINE_ACTIVE", labels, HOUR, 0.15, 12, 60)
        | over("DEV_GPU_UTIL", labels, 30 * DAY, 80, 100, 10)
        | {"max_over_time(DCGM_FI_DEV_FB_USED[2592000s])": [("", labels, 512)]}
        | {"offset 3600s": [("", labels, 1)]}
    )
    (one,) = found.devices
    assert one.now == 50
    assert one.spans == ((HOUR, 20, 20), (30 * DAY, 80, 10))
    assert (one.memory, one.memory_used, one.memory_peak) == (1024 << 20, 100 << 20, 512 << 20)
    assert (one.held, one.namespace, one.pod, one.node, one.number) == (HOUR, "a", "p", "n1", "0")
    assert found.windows == WANTED.windows
    assert found.remarks == ()


async def test_an_exporter_that_was_restarted_leaves_one_device() -> None:
    new, old = (
        {**CARD, **EXPORTER, "pod": f"nvidia-dcgm-exporter-{at}", "exported_pod": "p", "exported_namespace": "a"} for at in "xy"
    )
    rows = gauges(*now(new, DEV_GPU_UTIL=1)) | {
        "max_over_time(DCGM_FI_DEV_GPU_UTIL[3600s])": [("", old, 90.0), ("", new, 2.0)],
        "sum_over_time(DCGM_FI_DEV_GPU_UTIL[3600s])": [("", old, 900.0), ("", new, 60.0)],
        "count_over_time(DCGM_FI_DEV_GPU_UTIL[3600s])": [("", old, 10.0), ("", new, 30.0)],
        "offset 3600s": [("", old, 1.0)],
    }
    (one,) = (await reading(rows)).devices
    assert one.spans == ((HOUR, 90, 24),)
    assert one.held == HOUR


async def test_a_card_that_is_cut_is_its_slices_and_a_free_row_beside_a_holder_is_none() -> None:
    first = {**CARD, "GPU_I_ID": "2", "GPU_I_PROFILE": "3g.40gb", **HELD}
    second = {**CARD, "GPU_I_ID": "9", "GPU_I_PROFILE": "1g.10gb"}
    other = {**CARD, "UUID": "GPU-b", "gpu": "1"}
    rows = [
        *now(CARD, DEV_FB_USED=9000),
        *now(first, PROF_GR_ENGINE_ACTIVE=0.4),
        *now(second, PROF_GR_ENGINE_ACTIVE=0),
        *now(other | HELD, DEV_GPU_UTIL=5),
        *now(other | EXPORTER, DEV_GPU_UTIL=5),
    ]
    found = await reading(gauges(*rows))
    assert [(one.pod, one.uuid, one.profile, one.now) for one in found.devices] == [
        ("", "GPU-a", "1g.10gb", 0),
        ("p", "GPU-a", "3g.40gb", 40),
        ("p", "GPU-b", "", 5),
    ]


async def test_cards_without_a_uuid_are_told_apart_by_node_and_number() -> None:
    labels = [{"Hostname": node, "gpu": "0"} for node in ("n1", "n2")]
    found = await reading(gauges(*now(labels[0], DEV_GPU_UTIL=1), *now(labels[1], DEV_GPU_UTIL=2)))
    assert [(one.node, one.now) for one in found.devices] == [("n1", 1), ("n2", 2)]


async def test_health_is_what_rose_in_a_day_and_a_counter_that_fell_counts_from_nothing() -> None:
    counters = {
        "DEV_ECC_SBE_VOL_TOTAL": (7, 5),
        "DEV_ECC_DBE_VOL_TOTAL": (1, 4),
        "DEV_PCIE_REPLAY_COUNTER": (30, 10),
        "DEV_NVLINK_BANDWIDTH_TOTAL": (9e9, 1e9),
        "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": (2, 1),
        "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": (2, 0),
        "DEV_THERMAL_VIOLATION": (100, 100),
    }
    here = {name: values[0] for name, values in counters.items()}
    there = {name: values[1] for name, values in counters.items()}
    rows = gauges(*now(CARD, DEV_GPU_UTIL=1)) | {
        "offset 86400s)": now(CARD, **there),
        "DCGM_FI_DEV_XID_ERRORS": now(CARD, **here, DEV_XID_ERRORS=79, DEV_CLOCK_THROTTLE_REASONS=0x24),
    }
    (one,) = (await reading(rows, Times((HOUR,), ()))).devices
    assert one.health == (86_400, 2, 1, 20, 3, 79, True, True)


async def test_counters_without_a_past_tell_nothing() -> None:
    rows = gauges(*now(CARD, DEV_GPU_UTIL=1)) | {"DCGM_FI_DEV_XID_ERRORS": now(CARD, DEV_PCIE_REPLAY_COUNTER=30)}
    (one,) = (await reading(rows)).devices
    assert one.health == (86_400, None, None, None, None, None, None, None)


async def test_a_query_that_is_not_answered_is_a_remark_and_the_rest_is_there() -> None:
    labels = CARD | HELD
    rows = gauges(*now(labels, DEV_GPU_UTIL=10)) | over("DEV_GPU_UTIL", labels, HOUR, 20, 600, 60)
    found = await reading(rows, broken="2592000s")
    assert found.devices[0].spans == ((HOUR, 20, 10),)
    assert found.remarks == ("Prometheus at http://h does not answer a query: too many samples (some GPU figures are missing)",)


async def test_without_the_first_answer_there_is_no_reading() -> None:
    for broken in (Fake({}, "DCGM"), Fake({}, "DCGM", PrometheusError)):
        with pytest.raises(PrometheusError):
            await read(broken, WANTED, 1e9)
    late = Fake(gauges(*now(CARD, DEV_GPU_UTIL=1)), "offset", PrometheusError)
    with pytest.raises(PrometheusError):
        await read(late, WANTED, 1e9)


async def test_what_is_not_there_is_not_asked_for_and_is_said() -> None:
    fake = Fake(gauges(*now(CARD, DEV_FB_USED=5)))
    found = await read(fake, WANTED, 1e9)
    assert not any("over_time(DCGM_FI_DEV_GPU_UTIL" in one or "over_time(DCGM_FI_PROF" in one for one in fake.asked)
    assert [remark for remark in found.remarks if "idle GPUs are not known" in remark]
    assert (await reading({})).remarks == ("Prometheus has no series of dcgm-exporter (DCGM_FI_...): no GPU figures are known",)


async def test_the_number_of_questions_does_not_grow_with_policies_or_devices() -> None:
    many = Times(tuple(range(60, 60 * 40, 60)), tuple(range(60, 60 * 40, 60)))
    cards = [{**CARD, "UUID": f"GPU-{at}"} for at in range(100)]
    fake = Fake(gauges(*(row for one in cards for row in now(one, DEV_GPU_UTIL=1, PROF_GR_ENGINE_ACTIVE=0))))
    found = await read(fake, many, 1e9)
    assert len(found.devices) == 100
    assert len(fake.asked) <= 7 + 6 * MOST_TIMES + 2 * MOST_TIMES
    assert any("only the 8 shortest are read" in one for one in found.remarks)
    usual = Fake(gauges(*now(CARD, DEV_GPU_UTIL=1)))
    await read(usual, WANTED, 1e9)
    assert len(usual.asked) == 15


@pytest.mark.parametrize(
    "make",
    [
        Queries.gauges,
        Queries.health,
        lambda one: one.counters_before(60),
        lambda one: one.held_before(60),
        lambda one: one.over("sum", "DCGM_FI_DEV_GPU_UTIL", 60),
    ],
)
async def test_every_query_has_the_matchers_and_balanced_brackets(make: Callable[[Queries], str]) -> None:
    text = make(Queries(['cluster="a"', 'site!="b"']))
    assert text.count('cluster="a",site!="b"') == 1
    assert [text.count(one) for one in "({["] == [text.count(one) for one in ")}]"]
    assert not re.search(r"cluster|site", make(Queries()))
    assert ",}" not in make(Queries())


async def test_the_same_series_in_any_order_give_the_same_reading() -> None:
    rows = [row for at in range(12) for row in now({**CARD, "UUID": f"GPU-{at}", "gpu": str(at), **HELD}, DEV_GPU_UTIL=at)]
    first, second = await reading(gauges(*rows)), await reading(gauges(*reversed(rows)))
    assert first == second
    assert [one.number for one in first.devices] == [str(at) for at in range(12)]
