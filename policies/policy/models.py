"""Models of a GPUPolicy, and how an object becomes one."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import ConfigDict, Field, ValidationError, create_model, field_validator, model_validator

from gpugate.policies.cluster.records.common import meets
from gpugate.policies.findings import Mode
from gpugate.policies.framework.decision import Warnings
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Action
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.cel import LABEL_PATTERNS, LONGEST_KEY, MOST, UNIQUE, CelRule, LabelKey, LabelValue
from gpugate.policies.kube.fields import Object, dotted
from gpugate.policies.policy.profiles import DEFAULT, PATTERN, profile_of
from gpugate.policies.rules.registry import BY_ID, RULES

API_VERSION: Final = "gpugate.io/v1alpha1"
KIND: Final = "GPUPolicy"
#: The ``failurePolicy`` of policies that hold without an answer of gpugate, too.
FAIL: Final = "Fail"


class PolicyError(ValueError):
    """A GPUPolicy that does not parse; the message names the field and a valid value.

    Attributes:
        rules: the keys below ``spec.rules`` whose settings do not parse; empty if another part does not parse, either.
    """

    def __init__(self, message: str, rules: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.rules = rules


class SelectorRequirement(Params):
    """One expression of a label selector."""

    validations = (
        CelRule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "values: In and NotIn need some, Exists and DoesNotExist take none",
        ),
    )

    key: LabelKey
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label is compared."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=MOST)] = ()
    """The values to compare with, for In and NotIn."""

    @model_validator(mode="after")
    def _has_values_to_compare(self) -> Self:
        compares = self.operator in {"In", "NotIn"}
        if compares != bool(self.values):
            message = f"values: {self.operator} {'needs some to compare with' if compares else 'takes none'}"
            raise ValueError(message)
        return self

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Tell whether ``labels`` meet the expression."""
        return meets(self.key, self.operator, self.values, labels)


class LabelSelector(Params):
    """A Kubernetes label selector; an empty one selects everything."""

    validations = (
        CelRule(
            f"!has(self.matchLabels) || self.matchLabels.all(key, size(key) > 0 && size(key) <= {LONGEST_KEY})",
            f"matchLabels: a label's key has 1 to {LONGEST_KEY} characters",
        ),
    )

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=MOST)] = Field(default_factory=dict)
    """Labels that must have these values."""
    match_expressions: Annotated[tuple[SelectorRequirement, ...], Field(max_length=MOST)] = ()
    """Expressions that must be met, too."""

    @field_validator("match_labels")
    @classmethod
    def _with_keys(cls, labels: dict[str, str]) -> dict[str, str]:
        for key in labels:
            if not 0 < len(key) <= LONGEST_KEY:
                message = f"{key!r:.60}: a label's key has 1 to {LONGEST_KEY} characters"
                raise ValueError(message)
        return labels

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Tell whether ``labels`` are selected."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            expression.matches(labels) for expression in self.match_expressions
        )


class Match(Params):
    """What a policy applies to."""

    namespace_selector: LabelSelector = LabelSelector()
    """Labels of the namespaces."""
    object_selector: LabelSelector = LabelSelector()
    """Labels of the objects themselves."""


class Exemptions(Params):
    """From which rules workloads may be exempt."""

    validations = (
        CelRule(
            "!has(self.longestDays) || !has(self.requireUntil) || self.requireUntil",
            "longestDays requires an end: leave requireUntil out, or write true",
        ),
    )

    rules: Annotated[tuple[str, ...], *UNIQUE] = ()
    """Rule ids; `*` for every rule."""
    require_until: bool | None = None
    """Whether an exemption must have an end (annotation gpugate.io/exempt-until). By default only if longestDays is set."""
    longest_days: Annotated[int, Field(ge=1, le=3650)] | None = None
    """How many days ahead of the review an exemption may end at most."""

    @field_validator("rules")
    @classmethod
    def _known(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        for name in rules:
            if name != "*" and name not in BY_ID:
                message = f"{name!r:.60} is no rule: name one of {', '.join(sorted(BY_ID))}, or *"
                raise ValueError(message)
        return rules

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.longest_days is not None and self.require_until is False:
            message = "longestDays requires an end: leave requireUntil out, or write true"
            raise ValueError(message)
        return self

    @property
    def needs_end(self) -> bool:
        """Whether an exemption must have an end."""
        return self.longest_days is not None if self.require_until is None else self.require_until


class _ById(Params):
    """Base of models whose fields are named by rule ids or reasons."""

    model_config = ConfigDict(alias_generator=None)


def _actions_model(rule: Rule, name: str) -> Any:  # noqa: ANN401 - a model made at run time
    """Return the model of ``spec.rules.<rule>.actions``: one field for each reason whose action no parameter chooses."""
    reasons = {name: reason for name, reason in rule.reasons.items() if reason.action in {"Deny", "Warn"}}
    fields: dict[str, Any] = {
        name: (Action | None, Field(default=None, description=reason.title)) for name, reason in reasons.items()
    }
    return create_model(f"{name}Actions", __base__=_ById, __doc__="What the policy does about findings, by reason.", **fields)


def _settings_model(rule: Rule) -> Any:  # noqa: ANN401 - a model made at run time
    """Return the model of ``spec.rules.<rule>``: the rule's parameters, its mode, and how it acts on withheld edits."""
    name = rule.params.__name__.removesuffix("Params")
    actions = _actions_model(rule, name)
    fields: dict[str, Any] = {
        "actions": (
            actions,
            Field(
                default_factory=actions,
                description="What the policy does about findings whose reason has no parameter of its own, by reason.",
            ),
        ),
        "mode": (Mode | None, Field(default=None, description="How the rule acts; by default the policy's mode.")),
        "on_git_conflict": (
            Literal["Warn", "Refuse"],
            Field(default="Warn", description="Whether gpugate warns or refuses if an edit would overwrite a value from Git."),
        ),
        "on_unknown": (
            Literal["Warn", "Refuse"],
            Field(
                default="Warn",
                description="Whether a check that lacks current facts about the cluster warns or, for a rule in Enforce, refuses.",
            ),
        ),
    }
    return create_model(f"{name}Settings", __base__=rule.params, __doc__=rule.title + ".", **fields)


SETTINGS: Final[dict[str, Any]] = {rule.id: _settings_model(rule) for rule in RULES}


def field_name(rule_id: str) -> str:
    """Return the name of the field of ``RuleSettings`` for the rule ``rule_id``."""
    return rule_id.replace("-", "_")


_RULE_FIELDS: Final[dict[str, Any]] = {
    field_name(rule.id): (SETTINGS[rule.id] | None, Field(default=None, alias=rule.id, description=rule.title + "."))
    for rule in RULES
}


#: The user name of a controller; ``*`` at the end stands for all service accounts of a namespace.
ControllerIdentity: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=512, pattern=r"^(system:serviceaccount:[a-z0-9-]+:\*|[A-Za-z0-9][A-Za-z0-9._:/@-]*)$")
]

RuleSettings: Final[Any] = create_model("RuleSettings", __base__=_ById, __doc__="Settings by rule id.", **_RULE_FIELDS)


class PolicySpec(Params):
    """The desired state of a GPUPolicy."""

    match: Match = Match()
    """What the policy applies to; everything by default."""
    priority: Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000)] = 0
    """Of several policies that match, the one with the highest priority binds a rule; then the first by name."""
    profile: Annotated[str, Field(pattern=PATTERN)] = DEFAULT
    """Defaults of the rules: baseline, recommended or strict, in the latest version, or in one that stays (recommended@1)."""
    mode: Mode | None = None
    """Mode of every rule that sets none. Without it, the policy binds only the rules that it names."""
    failure_policy: Literal["Fail", "Ignore"] = FAIL
    """Whether kinds that rules in Enforce may refuse are refused or admitted while gpugate does not answer."""
    warnings: Warnings = Warnings.ALL
    """What kubectl tells users: changes and findings (All), Findings, what Enforce would refuse (Refusals), or nothing (None)."""
    exemptions: Exemptions = Exemptions()
    """From which rules workloads may be exempt."""
    controller_identities: Annotated[tuple[ControllerIdentity, ...], *UNIQUE] = ()
    """User names of operators that create pods or workloads with an owner, besides kube-controller-manager's own."""
    autoscaler: Literal["Detect", "Present", "Absent"] = "Detect"
    """Whether an autoscaler may add nodes, also to pools that have none now: then what no known node can hold is a warning.
    Detect looks for marks of Karpenter, of the Cluster Autoscaler and of GKE's provisioning on the nodes."""
    rules: RuleSettings = Field(default_factory=RuleSettings)
    """Settings by rule id."""

    @field_validator("profile")
    @classmethod
    def _known_profile(cls, profile: str) -> str:
        profile_of(profile)
        return profile


class Policy(Params):
    """A parsed GPUPolicy.

    Attributes:
        name: its name.
        spec: its spec.
        generation: its ``metadata.generation``; 0 if it comes from a file.
    """

    name: str
    spec: PolicySpec
    generation: int = 0


#: Our words for some of pydantic's errors, by error type.
_IN_OTHER_WORDS: Final = {
    "extra_forbidden": "there is no such field",
    "string_pattern_mismatch": "must be letters, digits, - . and _, and begin and end with a letter or digit",
    "string_too_short": "must not be empty: name one",
}


def _explain(error: ValidationError) -> str:
    texts = []
    for problem in error.errors(include_url=False, include_input=False)[:5]:
        message = _IN_OTHER_WORDS.get(problem["type"], str(problem["msg"]).removeprefix("Value error, "))
        pattern = str(problem.get("ctx", {}).get("pattern"))
        if problem["type"] == "string_pattern_mismatch" and pattern not in LABEL_PATTERNS:
            message = f"must match {pattern}"
        texts.append(f"{dotted(('spec', *problem['loc']))}: {message}")
    return "; ".join(texts)


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return ``value`` without keys that are null, which the apiserver removes, too."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def parse_policy(obj: Object) -> Policy:
    """Read a GPUPolicy object.

    Raises:
        PolicyError: it is of another kind or version, has no name, or a field of its spec is wrong.
    """
    if obj.get("kind") != KIND or obj.get("apiVersion") != API_VERSION:
        stated = f"{obj.get('kind')!s:.60} of {obj.get('apiVersion')!s:.60}"
        message = f"is a {stated}, not a {KIND} of {API_VERSION}"
        raise PolicyError(message)
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name, generation = metadata.get("name"), metadata.get("generation")
    if not isinstance(name, str) or not name:
        message = "metadata.name: a policy needs a name"
        raise PolicyError(message)
    unknown = sorted(set(map(str, obj)) - {"apiVersion", "kind", "metadata", "spec", "status"})
    if unknown:
        message = f"{name}: {unknown[0]}: there is no such field"
        raise PolicyError(message)
    try:
        spec = PolicySpec.model_validate(_without_nulls(obj.get("spec") or {}), by_alias=True, by_name=False)
    except ValidationError as error:
        message = f"{name}: {_explain(error)}"
        raise PolicyError(message, _rules_at_fault(error)) from None
    return Policy(name=name, spec=spec, generation=generation if isinstance(generation, int) else 0)


def _rules_at_fault(error: ValidationError) -> frozenset[str]:
    places = [problem["loc"] for problem in error.errors(include_url=False, include_input=False)]
    inside = [str(place[1]) for place in places if len(place) > 1 and place[0] == "rules"]
    return frozenset(inside) if len(inside) == len(places) else frozenset()


def without_rules(obj: Object, rules: Collection[str]) -> Policy:
    """Read a GPUPolicy with ``rules`` disabled, whose settings do not parse.

    The rules are not left to their defaults, which could deny objects that the unreadable settings allow.

    Raises:
        PolicyError: another part does not parse, either.
    """
    spec = obj.get("spec") or {}
    valid = {name: settings for name, settings in (spec.get("rules") or {}).items() if name not in rules}
    disabled = {name: {"mode": Mode.DISABLED.value} for name in rules if name in BY_ID}
    return parse_policy({**obj, "spec": {**spec, "rules": {**valid, **disabled}}})


def default_policy(mode: Mode, profile: str = DEFAULT) -> Policy:
    """Return the policy that holds if there is none: every rule as ``profile`` has it, in ``mode``."""
    return Policy(name="default", spec=PolicySpec(mode=mode, profile=profile))
