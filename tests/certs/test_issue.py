from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from gpugate.certs.inspect import CertificateError, parse
from gpugate.certs.issue import (
    KeyPair,
    Lifetimes,
    issue_ca,
    issue_serving,
)
from gpugate.certs.verify import ProblemKind, verify
from tests.certs.client_certificates import issue_client


def _load(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate_pem)


def test_a_ca_may_sign_leaves_and_no_further_ca(ca: KeyPair) -> None:
    extensions = _load(ca).extensions
    basic = extensions.get_extension_for_class(x509.BasicConstraints)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 0)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert usage.value.crl_sign
    assert not usage.value.digital_signature


def test_a_ca_is_signed_by_itself_with_p256(ca: KeyPair) -> None:
    certificate = _load(ca)
    certificate.verify_directly_issued_by(certificate)
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"


def test_a_serving_certificate_names_its_hosts_and_its_signer(ca: KeyPair, serving: KeyPair) -> None:
    certificate = _load(serving)
    certificate.verify_directly_issued_by(_load(ca))
    extensions = certificate.extensions
    sans = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert sans.get_values_for_type(x509.DNSName) == ["gpugate.system.svc"]
    assert [str(ip) for ip in sans.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]
    authority = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    subject = _load(ca).extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert authority.key_identifier == subject.value.digest
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_lives_count_from_now_and_begin_one_skew_before(ca: KeyPair, now: datetime) -> None:
    ca_life = timedelta(days=60)
    lifetimes = Lifetimes(ca_life, timedelta(days=7), timedelta(hours=1))
    fresh = issue_ca(now, lifetimes)
    info = parse(issue_serving(fresh, ["a"], now, lifetimes).certificate_pem)[0]
    second = now.replace(microsecond=0)
    assert info.not_before == second - timedelta(hours=1)
    assert info.not_after == second + timedelta(days=7)
    assert parse(fresh.certificate_pem)[0].not_after == second + ca_life
    assert not parse(ca.certificate_pem)[0].sans


def test_a_serving_certificate_never_outlives_nor_precedes_its_ca(ca: KeyPair, now: datetime) -> None:
    ca_info = parse(ca.certificate_pem)[0]
    late = ca_info.not_after - timedelta(days=3)
    assert parse(issue_serving(ca, ["a"], late).certificate_pem)[0].not_after == (ca_info.not_after)
    lifetimes = Lifetimes(skew=timedelta(hours=2))
    early = issue_serving(ca, ["a"], now, lifetimes)
    assert parse(early.certificate_pem)[0].not_before == ca_info.not_before


@pytest.mark.parametrize("days", [-1, 3650, 4000])
def test_a_ca_outside_its_time_issues_nothing(ca: KeyPair, now: datetime, days: int) -> None:
    with pytest.raises(CertificateError, match="rotate the CA first"):
        issue_serving(ca, ["a"], now + timedelta(days=days))


def test_a_leaf_cannot_sign(serving: KeyPair, now: datetime) -> None:
    with pytest.raises(CertificateError, match="is not a CA's"):
        issue_serving(serving, ["a"], now)


def test_a_ca_with_the_key_of_another_cannot_sign(ca: KeyPair, other_ca: KeyPair, now: datetime) -> None:
    mixed = KeyPair(ca.certificate_pem, other_ca.key_pem)
    with pytest.raises(CertificateError, match="is not the CA certificate's"):
        issue_serving(mixed, ["a"], now)


def test_a_damaged_ca_is_one_clear_error(ca: KeyPair, now: datetime) -> None:
    with pytest.raises(CertificateError, match=r"^CA key: holds no readable"):
        issue_serving(KeyPair(ca.certificate_pem, b"garbage"), ["a"], now)
    with pytest.raises(CertificateError, match=r"^CA certificate: holds no readable"):
        issue_serving(KeyPair(b"garbage", ca.key_pem), ["a"], now)


def test_a_client_certificate_serves_no_host(ca: KeyPair, now: datetime) -> None:
    client = issue_client(ca, "kube-apiserver", now)
    assert parse(client.certificate_pem)[0].subject == "CN=kube-apiserver"
    problems = verify(client.certificate_pem, ca.certificate_pem, ["a"], now)
    kinds = [problem.kind for problem in problems]
    assert kinds == [ProblemKind.WRONG_USAGE, ProblemKind.WRONG_NAMES]


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_a_common_name_must_fit(now: datetime, name: str) -> None:
    with pytest.raises(CertificateError, match="1 to 64 characters"):
        issue_ca(now, name=name)


@pytest.mark.parametrize(
    ("ca_days", "days", "skew_days"),
    [(10, 11, 0), (10, 0, 0), (10, -1, 0), (10, 1, 1), (10, 1, -1), (36_501, 1, 0)],
)
def test_lifetimes_that_cannot_be_kept_are_refused(ca_days: int, days: int, skew_days: int) -> None:
    with pytest.raises(CertificateError):
        Lifetimes(*(timedelta(days=count) for count in (ca_days, days, skew_days)))


def test_a_time_without_zone_or_beyond_the_calendar_is_refused(now: datetime) -> None:
    with pytest.raises(CertificateError, match="no time zone"):
        issue_ca(now.replace(tzinfo=None))
    with pytest.raises(CertificateError, match="year 9999"):
        issue_ca(now.replace(year=9999))


def test_no_two_certificates_share_a_serial_number_or_key(now: datetime) -> None:
    one, two = issue_ca(now), issue_ca(now)
    assert one.key_pem != two.key_pem
    assert _load(one).serial_number != _load(two).serial_number


def test_a_key_pair_shows_no_key_when_printed(ca: KeyPair) -> None:
    assert "PRIVATE" not in repr(ca)
