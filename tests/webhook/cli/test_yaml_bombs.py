"""Manifests that expand without end, or are nested without end, cost little and get one error with the file and the way out."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

_HEAD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
_LEVELS = range(1, 12)
BOMBS = {
    "billion-laughs.yaml": "".join(
        [_HEAD, f"a0: &a0 [{'x, ' * 9}x]\n", *(f"a{at}: &a{at} [{f'*a{at - 1}, ' * 9}*a{at - 1}]\n" for at in _LEVELS)]
    ),
    "merged.yaml": "".join(
        [_HEAD, "a0: &a0 {k: v}\n", *(f"a{at}: &a{at} {{k{at}: *a{at - 1}, j{at}: *a{at - 1}}}\n" for at in range(1, 40))]
    ),
    "brackets.yaml": f"{_HEAD}spec: {'[' * 20_000}{']' * 20_000}\n",
    "dashes.yaml": f"{_HEAD}spec:\n  {'- ' * 20_000}x\n",
    "indented.yaml": "".join([_HEAD, "spec:\n", *(f"{' ' * at}a:\n" for at in range(1, 2000))]),
    "brackets.json": f'{{"apiVersion": "v1", "kind": "Pod", "spec": {"[" * 200_000}{"]" * 200_000}}}',
}
#: Bytes and seconds of CPU that a bomb may cost beyond a plain manifest; slower machines get more time.
_MEMORY = 100 * 1024 * 1024
_SECONDS = 1.0


def _cost(command: str, file: Path) -> tuple[str, float, int]:
    """Run gpugate and return its output, its seconds of CPU and the most memory that it had."""
    program = [str(Path(sys.executable).parent / "gpugate"), command, str(file)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        resource.prlimit(running.pid, resource.RLIMIT_CPU, (120, 120))
        assert running.stdout is not None
        output = running.stdout.read()
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    return output, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


@pytest.mark.parametrize("command", ["review", "fix", "audit"])
def test_a_bomb_costs_little_and_is_one_error(command: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain.yaml"
    plain.write_text(f"{_HEAD}spec: {{containers: [{{name: a}}]}}\n", encoding="utf-8")
    _, usual, memory = _cost(command, plain)
    bombs = tmp_path / "bombs"
    bombs.mkdir()
    for name, text in BOMBS.items():
        (bombs / name).write_text(text, encoding="utf-8")
    output, seconds, most = _cost(command, bombs)
    # All bombs together may cost what one may; what gpugate takes to start says how slow the machine is.
    assert seconds - usual < max(_SECONDS, usual)
    assert most - memory < _MEMORY
    if command == "audit":
        # It needs every object, so it ends at the first file that it cannot read.
        assert output.count("billion-laughs.yaml: its aliases expand to more than 100000 values: write these values out") == 1
        return
    for name in BOMBS:
        assert output.count(name) == 1, output
    assert output.count("write these values out, or use fewer aliases") == 2
    assert output.count("is nested deeper than 256 levels") == 4
