"""What gpugate did to a template at CREATE is given back on UPDATE, exactly, and nothing else is."""

from __future__ import annotations

from typing import Any

import jsonpatch
import orjson
import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.framework.decision import Decision
from gpugate.policies.kube.accelerators import LEGACY_GPU
from gpugate.policies.kube.fields import clone
from gpugate.policies.workloads.recorded_edits import ANNOTATION, recorded
from gpugate.policies.workloads.transition import semantically_equal
from tests.shared.builders import bind, container, decided, every_rule, templated

_QUEUE = "kueue.x-k8s.io/queue-name"
_QUEUES = snapshot_from_objects([{"kind": "LocalQueue", "metadata": {"namespace": "team-a", "name": "q"}, "spec": {}}])
#: Two policies under which the same object would be changed in different ways. Both put every kind into a queue.
_BEFORE = bind({"queue": {"queueName": "q"}}, mode="Enforce")
_AFTER = bind(
    {
        "tolerations": {"taints": [{"key": "sku", "value": "gpu"}]},
        "shared-memory": {"maxSize": "4Gi"},
        "host-memory": {"memoryPerAccelerator": "48Gi"},
        "queue": {"queueName": "other"},
        "numa": {"ncclEnv": {"NCCL_DEBUG": "INFO"}},
    },
    mode="Enforce",
)


def _created(git: dict[str, Any]) -> dict[str, Any]:
    """The live object that comes of applying ``git``."""
    live = clone(git)
    decided(live, _BEFORE, snapshot=_QUEUES)
    assert ANNOTATION in live["metadata"]["annotations"]
    return live


def _updated(sent: dict[str, Any], live: dict[str, Any], bound: Any = _AFTER) -> tuple[dict[str, Any], Decision]:
    """The object that comes of sending ``sent`` over ``live``, and the decision; the laws of patches hold."""
    root = clone(sent)
    decision = decided(root, bound, snapshot=_QUEUES, old=clone(live))
    assert jsonpatch.apply_patch(sent, decision.patch) == root
    again = clone(root)
    assert decided(again, bound, snapshot=_QUEUES, old=clone(live)).patch == []
    assert again == root
    return root, decision


def _job(**more: Any) -> dict[str, Any]:
    return templated("Job", container(memory=None, **more))


def _main(root: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in root["spec"]["template"]["spec"]["containers"] if one["name"] == "main")
    return found


def test_create_records_what_it_changed() -> None:
    live = _created(_job())
    operations = recorded(live)
    assert ["add", "/metadata/labels", {_QUEUE: "q"}] in operations
    assert ["add", "/spec/template/spec/containers/0/resources/limits/memory", "32Gi"] in operations
    assert [op for op in operations if ANNOTATION in str(op)] == []


def test_a_template_that_nobody_had_to_change_gets_no_record() -> None:
    root = templated("Job", {"name": "cpu", "resources": {"limits": {"cpu": "1"}}})
    decided(root, _BEFORE, snapshot=_QUEUES)
    assert "annotations" not in root["metadata"]


def test_the_edits_of_a_pod_are_recorded_once() -> None:
    root = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container()]}}
    assert decided(root, _BEFORE).patch
    assert {op[1] for op in recorded(root)} >= {"/spec/tolerations", "/spec/volumes"}
    assert decided(root, _BEFORE).patch == []


def test_a_pod_that_nobody_had_to_change_gets_no_record() -> None:
    root = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "cpu"}]}}
    assert decided(root, _BEFORE).patch == []
    assert "annotations" not in root["metadata"]


def test_a_second_review_of_the_same_create_adds_to_the_record() -> None:
    root = _created(_job())
    first = recorded(root)
    root["spec"]["template"]["spec"]["containers"].append(container("injected", memory="8Gi"))
    decided(root, _BEFORE, snapshot=_QUEUES)
    assert recorded(root)[: len(first)] == first
    assert len(recorded(root)) > len(first)


@pytest.mark.parametrize("bound", [_BEFORE, _AFTER, (), every_rule("DryRun")], ids=["same", "other", "none", "dryrun"])
@pytest.mark.parametrize("kind", ["Job", "Deployment", "StatefulSet"])
def test_the_version_of_git_gets_exactly_the_old_template_whatever_the_policy_says_now(kind: str, bound: Any) -> None:
    git = templated(kind, container(memory=None), container("second", memory="8Gi", env=[{"name": "A", "value": "1"}]))
    live = _created(git)
    root, decision = _updated(git, live, bound)
    assert root["spec"] == live["spec"]
    assert root["metadata"] == live["metadata"]
    assert decision.changes == []


#: Under which every rule writes that may write into a template.
_WRITING = bind(
    {
        "isolation": {
            **dict.fromkeys(("seccomp", "privilegeEscalation", "runAsNonRoot"), "Write"),
            "users": [{"image": "*", "user": 1000}],
        },
        "jobs": {"ttlAfterFinished": "24h", "defaultDeadline": "48h", "backoffLimit": 3, "gpuFaultExitCodes": [74]},
        "images": {"mirrors": [{"from": "docker.io", "to": "mirror.example.com"}], "writeIfNotPresent": "Tags"},
        "priority": {"training": {"pods": "batch", "workload": "research"}, "inference": {"pods": "serve"}},
        "spread": {"over": [{"key": "kubernetes.io/hostname"}]},
        "attribution": {},
    },
    mode="Enforce",
)


@pytest.mark.parametrize("context", [None, {"runAsGroup": 7}], ids=["no context", "a context"])
@pytest.mark.parametrize("kind", ["Job", "Deployment", "StatefulSet"])
def test_what_any_rule_writes_is_given_back_under_a_policy_that_writes_nothing(kind: str, context: Any) -> None:
    stated = {} if context is None else {"securityContext": context}
    git = templated(kind, container(memory=None, image="pytorch:2", imagePullPolicy="Always", **stated))
    git["spec"]["template"]["spec"] |= {"restartPolicy": "Never" if kind == "Job" else "Always", **clone(stated)}
    git["spec"] |= {} if kind == "Job" else {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}}
    git["metadata"] |= {
        "labels": {"team": "vision"},
        "annotations": {"gpugate.io/gpu": "h100", "gpugate.io/spot": "required", "gpugate.io/checkpoint": "s3://bucket/run"},
    }
    live = clone(git)
    decided(live, _WRITING)
    assert live["spec"]["template"]["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert _main(live)["securityContext"]["runAsUser"] == 1000
    root, _ = _updated(git, live, ())
    assert root["spec"] == live["spec"]


def _train() -> dict[str, Any]:
    """A PyTorchJob as people write it."""
    main = container(memory=None, gpus=1)
    main["resources"] = {"limits": {"nvidia.com/gpu": 1, "memory": "32768Mi"}}
    worker = {"replicas": 2, "template": {"spec": {"containers": [main]}}}
    spec = {"pytorchReplicaSpecs": {"Worker": worker}}
    metadata = {"name": "w", "namespace": "team-a"}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}


def _worker(root: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = root["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    return found


def _read_into_its_type(root: dict[str, Any]) -> dict[str, Any]:
    """The live object after a webhook such as Kueue's has read it into its type and written it back."""
    found = clone(root)
    template = _worker(found)
    limits = template["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == 1
    limits |= {"nvidia.com/gpu": "1", "memory": "32Gi"}
    return found | {"spec": found["spec"] | {"pytorchReplicaSpecs": {"Worker": _worker_of(found, {"metadata": {}, **template})}}}


def _worker_of(root: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    return {**root["spec"]["pytorchReplicaSpecs"]["Worker"], "template": template}


@pytest.mark.parametrize("keeps_volumes", [True, False], ids=["client-side apply", "replace"])
def test_quantities_that_others_have_spelt_anew_are_no_change_of_a_template(*, keeps_volumes: bool) -> None:
    git = _train()
    live = clone(git)
    decided(live, _WRITING, snapshot=_QUEUES)
    live = _read_into_its_type(live)
    sent = clone(git)
    if keeps_volumes:
        # A patch replaces lists that Git states and leaves what it does not.
        _worker(sent)["spec"] |= {"volumes": _worker(live)["spec"]["volumes"]}
    root, decision = _updated(sent, live, _AFTER)
    assert semantically_equal(root["spec"], live["spec"])
    assert _worker(root)["spec"]["containers"][0]["volumeMounts"] == _worker(live)["spec"]["containers"][0]["volumeMounts"]
    assert root["metadata"] == live["metadata"]
    assert decision.changes == [], "no rule has anything to say of what nobody has changed"


#: What Go's types leave out as they are written, or write empty: what Git states of a template, and what then stands there.
_LEFT_OUT: list[tuple[str, Any, Any]] = [
    ("env", [{"name": "A", "value": ""}], [{"name": "A"}]),
    (
        "env",
        [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
        [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}}],
    ),
    ("args", [], None),
    ("tty", False, None),
    ("volumeMounts", [{"name": "d", "mountPath": "/d", "readOnly": False}], [{"name": "d", "mountPath": "/d"}]),
    ("ports", [{"containerPort": 1, "hostPort": 0}], [{"containerPort": 1}]),
]


@pytest.mark.parametrize(("field", "stated", "kept"), _LEFT_OUT)
def test_what_others_leave_out_as_they_write_an_object_is_no_change_of_a_template(field: str, stated: Any, kept: Any) -> None:
    def with_field(value: Any) -> dict[str, Any]:
        found = _train()
        main = _worker(found)["spec"]["containers"][0]
        main |= {} if value is None else {field: clone(value)}
        _worker(found)["spec"]["volumes"] = [{"name": "d", "emptyDir": {}}]
        return found

    live = with_field(stated)
    decided(live, _WRITING, snapshot=_QUEUES)
    written = with_field(kept)
    decided(written, _WRITING, snapshot=_QUEUES)
    # An operator takes the object up, while another policy is bound.
    root, decision = _updated(written | {"metadata": live["metadata"]}, live, _AFTER)
    assert (root["spec"], decision.changes) == (written["spec"], [])
    # Git's text is applied again.
    root, decision = _updated(with_field(stated), root, _AFTER)
    assert (root["spec"], decision.changes) == (live["spec"], [])


@pytest.mark.parametrize("optional", [False, None])
def test_what_says_something_where_it_is_false_is_a_change_of_a_template(*, optional: bool | None) -> None:
    def with_switch(value: bool | None) -> dict[str, Any]:
        found = _train()
        _worker(found)["spec"] |= {} if value is None else {"automountServiceAccountToken": value}
        return found

    assert semantically_equal(with_switch(False), with_switch(optional)) is (optional is False)


def test_marks_that_kueue_puts_into_a_template_are_no_change_where_an_object_is_replaced() -> None:
    git = templated("Deployment", container(memory=None))
    live = clone(git)
    decided(live, _WRITING, snapshot=_QUEUES)
    template = live["spec"]["template"]
    template["metadata"] = {
        "labels": {**template.get("metadata", {}).get("labels", {}), "kueue.x-k8s.io/managed": "true", _QUEUE: "q"},
        "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "deployment"},
    }
    root, decision = _updated(git, live, _AFTER)
    assert root["spec"]["template"]["spec"] == template["spec"]
    assert decision.changes == []
    asked = clone(git)
    asked["spec"]["template"]["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}
    assert _updated(asked, live, _AFTER)[1].changes, "what somebody says of a topology is a change"


def test_what_a_rule_put_into_the_settings_of_a_run_is_given_back_each_time() -> None:
    git = _train()
    live = clone(git)
    decided(live, _WRITING, snapshot=_QUEUES)
    assert live["spec"]["runPolicy"] == {"ttlSecondsAfterFinished": 86400, "activeDeadlineSeconds": 172800}
    for _ in range(2):
        live, _ = _updated(git, live, ())
        assert live["spec"]["runPolicy"] == {"ttlSecondsAfterFinished": 86400, "activeDeadlineSeconds": 172800}


def test_the_priority_class_outlasts_a_change_of_what_the_pods_ask_for() -> None:
    git = templated("Deployment", container(memory=None))
    live = clone(git)
    decided(live, _WRITING)
    assert live["spec"]["template"]["spec"]["priorityClassName"] == "serve"
    sent = clone(git)
    _main(sent)["resources"]["limits"]["nvidia.com/gpu"] = 2
    root, _ = _updated(sent, live, _WRITING)
    assert root["spec"]["template"]["spec"]["priorityClassName"] == "serve"


def test_a_record_that_nobody_would_read_again_is_not_written() -> None:
    root = templated("Job", *(container(f"{at}-{'x' * 60}", gpus=1, memory=None) for at in range(250)))
    decided(root, bind({"object-size": {"acceleratorContainers": 250}}, mode="Enforce"))
    assert root["spec"]["template"]["spec"]["containers"][249]["volumeMounts"]
    assert "annotations" not in root["metadata"]


def test_defaults_that_the_apiserver_added_to_the_live_object_are_given_back_too() -> None:
    git = templated("Job", container(), volumes=None)
    git["spec"]["template"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    git["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    live = _created(git)
    mount = live["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][1]
    mount["recursiveReadOnly"] = "Disabled"
    root, _ = _updated(git, live)
    assert root["spec"]["template"] == live["spec"]["template"]


def test_what_was_renamed_is_renamed_again() -> None:
    git = templated("Job", {"name": "main", "resources": {"limits": {LEGACY_GPU: 1, "memory": "8Gi"}}})
    live = _created(git)
    root, _ = _updated(git, live)
    assert root["spec"] == live["spec"]


def test_an_overwritten_value_is_overwritten_again_but_a_new_one_is_the_users() -> None:
    resources = {"limits": {"nvidia.com/gpu": 1, "cpu": "7500m", "memory": "64Gi"}, "requests": {"cpu": "4", "memory": "64Gi"}}
    git = templated("Deployment", {"name": "main", "resources": resources})
    live = _created(git)
    assert _main(live)["resources"]["requests"]["cpu"] == "8"
    root, _ = _updated(git, live)
    assert root["spec"] == live["spec"]

    git["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "12"
    root, _ = _updated(git, live)
    assert _main(root)["resources"]["limits"]["cpu"] == "12"
    assert _main(root)["resources"]["requests"]["cpu"] == "12"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_scaling_and_labelling_edit_no_template(kind: str) -> None:
    git = templated(kind, container(memory=None), replicas=1)
    live = _created(git)
    sent = clone(live)
    sent["spec"]["replicas"] = 3
    sent["metadata"]["labels"]["seen"] = "yes"
    root, decision = _updated(sent, live)
    assert (root, decision.patch) == (sent, [])


def test_a_workload_from_before_gpugate_is_scaled_without_a_rollout() -> None:
    live = templated("Deployment", container(memory=None), replicas=1)
    sent = clone(live)
    sent["spec"]["replicas"] = 3
    root, decision = _updated(sent, live)
    assert (root, decision.patch) == (sent, [])


def test_a_template_that_the_user_changes_is_edited_anew() -> None:
    live = templated("Deployment", {"name": "main", "resources": {"limits": {"cpu": "1"}}})
    sent = templated("Deployment", container(memory=None))
    root, _ = _updated(sent, live)
    assert _main(root)["resources"]["limits"]["memory"] == "48Gi"
    assert _main(root)["volumeMounts"]


def test_an_edit_made_on_update_is_recorded_so_that_a_later_policy_causes_no_rollout() -> None:
    live = templated("Deployment", {"name": "main", "resources": {"limits": {"cpu": "1"}}})
    git = templated("Deployment", container(memory=None))
    live, _ = _updated(git, live, _BEFORE)
    root, decision = _updated(git, live, _AFTER)
    assert root["spec"] == live["spec"]
    assert decision.changes == []


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_all_of_a_list_that_is_made_anew_on_update_is_given_back_however_much_of_it_was_made_before(kind: str) -> None:
    git = templated(kind, container(memory=None))
    live = _created(git)
    git["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    live, _ = _updated(git, live, _AFTER)
    assert [one["key"] for one in live["spec"]["template"]["spec"]["tolerations"]] == ["nvidia.com/gpu", "sku"]
    root, decision = _updated(git, live, every_rule("DryRun"))
    assert (root, decision.changes) == (live, [])


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_what_is_appended_anew_is_given_back_in_the_order_in_which_it_stands_now(kind: str) -> None:
    git = templated(kind, container(memory=None))
    live = _created(git)
    # Another image: the toleration of the policy of today is appended to the one of then.
    git["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    live, _ = _updated(git, live, _AFTER)
    # Git states tolerations of its own, and a patch takes the whole list for them.
    git["spec"]["template"]["spec"]["tolerations"] = [{"key": "mine", "operator": "Exists"}]
    sent = clone(live)
    sent["spec"]["template"]["spec"]["tolerations"] = clone(git["spec"]["template"]["spec"]["tolerations"])
    live, _ = _updated(sent, live, _AFTER)
    assert [one["key"] for one in live["spec"]["template"]["spec"]["tolerations"]] == ["mine", "nvidia.com/gpu", "sku"]
    root, decision = _updated(sent, live, every_rule("DryRun"))
    assert (root["spec"], decision.changes) == (live["spec"], [])


def test_a_new_image_keeps_what_was_given_whatever_the_policy_says_now() -> None:
    git = templated("StatefulSet", container(memory=None, image="a"))
    live = _created(git)
    git["spec"]["template"]["spec"]["containers"][0]["image"] = "b"
    root, _ = _updated(git, live, bind({"host-memory": {"memoryPerAccelerator": "48Gi"}, "shared-memory": {"maxSize": "4Gi"}}))
    wanted = clone(live["spec"])
    wanted["template"]["spec"]["containers"][0]["image"] = "b"
    assert root["spec"] == wanted


def test_a_second_accelerator_gets_memory_for_two() -> None:
    git = templated("Deployment", container(memory=None))
    live = _created(git)
    git["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 2
    root, _ = _updated(git, live, _BEFORE)
    assert _main(root)["resources"]["limits"]["memory"] == "64Gi"


def test_a_request_that_the_user_states_now_is_not_crossed_by_the_limit_of_then() -> None:
    git = templated("Deployment", container(memory=None))
    live = _created(git)
    git["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"memory": "128Gi"}
    root, _ = _updated(git, live, _BEFORE)
    assert _main(root)["resources"]["limits"]["memory"] == "128Gi"


def test_a_mount_that_the_user_makes_now_is_not_doubled() -> None:
    git = templated("Deployment", container())
    live = _created(git)
    spec = git["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "dshm", "mountPath": "/dev/shm/"}]
    root, _ = _updated(git, live)
    assert _main(root)["volumeMounts"] == [{"name": "dshm", "mountPath": "/dev/shm/"}]
    assert [volume["name"] for volume in root["spec"]["template"]["spec"]["volumes"]] == ["dshm"]
    assert "gpugate-shm" not in root["metadata"]["annotations"][ANNOTATION]


def test_what_the_user_takes_over_leaves_the_record() -> None:
    git = templated("Deployment", container(volumeMounts=[{"name": "data", "mountPath": "/data"}]), volumes=[])
    spec = git["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "data", "emptyDir": {}}]
    live = _created(git)
    assert ["gpugate-shm" in str(op) for op in recorded(live)].count(True) == 2
    spec["volumes"].append({"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}})
    spec["containers"][0]["volumeMounts"].append({"name": "dshm", "mountPath": "/dev/shm"})
    root, _ = _updated(git, live)
    assert "gpugate-shm" not in str(root)
    assert ["add", "/metadata/labels", {_QUEUE: "q"}] in recorded(root)


def test_a_variable_that_the_user_sets_now_is_not_doubled() -> None:
    bound = bind({"numa": {"ncclEnv": {"NCCL_DEBUG": "INFO"}, "guaranteed": "Never"}})
    git = templated("Deployment", container(env=[{"name": "A", "value": "1"}]))
    live = clone(git)
    decided(live, bound)
    git["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "NCCL_DEBUG", "value": "WARN"})
    root, _ = _updated(git, live, bound)
    assert _main(root)["env"] == [{"name": "A", "value": "1"}, {"name": "NCCL_DEBUG", "value": "WARN"}]


def test_a_list_that_git_states_no_longer_is_made_anew() -> None:
    bound = bind({"numa": {"ncclEnv": {"NCCL_DEBUG": "INFO"}, "guaranteed": "Never"}})
    live = templated("Deployment", container(env=[{"name": "A", "value": "1"}]))
    decided(live, bound)
    root, _ = _updated(templated("Deployment", container()), live, bound)
    assert _main(root)["env"] == [{"name": "NCCL_DEBUG", "value": "INFO"}]


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_nothing_is_given_back_to_containers_that_are_gone(kind: str) -> None:
    git = templated(kind, container())
    git["spec"]["template"]["spec"]["initContainers"] = [container("warm", memory=None)]
    live = _created(git)
    sent = templated(kind, container())
    root, _ = _updated(sent, live)
    assert "initContainers" not in root["spec"]["template"]["spec"]


def test_a_container_put_in_front_does_not_get_what_was_given_to_another() -> None:
    git = templated("Deployment", container(memory=None))
    live = _created(git)
    git["spec"]["template"]["spec"]["containers"].insert(
        0, {"name": "proxy", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    )
    root, _ = _updated(git, live, _BEFORE)
    proxy = root["spec"]["template"]["spec"]["containers"][0]
    assert proxy["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
    assert "volumeMounts" not in proxy
    assert _main(root)["resources"]["limits"]["memory"] == "32Gi"
    assert _main(root)["volumeMounts"]


def test_the_queue_name_is_given_back_beside_labels_that_came_later() -> None:
    git = templated("Job", container())
    live = _created(git)
    git["metadata"]["labels"] = {"team": "x"}
    root, _ = _updated(git, live)
    assert root["metadata"]["labels"] == {"team": "x", _QUEUE: "q"}


def test_what_others_put_into_the_live_object_is_left_to_them() -> None:
    git = templated("Deployment", container())
    live = _created(git)
    live["metadata"]["labels"]["from"] = "somebody"
    live["spec"]["template"]["spec"]["tolerations"].append({"key": "spot", "operator": "Exists"})
    root, _ = _updated(git, live, _BEFORE)
    assert root["metadata"]["labels"] == {_QUEUE: "q"}
    assert [one["key"] for one in root["spec"]["template"]["spec"]["tolerations"]] == ["nvidia.com/gpu"]


def test_a_gang_keeps_its_mark_when_its_template_changes() -> None:
    bound = bind({"gang": {"scheduler": "Coscheduling", "schedulerName": "gangs"}, "host-memory": {}})
    git = templated("StatefulSet", container(memory=None), replicas=2)
    git["metadata"]["annotations"] = {"gpugate.io/gang-size": "2"}
    live = clone(git)
    decided(live, bound)
    git["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 8
    root, _ = _updated(git, live, bound)
    assert root["spec"]["template"]["metadata"]["labels"] == {"scheduling.x-k8s.io/pod-group": "w"}
    assert root["spec"]["template"]["spec"]["schedulerName"] == "gangs"
    assert _main(root)["resources"]["limits"]["memory"] == "256Gi"


# --- a record that somebody else wrote -----------------------------------------------------------------------------------


def _forged(live: dict[str, Any], operations: Any) -> dict[str, Any]:
    text = operations if isinstance(operations, str) else orjson.dumps(operations).decode()
    live["metadata"]["annotations"] = {ANNOTATION: text}
    return live


_PLAIN = templated("Job", container(env=[{"name": "A", "value": "1"}]))


@pytest.mark.parametrize(
    "operations",
    [
        [["add", "/spec/template/spec/hostNetwork", True]],
        [["add", "/spec/template/spec/securityContext", {"runAsUser": 0}]],
        [["add", "/spec/template/spec/containers/0/env/-", {"name": "EVIL", "value": "1"}]],
        [["add", "/spec/template/spec/volumes", [{"name": "root", "hostPath": {"path": "/"}}]]],
        [["replace", "/spec/template/spec/containers/0/name", "evil", "main"]],
        [["add", "/spec/template/spec/containers/7/image", "evil"]],
        [["add", "/spec/template/spec/containers/-", {"name": "evil"}]],
    ],
    ids=str,
)
def test_a_forged_record_adds_nothing_that_the_old_object_lacks(operations: Any) -> None:
    live = _forged(clone(_PLAIN), operations)
    root, _ = _updated(_PLAIN, live, ())
    assert root["spec"] == _PLAIN["spec"]


def test_a_forged_record_takes_nothing_out() -> None:
    live = _forged(clone(_PLAIN), [["remove", "/spec/template/spec/securityContext"], ["remove", "/spec/template/spec/containers"]])
    sent = clone(_PLAIN)
    sent["spec"]["template"]["spec"]["securityContext"] = {"runAsNonRoot": True}
    root, _ = _updated(sent, live, ())
    assert root["spec"] == sent["spec"]


def test_a_forged_record_keeps_nothing_alive_that_no_rule_writes() -> None:
    risky = {"hostNetwork": True, "securityContext": {"runAsUser": 0}}
    git = templated("Deployment", container(securityContext={"privileged": True}))
    git["spec"]["template"]["spec"] |= risky
    git["metadata"]["finalizers"] = ["example.com/keep"]
    live = _forged(
        clone(git),
        [
            ["add", "/metadata/finalizers", ["example.com/keep"]],
            ["add", "/spec/template/spec/hostNetwork", True],
            ["add", "/spec/template/spec/securityContext", {"runAsUser": 0}],
            ["add", "/spec/template/spec/containers/0/securityContext", {"privileged": True}],
            ["add", "/spec/template/spec/containers/0/securityContext/privileged", True],
            ["add", "/spec/template/spec/containers/0/securityContext", {"privileged": True, "runAsNonRoot": True}],
            ["add", "/spec/template/spec/securityContext/runAsUser", 0],
        ],
    )
    safe = templated("Deployment", container())
    root, _ = _updated(safe, live, ())
    assert root["spec"] == safe["spec"]
    assert "finalizers" not in root["metadata"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "{}",
        "[1, [], [[]], null]",
        '[["add"], ["add", 7, 1], ["add", "x", 1]]',
        '[["add", "/x"], ["remove", "/x", 1], ["move", "/x", 1], [{}, "/x", 1], ["replace", "/x", 1]]',
        "[" * 5000,
        '[["add", "/metadata/labels", {"a": "1"}]' + " " * 70000 + "]",
    ],
    ids=lambda text: text[:20],
)
def test_a_record_that_gpugate_did_not_write_is_passed_over(text: str) -> None:
    live = _forged(clone(_PLAIN), text)
    live["metadata"]["labels"] = {"a": "1"}
    assert recorded(live) == []
    root, _ = _updated(_PLAIN, live, ())
    assert "labels" not in root["metadata"]


@pytest.mark.parametrize(
    "path", ["/", "/-", "/spec/-", "/metadata/name/x", "/spec/template/spec/containers/0/-", "/metadata/annotations/-"]
)
@pytest.mark.parametrize("value", [{"a": {"b": 1}}, [1], "x", None], ids=str)
def test_odd_places_in_a_record_do_no_harm(path: str, value: Any) -> None:
    live = _forged(clone(_PLAIN), [["add", path, value], ["replace", path, value, value], ["remove", path]])
    root, _ = _updated(_PLAIN, live, ())
    assert root["spec"] == _PLAIN["spec"]


def test_the_scheduling_group_of_a_template_is_given_back() -> None:
    bound = bind({"gang": {"scheduler": "Kubernetes"}}, mode="Enforce")
    git = _job()
    git["metadata"]["name"] = "train"
    git["spec"] |= {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    git["metadata"].setdefault("annotations", {})["gpugate.io/gang-name"] = "w"
    live = clone(git)
    decided(live, bound, snapshot=_QUEUES)
    assert live["spec"]["template"]["spec"]["schedulingGroup"]
    again, _ = _updated(git, live, bound)
    assert again["spec"]["template"] == live["spec"]["template"]
