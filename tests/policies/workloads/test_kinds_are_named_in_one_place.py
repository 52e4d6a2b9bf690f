"""Only ``policies/workloads/kinds`` names a workload kind. Every other module asks the kind's entry for a capability."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import get_args

import pytest

from gpugate.policies.workloads import kinds
from gpugate.policies.workloads.kinds import KINDS, QueuedKind, WorkloadKind
from tests.shared.paths import ROOT

PACKAGE = ROOT / "policies/workloads/kinds"
#: What a module may name all the same, and why.
EXEMPT = {
    "policies/cluster/kinds.py": {"Pod"},  # the table of what is watched, in which pods stand beside nodes and namespaces
    "policies/gangs/status.py": {"Pod"},  # the kind that the state of a group of plain pods shows
    "policies/lint/api_versions.py": {  # the table of API versions that are gone, most of other kinds than workloads
        *("CronJob", "JobSet", "LeaderWorkerSet", "MPIJob"),
        *("apps", "batch", "batch.volcano.sh", "jobset.x-k8s.io", "kubeflow.org", "leaderworkerset.x-k8s.io", "ray.io"),
    },
    "policies/lint/snippets.py": {"Pod"},  # the pod that a part of a manifest is put into
    "policies/queueing/limit_range.py": {"Pod"},  # the type of an item of a LimitRange
    "policies/rules/queueing/priority/classes.py": {"kubeflow.org"},  # the group of Notebook, which is no workload here
    "policies/scheduling/pod_resources.py": {"Pod"},  # the type of an item of a LimitRange
    "policies/workloads/pod_set.py": {"POD"},  # the kind of pods that are not found in another object
    "webhook/cache/ledger.py": {"Pod"},  # the pod that the watch shows under a name
    "webhook/review/review.py": {"POD"},  # the kind of a part of a manifest
}
CONSTANTS = {name for name, value in vars(kinds).items() if value in KINDS}
NAMES = {kind.kind for kind in KINDS}
GROUPS = {kind.group for kind in KINDS if kind.group}


def named_by(text: str) -> Iterator[str]:
    """What ``text`` names: a kind, its group, or either within ``group/version`` or ``group/kind``."""
    if text in NAMES | GROUPS:
        yield text
    head, slash, tail = text.partition("/")
    if slash and head in GROUPS and (tail in NAMES or (tail[:1] == "v" and tail[1:2].isdigit())):
        yield head


def named_in(tree: ast.Module) -> Iterator[str]:
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.name in CONSTANTS)
        elif isinstance(node, ast.Attribute) and node.attr in CONSTANTS:
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield from named_by(node.value)


@cache
def named_elsewhere() -> dict[str, set[str]]:
    """What each module outside of the package names, by its path."""
    return {
        str(path.relative_to(ROOT)): names
        for folder in ("policies", "webhook", "certs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if PACKAGE not in path.parents and (names := set(named_in(ast.parse(path.read_text()))))
    }


def test_every_kind_has_a_constant() -> None:
    assert len(CONSTANTS) == len(KINDS)


def test_no_other_module_names_a_kind() -> None:
    assert {path: sorted(more) for path, names in named_elsewhere().items() if (more := names - EXEMPT.get(path, set()))} == {}


def test_every_exemption_is_needed() -> None:
    assert {path: sorted(gone) for path, names in EXEMPT.items() if (gone := names - named_elsewhere().get(path, set()))} == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from gpugate.policies.workloads.kinds import JOB_SET", {"JOB_SET"}),
        ("from gpugate.policies.workloads.kinds.core import KINDS, JOB", {"JOB"}),
        ("from gpugate.policies.workloads import kinds\nkinds.RAY_JOB", {"RAY_JOB"}),
        ("kind.kind == 'PyTorchJob'", {"PyTorchJob"}),
        ("kind.group == 'kubeflow.org'", {"kubeflow.org"}),
        ("_OF = {('apps', 'DaemonSet'): 1}", {"apps", "DaemonSet"}),
        ("version == 'ray.io/v1'", {"ray.io"}),
        ("'ray.io/cluster'", set()),
        ('"""JobSet"""', set()),
        ("def f():\n    'Job'\n", set()),
    ],
)
def test_what_counts_as_a_name(source: str, names: set[str]) -> None:
    assert set(named_in(ast.parse(source))) == names


def test_policies_name_the_kinds_that_kueue_can_manage() -> None:
    assert sorted(get_args(QueuedKind)) == sorted(kind.kind for kind in KINDS if kind.queued and not kind.queued_as)


def test_every_field_of_a_kind_is_documented_and_stated_by_one() -> None:
    document = WorkloadKind.__doc__ or ""
    for field in fields(WorkloadKind):
        assert f"\n        {field.name}: " in document, field.name
        assert any(getattr(kind, field.name) != field.default for kind in KINDS), field.name


def test_capabilities_go_together() -> None:
    for kind in KINDS:
        name = f"{kind.group}/{kind.kind}"
        assert bool(kind.pod_sets) != (kind.wraps is not None), name
        assert kind.controller == "" or kind.managed_by is not None, name
        assert kind.queued or not kind.queue, name
        assert kind.batch or (kind.retry, kind.deadline, kind.ttl, kind.held_after_end) == (None, None, None, None), name
        assert not (kind.batch and kind.serving), name
