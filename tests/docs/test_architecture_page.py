"""Hold the tree that docs/develop/architecture.md draws equal to the folders and rules on disk."""

from __future__ import annotations

import re

from gpugate.policies.rules.registry import RULES
from tests.shared.paths import ROOT

PAGE = ROOT / "docs" / "develop" / "architecture.md"
PACKAGES = ("policies", "webhook", "certs")


def drawn() -> dict[str, str]:
    """The folders of the drawn tree with the text beside each, in order."""
    block = re.search(r"```\n(policies/ .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    folders: dict[str, str] = {}
    parents: list[str] = []
    for line in block.group(1).splitlines():
        indent, name, text = re.fullmatch(r"((?:  )*)([a-z_]+)/ +(\S.*)", line).groups()  # type: ignore[union-attr]
        parents[len(indent) // 2 :] = [name]
        folders["/".join(parents)] = text
    return folders


def on_disk() -> set[str]:
    """All folders of the three packages, except the packages of single rules: those are drawn as names."""
    paths = [path for name in PACKAGES for path in [ROOT / name, *(ROOT / name).rglob("*")] if path.is_dir()]
    folders = {path.relative_to(ROOT).as_posix() for path in paths}
    return {path for path in folders if "__pycache__" not in path and not re.match(r"policies/rules/[a-z_]+/", path)}


def test_the_drawn_tree_is_the_tree_on_disk() -> None:
    assert sorted(drawn()) == sorted(on_disk())


def test_every_theme_names_its_rules() -> None:
    rules = "gpugate.policies.rules."
    themes: dict[str, list[str]] = {}
    for rule in RULES:
        module = next(name for name in (rule.check.__module__, rule.mutate.__module__) if name.startswith(rules))
        theme, name = module.removeprefix(rules).split(".")[:2]
        themes.setdefault(f"policies/rules/{theme}", []).append(name)
    named = {folder: text.partition(": ")[2].split(", ") for folder, text in drawn().items() if "policies/rules/" in folder}
    assert named == {folder: sorted(names) for folder, names in themes.items()}


def test_the_layers_on_the_page_are_those_of_the_import_linter() -> None:
    """Both lists of folders, from top to bottom."""
    contracts = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[tool.importlinter]")[2]
    page = PAGE.read_text(encoding="utf-8")
    for package in ("policies", "webhook"):
        contract = contracts.partition(f'containers = ["gpugate.{package}"]')[2]
        layers = re.findall(r"\w+", re.search(r"layers = \[(.*?)\]", contract, re.DOTALL).group(1))  # type: ignore[union-attr]
        line = re.search(rf"^- `{package}`, from top to bottom: (.*?)\.(?: |$)", page, re.DOTALL | re.MULTILINE)
        assert line is not None
        assert re.findall(r"`(\w+)`", line.group(1)) == layers
