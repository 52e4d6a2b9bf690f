"""Objects that Kueue compares with a Workload are never edited, nor refused for what the edits would have mended.

Only a Workload that exists counts: anybody can write the labels.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.framework.decision import Decision, Phase
from gpugate.policies.kube.fields import clone
from tests.shared.builders import bind, container, decided, every_rule, node, pod, templated

Json = dict[str, Any]
PREBUILT, ORIGIN = "kueue.x-k8s.io/prebuilt-workload-name", "kueue.x-k8s.io/multikueue-origin"
QUEUE, GROUP = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/pod-group-name"
_NODE = node("n", cpu="64", memory="512Gi", **{"nvidia.com/gpu": "8"})


def cluster(*workloads: Json, state: SyncState = SyncState.SYNCED) -> ClusterSnapshot:
    """A cluster of one node with these Workloads."""
    return snapshot_from_objects([_NODE, *workloads], {"workloads": state})


def made(name: str = "ready", *, owner: str = "", origin: str = "") -> Json:
    """A Workload, which an object has taken if there is an ``owner``."""
    metadata: Json = {"name": name, "namespace": "default", "labels": {ORIGIN: origin} if origin else {}}
    metadata["ownerReferences"] = [{"uid": owner, "kind": "Job", "apiVersion": "batch/v1", "name": owner}] if owner else []
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata}


def mirror(labels: Json, annotations: Json | None = None) -> Json:
    """A Job that needs /dev/shm and a memory limit, neither of which it states."""
    root = templated("Job", container(memory=None, gpus=2), parallelism=2, completions=2)
    root["metadata"] |= {"namespace": "default", "labels": {QUEUE: "q", **labels}, "annotations": annotations or {}}
    return root


def denials(decision: Decision) -> set[str]:
    return {judged.finding.reason for judged in decision.findings if judged.severity.value == "deny"}


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [({PREBUILT: "ready", ORIGIN: "hub"}, {}), ({PREBUILT: "ready"}, {}), ({ORIGIN: "hub"}, {PREBUILT: "ready"})],
)
def test_a_mirror_is_admitted_as_it_is(labels: Json, annotations: Json) -> None:
    root = mirror(labels, annotations)
    before = clone(root)
    decision = decided(root, every_rule(), snapshot=cluster(made()))
    assert root == before
    assert denials(decision) == set()
    assert any(judged.finding.reason == "NotMounted" for judged in decision.findings)


def test_no_rule_refuses_it_for_what_its_own_edits_would_have_mended() -> None:
    plain, copy = mirror({}), mirror({PREBUILT: "ready"})
    decided(plain, every_rule(), snapshot=cluster(made()), phase=Phase.MUTATE)
    mended = denials(decided(plain, every_rule(), snapshot=cluster(made()), phase=Phase.CHECK))
    assert denials(decided(copy, every_rule(), snapshot=cluster(made()))) <= mended


def test_it_is_refused_for_what_no_edit_mends() -> None:
    root = mirror({PREBUILT: "ready"})
    root["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 9}
    root["spec"] |= {"parallelism": 1, "completions": 1}
    twin = clone(root)
    twin["metadata"]["labels"] = {QUEUE: "q"}
    wanted = denials(decided(twin, every_rule(), snapshot=cluster(made())))
    assert wanted
    assert denials(decided(root, every_rule(), snapshot=cluster(made()))) == wanted


@pytest.mark.parametrize(
    ("labels", "workload"),
    [
        ({PREBUILT: "nonexistent"}, made()),
        ({PREBUILT: "ready"}, made(owner="another")),
        ({ORIGIN: "hub"}, made(origin="hub")),
        ({PREBUILT: "ready"}, made() | {"metadata": {"name": "ready", "namespace": "others"}}),
    ],
    ids=["of-a-workload-that-does-not-exist", "of-a-workload-that-is-taken", "of-an-origin-alone", "of-another-namespace"],
)
def test_a_label_that_anybody_can_write_gives_no_leniency(labels: Json, workload: Json) -> None:
    assert "NotMounted" in denials(decided(mirror(labels), every_rule(), snapshot=cluster(workload)))


@pytest.mark.parametrize(("origin", "refused"), [("hub", False), ("", True)])
def test_the_second_pod_of_a_group_may_join_a_workload_that_multikueue_made(origin: str, refused: bool) -> None:
    root = pod(container(memory=None, gpus=2))
    labels = {QUEUE: "q", PREBUILT: "ready", GROUP: "g"}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    root["metadata"] |= {"namespace": "default", "labels": labels, "annotations": annotations}
    facts = cluster(made(owner="first-pod", origin=origin))
    assert ("NotMounted" in denials(decided(root, every_rule(), snapshot=facts))) is refused


@pytest.mark.parametrize(("state", "refused"), [(SyncState.NOT_GIVEN, False), (SyncState.PENDING, True), (SyncState.ABSENT, True)])
def test_without_the_workloads_only_files_are_believed(state: SyncState, refused: bool) -> None:
    facts = snapshot_from_objects([_NODE], {"workloads": state})
    assert ("NotMounted" in denials(decided(mirror({PREBUILT: "ready"}), every_rule(), snapshot=facts))) is refused


def test_a_required_queue_is_not_made_up_for_by_a_label() -> None:
    root = mirror({ORIGIN: "hub"})
    del root["metadata"]["labels"][QUEUE]
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q", "namespace": "default"}}
    facts = snapshot_from_objects([_NODE, queue, made(origin="hub")], {"workloads": SyncState.SYNCED})
    rules = bind({"queue": {"mode": "Enforce", "required": True}})
    assert denials(decided(root, rules, snapshot=facts)) == {"QueueMissing"}
