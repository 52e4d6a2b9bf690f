"""Prometheus and promtool: those on PATH, else Debian's, unpacked into the cache without installing anything.

``python -m tests.e2e.monitoring.programs`` prints where they are, and fetches them first where they are missing.
No package is installed, so no service of the system starts.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.controlplane.programs import cache_folder

PACKAGE = "prometheus"
HOW = "install prometheus (Debian: apt-get install prometheus), so that prometheus and promtool are on PATH"
LONGEST_DOWNLOAD = 300
"""Seconds: the package has 19 MB, the lists a few times that."""


class MissingError(Exception):
    """There is no Prometheus, and none can be fetched from here."""


@dataclass(frozen=True)
class Monitoring:
    """The two programs."""

    prometheus: Path
    promtool: Path


def find() -> Monitoring | None:
    """The programs on PATH, or those that an earlier run unpacked; None where there are none."""
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    if server and tool:
        return Monitoring(Path(server), Path(tool))
    return _unpacked(_folder())


def ensure() -> Monitoring:
    """Where the programs are, fetched first where they are missing."""
    found = find()
    if found:
        return found
    for program in ("apt-get", "dpkg-deb"):
        if not shutil.which(program):
            message = f"no Prometheus here, and no {program} to fetch one with: {HOW}"
            raise MissingError(message)
    folder = _folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        found = _unpacked(folder)
        if found is None:  # else another run fetched it while we waited
            found = _fetch(folder)
    return found


def _folder() -> Path:
    return cache_folder() / f"{PACKAGE}-debian"


def _unpacked(folder: Path) -> Monitoring | None:
    programs = Monitoring(folder / "usr" / "bin" / "prometheus", folder / "usr" / "bin" / "promtool")
    return programs if all(os.access(path, os.X_OK) for path in (programs.prometheus, programs.promtool)) else None


def _fetch(folder: Path) -> Monitoring:
    """Download and unpack the package. The folder appears under its final name only when it is complete."""
    scratch = Path(tempfile.mkdtemp(prefix=f".{PACKAGE}-", dir=folder.parent))
    try:
        archive = _download(scratch)
        whole = scratch / "whole"
        _run(["dpkg-deb", "-x", str(archive), str(whole)], scratch)
        if _unpacked(whole) is None:
            message = f"{archive.name} holds no usr/bin/prometheus and usr/bin/promtool: {HOW}"
            raise MissingError(message)
        shutil.rmtree(folder, ignore_errors=True)
        whole.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    found = _unpacked(folder)
    assert found is not None
    return found


def _download(scratch: Path) -> Path:
    """The package's file. The lists of packages are renewed only where the package can't be had with those that are there."""
    try:
        _run(["apt-get", "download", "-q", PACKAGE], scratch)
    except MissingError:
        if os.geteuid() != 0:
            message = f"apt-get download {PACKAGE} failed, and only root may renew the lists of packages: {HOW}"
            raise MissingError(message) from None
        _run(["apt-get", "update", "-q"], scratch)
        _run(["apt-get", "download", "-q", PACKAGE], scratch)
    return next(iter(sorted(scratch.glob(f"{PACKAGE}_*.deb"))))


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_DOWNLOAD,
        )
    except subprocess.TimeoutExpired:
        message = f"{' '.join(command)} took longer than {LONGEST_DOWNLOAD} s: {HOW}"
        raise MissingError(message) from None
    if done.returncode:
        message = f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}; {HOW}"
        raise MissingError(message)


if __name__ == "__main__":
    try:
        print(*vars(ensure()).values(), sep="\n")
    except MissingError as error:
        sys.exit(f"tests/e2e/monitoring: {error}")
