"""Replace files atomically, all of them or none."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpugate.webhook.files.within import LeadsOutError, open_folder, open_regular, target_in
from gpugate.webhook.runtime.errors import InputError

_NONE: Final = "no file was changed"


class FileReplacement(NamedTuple):
    """The new content of a file (or of the target of a symbolic link), and its content when it was read.

    Attributes:
        root: real path of the folder that the file must lie in; None if the user named the file itself.
    """

    file: str
    old: bytes
    new: bytes
    root: Path | None = None


class _Staged(NamedTuple):
    """A new file beside the one that it replaces, by its name in the same folder."""

    temporary: str
    target: Path
    root: Path | None


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
            with (
                _explained(str(file.target), f"{done} of {len(staged)} files are written"),
                _folder(file.target, file.root) as folder,
            ):
                os.replace(file.temporary, file.target.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        for file in staged:
            with contextlib.suppress(OSError), _folder(file.target, file.root) as folder:
                os.unlink(file.temporary, dir_fd=folder)
    for path in {file.target.parent for file in staged}:
        _sync_folder(path)


@contextlib.contextmanager
def _folder(target: Path, root: Path | None) -> Iterator[int]:
    handle = open_folder(target, root)
    try:
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _explained(file: str, progress: str = _NONE) -> Iterator[None]:
    try:
        yield
    except LeadsOutError as error:
        message = f"{file}: {error.strerror}; {progress}"
        raise InputError(message) from None
    except OSError as error:
        message = f"{file}: cannot be written: {error.strerror or error}; {progress}"
        raise InputError(message) from None


def _stage(replacement: FileReplacement) -> _Staged:
    target = target_in(replacement.file, replacement.root)
    with _folder(target, replacement.root) as folder:
        with os.fdopen(open_regular(target.name, folder), "rb") as stream:
            before, content = os.fstat(stream.fileno()), stream.read()
        if not before.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(target.name, os.W_OK, dir_fd=folder):
            message = f"{replacement.file}: is read-only; {_NONE}"
            raise InputError(message)
        if content != replacement.old:
            message = f"{replacement.file}: another program has changed the file: run the command again; {_NONE}"
            raise InputError(message)
        temporary = f".{target.name}.{secrets.token_hex(4)}.gpugate"
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            _write(handle, replacement.new, before)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
    return _Staged(temporary, target, replacement.root)


def _write(handle: int, content: bytes, before: os.stat_result) -> None:
    """Write the new file to disk, with the mode and owner of the one ``before``."""
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fchmod(handle, stat.S_IMODE(before.st_mode))
        with contextlib.suppress(OSError):
            # Only root may change the owner; a user may set one of its own groups.
            os.fchown(handle, before.st_uid, before.st_gid)
        os.fsync(handle)


def _sync_folder(folder: Path) -> None:
    """Sync the folder to disk, so that the new names survive a power loss, if the file system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
