"""Which objects an audit judges: the topmost that asks for accelerators, each once, in whatever order they come."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.gangs.status import is_over
from gpugate.policies.kube.managers import LAST_APPLIED
from gpugate.policies.workloads.device_access import names_a_node
from gpugate.policies.workloads.kinds import KINDS, POD
from gpugate.policies.workloads.open import open_workload
from gpugate.webhook.audit.owners import choose_targets
from gpugate.webhook.audit.subjects import Subject, may_request_gpu, subject_of, subjects_in, trim
from tests.shared.audits import (
    Json,
    a_pod,
    audited,
    books_of,
    cron_job,
    deployment,
    job,
    job_set,
    made,
    named,
    owned,
    replica_set,
    subject,
)
from tests.shared.reviews import cpu_pod, pod

ROLLOUT = named("argoproj.io/v1alpha1", "Rollout", "canary")
SPARK = named("sparkoperator.k8s.io/v1beta2", "SparkApplication", "etl")


def chosen(*objects: Json) -> list[tuple[str, str, int]]:
    """Kind, name and number of what is judged."""
    subjects = [one for one in subjects_in(objects) if isinstance(one, Subject)]
    return [
        (one.owner.kind, one.owner.name, one.number) if one.owner else (one.subject.kind.kind, one.subject.name, one.number)
        for one in choose_targets(subjects)
    ]


def leanly(*objects: Json) -> list[tuple[str, str, int]]:
    """The same, as the controller keeps the objects."""
    kept = [trim(one) for one in subjects_in(objects) if isinstance(one, Subject)]
    return [
        (one.owner.kind, one.owner.name, one.number) if one.owner else (one.subject.kind.kind, one.subject.name, one.number)
        for one in choose_targets(one for one in kept if one is not None)
    ]


BOTH = pytest.mark.parametrize("choice", [chosen, leanly])


@BOTH
def test_a_job_set_its_jobs_and_their_pods_are_one_subject(choice: Any) -> None:
    whole = job_set()
    parts = [owned(job(f"set-workers-{at}"), whole) for at in range(2)]
    pods = [owned(a_pod(f"{part['metadata']['name']}-{at}"), part) for part in parts for at in range(2)]
    assert choice(whole, *parts, *pods) == [("JobSet", "set", 1)]


@BOTH
def test_a_deployment_its_replica_sets_and_their_pods_are_one_subject(choice: Any) -> None:
    whole = deployment()
    sets = [owned(replica_set(f"serve-{at}"), whole) for at in range(2)]
    pods = [owned(a_pod(f"{one['metadata']['name']}-{at}"), one) for one in sets for at in range(2)]
    assert choice(whole, *sets, *pods) == [("Deployment", "serve", 1)]


@BOTH
def test_the_pods_of_a_rollout_stand_together_under_it_and_its_replica_sets_say_nothing(choice: Any) -> None:
    sets = [owned(replica_set(f"canary-{at}"), ROLLOUT) for at in range(2)]
    pods = [owned(a_pod(f"{one['metadata']['name']}-{at}"), one) for one in sets for at in range(3)]
    assert choice(*sets, *pods) == [("Rollout", "canary", 6)]


@BOTH
def test_a_replica_set_that_nobody_made_stands_for_itself_and_its_pods(choice: Any) -> None:
    alone = replica_set()
    assert choice(alone, owned(a_pod(), alone)) == [("ReplicaSet", "serve-1", 1)]


@BOTH
def test_the_pods_of_an_operator_that_nobody_knows_are_counted_under_it(choice: Any) -> None:
    other = named("sparkoperator.k8s.io/v1beta2", "SparkApplication", "other")
    pods = [owned(a_pod(f"etl-{at}"), SPARK) for at in range(4)]
    assert choice(*pods, owned(a_pod("other-1"), other)) == [("SparkApplication", "etl", 4), ("SparkApplication", "other", 1)]


@BOTH
def test_jobs_of_an_operator_that_nobody_knows_stand_for_themselves(choice: Any) -> None:
    flow = named("argoproj.io/v1alpha1", "Workflow", "flow")
    steps = [owned(job(f"step-{at}"), flow) for at in range(2)]
    pods = [owned(a_pod(f"pod-{at}"), one) for at, one in enumerate(steps)]
    assert choice(*steps, *pods) == [("Job", "step-0", 1), ("Job", "step-1", 1)]


@BOTH
def test_a_cron_job_stands_for_its_jobs(choice: Any) -> None:
    cron = cron_job()
    run = owned(job("nightly-1"), cron)
    assert choice(cron, run, owned(a_pod("nightly-1-x"), run)) == [("CronJob", "nightly", 1)]


@BOTH
def test_each_mirror_of_a_static_pod_stands_for_itself_and_not_for_its_node(choice: Any) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1", "uid": "node-uid"}}
    pods = [owned(a_pod(f"{name}-gpu-1"), node) for name in ("exporter", "probe")]
    assert choice(*pods) == [("Pod", "exporter-gpu-1", 1), ("Pod", "probe-gpu-1", 1)]


@BOTH
def test_an_owner_that_asks_for_nothing_itself_leaves_its_parts_to_be_judged(choice: Any) -> None:
    train = named("trainer.kubeflow.org/v1alpha1", "TrainJob", "tune")
    whole = owned(job_set(), train)
    assert choice(train, whole, owned(job("set-workers-0"), whole)) == [("JobSet", "set", 1)]


def test_pods_whose_job_is_not_among_the_files_stand_together_under_it() -> None:
    pods = [owned(a_pod(f"train-{at}"), job()) for at in range(2)]
    assert chosen(*pods) == [("Job", "train", 2)]


def test_the_controller_keeps_no_text_of_pods_that_a_known_owner_made() -> None:
    kept = trim(subject(owned(a_pod(), job())))
    assert kept is not None
    assert kept.text == b""
    assert kept.owner is not None


def test_the_controller_keeps_nothing_of_what_neither_asks_nor_links() -> None:
    assert trim(subject(made(cpu_pod()))) is None
    assert trim(subject(deployment(gpus=0))) is None
    assert trim(subject(owned(replica_set(gpus=0), deployment(gpus=0)))) is not None


def test_a_pod_whose_owner_does_not_control_it_stands_for_itself() -> None:
    assert chosen(job(), owned(a_pod("guest"), job(), controller=False)) == [("Job", "train", 1), ("Pod", "guest", 1)]


# Files ------------------------------------------------------------------------------------------


def without_uid(obj: Json) -> Json:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "uid"}
    references = [{key: value for key, value in one.items() if key != "uid"} for one in metadata.get("ownerReferences", ())]
    return {**obj, "metadata": {**metadata, **({"ownerReferences": references} if references else {})}}


def test_without_uids_owners_of_one_name_in_two_namespaces_are_two() -> None:
    pods = [without_uid(owned(a_pod(f"etl-{at}"), SPARK)) for at in range(2)]
    pods[1]["metadata"]["namespace"] = "team-b"
    assert chosen(*pods) == [("SparkApplication", "etl", 1), ("SparkApplication", "etl", 1)]


def test_without_uids_the_pods_of_one_replica_set_are_not_put_under_the_owner_of_another() -> None:
    first, second = owned(replica_set("canary-1"), ROLLOUT), owned(replica_set("serve-1"), deployment())
    pods = [without_uid(owned(a_pod("canary-1-x"), first)), without_uid(owned(a_pod("serve-1-x"), second))]
    found = chosen(*map(without_uid, (first, second, deployment())), *pods)
    assert found == [("Deployment", "serve", 1), ("Rollout", "canary", 1)]


def test_without_uids_a_job_still_stands_for_its_pods() -> None:
    assert chosen(without_uid(job()), without_uid(owned(a_pod(), job()))) == [("Job", "train", 1)]


# Owners that nobody could have ------------------------------------------------------------------------------------------


def test_a_pod_that_claims_to_own_itself_is_judged() -> None:
    alone = a_pod("selfish")
    assert chosen(owned(alone, alone)) == [("Pod", "selfish", 1)]


def test_two_that_claim_to_own_each_other_are_judged() -> None:
    first, second = job("first"), job("second")
    assert chosen(owned(first, second), owned(second, first)) == [("Job", "first", 1), ("Job", "second", 1)]


def test_an_owner_in_another_namespace_hides_nothing() -> None:
    mine = owned(a_pod("hidden"), job())
    mine["metadata"]["namespace"] = "team-b"
    assert chosen(job(), mine) == [("Job", "train", 1), ("Job", "train", 1)]


# What asks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["metadata", "status"])
def test_what_is_being_deleted_or_has_ended_is_left_out(where: str) -> None:
    found = a_pod()
    found[where] = {
        **found.get(where, {}),
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"phase": "Succeeded"})[where == "status"],
    }
    assert chosen(found) == []


def test_a_deletion_time_of_null_is_none() -> None:
    found = a_pod()
    found["metadata"]["deletionTimestamp"] = None
    assert chosen(found) == [("Pod", "p", 1)]


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ({"conditions": [{"type": "Complete", "status": "True"}]}, True),
        ({"conditions": [{"type": "Completed", "status": "True"}]}, True),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, True),
        ({"conditions": [{"type": "Succeeded", "status": "True"}]}, True),
        ({"conditions": [{"type": "Failed", "status": "False"}]}, False),
        ({"conditions": [{"type": "Running", "status": "True"}]}, False),
        ({"jobDeploymentStatus": "Complete"}, True),
        ({"state": {"phase": "Aborted"}}, True),
        ({"state": "ready"}, False),
        ({"phase": "Running"}, False),
        ({"phase": ["Failed"]}, False),
        ({"conditions": "Complete"}, False),
        ({"conditions": ["Complete"]}, False),
        ("Complete", False),
        (None, False),
    ],
)
def test_a_workload_has_ended_by_its_status(status: Any, ended: bool) -> None:
    assert is_over({"status": status}) is ended


def test_a_claim_asks_whatever_it_is_for() -> None:
    found = made(cpu_pod())
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "mine"}]
    assert chosen(found) == [("Pod", "web", 1)]


def test_a_misspelt_accelerator_asks() -> None:
    found = a_pod()
    found["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpus": 1}}
    assert chosen(found) == [("Pod", "p", 1)]


def mirrored(spec: Json) -> bool:
    """The condition of the webhooks on a pod spec, in Python: manifests/base/webhook/mutating.yaml."""
    if spec.get("resourceClaims"):
        return True
    return any(
        "/" in name and str(amount) != "0" and not name.endswith("_monitoring") and looks(name)
        for key in ("containers", "initContainers")
        for container in spec.get(key) or ()
        for amounts in ((container.get("resources") or {}).get(kind) or {} for kind in ("limits", "requests"))
        for name, amount in amounts.items()
    )


def looks(name: str) -> bool:
    lowered = name.lower()
    words = ("gpu", "cuda", "gaudi", "neuron", "trainium", "inferentia", "mig.nvidia", "google.com/tpu", "cloud-tpu")
    return any(word in lowered for word in words) or any(f"mig{sign}{digit}" in lowered for sign in "-._" for digit in "0123456789")


NAMES = st.sampled_from(
    [
        *("nvidia.com/gpu", "nvidia.com/gpus", "NVIDIA.com/GPU", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-x", "amd.com/gpu"),
        *("gpu.intel.com/i915_monitoring", "gpu", "cpu", "memory", "rdma/hca", "google.com/tpu", "habana.ai/gaudi"),
        *("deviceclass.resource.kubernetes.io/mig.nvidia.com", "example.com/slots", "aws.amazon.com/neuroncore"),
    ]
)
AMOUNTS = st.dictionaries(NAMES, st.sampled_from(["0", "1", "8", "500m"]), max_size=3)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("c")}, optional={"resources": st.fixed_dictionaries({}, optional={"limits": AMOUNTS, "requests": AMOUNTS})}
    ),
    max_size=3,
)
SPECS = st.fixed_dictionaries(
    {"containers": CONTAINERS},
    optional={"initContainers": CONTAINERS, "resourceClaims": st.lists(st.just({"name": "c"}), max_size=1)},
)


@given(SPECS)
def test_what_the_audit_looks_at_is_what_the_webhooks_are_sent(spec: Json) -> None:
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    assert may_request_gpu(open_workload(POD, obj, EMPTY_SNAPSHOT)) is mirrored(spec)


# Room on GPU nodes ------------------------------------------------------------------------------

EVERYTHING = {"tolerations": [{"operator": "Exists"}]}
OF_A_DAEMON_SET = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]
BY_THE_AUTHOR = [{"manager": "kubectl-create", "operation": "Update", "fieldsV1": {"f:spec": {"f:nodeName": {}, "f:x": {}}}}]
BY_THE_SCHEDULER = [{"manager": "kubectl-create", "operation": "Update", "fieldsV1": {"f:spec": {"f:containers": {}}}}]


def cpu_object(kind: str = "Pod", spec: Json | None = None, **metadata: Any) -> Json:
    pods: Json = {"containers": [{"name": "c"}], **(spec or {})}
    metadata = {"name": "o", "namespace": "team-a", "uid": "u", **metadata}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": pods}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"template": {"spec": pods}}}


@pytest.mark.parametrize(
    "item",
    [
        cpu_object(spec=EVERYTHING),
        cpu_object("Deployment", EVERYTHING),
        cpu_object("Deployment", {"nodeName": "gpu-1"}),
        cpu_object(spec={"nodeName": "gpu-1"}, managedFields=BY_THE_AUTHOR),
    ],
)
def test_pods_without_gpus_that_may_take_room_on_gpu_nodes_are_looked_at(item: Json) -> None:
    subject = subject_of(item)
    assert subject is not None
    assert subject.requests_gpu
    # Whether the author named the node is still to be seen in what the audit keeps.
    kept = open_workload(subject.kind, orjson.loads(subject.text), EMPTY_SNAPSHOT)
    assert names_a_node(kept, kept.pod_sets[0]) is ("nodeName" in str(item["spec"]))


@pytest.mark.parametrize(
    "item",
    [
        cpu_object(spec={"nodeName": "gpu-1"}, managedFields=BY_THE_SCHEDULER),
        cpu_object(spec={"nodeName": "gpu-1"}),
        cpu_object("DaemonSet", EVERYTHING),
        cpu_object(spec=EVERYTHING, ownerReferences=OF_A_DAEMON_SET),
        cpu_object("Deployment", EVERYTHING, namespace="kube-system"),
        cpu_object("Deployment", {**EVERYTHING, "priorityClassName": "system-cluster-critical"}),
        cpu_object(spec={**EVERYTHING, "nodeName": "n"}, annotations={"kubernetes.io/config.mirror": "x"}),
        cpu_object(spec={"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}),
    ],
)
def test_pods_that_the_scheduler_bound_or_that_run_everywhere_are_not(item: Json) -> None:
    subject = subject_of(item)
    assert subject is not None
    assert not subject.requests_gpu


# Order ------------------------------------------------------------------------------------------


def cluster() -> list[Json]:
    whole, serve = job_set(), deployment()
    part, one = owned(job("set-workers-0"), whole), owned(replica_set(), serve)
    canary = owned(replica_set("canary-1"), ROLLOUT)
    pods = [owned(a_pod(f"pod-{at}"), owner) for owner in (part, one, canary, SPARK) for at in range(2)]
    for at, each in enumerate(pods):
        each["metadata"]["name"] = f"pod-{at}"
    loop = [owned(job("a"), job("b")), owned(job("b"), job("a"))]
    return [whole, serve, part, one, canary, *pods, *loop, a_pod("alone"), cron_job(), made(cpu_pod())]


@given(st.permutations(cluster()))
def test_the_order_of_the_objects_changes_nothing(objects: list[Json]) -> None:
    assert chosen(*objects) == chosen(*cluster()) == leanly(*objects)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=6))
def test_whoever_owns_whom_something_is_judged_and_nothing_twice(links: list[tuple[int, int]]) -> None:
    objects = [job(f"job-{at}") for at in range(6)]
    owner = dict(links)
    found = chosen(*(owned(one, objects[owner[at]]) if at in owner else one for at, one in enumerate(objects)))
    names = {name for _, name, _ in found}
    assert len(names) == len(found)
    for at in range(6):
        walked = [at]
        while walked[-1] in owner and owner[walked[-1]] not in walked:
            walked.append(owner[walked[-1]])
        # Somebody above it, or it itself, is judged.
        assert names & {f"job-{one}" for one in walked}


# What cannot be read ------------------------------------------------------------------------------------------


def spoilt(**fields: Any) -> Json:
    return {**a_pod(), **fields}


@pytest.mark.parametrize(
    "obj",
    [
        spoilt(metadata=["a"]),
        spoilt(metadata="a"),
        spoilt(metadata={"name": 1}),
        spoilt(metadata={"name": "p", "namespace": 7}),
        spoilt(metadata={"name": "p", "ownerReferences": "me"}),
        spoilt(metadata={"name": "p", "ownerReferences": ["me"]}),
        spoilt(spec=[]),
        spoilt(spec={"containers": {"name": "main"}}),
        spoilt(spec={"containers": [{"name": "main", "resources": []}]}),
        spoilt(spec={"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": []}}}]}),
        spoilt(spec={"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": {"a": 1}}}}]}),
    ],
)
def test_what_is_malformed_gives_a_line_and_not_an_exception(obj: Json) -> None:
    remarks = books_of(obj).remarks()
    assert len(remarks) == 1
    assert remarks[0].startswith("Pod")
    assert "cannot be" in remarks[0]


def nested(depth: int) -> Any:
    found: Any = "x"
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize("depth", [250, 255, 300, 990])
def test_what_is_nested_too_deeply_gives_a_line_and_not_an_exception(depth: int) -> None:
    deep = a_pod("deep", memory="48Gi", request="4Gi")
    deep["spec"]["more"] = nested(depth)
    books = books_of(deep, a_pod("fine"))
    assert [one.name for one in books.workloads() if one.name == "fine"] == ["fine"]
    assert len(books.workloads()) + len(books.remarks()) == 2


def test_objects_of_other_kinds_are_passed_over_whatever_they_hold() -> None:
    assert list(subjects_in([{}, {"kind": 1}, {"apiVersion": [], "kind": {}}, {"kind": "Node", "metadata": 7}])) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.group}/{kind.kind}")
def test_an_empty_object_of_every_kind_asks_for_nothing(kind: Any) -> None:
    api_version = f"{kind.group}/v1" if kind.group else "v1"
    found = subject_of({"apiVersion": api_version, "kind": kind.kind})
    assert found is not None
    assert not found.requests_gpu


def test_what_is_kept_of_an_object_lacks_what_no_rule_reads() -> None:
    found = a_pod()
    found["metadata"] |= {
        "managedFields": [
            {
                "manager": "argocd-controller",
                "operation": "Apply",
                "time": "t",
                "fieldsV1": {"f:spec": {"f:replicas": {}, "f:x": {}}},
            },
            "x",
        ],
        "annotations": {LAST_APPLIED: '{"spec": {"backoffLimit": 6, "template": {"spec": {}}}}', "keep": "me"},
    }
    found["status"] = {"phase": "Running", "containerStatuses": [{"name": "main"}]}
    kept = orjson.loads(subject(found).text)
    # Who states what the apiserver would fill in is told by these alone.
    told = {"f:spec": {"f:replicas": {}}}
    assert kept["metadata"]["managedFields"] == [{"manager": "argocd-controller", "operation": "Apply", "fieldsV1": told}]
    assert kept["metadata"]["annotations"] == {LAST_APPLIED: '{"spec":{"backoffLimit":{}}}', "keep": "me"}
    assert kept["status"] == {"phase": "Running"}
    assert kept["spec"] == found["spec"]


def test_generated_names_are_known_by_their_stem() -> None:
    found = pod()
    found["metadata"] = {"generateName": "train-"}
    assert subject(found).name == "train-"


def test_the_huge_are_judged_like_the_small() -> None:
    huge = a_pod()
    huge["spec"]["containers"] = [{**pod()["spec"]["containers"][0], "name": f"c{at}"} for at in range(1000)]
    (found,) = audited(huge)
    assert found.accelerators == 1000
    assert all(len(one.message) <= 1024 for one in found.items)


def test_a_write_that_changes_nothing_which_a_rule_reads_leaves_the_subject_as_it_was() -> None:
    before = subject_of(pod("a", resourceVersion="17", managedFields=[{"manager": "kubectl", "time": "2026-11-02T08:00:00Z"}]))
    after = subject_of(pod("a", resourceVersion="18", managedFields=[{"manager": "kubectl", "time": "2026-11-02T09:00:00Z"}]))
    fresh = subject_of(pod("a"))
    assert before is not None
    assert before == after
    assert fresh is not None
    assert b"resourceVersion" in before.text
    assert b"resourceVersion" not in fresh.text


def test_what_gets_at_accelerators_without_asking_is_judged_and_other_cpu_pods_are_not() -> None:
    taking = cpu_pod()
    taking["metadata"]["name"] = "taking"
    taking["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    tolerating = cpu_pod()
    tolerating["metadata"]["name"] = "tolerating"
    tolerating["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert chosen(cpu_pod(), taking, tolerating) == leanly(cpu_pod(), taking, tolerating)
    assert chosen(cpu_pod(), taking, tolerating) == [("Pod", "taking", 1), ("Pod", "tolerating", 1)]


def test_pods_of_one_owner_that_take_devices_are_of_another_sort_than_those_that_do_not() -> None:
    plain, taking = a_pod("etl-0"), a_pod("etl-1")
    taking["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    assert chosen(owned(plain, SPARK), owned(taking, SPARK)) == [("SparkApplication", "etl", 1)] * 2
