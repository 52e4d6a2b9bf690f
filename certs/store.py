"""Keep a CA and a serving certificate in a directory, named as in a TLS Secret.

The directory holds `ca.crt`, `ca.key`, `tls.crt` and `tls.key` (the names of a
kubernetes.io/tls Secret, with the CA's key added) and a lock file. Keys are readable
by their owner alone; a directory made here is closed to others, one that was there
keeps its mode.
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
    """Where the files of a store are."""

    directory: Path
    ca_certificate: Path
    ca_key: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Contents:
    """What the files of a store hold, unread; None where there is no file."""

    ca_certificate: bytes | None
    ca_key: bytes | None
    certificate: bytes | None
    key: bytes | None


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a server needs: where the files are, what they hold, and what was done.

    `ca_pem` is what clients shall trust: the CA that signs, then those retired.
    """

    paths: Paths
    ca_pem: bytes
    serving: KeyPair
    plan: RenewalPlan


class DirectoryStore:
    """A CA and a serving certificate in one directory, safe under many processes."""

    def __init__(self, path: Path) -> None:
        """Name the directory; nothing is read or made yet."""
        self.paths = Paths(
            directory=path,
            ca_certificate=path / "ca.crt",
            ca_key=path / "ca.key",
            certificate=path / "tls.crt",
            key=path / "tls.key",
        )
        self._lock = path / ".lock"

    def read(self) -> Contents:
        """Read whatever files are there, all from one state of the store.

        Raises:
            CertificateError: When the directory or a file cannot be read.
        """
        files.require_directory(self.paths.directory)
        with files.shared(self._lock, LOCK_TIMEOUT):
            return self._read()

    def load(self) -> Held:
        """Read and parse what is there; half a serving pair counts as none.

        Raises:
            CertificateError: Naming the file, when one is unreadable or damaged, or
                when the CA is there without its key.
        """
        return self._held(self.read())

    def ensure(
        self,
        hostnames: Sequence[str],
        now: datetime,
        lifetimes: Lifetimes = DEFAULT_LIFETIMES,
        *,
        force: bool = False,
    ) -> Bundle:
        """Issue and store what is missing, wrong or due at `now`; keep the rest.

        `force` renews the serving certificate even if it is good.

        Raises:
            CertificateError: As `load` does, when a host name is unusable, or when the
                directory cannot be made, locked or written.
        """
        names = normalize(hostnames)  # Refused, if need be, before anything is made.
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
            ca=_pair(
                contents.ca_certificate,
                contents.ca_key,
                paths.ca_certificate,
                paths.ca_key,
            ),
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
            files.close_to_others(key)


def ensure(
    path: Path,
    hostnames: Sequence[str],
    now: datetime,
    lifetimes: Lifetimes = DEFAULT_LIFETIMES,
    *,
    force: bool = False,
) -> Bundle:
    """Make the directory at `path` hold what is needed to serve `hostnames`.

    Raises:
        CertificateError: As `DirectoryStore.ensure` does.
    """
    return DirectoryStore(path).ensure(hostnames, now, lifetimes, force=force)


def _pair(certificate: bytes | None, key: bytes | None, certificate_path: Path, key_path: Path) -> KeyPair | None:
    if certificate is None or key is None:
        return None
    load_certificates(certificate, certificate_path)
    load_key(key, key_path)
    return KeyPair(certificate, key)
