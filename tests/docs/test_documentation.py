"""Run the commands of the documentation and check its links, file names, indexes and YAML."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gpugate.policies.framework.rule import Rule
from gpugate.policies.policy.models import parse_policy
from gpugate.policies.rules.registry import RULES
from tests.shared.paths import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "examples" / "README.md",
        *ROOT.glob("manifests/**/*.md"),
        *ROOT.glob("tests/**/*.md"),
    ]
)
#: Commands that install, or run this very test; what they do has tests of its own.
ELSEWHERE = (
    "make ",
    "python3 -m venv",
    ".venv/bin/python -m pip",
    ".venv/bin/python -m pytest",
    ".venv/bin/python -m examples.demo",
)


def console_commands(page: Path) -> list[str]:
    """Lines of ``console`` blocks that begin with a prompt."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


COMMANDS = list(dict.fromkeys(command for page in PAGES for command in console_commands(page)))


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.startswith(ELSEWHERE)])
def test_a_command_of_the_documentation_runs_and_says_something(command: str) -> None:
    here = command.replace(".venv/bin/", f"{shlex.quote(str(Path(sys.executable).parent))}/")
    done = subprocess.run(["/bin/sh", "-c", here], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr
    # A review of the examples refuses some of them, which is exit code 1; nothing else does.
    assert done.returncode == (1 if "examples/workloads --policy" in command else 0), done.stderr


def test_every_make_target_that_the_documentation_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:`|\$ )make ([a-z0-9-]+)", page.read_text(encoding="utf-8")))
        assert named <= targets, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_heading_leads_to_one(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


# The change log names files as they were.
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_file_of_the_repository_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(r"`((?:benchmarks|certs|docs|examples|manifests|policies|tests|webhook)/[\w./-]*)`", page.read_text("utf-8"))
    missing = [path for path in named if not (ROOT / path).exists() and not (ROOT / f"{path}.yaml").exists()]
    assert missing == []


#: Words of gpugate's former private dialect, for which Kubernetes has better ones (docs/glossary.md).
DIALECT = re.compile(
    r"\b(?:crews?|takers?|alike|pleas?|doors?|lens|shelf|held cures?|told|stands?|standing|anew|let be)\b"
    r"|\b(?:asks? for|asked for|judged?)\b"
)
#: Generated from the rules' docstrings, and the history.
NOT_HELD_TO_WORDS = {"CHANGELOG.md", "rules.md"}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in NOT_HELD_TO_WORDS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_page_uses_no_word_of_the_former_dialect(page: Path) -> None:
    """Code, quoted messages and link targets aside."""
    text = re.sub(r"^```.*?^```|^>.*?$|`[^`]*`|\]\([^)]*\)", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert DIALECT.findall(text) == []


def test_the_index_has_one_line_for_every_page() -> None:
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"README.md"}
    # Decision records have an index of their own.
    pages = {path for path in pages if not re.match(r"decisions/\d{4}-", path)}
    lines = re.findall(r"^- \[[^\]]+\]\(([^)]+\.md)\): .+\.$", (docs / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(lines) == sorted(pages)


def test_every_folder_that_the_documentation_applies_is_a_kustomization() -> None:
    named = {one for page in PAGES for one in re.findall(r"-k (manifests/[\w/-]+)", page.read_text(encoding="utf-8"))}
    assert "manifests/cluster/kueue" in named
    assert all((ROOT / folder / "kustomization.yaml").is_file() for folder in named)


def test_every_policy_on_the_page_about_them_is_one() -> None:
    text = (ROOT / "docs" / "guide" / "policies.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^( *)```yaml\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    policies = [YAML(typ="safe").load(textwrap.dedent(block)) for _, block in blocks if "kind: GPUPolicy" in block]
    assert [parse_policy(one).name for one in policies] == ["team-a", "default", "default", "enforced"]


def test_the_policy_in_the_readme_is_one() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    policies = [YAML(typ="safe").load(block) for block in blocks if "kind: GPUPolicy" in block]
    assert [parse_policy(one).name for one in policies] == ["default"]


def test_the_reference_opens_with_the_table_of_rules() -> None:
    text = (ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`([^`]+)`\]\(#([^)]+)\) \| (.+) \|$", text.partition("\n## ")[0], re.MULTILINE)
    assert rows == [(rule.id, rule.id, rule.title) for rule in RULES]


#: How the documentation calls the guides that the rules answer.
GUIDES = ("NUMA guide", "Basics guide", "Orchestration guide", "Field guide")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_says_which_practice_of_the_guides_it_serves(rule: Rule) -> None:
    """One line for each practice, with the guide's name and the place in it; or why the rule is there without one."""
    sections = re.split(r"^## ", rule.documentation, flags=re.MULTILINE)
    (practice,) = [one for one in sections if one.startswith("Practice\n")]
    lines = re.findall(r"^- (.+(?:\n  .+)*)$", practice, re.MULTILINE)
    assert lines
    for line in lines:
        assert line.startswith(("None of the guides ", *(f"{guide}, " for guide in GUIDES))), line
        assert line.endswith("."), line


def test_every_decision_record_is_in_their_list() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(re.findall(r"\]\((\d{4}-[^)]+)\)", (folder / "README.md").read_text(encoding="utf-8")))
    assert listed == {one.name for one in folder.glob("0*.md")}
