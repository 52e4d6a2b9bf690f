"""Store a CA and a serving certificate in a directory, named as in a TLS Secret.

The directory contains `ca.crt`, `ca.key`, `tls.crt` and `tls.key` (the names of a kubernetes.io/tls Secret, and the CA's
key) and a lock file for concurrent processes. Keys are readable by their owner only. A new directory is closed to others; an
existing one keeps its mode.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from gpugate.certs import files
from gpugate.certs.inspect import CertificateError, load_certificates, load_key
from gpugate.certs.issue import DEFAULT_LIFETIMES, KeyPair, Lifetimes
from gpugate.certs.names import normalize
from gpugate.certs.renew import Action, Held, Material, RenewalPlan, carry_out, plan

#: Seconds to wait for another process, which needs some milliseconds itself.
LOCK_TIMEOUT: Final = 10.0
_LOCK: Final = ".lock"
_KEY_MODE: Final = 0o600
_CERTIFICATE_MODE: Final = 0o644
_DIRECTORY_MODE: Final = 0o700


class Paths(NamedTuple):
    """Paths of the files of a store."""

    directory: Path
    ca_certificate: Path
    ca_key: Path
    certificate: Path
    key: Path


class Contents(NamedTuple):
    """Contents of the files of a store, unparsed; None for a missing file."""

    ca_certificate: bytes | None
    ca_key: bytes | None
    certificate: bytes | None
    key: bytes | None


class Bundle(NamedTuple):
    """The material for a server: paths, contents, and the plan that was carried out.

    `ca_pem` is what clients should trust: the signing CA, then retired ones.
    """

    paths: Paths
    ca_pem: bytes
    serving: KeyPair
    plan: RenewalPlan


def paths_in(directory: Path) -> Paths:
    """Return the paths of the files of the store in `directory`."""
    return Paths(directory, directory / "ca.crt", directory / "ca.key", directory / "tls.crt", directory / "tls.key")


def read(directory: Path) -> Contents:
    """Read all existing files from one state of the store.

    Raises:
        CertificateError: the directory or a file is unreadable.
    """
    files.require_directory(directory)
    with files.shared(directory / _LOCK, LOCK_TIMEOUT):
        return _read(paths_in(directory))


def load(directory: Path) -> Held:
    """Read and parse the store; an incomplete serving pair counts as missing.

    Raises:
        CertificateError: naming the file, if one is unreadable or damaged, or the CA has no key.
    """
    return _parse(read(directory), paths_in(directory))


def ensure(
    directory: Path, hostnames: Sequence[str], now: datetime, lifetimes: Lifetimes = DEFAULT_LIFETIMES, *, force: bool = False
) -> Bundle:
    """Issue and store what is missing, wrong or due at `now`; keep the rest.

    `force` renews a valid serving certificate as well.

    Raises:
        CertificateError: as `load`; or a host name is unusable; or the directory cannot be created, locked or written.
    """
    names = normalize(hostnames)  # Validate before creating anything.
    paths = paths_in(directory)
    with files.explained(directory):
        directory.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
    with files.exclusive(directory / _LOCK, LOCK_TIMEOUT):
        held = _parse(_read(paths), paths)
        todo = plan(now, held.ca, held.serving, names, force=force)
        material = carry_out(todo, held, names, now, lifetimes)
        _write(paths, todo.action, material)
    return Bundle(paths, material.ca.certificate_pem, material.serving, todo)


def _read(paths: Paths) -> Contents:
    return Contents(*map(files.read_if_there, paths[1:]))


def _parse(contents: Contents, paths: Paths) -> Held:
    if contents.ca_certificate is not None and contents.ca_key is None:
        problem = f"has no {paths.ca_key.name} beside it to issue with"
        remedy = "renew where this CA is kept, or move it away for a new one"
        raise CertificateError(place=paths.ca_certificate, problem=problem, remedy=remedy)
    return Held(
        ca=_pair(contents.ca_certificate, contents.ca_key, paths.ca_certificate, paths.ca_key),
        serving=_pair(contents.certificate, contents.key, paths.certificate, paths.key),
    )


def _pair(certificate: bytes | None, key: bytes | None, certificate_path: Path, key_path: Path) -> KeyPair | None:
    if certificate is None or key is None:
        return None
    load_certificates(certificate, certificate_path)
    load_key(key, key_path)
    return KeyPair(certificate, key)


def _write(paths: Paths, action: Action, material: Material) -> None:
    # In this order a crash in between leaves at worst a pair that does not match, which the next plan sees and replaces.
    if action is Action.ROTATE_CA:
        files.replace(paths.ca_key, material.ca.key_pem, _KEY_MODE)
        files.replace(paths.ca_certificate, material.ca.certificate_pem, _CERTIFICATE_MODE)
    if action is not Action.KEEP:
        files.replace(paths.key, material.serving.key_pem, _KEY_MODE)
        files.replace(paths.certificate, material.serving.certificate_pem, _CERTIFICATE_MODE)
    for key in (paths.ca_key, paths.key):
        files.restrict_to_owner(key)
