"""The blocks of the four guides: what stands in them as a manifest, a part of one, a command or its output.

The guides lie beside the repository and are read when the tests run; nothing of theirs is kept here. ``GPUGATE_GUIDES`` names
another folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.shared.paths import ROOT

_BESIDE: Final = ROOT.parent / "shared" / "guides"
FOLDER: Final = Path(os.environ.get("GPUGATE_GUIDES") or _BESIDE)
#: The guides by their short names, each with how its file's name begins.
NAMES: Final = {"NUMA": "000", "basics": "001", "orchestration": "002", "field": "003"}
MISSING: Final = f"the guides are not at {FOLDER}; GPUGATE_GUIDES names their folder"

_FENCE: Final = re.compile(r"^```(\w*)$")
#: A line of YAML as the plain guides have it: a key, or an element of a list.
_YAML: Final = re.compile(r"^\s*(?:- )*(?:[\w./\"-]+:(?: .*)?$|-\s+\S)")
#: What a block of YAML begins with: a key in lower case, which no sentence begins with.
_BEGINS_YAML: Final = re.compile(r"^[a-z][A-Za-z]*:(?: .*)?$")
_BEGINS_CODE: Final = re.compile(r"^(?:# |kubectl |helm |git |export |nvidia-smi(?!\w)|import |@\w|\w+\.\w+\(\)|\w+ = )")
#: A paragraph that is the output of a command: what follows its first line is indented, and no list.
_BEGINS_OUTPUT: Final = re.compile(r"^\w[\w ]*:$")
_INDENTED: Final = re.compile(r"^\s+[^\s\d•]")


class Block(NamedTuple):
    """A block of a guide.

    Attributes:
        guide: the guide's short name.
        number: which block of the guide it is, from 1.
        text: what stands in it, as it stands there.
        is_yaml: whether it is written as YAML; else it is a command, a program or what one prints.
    """

    guide: str
    number: int
    text: str
    is_yaml: bool

    @property
    def first(self) -> str:
        """Its first line that is no comment."""
        lines = (line.strip() for line in self.text.splitlines())
        return next((line for line in lines if line and not line.startswith("#")), "")

    @property
    def name(self) -> str:
        """What it is called in a list of tests."""
        return f"{self.guide}-{self.number}"


def are_there() -> bool:
    """Whether there is a folder with all guides."""
    return FOLDER.is_dir() and all(any(FOLDER.glob(f"{start}*")) for start in NAMES.values())


def text_of(guide: str) -> str:
    """The text of a guide."""
    (file,) = FOLDER.glob(f"{NAMES[guide]}*")
    return file.read_text(encoding="utf-8")


@cache
def blocks() -> tuple[Block, ...]:
    """Every block of every guide, in their order; none where the guides are not there."""
    return tuple(one for guide in NAMES for one in _blocks_of(guide)) if are_there() else ()


def _blocks_of(guide: str) -> Iterator[Block]:
    text = text_of(guide)
    found = _fenced(text) if re.search(r"^```", text, re.MULTILINE) else _bare(text)
    for number, (lines, is_yaml) in enumerate(found, start=1):
        yield Block(guide, number, "\n".join(lines) + "\n", is_yaml)


def _fenced(text: str) -> Iterator[tuple[list[str], bool]]:
    language, lines = None, []
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if fence and language is None:
            language, lines = fence[1], []
        elif fence:
            yield lines, language == "yaml"
            language = None
        elif language is not None:
            lines.append(line)


def _bare(text: str) -> Iterator[tuple[list[str], bool]]:
    """Runs of lines that are no sentences."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        end, is_yaml = _end_of(lines, at)
        if end > at:
            yield lines[at:end], is_yaml
        at = max(end, at + 1)


def _end_of(lines: list[str], at: int) -> tuple[int, bool]:
    """Where the block that begins with a line ends, and whether it is YAML; the line itself where none begins."""
    following = lines[at + 1] if at + 1 < len(lines) else ""
    if _BEGINS_YAML.match(lines[at]):
        return _while(lines, at, _YAML), True
    if _BEGINS_CODE.match(lines[at]) or (_BEGINS_OUTPUT.match(lines[at]) and _INDENTED.match(following)):
        return _paragraph(lines, at), False
    return at, False


def _while(lines: list[str], at: int, pattern: re.Pattern[str]) -> int:
    end = at
    while end < len(lines) and pattern.match(lines[end]):
        end += 1
    return end


def _paragraph(lines: list[str], at: int) -> int:
    """The end of a paragraph; of a command alone where sentences follow it at once."""
    end = at + 1
    while (
        end < len(lines)
        and lines[end].strip()
        and (lines[end - 1].endswith("\\") or not re.match(r"^[A-Z][a-z]+ [a-z]", lines[end]))
    ):
        end += 1
    return end


_MARKDOWN_HEADING: Final = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)
#: A heading of a plain guide: a short line that begins with a capital letter and does not end as a sentence does.
_HEADING: Final = re.compile(r"^[A-Z](?=.{2,79}$).*[^.,:;?!→]$")
_SENTENCES: Final = re.compile(r"[.?] |\$|\||\b20\d\d\b")
_LONG: Final = 80


def headings(guide: str) -> tuple[str, ...]:
    """The headings of a guide, its title and what its page says about itself left out."""
    text = text_of(guide)
    if "\n## " in text:
        outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        return tuple(_MARKDOWN_HEADING.findall(outside))[1:]
    in_blocks = {line for block in blocks() if block.guide == guide for line in block.text.splitlines()}
    lines = text.splitlines()
    return tuple(
        line
        for at, line in enumerate(lines)
        if line not in in_blocks and _HEADING.match(line) and not _SENTENCES.search(line) and _stands_alone(lines, at)
    )


def _stands_alone(lines: list[str], at: int) -> bool:
    """Whether a line has nothing around it; in a guide without empty lines, whether a paragraph follows it."""
    if "" in lines:
        return bool(0 < at < len(lines) - 1 and not lines[at - 1].strip() and not lines[at + 1].strip())
    return bool(0 < at < len(lines) - 1 and (len(lines[at + 1]) > _LONG or lines[at + 1].startswith("- ")))
