"""Files and locks under the store: bounded reads, atomic replacement, plain errors."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from gpugate.certs.inspect import CertificateError

#: The size of a Kubernetes Secret, and far more than any chain needs.
MAX_BYTES: Final = 1 << 20
_POLL_SECONDS: Final = 0.02
_REMEDIES: Final = {
    errno.ENOENT: "check the path",
    errno.EEXIST: "give a directory",
    errno.ENOTDIR: "give a directory",
    errno.EISDIR: "give a file, or move the directory away",
    errno.EACCES: "run as the owner of these files, or give this user access",
    errno.EPERM: "run as the owner of these files, or give this user access",
    errno.EROFS: "mount a writable volume here, such as an emptyDir",
    errno.ENOSPC: "make room on this volume",
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a CertificateError that names the path."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        problem = "is not a directory" if number == errno.EEXIST else (error.strerror or str(error)).lower()
        remedy = _REMEDIES.get(number, "check the path and its file system")
        raise CertificateError(place=path, problem=problem, remedy=remedy) from None


def require_directory(path: Path) -> None:
    """Raise CertificateError unless there is a directory at `path`."""
    with explained(path):
        if not stat.S_ISDIR(path.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory")


def read(path: Path) -> bytes:
    """Read a file of at most MAX_BYTES bytes.

    Raises:
        CertificateError: it is absent, unreadable or larger.
    """
    with explained(path), path.open("rb") as file:
        return _bounded(file, path)


def read_regular(path: Path) -> bytes:
    """Read a regular file like `read`, without waiting for the writer of a named pipe.

    Raises:
        CertificateError: it is absent, unreadable, larger, or a directory, pipe or device.
    """
    with explained(path), open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise CertificateError(place=path, problem="is not a regular file", remedy="put a PEM file in its place")
        return _bounded(file, path)


def read_if_there(path: Path) -> bytes | None:
    """Read a file like `read_regular`; None if there is none.

    Raises:
        CertificateError: the file is unreadable or too large.
    """
    with explained(path):
        try:
            path.stat()
        except FileNotFoundError:
            return None
    return read_regular(path)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _bounded(file: BinaryIO, path: Path) -> bytes:
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise CertificateError(place=path, problem=f"is larger than {MAX_BYTES} bytes", remedy="give a PEM file")
    return data


def replace(path: Path, data: bytes, mode: int) -> None:
    """Replace a file atomically: readers see the old content or the new.

    The data is on disk, with `mode` (permission bits), before the rename. Only one process may write at a time: hold
    `exclusive`.

    Raises:
        CertificateError: the directory is not writable.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with explained(path):
        temporary.unlink(missing_ok=True)  # Left over by a process that was killed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)  # Undo the umask.
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def restrict_to_owner(path: Path) -> None:
    """Remove the permissions of group and others.

    Raises:
        CertificateError: this user may not change them.
    """
    with explained(path):
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)


@contextmanager
def exclusive(lock: Path, timeout: float) -> Iterator[None]:
    """Hold the lock file exclusively, waiting up to `timeout` seconds for it.

    The kernel releases it when the process dies; the empty file stays.

    Raises:
        CertificateError: the lock cannot be created or acquired.
    """
    with explained(lock):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with _locked(descriptor, fcntl.LOCK_EX, lock, timeout):
        yield


@contextmanager
def shared(lock: Path, timeout: float) -> Iterator[None]:
    """Hold the lock file together with other readers, if it exists.

    A mounted Secret has neither lock file nor other writers: the kubelet swaps all of its files at once.

    Raises:
        CertificateError: a writer holds it longer than `timeout` seconds.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # Reading a file reports problems of the directory.
        yield
        return
    with _locked(descriptor, fcntl.LOCK_SH, lock, timeout):
        yield


@contextmanager
def _locked(descriptor: int, kind: int, lock: Path, timeout: float) -> Iterator[None]:
    """Hold the lock until the end of the block, and close its descriptor."""
    deadline = time.monotonic() + timeout
    try:
        while not _acquires(descriptor, kind, lock):
            if time.monotonic() >= deadline:
                raise CertificateError(
                    place=lock,
                    problem=f"is held by another process for more than {timeout:g} seconds",
                    remedy="end that process and try again",
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _acquires(descriptor: int, kind: int, lock: Path) -> bool:
    with explained(lock):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
