"""Free TCP ports on the loopback interface, not handed out twice by runs side by side."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# Below the usual range of ephemeral ports, so that no outgoing connection takes a port before its server listens.
_FIRST, _LAST = 20_000, 30_000
# The lock files stay open as long as this process lives: that is what reserves the ports.
_reserved: dict[int, int] = {}


def free_port() -> int:
    """Reserve a port on which nobody listens, for as long as this process lives."""
    locks = Path(tempfile.gettempdir()) / f"gpugate-e2e-ports-{os.getuid()}"
    locks.mkdir(mode=0o700, exist_ok=True)
    for port in random.sample(range(_FIRST, _LAST), 500):
        if port not in _reserved and _reserve(locks / str(port), port):
            return port
    raise RuntimeError(f"no free port among 500 tried between {_FIRST} and {_LAST}")


def _reserve(lock: Path, port: int) -> bool:
    """Take the lock of the port and make sure that it can be listened on."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        os.close(descriptor)
        return False
    _reserved[port] = descriptor
    return True
