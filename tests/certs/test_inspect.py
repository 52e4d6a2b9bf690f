import hashlib
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from gpugate.certs.inspect import CertificateError, CertificateInfo, CertificateState, parse, timestamp, validity
from gpugate.certs.issue import KeyPair, issue_ca, issue_serving

_BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
_LIFE = timedelta(days=90)
_SAMPLE = issue_serving(issue_ca(_BEGIN), ["a.svc", "::1"], _BEGIN).certificate_pem


def _info(begin: datetime, life: timedelta) -> CertificateInfo:
    return CertificateInfo("", "", (), begin, begin + life, 1, False, "")


def test_a_certificate_is_described_as_it_is(serving: KeyPair, now: datetime) -> None:
    info = parse(serving.certificate_pem)[0]
    der = ssl.PEM_cert_to_DER_cert(serving.certificate_pem.decode())
    assert info.subject == "CN=gpugate"
    assert info.issuer == "CN=gpugate CA"
    assert info.sans == ("gpugate.system.svc", "127.0.0.1")
    assert info.not_before < now < info.not_after
    assert info.serial == x509.load_der_x509_certificate(der).serial_number
    assert not info.is_ca
    assert info.fingerprint_sha256 == hashlib.sha256(der).hexdigest()


def test_a_chain_is_read_in_order_past_keys_and_comments(ca: KeyPair, serving: KeyPair) -> None:
    pem = b"# comment\n" + serving.certificate_pem + serving.key_pem
    assert [info.is_ca for info in parse(pem + ca.certificate_pem)] == [False, True]


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"\xff\x00",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n",
    ],
)
def test_garbage_is_one_clear_error_naming_its_place(pem: bytes) -> None:
    with pytest.raises(CertificateError, match=r"^tls\.crt: holds no readable PEM"):
        parse(pem, "tls.crt")


def test_a_key_alone_is_no_certificate(ca: KeyPair) -> None:
    with pytest.raises(CertificateError):
        parse(ca.key_pem)


@pytest.mark.parametrize("may_sign", [True, False])
def test_a_ca_that_may_not_sign_certificates_is_none(*, may_sign: bool) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=may_sign,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, _BEGIN, _BEGIN + _LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    assert parse(pem)[0].is_ca is may_sign


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
@given(st.integers(0, len(_SAMPLE) - 1), st.integers(0, 255))
def test_a_damaged_certificate_is_read_or_refused_but_never_a_traceback(position: int, value: int) -> None:
    damaged = bytearray(_SAMPLE)
    damaged[position] = value
    with suppress(CertificateError):
        parse(bytes(damaged))


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
@given(st.binary(max_size=64), st.integers(0, 400))
def test_damage_below_the_armour_is_no_traceback_either(patch: bytes, position: int) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(_SAMPLE.decode()))
    der[position : position + len(patch)] = patch
    with suppress(CertificateError):
        parse(ssl.DER_cert_to_PEM_cert(bytes(der)).encode())


@pytest.mark.parametrize(
    ("elapsed", "state"),
    [
        (-timedelta(seconds=1), CertificateState.NOT_YET),
        (timedelta(0), CertificateState.VALID),
        (timedelta(days=60) - timedelta(microseconds=1), CertificateState.VALID),
        (timedelta(days=60), CertificateState.RENEW),
        (timedelta(days=90), CertificateState.RENEW),
        (timedelta(days=90, microseconds=1), CertificateState.EXPIRED),
    ],
)
def test_the_state_depends_on_the_time_alone(elapsed: timedelta, state: CertificateState) -> None:
    found = validity(_info(_BEGIN, _LIFE), _BEGIN + elapsed)
    assert found.state is state
    assert found.remaining == _LIFE - elapsed


@given(
    life=st.timedeltas(timedelta(seconds=1), timedelta(days=36_500)),
    one=st.timedeltas(timedelta(days=-900), timedelta(days=40_000)),
    two=st.timedeltas(timedelta(days=-900), timedelta(days=40_000)),
)
def test_a_certificate_only_ever_grows_older(life: timedelta, one: timedelta, two: timedelta) -> None:
    order = list(CertificateState)
    info = _info(_BEGIN, life)
    early, late = (validity(info, _BEGIN + it).state for it in sorted((one, two)))
    assert order.index(early) <= order.index(late)


def test_times_are_written_in_utc_to_the_second() -> None:
    moment = datetime.fromisoformat("2030-01-01T01:30:00.9+02:00")
    assert timestamp(moment) == "2029-12-31T23:30:00Z"
