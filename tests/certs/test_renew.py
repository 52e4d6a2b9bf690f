from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpugate.certs.inspect import CertificateError, parse
from gpugate.certs.issue import KeyPair, Lifetimes, issue_ca, issue_serving
from gpugate.certs.renew import RETIRED_KEPT, Action, Held, RenewalPlan, carry_out, plan, trust_bundle
from gpugate.certs.verify import verify

_NOW = datetime(2031, 5, 17, 12, 0, 0, 999_999, tzinfo=UTC)
_HOSTS = ["gpugate.system.svc"]
_CA = issue_ca(_NOW)
_OTHER_CA = issue_ca(_NOW)
_SERVING = issue_serving(_CA, _HOSTS, _NOW)
_MIXED_CA = KeyPair(_CA.certificate_pem, _OTHER_CA.key_pem)
_MIXED_SERVING = KeyPair(_SERVING.certificate_pem, _CA.key_pem)
_FOREIGN = issue_serving(_OTHER_CA, _HOSTS, _NOW)
_LATE = issue_serving(_CA, _HOSTS, _NOW + timedelta(days=2430))

KEEP, ISSUE, ROTATE = Action.KEEP, Action.ISSUE_SERVING, Action.ROTATE_CA


@pytest.mark.parametrize(
    ("days", "ca", "serving", "hosts", "action", "reason"),
    [
        (0, None, None, _HOSTS, ROTATE, "there is no CA"),
        (0, None, _SERVING, _HOSTS, ROTATE, "there is no CA"),
        (0, _CA, None, _HOSTS, ISSUE, "there is no serving certificate"),
        (0, _CA, _SERVING, _HOSTS, KEEP, "good until 2031-08-15T12:00:00Z"),
        (59, _CA, _SERVING, _HOSTS, KEEP, "good until"),
        (60, _CA, _SERVING, _HOSTS, ISSUE, "a third or less of the serving"),
        (91, _CA, _SERVING, _HOSTS, ISSUE, "serving certificate ended at 2031-08-15"),
        (2432, _CA, _LATE, _HOSTS, KEEP, "good until"),
        (2434, _CA, _LATE, _HOSTS, ROTATE, "a third or less of the CA"),
        (3651, _CA, _LATE, _HOSTS, ROTATE, "CA certificate ended at 2041-05-14"),
        (-1, _CA, _SERVING, _HOSTS, ROTATE, "CA certificate begins only at"),
        (0, _CA, _LATE, _HOSTS, ISSUE, "serving certificate begins at"),
        (0, _CA, _SERVING, ["b.svc"], ISSUE, "does not cover b.svc"),
        (0, _CA, _SERVING, [*_HOSTS, "::1"], ISSUE, "does not cover ::1"),
        (0, _CA, _FOREIGN, _HOSTS, ISSUE, "was not signed by the CA given"),
        (0, _CA, _MIXED_SERVING, _HOSTS, ISSUE, "serving key is not the serving"),
        (0, _MIXED_CA, _SERVING, _HOSTS, ROTATE, "CA key is not the CA"),
        (0, _SERVING, _SERVING, _HOSTS, ROTATE, "is not a CA's"),
    ],
)
def test_the_plan_says_what_to_do_and_why(
    days: int,
    ca: KeyPair | None,
    serving: KeyPair | None,
    hosts: list[str],
    action: Action,
    reason: str,
) -> None:
    found = plan(_NOW + timedelta(days=days), ca, serving, hosts)
    assert found.action is action
    assert reason in found.reason


def test_force_renews_a_good_serving_certificate_and_leaves_the_ca() -> None:
    found = plan(_NOW, _CA, _SERVING, _HOSTS, force=True)
    assert found.action is Action.ISSUE_SERVING
    material = carry_out(found, Held(_CA, _SERVING), _HOSTS, _NOW)
    assert material.ca == _CA
    assert material.serving != _SERVING


def test_more_names_than_needed_are_no_reason_to_renew() -> None:
    # Two processes that share a store and want different names would else never rest.
    serving = issue_serving(_CA, ["a.svc", "b.svc"], _NOW)
    assert plan(_NOW, _CA, serving, ["b.svc"]).action is Action.KEEP


def test_damaged_material_or_names_make_no_plan() -> None:
    with pytest.raises(CertificateError, match=r"^CA certificate"):
        plan(_NOW, KeyPair(b"", b""), None, _HOSTS)
    with pytest.raises(CertificateError, match=r"^serving certificate"):
        plan(_NOW, _CA, KeyPair(b"", b""), _HOSTS)
    with pytest.raises(CertificateError, match=r"^hostname"):
        plan(_NOW, None, None, ["no host"])


@pytest.mark.parametrize("action", [Action.KEEP, Action.ISSUE_SERVING])
def test_a_plan_is_not_carried_out_on_what_is_not_held(action: Action) -> None:
    with pytest.raises(CertificateError, match="plan again"):
        carry_out(RenewalPlan(action, ""), Held(), _HOSTS, _NOW)
    if action is Action.KEEP:
        with pytest.raises(CertificateError, match="plan again"):
            carry_out(RenewalPlan(action, ""), Held(_CA), _HOSTS, _NOW)


def test_a_serving_pair_of_a_retired_ca_moves_on_to_the_one_that_signs() -> None:
    bundle = KeyPair(_OTHER_CA.certificate_pem + _CA.certificate_pem, _OTHER_CA.key_pem)
    assert plan(_NOW, bundle, _SERVING, _HOSTS).action is Action.ISSUE_SERVING


def test_a_rotated_ca_stays_trusted_behind_the_new_one() -> None:
    then = _NOW + timedelta(days=2434)
    found = plan(then, _CA, _LATE, _HOSTS)
    material = carry_out(found, Held(_CA, _LATE), _HOSTS, then)
    bundle = material.ca.certificate_pem
    assert bundle.endswith(_CA.certificate_pem)
    assert verify(_LATE.certificate_pem, bundle, _HOSTS, then) == []
    assert verify(material.serving.certificate_pem, bundle, _HOSTS, then) == []


def test_retired_cas_do_not_pile_up() -> None:
    held = Held()
    for _ in range(RETIRED_KEPT + 3):
        material = carry_out(RenewalPlan(ROTATE, ""), held, _HOSTS, _NOW)
        held = Held(material.ca, material.serving)
    assert held.ca is not None
    assert len(parse(held.ca.certificate_pem)) == RETIRED_KEPT + 1


def test_an_expired_ca_is_not_published_and_not_kept_for_a_second_rotation() -> None:
    after = _NOW + timedelta(days=4000)
    material = carry_out(RenewalPlan(ROTATE, ""), Held(_CA, _SERVING), _HOSTS, after)
    new = material.ca.certificate_pem.removesuffix(_CA.certificate_pem)
    assert trust_bundle(material.ca.certificate_pem, after) == new
    again = carry_out(RenewalPlan(ROTATE, ""), Held(material.ca, material.serving), _HOSTS, after).ca.certificate_pem
    assert again.endswith(new)
    assert len(parse(again)) == 2
    with pytest.raises(CertificateError, match=r"^ca\.crt: .* no unexpired certificate"):
        trust_bundle(_CA.certificate_pem, after, "ca.crt")


@pytest.mark.parametrize("days", [4000, 100, -1, -4000])
def test_a_renewal_by_a_wrong_clock_takes_no_trust_from_what_replicas_serve(days: int) -> None:
    held = Held(_CA, _SERVING)
    for moment in (_NOW + timedelta(days=days), _NOW):
        material = carry_out(plan(moment, held.ca, held.serving, _HOSTS), held, _HOSTS, moment)
        held = Held(material.ca, material.serving)
    published = trust_bundle(material.ca.certificate_pem, _NOW)
    for serving in (_SERVING, material.serving):
        assert verify(serving.certificate_pem, published, _HOSTS, _NOW) == []


def test_what_is_no_ca_does_not_stay_trusted() -> None:
    material = carry_out(RenewalPlan(ROTATE, ""), Held(_SERVING, _SERVING), _HOSTS, _NOW)
    (only,) = parse(material.ca.certificate_pem)
    assert only.is_ca


def test_a_stray_private_key_is_never_published() -> None:
    found = trust_bundle(b"# note\n" + _CA.key_pem + _CA.certificate_pem, _NOW)
    assert found == _CA.certificate_pem


# Hypothesis wants bounds without a time zone, and adds it itself.
_YEARS = datetime(2000, 1, 1), datetime(2300, 1, 1)  # noqa: DTZ001
_spans = st.timedeltas(timedelta(minutes=1), timedelta(days=9000))
_steps = st.one_of(_spans, st.timedeltas(timedelta(days=-30), timedelta(days=30)))
_host = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9](\.svc)?", fullmatch=True)


@st.composite
def _lifetimes(draw: Callable[[st.SearchStrategy[timedelta]], timedelta]) -> Lifetimes:
    serving, ca = sorted((draw(_spans), draw(_spans)))
    most = serving - timedelta(microseconds=1)
    skew = draw(st.timedeltas(timedelta(0), min(most, timedelta(days=2))))
    return Lifetimes(ca, serving, skew)


@settings(max_examples=60, deadline=None)
@given(
    lifetimes=_lifetimes(),
    start=st.datetimes(*_YEARS, timezones=st.just(UTC)),
    steps=st.lists(st.tuples(_steps, st.lists(_host, min_size=1)), max_size=6),
)
def test_once_carried_out_the_plan_is_to_keep_whatever_happened_before(
    lifetimes: Lifetimes, start: datetime, steps: list[tuple[timedelta, list[str]]]
) -> None:
    held, now = Held(), start
    for step, hosts in [(timedelta(0), ["first"]), *steps]:
        now += step
        todo = plan(now, held.ca, held.serving, hosts)
        material = carry_out(todo, held, hosts, now, lifetimes)
        held = Held(material.ca, material.serving)
        ca_pem, serving = material.ca.certificate_pem, material.serving
        assert plan(now, held.ca, held.serving, hosts).action is Action.KEEP
        pem, key = serving.certificate_pem, serving.key_pem
        assert verify(pem, ca_pem, hosts, now, key_pem=key) == []
