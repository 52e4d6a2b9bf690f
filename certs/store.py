"""Store a CA and a serving certificate in a directory, named as in a TLS Secret.

The directory contains `ca.crt`, `ca.key`, `tls.crt` and `tls.key` (the names of a kubernetes.io/tls Secret, and the CA's
key) and a lock file. Keys are readable by their owner only. A new directory is closed to others; an existing one keeps its
mode.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from gpugate.certs import files
from gpugate.certs.errors import CertificateError
from gpugate.certs.issue import DEFAULT_LIFETIMES, KeyPair, Lifetimes
from gpugate.certs.names import normalize
from gpugate.certs.pem import load_certificates, load_key
from gpugate.certs.plan import Action, RenewalPlan, plan
from gpugate.certs.renew import Held, Material, carry_out

LOCK_TIMEOUT: Final = 10.0
"""Seconds to wait for another process, which needs some milliseconds itself."""

_KEY_MODE: Final = 0o600
_CERTIFICATE_MODE: Final = 0o644
_DIRECTORY_MODE: Final = 0o700


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths of the files of a store."""

    directory: Path
    ca_certificate: Path
    ca_key: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of the files of a store, unparsed; None for a missing file."""

    ca_certificate: bytes | None
    ca_key: bytes | None
    certificate: bytes | None
    key: bytes | None


@dataclass(frozen=True, slots=True)
class Bundle:
    """The material for a server: paths, contents, and the plan that was carried out.

    `ca_pem` is what clients should trust: the signing CA, then retired ones.
    """

    paths: Paths
    ca_pem: bytes
    serving: KeyPair
    plan: RenewalPlan


class DirectoryStore:
    """A CA and a serving certificate in one directory, safe for concurrent processes."""

    def __init__(self, path: Path) -> None:
        """Set the directory; nothing is read or created yet."""
        self.paths = Paths(
            directory=path,
            ca_certificate=path / "ca.crt",
            ca_key=path / "ca.key",
            certificate=path / "tls.crt",
            key=path / "tls.key",
        )
        self._lock = path / ".lock"

    def read(self) -> Contents:
        """Read all existing files from one state of the store.

        Raises:
            CertificateError: the directory or a file is unreadable.
        """
        files.require_directory(self.paths.directory)
        with files.shared(self._lock, LOCK_TIMEOUT):
            return self._read()

    def load(self) -> Held:
        """Read and parse the store; an incomplete serving pair counts as missing.

        Raises:
            CertificateError: naming the file, if one is unreadable or damaged, or the CA has no key.
        """
        return self._held(self.read())

    def ensure(
        self, hostnames: Sequence[str], now: datetime, lifetimes: Lifetimes = DEFAULT_LIFETIMES, *, force: bool = False
    ) -> Bundle:
        """Issue and store what is missing, wrong or due at `now`; keep the rest.

        `force` renews a valid serving certificate as well.

        Raises:
            CertificateError: as `load`; or a host name is unusable; or the directory cannot be created, locked or written.
        """
        names = normalize(hostnames)  # Validate before creating anything.
        directory = self.paths.directory
        with files.explained(directory):
            directory.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
        with files.exclusive(self._lock, LOCK_TIMEOUT):
            held = self._held(self._read())
            todo = plan(now, held.ca, held.serving, names, force=force)
            material = carry_out(todo, held, names, now, lifetimes)
            self._write(todo.action, material)
        ca_pem = material.ca.certificate_pem
        return Bundle(self.paths, ca_pem, material.serving, todo)

    def _read(self) -> Contents:
        paths = self.paths
        return Contents(
            ca_certificate=files.read_if_there(paths.ca_certificate),
            ca_key=files.read_if_there(paths.ca_key),
            certificate=files.read_if_there(paths.certificate),
            key=files.read_if_there(paths.key),
        )

    def _held(self, contents: Contents) -> Held:
        paths = self.paths
        if contents.ca_certificate is not None and contents.ca_key is None:
            raise CertificateError(
                place=paths.ca_certificate,
                problem=f"has no {paths.ca_key.name} beside it to issue with",
                remedy="renew where this CA is kept, or move it away for a new one",
            )
        return Held(
            ca=_pair(contents.ca_certificate, contents.ca_key, paths.ca_certificate, paths.ca_key),
            serving=_pair(contents.certificate, contents.key, paths.certificate, paths.key),
        )

    def _write(self, action: Action, material: Material) -> None:
        # In this order a crash in between leaves at worst a pair that does not match,
        # which the next plan sees and mends.
        paths = self.paths
        if action is Action.ROTATE_CA:
            files.replace(paths.ca_key, material.ca.key_pem, _KEY_MODE)
            ca_pem = material.ca.certificate_pem
            files.replace(paths.ca_certificate, ca_pem, _CERTIFICATE_MODE)
        if action is not Action.KEEP:
            files.replace(paths.key, material.serving.key_pem, _KEY_MODE)
            serving_pem = material.serving.certificate_pem
            files.replace(paths.certificate, serving_pem, _CERTIFICATE_MODE)
        for key in (paths.ca_key, paths.key):
            files.restrict_to_owner(key)


def ensure(
    path: Path, hostnames: Sequence[str], now: datetime, lifetimes: Lifetimes = DEFAULT_LIFETIMES, *, force: bool = False
) -> Bundle:
    """Ensure that the directory at `path` can serve `hostnames`.

    Raises:
        CertificateError: as `DirectoryStore.ensure`.
    """
    return DirectoryStore(path).ensure(hostnames, now, lifetimes, force=force)


def _pair(certificate: bytes | None, key: bytes | None, certificate_path: Path, key_path: Path) -> KeyPair | None:
    if certificate is None or key is None:
        return None
    load_certificates(certificate, certificate_path)
    load_key(key, key_path)
    return KeyPair(certificate, key)
