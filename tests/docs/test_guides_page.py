"""The page about the guides: no heading, manifest or name of theirs is missing, and all that it points to is there."""

from __future__ import annotations

import re

import pytest

from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.registry import RULES
from tests.shared import guides
from tests.shared.paths import ROOT

PAGE = (ROOT / "docs" / "guide" / "guides.md").read_text(encoding="utf-8")
#: Names in the guides that are no systems or fields of a manifest, and what is said of them in other words.
NO_NAMES = frozenset({"DataLoader", "DataLoaders", "DevOps", "DoNotSchedule", "NodeAffinity", "PyTorch", "PyTorchJobs"})
NO_NAMES |= {"RollingUpdate", "ScheduleAnyway"}
#: Cells of a table whose borders were lost on the way into a text.
GLUED = re.compile(r"CPU|Instance|NeuronLink")
#: A practice of a rule: the guide's name, and what stands before the colon, quoted headings among it.
PLACES = re.compile(r'- (\w+) guide, ((?:"[^"]*"|[^":])*):')
needs_guides = pytest.mark.skipif(not guides.are_there(), reason=guides.MISSING)


def section(guide: str) -> str:
    title = f"## {guide[0].upper()}{guide[1:]} guide\n"
    assert title in PAGE
    return PAGE.split(title)[1].partition("\n## ")[0]


def cells(guide: str) -> list[list[str]]:
    rows = [line for line in section(guide).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_table_has_as_many_cells_in_each_row_as_in_its_head() -> None:
    for guide in guides.NAMES:
        widths = [len(row) for row in cells(guide)]
        assert set(widths) == {4, 3}
        assert widths == sorted(widths, reverse=True)


@needs_guides
@pytest.mark.parametrize("guide", guides.NAMES)
def test_every_heading_of_a_guide_has_its_line_in_the_order_of_the_guide(guide: str) -> None:
    listed = [row[0] for row in cells(guide) if len(row) == 4 and row[0] not in {"", "heading", "---"}]
    assert listed == list(guides.headings(guide)) if guide != "orchestration" else set(listed) == set(guides.headings(guide))


@needs_guides
def test_every_manifest_of_the_guides_is_named_and_every_block_that_is_named_is_there() -> None:
    named = set(re.findall(rf"`((?:{'|'.join(guides.NAMES)})-\d+)`", PAGE))
    assert named <= {block.name for block in guides.blocks()}
    assert {block.name for block in guides.blocks() if block.is_yaml} <= named


@needs_guides
@pytest.mark.parametrize("guide", guides.NAMES)
def test_every_name_that_a_guide_uses_is_spoken_of(guide: str) -> None:
    text = guides.text_of(guide)
    found = set(re.findall(r"\b(?:DCGM|NCCL|CUDA)_[A-Z_]+\b|\bnvidia_smi_\w+", text))
    found |= set(re.findall(r"(?<![/\w.-])(?:[\w-]+\.)+(?:com|io|dev)/[\w.-]*\w(?=[\s:,=\"\]]|$)", text)) - set(
        re.findall(r"apiVersion: (\S+)", text)
    )
    capitals = set(re.findall(r"\b[A-Z][a-z]+[A-Z]\w*|\b[A-Z]{2,}[a-z]+[A-Z]\w*|\bML[a-z]+\b", text)) - NO_NAMES
    found |= {name for name in capitals if not GLUED.match(name)}
    said = section(guide)
    # A label may be named by what follows its prefix.
    missing = [name for name in sorted(found) if name not in said and f"`.{name.rpartition('.')[2]}`" not in said]
    assert missing == []


def test_every_rule_is_on_the_page_and_every_one_on_the_page_is_there() -> None:
    named = set(re.findall(r"\*\*`([a-z-]+)`\*\*", PAGE))
    assert named == {rule.id for rule in RULES}


def test_every_file_that_the_page_names_is_there() -> None:
    paths = re.findall(r"`((?:tests|examples|manifests|docs)/[\w./-]+|README\.md)(?:[`,;]| )", PAGE)
    assert len(paths) > 60
    assert {path for path in paths if not (ROOT / path).exists() and not (ROOT / f"{path}.yaml").exists()} == set()


@needs_guides
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_practice_that_a_rule_serves_stands_under_a_heading_of_that_guide(rule: Rule) -> None:
    practice = rule.documentation.partition("## Practice\n")[2].partition("\n## ")[0]
    for guide, places in PLACES.findall(" ".join(practice.split())):
        headings = guides.headings(guide if guide in guides.NAMES else guide.lower())
        known = {*headings, *(re.sub(r"^(?:Step \d · |\d\. )", "", one) for one in headings)}
        assert set(re.findall(r'"([^"]+)"', places)) <= known


@needs_guides
@pytest.mark.parametrize("guide", guides.NAMES)
def test_no_sentence_of_a_guide_is_on_the_page(guide: str) -> None:
    def runs(text: str) -> set[tuple[str, ...]]:
        words = re.findall(r"[\w./-]+", text.lower())
        return {tuple(words[at : at + 8]) for at in range(len(words) - 7)}

    headings = "\n".join(guides.headings(guide))
    assert runs(section(guide)) & runs(guides.text_of(guide)) - runs(headings) == set()
