"""Every manifest of the four guides, as it stands there, is judged as its line of this table says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from gpugate.webhook.cli.main import app
from tests.shared import guides

pytestmark = pytest.mark.skipif(not guides.are_there(), reason=guides.MISSING)


@dataclass(frozen=True)
class Row:
    """What review must say of a block.

    Attributes:
        first: its first line that is no comment, by which it is known to be the one that is meant.
        outcomes: the outcome of each document in it.
        says: for each finding, its rule, its severity, its reason and words of it, divided by ``|``.
        changes: words of the patch, for what must be put in.
        note: words of the note.
        exits: the exit code.
    """

    first: str
    outcomes: tuple[str, ...] = ("clean",)
    says: tuple[tuple[str, str, str, str], ...] = ()
    changes: tuple[str, ...] = ()
    note: str = ""
    exits: int = field(default=0)


def row(first: str, *outcomes: str, **more: Any) -> Row:
    return Row(first, outcomes or ("clean",), exits=2 if "invalid" in outcomes else int("refused" in outcomes), **more)


CHANGED = ("tolerations", "/dev/shm")
UNLIMITED = ("host-memory", "warn", "ShareUnclear", "has no memory limit")
PART = "is a part of a manifest: "
NO_OBJECT = "is not a Kubernetes object"
TABLE: dict[tuple[str, int], Row] = {
    ("NUMA", 3): row("resources:", note=PART, says=(UNLIMITED,)),
    ("NUMA", 6): row(
        "resources:",
        "refused",
        note=PART,
        says=(("accelerator-names", "deny", "UnservedName", "Write nvidia.com/mig-1g.5gb instead of nvidia.com/gpu.mig-1g.5gb"),),
    ),
    ("NUMA", 8): row(
        "apiVersion: v1",
        "changed",
        changes=CHANGED,
        says=(
            UNLIMITED,
            ("environment", "warn", "UnreadVariable", "Write NCCL_TOPO_FILE instead of NCCL_TOPOLOGY_FILE"),
            ("node-terms", "warn", "KeyOnNoNode", "topology.kubernetes.io/NUMANode|Remove the constraint"),
            ("node-terms", "warn", "SelectsNoPods", "has no labelSelector"),
        ),
    ),
    ("NUMA", 9): row("version: v1", note="is a configuration of NVIDIA's device plugin"),
    ("NUMA", 11): row(
        "nodeSelector:",
        "refused",
        note=PART,
        says=(("node-terms", "deny", "UnknownOperator", 'Gte 4|Write operator Gt with the value "3"'),),
    ),
    ("NUMA", 12): row("apiVersion: batch.volcano.sh/v1alpha1", "changed", changes=CHANGED, says=(UNLIMITED,)),
    ("NUMA", 13): row("resources:", note=PART),
    ("basics", 5): row(
        "apiVersion: apps/v1",
        says=(("setup", "warn", "UnsetLabel", 'accelerator: nvidia-gpu|Write nvidia.com/gpu.present: "true"'),),
    ),
    ("basics", 7): row("apiVersion: v1", "changed", changes=CHANGED, says=(UNLIMITED,)),
    ("basics", 8): row("apiVersion: v1", "changed", changes=CHANGED, says=(UNLIMITED,)),
    ("basics", 9): row("apiVersion: batch/v1", "changed", changes=("tolerations",)),
    ("basics", 10): row("apiVersion: apps/v1", "changed", "skipped", changes=CHANGED),
    ("basics", 11): row("apiVersion: v1"),
    ("basics", 13): row("apiVersion: v1", "changed", changes=CHANGED, says=(UNLIMITED,)),
    ("basics", 15): row(
        "apiVersion: v1",
        "refused",
        says=(
            ("setup", "deny", "UnknownField", "sharing has no field mig|MIG devices keep the names"),
            ("setup", "deny", "NotServed", "nvidia.com/mig-1g.5gb|Write migStrategy: mixed"),
        ),
    ),
    ("basics", 16): row("apiVersion: v1", "changed", changes=CHANGED, says=(UNLIMITED,)),
    ("basics", 17): row("apiVersion: v1", "changed", changes=CHANGED, says=(UNLIMITED,)),
    ("basics", 18): row("apiVersion: v1", "changed", changes=CHANGED, says=(UNLIMITED,)),
    ("basics", 20): row(
        "apiVersion: apps/v1",
        "clean",
        "skipped",
        says=(
            ("node-terms", "warn", "UnknownLabel", 'nvidia.com/gpu=true|Write nvidia.com/gpu.present: "true"'),
            ("setup", "warn", "KeptOff", "does not tolerate the taint nvidia.com/gpu"),
            ("setup", "warn", "NotByPod", "DCGM_EXPORTER_KUBERNETES"),
        ),
    ),
    ("basics", 21): row("apiVersion: monitoring.coreos.com/v1"),
    ("basics", 22): row(
        "apiVersion: monitoring.coreos.com/v1",
        says=(
            ("setup", "warn", "NotAShare", "above 0.9 it fires from 47% used|(DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)"),
            ("setup", "warn", "GaugeCounted", "the number of the last Xid|DCGM_FI_DEV_XID_ERRORS != 0"),
        ),
    ),
    ("basics", 23): row("resources:", note=PART),
    ("basics", 24): row("volumes:", note=PART + "volumes in the spec of a pod, or of a pod template; volumeMounts in a container"),
    ("basics", 26): row("tolerations:", note=PART),
    ("orchestration", 1): row("resources:", note=PART, says=(UNLIMITED,)),
    ("orchestration", 5): row(
        "apiVersion: kubeflow.org/v1", says=(("setup", "warn", "AsksForNothing", "no container sets resources"),)
    ),
    ("orchestration", 10): row("affinity:", note=PART),
    ("orchestration", 11): row(
        "affinity:",
        "invalid",
        says=(("input", "deny", "Unreadable", "line 5, column 3|not indented like the lines above"),),
        note="line 5",
    ),
    ("orchestration", 12): row(
        "nodeSelector:",
        note=PART,
        says=(("spot", "warn", "NoCheckpoint", "cloud.google.com/gke-preemptible|gpugate.io/checkpoint"),),
    ),
    ("orchestration", 14): row("backoffLimit: 3", note=PART + "backoffLimit in the spec of a Job"),
    ("orchestration", 15): row("apiVersion: scheduling.k8s.io/v1", "skipped"),
    ("orchestration", 16): row("apiVersion: ml.example.com/v1", "skipped"),
    ("orchestration", 17): row("apiVersion: v1"),
    ("orchestration", 18): row(
        "apiVersion: networking.k8s.io/v1", says=(("setup", "warn", "WorkersCutOff", "gpu: enabled|collectives hang"),)
    ),
    ("orchestration", 19): row(
        "apiVersion: v1", "refused", says=(("setup", "deny", "QuotaNotCounted", 'Write requests.nvidia.com/gpu: "16"'),)
    ),
    ("orchestration", 20): row("apiVersion: rbac.authorization.k8s.io/v1", "skipped"),
    ("orchestration", 23): row("metadata:", note=PART + "metadata in an object"),
    ("field", 2): row("resources:", "skipped", note=NO_OBJECT),
    ("field", 3): row(
        "apiVersion: kueue.x-k8s.io/v1beta1",
        "refused",
        says=(
            ("setup", "deny", "NoNamespaces", "selects no namespace"),
            ("setup", "deny", "NoQuota", "no quota"),
        ),
    ),
    ("field", 4): row("affinity:", "skipped", note=NO_OBJECT),
}
#: Blocks that hold no manifest: commands, programs, what they print, a drawing.
NO_MANIFEST: dict[str, frozenset[int]] = {
    "NUMA": frozenset({1, 2, 4, 5, 7, 10, 14, 15}),
    "basics": frozenset({1, 2, 3, 4, 6, 12, 14, 19, 25}),
    "orchestration": frozenset({2, 3, 4, 6, 7, 8, 9, 13, 21, 22, 24, 25, 26}),
    "field": frozenset({1}),
}
MANIFESTS = [one for one in guides.blocks() if one.is_yaml]
OTHERS = [one for one in guides.blocks() if not one.is_yaml]


def judge(text: str) -> tuple[list[dict[str, Any]], int]:
    """What `gpugate review -` says of a text, and how it ends."""
    result = CliRunner().invoke(app, ["review", "-", "-o", "json"], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return orjson.loads(result.stdout), result.exit_code


def test_every_block_of_the_guides_is_in_the_table_and_the_table_has_no_other() -> None:
    assert {(one.guide, one.number): one.first for one in MANIFESTS} == {place: one.first for place, one in TABLE.items()}
    assert {(one.guide, one.number) for one in OTHERS} == {
        (guide, number) for guide, numbers in NO_MANIFEST.items() for number in numbers
    }


@pytest.mark.parametrize("guide", guides.NAMES)
def test_no_manifest_of_a_guide_is_outside_of_its_blocks(guide: str) -> None:
    held = "".join(one.text for one in MANIFESTS if one.guide == guide)
    for word in ("apiVersion:", "kind:", "nvidia.com/gpu:", "tolerations:", "affinity:"):
        in_commands = sum(one.text.count(word) for one in OTHERS if one.guide == guide)
        assert guides.text_of(guide).count(word) == held.count(word) + in_commands, word


@pytest.mark.parametrize("block", MANIFESTS, ids=lambda block: block.name)
def test_a_manifest_of_the_guides_is_judged_as_the_table_says(block: guides.Block) -> None:
    wanted = TABLE[block.guide, block.number]
    entries, exits = judge(block.text)
    assert tuple(one["outcome"] for one in entries) == wanted.outcomes, entries
    assert exits == wanted.exits
    assert wanted.note in entries[0].get("note", "")
    patch = orjson.dumps([one["patch"] for one in entries]).decode()
    assert [word for word in wanted.changes if word not in patch] == []
    _assert_findings(wanted, [found for one in entries for found in one["findings"]])


def _assert_findings(wanted: Row, found: list[dict[str, str]]) -> None:
    left = list(found)
    for rule, severity, reason, words in wanted.says:
        fitting = [
            one
            for one in left
            if one["rule"] == rule
            and one["severity"] == severity
            and one["reason"] == reason
            and all(word in f"{one['message']} {one['remedy']}" for word in words.split("|"))
        ]
        assert fitting, (rule, words, found)
        left.remove(fitting[0])
    assert left == []


@pytest.mark.parametrize("block", OTHERS, ids=lambda block: block.name)
def test_what_is_no_manifest_is_told_so_and_never_changed(block: guides.Block) -> None:
    entries, exits = judge(block.text)
    assert entries or exits == 2
    assert all(one["outcome"] in {"skipped", "invalid"} and one["note"] for one in entries)
