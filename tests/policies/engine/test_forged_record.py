"""A forged record of edits cannot make an UPDATE compare its lists for long."""

from __future__ import annotations

from typing import Any

import orjson

from gpugate.policies.workloads import recorded_edits
from gpugate.policies.workloads.recorded_edits import ANNOTATION, bounded, recorded
from tests.shared.builders import container, templated


def _deployment(operations: list[Any], tolerations: int) -> dict[str, Any]:
    root = templated("Deployment", container())
    root["metadata"]["annotations"] = {ANNOTATION: orjson.dumps(operations).decode()}
    root["spec"]["template"]["spec"]["tolerations"] = [{"key": f"k{at}"} for at in range(tolerations)]
    return root


def test_only_as_many_recorded_edits_count_as_can_be_compared_in_time() -> None:
    appended = [["add", "/spec/template/spec/tolerations/-", {"key": f"z{at}"}] for at in range(1000)]
    root = _deployment(appended, 2000)
    kept = bounded(recorded(root), root)
    assert 0 < len(kept) < 100


def test_a_recorded_list_counts_by_its_elements() -> None:
    whole = [["add", "/spec/template/spec/tolerations", [{"key": f"z{at}"} for at in range(1000)]]]
    root = _deployment(whole, 2000)
    assert bounded(recorded(root), root) == []
    nested = [["add", "/spec/template/spec", {"tolerations": whole[0][2]}]]
    assert bounded(nested, root) == []


def test_the_record_of_a_large_template_is_kept_whole() -> None:
    operations = [
        ["add", f"/spec/template/spec/containers/{at}/volumeMounts/-", {"name": "gpugate-shm", "mountPath": "/dev/shm"}]
        for at in range(256)
    ]
    root = _deployment(operations, 8)
    mounts = [{"name": f"v{at}", "mountPath": f"/{at}"} for at in range(30)]
    root["spec"]["template"]["spec"]["containers"] = [container(f"c{at}", volumeMounts=mounts) for at in range(256)]
    assert bounded(recorded(root), root, root) == operations == recorded_edits.recorded(root)
