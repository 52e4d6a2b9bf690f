"""What is declared as packages is what is on disk, and what a wheel holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.shared.paths import ROOT

TREES = ("certs", "policies", "webhook")


@pytest.fixture(scope="module")
def declared() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    return found


def folders() -> set[Path]:
    """Every folder with a Python module in the three trees, from the root."""
    return {path.parent.relative_to(ROOT) for tree in TREES for path in (ROOT / tree).rglob("*.py")}


def dotted(folder: Path) -> str:
    return ".".join(("gpugate", *folder.parts))


def test_the_declared_packages_are_the_folders_on_disk(declared: dict[str, Any]) -> None:
    assert sorted(declared["packages"]) == sorted(dotted(folder) for folder in folders())


def test_every_folder_with_modules_says_that_it_is_a_package() -> None:
    assert [str(folder) for folder in sorted(folders()) if not (ROOT / folder / "__init__.py").is_file()] == []


def test_each_tree_is_mapped_into_the_namespace_and_nothing_else_is(declared: dict[str, Any]) -> None:
    assert declared["package-dir"] == {f"gpugate.{tree}": tree for tree in TREES}
    assert not (ROOT / "gpugate").exists()


def test_files_beside_the_modules_are_declared(declared: dict[str, Any]) -> None:
    others = {
        path.relative_to(ROOT / tree).as_posix(): f"gpugate.{tree}"
        for tree in TREES
        for path in (ROOT / tree).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    data = {file: package for package, files in declared.get("package-data", {}).items() for file in files}
    assert others == data


def test_a_wheel_holds_every_module_and_file_and_no_top_level_package_of_another_name(
    declared: dict[str, Any], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for tree in TREES:
        shutil.copytree(ROOT / tree, source / tree, ignore=shutil.ignore_patterns("__pycache__"))
    build = "import setuptools.build_meta as backend, sys; print(backend.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=source, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode and "license" in done.stderr:
        pytest.skip("the setuptools of this environment is older than the one that the build asks for")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    wanted = {f"gpugate/{path.relative_to(ROOT).as_posix()}" for tree in TREES for path in (ROOT / tree).rglob("*.py")}
    files = declared["package-data"]
    data = {f"{package.replace('.', '/')}/{name}" for package, names in files.items() for name in names}
    assert held == wanted | data
    assert data >= {"gpugate/policies/py.typed", "gpugate/webhook/audit/page/templates/page.html"}
