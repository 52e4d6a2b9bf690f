"""Write the tables of docs/operate/reliability.md: what was done to a server, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = Path(__file__).parent.parent / "docs" / "operate" / "reliability.md"
_HEAD: Final = "| what was done | to what end | before | after |\n|---|---|---|---|\n"


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        done: what was done to the server.
        end: what has to hold.
        before: figure before the work on reliability; ``-`` if nobody measured it.
        after: figure of this run.
    """

    done: str
    end: str
    before: str
    after: str


def write(section: str, rows: Sequence[Row], page: Path = PAGE) -> None:
    """Replace the table between ``<!-- section: begin -->`` and ``<!-- section: end -->`` of ``page``.

    Raises:
        ValueError: the page does not have both marks once.
    """
    begin, end = f"<!-- {section}: begin -->\n", f"<!-- {section}: end -->"
    text = page.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(end) < text.index(begin):
        message = f"{page} needs the lines {begin.strip()} and {end} once, in this order"
        raise ValueError(message)
    head, rest = text.split(begin)
    table = _HEAD + "".join(f"| {' | '.join(_cell(cell) for cell in row)} |\n" for row in rows)
    page.write_text(f"{head}{begin}{table}{rest[rest.index(end) :]}", encoding="utf-8")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|") or "-"
