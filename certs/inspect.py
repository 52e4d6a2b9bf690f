"""Read PEM certificates and keys, describe certificates, and check their validity at a given time.

Nothing here reads a clock or a file.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

#: A certificate is due for renewal once 1/RENEW_SHARE of its life remains.
RENEW_SHARE: Final = 3
_UNREADABLE: Final = (
    *(ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType),
)


class CertificateError(ValueError):
    """An unusable certificate, name or folder, in one line.

    `place` is a path, an option or the name of an input; `problem` and `remedy` are clauses without a period.
    """

    def __init__(self, *, place: object, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}; {remedy}")
        self.place = str(place)
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class CertificateInfo:
    """The fields of one certificate.

    `subject` and `issuer` are RFC 4514 strings; `sans` are DNS names and addresses, other kinds prefixed with their kind; times
    are in UTC and both bounds are inclusive; `fingerprint_sha256` is lower-case hex over the DER form.
    """

    subject: str
    issuer: str
    sans: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    serial: int
    is_ca: bool
    fingerprint_sha256: str


class CertificateState(StrEnum):
    """Phase of a certificate's lifetime."""

    NOT_YET = "not-yet"
    VALID = "valid"
    RENEW = "renew"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Validity:
    """The state at one time, and the remaining time; negative after the end."""

    state: CertificateState
    remaining: timedelta


def load_certificates(pem: bytes, place: object) -> tuple[x509.Certificate, ...]:
    """Parse every certificate of a PEM text, in order; other blocks are skipped.

    Raises:
        CertificateError: naming `place`, if there is no certificate or one is damaged.
    """
    try:
        certificates = tuple(x509.load_pem_x509_certificates(pem))
        for certificate in certificates:
            # These fields are parsed when they are read: read them, so that damage shows here.
            _ = certificate.extensions, certificate.public_key(), certificate.subject, certificate.issuer
            _ = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except _UNREADABLE:
        raise CertificateError(
            place=place,
            problem="holds no readable PEM certificate",
            remedy="give a file with '-----BEGIN CERTIFICATE-----' blocks, or move it away and issue a new one",
        ) from None
    return certificates


def load_key(pem: bytes, place: object) -> PrivateKeyTypes:
    """Parse one private key in PEM without a password.

    Raises:
        CertificateError: naming `place`, if the key is damaged, encrypted or of an unknown kind.
    """
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except _UNREADABLE:
        raise CertificateError(
            place=place,
            problem="holds no readable PEM private key",
            remedy="give a key without password ('-----BEGIN PRIVATE KEY-----'), or move it away and issue a new one",
        ) from None


def dump_certificates(certificates: Iterable[x509.Certificate]) -> bytes:
    """Write the certificates as PEM, and nothing else."""
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def key_matches(certificate: x509.Certificate, key: PrivateKeyTypes) -> bool:
    """Return whether the private key belongs to the certificate."""
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return certificate.public_key().public_bytes(*form) == key.public_key().public_bytes(*form)


def is_ca(certificate: x509.Certificate) -> bool:
    """Return whether BasicConstraints and KeyUsage allow signing certificates."""
    extensions = certificate.extensions
    try:
        authority = extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
    try:
        return authority and extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:  # Without KeyUsage every use is allowed.
        return authority


def parse(pem: bytes, place: object = "certificate") -> tuple[CertificateInfo, ...]:
    """Describe every certificate of a PEM text, in order.

    Raises:
        CertificateError: naming `place`, if there is none or one is damaged.
    """
    return tuple(describe(certificate) for certificate in load_certificates(pem, place))


def describe(certificate: x509.Certificate) -> CertificateInfo:
    """Describe one parsed certificate."""
    return CertificateInfo(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        sans=_sans(certificate),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        serial=certificate.serial_number,
        is_ca=is_ca(certificate),
        fingerprint_sha256=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _sans(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    plain = (x509.DNSName, x509.IPAddress)
    return tuple(str(name.value) if isinstance(name, plain) else f"{type(name).__name__}:{name.value}" for name in names)


def validity(info: CertificateInfo, now: datetime, within: timedelta = timedelta(0)) -> Validity:
    """Return the validity at `now` (with a time zone); what ends `within` this time is due for renewal, too."""
    remaining = info.not_after - now
    if now < info.not_before:
        state = CertificateState.NOT_YET
    elif remaining < timedelta(0):
        state = CertificateState.EXPIRED
    elif remaining <= within or remaining * RENEW_SHARE <= info.not_after - info.not_before:
        state = CertificateState.RENEW
    else:
        state = CertificateState.VALID
    return Validity(state, remaining)


def timestamp(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
