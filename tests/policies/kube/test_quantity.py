"""Quantities mean what ``k8s.io/apimachinery/pkg/api/resource`` makes of them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpugate.policies.kube.quantity import QuantityError, exact, format_bytes, format_millicores, millicores, show_bytes, whole

_INT64 = 2**63 - 1
_SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("+1", 1),
        ("-1", -1),
        (7, 7),
        ("007", 7),
        ("1.", 1),
        (".5Gi", 512 << 20),
        ("1.5Gi", 3 << 29),
        ("1Ki", 1 << 10),
        ("1Mi", 1 << 20),
        ("1Gi", 1 << 30),
        ("1Ti", 1 << 40),
        ("1Pi", 1 << 50),
        ("1Ei", 1 << 60),
        ("1k", 10**3),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e+3", 1000),
        ("1500e-3", 2),
        (1e3, 1000),
        (1.5, 2),
        (1e21, _INT64),
    ],
)
def test_every_notation_has_its_value(written: object, value: int) -> None:
    assert whole(written) == value


@pytest.mark.parametrize(
    ("written", "bytes_", "cores"),
    [
        ("100m", 1, 100),
        ("1n", 1, 1),
        ("1u", 1, 1),
        ("1500u", 1, 2),
        ("1001m", 2, 1001),
        ("0.0001", 1, 1),
        ("2.0001", 3, 2001),
        # Away from zero, as Quantity.Value and Quantity.MilliValue round.
        ("-100m", -1, -100),
        ("-1.5", -2, -1500),
    ],
)
def test_what_is_no_whole_number_is_rounded_up(written: str, bytes_: int, cores: int) -> None:
    assert (whole(written), millicores(written)) == (bytes_, cores)


def test_exact_keeps_the_fraction() -> None:
    assert exact("0.1") == Fraction(1, 10)
    assert exact("500m") == exact(".5") == exact(0.5)


@pytest.mark.parametrize("written", ["8Ei", "16E", "9e99", "1e999", "9223372036854775808", 2**80])
def test_what_no_int64_holds_is_capped(written: object) -> None:
    assert whole(written) == _INT64


@pytest.mark.parametrize("written", ["1e9999", "1" * 65, "1e+-3"])
def test_what_nobody_means_is_refused_at_once(written: str) -> None:
    with pytest.raises(QuantityError, match="is no Kubernetes quantity"):
        whole(written)


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "Gi",
        ".",
        "-",
        "1 Gi",
        " 1",
        "1\n",
        "1gi",
        "1Kib",
        "1KB",
        "1i",
        "--1",
        "1..2",
        "1,5",
        "0x10",
        "٣",
        "1e",
        "NaN",
        "inf",
    ],
)
def test_junk_is_refused(written: str) -> None:
    with pytest.raises(QuantityError, match="is no Kubernetes quantity"):
        whole(written)


@pytest.mark.parametrize("written", [None, True, False, [], {}, ["1"], b"1", float("nan"), float("inf")])
def test_what_is_neither_text_nor_number_is_refused(written: object) -> None:
    with pytest.raises(QuantityError):
        whole(written)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("16GB", "write 16Gi"),
        ("16 gib", "write 16Gi"),
        ("4gb", "write 4Gi"),
        ("500mb", "write 500Mi"),
        ("64g", "write 64Gi"),
        ("x", "16Gi, 500m"),
    ],
)
def test_a_slip_is_answered_with_the_right_spelling(written: str, hint: str) -> None:
    with pytest.raises(QuantityError, match=hint):
        whole(written)


@given(st.integers(0, _INT64))
@_SETTINGS
def test_bytes_survive_being_written_and_read(size: int) -> None:
    assert whole(format_bytes(size)) == size


@given(st.integers(0, 10**9))
@_SETTINGS
def test_millicores_survive_being_written_and_read(amount: int) -> None:
    assert millicores(format_millicores(amount)) == amount


@given(st.integers(0, 2**40), st.integers(0, 2**40))
@_SETTINGS
def test_order_is_kept(one: int, other: int) -> None:
    assert (exact(f"{one}m") < exact(f"{other}m")) == (one < other)
    assert whole(f"{one}m") * 1000 >= one


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (1023, "1023"), (1 << 10, "1Ki"), (17 << 30, "17Gi"), (3 << 29, "1536Mi"), (1 << 60, "1Ei")]
)
def test_bytes_are_written_short_and_exactly(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize("written", ["20G", "6G", "500M", "1.5G", "64.5G", "1T", "20Gi", "1500Mi"])
def test_who_writes_decimal_units_reads_decimal_units(written: str) -> None:
    assert show_bytes(whole(written)) == written


@pytest.mark.parametrize(
    ("size", "text"),
    [(17 << 30, "17Gi"), (10**8 + 1, "95.4Mi"), ((1 << 30) + 1, "1.0Gi"), (2048 << 30, "2Ti"), (10**12 + 1, "931.3Gi")],
)
def test_bytes_are_shown_to_people_with_one_decimal_at_most(size: int, text: str) -> None:
    assert show_bytes(size) == text


def test_an_amount_just_beside_a_round_one_is_shown_so_that_the_difference_is_seen() -> None:
    assert show_bytes((256 << 30) + (1 << 20)) == "262145Mi"
    assert show_bytes((256 << 30) + (512 << 20)) == "256.5Gi"
    assert show_bytes(256 << 30) == "256Gi"
