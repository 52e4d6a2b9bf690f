"""Find the rules that policies bind for an object, and the namespaces in which each policy binds them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from gpugate.policies.findings import Mode
from gpugate.policies.framework.decision import BoundRule, BoundRules
from gpugate.policies.framework.reasons import levels_of
from gpugate.policies.framework.rule import Rule
from gpugate.policies.policy.models import SETTINGS, LabelSelector, Policy, field_name
from gpugate.policies.policy.profiles import DEFAULT, profile_of
from gpugate.policies.rules.registry import RULES
from gpugate.policies.rules.security import object_size

#: The selector of everything.
_EVERYTHING: Final = LabelSelector()
#: The key of a profile's settings that is no setting of a rule that a policy names.
_MODE: Final = "mode"
#: Stands for a label that an object does not have.
_ABSENT: Final = object()
#: One character more than a label value may have.
_LONGEST: Final = 64


@cache
def profile_settings(profile: str, rule_id: str) -> Any:  # noqa: ANN401 - a settings model made at run time
    """Return the settings of the rule in ``profile``."""
    stated = {name: value for name, value in profile_of(profile).rules.get(rule_id, {}).items() if name != _MODE}
    return SETTINGS[rule_id].model_validate(stated, by_alias=True, by_name=False)


@cache
def strongest_mode(profile: str, rule: Rule) -> Mode:
    """Return the strongest mode of ``rule`` where a policy of ``profile`` does not name it."""
    return Mode(profile_of(profile).rules.get(rule.id, {}).get(_MODE, rule.default_max_mode))


class PolicySet:
    """Policies by precedence, and the rules that they bind.

    Attributes:
        policies: the policies; the first that has settings for a rule binds it.
        most_pod_sets: the highest limit on the pod templates of an object in any of them.
    """

    __slots__ = ("_bound", "_by_namespaces", "_object_keys", "most_pod_sets", "policies")

    #: How many label sets are remembered; namespaces with the same labels share an entry.
    _REMEMBERED: Final = 4096

    def __init__(self, policies: Iterable[Policy]) -> None:
        self.policies: Sequence[Policy] = sorted(policies, key=lambda policy: (-policy.spec.priority, policy.name))
        self._by_namespaces = any(policy.spec.match.namespace_selector != _EVERYTHING for policy in self.policies)
        self._object_keys = sorted({key for policy in self.policies for key in _keys(policy.spec.match.object_selector)})
        stated = (settings_of(policy, object_size.RULE) for policy in self.policies)
        limits = (profile_settings(DEFAULT, object_size.RULE.id), *stated)
        self.most_pod_sets = max(object_size.most_pod_sets(each) for each in limits if each)
        self._bound: dict[Any, BoundRules] = {}

    def bind(self, namespace_labels: Mapping[str, str], object_labels: Mapping[str, Any]) -> BoundRules:
        """Return the rules for an object with these labels, in the catalogue's order, without disabled ones."""
        key = (
            frozenset(namespace_labels.items()) if self._by_namespaces else None,
            # Only labels that a selector reads: an object may have any number of others, of any length.
            tuple([_short(object_labels.get(name, _ABSENT)) for name in self._object_keys]) if self._object_keys else None,
        )
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bind(namespace_labels, object_labels)
            if len(self._bound) >= self._REMEMBERED:
                self._bound.clear()
            self._bound[key] = bound
        return bound

    def _bind(self, namespace_labels: Mapping[str, str], object_labels: Mapping[str, Any]) -> BoundRules:
        matching = [
            policy
            for policy in self.policies
            if policy.spec.match.namespace_selector.matches(namespace_labels)
            and policy.spec.match.object_selector.matches(object_labels)
        ]
        bindings = (bind_rule(rule, matching) for rule in RULES)
        controllers = frozenset(identity for policy in matching for identity in policy.spec.controller_identities)
        return BoundRules.of((binding for binding in bindings if binding is not None), controllers)


def settings_of(policy: Policy, rule: Rule) -> Any:  # noqa: ANN401 - a settings model made at run time
    """Return the settings of ``policy`` for ``rule``; None if it leaves the rule to other policies.

    What the policy states overrides its profile. A policy that does not name the rule has the settings of its profile if it has a
    mode and the rule is not off unless named.
    """
    settings, profile = _own_settings(policy, rule), policy.spec.profile
    if settings is None:
        off = policy.spec.mode is None or strongest_mode(profile, rule) is Mode.DISABLED
        return None if off else profile_settings(profile, rule.id)
    defaults = profile_settings(profile, rule.id)
    if not defaults.model_fields_set:
        return settings
    stated = {name: getattr(settings, name) for name in settings.model_fields_set}
    if "actions" in stated:
        actions = stated["actions"]
        stated["actions"] = defaults.actions.model_copy(update={name: getattr(actions, name) for name in actions.model_fields_set})
    return defaults.model_copy(update=stated)


def mode_of(policy: Policy, rule: Rule) -> Mode | None:
    """Return the mode of ``rule`` if ``policy`` binds it; None if the policy leaves it to other policies.

    A rule that the policy does not name has at most the mode of :func:`strongest_mode`.
    """
    settings = settings_of(policy, rule)
    if settings is None:
        return None
    stated: Mode = settings.mode or policy.spec.mode or Mode.ENFORCE
    return stated.at_most(_strongest(policy, rule))


def _strongest(policy: Policy, rule: Rule) -> Mode:
    """Return the strongest mode that ``rule`` may have in ``policy``."""
    return Mode.ENFORCE if _own_settings(policy, rule) is not None else strongest_mode(policy.spec.profile, rule)


def _own_settings(policy: Policy, rule: Rule) -> Any:  # noqa: ANN401 - a settings model made at run time
    return getattr(policy.spec.rules, field_name(rule.id))


def bind_rule(rule: Rule, matching: Sequence[Policy]) -> BoundRule | None:
    """Return ``rule`` as the first of the ``matching`` policies with settings for it binds it; None if no policy has any."""
    for policy in matching:
        spec, chosen = policy.spec, settings_of(policy, rule)
        if chosen is None:
            continue
        return BoundRule(
            rule=rule,
            params=chosen,
            mode=mode_of(policy, rule) or Mode.ENFORCE,
            policy=policy.name,
            exemptable=rule.id in spec.exemptions.rules or "*" in spec.exemptions.rules,
            deny_on_git_conflict=chosen.on_git_conflict == "Refuse",
            deny_on_unknown=chosen.on_unknown == "Refuse",
            autoscaler=spec.autoscaler,
            generation=policy.generation,
            needs_end=spec.exemptions.needs_end,
            longest_days=spec.exemptions.longest_days or 0,
            levels=levels_of(chosen.actions.model_dump()),
            forecast=_strongest(policy, rule),
            warnings=spec.warnings,
        )
    return None


def _keys(selector: LabelSelector) -> set[str]:
    """Return the labels that ``selector`` reads."""
    return {*selector.match_labels, *(expression.key for expression in selector.match_expressions)}


def _short(value: Any) -> object:  # noqa: ANN401 - any JSON value
    """Return a label value as a part of a key: a valid one is shorter, and one that is no text is no value of a selector."""
    return value[:_LONGEST] if type(value) is str else type(value)


class PolicyCoverage(NamedTuple):
    """The namespaces and rules of one policy.

    Attributes:
        namespaces: how many namespaces it selects.
        modes: how many rules it binds for some object in one of them, by mode.
        speaks_for: how many rules it has a mode for.
        shadowed_by: names of the policies that take precedence for rules that it has a mode for, sorted.
    """

    namespaces: int
    modes: Mapping[Mode, int]
    speaks_for: int
    shadowed_by: tuple[str, ...]

    @property
    def rules(self) -> str:
        """How many rules it binds, by mode: ``12 Enforce, 3 DryRun``."""
        return ", ".join(f"{self.modes[mode]} {mode.value}" for mode in Mode if self.modes.get(mode))


def reach_of(policies: PolicySet, namespaces: Mapping[str, Mapping[str, str]]) -> dict[str, PolicyCoverage]:
    """Return the coverage of each of ``policies`` by its name; ``namespaces`` has labels by name."""
    ordered = policies.policies
    selectors = [policy.spec.match.namespace_selector for policy in ordered]
    # Namespaces that the same policies select are one case.
    cases = Counter(
        tuple(selector == _EVERYTHING or selector.matches(labels) for selector in selectors) for labels in namespaces.values()
    )
    modes = [{rule.id: mode for rule in RULES if (mode := mode_of(policy, rule)) is not None} for policy in ordered]
    return {policy.name: _coverage(at, ordered, modes, cases) for at, policy in enumerate(ordered)}


def _coverage(
    at: int, ordered: Sequence[Policy], modes: Sequence[Mapping[str, Mode]], cases: Mapping[tuple[bool, ...], int]
) -> PolicyCoverage:
    own, bound, shadowed_by = modes[at], set[str](), set[str]()
    # The policies before this one that select every object that it selects, as far as the selectors show.
    covering = (_EVERYTHING, ordered[at].spec.match.object_selector)
    before_this = [other for other in range(at) if ordered[other].spec.match.object_selector in covering]
    for selected in cases:
        if not selected[at]:
            continue
        first = [other for other in before_this if selected[other]]
        for rule in own:
            before = [ordered[other].name for other in first if rule in modes[other]]
            shadowed_by.update(before[:1])
            if not before:
                bound.add(rule)
    number = sum(count for selected, count in cases.items() if selected[at])
    return PolicyCoverage(number, Counter(own[rule] for rule in bound), len(own), tuple(sorted(shadowed_by)))
