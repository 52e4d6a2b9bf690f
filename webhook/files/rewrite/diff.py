"""Unified diffs that `patch` and `git apply` take, whatever the files' line breaks."""

from __future__ import annotations

import difflib
from typing import Final

_NO_END: Final = "\n\\ No newline at end of file\n"


def unified_diff(before: str, after: str, file: str) -> list[str]:
    """The lines of the diff from ``before`` to ``after``, each with its line break."""
    lines = difflib.unified_diff(_lines(before), _lines(after), _name(file), _name(file))
    return [line if line.endswith("\n") else line + _NO_END for line in lines]


def _lines(text: str) -> list[str]:
    # Of all line breaks the tools know but this one.
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]


def _name(file: str) -> str:
    return "stdin" if file == "-" else file
