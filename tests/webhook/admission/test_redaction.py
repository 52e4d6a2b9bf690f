"""Recorded reviews hold no secrets, and the rules decide by them as by the whole ones."""

from __future__ import annotations

import ast
from copy import deepcopy
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.findings import Mode
from gpugate.policies.framework.decision import Decision, Phase
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.rules.lifecycle.environment import checks as environment
from gpugate.policies.rules.lifecycle.environment.variables import CAPABILITIES
from gpugate.policies.workloads.device_access import VARIABLES
from gpugate.webhook.admission.admission_review import parse_review
from gpugate.webhook.admission.handler import open_request
from gpugate.webhook.admission.redaction import Redactor
from gpugate.webhook.files.documents import Document, read_all
from gpugate.webhook.files.inputs import load_facts, load_policies
from tests.shared import cases
from tests.shared.reviews import CLUSTER, POLICY, ROOT, WORKLOADS, admission, pod

KEY = b"0123456789abcdef"
SECRET = "hunter2-do-not-tell"  # noqa: S105 - it opens nothing
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def hidden(review: dict[str, Any], key: bytes = KEY) -> dict[str, Any]:
    return Redactor(key).review(review)


def noisy(obj: dict[str, Any]) -> dict[str, Any]:
    """``obj`` with everything that is to be left out, in its metadata and in each of its containers."""
    made = deepcopy(obj)
    metadata = made.setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), APPLIED: SECRET, "example.com/login": SECRET}
    metadata["managedFields"] = [*(metadata.get("managedFields") or []), {"manager": "kubectl", "fieldsV1": {SECRET: {}}}]
    for container in _containers(made):
        container["args"] = ["--token", SECRET]
        container["command"] = ["sh", "-c", f"login {SECRET}"]
        variables = container.get("env")
        if variables is None or isinstance(variables, list):
            container["env"] = [*(variables or []), {"name": "WANDB_API_KEY", "value": SECRET}, {"name": "PLAIN", "value": SECRET}]
        container["livenessProbe"] = {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}}
    return made


def _containers(value: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if isinstance(value, dict):
        for key, item in value.items():
            if key in {"containers", "initContainers"} and isinstance(item, list):
                found += [one for one in item if isinstance(one, dict)]
            found += _containers(item)
    elif isinstance(value, list):
        for item in value:
            found += _containers(item)
    return found


def decided(review: dict[str, Any], policies: PolicySet, snapshot: ClusterSnapshot, phase: Phase) -> Decision:
    workload = open_request(parse_review(deepcopy(review)), snapshot, policies.most_pod_sets)
    assert workload is not None
    bound = policies.bind(snapshot.namespace_labels(workload.namespace), workload.labels())
    return decide(workload, bound, snapshot, phase)


def examples() -> list[dict[str, Any]]:
    found = [one.value for one in read_all([str(WORKLOADS)]) if isinstance(one, Document)]
    return [one for one in found if one["kind"] not in {"ResourceClaimTemplate", "ResourceClaim", "PodGroup"}]


def without_patch_of_annotations(decision: Decision) -> tuple[Any, ...]:
    return decision.patch, decision.changes, decision.would_change, decision.findings


@pytest.mark.parametrize("mode", ["Enforce", "DryRun"])
@pytest.mark.parametrize("phase", [Phase.MUTATE, Phase.CHECK, Phase.REVIEW], ids=str)
def test_every_example_is_decided_alike_with_and_without_its_secrets(mode: str, phase: Phase) -> None:
    snapshot = load_facts([CLUSTER])
    loaded = load_policies([POLICY])
    policies = PolicySet([one.model_copy(update={"spec": one.spec.model_copy(update={"mode": Mode(mode)})}) for one in loaded])
    seen = 0
    for obj in examples():
        for review in (
            admission(noisy(obj), namespace=obj["metadata"].get("namespace", "default")),
            admission(noisy(obj), operation="UPDATE", old=obj, namespace=obj["metadata"].get("namespace", "default")),
        ):
            try:
                whole = decided(review, policies, snapshot, phase)
            except AssertionError:
                continue
            reduced = hidden(review)
            assert SECRET not in orjson.dumps(reduced).decode()
            assert without_patch_of_annotations(decided(reduced, policies, snapshot, phase)) == without_patch_of_annotations(whole)
            seen += 1
    assert seen > 60


@pytest.mark.parametrize("case", cases.all_cases(), ids=str)
def test_every_golden_case_is_decided_alike_with_and_without_its_secrets(case: cases.Case) -> None:
    # That an object went through the API at all is told by its managed fields: the noise is there in both.
    content = {**case.content, "given": noisy(case.given)}
    if "old" in content:
        content["old"] = noisy(content["old"])
    loud = replace(case, content=content)
    whole = loud.decide(loud.given)
    if "old" in content:
        both = hidden(admission(content["given"], operation="UPDATE", old=content["old"]))["request"]
        content = {**content, "given": both["object"], "old": both["oldObject"]}
    else:
        content = {**content, "given": hidden(admission(content["given"]))["request"]["object"]}
    reduced = replace(case, content=content)
    now = reduced.decide(reduced.given)
    assert (now.findings, now.changes, now.would_change) == (whole.findings, whole.changes, whole.would_change)


def test_the_environment_that_a_rule_reads_is_kept() -> None:
    """Rules name it in calls of ``env``, one has a table of it; whatever a new rule names must be in the recordings, too."""
    named = set()
    for path in (ROOT / "policies").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "env":
                named |= {one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    named |= {*environment.DEBUGGING_VARIABLES, CAPABILITIES, *VARIABLES}
    assert len(named) > 6
    obj = pod()
    obj["spec"]["containers"][0]["env"] = [{"name": name, "value": "kept"} for name in sorted(named)]
    (container,) = hidden(admission(obj))["request"]["object"]["spec"]["containers"]
    assert [one["value"] for one in container["env"]] == ["kept"] * len(named)


def test_what_tells_gpugate_queues_and_schedulers_something_is_kept() -> None:
    kept = {
        "gpugate.io/exempt": "numa",
        "kueue.x-k8s.io/podset-required-topology": "rack",
        "scheduling.volcano.sh/queue-name": "q",
        "scheduling.k8s.io/group-name": "g",
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "zone",
        "leaderworkerset.sigs.k8s.io/exclusive-topology": "zone",
        "owner": "data-science-squad",
        "cost-center": "4711",
    }
    found = hidden(admission(pod(annotations={**kept, APPLIED: SECRET, "note": SECRET})))["request"]["object"]
    annotations = found["metadata"]["annotations"]
    assert {key: annotations[key] for key in kept} == kept
    assert annotations[APPLIED].startswith("hidden-")
    assert annotations["note"].startswith("hidden-")


def test_equal_values_of_one_review_stay_equal_and_those_of_two_cannot_be_compared() -> None:
    old = noisy(pod())
    new = deepcopy(old)
    same = hidden(admission(new, operation="UPDATE", old=old))["request"]
    assert same["object"] == same["oldObject"]
    new["spec"]["containers"][0]["args"][1] = "another"
    other = hidden(admission(new, operation="UPDATE", old=old))["request"]
    assert other["object"]["spec"] != other["oldObject"]["spec"]
    again = hidden(admission(new, operation="UPDATE", old=old), b"fedcba9876543210")["request"]
    assert again["object"]["spec"]["containers"][0]["args"] != other["object"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("spec", "containers"), [{"name": "c", "lifecycle": {"postStart": {"exec": {"command": [SECRET]}}}}]),
        (("spec", "volumes"), [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"key": SECRET}}}]),
        (("spec", "volumes"), [{"name": "v", "flexVolume": {"options": {"user": SECRET}}}]),
        (("spec", "rayStartParams"), {"redis-password": SECRET}),
        (("spec", "entrypoint"), f"python train.py --token={SECRET}"),
        (("spec", "runtimeEnvYAML"), f"env_vars: {{TOKEN: {SECRET}}}"),
        (("spec", "serveConfigV2"), SECRET),
        (("spec", "components"), [{"template": {"kind": "Secret", "stringData": {"a": SECRET}, "data": {"b": SECRET}}}]),
        (("spec", "modelUri"), f"https://user:{SECRET}@models.example.com/x"),
        (("spec", "apiKey"), SECRET),
        (("spec", "hfAccessToken"), SECRET),
        (("status", "conditions"), [{"type": "Failed", "message": SECRET}]),
        (("metadata", "managedFields"), [{"manager": SECRET, "fieldsV1": {SECRET: {}}}]),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_secrets_are_left_out_wherever_they_are_kept(place: tuple[str, str], value: Any) -> None:
    obj = pod()
    obj.setdefault(place[0], {})[place[1]] = value
    review = admission(obj, operation="UPDATE", old=deepcopy(obj))
    assert SECRET in orjson.dumps(review).decode()
    assert SECRET not in orjson.dumps(hidden(review)).decode()


@pytest.mark.parametrize(
    "spec",
    [
        {"imagePullSecrets": [{"name": "pull"}], "automountServiceAccountToken": False},
        {"volumes": [{"name": "v", "secret": {"secretName": "mine"}}]},
        {"containers": [{"name": "c", "env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}]}]},
        {"containers": [{"name": "c", "resources": {"limits": {"example.com/secret-gpu": "1"}}}]},
        {"nodeSelector": {"example.com/token-ring": "true"}},
    ],
    ids=str,
)
def test_names_and_amounts_are_no_secrets(spec: dict[str, Any]) -> None:
    obj = {**pod(), "spec": spec}
    assert hidden(admission(obj))["request"]["object"]["spec"] == spec


def test_of_the_user_name_and_groups_are_kept_and_of_the_request_what_decides() -> None:
    user = {"username": "dana", "groups": ["ml"], "uid": "7", "extra": {"scopes.example.com": [SECRET]}}
    found = hidden(admission(pod(), userInfo=user, options={"fieldManager": SECRET}))
    assert found["request"]["userInfo"] == {"username": "dana", "groups": ["ml"]}
    assert SECRET not in orjson.dumps(found).decode()
    assert parse_review(found)._replace(user="") == parse_review(admission(pod()))._replace(user="")


def test_a_gitops_tool_is_still_known_by_its_field_manager() -> None:
    fields = [{"manager": "argocd-controller", "operation": "Apply"}, {"manager": "kubectl"}]
    found = hidden(admission(pod(managedFields=fields)))["request"]["object"]
    assert found["metadata"]["managedFields"] == [{"manager": "argocd-controller", "operation": "Apply"}, {"manager": "somebody"}]


def test_what_gpugate_wrote_and_recorded_itself_is_kept() -> None:
    record = '[["add","/spec/template/spec/containers/0/env/-",{"name":"UCX_TLS","value":"rc"}]]'
    obj = pod(annotations={"gpugate.io/mutations": record})
    obj["spec"]["containers"][0]["env"] = [{"name": "UCX_TLS", "value": "rc"}, {"name": "OTHER", "value": SECRET}]
    found = hidden(admission(obj))["request"]["object"]["spec"]["containers"][0]["env"]
    assert found[0]["value"] == "rc"
    assert found[1]["value"].startswith("hidden-")
