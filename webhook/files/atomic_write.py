"""Putting new content in the place of files, whole or not at all."""

from __future__ import annotations

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
        old: what it held when it was read.
        new: what it shall hold.
    """

    file: str
    old: bytes
    new: bytes


class ReplaceError(Exception):
    """A file cannot be replaced; the message names it and says why."""


class _Staged(NamedTuple):
    temporary: Path
    target: Path


def replace_all(replacements: Iterable[Replacement]) -> None:
    """Write every file anew: first all of them beside their targets, then each put in its target's place at once.

    Whoever reads a file meanwhile, and whatever ends this process, finds its old content or its new one.

    Raises:
        ReplaceError: a file cannot be written; none is changed then, but for those already put in place where the last step
            itself fails.
    """
    staged: list[_Staged] = []
    try:
        for one in replacements:
            with _explained(one.file):
                staged.append(_stage(one))
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


def _stage(one: Replacement) -> _Staged:
    target = Path(os.path.realpath(one.file))
    before = target.stat()
    if not before.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(target, os.W_OK):
        message = f"{one.file}: is read-only; {_NONE}"
        raise ReplaceError(message)
    if target.read_bytes() != one.old:
        message = f"{one.file}: was changed by somebody else meanwhile: run it again; {_NONE}"
        raise ReplaceError(message)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".gpugate", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(one.new)
            stream.flush()
            os.fchmod(stream.fileno(), stat.S_IMODE(before.st_mode))
            with contextlib.suppress(OSError):
                # Only root may give a file away; to its own group a user may.
                os.fchown(stream.fileno(), before.st_uid, before.st_gid)
            os.fsync(stream.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return _Staged(temporary, target)


def _sync_folder(folder: Path) -> None:
    """Make the new names last through a loss of power, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
