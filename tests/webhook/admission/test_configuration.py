"""The webhook configurations of given policies: each object is sent to one webhook, which fails closed where it must."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from typer.testing import CliRunner

from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.failing_closed import FailingClosed
from gpugate.policies.policy.models import LabelSelector, Policy, default_policy
from gpugate.policies.workloads.kinds import KINDS, WorkloadKind
from gpugate.webhook.admission.configuration import configuration
from gpugate.webhook.cli import policies as command
from gpugate.webhook.files.yaml import yaml_reader
from tests.shared.builders import policy

NAME = "kubernetes.io/metadata.name"
#: The most webhooks of one configuration, and the most bytes that etcd stores of an object by default, less room to spare.
MOST_WEBHOOKS, MOST_BYTES = 110, 1_000_000
_NAME_OF_WEBHOOK = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?){2,}")


def webhooks(*policies: Policy, endpoint: str = "validate") -> list[Any]:
    """The webhooks of a configuration for these policies."""
    parsed = YAML(typ="safe").load(configuration(endpoint, FailingClosed(PolicySet(policies))))
    listed: list[Any] = parsed["webhooks"]
    return listed


def of_takers(webhook: Any) -> bool:
    return str(webhook["name"]).startswith("takers-")


def gets(webhook: Any, kind: WorkloadKind, namespace: dict[str, str]) -> bool:
    """Whether the webhook gets new objects of ``kind`` in a namespace with these labels, by its rules and its selector."""
    ruled = any(
        kind.group in rule["apiGroups"] and kind.resource in rule["resources"] and "CREATE" in rule["operations"]
        for rule in webhook["rules"]
    )
    return ruled and LabelSelector.model_validate(webhook["namespaceSelector"], by_alias=True).matches(namespace)


_TEAMS = ["a", "b", "yes", "1"]
_SELECTORS = st.one_of(
    st.just({}),
    st.sampled_from(_TEAMS).map(lambda team: {"matchLabels": {"team": team}}),
    st.sampled_from(["train", "serve"]).map(lambda name: {"matchLabels": {NAME: name}}),
    st.sampled_from(["In", "NotIn"]).map(
        lambda operator: {"matchExpressions": [{"key": "team", "operator": operator, "values": ["a", "1"]}]}
    ),
    st.sampled_from(["Exists", "DoesNotExist"]).map(lambda operator: {"matchExpressions": [{"key": "env", "operator": operator}]}),
    st.just({"matchLabels": {"env": "prod", "team": "b"}}),
)
_SPECS = st.fixed_dictionaries(
    {
        "priority": st.integers(0, 3),
        "mode": st.sampled_from([mode.value for mode in Mode]),
        "match": _SELECTORS.map(lambda selector: {"namespaceSelector": selector}),
    },
    optional={
        "failurePolicy": st.sampled_from(["Fail", "Ignore"]),
        "rules": st.sampled_from(
            [{"jobs": {"mode": "Enforce"}}, {"queue": {"mode": "Enforce", "kinds": ["RayJob", "Deployment"]}}]
        ),
    },
)
_NAMESPACES = [
    {NAME: name, **team, **env}
    for name, team, env in itertools.product(
        ["train", "serve", "kube-system", "gpugate-system", "other"],
        [{}, *({"team": team} for team in _TEAMS)],
        [{}, {"env": "prod"}, {"env": "dev"}],
    )
]


@settings(max_examples=12, deadline=None)
@given(st.lists(_SPECS, max_size=4))
def test_every_object_is_sent_to_one_webhook_and_fails_closed_where_a_policy_may_refuse_it(specs: list[Any]) -> None:
    policies = [policy(f"p{at}", **spec) for at, spec in enumerate(specs)]
    failing = FailingClosed(PolicySet(policies))
    judging = [webhook for webhook in webhooks(*policies) if not of_takers(webhook)]
    for kind, namespace in itertools.product(KINDS, _NAMESPACES):
        sent = [webhook for webhook in judging if gets(webhook, kind, namespace)]
        if namespace[NAME] in {"kube-system", "gpugate-system"}:
            assert not sent
            continue
        (webhook,) = sent
        (region,) = (region for region in failing.regions(kind) if region.contains(namespace))
        assert webhook["failurePolicy"] == ("Fail" if region.inside else "Ignore")
        assert webhook["timeoutSeconds"] == (5 if region.inside else 3)
    names = [webhook["name"] for webhook in judging]
    assert len(names) == len(set(names)) <= MOST_WEBHOOKS
    assert all(_NAME_OF_WEBHOOK.fullmatch(name) for name in names)


def test_subresources_of_pods_are_sent_where_pods_are() -> None:
    split = webhooks(policy("a", mode="Enforce", match={"namespaceSelector": {"matchLabels": {"team": "a"}}}))
    for webhook in split:
        if webhook["name"].startswith("pods-"):
            assert webhook["rules"][1]["resources"] == ["pods/ephemeralcontainers", "pods/resize"]
    assert [webhook["name"] for webhook in split][:2] == ["pods-fail-1.validate.gpugate.io", "pods-ignore-1.validate.gpugate.io"]


def test_a_webhook_has_one_name_while_it_is_one() -> None:
    plain = [webhook["name"] for webhook in webhooks()]
    assert plain[:3] == [f"{name}.validate.gpugate.io" for name in ("pods", "templates", "cronjobs")]
    assert [webhook["name"] for webhook in webhooks(default_policy(Mode.ENFORCE))] == plain


def test_kinds_that_no_rule_refuses_are_not_held_up_with_those_that_one_does() -> None:
    found = {
        webhook["name"]: (webhook["failurePolicy"], sorted(name for rule in webhook["rules"] for name in rule["resources"]))
        for webhook in webhooks(policy("jobs", rules={"jobs": {"longestDeadline": "1h"}}))
    }
    assert found["templates-fail-1.validate.gpugate.io"] == ("Fail", ["jobs"])
    assert found["templates-ignore-1.validate.gpugate.io"] == (
        "Ignore",
        ["daemonsets", "deployments", "replicasets", "statefulsets"],
    )
    assert found["cronjobs.validate.gpugate.io"][0] == "Fail"
    assert found["pods.validate.gpugate.io"][0] == "Ignore"


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_changes_and_objects_without_a_request_are_never_waited_for(mode: Mode) -> None:
    enforced = default_policy(mode)
    mutating = webhooks(enforced, endpoint="mutate")
    assert mutating == webhooks(endpoint="mutate")
    takers = [webhook for webhook in webhooks(enforced) if of_takers(webhook)]
    assert len(takers) == 3
    assert {webhook["failurePolicy"] for webhook in (*mutating, *takers)} == {"Ignore"}


def _worst(length: int) -> list[Policy]:
    """Policies of many teams, each with a label and kinds of its own, and values of this length."""
    kinds = [["Job"], ["Deployment"], ["StatefulSet"], ["PyTorchJob", "RayJob"], ["MPIJob", "RayCluster"], ["Pod"]]
    values = [f"{number:0{length}}" for number in range(64)]
    return [
        policy(
            f"p{at}",
            match={
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": f"team-{at}", "operator": "In", "values": values},
                        {"key": NAME, "operator": "NotIn", "values": values},
                    ]
                }
            },
            rules={"queue": {"required": True, "kinds": kinds[at % len(kinds)]}, "jobs": {}, "numa": {}},
        )
        for at in range(100)
    ]


@pytest.mark.parametrize("length", [2, 12, 24, 63])
def test_any_policies_give_a_bounded_number_of_webhooks_that_one_object_holds(length: int) -> None:
    text = configuration("validate", FailingClosed(PolicySet(_worst(length))))
    assert text.count("failurePolicy: ") <= MOST_WEBHOOKS
    assert len(text) < MOST_BYTES
    assert "some namespaces in which they refuse objects fail open" in text.replace("\n# ", " ")


def test_values_that_yaml_reads_as_something_else_are_texts() -> None:
    odd = ["true", "1", "1.5", "null", "y", "", "0x1f", "2026-01-01", "plain"]
    expression = {"key": "on", "operator": "In", "values": odd}
    text = configuration(
        "validate",
        FailingClosed(PolicySet([policy(mode="Enforce", match={"namespaceSelector": {"matchExpressions": [expression]}})])),
    )
    parsed = yaml_reader().load(text)
    expressions = parsed["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert expressions[1] == {"key": "on", "operator": "In", "values": sorted(odd)}


app = typer.Typer()
app.command()(command.policies)


def _printed(tmp_path: Path, *args: str, mode: str = "Enforce") -> Any:
    file = tmp_path / "policy.yaml"
    file.write_text(
        f"apiVersion: gpugate.io/v1alpha1\nkind: GPUPolicy\nmetadata: {{name: team}}\nspec: {{mode: {mode}}}\n", encoding="utf-8"
    )
    return CliRunner().invoke(app, [*args, "--policy", str(file)])


def test_the_command_prints_the_configuration_of_the_policies_in_a_file(tmp_path: Path) -> None:
    done = _printed(tmp_path, "--format", "validating-webhook")
    assert done.exit_code == 0
    assert "# It holds for these policies: team.\n" in done.output
    assert YAML(typ="safe").load(done.output)["webhooks"] == webhooks(default_policy(Mode.ENFORCE))
    assert "failurePolicy: Fail" not in _printed(tmp_path, "--format", "validating-webhook", mode="DryRun").output
    assert "failurePolicy: Fail" not in _printed(tmp_path, "--format", "mutating-webhook").output


def test_the_command_takes_policies_for_webhook_configurations_alone(tmp_path: Path) -> None:
    done = _printed(tmp_path, "--format", "json")
    assert done.exit_code == 2
    assert "--policy needs --format mutating-webhook or validating-webhook" in done.output
