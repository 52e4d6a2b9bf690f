"""The table of the drills: each test adds its rows, and `--write-page` writes them into docs/operate/reliability.md."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.reliability import Row, write

_ROWS: list[Row] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-page", action="store_true", help="write the table of docs/operate/reliability.md if all drills pass")
    parser.addoption("--bodies", type=int, default=56_000, help="number of mutated bodies")


@pytest.fixture
def row() -> Callable[[str, str, str, str], None]:
    """Return what adds a row to the table: what was done, to what end, the figure before and after."""
    return lambda done, end, before, after: _ROWS.append(Row(done, end, before, after))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for found in _ROWS:
        terminalreporter.write_line(f"{found.done}: {found.end}\n    before: {found.before}\n    now:    {found.after}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.getoption("--write-page") and exitstatus == pytest.ExitCode.OK:
        write("drills", _ROWS)
