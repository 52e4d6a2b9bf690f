"""The kinds of operators: what holds for each of them from its creation to the end of its pods."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.findings import Level, Severity
from gpugate.policies.framework.decision import BoundRule, Decision, Phase
from gpugate.policies.kube.fields import MalformedError, clone, lookup
from gpugate.policies.workloads.kinds import WorkloadKind, kind_of
from gpugate.policies.workloads.open import open_workload
from tests.shared import shapes
from tests.shared.builders import Object, bind, every_rule

QUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "train"}}
NOW = bind({"host-memory": {"memoryPerAccelerator": "8Gi"}, "numa": {"ncclEnv": {"NCCL_DEBUG": "INFO"}}}, mode="Enforce")
EVERY_SHAPE = [(name, flags) for name in shapes.KINDS for flags in (False, True)]
every_shape = pytest.mark.parametrize(("name", "flags"), EVERY_SHAPE, ids=str)
#: What Kueue can start and stop, and whose template may change meanwhile.
SWITCHED = [name for name in shapes.KINDS if name not in {"LeaderWorkerSet", "RayService", "VolcanoJob"}]


def kind_in(root: Object) -> WorkloadKind:
    kind = kind_of(root["apiVersion"], root["kind"])
    assert kind is not None
    return kind


def decided(
    root: Object, bound: tuple[BoundRule, ...] = (), *, old: Object | None = None, snapshot: ClusterSnapshot = EMPTY_SNAPSHOT
) -> Decision:
    operation = "CREATE" if old is None else "UPDATE"
    workload = open_workload(kind_in(root), root, snapshot, operation=operation, old=clone(old))
    return decide(workload, bound or every_rule(), snapshot, Phase.REVIEW)


def created(root: Object, bound: tuple[BoundRule, ...] = ()) -> Object:
    made: Object = clone(root)
    decided(made, bound)
    return made


def pods_of(root: Object) -> list[Any]:
    return list(open_workload(kind_in(root), root, EMPTY_SNAPSHOT).pod_sets)


def denied(decision: Decision) -> list[str]:
    return [one.finding.reason for one in decision.findings if one.severity is Severity.DENY]


@every_shape
def test_what_was_created_is_edited_no_further(name: str, flags: bool) -> None:
    made = created(shapes.typical(name, flags=flags))
    again = clone(made)
    assert decided(again).patch == []
    assert again == made


@every_shape
def test_the_text_that_was_sent_first_gives_the_same_object_whatever_the_policy_is_now(name: str, flags: bool) -> None:
    sent = shapes.typical(name, flags=flags)
    made = created(sent)
    assert made["spec"] != sent["spec"]
    for bound in (every_rule(), NOW, every_rule("DryRun")):
        again = clone(sent)
        decided(again, bound, old=made)
        assert again == made


@every_shape
def test_an_object_that_was_there_before_gpugate_is_not_edited(name: str, flags: bool) -> None:
    old = shapes.typical(name, flags=flags)
    new = clone(old)
    new["metadata"]["labels"] = {"seen": "yes"}
    decision = decided(new, old=old)
    assert (decision.patch, denied(decision)) == ([], [])


@every_shape
def test_the_pods_of_a_created_object_need_no_edit_and_are_not_refused(name: str, flags: bool) -> None:
    made = created(shapes.typical(name, flags=flags))
    for pods in pods_of(made):
        if not pods.is_whole:
            continue
        owner = {"apiVersion": pods.kind.group + "/v1", "kind": pods.kind.kind, "name": "w", "controller": True}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": clone(pods.root.get("metadata") or {}), "spec": clone(pods.spec)}
        pod["metadata"] |= {"name": "w-0", "namespace": "team-a", "ownerReferences": [owner] if pods.kind.kind else []}
        decision = decided(pod)
        assert (decision.patch, denied(decision)) == ([], []), pods.path


def placed(root: Object) -> Object:
    """``root`` as Kueue starts it: with labels of the flavor, and what they tolerate, in every template."""
    started: Object = clone(root)
    for pods in pods_of(started):
        if pods.is_whole:
            pods.spec.setdefault("nodeSelector", {})["flavor"] = "h100"
            pods.spec.setdefault("tolerations", []).append({"key": "flavor", "operator": "Exists"})
            pods.root.setdefault("metadata", {}).setdefault("labels", {})["kueue.x-k8s.io/podset"] = "main"
    return started


def switched(root: Object, *, to: bool) -> Object:
    path = kind_in(root).suspend
    assert path is not None
    holder = lookup(root, path[:-1])
    holder[path[-1]] = to
    return root


@pytest.mark.parametrize("name", SWITCHED)
@pytest.mark.parametrize("before", [every_rule("DryRun"), every_rule()], ids=["not edited", "edited"])
def test_kueue_starts_and_stops_it_as_it_was_counted(name: str, before: tuple[BoundRule, ...]) -> None:
    waiting = switched(created(shapes.typical(name, metadata=QUEUE), before), to=True)
    running = switched(placed(waiting), to=False)
    for new, old in ((running, waiting), (waiting, running)):
        sent = clone(new)
        decision = decided(sent, NOW, old=old)
        assert (decision.patch, denied(decision)) == ([], [])
        assert sent == new


@pytest.mark.parametrize("name", [name for name in SWITCHED if name != "TrainJob"])
def test_kueue_may_stop_what_would_fit_no_node_without_what_it_put_in(name: str) -> None:
    taint = {"key": "flavor", "value": "h100", "effect": "NoSchedule"}
    large = {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1000Gi"}
    nodes = snapshot_from_objects(
        [
            {"kind": "Node", "metadata": {"name": "s"}, "status": {"allocatable": {**large, "memory": "8Gi"}}},
            {"kind": "Node", "metadata": {"name": "l"}, "spec": {"taints": [taint]}, "status": {"allocatable": large}},
        ]
    )
    waiting = switched(shapes.typical(name, metadata=QUEUE), to=True)
    running = switched(placed(waiting), to=False)
    for pods in pods_of(running):
        del pods.spec["nodeSelector"]
    decision = decided(waiting, old=running, snapshot=nodes)
    found = [one.finding.level for one in decision.findings if one.finding.reason == "NeverFits"]
    assert found
    assert set(found) == {Level.WARN}


@pytest.mark.parametrize("name", SWITCHED)
def test_the_text_that_was_sent_first_changes_nothing_that_kueue_counted(name: str) -> None:
    sent = shapes.typical(name, metadata=QUEUE)
    made = created(sent)
    running = switched(placed(made), to=False)
    again = clone(sent)
    decided(again, NOW, old=running)
    was = [pods.spec["containers"] for pods in pods_of(running)]
    assert [pods.spec["containers"] for pods in pods_of(again)] == was


@pytest.mark.parametrize("name", ["LeaderWorkerSet", "PyTorchJob", "RayCluster", "RayJob", "RayService"])
def test_more_accelerators_are_the_users_own_change_and_are_edited_anew(name: str) -> None:
    made = created(shapes.typical(name, metadata=QUEUE))
    sent = shapes.typical(name, metadata=QUEUE, gpus=4)
    decided(sent, NOW, old=made)
    for pods in pods_of(sent):
        assert [one["name"] for one in pods.spec["containers"][0]["env"]] == ["NCCL_DEBUG"]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("LeaderWorkerSet", ("spec", "replicas")),
        ("PyTorchJob", ("spec", "pytorchReplicaSpecs", "Worker", "replicas")),
        ("RayCluster", ("spec", "workerGroupSpecs", 0, "replicas")),
        ("RayService", ("spec", "rayClusterConfig", "workerGroupSpecs", 0, "replicas")),
    ],
)
@pytest.mark.parametrize("to", [0, 1, 5])
def test_scaling_edits_no_template(name: str, path: tuple[Any, ...], to: int) -> None:
    made = created(shapes.typical(name), every_rule("DryRun"))
    new = clone(made)
    lookup(new, path[:-1])[path[-1]] = to
    scaled = clone(new)
    assert decided(new, old=made).patch == []
    assert new == scaled


def test_overrides_that_kueue_appends_to_a_train_job_are_let_through() -> None:
    made = switched(created(shapes.typical("TrainJob", metadata=QUEUE)), to=True)
    override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"flavor": "h100"}}}
    new = clone(made)
    new["spec"]["podTemplateOverrides"] = [override]
    sent = clone(new)
    decision = decided(sent, NOW, old=made)
    assert (decision.patch, denied(decision), sent) == ([], [], new)


def owned_by(root: Object, api_version: str, kind: str) -> Object:
    root["metadata"]["ownerReferences"] = [{"apiVersion": api_version, "kind": kind, "name": "o", "controller": True}]
    return root


def job(**spec: Any) -> Object:
    template = shapes.typical("JobSet")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template, **spec}}


CHILDREN = {
    "Job of a JobSet": lambda: owned_by(job(parallelism=4, completions=16), "jobset.x-k8s.io/v1alpha2", "JobSet"),
    "launcher of an MPIJob": lambda: owned_by(job(parallelism=4), "kubeflow.org/v2beta1", "MPIJob"),
    "JobSet of a TrainJob": lambda: owned_by(shapes.typical("JobSet", flags=True), "trainer.kubeflow.org/v1alpha1", "TrainJob"),
    "RayCluster of a RayJob": lambda: owned_by(shapes.typical("RayCluster"), "ray.io/v1", "RayJob"),
    "RayCluster of a RayService": lambda: owned_by(shapes.typical("RayCluster"), "ray.io/v1", "RayService"),
    "PyTorchJob of an AppWrapper": lambda: owned_by(shapes.typical("PyTorchJob"), "workload.codeflare.dev/v1beta2", "AppWrapper"),
    "StatefulSet of a leader": lambda: owned_by(job(replicas=4) | {"apiVersion": "apps/v1", "kind": "StatefulSet"}, "v1", "Pod"),
}
#: A cluster whose nodes have gone since the whole was let in.
TOO_SMALL = snapshot_from_objects(
    [{"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "4", "memory": "8Gi"}}}]
)


@pytest.mark.parametrize("child", CHILDREN)
def test_a_part_is_not_refused_and_has_no_gang_or_queue_of_its_own(child: str) -> None:
    bound = bind({"queue": {"required": True, "queueName": "train"}}, mode="Enforce")
    decision = decided(CHILDREN[child](), bound, snapshot=TOO_SMALL)
    assert denied(decision) == []
    assert {one.rule for one in decision.findings}.isdisjoint({"gang", "gang-members", "gang-packing", "queue", "queue-quota"})
    assert {one.rule for one in decision.changes}.isdisjoint({"gang", "queue"})


def test_a_part_is_not_refused_for_what_its_owner_states_either() -> None:
    bound = bind({"numa": {"guaranteed": "Always", "cpuPerAccelerator": "6", "onGitConflict": "Refuse"}}, mode="Enforce")
    child = CHILDREN["RayCluster of a RayJob"]()
    for pods in pods_of(child):
        pods.spec["containers"][0]["resources"]["limits"]["cpu"] = "7500m"
        pods.spec["containers"][0]["resources"]["requests"] = {"cpu": "500m"}
    decision = decided(child, bound)
    assert "HeldBack" in [one.finding.reason for one in decision.findings]
    assert denied(decision) == []


def test_a_part_is_as_exempt_as_the_whole() -> None:
    bound = bind({"numa": {"ncclEnv": {"NCCL_DEBUG": "INFO"}}}, mode="Enforce", exemptions={"rules": ["*"]})
    annotations = {"gpugate.io/exempt": "numa", "gpugate.io/exempt-reason": "measured"}
    made = created(shapes.typical("RayJob", metadata={"annotations": annotations}), bound)
    child = owned_by(shapes.typical("RayCluster"), "ray.io/v1", "RayJob")
    child["spec"] = made["spec"]["rayClusterSpec"]
    assert "numa" not in {one.rule for one in decided(clone(child), bound).changes}
    for pods in pods_of(child):
        del pods.root["metadata"]
    assert "numa" in {one.rule for one in decided(child, bound).changes}


def test_what_a_part_is_warned_about_the_same_without_an_owner_is_refused_for() -> None:
    child = CHILDREN["Job of a JobSet"]()
    part = decided(clone(child), snapshot=TOO_SMALL)
    del child["metadata"]["ownerReferences"]
    alone = decided(child, snapshot=TOO_SMALL)
    assert "NeverFits" in denied(alone)
    assert [one.finding.level for one in part.findings if one.finding.reason == "NeverFits"] == [Level.WARN]


def test_resources_of_a_part_stay_as_kueue_counted_them() -> None:
    child = CHILDREN["Job of a JobSet"]()
    template = child["spec"]["template"]
    template["metadata"] = {"labels": {"kueue.x-k8s.io/podset": "main"}}
    del template["spec"]["containers"][0]["resources"]["limits"]["memory"]
    counted = clone(template["spec"]["containers"][0]["resources"])
    decision = decided(child)
    assert template["spec"]["containers"][0]["resources"] == counted
    assert "HeldBack" in [one.finding.reason for one in decision.findings]


def test_an_exemption_of_a_train_job_is_put_nowhere_that_its_api_does_not_know() -> None:
    bound = bind(mode="Enforce", exemptions={"rules": ["*"]})
    annotations = {"gpugate.io/exempt": "numa", "gpugate.io/exempt-reason": "none"}
    made = created(shapes.typical("TrainJob", metadata={"annotations": annotations}), bound)
    assert set(made["spec"]["trainer"]) == {"numNodes", "resourcesPerNode"}


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ([], "spec.trainer.resourcesPerNode: must be a map, is a list"),
        ({"limits": [1]}, "spec.trainer.resourcesPerNode.limits: must be a map, is a list"),
        (
            {"limits": {"nvidia.com/gpu": "x"}},
            "spec.trainer.resourcesPerNode.limits[nvidia.com/gpu]: 'x' is no Kubernetes quantity",
        ),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_train_job_is_told_where_it_stands(resources: Any, told: str) -> None:
    root = shapes.typical("TrainJob")
    root["spec"]["trainer"]["resourcesPerNode"] = resources
    with pytest.raises(MalformedError) as caught:
        decided(root)
    assert str(caught.value).startswith(told)


def wrapper(*components: Object) -> Object:
    return shapes.typical("AppWrapper") | {"spec": {"components": list(components)}}


def unknown_kind() -> Object:
    template = job()["spec"]["template"]
    return {"apiVersion": "example.com/v1", "kind": "Training", "spec": {"roles": [{"template": template}]}}


def test_pods_that_an_app_wrapper_declares_twice_are_edited_once() -> None:
    declared = {"path": "template.spec.roles[0].template"}
    made = created(wrapper({"podSets": [declared, dict(declared)], "template": unknown_kind()}))
    assert [(pods.path, len(pods.volumes())) for pods in pods_of(made)] == [
        (("spec", "components", 0, "template", "spec", "roles", 0, "template"), 1)
    ]


@pytest.mark.parametrize(
    "path",
    [
        *("", "template", "templates.spec", "spec.roles[0].template", "template.spec.roles[1].template", "template.spec.roles"),
        *("template[0]", "template.spec.roles[-1].template", "template.spec.roles[0", "template..spec"),
    ],
)
def test_a_declared_path_that_leads_to_no_pods_leads_to_none(path: str) -> None:
    root = wrapper({"podSets": [{"path": path}], "template": unknown_kind()})
    assert [pods.containers for pods in pods_of(root)] in ([], [()])
    assert decided(root).patch == []


def test_an_unknown_kind_in_an_app_wrapper_that_declares_no_pods_is_left_to_them() -> None:
    root = wrapper({"template": unknown_kind()})
    assert (pods_of(root), decided(root).patch) == ([], [])
