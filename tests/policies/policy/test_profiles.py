"""Profiles of a GPUPolicy: what they bind, what overrides them, and that a version stays as it is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpugate.policies.findings import Level, Mode
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.policy.binding import PolicySet, profile_settings, strongest_mode
from gpugate.policies.policy.models import PolicyError, default_policy, parse_policy
from gpugate.policies.policy.profile_reference import reasons_by_profile
from gpugate.policies.policy.profiles import DEFAULT, NAMES, PROFILES, ProfileError, profile_of
from gpugate.policies.policy.reference import default_policy_object
from gpugate.policies.rules.registry import BY_ID, RULES
from tests.shared.builders import bind, decided, pod, policy, reasons

#: Every setting of every version. `python -m tests.policies.policy.test_profiles` writes it before a version is released.
_SETTINGS = Path(__file__).with_name("profiles.json")
#: The weaker outcome first.
_ORDER = ["-", "off", "unknown", "warning", "refused"]


def _settings() -> dict[str, Any]:
    return {
        str(profile): {
            rule.id: {
                "strongestMode": strongest_mode(str(profile), rule).value,
                **profile_settings(str(profile), rule.id).model_dump(mode="json", by_alias=True, exclude_none=True),
                "reasons": {name: reason.action for name, reason in rule.reasons.items()},
            }
            for rule in RULES
        }
        for profile in PROFILES
    }


def _bound(rule: str, **spec: Any) -> BoundRule:
    (found,) = [binding for binding in PolicySet([policy(**spec)]).bind({}, {}) if binding.rule.id == rule]
    return found


def test_a_version_of_a_profile_stays_as_it_was_released() -> None:
    assert json.loads(_SETTINGS.read_text(encoding="utf-8")) == _settings()


def test_a_policy_that_names_no_profile_has_the_weakest() -> None:
    assert parse_policy(default_policy_object("Enforce")).spec.profile == DEFAULT == NAMES[0]
    assert default_policy(Mode.DRY_RUN).spec.profile == DEFAULT


def test_each_profile_refuses_at_least_what_the_weaker_one_refuses() -> None:
    for line in reasons_by_profile():
        ranks = [_ORDER.index(outcome) for outcome in line.outcomes]
        assert ranks == sorted(ranks), line


def test_no_profile_states_a_parameter_that_another_may_contradict() -> None:
    """A policy's own parameter beside one of the profile could otherwise be a pair that no model has checked."""
    for profile in PROFILES:
        for rule, settings in profile.rules.items():
            ordered = {name for pair in BY_ID[rule].params.in_order for name in pair}
            assert not ordered & profile_settings(str(profile), rule).model_fields_set, (str(profile), rule, settings)


def test_what_a_policy_states_overrides_its_profile_and_the_rest_stays() -> None:
    rules = {"gang": {"fragments": "Deny", "actions": {"Splits": "Deny", "Shrinks": None}}}
    bound = _bound("gang", profile="baseline", mode="Enforce", rules=rules)
    assert bound.params.fragments == "Deny"  # type: ignore[attr-defined]
    assert bound.params.one_by_one == "Warn"  # type: ignore[attr-defined]
    assert bound.levels["Splits"] is Level.DENY
    assert bound.levels["PartialStart"] is Level.WARN


def test_the_printed_policy_of_a_profile_binds_what_the_profile_binds() -> None:
    for name in NAMES:
        printed = PolicySet([parse_policy(default_policy_object("Enforce", name))]).bind({}, {})
        built_in = PolicySet([default_policy(Mode.ENFORCE, name)]).bind({}, {})
        assert [(one.rule.id, one.mode, one.levels) for one in printed if one.rule.default_max_mode is not Mode.DISABLED] == [
            (one.rule.id, one.mode, one.levels) for one in built_in
        ]


@pytest.mark.parametrize(
    ("profile", "severity"), [("baseline", "warn"), ("baseline@1", "warn"), ("recommended", "deny"), ("strict@1", "deny")]
)
def test_a_profile_decides_whether_a_reason_refuses(profile: str, severity: str) -> None:
    resources = {"requests": {"memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}}
    root = pod({"name": "main", "resources": resources})
    bound = bind({"host-memory": {}}, profile=profile)
    assert ("host-memory", "Overcommit", severity) in reasons(decided(root, bound))


@pytest.mark.parametrize(("action", "severities"), [("Deny", ["deny"]), ("Warn", ["warn"]), ("Allow", [])])
def test_an_action_of_the_policy_decides_what_becomes_of_a_reason(action: str, severities: list[str]) -> None:
    resources = {"requests": {"memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}}
    bound = bind({"host-memory": {"actions": {"Overcommit": action}}})
    found = reasons(decided(pod({"name": "main", "resources": resources}), bound))
    assert [severity for _, reason, severity in found if reason == "Overcommit"] == severities


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ("lenient", "'lenient' is no profile: name one of baseline, recommended, strict"),
        ("strict@9", "'strict@9' is no version of that profile: name strict@1, or strict for the latest"),
        ("strict@", "is no profile"),
        ("strict@01", "is no profile"),
        ("", "is no profile"),
    ],
)
def test_an_unknown_profile_is_one_clear_error(profile: str, text: str) -> None:
    with pytest.raises(ProfileError, match=re.escape(text)):
        profile_of(profile)
    with pytest.raises(PolicyError, match=r"spec\.profile: "):
        policy(profile=profile)


def test_a_reason_that_a_parameter_decides_is_no_action() -> None:
    with pytest.raises(PolicyError, match=r"spec\.rules\.host-memory\.actions\.NeverFits: there is no such field"):
        policy(rules={"host-memory": {"actions": {"NeverFits": "Warn"}}})


if __name__ == "__main__":
    _SETTINGS.write_text(json.dumps(_settings(), indent=1) + "\n", encoding="utf-8")
