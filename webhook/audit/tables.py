"""What the tables of an audit at a terminal have in common."""

from __future__ import annotations

import re
from typing import Final

from rich.table import Table

from gpugate.webhook.report import shown

_BREAKS: Final = re.compile("[\t\n\v\f\r\x85\u2028\u2029]")
#: Whose workloads those are that name nobody.
NOBODY: Final = "(nobody named)"


def plain(text: str) -> str:
    """``text`` on one line, without what a name may not do to a terminal: no name begins a line of the audit."""
    return shown(_BREAKS.sub(" ", text))


def table_of(*columns: str, numbers: int) -> Table:
    """A table without lines, its last ``numbers`` columns to the right."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title_justify="left")
    for at, column in enumerate(columns):
        if at >= len(columns) - numbers:
            table.add_column(column, justify="right")
        else:
            table.add_column(column, overflow="fold")
    return table
