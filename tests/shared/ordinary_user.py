"""A user whom permission bits bind, which they do not root."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def as_ordinary_user() -> Iterator[Path]:
    """Be an ordinary user, and give a directory of that user."""
    home = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        os.chown(home, _NOBODY, _NOBODY)
        os.seteuid(_NOBODY)
    try:
        yield home
    finally:
        if root:
            os.seteuid(0)
        home.chmod(0o700)
        shutil.rmtree(home)
