"""Replace files atomically, all of them or none."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_NONE: Final = "no file was changed"


class Replacement(NamedTuple):
    """New content for a file.

    Attributes:
        file: the file, or a symbolic link to it.
        old: its content when it was read.
        new: its new content.
    """

    file: str
    old: bytes
    new: bytes


class ReplaceError(Exception):
    """A file cannot be replaced; the message names it and the reason."""


class _Staged(NamedTuple):
    temporary: Path
    target: Path


def replace_all(replacements: Iterable[Replacement]) -> None:
    """Write all files beside their targets first, then move each into place.

    Readers, and a crash at any time, find the old content of a file or the new one.

    Raises:
        ReplaceError: a file cannot be written. No file is changed, except those moved before a failing move.
    """
    staged: list[_Staged] = []
    try:
        for replacement in replacements:
            with _explained(replacement.file):
                staged.append(_stage(replacement))
        for done, ready in enumerate(staged):
            with _explained(str(ready.target), f"{done} of {len(staged)} files are written"):
                ready.temporary.replace(ready.target)
    finally:
        for ready in staged:
            with contextlib.suppress(OSError):
                ready.temporary.unlink(missing_ok=True)
    for folder in {ready.target.parent for ready in staged}:
        _sync_folder(folder)


@contextlib.contextmanager
def _explained(file: str, so_far: str = _NONE) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{file}: cannot be written: {error.strerror or error}; {so_far}"
        raise ReplaceError(message) from None


def _stage(replacement: Replacement) -> _Staged:
    target = Path(os.path.realpath(replacement.file))
    before = target.stat()
    if not before.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(target, os.W_OK):
        message = f"{replacement.file}: is read-only; {_NONE}"
        raise ReplaceError(message)
    if target.read_bytes() != replacement.old:
        message = f"{replacement.file}: another program changed it meanwhile: run it again; {_NONE}"
        raise ReplaceError(message)
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
