"""Replace files atomically, all of them or none."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpugate.webhook.runtime.errors import InputError

_NONE: Final = "no file was changed"


class FileReplacement(NamedTuple):
    """The new content of a file (or of the target of a symbolic link), and its content when it was read."""

    file: str
    old: bytes
    new: bytes


class _Staged(NamedTuple):
    temporary: Path
    target: Path


def replace_all(replacements: Iterable[FileReplacement]) -> None:
    """Write all files beside their targets first, then move each into place.

    Readers, and a crash at any time, find the old content of a file or the new one.

    Raises:
        InputError: a file cannot be written. No file is changed, except those moved before a failing move.
    """
    staged: list[_Staged] = []
    try:
        for replacement in replacements:
            with _explained(replacement.file):
                staged.append(_stage(replacement))
        for done, file in enumerate(staged):
            with _explained(str(file.target), f"{done} of {len(staged)} files are written"):
                file.temporary.replace(file.target)
    finally:
        for file in staged:
            with contextlib.suppress(OSError):
                file.temporary.unlink(missing_ok=True)
    for folder in {file.target.parent for file in staged}:
        _sync_folder(folder)


@contextlib.contextmanager
def _explained(file: str, progress: str = _NONE) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{file}: cannot be written: {error.strerror or error}; {progress}"
        raise InputError(message) from None


def _stage(replacement: FileReplacement) -> _Staged:
    target = Path(os.path.realpath(replacement.file))
    before = target.stat()
    if not before.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(target, os.W_OK):
        message = f"{replacement.file}: is read-only; {_NONE}"
        raise InputError(message)
    if target.read_bytes() != replacement.old:
        message = f"{replacement.file}: another program has changed the file: run the command again; {_NONE}"
        raise InputError(message)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".gpugate", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(replacement.new)
            stream.flush()
            os.fchmod(stream.fileno(), stat.S_IMODE(before.st_mode))
            with contextlib.suppress(OSError):
                # Only root may change the owner; a user may set one of its own groups.
                os.fchown(stream.fileno(), before.st_uid, before.st_gid)
            os.fsync(stream.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return _Staged(temporary, target)


def _sync_folder(folder: Path) -> None:
    """Sync the folder to disk, so that the new names survive a power loss, if the file system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
