"""Open files of a folder without following a link out of it, whatever others do there meanwhile."""

import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

#: Opens a folder for access to its entries alone, which needs no permission to list it (Linux).
_SEARCH: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LeadsOutError(OSError):
    """A file of a folder is a link to a place outside the folder."""


def target_in(file: str, root: Path | None) -> Path:
    """Return the real path of ``file``, below the real path ``root`` if that is given.

    Raises:
        LeadsOutError: the file lies elsewhere.
    """
    target = Path(os.path.realpath(file))
    if root is not None and not target.is_relative_to(root):
        message = f"leads out of {root}"
        raise LeadsOutError(0, message)
    return target


def open_folder(target: Path, root: Path | None) -> int:
    """Open the folder of ``target`` step by step from ``root`` (default: the folder itself), following no link.

    Raises:
        OSError: a folder on the way is missing, or is a link by now.
    """
    root = target.parent if root is None else root
    handle = os.open(root, _SEARCH)
    for part in target.parent.relative_to(root).parts:
        try:
            below = os.open(part, _SEARCH, dir_fd=handle)
        finally:
            os.close(handle)
        handle = below
    return handle


def open_regular(name: str, folder: int) -> int:
    """Open the regular file ``name`` of an open folder for reading; follows no link and waits for no writer.

    Raises:
        OSError: the file is missing, or is a link, a pipe or a device by now.
    """
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    message = "is no regular file"
    raise OSError(0, message)


def read_in(file: str, root: Path, most: int) -> bytes:
    """Return the first ``most`` bytes of ``file``, a regular file below ``root``.

    Raises:
        OSError: the file cannot be read, or lies elsewhere.
    """
    target = target_in(file, root)
    folder = open_folder(target, root)
    try:
        handle = open_regular(target.name, folder)
    finally:
        os.close(folder)
    with os.fdopen(handle, "rb") as stream:
        return stream.read(most)


def links_out_of(folder: str, suffixes: Collection[str]) -> list[str]:
    """Return the links in ``folder`` to places outside it, sorted: to folders, and to files with one of ``suffixes``.

    Hidden ones are left out, and those that lead nowhere.
    """
    root = os.path.realpath(folder)
    links: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        manifests = (name for name in files if not name.startswith(".") and Path(name).suffix in suffixes)
        for name in (*folders, *manifests):
            path = Path(place, name)
            if path.is_symlink() and path.exists() and not Path(os.path.realpath(path)).is_relative_to(root):
                links.append(str(path.relative_to(folder)))
    return sorted(links)
