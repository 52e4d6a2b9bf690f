"""The Chromium that the tests drive: the one that is installed, else Debian's, installed where that is possible.

``python -m tests.browser.chromium`` prints where it is, and installs it first where it is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
HOW = "install Chromium (Debian: apt-get install chromium), or name one in the environment variable CHROMIUM"


class MissingError(Exception):
    """There is no Chromium, and none can be installed from here."""


def find() -> Path | None:
    """Where Chromium is; None where there is none."""
    named = os.environ.get("CHROMIUM")
    if named:
        if not os.access(named, os.X_OK):
            message = f"CHROMIUM={named} is no program; {HOW}"
            raise MissingError(message)
        return Path(named)
    return next((Path(found) for name in NAMES if (found := shutil.which(name))), None)


def ensure() -> Path:
    """Where Chromium is, installed first where it is missing."""
    found = find()
    if found:
        return found
    if not shutil.which("apt-get"):
        message = f"no Chromium here, and no apt-get to install one with: {HOW}"
        raise MissingError(message)
    if os.geteuid() != 0:
        message = f"no Chromium here, and only root may install one: {HOW}"
        raise MissingError(message)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
        # Lists that cannot be renewed may be good enough; the installation says whether they were.
        if done.returncode and "install" in command:
            message = f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}; {HOW}"
            raise MissingError(message)
    found = find()
    if not found:
        message = f"apt-get installed chromium, and it is not on PATH: {HOW}"
        raise MissingError(message)
    return found


if __name__ == "__main__":
    try:
        print(ensure())
    except MissingError as error:
        sys.exit(f"tests/browser: {error}")
