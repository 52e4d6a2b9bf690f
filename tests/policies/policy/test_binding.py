"""How far policies reach: the namespaces that each selects, and the rules that it binds there."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet, reach_of
from gpugate.policies.rules.registry import RULES
from tests.shared.builders import policy

NAMESPACES = {"a": {"team": "a"}, "b": {"team": "b"}, "c": {}}


def _selects(team: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"team": team}}}


def _modes(mode: str, *named: str) -> str:
    """What a policy for all rules binds those in that it does not name, ``named`` left out: each at most as it is unnamed."""
    found = Counter(
        Mode(mode).at_most(one.default_max_mode)
        for one in RULES
        if one.id not in named and one.default_max_mode is not Mode.DISABLED
    )
    return ", ".join(f"{found[one]} {one.value}" for one in Mode if found[one])


def _reach(*policies: Any) -> dict[str, tuple[int, str, tuple[str, ...]]]:
    found = reach_of(PolicySet(policies), NAMESPACES)
    return {name: (one.namespaces, one.rules, one.shadowed_by) for name, one in found.items()}


def test_a_policy_for_everything_binds_every_rule_in_every_namespace() -> None:
    assert _reach(policy("all", mode="DryRun", rules={"numa": {"mode": "Enforce"}, "gang": {"mode": "Disabled"}})) == {
        "all": (3, f"1 Enforce, {_modes('DryRun', 'numa', 'gang')}, 1 Disabled", ())
    }


def test_a_rule_counts_where_it_is_bound_in_one_namespace_at_least() -> None:
    found = _reach(policy("all", mode="Enforce"), policy("team", priority=1, match=_selects("a"), mode="Mutate"))
    assert found["team"] == (1, _modes("Mutate"), ())
    assert found["all"] == (3, _modes("Enforce"), ("team",))


def test_a_policy_behind_others_for_every_rule_binds_none() -> None:
    found = _reach(policy("b", mode="Enforce"), policy("a", mode="Mutate"), policy("top", priority=3, rules={"numa": {}}))
    assert found["b"] == (3, "", ("a", "top"))
    assert found["a"] == (3, _modes("Mutate", "numa"), ("top",))


def test_a_policy_for_some_objects_alone_leaves_the_others_to_the_next() -> None:
    some = {"objectSelector": {"matchLabels": {"app": "x"}}}
    found = _reach(
        policy("next", rules={"numa": {}}),
        policy("some", priority=1, match=some, rules={"numa": {}}),
        policy("same", match=some, rules={"numa": {"mode": "Mutate"}}),
    )
    assert found == {"some": (3, "1 Enforce", ()), "next": (3, "1 Enforce", ()), "same": (3, "", ("some",))}


def test_no_namespace_and_no_rule_come_to_nothing() -> None:
    assert _reach(policy("nowhere", match=_selects("z"), mode="Enforce"), policy("nothing")) == {
        "nothing": (3, "", ()),
        "nowhere": (0, "", ()),
    }
