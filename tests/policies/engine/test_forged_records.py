"""A record that gpugate did not write: no UPDATE waits for it, nobody's field goes, and a long honest one is still made again."""

from __future__ import annotations

import time

import orjson
import pytest

from gpugate.policies.kube.fields import clone, pointer
from gpugate.policies.patch import PatchBuilder
from gpugate.policies.workloads.recorded_edits import ANNOTATION, LARGEST, Effort, reapply_edit, recorded, still_holds
from tests.shared.builders import bind, container, decided, templated
from tests.shared.forged_records import RECORDS, deployment

_BOUND = bind(mode="Enforce")
#: CPU in seconds that is far above what a review costs, and far below what these cost without a bound: 9 to 30.
_FAR = 2.0


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())
@pytest.mark.parametrize("left", [20_000, 10, None])
def test_a_forged_record_costs_no_more_than_a_review(record: str, left: int | None) -> None:
    old = deployment(20_000, record)
    new = deployment(left or 0, record)
    if left is None:
        new["spec"]["template"]["spec"]["volumes"] = []
    new["spec"]["template"]["spec"]["containers"][0]["args"] = ["changed"]
    volumes = clone(new["spec"]["template"]["spec"]["volumes"])
    started = time.process_time()
    decided(new, _BOUND, old=old)
    assert time.process_time() - started < _FAR
    assert new["spec"]["template"]["spec"]["volumes"][: len(volumes)] == volumes


def test_a_forged_record_removes_and_replaces_nothing_that_the_user_sends() -> None:
    record = orjson.dumps(
        [
            ["remove", "/spec/template/spec/tolerations"],
            ["remove", "/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu"],
            ["replace", "/spec/template/spec/volumes", "mine", []],
            ["replace", "/spec/template/spec/containers/0/image", "evil.example/x", "registry.example/a:1"],
            ["add", "/spec/template/spec/containers/0/securityContext", {"privileged": True}],
            ["add", "/spec/template/spec/hostNetwork", True],
        ]
    ).decode()
    new = deployment(3, record)
    decided(new, _BOUND, old=clone(new))
    wanted = deployment(3, record)
    decided(wanted, _BOUND, old=deployment(3, "[]"))
    assert new["spec"] == wanted["spec"]


def test_the_longest_honest_record_is_made_again_in_full() -> None:
    git = templated("Job", *(container(f"c{at}", memory="8Gi") for at in range(120)))
    live = clone(git)
    decided(live, _BOUND)
    assert len(live["metadata"]["annotations"][ANNOTATION]) > LARGEST // 4
    assert len(recorded(live)) > 100
    again = clone(git)
    decided(again, _BOUND, old=clone(live))
    assert again["spec"] == live["spec"]


def test_the_record_of_a_large_template_is_made_again_whole() -> None:
    mount = {"name": "gpugate-shm", "mountPath": "/dev/shm"}
    paths = [("spec", "template", "spec", "containers", at, "volumeMounts", "-") for at in range(256)]
    mounts = [{"name": f"v{at}", "mountPath": f"/{at}"} for at in range(30)]
    old = templated("Deployment", *(container(f"c{at}", volumeMounts=[*mounts, mount]) for at in range(256)))
    draft = PatchBuilder(templated("Deployment", *(container(f"c{at}", volumeMounts=list(mounts)) for at in range(256))))
    effort = Effort()
    for path in paths:
        reapply_edit(draft, old, "add", path, [mount], effort)
    assert draft.root == old
    # The record is compared a second time, to be written again.
    assert all(still_holds(old, ["add", pointer(path), mount], effort) for path in paths)
