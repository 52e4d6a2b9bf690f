"""What is made of figures about held devices: states, peaks, and the part of a card that would have been enough."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpugate.policies.cluster.gpu_usage import (
    DeviceState,
    DeviceUse,
    Health,
    IdleBounds,
    enough_cards,
    hint_of,
    peak_of,
    state_of,
    times_of,
)
from gpugate.policies.kube.accelerators import card_of, part_of, slices_of
from gpugate.policies.kube.quantity import GIB
from gpugate.policies.rules.ownership.idle import IdleParams, bounds_of
from tests.shared import cases

DEFAULT = bounds_of(IdleParams())
#: GiB that slices really have, where NVIDIA's tools show it.
REAL = [
    ("NVIDIA A100-SXM4-40GB", 40, {"1g.5gb": 4.75, "2g.10gb": 9.75, "3g.20gb": 19.62}),
    ("NVIDIA A100 80GB PCIe", 80, {"1g.10gb": 9.5, "1g.20gb": 19.5, "2g.20gb": 19.5, "3g.40gb": 39.5, "4g.40gb": 39.5}),
    ("NVIDIA H100 80GB HBM3", 79.6, {"1g.10gb": 9.75, "1g.20gb": 19.62, "2g.20gb": 19.62, "3g.40gb": 39.5}),
    ("NVIDIA H200", 140.4, {"1g.18gb": 16.0}),
    ("NVIDIA A30", 24, {"1g.6gb": 5.81, "2g.12gb": 11.69}),
]


def device(figures: dict[str, list[float | None]] | None = None, **fields: object) -> DeviceUse:
    return cases.device(spans=figures or {"1": [50, 20], "720": [90, 60]}, memory="80Gi", **{"peak": "20Gi", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "size", "real"), REAL, ids=[model for model, _, _ in REAL])
def test_a_slice_counts_for_no_more_memory_than_it_has(model: str, size: float, real: dict[str, float]) -> None:
    found = {one.profile: one.memory / GIB for one in slices_of(model, int(size * GIB))}
    for profile, gib in real.items():
        assert 0.85 * gib < found[profile] <= gib


def test_a_card_that_cannot_be_cut_has_no_slices() -> None:
    assert slices_of("Tesla T4", 15 * GIB) == ()
    assert slices_of("NVIDIA A100-SXM4-80GB", 0) == ()


def test_a_slice_knows_its_part_and_the_smallest_card_that_has_it() -> None:
    assert part_of("3g.40gb", "NVIDIA H100 80GB HBM3") == Fraction(3, 7)
    assert part_of("1c.3g.40gb", "NVIDIA H100 80GB HBM3") == Fraction(1, 7)
    assert part_of("2g.12gb", "NVIDIA A30") == Fraction(2, 4)
    assert part_of("odd", "NVIDIA A30") == 1
    assert card_of("1g.10gb", "NVIDIA A100-SXM4-80GB") == 40 * GIB
    assert card_of("3g.40gb", "NVIDIA A100-SXM4-80GB") == 80 * GIB
    assert card_of("3g.40gb", "some card") is None
    assert card_of("9g.1gb", "NVIDIA A30") is None


@pytest.mark.parametrize(
    ("hours", "held", "wanted"),
    [
        ({"1": [29.9, 1], "720": [100, 90]}, 1, DeviceState.IDLE),
        ({"1": [30, 1], "720": [100, 90]}, 1, DeviceState.BUSY),
        ({"1": [29.9, 1], "720": [100, 90]}, 0, DeviceState.YOUNG),
        ({"1": [80, 1], "720": [100, 39.9]}, 24, DeviceState.LOW),
        ({"1": [80, 1], "720": [100, 40]}, 24, DeviceState.BUSY),
        ({"1": [80, 1], "720": [100, 39.9]}, 23, DeviceState.BUSY),
        ({"1": [29.9, 1], "720": [29.9, 1]}, 720, DeviceState.IDLE),
        ({"1": [None, None], "720": [None, 10]}, 720, DeviceState.LOW),
        ({"1": [None, None], "720": [None, None]}, 720, DeviceState.UNKNOWN),
        ({"2": [0, 0]}, 720, DeviceState.UNKNOWN),
    ],
)
def test_a_held_device_is_judged_by_its_peak_then_by_its_average(
    hours: dict[str, list[float | None]], held: int, wanted: DeviceState
) -> None:
    assert state_of(device(hours, hours=held), DEFAULT) is wanted


def test_what_is_asked_for_are_the_times_of_every_policy_once() -> None:
    other = IdleBounds(5, 7200, 40, 2592000, 3600, 60)
    assert times_of([DEFAULT, other, DEFAULT]) == ((3600, 7200, 2592000), (60, 3600, 7200, 86400, 2592000))
    assert times_of([]) == ((), ())


def test_the_most_demanding_of_alike_devices_decides() -> None:
    peak = peak_of([device(), device({"1": [1, 1], "720": [95, 10]}, peak="5Gi")])
    assert peak is not None
    assert (peak.utilisation, peak.average, peak.memory) == (95, 60, 20 * GIB)
    assert peak_of([device(), device({"1": [1, 1], "720": [None, 10]})]) is None
    assert peak_of([]) is None


def test_without_memory_no_part_of_a_card_is_called_enough() -> None:
    assert hint_of(peak_of([device({"1": [2, 1], "720": [10, 1]}, peak="")])).kind == "unknown"
    assert hint_of(None).kind == "unknown"


def test_cards_are_enough_for_the_work_and_for_the_memory() -> None:
    two = [device({"720": [100, 30]}, peak="50Gi"), device({"720": [100, 30]}, peak="50Gi")]
    assert enough_cards(two) == 2, "100Gi do not fit the 80Gi of one"
    assert enough_cards([one._replace(memory_peak=30 * GIB) for one in two]) == 1
    assert enough_cards([one._replace(profile="1g.10gb") for one in two]) is None
    assert enough_cards([]) is None


def test_signs_of_bad_health_are_told_the_gravest_first() -> None:
    bad = Health(86400, single_bit=3, double_bit=1, replays=2, link_errors=1, xid=79, throttled=True, linked=True)
    assert bad.signs == (
        "last Xid 79",
        "1 double-bit ECC error",
        "1 NVLink error",
        "2 PCIe replays",
        "3 corrected ECC errors",
        "throttled by heat",
    )
    assert Health(86400, 0, 0, 0, 0, 0, throttled=False, linked=False).signs == ()
    assert Health().signs == ()
