"""What an audit says of one workload: effects by mode, whose it is, how many pods and accelerators, and exemptions."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import SyncState
from gpugate.policies.findings import Mode
from gpugate.policies.kube.times import instant_of
from gpugate.policies.policy.models import Policy
from gpugate.webhook.audit.model import AuditedWorkload, Effect, Exemption
from tests.shared.audits import Json, a_pod, audited, books_of, deployment, job, job_set, made, named, owned
from tests.shared.reviews import overcommitted_pod, pod, policy

NOW = instant_of("2026-06-01T12:00:00Z")
GREEDY = made(overcommitted_pod())


def only(rule: str, mode: str = "Enforce", **settings: Any) -> Policy:
    """A policy that binds one rule."""
    return policy("p", generation=3, mode=None, rules={rule: {"mode": mode, **settings}})


def one(obj: Json, *policies: Policy, **context: Any) -> AuditedWorkload:
    (found,) = audited(obj, policies=policies or None, **context)
    return found


def effects(found: AuditedWorkload, rule: str) -> list[tuple[Effect, Mode]]:
    return [(item.effect, item.mode) for item in found.items if item.rule == rule]


@pytest.mark.parametrize(
    ("mode", "effect"),
    [("Enforce", Effect.REFUSE), ("DryRun", Effect.REFUSE), ("Mutate", Effect.WARN)],
)
def test_what_would_be_refused_is_said_by_the_mode_of_the_rule(mode: str, effect: Effect) -> None:
    found = one(GREEDY, only("host-memory", mode))
    assert (effect, Mode(mode)) in effects(found, "host-memory")
    assert found.outcome == effect.value
    assert all(item.rehearsed is (mode == "DryRun") for item in found.items)
    assert {item.policy for item in found.items} == {"p@3"}


def test_a_disabled_rule_says_nothing() -> None:
    found = one(GREEDY, only("host-memory", "Disabled"))
    assert found.items == ()
    assert found.outcome == "clean"


@pytest.mark.parametrize("mode", ["Enforce", "DryRun"])
@pytest.mark.parametrize(("on_unknown", "effect"), [("Warn", Effect.UNKNOWN), ("Refuse", Effect.REFUSE)])
def test_what_cannot_be_judged_is_unknown_or_refused_as_the_policy_says(mode: str, on_unknown: str, effect: Effect) -> None:
    snapshot = snapshot_from_objects([], {"nodes": SyncState.PENDING, "pods": SyncState.PENDING})
    found = one(a_pod(), only("commitment", mode, onUnknown=on_unknown), snapshot=snapshot)
    assert effects(found, "commitment") == [(effect, Mode(mode))]


def test_a_change_says_what_is_changed_and_is_its_own_remedy() -> None:
    found = one(a_pod(), only("tolerations", "DryRun"))
    (change,) = found.items
    assert (change.effect, change.reason, change.path, change.remedy) == (Effect.CHANGE, "Changed", "", "")
    assert "nvidia.com/gpu" in change.message
    assert found.outcome == "change"


def test_the_object_itself_is_not_changed_by_being_judged() -> None:
    books = books_of(a_pod())
    before = [each.subject.text for each in books.targets()]
    assert before == [each.subject.text for each in books_of(a_pod()).targets()]
    assert b"toleration" not in before[0]


# Whose it is -----------------------------------------------------------------------------------------------


def namespace(**labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "labels": labels}}


def test_the_workloads_own_label_comes_before_its_pods_and_these_before_the_namespaces() -> None:
    snapshot = snapshot_from_objects([namespace(team="namespace")])
    bare = deployment()
    assert one(bare, snapshot=snapshot).team == "namespace"
    bare["spec"]["template"]["metadata"] = {"labels": {"team": "template"}}
    assert one(bare, snapshot=snapshot).team == "template"
    bare["metadata"]["labels"] = {"owner": "itself"}
    assert one(bare, snapshot=snapshot).team == "itself"
    bare["metadata"]["labels"]["gpugate.io/team"] = "told"
    assert one(bare, snapshot=snapshot).team == "told"


def test_other_labels_name_the_team_where_that_is_asked_for() -> None:
    found = a_pod()
    found["metadata"]["labels"] = {"team": "a", "cost-centre": "b"}
    assert one(found).team == "a"
    assert one(found, team_labels=("cost-centre",)).team == "b"
    assert one(found, team_labels=("nothing",)).team == ""


def test_a_label_that_is_empty_or_no_text_names_nobody() -> None:
    found = a_pod()
    found["metadata"]["labels"] = {"gpugate.io/team": "", "gpugate.io/owner": 7, "team": "a"}
    assert one(found).team == "a"


# How many --------------------------------------------------------------------------------------------------


def figures(found: AuditedWorkload) -> tuple[int, dict[str, int]]:
    return found.pods, dict(found.devices)


def test_pods_and_accelerators_of_kinds() -> None:
    assert figures(one(deployment(replicas=3, gpus=2))) == (3, {"nvidia.com/gpu": 6})
    assert figures(one(job(parallelism=4, completions=2))) == (2, {"nvidia.com/gpu": 2})
    assert figures(one(job_set(replicas=2, parallelism=3, completions=3, gpus=8))) == (6, {"nvidia.com/gpu": 48})
    assert figures(one(deployment(replicas=0))) == (0, {})


def test_a_daemon_set_has_as_many_pods_as_its_controller_says() -> None:
    daemon = {**deployment("exporter"), "kind": "DaemonSet"}
    assert figures(one(daemon)) == (0, {})
    assert figures(one({**daemon, "status": {"desiredNumberScheduled": 5}})) == (5, {"nvidia.com/gpu": 5})
    assert figures(one({**daemon, "status": "five"})) == (0, {})


def test_a_leader_worker_set_counts_leaders_and_workers() -> None:
    template = {"spec": pod(gpus=8)["spec"]}
    found = named("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve")
    found["spec"] = {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": template}}
    assert figures(one(found)) == (8, {"nvidia.com/gpu": 64})
    cpu = {"spec": {"containers": [{"name": "leader"}]}}
    found["spec"]["leaderWorkerTemplate"]["leaderTemplate"] = cpu
    assert figures(one(found)) == (6, {"nvidia.com/gpu": 48})


def test_claims_are_counted_by_pod() -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "namespace": "team-a"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
    }
    found = deployment(replicas=3, gpus=0)
    found["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "mine"}]
    assert figures(one(found, snapshot=snapshot_from_objects([claim]))) == (3, {"resource claims": 3})


def test_the_pods_of_an_unknown_owner_are_told_of_under_its_name_and_counted() -> None:
    spark = named("sparkoperator.k8s.io/v1beta2", "SparkApplication", "etl")
    (found,) = audited(*(owned(made(overcommitted_pod(f"etl-{at}")), spark) for at in range(3)))
    assert (found.api_version, found.kind, found.name) == ("sparkoperator.k8s.io/v1beta2", "SparkApplication", "etl")
    assert found.uid == spark["metadata"]["uid"]
    assert figures(found) == (3, {"nvidia.com/gpu": 3})
    assert found.outcome == "refuse"


def test_the_sorts_of_pods_of_an_unknown_owner_are_each_judged_and_are_one_workload() -> None:
    spark = named("sparkoperator.k8s.io/v1beta2", "SparkApplication", "etl")
    driver = owned(made(pod("a-driver", gpus=1, memory="32Gi", request="32Gi")), spark)
    executors = [owned(made(pod(f"executor-{at}", gpus=4, memory="48Gi", request="4Gi")), spark) for at in range(3)]
    (found,) = audited(driver, *executors)
    assert found.name == "etl"
    assert figures(found) == (4, {"nvidia.com/gpu": 13})
    # The driver, first by its name, is right; what the others do wrong is told all the same, and once.
    assert found.outcome == "refuse"
    assert len(found.items) == len(set(found.items))
    (alone,) = audited(driver)
    assert alone.outcome != "refuse"


def test_who_keeps_it_in_git_and_its_queue_are_told() -> None:
    found = job()
    found["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    found["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": "x"}
    assert (one(found).queue, one(found).in_git) == ("research", True)
    assert (one(job()).queue, one(job()).in_git) == ("", False)


# Exemptions ------------------------------------------------------------------------------------------------


def pleading(rules: str = "host-memory", **more: str) -> Json:
    said = {"exempt": rules, "exempt-reason": "a benchmark", **{key.replace("_", "-"): value for key, value in more.items()}}
    return made(overcommitted_pod(annotations={f"gpugate.io/{key}": value for key, value in said.items()}))


ALLOWING = policy(exemptions={"rules": ["host-memory"]})


def test_an_active_exemption_is_told_with_its_owner_and_end_and_the_rule_says_nothing_else() -> None:
    found = one(pleading(exempt_owner="dana", exempt_until="2026-07-01"), ALLOWING, now=NOW)
    assert found.exemption == Exemption(("host-memory",), "a benchmark", "dana", "2026-07-01", "active")
    assert [effect for effect, _ in effects(found, "host-memory")] == [Effect.EXEMPT]
    assert found.outcome != "refuse"


def test_an_exemption_that_has_ended_is_expired_and_the_rule_applies() -> None:
    found = one(pleading(exempt_until="2026-05-01"), ALLOWING, now=NOW)
    assert found.exemption is not None
    assert found.exemption.state == "expired"
    assert found.outcome == "refuse"


def test_without_a_time_no_exemption_has_ended() -> None:
    found = one(pleading(exempt_until="2026-05-01"), ALLOWING)
    assert found.exemption is not None
    assert found.exemption.state == "active"


def test_an_exemption_that_the_policy_does_not_allow_is_refused_and_the_rule_applies() -> None:
    found = one(pleading(), policy(), now=NOW)
    assert found.exemption is not None
    assert found.exemption.state == "refused"
    assert found.outcome == "refuse"


def test_a_rule_in_dry_run_tells_of_an_exemption_as_one_in_enforce() -> None:
    dry = policy(mode="DryRun", exemptions={"rules": ["*"]})
    found = one(pleading("*"), dry, now=NOW)
    assert found.exemption is not None
    assert (found.exemption.rules, found.exemption.state) == (("*",), "active")
    assert found.outcome == "clean"


def test_nobody_asks_for_an_exemption_by_an_empty_annotation() -> None:
    assert one(pleading(""), ALLOWING).exemption is None


# Malformed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "status"),
    [
        ({"labels": {"team": 7}}, None),
        ({"labels": ["team"]}, None),
        ({"annotations": {"gpugate.io/exempt": 7}}, None),
        ({"managedFields": "me"}, None),
        ({}, "Running"),
        ({}, ["Running"]),
        ({"annotations": {"gpugate.io/exempt": "*", "gpugate.io/exempt-until": "\ud7ff" * 5000}}, None),
    ],
)
def test_whatever_is_malformed_it_is_judged_or_a_remark_says_why_not(metadata: Json, status: Any) -> None:
    found = {**a_pod(), "status": status}
    found["metadata"] = {**found["metadata"], **metadata}
    books = books_of(found, a_pod("fine"))
    assert [each.name for each in books.workloads() if each.name == "fine"] == ["fine"]
    assert len(books.workloads()) + len(books.remarks()) == 2


def test_long_texts_are_cut() -> None:
    found = one(pleading(exempt_reason="é" * 5000, exempt_owner="o" * 5000), ALLOWING)
    assert found.exemption is not None
    assert len(found.exemption.reason) == len(found.exemption.owner) == 1024
    assert all(len(text) <= 1024 for item in found.items for text in (item.message, item.remedy))
