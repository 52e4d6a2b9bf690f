"""`gpugate fix` of a folder with links, pipes and devices: nothing outside it is read or changed, and nothing waits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gpugate.webhook.files import atomic_write, within
from gpugate.webhook.files.atomic_write import FileReplacement, replace_all
from gpugate.webhook.files.documents import UnreadableInput, load
from gpugate.webhook.runtime.errors import InputError
from tests.webhook.cli.test_fix import JOB, fix, put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder to be fixed, with one manifest."""
    put(tmp_path, "given/pod.yaml", JOB)
    return tmp_path / "given"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A manifest beside that folder."""
    return put(tmp_path, "outside/secret.yaml", JOB)


def test_a_link_to_a_file_outside_is_neither_read_nor_written_and_is_said_in_one_line(folder: Path, outside: Path) -> None:
    (folder / "link.yaml").symlink_to(outside)
    result = fix(folder, "--write", "--profile", "recommended")
    assert result.exit_code == 0
    assert result.stdout == f"fixed {folder}/pod.yaml\n"
    assert outside.read_text() == JOB
    assert (folder / "link.yaml").is_symlink()
    assert f"{folder}: 1 link that leads out of it is left alone: link.yaml\n" in result.stderr
    assert result.stderr.count("\n") == 2
    assert "1 file fixed of 1 file" in result.stderr


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_nothing_of_such_a_file_is_shown(folder: Path, outside: Path, option: str) -> None:
    outside.write_text(JOB.replace("name: train", "name: confidential"))
    (folder / "link.yaml").symlink_to(outside)
    result = fix(folder, option)
    assert "confidential" not in result.output
    assert "link.yaml" not in result.stdout


def test_a_linked_folder_outside_is_left_alone_and_said(folder: Path, outside: Path) -> None:
    (folder / "vendor").symlink_to(outside.parent, target_is_directory=True)
    result = fix(folder, "--write")
    assert outside.read_text() == JOB
    assert f"{folder}: 1 link that leads out of it is left alone: vendor\n" in result.stderr


def test_many_links_are_one_line(folder: Path, outside: Path) -> None:
    for number in range(5):
        (folder / f"{number}.yaml").symlink_to(outside)
    result = fix(folder, "--write")
    assert f"{folder}: 5 links that lead out of it are left alone: 0.yaml, 1.yaml, 2.yaml and 2 more\n" in result.stderr


def test_links_that_are_no_manifests_or_hidden_are_not_said(folder: Path, outside: Path) -> None:
    (folder / "latest").symlink_to(outside)
    put(folder, ".git/config", "")
    (folder / ".git" / "link.yaml").symlink_to(outside)
    assert "left alone" not in fix(folder).stderr


def test_a_link_that_stays_inside_is_written_through_once(folder: Path) -> None:
    (folder / "a-link.yaml").symlink_to("pod.yaml")
    (folder / "b-link.yaml").symlink_to(folder / "a-link.yaml")
    result = fix(folder, "--write")
    assert result.stdout.count("fixed ") == 1
    assert "left alone" not in result.stderr
    assert (folder / "a-link.yaml").is_symlink()
    assert not (folder / "pod.yaml").is_symlink()
    assert (folder / "pod.yaml").read_text() != JOB
    assert fix(folder, "--check").exit_code == 0


def test_a_link_that_goes_out_and_comes_back_stays_inside(folder: Path, outside: Path) -> None:
    (outside.parent / "back.yaml").symlink_to(folder / "pod.yaml")
    (folder / "link.yaml").symlink_to(outside.parent / "back.yaml")
    assert "left alone" not in fix(folder, "--write").stderr
    assert (folder / "pod.yaml").read_text() != JOB


def test_the_folder_itself_may_be_a_link(folder: Path, outside: Path, tmp_path: Path) -> None:
    (folder / "link.yaml").symlink_to(outside)
    given = tmp_path / "current"
    given.symlink_to(folder, target_is_directory=True)
    result = fix(given, "--write")
    assert result.stdout == f"fixed {given}/pod.yaml\n"
    assert (folder / "pod.yaml").read_text() != JOB
    assert outside.read_text() == JOB


def test_a_link_that_the_user_names_is_written_through(folder: Path, outside: Path) -> None:
    link = folder / "link.yaml"
    link.symlink_to(outside)
    result = fix(folder, link, "--write")
    assert f"fixed {link}\n" in result.stdout
    assert link.is_symlink()
    assert outside.read_text() != JOB


def test_another_name_of_a_file_outside_keeps_its_content(folder: Path, outside: Path) -> None:
    (folder / "hard.yaml").hardlink_to(outside)
    fix(folder, "--write")
    assert (folder / "hard.yaml").read_text() != JOB
    assert outside.read_text() == JOB


def test_a_folder_with_a_name_that_begins_alike_is_outside(folder: Path, tmp_path: Path) -> None:
    other = put(tmp_path, "given-too/pod.yaml", JOB)
    (folder / "link.yaml").symlink_to(other)
    fix(folder, "--write")
    assert other.read_text() == JOB


def test_what_a_kustomization_names_outside_the_folder_is_left_alone(tmp_path: Path) -> None:
    base = put(tmp_path, "base/pod.yaml", JOB)
    put(tmp_path, "base/kustomization.yaml", "resources: [pod.yaml]\n")
    put(tmp_path, "overlay/kustomization.yaml", "resources: [../base]\npatches:\n  - path: ../shared/patch.yaml\n")
    patch = put(tmp_path, "shared/patch.yaml", JOB)
    own = put(tmp_path, "overlay/own.yaml", JOB)
    result = fix(tmp_path / "overlay", "--write")
    assert result.stdout == f"fixed {own}\n"
    assert base.read_text() == patch.read_text() == JOB


def test_a_pipe_and_a_device_in_a_folder_keep_nobody_waiting(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    (folder / "zero.yaml").symlink_to("/dev/zero")
    result = fix(folder, "--write")
    assert result.stdout == f"fixed {folder}/pod.yaml\n"


def test_a_pipe_that_the_user_names_cannot_be_changed_in_place(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    result = fix(folder / "pipe.yaml", "--write")
    assert result.exit_code == 2
    assert "is no regular file, so it cannot be changed in place" in result.stderr


def swap(path: Path, target: Path) -> None:
    """Put a link in the place of ``path``, as another program may between two looks at it."""
    path.rename(path.with_name("was"))
    path.symlink_to(target)


def test_a_file_that_becomes_a_link_is_not_read(folder: Path, outside: Path) -> None:
    swap(folder / "pod.yaml", outside)
    read = load(str(folder / "pod.yaml"), folder)
    assert isinstance(read, UnreadableInput)
    assert "leads out of" in read.problem


def test_a_file_that_becomes_a_pipe_is_not_waited_for(folder: Path) -> None:
    (folder / "pod.yaml").unlink()
    os.mkfifo(folder / "pod.yaml")
    read = load(str(folder / "pod.yaml"), folder)
    assert isinstance(read, UnreadableInput)
    assert "is no regular file" in read.problem


def test_a_folder_that_becomes_a_link_between_the_look_and_the_write_is_not_followed(
    folder: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = put(folder, "inner/secret.yaml", JOB)
    real = within.target_in

    def look_and_swap(file: str, root: Path | None) -> Path:
        found = real(file, root)
        swap(folder / "inner", outside.parent)
        return found

    monkeypatch.setattr(atomic_write, "target_in", look_and_swap)
    with pytest.raises(InputError, match=r"secret\.yaml: cannot be written: .*; no file was changed"):
        replace_all([FileReplacement(str(inner), JOB.encode(), b"new", folder)])
    assert outside.read_text() == JOB
    assert sorted(one.name for one in outside.parent.iterdir()) == ["secret.yaml"]


def test_a_file_that_becomes_a_link_before_its_replacement_is_replaced_and_not_followed(
    folder: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "pod.yaml"
    real: Any = os.replace

    def swap_and_replace(*names: Any, **options: Any) -> None:
        swap(file, outside)
        real(*names, **options)

    monkeypatch.setattr(atomic_write.os, "replace", swap_and_replace)
    replace_all([FileReplacement(str(file), JOB.encode(), b"new", folder)])
    assert outside.read_text() == JOB
    assert file.read_bytes() == b"new"


def test_a_link_that_leads_out_by_now_is_not_written(folder: Path, outside: Path) -> None:
    swap(folder / "pod.yaml", outside)
    with pytest.raises(InputError, match=r"pod\.yaml: leads out of .*; no file was changed"):
        replace_all([FileReplacement(str(folder / "pod.yaml"), JOB.encode(), b"new", folder)])
    assert outside.read_text() == JOB
