"""Check all certificates of a file or a store, for a report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from gpugate.certs.inspect import (
    CertificateError,
    CertificateInfo,
    CertificateState,
    Validity,
    describe,
    load_certificates,
    load_key,
    parse,
    validity,
)
from gpugate.certs.store import Contents, Paths
from gpugate.certs.verify import CertificateProblem, ProblemKind, check_key, issuers, verify

_NO_TIME: Final = timedelta(0)


class Role(StrEnum):
    """Role of a certificate; a retired CA is trusted, but did not sign the serving certificate and signs no more."""

    CA = "ca"
    RETIRED_CA = "retired-ca"
    LEAF = "leaf"


@dataclass(frozen=True, slots=True)
class CertificateEntry:
    """One certificate with its file, role and validity."""

    file: str
    role: Role
    info: CertificateInfo
    validity: Validity


@dataclass(frozen=True, slots=True)
class Survey:
    """All certificates in file order, and the problems among them."""

    entries: tuple[CertificateEntry, ...]
    problems: tuple[CertificateProblem, ...]

    @property
    def healthy(self) -> bool:
        """Return whether there is no problem and no certificate in use is due or expired."""
        return not self.problems and all(
            entry.validity.state is CertificateState.VALID for entry in self.entries if entry.role is not Role.RETIRED_CA
        )


def survey_file(pem: bytes, file: str, now: datetime, within: timedelta = _NO_TIME) -> Survey:
    """Check the certificates of one PEM text, called `file` in the entries; what ends `within` this time is due for renewal.

    A CA after another CA of the same subject is its retired predecessor.

    Raises:
        CertificateError: there is none or one is damaged.
    """
    return Survey(_entries(pem, file, now, within), ())


def survey_store(contents: Contents, paths: Paths, hostnames: Sequence[str], now: datetime, within: timedelta = _NO_TIME) -> Survey:
    """Check the files of a store, each against the others; what ends `within` this time is due for renewal.

    Names are checked unless `hostnames` is empty. A CA without its key is no problem: a mounted Secret has none.

    Raises:
        CertificateError: there is no certificate or a file is damaged.
    """
    entries: tuple[CertificateEntry, ...] = ()
    if contents.ca_certificate is not None:
        first, *others = _entries(contents.ca_certificate, paths.ca_certificate, now, within)
        # The store signs with the first alone, for all subjects of the others; one of these may have signed tls.crt.
        signers = _signers(contents, paths)
        roles = [Role.CA if other.info.fingerprint_sha256 in signers else Role.RETIRED_CA for other in others]
        entries += (first, *(replace(other, role=role) for other, role in zip(others, roles, strict=True)))
    if contents.certificate is not None:
        entries += _entries(contents.certificate, paths.certificate, now, within)
    if not entries:
        remedy = "run 'gpugate certs issue' or give another directory"
        raise CertificateError(place=paths.directory, problem="holds no ca.crt and no tls.crt", remedy=remedy)
    for path, key in ((paths.ca_key, contents.ca_key), (paths.key, contents.key)):
        if key is not None:
            load_key(key, path)
    return Survey(entries, tuple(_problems(contents, hostnames, now)))


def _signers(contents: Contents, paths: Paths) -> set[str]:
    """Return the SHA-256 of the CAs that lead from the serving certificate to one of `ca.crt`."""
    if contents.certificate is None or contents.ca_certificate is None:
        return set()
    leaf, *intermediates = load_certificates(contents.certificate, paths.certificate)
    path = issuers(leaf, intermediates, load_certificates(contents.ca_certificate, paths.ca_certificate))
    return {describe(ca).fingerprint_sha256 for ca in path or ()}


def _entries(pem: bytes, file: object, now: datetime, within: timedelta) -> tuple[CertificateEntry, ...]:
    entries: list[CertificateEntry] = []
    for info in parse(pem, file):
        signing = {entry.info.subject for entry in entries if entry.role is Role.CA}
        role = (Role.RETIRED_CA if info.subject in signing else Role.CA) if info.is_ca else Role.LEAF
        entries.append(CertificateEntry(str(file), role, info, validity(info, now, within)))
    return tuple(entries)


def _problems(contents: Contents, hostnames: Sequence[str], now: datetime) -> list[CertificateProblem]:
    problems: list[CertificateProblem] = []
    ca, serving = contents.ca_certificate, contents.certificate
    if ca is not None and contents.ca_key is not None:
        problems += check_key("CA", ca, contents.ca_key)
    if serving is None:
        return problems
    # Alone, it is checked as its own anchor: for its time and names, not its signer.
    anchors = serving if ca is None else ca
    problems += verify(serving, anchors, hostnames, now, key_pem=contents.key)
    if contents.key is None:
        remedy = "restore the matching key, or issue a new pair"
        problems.append(CertificateProblem(ProblemKind.KEY_MISSING, "the serving certificate has no key", remedy))
    return problems
