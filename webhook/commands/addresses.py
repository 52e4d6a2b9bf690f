"""Addresses to listen on, as options give them."""

from __future__ import annotations

import re
from typing import Final

from gpugate.webhook.commands.failing import fail

_PORT: Final = re.compile("[0-9]{1,5}")


def address(listen: str) -> tuple[str, int]:
    """Host and port of ``--listen HOST:PORT``; ends the program where it is none."""
    host, colon, port = listen.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) >= 1 << 16:
        fail(f"--listen {listen}: write HOST:PORT, for example 127.0.0.1:8443 or [::]:8443")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - what an empty host means
