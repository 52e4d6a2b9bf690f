"""Compare the profiles of a GPUPolicy: what each rule changes, refuses and warns of under each of them."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from pydantic.alias_generators import to_camel

from gpugate.policies.findings import Level, Mode
from gpugate.policies.framework.reasons import level_under, levels_of
from gpugate.policies.framework.rule import Rule, no_edits
from gpugate.policies.policy.binding import mode_of, profile_settings, settings_of
from gpugate.policies.policy.crd import written
from gpugate.policies.policy.models import default_policy
from gpugate.policies.policy.profiles import NAMES, PROFILES
from gpugate.policies.policy.reference import table
from gpugate.policies.rules.registry import RULES

#: What a rule does in a profile that leaves it out.
OFF: Final = "off"
_NOTHING: Final = "-"


class Comparison(NamedTuple):
    """One line of a comparison: a rule, a reason or parameter of it, and what it comes to in each profile, in their order."""

    rule: str
    name: str
    outcomes: tuple[str, ...]


def rules_by_profile() -> list[Comparison]:
    """Return what each rule does under each profile where the policy's mode is Enforce."""
    return [Comparison(rule.id, _fields(rule), tuple(_outcome(rule, name) for name in NAMES)) for rule in RULES]


def reasons_by_profile() -> list[Comparison]:
    """Return whether each reason refuses or warns under each profile where the policy's mode is Enforce."""
    return [
        Comparison(rule.id, reason, tuple(_reasons(rule, name)[reason] for name in NAMES))
        for rule in RULES
        for reason in rule.reasons
    ]


def parameters_by_profile() -> list[Comparison]:
    """Return the parameters whose value is not the same under every profile."""
    return list(_parameters())


def _parameters() -> Iterator[Comparison]:
    for rule in RULES:
        settings = [profile_settings(name, rule.id).model_dump(mode="json", by_alias=True) for name in NAMES]
        for field in map(to_camel, rule.params.model_fields):
            values = tuple(written(each[field]) or _NOTHING for each in settings)
            if len(set(values)) > 1:
                yield Comparison(rule.id, field, values)


def _fields(rule: Rule) -> str:
    """Return the fields that the rule sets or extends, as text."""
    return ", ".join(sorted(rule.writes | rule.writes_to_pods)) if rule.mutate is not no_edits else _NOTHING


def _outcome(rule: Rule, profile: str) -> str:
    mode = mode_of(default_policy(Mode.ENFORCE, profile), rule)
    if mode is None or mode is Mode.DISABLED:
        return OFF
    outcomes = list(_reasons(rule, profile).values())
    parts = [(outcomes.count("refused"), "refuses"), (outcomes.count("warning"), "warns of")]
    checks = ", ".join(f"{verb} {number}" for number, verb in parts if number)
    changes = "changes" if rule.mutate is not no_edits else ""
    return "; ".join(part for part in (changes, checks) if part) or _NOTHING


def _reasons(rule: Rule, profile: str) -> dict[str, str]:
    """Return what becomes of a finding by its reason."""
    policy = default_policy(Mode.ENFORCE, profile)
    settings, mode = settings_of(policy, rule), mode_of(policy, rule)
    if settings is None or mode is None or mode is Mode.DISABLED:
        return dict.fromkeys(rule.reasons, OFF)
    levels = levels_of(settings.actions.model_dump())
    words: dict[Level | None, str] = {Level.DENY: "refused", Level.WARN: "warning", Level.UNKNOWN: "unknown", None: _NOTHING}
    if mode is not Mode.ENFORCE:
        words[Level.DENY] = "warning"
    return {name: words[level_under(name, reason, settings, levels)] for name, reason in rule.reasons.items()}


_INTRODUCTION: Final = """\
`spec.profile` of a GPUPolicy chooses the defaults of all rules. A policy that names none has `baseline`. Parameters, actions \
and modes that a policy states override its profile. `recommended` is the latest version; no release changes `recommended@1`."""
_RULES: Final = """\
What each rule does under a policy in mode Enforce that names none of them, and how many reasons it refuses or warns of."""
_REASONS: Final = """\
What becomes of a finding by its reason. The [reference of the rules](rules.md) says when a refusal is only a warning."""


def profiles_markdown() -> str:
    """Return the comparison of the profiles in Markdown."""
    titles = [(f"`{profile}`", profile.title) for profile in PROFILES]
    rules = [(f"[`{line.rule}`](rules.md#{line.rule})", line.name, *line.outcomes) for line in rules_by_profile()]
    blocks = [
        "# Profiles",
        "<!-- Written by `make docs` from the profiles and the rules: change it there. -->",
        _INTRODUCTION,
        table(("Profile", "What it is for"), titles),
        "## Rules",
        _RULES,
        table(("Rule", "Fields that it may change", *NAMES), rules),
        "## Parameters",
        "Other parameters have the same default in every profile.",
        _lines("Parameter", parameters_by_profile()),
        "## Findings",
        _REASONS,
        _lines("Reason", reasons_by_profile()),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _lines(head: str, lines: list[Comparison]) -> str:
    return table(("Rule", head, *NAMES), [(f"`{line.rule}`", f"`{line.name}`", *line.outcomes) for line in lines])
