"""Read certificates into plain records, and check their validity at a given time.

Nothing here reads a clock or a file.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from gpugate.certs.pem import is_ca, load_certificates

RENEW_SHARE: Final = 3
"""A certificate is due for renewal once 1/RENEW_SHARE of its life remains."""


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


def parse(pem: bytes, place: object = "certificate") -> tuple[CertificateInfo, ...]:
    """Describe every certificate of a PEM text, in order.

    Raises:
        CertificateError: naming `place`, if there is none or one is damaged.
    """
    return tuple(describe(certificate) for certificate in load_certificates(pem, place))


def validity(info: CertificateInfo, now: datetime) -> Validity:
    """Return the validity at `now` (with a time zone)."""
    remaining = info.not_after - now
    if now < info.not_before:
        state = CertificateState.NOT_YET
    elif remaining < timedelta(0):
        state = CertificateState.EXPIRED
    elif remaining * RENEW_SHARE <= info.not_after - info.not_before:
        state = CertificateState.RENEW
    else:
        state = CertificateState.VALID
    return Validity(state, remaining)


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


def timestamp(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _sans(certificate: x509.Certificate) -> tuple[str, ...]:
    kind = x509.SubjectAlternativeName
    try:
        names = certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return ()
    plain = (x509.DNSName, x509.IPAddress)
    return tuple(str(name.value) if isinstance(name, plain) else f"{type(name).__name__}:{name.value}" for name in names)
