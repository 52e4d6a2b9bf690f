"""The threat model names every entry of SIG Security, and tests that there are."""

from __future__ import annotations

import re

import pytest

from tests.shared.paths import ROOT

PAGE = ROOT / "docs" / "operate" / "threat-model.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)
ROWS = [line for line in TEXT.partition("## Accepted")[0].splitlines() if line.startswith("| ") and not line.startswith("| what ")]


def test_every_entry_of_sig_security_is_there_once() -> None:
    assert re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE) == [str(number) for number in range(1, 19)]


@pytest.mark.parametrize(("module", "name"), NAMED, ids=[f"{module}::{name}" for module, name in NAMED])
def test_every_test_that_it_names_exists(module: str, name: str) -> None:
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / module).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_entry_that_is_not_accepted_names_a_test() -> None:
    assert len(NAMED) > 60
    for row in ROWS:
        if not row.startswith(("| id ", "| fault ")):
            assert "::" in row or "[Accepted](#accepted-and-why) | none |" in row, row


def test_no_test_is_named_that_is_not_read_as_one() -> None:
    assert TEXT.count("::") == len(NAMED) + TEXT.count("`folder/module.py::name`")
