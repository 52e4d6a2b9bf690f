"""Check a serving certificate against its key, its CA, its names and the time.

A mismatch (serving pair and CA do not belong together, as after a GitOps tool re-applied an old caBundle) and an expiry need
different remedies. Nothing here reads a clock or a file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import ExtendedKeyUsageOID

from gpugate.certs.inspect import CertificateState, describe, is_ca, key_matches, load_certificates, load_key, timestamp, validity
from gpugate.certs.names import normalize, uncovered

#: Most CAs that a message names.
_SHOWN: Final = 4


class ProblemKind(StrEnum):
    """Kinds of problems of a serving certificate, its key, its CA, its names and their files."""

    FOREIGN_CA = "foreign-ca"
    NOT_A_CA = "not-a-ca"
    CA_NOT_YET = "ca-not-yet"
    CA_EXPIRED = "ca-expired"
    SERVING_NOT_YET = "serving-not-yet"
    SERVING_EXPIRED = "serving-expired"
    KEY_MISMATCH = "key-mismatch"
    KEY_MISSING = "key-missing"
    WRONG_NAMES = "wrong-names"
    WRONG_USAGE = "wrong-usage"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"
    DAMAGED_BUNDLE = "damaged-bundle"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class CertificateProblem:
    """One problem with its remedy."""

    kind: ProblemKind
    message: str
    remedy: str

    def __str__(self) -> str:
        """Return all parts in one line."""
        return f"{self.kind}: {self.message}; {self.remedy}"


def verify(
    serving_pem: bytes, ca_pem: bytes, hostnames: Sequence[str], now: datetime, *, key_pem: bytes | None = None
) -> list[CertificateProblem]:
    """Check a serving certificate as a client that trusts `ca_pem`; an empty list means valid.

    `serving_pem` is the certificate, followed by intermediates; `ca_pem` may contain several CAs. Names are checked unless
    `hostnames` is empty, the key if `key_pem` is given. A certificate that is itself in `ca_pem` is trusted, as in Go and
    OpenSSL.

    Raises:
        CertificateError: an input is damaged or a host name is unusable.
    """
    leaf, *intermediates = load_certificates(serving_pem, "serving certificate")
    anchors = load_certificates(ca_pem, "CA certificate")
    return [
        *_check_path(leaf, intermediates, anchors, now),
        *_check_time("serving", leaf, now),
        *_check_usage(leaf),
        *(_check_names(leaf, hostnames) if hostnames else ()),
        *(check_key("serving", serving_pem, key_pem) if key_pem is not None else ()),
    ]


def check_key(role: str, certificate_pem: bytes, key_pem: bytes) -> list[CertificateProblem]:
    """Check that a private key belongs to the first certificate of a PEM text.

    `role` ("serving", "CA") goes into the message.

    Raises:
        CertificateError: an input is damaged.
    """
    certificate, *others = load_certificates(certificate_pem, f"{role} certificate")
    key = load_key(key_pem, f"{role} key")
    if key_matches(certificate, key):
        return []
    message = f"the {role} key is not the {role} certificate's"
    remedy = "restore the matching key, or issue a new pair"
    place = next((place for place, other in enumerate(others, 2) if key_matches(other, key)), None)
    if place is not None:
        message = f"the {role} key belongs to certificate {place} of its file, not to the first"
        remedy = f"put the {role} certificate first, then those of its CAs"
    return [CertificateProblem(ProblemKind.KEY_MISMATCH, message, remedy)]


def issuers(
    leaf: x509.Certificate, intermediates: Sequence[x509.Certificate], anchors: Sequence[x509.Certificate]
) -> list[x509.Certificate] | None:
    """Return the issuers from the leaf's to the anchor, or None if no path is found."""
    if leaf in anchors:
        return []
    # A CA renewed with its old key signs for both certificates: prefer the longer-lived one, so that an expiry is reported
    # only if no other CA is valid.
    anchors = sorted(anchors, key=lambda ca: ca.not_valid_after_utc, reverse=True)
    path: list[x509.Certificate] = []
    current = leaf
    for _ in range(len(intermediates) + 1):
        anchor = next((ca for ca in anchors if _signed(current, ca)), None)
        if anchor is not None:
            return [*path, anchor]
        parent = next((ca for ca in intermediates if ca not in path and _signed(current, ca)), None)
        if parent is None:
            return None
        path.append(parent)
        current = parent
    return None


def _check_path(
    leaf: x509.Certificate, intermediates: Sequence[x509.Certificate], anchors: Sequence[x509.Certificate], now: datetime
) -> list[CertificateProblem]:
    path = issuers(leaf, intermediates, anchors)
    if path is None:
        ids = ", ".join(describe(anchor).fingerprint_sha256[:16] for anchor in anchors[:_SHOWN])
        ids += f" and {len(anchors) - _SHOWN} more" if len(anchors) > _SHOWN else ""
        message = f"the serving certificate (issuer {leaf.issuer.rfc4514_string()}) was not signed by the CA given (SHA-256 {ids})"
        remedy = "publish the caBundle of the CA that signed it, or issue a new one"
        return [CertificateProblem(ProblemKind.FOREIGN_CA, message, remedy)]
    problems = [problem for ca in path for problem in _check_time("CA", ca, now)]
    if not all(is_ca(ca) for ca in path):
        message = "the certificate that signed the serving certificate is not a CA's"
        problems.append(CertificateProblem(ProblemKind.NOT_A_CA, message, "rotate the CA"))
    return problems


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _check_time(role: str, certificate: x509.Certificate, now: datetime) -> list[CertificateProblem]:
    info = describe(certificate)
    state = validity(info, now).state
    if state is CertificateState.NOT_YET:
        message, remedy = f"begins at {timestamp(info.not_before)}", "correct the clock, or issue a new one"
    elif state is CertificateState.EXPIRED:
        message, remedy = f"ended at {timestamp(info.not_after)}", "issue a new one"
    else:
        return []
    return [CertificateProblem(ProblemKind(f"{role.lower()}-{state}"), f"the {role} certificate {message}", remedy)]


def _check_usage(leaf: x509.Certificate) -> list[CertificateProblem]:
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:  # Without the extension any usage is allowed.
        return []
    if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}.isdisjoint(usages):
        return []
    message = "the serving certificate is not meant for servers (no serverAuth)"
    remedy = "use a serving certificate, or issue a new one"
    return [CertificateProblem(ProblemKind.WRONG_USAGE, message, remedy)]


def _check_names(leaf: x509.Certificate, hostnames: Sequence[str]) -> list[CertificateProblem]:
    sans = describe(leaf).sans
    missing = uncovered(normalize(hostnames), sans)
    if not missing:
        return []
    message = f"the serving certificate does not cover {', '.join(missing)} (it covers {', '.join(sans) or 'nothing'})"
    return [CertificateProblem(ProblemKind.WRONG_NAMES, message, "issue one for these names")]
