"""Twice the entries cost about twice the work, also where entries resemble each other or those of nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from tests.shared.builders import container, decided, every_rule, node, pod

if TYPE_CHECKING:
    from types import FrameType

Object = dict[str, Any]
_NODES = snapshot_from_objects(
    [
        node(
            f"gpu-{number}",
            labels={"nvidia.com/gpu.product": "H100", "zone": f"z{number}"},
            taints=[{"key": key, "effect": "NoSchedule"}],
        )
        for number, key in enumerate(("nvidia.com/gpu", "example.com/team"))
    ]
)
_RULES = every_rule()


def _mounted(count: int) -> Object:
    """Every container mounts one of the last volumes."""
    volumes = [{"name": f"v{at}", "emptyDir": {"medium": "Memory"}} for at in range(count)]
    containers = [container(f"c{at}", volumeMounts=[{"name": f"v{count - 1}", "mountPath": "/v"}]) for at in range(count)]
    return pod(*containers, volumes=volumes)


def _tolerating(count: int) -> Object:
    return pod(container(), tolerations=[{"key": "nvidia.com/gpu", "operator": "Equal", "value": f"v{at}"} for at in range(count)])


def _unknown_tolerations(count: int) -> Object:
    return pod(container(), tolerations=[{"key": f"example.com/t{at}", "operator": "Exists"} for at in range(count)])


def _preferring(count: int) -> Object:
    expressions = [{"key": f"nvidia.com/gpu.prod{chr(97 + at % 26)}{at}", "operator": "Exists"} for at in range(count)]
    terms = [{"weight": 1, "preference": {"matchExpressions": expressions}}]
    return pod(container(), affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}})


def _init_containers(count: int) -> Object:
    return pod(container(), initContainers=[container(f"i{at}", memory=None) for at in range(count)])


def _plain_containers(count: int) -> Object:
    return pod(container(), *({"name": f"c{at}", "image": f"example.com/i{at}"} for at in range(count)))


def _work(root: Object) -> int:
    """The bytecodes that a decision runs: the same in every run, on any machine."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        decided(root, _RULES, snapshot=_NODES)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("make", [_mounted, _tolerating, _unknown_tolerations, _preferring, _init_containers, _plain_containers])
def test_twice_the_entries_cost_about_twice_the_work(make: Callable[[int], Object]) -> None:
    decided(make(100), _RULES, snapshot=_NODES)
    least, first, second = (_work(make(count)) for count in (1, 100, 200))
    assert second - least < 2.3 * (first - least)
