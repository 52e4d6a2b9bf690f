"""Issue a certificate authority, and serving certificates signed by it.

All keys are ECDSA on P-256 with SHA-256, which every TLS 1.3 stack must support (RFC 8446, section 9.1). The extensions follow
RFC 5280, section 4.2. Apart from random keys and serial numbers, everything is a pure function of the arguments.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpugate.certs.inspect import CertificateError, is_ca, key_matches, load_certificates, load_key
from gpugate.certs.names import general_names

CA_NAME: Final = "gpugate CA"
SERVING_NAME: Final = "gpugate"
MIN_LIFETIME: Final = timedelta(minutes=1)
MAX_LIFETIME: Final = timedelta(days=36_500)

#: The uses of a key in the extension KeyUsage.
_USAGES: Final = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
_SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM; the key is unencrypted PKCS #8.

    `certificate_pem` may contain further certificates after the first; the key belongs to the first. The key is not part of
    `repr`, and so not of logs.
    """

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Lifetimes of new certificates from `now` on, and how far they are backdated.

    `skew` lets a peer with a slow clock accept a new certificate.

    Raises:
        CertificateError: `skew` is negative; a lifetime is not above `skew`, below a minute or above 100 years; or `serving` is
            longer than `ca`.
    """

    ca: timedelta = timedelta(days=3650)
    serving: timedelta = timedelta(days=90)
    skew: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        """Reject invalid lifetimes."""
        if self.skew < timedelta(0):
            raise CertificateError(place="skew", problem=f"is negative ({self.skew})", remedy="give zero or more")
        for place, span in (("CA lifetime", self.ca), ("lifetime", self.serving)):
            # A lifetime within the skew could be due for renewal at once.
            if span <= self.skew or not MIN_LIFETIME <= span <= MAX_LIFETIME:
                remedy = f"give {MIN_LIFETIME} to {MAX_LIFETIME.days} days, and more than the skew, {self.skew}"
                raise CertificateError(place=place, problem=f"is out of range ({span})", remedy=remedy)
        if self.serving > self.ca:
            problem = f"{self.serving} is longer than the CA's, {self.ca}"
            raise CertificateError(place="lifetime", problem=problem, remedy="shorten it or give the CA a longer one")


DEFAULT_LIFETIMES: Final = Lifetimes()


def issue_ca(now: datetime, lifetimes: Lifetimes = DEFAULT_LIFETIMES, *, name: str = CA_NAME) -> KeyPair:
    """Issue a self-signed CA that may sign leaf certificates only.

    `now` must have a time zone; `name` becomes the common name.

    Raises:
        CertificateError: `now` has no time zone, the certificate ends after 9999, or the name is unusable.
    """
    key, subject = ec.generate_private_key(ec.SECP256R1()), _name(name)
    extensions = ((x509.BasicConstraints(ca=True, path_length=0), True), (_key_usage("key_cert_sign", "crl_sign"), True))
    return _sign(subject, subject, _span(now, lifetimes.ca, lifetimes.skew), extensions, key, key)


def issue_serving(ca: KeyPair, hostnames: Sequence[str], now: datetime, lifetimes: Lifetimes = DEFAULT_LIFETIMES) -> KeyPair:
    """Issue a server certificate for DNS names and IP addresses, signed by `ca`, within the CA's own lifetime.

    Raises:
        CertificateError: a name is unusable, `now` has no time zone, or `ca` cannot sign: damaged, no CA, expired, or with
            another CA's key.
    """
    sans = x509.SubjectAlternativeName(general_names(hostnames))
    issuer, issuer_key = _signer(ca)
    begin, end = _span(now, lifetimes.serving, lifetimes.skew)
    first, last = issuer.not_valid_before_utc, issuer.not_valid_after_utc
    begin, end = max(begin, first), min(end, last)
    if not first <= now < end:
        problem = f"is valid from {first.isoformat()} to {last.isoformat()}, which leaves no time to issue"
        raise CertificateError(place="CA certificate", problem=problem, remedy="rotate the CA first")
    extensions = (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_key_usage("digital_signature"), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (_authority_key_identifier(issuer), False),
        (sans, False),
    )
    key = ec.generate_private_key(ec.SECP256R1())
    return _sign(_name(SERVING_NAME), issuer.subject, (begin, end), extensions, key, issuer_key)


def _signer(ca: KeyPair) -> tuple[x509.Certificate, _SigningKey]:
    issuer = load_certificates(ca.certificate_pem, "CA certificate")[0]
    key = load_key(ca.key_pem, "CA key")
    if not is_ca(issuer):
        raise CertificateError(place="CA certificate", problem="is not a CA's", remedy="give one with BasicConstraints CA:TRUE")
    if not isinstance(key, _SigningKey):
        raise CertificateError(place="CA key", problem="is neither ECDSA nor RSA", remedy="give a CA with such a key")
    if not key_matches(issuer, key):
        raise CertificateError(place="CA key", problem="is not the CA certificate's", remedy="give both files of one CA")
    return issuer, key


def _span(now: datetime, lifetime: timedelta, skew: timedelta) -> tuple[datetime, datetime]:
    if now.tzinfo is None:
        raise CertificateError(place="now", problem="has no time zone", remedy="pass a time such as datetime.now(UTC)")
    try:
        second = now.astimezone(UTC).replace(microsecond=0)  # X.509 knows no fractions.
        return second - skew, second + lifetime
    except OverflowError:
        problem = "ends after the year 9999"
        raise CertificateError(place="lifetime", problem=problem, remedy="correct the clock or shorten it") from None


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    span: tuple[datetime, datetime],
    extensions: Iterable[tuple[x509.ExtensionType, bool]],
    key: ec.EllipticCurvePrivateKey,
    issuer_key: _SigningKey,
) -> KeyPair:
    """Return a certificate for ``key`` with the ``extensions``, each critical or not, signed with ``issuer_key``."""
    public_key, serial = key.public_key(), x509.random_serial_number()
    builder = x509.CertificateBuilder(issuer, subject, public_key, serial, *span)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return KeyPair(
        certificate_pem=builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key_pem=key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _key_usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in allowed for usage in _USAGES})


def _authority_key_identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    # The issuer's own identifier: a CA from elsewhere may have derived it in another way, and verifiers compare the two.
    kind = x509.SubjectKeyIdentifier
    try:
        identifier = issuer.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        identifier = kind.from_public_key(issuer.public_key())
    return x509.AuthorityKeyIdentifier(
        key_identifier=identifier.digest, authority_cert_issuer=None, authority_cert_serial_number=None
    )


def _name(common_name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    except ValueError:
        raise CertificateError(place=f"name {common_name!r}", problem="is unusable", remedy="give 1 to 64 characters") from None
