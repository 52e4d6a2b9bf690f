"""Decide whether a server may load the files of a serving certificate. Nothing here reads a clock or a file."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gpugate.certs.inspect import CertificateError, CertificateInfo, describe, load_certificates, load_key
from gpugate.certs.issue import KeyPair
from gpugate.certs.verify import CertificateProblem, ProblemKind, verify

#: Most certificates of a serving chain; public ones have two to four.
MAX_CHAIN: Final = 10


@dataclass(frozen=True, slots=True)
class ServingCheck:
    """What a pair of certificate and key is good for at one time.

    Attributes:
        info: the certificate that clients would see; None if there is no readable one.
        problem: why a server must not load the pair; None if it may.
        bundle_problem: why the pair could not be compared with its CA bundle; None if it was, or if there is no bundle.
    """

    info: CertificateInfo | None
    problem: CertificateProblem | None = None
    bundle_problem: CertificateProblem | None = None


def check_pair(pair: KeyPair, bundle_pem: bytes, now: datetime) -> ServingCheck:
    """Check time, usage and key of a pair, and that it chains to the bundle, unless this is empty or damaged.

    A damaged bundle shows nothing about the pair, so it is no reason to refuse the pair.
    """
    info, anchors, bundle_problem = None, pair.certificate_pem, None
    if bundle_pem.strip():
        try:
            load_certificates(bundle_pem, "ca.crt")
            anchors = bundle_pem
        except CertificateError as error:
            bundle_problem = unusable(ProblemKind.DAMAGED_BUNDLE, error)
    try:
        info = _first(pair)
        load_key(pair.key_pem, "tls.key")
        # Alone, a certificate is checked as its own anchor: for all but its signer.
        problems = verify(pair.certificate_pem, anchors, (), now, key_pem=pair.key_pem)
    except CertificateError as error:
        problems = [unusable(ProblemKind.DAMAGED, error)]
    return ServingCheck(info, problems[0] if problems else None, bundle_problem)


def _first(pair: KeyPair) -> CertificateInfo:
    chain = load_certificates(pair.certificate_pem, "tls.crt")
    if len(chain) > MAX_CHAIN:
        problem, remedy = f"holds {len(chain)} certificates, more than {MAX_CHAIN}", "leave the certificate and its CAs"
        raise CertificateError(place="tls.crt", problem=problem, remedy=remedy)
    return describe(chain[0])


def unusable(kind: ProblemKind, error: CertificateError) -> CertificateProblem:
    """Return the problem that an unusable file is."""
    return CertificateProblem(kind, f"{error.place} {error.problem}", error.remedy)
