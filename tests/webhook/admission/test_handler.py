"""The door in this process: what is judged and what passes, how rules fail, and what the apiserver may be told."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import RawTestServer, TestClient

from gpugate.policies.findings import Mode
from gpugate.policies.policy import binding
from gpugate.policies.rules.registry import RULES
from gpugate.webhook.admission import handler as handlers
from gpugate.webhook.admission.admission_review import BadRequestError
from gpugate.webhook.admission.app import make_handler
from gpugate.webhook.files.inputs import load_facts
from tests.shared.reviews import (
    CLUSTER,
    FATAL_WORDS,
    InProcess,
    admission,
    counted,
    cpu_pod,
    overcommitted_pod,
    patch_of,
    patched,
    pod,
    policy,
    well_formed,
)

ENDPOINTS = ("mutate", "validate")
#: The last part of a qualified name: what the apiserver takes as the key of an audit annotation.
QUALIFIED_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def enforced_only(**rules: Any) -> InProcess:
    """A door whose policy speaks of these rules and no other."""
    return InProcess([policy(mode=None, rules={name.replace("_", "-"): settings for name, settings in rules.items()})])


def deployment(**pod_options: Any) -> dict[str, Any]:
    made = pod("ranker", **pod_options)
    template = {"metadata": {"labels": {"app": "ranker"}}, "spec": made["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "ranker"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": made["metadata"], "spec": spec}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    "review",
    [
        admission(None, operation="DELETE", old=overcommitted_pod()),
        admission(overcommitted_pod(), operation="CONNECT"),
        admission(overcommitted_pod(), operation="DELETE"),
        admission(overcommitted_pod(), operation="UPDATE", old=pod(), subResource="status"),
        admission(overcommitted_pod(), subResource="binding"),
        admission(overcommitted_pod(), subResource="eviction"),
        admission({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {}}),
        admission({**overcommitted_pod(), "apiVersion": "example.com/v1"}),
        admission({**overcommitted_pod(), "kind": "PodTemplate"}),
        admission({"apiVersion": "example.com/v1", "kind": "Training", "metadata": {"name": "own"}, "spec": 7}),
    ],
    ids=["delete", "connect", "delete with object", "status", "binding", "eviction", "service", "group", "kind", "custom"],
)
def test_what_is_none_of_gpugates_business_passes_untouched(endpoint: str, review: dict[str, Any]) -> None:
    assert set(InProcess().ask(review, endpoint)) == {"uid", "allowed"}
    assert InProcess().ask(review, endpoint)["allowed"]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_cpu_pod_passes_untouched(endpoint: str) -> None:
    review = admission(cpu_pod())
    untouched = {"uid": review["request"]["uid"], "allowed": True, "auditAnnotations": {"policies": "default@0"}}
    assert InProcess().ask(review, endpoint) == untouched


def test_an_answer_names_the_generations_of_the_policies_that_it_is_by() -> None:
    door = InProcess(
        [
            policy("team", generation=3, priority=1, mode=None, rules={"numa": {"mode": "DryRun"}}),
            policy("off", generation=12, priority=2, mode=None, rules={"gang": {"mode": "Disabled"}}),
            policy("default", generation=7),
            policy("unused", generation=9, priority=-1),
        ]
    )
    for endpoint in ENDPOINTS:
        assert door.ask(admission(pod()), endpoint)["auditAnnotations"]["policies"] == "default@7, off@12, team@3"
        assert door.lines[-1]["policies"] == "default@7, off@12, team@3"


def test_an_update_of_status_alone_passes_even_where_the_spec_is_an_old_sin() -> None:
    old = overcommitted_pod()
    new = {**deepcopy(old), "status": {"phase": "Running"}}
    for endpoint in ENDPOINTS:
        response = InProcess().ask(admission(new, operation="UPDATE", old=old), endpoint)
        assert response["allowed"]
        assert set(response) == {"uid", "allowed", "auditAnnotations"}
        assert set(response["auditAnnotations"]) == {"policies"}


def test_removing_a_finalizer_from_what_is_being_deleted_passes() -> None:
    old = overcommitted_pod(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["example.com/hold", "example.com/more"])
    new = deepcopy(old)
    new["metadata"]["finalizers"] = ["example.com/hold"]
    new["metadata"]["labels"] = {"changed": "too"}
    for endpoint in ENDPOINTS:
        response = InProcess().ask(admission(new, operation="UPDATE", old=old), endpoint)
        assert response["allowed"]
        assert set(response) == {"uid", "allowed", "auditAnnotations"}
        assert set(response["auditAnnotations"]) == {"policies"}


def test_a_label_on_an_old_sin_passes_with_a_warning() -> None:
    old = overcommitted_pod()
    new = deepcopy(old)
    new["metadata"]["labels"] = {"team": "vision"}
    response = InProcess().ask(admission(new, operation="UPDATE", old=old), "validate")
    assert response["allowed"]
    assert any(one.startswith("host-memory:") for one in response["warnings"])


def test_an_update_that_makes_it_worse_is_refused() -> None:
    old = deployment(memory="16Gi", request="8Gi")
    new = deployment(memory="48Gi", request="4Gi")
    response = InProcess().ask(admission(new, operation="UPDATE", old=old), "validate")
    assert not response["allowed"]
    assert "host-memory" in response["status"]["message"]


def test_a_resize_that_overcommits_is_refused_and_never_patched() -> None:
    old, new = pod(memory="16Gi", request="16Gi"), overcommitted_pod("train")
    review = admission(new, operation="UPDATE", old=old, subResource="resize")
    assert "patch" not in InProcess().ask(review)
    response = InProcess().ask(review, "validate")
    assert not response["allowed"]
    assert "limit 48Gi" in response["status"]["message"]


def test_an_ephemeral_container_that_asks_for_a_made_up_name_is_refused() -> None:
    old = pod(memory="16Gi", request="16Gi")
    new = deepcopy(old)
    bad = {"name": "debug", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu.mig-1g.5gb": 1}}}
    new["spec"]["ephemeralContainers"] = [bad]
    review = admission(new, operation="UPDATE", old=old, subResource="ephemeralcontainers")
    assert "patch" not in InProcess().ask(review)
    response = InProcess().ask(review, "validate")
    assert not response["allowed"]
    assert "spec.ephemeralContainers[0]" in response["status"]["message"]
    harmless = deepcopy(old)
    harmless["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "busybox"}]
    assert InProcess().ask({**review, "request": {**review["request"], "object": harmless}}, "validate")["allowed"]


def test_pods_are_never_patched_on_update() -> None:
    new = pod()
    new["metadata"]["labels"] = {"team": "vision"}
    assert "patch" not in InProcess().ask(admission(new, operation="UPDATE", old=pod()))


def test_a_create_with_an_old_object_is_judged_as_a_create() -> None:
    response = InProcess().ask(admission(overcommitted_pod(), old=overcommitted_pod()), "validate")
    assert not response["allowed"]


def test_an_update_without_the_old_object_is_answered() -> None:
    for endpoint in ENDPOINTS:
        InProcess().ask(admission(pod(), operation="UPDATE"), endpoint)


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_review_without_its_object_is_a_bad_request(operation: str) -> None:
    with pytest.raises(BadRequestError, match=r"request\.object"):
        InProcess().ask(admission(None, operation=operation, old=pod()))


def test_any_version_of_a_kind_is_judged() -> None:
    response = InProcess().ask(admission({**deployment(memory="48Gi", request="4Gi"), "apiVersion": "apps/v1beta9"}), "validate")
    assert not response["allowed"]


@pytest.mark.parametrize("words", ["is immutable", "Is Immutable", "immutable field", "field is immutable field is immutable"])
def test_a_denial_never_holds_the_words_that_make_gitops_delete_a_workload(words: str) -> None:
    obj = pod(words, annotations={"gpugate.io/exempt": "numa", "gpugate.io/exempt-reason": words})
    obj["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": words}
    container = obj["spec"]["containers"][0]
    container["name"] = words
    container["resources"] = {"limits": {f"nvidia.com/{words}": 1, "nvidia.com/gpu": "1.5", "memory": "48Gi"}}
    container["env"] = [{"name": "NCCL_TOPOLOGY_FILE", "value": words}]
    told = InProcess([policy(rules={"queue": {"required": True}})]).ask(admission(obj, namespace=words), "validate")
    assert not told["allowed"]
    assert "is fixed" in told["status"]["message"]
    for text in [told["status"]["message"], *told.get("warnings", [])]:
        assert not any(fatal in text.lower() for fatal in FATAL_WORDS)


def test_neither_does_the_answer_to_a_malformed_object() -> None:
    obj = pod()
    obj["spec"]["containers"][0]["resources"]["limits"]["memory"] = "memory is immutable"
    response = InProcess().ask(admission(obj), "validate")
    assert not response["allowed"]
    assert "spec.containers[0].resources.limits.memory" in response["status"]["message"]


def test_a_warning_holds_no_line_break_even_between_the_fatal_words() -> None:
    door = InProcess([policy(mode="Mutate")])
    obj = pod(annotations={"gpugate.io/gang-size": "is\nimmutable\x00\x1b[31m"})
    named = pod()
    named["spec"]["containers"][0]["name"] = "is\nimmutable\x9b"
    for asked, part in ((obj, "gang-size"), (named, "is fixed")):
        warnings = door.ask(admission(asked), "validate")["warnings"]
        assert any(part in one for one in warnings)
        for one in warnings:
            assert one.isprintable()
            assert "is immutable" not in one


def test_warnings_are_few_and_short() -> None:
    door = InProcess([policy(mode="Mutate")])
    obj = pod()
    bad = {"resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/" + "x" * 3000: 1}}}
    obj["spec"]["containers"] = [{"name": f"c{number}" + "n" * 3000, "image": "i", **bad} for number in range(60)]
    warnings = door.ask(admission(obj), "validate")["warnings"]
    assert 1 < len(warnings) <= 16
    assert all(len(one) <= 1024 for one in warnings)


def test_a_refusal_stays_short_and_keeps_its_remedy_however_many_containers_there_are() -> None:
    obj = pod(memory="1Gi")
    many = [{"name": f"c{number}", "image": "i", "resources": {"limits": {"memory": "900Gi"}}} for number in range(200)]
    obj["spec"]["containers"] += many
    door = InProcess(snapshot=load_facts([CLUSTER]))
    refused = door.ask(admission(obj), "validate")
    (line,) = [one for one in refused["status"]["message"].splitlines() if "host-memory" in one]
    assert "can ever hold the pod" in line
    assert "Request at most" in line
    assert len(line) < 2000
    assert max(len(one) for one in door.lines[-1]["denied"]) <= 1024


def test_a_refusal_for_very_many_reasons_tells_the_first_and_how_many_more() -> None:
    obj = overcommitted_pod()
    spec = obj["spec"]["containers"][0]
    obj["spec"]["containers"] = [{**spec, "name": f"c{number}" + "n" * 3000} for number in range(100)]
    message = InProcess().ask(admission(obj), "validate")["status"]["message"]
    first, *told, last = message.splitlines()
    assert "for 200 reasons" in first
    assert (len(told), last) == (16, "- and 184 more")
    # What a condition of an object may hold (`k8s.io/apimachinery` `metav1.Condition.message`).
    assert len(message) < 32768


def test_audit_annotations_have_valid_keys_and_are_short() -> None:
    obj = overcommitted_pod()
    spec = obj["spec"]["containers"][0]
    obj["spec"]["containers"] = [{**spec, "name": f"c{number}"} for number in range(100)]
    for mode in ("Enforce", "Mutate", "Warn", "DryRun"):
        for endpoint in ENDPOINTS:
            audit = InProcess([policy(mode=mode)]).ask(admission(obj), endpoint).get("auditAnnotations", {})
            assert audit, (mode, endpoint)
            for key, text in audit.items():
                assert QUALIFIED_PART.fullmatch(key), key
                assert len(key) <= 63
                assert 0 < len(text) <= 512


def test_every_mutation_is_an_audit_annotation() -> None:
    rules = {"host-memory": {"memoryPerAccelerator": "32Gi"}, "numa": {"guaranteed": "Always", "cpuPerAccelerator": 4}}
    response = InProcess([policy(rules=rules)]).ask(admission(pod()))
    assert {"tolerations", "host-memory", "numa", "shared-memory"} <= set(response["auditAnnotations"])


def test_dryrun_mode_changes_nothing_and_records_what_it_would_do() -> None:
    door = InProcess([policy(mode="DryRun")])
    mutated = door.ask(admission(pod()))
    assert set(mutated) == {"uid", "allowed", "auditAnnotations"}
    assert mutated["auditAnnotations"]["tolerations.dryrun"].startswith("would change: ")
    refused = door.ask(admission(overcommitted_pod()), "validate")
    assert refused["allowed"]
    assert "warnings" not in refused
    assert "Overcommit" in refused["auditAnnotations"]["host-memory.dryrun-deny"]
    assert door.count('gpugate_changes_total{mode="dryrun",rule="tolerations"}') == 1


def test_without_any_policy_the_default_runs_in_dryrun() -> None:
    door = InProcess([])
    assert "patch" not in door.ask(admission(pod()))
    assert door.ask(admission(overcommitted_pod()), "validate")["allowed"]


def test_mutate_changes_and_warns_and_never_refuses() -> None:
    door = InProcess([policy(mode="Mutate")])
    assert patch_of(door.ask(admission(pod())))
    response = door.ask(admission(overcommitted_pod()), "validate")
    assert response["allowed"]
    assert any("host-memory" in one for one in response["warnings"])


def test_the_request_of_an_object_with_only_a_generated_name_is_named_by_it() -> None:
    obj = overcommitted_pod()
    obj["metadata"] = {"generateName": "greedy-", "namespace": "team-a"}
    assert "Pod team-a/greedy-*" in InProcess().ask(admission(obj), "validate")["status"]["message"]


def test_the_door_writes_nothing_into_the_request_that_a_second_review_would_see() -> None:
    door = InProcess()
    first, second = door.ask(admission(pod())), door.ask(admission(pod()))
    assert first == second


def test_operations_that_nobody_knows_share_one_series() -> None:
    door = InProcess()
    for number in range(50):
        door.ask(admission(pod(), operation=f"OPERATION-{number}"))
    series = 'gpugate_reviews_total{endpoint="mutate",kind="Pod",operation="other",outcome="passed"}'
    assert door.count(series) == 50
    assert "OPERATION-" not in door.metrics.text().decode()


def test_kinds_that_nobody_knows_share_one_series() -> None:
    door = InProcess()
    for number in range(50):
        door.ask(admission({**pod(), "kind": f"Kind{number}"}))
    assert door.count('gpugate_reviews_total{endpoint="mutate",kind="other",operation="CREATE",outcome="passed"}') == 50


def test_an_exemption_from_a_rule_that_does_not_exist_is_a_warning() -> None:
    response = InProcess().ask(admission(pod(annotations={"gpugate.io/exempt": "no-such-rule"})), "validate")
    assert any("no-such-rule" in one and "which is not a rule" in one for one in response["warnings"])


# Rules that break.


class BrokenError(Exception):
    pass


def boom(*_: Any, **_named: Any) -> Any:
    message = "the rule is broken: the field is immutable"
    raise BrokenError(message)


@pytest.fixture(params=["mutate", "check"])
def broken_rule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The catalogue with tolerations broken in one of its two functions; gives the endpoint that calls it."""
    rules = tuple(replace(rule, **{request.param: boom}) if rule.id == "tolerations" else rule for rule in RULES)
    monkeypatch.setattr(binding, "RULES", rules)
    return "mutate" if request.param == "mutate" else "validate"


async def ask_app(door: InProcess, endpoint: str) -> tuple[int, bytes, str]:
    async with TestClient(RawTestServer(make_handler(door.state, door.metrics, door.log))) as client:
        answer = await client.post(f"/{endpoint}", json=admission(pod(memory="16Gi", request="16Gi"), uid="broken"))
        body = await answer.read()
        return answer.status, body, door.metrics.text().decode()


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["Enforce", "Mutate", "Warn", "DryRun"])
async def test_a_rule_that_breaks_refuses_in_enforce_alone_is_counted_and_logged(broken_rule: str, mode: str) -> None:
    door = InProcess([policy(mode=mode)])
    status, body, exposition = await ask_app(door, broken_rule)
    assert status == 200
    response = well_formed(body)
    assert response["allowed"] == (mode != "Enforce")
    if mode == "Enforce":
        assert "tolerations" in response["status"]["message"]
        assert "an error in gpugate, not in the object" in response["status"]["message"]
        assert "the rule is broken" not in response["status"]["message"]
    assert bool(response.get("warnings")) == (mode in {"Mutate", "Warn"})
    assert counted(exposition, 'gpugate_rule_failures_total{rule="tolerations"}') == 1
    (line,) = [one for one in door.lines if one["message"] == "rule failed"]
    assert (line["level"], line["uid"], line["rule"]) == ("error", "broken", "tolerations")
    assert "BrokenError: the rule is broken" in line["traceback"]
    assert "in boom" in line["traceback"]


def test_the_other_rules_still_act_beside_a_broken_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = tuple(replace(rule, mutate=boom) if rule.id == "tolerations" else rule for rule in RULES)
    monkeypatch.setattr(binding, "RULES", rules)
    obj = pod()
    response = InProcess([policy(mode="Mutate")]).ask(admission(obj))
    after = patched(obj, response)
    assert "tolerations" not in after["spec"]
    assert after["spec"]["volumes"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("endpoint", "mode", "allowed"), [("mutate", "Enforce", True), ("validate", "Enforce", False), ("validate", "DryRun", True)]
)
async def test_an_error_outside_of_the_rules_is_answered_too(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, mode: str, allowed: bool
) -> None:
    monkeypatch.setattr(handlers, "decide", boom)
    door = InProcess([policy(mode=mode)])
    status, body, exposition = await ask_app(door, endpoint)
    assert status == 200
    response = well_formed(body)
    assert response["allowed"] == allowed
    assert ("warnings" in response) == (allowed and mode != "DryRun")
    assert "gpugate_rule_failures_total{" in exposition
    (line,) = [one for one in door.lines if one["message"] == "review failed"]
    assert line["uid"] == "broken"
    assert "BrokenError" in line["traceback"]


@pytest.mark.parametrize(("mode", "allowed"), [("Enforce", False), ("Mutate", True), ("Warn", True), ("DryRun", True)])
def test_a_malformed_object_is_refused_only_where_some_rule_may_refuse(mode: str, allowed: bool) -> None:
    obj = pod()
    obj["spec"]["containers"] = {"main": {}}
    for endpoint in ENDPOINTS:
        response = InProcess([policy(mode=mode)]).ask(admission(obj), endpoint)
        assert response["allowed"] == allowed
        assert ("warnings" in response) == (mode in {"Mutate", "Warn"})
        text = response["status"]["message"] if not allowed else response.get("warnings", [""])[0]
        assert "spec.containers: must be a list, is a map" in (text or response["auditAnnotations"]["undecided"])


def test_a_policy_for_other_namespaces_leaves_this_one_alone() -> None:
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team-b"}}}
    door = InProcess([policy(match=selector)])
    response = door.ask(admission(overcommitted_pod()), "validate")
    assert set(response) == {"uid", "allowed", "auditAnnotations"}
    assert response["auditAnnotations"] == {"policies": "none"}
    elsewhere = overcommitted_pod()
    elsewhere["metadata"]["namespace"] = "team-b"
    assert not door.ask(admission(elsewhere, namespace="team-b"), "validate")["allowed"]


def test_the_modes_are_the_five_that_the_documents_name() -> None:
    assert {mode.value for mode in Mode} == {"Enforce", "Mutate", "Warn", "DryRun", "Disabled"}


@pytest.mark.parametrize("mode", ["Enforce", "Mutate", "Warn", "DryRun"])
def test_an_object_over_a_limit_is_counted_as_unjudged_once_for_each_limit(mode: str) -> None:
    door = InProcess([policy(mode=mode, rules={"object-size": {"volumes": 1, "tolerations": 1}})])
    obj = pod()
    obj["spec"]["volumes"] = [{"name": f"v{at}", "emptyDir": {}} for at in range(3)]
    for endpoint in ENDPOINTS:
        door.ask(admission(pod()), endpoint)
        door.ask(admission(obj), endpoint)
    assert door.count('gpugate_unjudged_objects_total{reason="TooManyVolumes"}') == 1
    assert door.metrics.text().decode().count("\ngpugate_unjudged_objects_total{") == 1
