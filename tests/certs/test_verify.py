from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from gpugate.certs.inspect import CertificateError
from gpugate.certs.issue import KeyPair, Lifetimes, issue_ca, issue_serving
from gpugate.certs.verify import ProblemKind, verify

_HOSTS = ["gpugate.system.svc", "127.0.0.1"]


def _sign(
    name: str,
    issuer: KeyPair | None,
    now: datetime,
    *,
    ca: bool,
    rsa_key: bool = False,
    key_of: KeyPair | None = None,
) -> KeyPair:
    """Make what gpugate itself never issues: intermediates, RSA, self-signed leaves."""
    key = _load_key(key_of) if key_of else _new_key(rsa_key=rsa_key)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer_name, issuer_key = subject, key
    if issuer is not None:
        issuer_name = x509.load_pem_x509_certificate(issuer.certificate_pem).subject
        issuer_key = _load_key(issuer)
    sans = x509.SubjectAlternativeName([x509.DNSName("a.svc")])
    certificate = (
        x509.CertificateBuilder(issuer_name, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=50))
        .add_extension(x509.BasicConstraints(ca, None), critical=True)
        .add_extension(sans, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, lock = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return KeyPair(certificate.public_bytes(pem), key.private_bytes(pem, form, lock))


def _new_key(*, rsa_key: bool) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    if rsa_key:
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key(ec.SECP384R1())


def _load_key(pair: KeyPair) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    key = serialization.load_pem_private_key(pair.key_pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
    return key


def test_a_pair_and_its_ca_have_no_problem(ca: KeyPair, serving: KeyPair, now: datetime) -> None:
    pem = ca.certificate_pem
    key = serving.key_pem
    assert verify(serving.certificate_pem, pem, _HOSTS, now, key_pem=key) == []


def test_a_foreign_ca_is_a_mismatch_and_no_expiry(other_ca: KeyPair, serving: KeyPair, now: datetime) -> None:
    pem = other_ca.certificate_pem
    (problem,) = verify(serving.certificate_pem, pem, _HOSTS, now)
    assert problem.kind is ProblemKind.FOREIGN_CA
    assert "caBundle" in problem.remedy


@pytest.mark.parametrize(
    ("days", "wanted"),
    [
        (-1, [ProblemKind.CA_NOT_YET, ProblemKind.SERVING_NOT_YET]),
        (0, []),
        (89, []),
        (91, [ProblemKind.SERVING_EXPIRED]),
        (3651, [ProblemKind.CA_EXPIRED, ProblemKind.SERVING_EXPIRED]),
    ],
)
def test_an_expiry_is_told_from_a_mismatch(
    ca: KeyPair, serving: KeyPair, now: datetime, days: int, wanted: list[ProblemKind]
) -> None:
    then = now + timedelta(days=days)
    problems = verify(serving.certificate_pem, ca.certificate_pem, _HOSTS, then)
    assert [problem.kind for problem in problems] == wanted


def test_the_key_of_another_certificate_is_noticed(ca: KeyPair, serving: KeyPair, now: datetime) -> None:
    pem = ca.certificate_pem
    problems = verify(serving.certificate_pem, pem, [], now, key_pem=ca.key_pem)
    assert [problem.kind for problem in problems] == [ProblemKind.KEY_MISMATCH]


def test_a_host_that_is_not_covered_is_named(ca: KeyPair, serving: KeyPair, now: datetime) -> None:
    hosts = ["other.svc", *_HOSTS]
    (problem,) = verify(serving.certificate_pem, ca.certificate_pem, hosts, now)
    assert problem.kind is ProblemKind.WRONG_NAMES
    assert "does not cover other.svc (it covers gpugate.system.svc" in problem.message


def test_any_ca_of_a_bundle_will_do(ca: KeyPair, other_ca: KeyPair, serving: KeyPair, now: datetime) -> None:
    bundle = other_ca.certificate_pem + ca.certificate_pem
    assert verify(serving.certificate_pem, bundle, _HOSTS, now) == []


def test_a_path_leads_through_the_intermediates_given(now: datetime) -> None:
    root = _sign("root", None, now, ca=True, rsa_key=True)
    middle = _sign("middle", root, now, ca=True)
    lower = _sign("lower", middle, now, ca=True)
    leaf = _sign("leaf", lower, now, ca=False)
    chain = b"".join(pair.certificate_pem for pair in (leaf, middle, lower))
    assert verify(chain, root.certificate_pem, ["a.svc"], now) == []
    (problem,) = verify(leaf.certificate_pem, root.certificate_pem, [], now)
    assert problem.kind is ProblemKind.FOREIGN_CA


def test_a_cross_signed_root_behind_the_self_signed_one_is_found(now: datetime) -> None:
    trusted = _sign("trusted", None, now, ca=True)
    fresh = _sign("fresh", None, now, ca=True)
    crossed = _sign("fresh", trusted, now, ca=True, key_of=fresh)
    leaf = _sign("leaf", fresh, now, ca=False)
    chain = b"".join(pair.certificate_pem for pair in (leaf, fresh, crossed))
    assert verify(chain, trusted.certificate_pem, ["a.svc"], now) == []


def test_a_signer_that_is_no_ca_is_noticed(now: datetime) -> None:
    leaf = _sign("leaf", None, now, ca=False)
    below = _sign("below", leaf, now, ca=False)
    (problem,) = verify(below.certificate_pem, leaf.certificate_pem, ["a.svc"], now)
    assert problem.kind is ProblemKind.NOT_A_CA


def test_a_certificate_that_is_itself_trusted_needs_no_ca(now: datetime) -> None:
    leaf = _sign("leaf", None, now, ca=False)
    assert verify(leaf.certificate_pem, leaf.certificate_pem, ["a.svc"], now) == []


def test_certificates_that_sign_each_other_end_in_a_mismatch(now: datetime) -> None:
    one = _sign("loop", None, now, ca=True)
    chain = one.certificate_pem * 3
    stranger = _sign("stranger", None, now, ca=True)
    (problem,) = verify(chain, stranger.certificate_pem, [], now)
    assert problem.kind is ProblemKind.FOREIGN_CA


def test_a_ca_with_an_rsa_key_may_sign(now: datetime) -> None:
    root = _sign("root", None, now, ca=True, rsa_key=True)
    serving = issue_serving(root, ["a.svc"], now)
    assert verify(serving.certificate_pem, root.certificate_pem, ["a.svc"], now) == []


def test_of_two_cas_with_one_name_and_key_the_longer_lived_counts(
    now: datetime,
) -> None:
    short = Lifetimes(timedelta(days=10), timedelta(days=5))
    old = issue_ca(now - timedelta(days=30), short)
    renewed = _renewed_with_old_key(old, now)
    serving = issue_serving(renewed, ["a.svc"], now)
    bundle = old.certificate_pem + renewed.certificate_pem
    assert verify(serving.certificate_pem, bundle, ["a.svc"], now) == []
    (problem,) = verify(serving.certificate_pem, old.certificate_pem, [], now)
    assert problem.kind is ProblemKind.CA_EXPIRED


def test_damaged_input_is_named(ca: KeyPair, serving: KeyPair, now: datetime) -> None:
    with pytest.raises(CertificateError, match=r"^CA certificate: "):
        verify(serving.certificate_pem, b"Cg==", [], now)
    with pytest.raises(CertificateError, match=r"^serving certificate: "):
        verify(b"", ca.certificate_pem, [], now)
    with pytest.raises(CertificateError, match=r"^serving key: "):
        verify(serving.certificate_pem, ca.certificate_pem, [], now, key_pem=b"x")


def _renewed_with_old_key(old: KeyPair, now: datetime) -> KeyPair:
    certificate = x509.load_pem_x509_certificate(old.certificate_pem)
    key = _load_key(old)
    builder = x509.CertificateBuilder(certificate.subject, certificate.subject, key.public_key())
    for extension in certificate.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    renewed = (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=100))
        .sign(key, hashes.SHA256())
    )
    return KeyPair(renewed.public_bytes(serialization.Encoding.PEM), old.key_pem)
