"""GPUPolicy: what is refused and how it is explained, and which policy binds which rule."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet, strongest_mode
from gpugate.policies.policy.models import API_VERSION, KIND, PolicyError, default_policy, parse_policy
from gpugate.policies.policy.profiles import DEFAULT
from gpugate.policies.rules.registry import BY_ID, RULES
from tests.shared.builders import policy


def _object(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "p"}, "spec": spec}


def _modes(*policies: Any, namespace: dict[str, str] | None = None, labels: dict[str, Any] | None = None) -> dict[str, str]:
    """Mode by rule id, with the name of the policy that binds it."""
    bound = PolicySet(policies).bind(namespace or {}, labels or {})
    return {one.rule.id: f"{one.mode.value} by {one.policy}" for one in bound}


def test_each_rule_is_found_by_its_id() -> None:
    assert [BY_ID[rule.id] for rule in RULES] == list(RULES)
    assert len(RULES) == len(BY_ID)


@pytest.mark.parametrize("mode", list(Mode))
def test_the_default_policy_binds_every_rule_in_its_mode_or_the_strongest_that_the_rule_has_unnamed(mode: Mode) -> None:
    bound = PolicySet([default_policy(mode)]).bind({}, {})
    wanted = [(rule, mode.at_most(strongest_mode(DEFAULT, rule))) for rule in RULES]
    assert [(one.rule, one.mode) for one in bound] == [pair for pair in wanted if pair[1] is not Mode.DISABLED]


def test_the_weaker_of_two_modes() -> None:
    order = [Mode.ENFORCE, Mode.MUTATE, Mode.WARN, Mode.DRY_RUN, Mode.DISABLED]
    for strong, weak in pairwise(order):
        assert strong.at_most(weak) is weak.at_most(strong) is weak
    assert Mode.DRY_RUN.at_most(Mode.MUTATE) is Mode.DRY_RUN
    assert Mode.MUTATE.at_most(Mode.DISABLED) is Mode.DISABLED
    assert Mode.MUTATE.at_most(Mode.ENFORCE) is Mode.MUTATE


def test_a_rule_that_is_no_more_than_a_habit_says_why() -> None:
    assert [rule.id for rule in RULES if (rule.default_max_mode is not Mode.ENFORCE) != bool(rule.default_mode_reason)] == []


def test_a_policy_without_a_mode_binds_only_the_rules_that_it_names() -> None:
    one = policy(rules={"queue": {"required": True}, "numa": {"mode": "Mutate"}, "gang": None})
    assert _modes(one) == {"numa": "Mutate by test", "queue": "Enforce by test"}


def test_a_rules_own_mode_goes_before_the_policys() -> None:
    modes = _modes(policy(mode="DryRun", rules={"shared-memory": {"mode": "Enforce"}, "gang": {"mode": "Disabled"}}))
    assert modes["shared-memory"] == "Enforce by test"
    assert modes["queue"] == "DryRun by test"
    assert "gang" not in modes


def test_the_highest_priority_wins_then_the_first_name_rule_by_rule() -> None:
    modes = _modes(
        policy("low", mode="Enforce"),
        policy("b", priority=5, rules={"numa": {"mode": "Mutate"}, "queue": {"mode": "Mutate"}}),
        policy("a", priority=5, rules={"queue": {"mode": "DryRun"}}),
        policy("negative", priority=-1, mode="Disabled"),
    )
    assert modes["queue"] == "DryRun by a"
    assert modes["numa"] == "Mutate by b"
    assert modes["gang"] == "Enforce by low"


def test_a_rule_disabled_by_the_policy_that_wins_is_not_bound_by_another() -> None:
    modes = _modes(policy("off", priority=1, rules={"gang": {"mode": "Disabled"}}), policy("all", mode="Enforce"))
    assert "gang" not in modes
    assert len(modes) == sum(rule.default_max_mode is not Mode.DISABLED for rule in RULES) - 1


_EXPRESSIONS = [
    ({"key": "team", "operator": "In", "values": ["a", "b"]}, {"team": "a"}, {"team": "c"}),
    ({"key": "team", "operator": "NotIn", "values": ["a"]}, {}, {"team": "a"}),
    ({"key": "team", "operator": "Exists"}, {"team": ""}, {}),
    ({"key": "team", "operator": "DoesNotExist"}, {}, {"team": "a"}),
]


@pytest.mark.parametrize(("expression", "yes", "no"), _EXPRESSIONS, ids=lambda value: str(value.get("operator", "")))
@pytest.mark.parametrize("of", ["namespace", "labels"])
def test_selectors_choose_namespaces_and_objects(expression: Any, yes: Any, no: Any, of: str) -> None:
    name = "namespaceSelector" if of == "namespace" else "objectSelector"
    chosen = policy(mode="Enforce", match={name: {"matchExpressions": [expression]}})
    assert _modes(chosen, **{of: yes})
    assert not _modes(chosen, **{of: no})


def test_all_parts_of_a_match_must_hold() -> None:
    chosen = policy(
        mode="Enforce",
        match={"namespaceSelector": {"matchLabels": {"a": "1", "b": "2"}}, "objectSelector": {"matchLabels": {"c": "3"}}},
    )
    namespace = {"a": "1", "b": "2"}
    assert _modes(chosen, namespace=namespace, labels={"c": "3", "d": "4"})
    assert not _modes(chosen, namespace={"a": "1"}, labels={"c": "3"})
    assert not _modes(chosen, namespace=namespace, labels={})


def test_what_was_bound_for_one_object_is_not_mistaken_for_another() -> None:
    policies = PolicySet([policy("one", mode="Enforce", match={"objectSelector": {"matchLabels": {"c": "3"}}})])
    for _ in range(2):
        assert policies.bind({}, {"c": "3"})
        assert not policies.bind({}, {"c": "4"})
        assert not policies.bind({"c": "3"}, {})


def test_settings_reach_the_rule() -> None:
    bound = PolicySet(
        [
            policy(
                exemptions={"rules": ["numa"]},
                rules={
                    "shared-memory": {"minSize": "2Gi", "maxSize": 4294967296, "onGitConflict": "Refuse"},
                    "numa": {"cpuPerAccelerator": "1500m", "alignedNodes": {"key": "k"}},
                },
            )
        ]
    ).bind({}, {})
    numa, memory = bound
    assert (memory.params.min_size, memory.params.max_size, memory.deny_on_git_conflict, memory.exemptable) == (
        2 << 30,
        4 << 30,
        True,
        False,
    )
    assert (numa.params.cpu_per_accelerator, numa.params.aligned_nodes.value, numa.exemptable) == (1500, "true", True)


def test_nulls_count_as_left_out_as_they_do_for_the_apiserver() -> None:
    parsed = parse_policy(
        _object(mode="Mutate", match=None, exemptions=None, priority=None, rules={"numa": {"mode": None, "alignedNodes": None}})
    )
    assert parsed == policy("p", profile=DEFAULT, mode="Mutate", rules={"numa": {}})
    assert parse_policy({**_object(), "spec": None}) == policy("p", profile=DEFAULT)
    assert parse_policy(_object(rules=None)) == policy("p", profile=DEFAULT)


@pytest.mark.parametrize(
    ("spec", "texts"),
    [
        ({"mod": "Enforce"}, ["spec.mod: there is no such field"]),
        ({"mode": "Off"}, ["spec.mode", "'Enforce', 'Mutate', 'Warn', 'DryRun' or 'Disabled'"]),
        ({"mode": False}, ["spec.mode", "'Disabled'"]),
        ({"rules": {"shm": {}}}, ["spec.rules.shm: there is no such field"]),
        ({"rules": {"shared_memory": {}}}, ["spec.rules.shared_memory: there is no such field"]),
        ({"rules": {"shared-memory": {"minSise": "1Gi"}}}, ["spec.rules.shared-memory.minSise: there is no such field"]),
        # A name as Python spells it is in no schema of the cluster's.
        ({"rules": {"shared-memory": {"min_size": "1Gi"}}}, ["spec.rules.shared-memory.min_size: there is no such field"]),
        ({"rules": {"shared-memory": {"minSize": "1GB"}}}, ["spec.rules.shared-memory.minSize", "write 1Gi"]),
        ({"rules": {"shared-memory": {"minSize": 0}}}, ["spec.rules.shared-memory.minSize", "greater than 0"]),
        ({"rules": {"shared-memory": {"minSize": "4Gi", "maxSize": "2Gi"}}}, ["minSize 4Gi is above maxSize 2Gi"]),
        ({"rules": {"shared-memory": {"fraction": 1.5}}}, ["spec.rules.shared-memory.fraction", "less than or equal to 1"]),
        ({"rules": {"host-memory": {"maxOvercommitRatio": 0.5}}}, ["maxOvercommitRatio", "greater than or equal to 1"]),
        ({"rules": {"host-memory": {"neverFits": "Maybe"}}}, ["neverFits", "'Deny' or 'Warn'"]),
        ({"rules": {"stranding": {"warnFactor": 9}}}, ["spec.rules.stranding", "warnFactor 9 is above refuseFactor 4"]),
        (
            {"rules": {"gang": {"scheduler": "Slurm"}}},
            ["spec.rules.gang.scheduler", "'Kueue', 'Coscheduling', 'Volcano', 'Kubernetes', 'KAI' or 'None'"],
        ),
        ({"rules": {"gang": {"stuckAfter": 600}}}, ["spec.rules.gang.stuckAfter", "600 is no duration, such as 90s"]),
        ({"rules": {"gang": {"stuckAfter": "10 minutes"}}}, ["'10 minutes' is no duration"]),
        ({"rules": {"gang": {"stuckAfter": "0s"}}}, ["stuckAfter", "greater than 0"]),
        ({"rules": {"queue": {"kinds": ["Job", "ReplicaSet"]}}}, ["spec.rules.queue.kinds[1]", "'Job'"]),
        ({"rules": {"tolerations": {"taints": [{"key": ""}]}}}, ["spec.rules.tolerations.taints[0]", "name one"]),
        ({"rules": {"tolerations": {"taints": [{}]}}}, ["spec.rules.tolerations.taints[0].key", "required"]),
        ({"rules": {"tolerations": {"taints": [{"key": "node.kubernetes.io/unschedulable"}]}}}, ["gpugate never tolerates it"]),
        ({"rules": {"tolerations": {"taints": [{"key": "sku", "value": "maintenance"}]}}}, ["sku=maintenance", "never tolerates"]),
        (
            {"exemptions": {"rules": ["shm"]}},
            ["spec.exemptions.rules", "'shm' is no rule: name one of accelerator-names, "],
        ),
        ({"match": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}, ["operator", "'Exists'"]),
        ({"priority": "high"}, ["spec.priority", "integer"]),
        ({"priority": "5"}, ["spec.priority", "'5' is no integer"]),
        ({"priority": True}, ["spec.priority", "True is no integer"]),
        ({"rules": {"queue": {"required": "yes"}}}, ["spec.rules.queue.required", "'yes' is no boolean"]),
        ({"rules": {"queue": {"required": 1}}}, ["spec.rules.queue.required", "1 is no boolean"]),
        ({"rules": {"host-memory": {"maxOvercommitRatio": "2"}}}, ["maxOvercommitRatio", "'2' is no number"]),
        ({"rules": {"tolerations": {"taints": [{"key": "node-role.kubernetes.io/control-plane"}]}}}, ["never tolerates it"]),
        ({"rules": []}, ["spec.rules"]),
        ({"rules": {"numa": "on"}}, ["spec.rules.numa"]),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_slip_is_answered_with_the_field_and_the_way_out(spec: dict[str, Any], texts: list[str]) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(_object(**spec))
    assert str(caught.value).startswith("p: ")
    for text in texts:
        assert text in str(caught.value)
    assert "http" not in str(caught.value)


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        ({}, "is a None of None, not a GPUPolicy of gpugate.io/v1alpha1"),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, "is a ConfigMap of v1, not a GPUPolicy"),
        ({"apiVersion": "gpugate.io/v1", "kind": KIND, "metadata": {"name": "p"}}, "gpugate.io/v1, not"),
        ({"apiVersion": API_VERSION, "kind": KIND}, r"metadata\.name: a policy needs a name"),
        ({"apiVersion": API_VERSION, "kind": KIND, "metadata": []}, "needs a name"),
        ({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": 7}}, "needs a name"),
        ({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "p"}, "specs": {}}, "p: specs: there is no such field"),
        ({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "p"}, "spec": "Enforce"}, "p: spec"),
    ],
)
def test_what_is_no_policy_is_told_apart(obj: dict[str, Any], text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        parse_policy(obj)


def test_a_parsed_policy_knows_its_generation() -> None:
    assert parse_policy({**_object(), "metadata": {"name": "p", "generation": 7}}).generation == 7
    assert parse_policy(_object()).generation == 0


@pytest.mark.parametrize(
    ("rule", "settings", "said"),
    [
        ("isolation", {"serviceAccounts": ["gpu-operator"]}, "serviceAccounts[0]: must match ^[a-z0-9]([a-z0-9-]*[a-z0-9])?/"),
        ("isolation", {"hostPaths": [{"path": "data"}]}, "hostPaths[0].path: must match ^/"),
        ("isolation", {"capabilities": ["ipc_lock"]}, "capabilities[0]: must match ^[A-Z]"),
        (
            "spread",
            {"fabricKey": "-rack"},
            "fabricKey: must be letters, digits, - . and _, and begin",
        ),
    ],
)
def test_a_value_of_the_wrong_form_is_told_its_own_form(rule: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError) as error:
        policy(rules={rule: settings})
    assert said in str(error.value)
