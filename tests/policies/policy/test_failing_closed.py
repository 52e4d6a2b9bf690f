"""Which kinds in which namespaces fail closed: those that a policy may refuse objects of, and no other."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpugate.policies.findings import Mode, Severity
from gpugate.policies.framework.rule import Rule
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.failing_closed import MOST_REGIONS, FailingClosed, LeftOpen, may_refuse
from gpugate.policies.policy.models import Policy, default_policy
from gpugate.policies.rules.registry import BY_ID, RULES
from gpugate.policies.workloads.kinds import KINDS, WorkloadKind, kinds_named
from tests.shared import cases
from tests.shared.builders import policy

_JOBS = {kind for kind in KINDS if kind.batch or kind.wraps}
_TEAM_A = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
_APP_X = {"objectSelector": {"matchLabels": {"app": "x"}}}


def closed(*policies: Policy, **labels: str) -> set[WorkloadKind]:
    """The kinds that fail closed in a namespace with these labels."""
    failing, found = FailingClosed(PolicySet(policies)), set()
    for kind in KINDS:
        (region,) = (region for region in failing.regions(kind) if region.contains(labels))
        if region.inside:
            found.add(kind)
    return found


def test_while_nothing_is_enforced_everything_fails_open() -> None:
    assert not closed()
    assert not closed(default_policy(Mode.DRY_RUN), team="a")
    assert not closed(*(policy(mode.value, mode=mode.value) for mode in Mode if mode is not Mode.ENFORCE))


def test_an_enforced_policy_fails_closed_unless_it_says_otherwise() -> None:
    assert closed(default_policy(Mode.ENFORCE)) == set(KINDS)
    assert closed(policy("a", mode="Enforce", failurePolicy="Fail")) == set(KINDS)
    assert not closed(policy("a", mode="Enforce", failurePolicy="Ignore"))


def test_it_fails_closed_where_it_is_enforced_alone() -> None:
    policies = policy("a", mode="Enforce", match=_TEAM_A), policy("all", priority=-1, mode="DryRun")
    assert closed(*policies, team="a") == set(KINDS)
    assert not closed(*policies, team="b")
    assert not closed(*policies)


def test_a_policy_before_it_takes_its_rules_away() -> None:
    enforced, trial = policy("all", mode="Enforce"), policy("a", priority=1, mode="DryRun", match=_TEAM_A)
    assert not closed(enforced, trial, team="a")
    assert closed(enforced, trial, team="b") == set(KINDS)
    assert closed(enforced, policy("off", priority=1, mode="Disabled", match=_TEAM_A), team="b") == set(KINDS)
    one = policy("one", priority=2, match=_TEAM_A, rules={"shared-memory": {"mode": "Enforce"}})
    assert closed(enforced, trial, one, team="a") == set(KINDS)


def test_of_two_policies_that_enforce_a_rule_the_first_says_what_happens() -> None:
    patient = policy("patient", priority=1, mode="Enforce", failurePolicy="Ignore", match=_TEAM_A)
    assert not closed(policy("all", mode="Enforce"), patient, team="a")
    assert closed(policy("all", mode="Enforce"), patient, team="b") == set(KINDS)


def test_a_rule_fails_closed_for_the_kinds_that_it_may_refuse() -> None:
    assert closed(policy("jobs", rules={"jobs": {"mode": "Enforce", "longestDeadline": "1h"}})) <= _JOBS
    some = policy("queue", rules={"queue": {"required": True, "kinds": ["Job", "PyTorchJob"]}})
    assert closed(some) == {*(kind for kind in kinds_named("Job") if not kind.groups_itself), *kinds_named("PyTorchJob")}
    # Where an object requests an accelerator somewhere, its other pods only get warnings.
    assert not closed(policy("nodes", rules={"reserved-nodes": {"mode": "Enforce"}}))


def test_a_rule_that_only_warns_fails_open() -> None:
    assert not any(reason.action == "Deny" for reason in BY_ID["idle"].reasons.values())
    assert not closed(policy("idle", rules={"idle": {"mode": "Enforce"}}))
    assert not closed(policy("adds", rules={"tolerations": {"mode": "Enforce"}}))
    assert closed(policy("adds", rules={"tolerations": {"mode": "Enforce", "onGitConflict": "Refuse"}})) == set(KINDS)


def test_labels_of_objects_open_and_close_nothing() -> None:
    assert closed(policy("x", mode="Enforce", match=_APP_X)) == set(KINDS)
    # The objects that it does not select are left to the policy after it.
    assert closed(policy("all", mode="Enforce"), policy("x", priority=1, mode="DryRun", match=_APP_X)) == set(KINDS)
    # All objects of the second are the first one's.
    assert not closed(policy("x", mode="Enforce", match=_APP_X), policy("w", priority=1, mode="DryRun", match=_APP_X))


def test_what_is_enforced_and_left_open_is_named_by_policy() -> None:
    teams = [
        policy(f"p{number}", mode="Enforce", match={"namespaceSelector": {"matchLabels": {f"team-{number}": "yes"}}})
        for number in range(MOST_REGIONS + 1)
    ]
    last = f"team-{MOST_REGIONS}"
    failing = FailingClosed(PolicySet(teams))
    namespaces = {"a": {"team-0": "yes"}, "z": {last: "yes"}, "kube-system": {last: "yes"}, "none": {}}
    resources = tuple(sorted(kind.full_resource for kind in KINDS))
    assert failing.left_open(namespaces) == {f"p{MOST_REGIONS}": [LeftOpen("z", resources)]}
    assert FailingClosed(PolicySet(teams[:3])).left_open(namespaces) == {}


_NAMESPACES = [{}, {"team": "a"}, {"team": "b"}, {"env": "x"}, {"team": "a", "env": "x"}, {"team": "b", "env": "y"}]
_OBJECTS = [{}, {"app": "x"}, {"app": "y"}, {"app": "x", "tier": "z"}]
_RULES = ["jobs", "queue", "shared-memory", "tolerations", "idle"]
_SELECTORS = st.sampled_from(
    [
        {},
        {"matchLabels": {"team": "a"}},
        {"matchLabels": {"team": "a", "env": "x"}},
        {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
        {"matchExpressions": [{"key": "env", "operator": "Exists"}]},
    ]
)
_SPECS = st.fixed_dictionaries(
    {
        "priority": st.integers(0, 2),
        "failurePolicy": st.sampled_from(["Fail", "Ignore"]),
        "rules": st.dictionaries(
            st.sampled_from(_RULES), st.sampled_from(list(Mode)).map(lambda mode: {"mode": mode.value}), max_size=3
        ),
    },
    optional={"mode": st.sampled_from([mode.value for mode in Mode])},
)


def _may_refuse(policies: PolicySet, kind: WorkloadKind, namespace: dict[str, str], labels: dict[str, str]) -> bool:
    """Whether a policy with failurePolicy Fail may refuse an object with these labels there."""
    fails = {one.name for one in policies.policies if one.spec.failure_policy == "Fail"}
    return any(
        bound.policy in fails and may_refuse(bound) and bound.rule.refuses(kind, bound.params)
        for bound in policies.bind(namespace, labels)
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_SPECS, _SELECTORS, st.sampled_from([{}, {"matchLabels": {"app": "x"}}])), max_size=4))
def test_a_kind_fails_closed_wherever_a_policy_may_refuse_an_object_and_nowhere_else(
    stated: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]],
) -> None:
    policies = PolicySet(
        policy(f"p{at}", **spec, match={"namespaceSelector": namespaces, "objectSelector": objects})
        for at, (spec, namespaces, objects) in enumerate(stated)
    )
    failing = FailingClosed(policies)
    for kind, namespace in itertools.product(KINDS, _NAMESPACES):
        (region,) = (region for region in failing.regions(kind) if region.contains(namespace))
        assert region.inside is any(_may_refuse(policies, kind, namespace, labels) for labels in _OBJECTS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_refuses_no_object_of_another_kind_than_it_declares(rule: Rule) -> None:
    for case in cases.cases_of(rule.id):
        root = case.given
        if any(one.rule == rule.id and one.severity is Severity.DENY for one in case.decide(root).findings):
            workload = case.workload(root, case.snapshot())
            (bound,) = (one for one in case.bound() if one.rule is rule)
            assert may_refuse(bound), case
            assert rule.refuses(workload.kind, bound.params) or not workload.gpu_pod_sets(), case
