"""Every GPU workload names who pays for it: owner, project and cost centre.

## What it does

For each key of the policy (by default owner, project and cost centre), reads the value from the first place that has one: the
workload, its pod templates, its namespace. Any accepted spelling counts, as label or annotation. Writes the value under the key's
own name on the workload and its pod templates, where that is missing. Never overwrites a value.

Refuses a workload without a value for a required key, and a value that the label cannot hold. Does not check what a controller
creates if gpugate reviews its owner: the owner's template has the values. Pods of other owners are checked.

## Why

Cost tools divide the bill of the cluster by the labels of pods: OpenCost prefers those of the pod to those of its namespace, and
reads annotations only if `EMIT_POD_ANNOTATIONS_METRIC` is set. The cost of a workload without labels belongs to no team, and pods
that have ended cannot be labelled. The names have a prefix, so selectors of Services and NetworkPolicies do not match by accident.

## Practice

- Orchestration guide, "Per-Pod Cost Accounting": owner, project and cost centre are in the metadata of what costs money.
- Orchestration guide, "Cost Analysis and Optimization": the audit sums devices and device hours by these keys.

## Example

Before: a Job in a namespace with the label `team: vision`. After:

```yaml
metadata:
  labels:
    gpugate.io/owner: vision
spec:
  template:
    metadata:
      labels:
        gpugate.io/owner: vision
```
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, Mode
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.cel import LONGEST_LABEL, CelRule, LabelKey, LabelName, unique
from gpugate.policies.kube.fields import Object, Path, string
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Most keys in a policy, and most other spellings of one.
_MOST_KEYS: Final = 16
#: Maximum length in characters of an annotation that is copied to pods.
_LONGEST: Final = 253
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class AttributionKey(Params):
    """One fact about who pays for a workload."""

    what: LabelName
    """The fact in one word, such as `owner`, for messages and the audit."""
    name: LabelKey
    """The label or annotation that has the value."""
    kind: Literal["Label", "Annotation"] = "Label"
    """What `name` is. Cost tools read the labels of pods by default; OpenCost reads annotations only if it is configured to."""
    aliases: Annotated[tuple[LabelKey, ...], *unique(_MOST_KEYS)] = ()
    """Other labels and annotations that count as `name`."""
    required: bool = True
    """Whether a workload is refused if neither it nor its namespace has a value."""
    from_namespace: bool = True
    """Whether the value of the namespace counts if the workload has none."""
    namespace_keys: Annotated[tuple[LabelKey, ...], *unique(_MOST_KEYS)] = ()
    """Labels and annotations of the namespace that have the value; `name` and `aliases` if the list is empty.
    `kubernetes.io/metadata.name` is the namespace's own name."""
    to_pods: bool = True
    """Whether the value is written into the pod templates, too."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every label or annotation of a workload that counts."""
        return (self.name, *self.aliases)

    @property
    def of_namespace(self) -> tuple[str, ...]:
        """Every label or annotation of the namespace that counts."""
        return (self.namespace_keys or self.spellings) if self.from_namespace else ()

    @property
    def field(self) -> str:
        """The field of the metadata that contains ``name``."""
        return "labels" if self.kind == "Label" else "annotations"

    @property
    def path(self) -> Path:
        """The path of the label or annotation in the object."""
        return ("metadata", self.field, self.name)


DEFAULT_KEYS: Final = (
    AttributionKey(what="owner", name="gpugate.io/owner", aliases=("owner", "gpugate.io/team", "team", "app.kubernetes.io/team")),
    AttributionKey(what="project", name="gpugate.io/project", aliases=("project",)),
    AttributionKey(
        what="cost-center",
        name="gpugate.io/cost-center",
        aliases=("cost-center", "cost-centre", "gpugate.io/cost-centre", "costcenter"),
    ),
)


class AttributionParams(Params):
    """Parameters of `attribution`."""

    validations = tuple(
        CelRule(
            f"!has(self.keys) || self.keys.all(one, self.keys.exists_one(other, other.{field} == one.{field}))",
            f"keys: two have the same {field}",
        )
        for field in ("what", "name")
    )

    keys: Annotated[tuple[AttributionKey, ...], Field(max_length=_MOST_KEYS)] = DEFAULT_KEYS
    """What a workload must state about who pays for it."""

    @model_validator(mode="after")
    def _unique(self) -> Self:
        for field in ("what", "name"):
            values = [getattr(key, field) for key in self.keys]
            duplicate = next((value for at, value in enumerate(values) if value in values[:at]), None)
            if duplicate is not None:
                message = f"keys: two have the same {field}, {duplicate}"
                raise ValueError(message)
        return self


class Attribution(NamedTuple):
    """The value for a key, and its source in words; empty for the workload itself."""

    value: str
    source: str


def attribution_of(workload: Workload, key: AttributionKey, snapshot: ClusterSnapshot) -> Attribution | None:
    """Return the value of the workload for ``key``, or else of its pods, or else of its namespace; None if there is none.

    Raises:
        MalformedError: a label or annotation is no string.
    """
    value = _value(key, workload.labels(), workload.annotations(), ("metadata",))
    if value is not None:
        return Attribution(value, "")
    for pods in workload.pod_sets if not workload.is_pod() else ():
        value = _value_of_pods(pods, key)
        if value is not None:
            return Attribution(value, "from its pods")
    value = snapshot.namespace_says(workload.namespace, key.of_namespace)
    return None if value is None else Attribution(value, f"from namespace {workload.namespace}")


def _value_of_pods(pods: PodSet, key: AttributionKey) -> str | None:
    return _value(key, pods.labels(), pods.annotations(), pods.meta())


def _value(key: AttributionKey, labels: Object, annotations: Object, metadata: Path) -> str | None:
    """Return the value of the first spelling that is present; the key's own kind counts before the other."""
    maps = [(labels, (*metadata, "labels")), (annotations, (*metadata, "annotations"))]
    for name in key.spellings:
        for entries, path in maps if key.kind == "Label" else maps[::-1]:
            value = string(entries, name, path) if entries.get(name) else None
            if value:
                return value
    return None


def _problem_of(key: AttributionKey, value: str) -> str:
    """Return why ``value`` is no value of the key's label or annotation; empty if it is one."""
    if key.kind == "Annotation":
        return f"is longer than {_LONGEST} characters" if len(value) > _LONGEST else ""
    if len(value) > LONGEST_LABEL:
        return f"is longer than {LONGEST_LABEL} characters, the limit of label values"
    if _LABEL_VALUE.fullmatch(value) is None:
        return "is no label value (only letters, digits, -, _ and ., with a letter or digit first and last)"
    return ""


def _applies(workload: Workload) -> bool:
    """Return whether the workload requests GPUs, and gpugate did not review an owner of it."""
    return bool(workload.gpu_pod_sets()) and workload.owner_kind() is None


def mutate(workload: Workload, params: AttributionParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Write the values of other spellings, templates or the namespace under the key's own name."""
    return [edit for key in params.keys for edit in _edits(workload, key, snapshot)] if _applies(workload) else ()


def _edits(workload: Workload, key: AttributionKey, snapshot: ClusterSnapshot) -> Iterator[Edit]:
    attribution = attribution_of(workload, key, snapshot)
    if attribution is None or _problem_of(key, attribution.value):
        return
    own = workload.labels() if key.kind == "Label" else workload.annotations()
    if not own.get(key.name):
        note = f"{key.what} {attribution.value}"
        yield Edit("set", key.path, attribution.value, f"{note} ({attribution.source})" if attribution.source else note)
    for pods in workload.pod_sets if key.to_pods and not workload.is_pod() else ():
        present = pods.labels() if key.kind == "Label" else pods.annotations()
        if pods.is_whole and not present.get(key.name):
            value = _value_of_pods(pods, key) or attribution.value
            if not _problem_of(key, value):
                yield Edit("set", pods.meta(key.field, key.name), value, f"{key.what} {value} on its pods")


def check(workload: Workload, params: AttributionParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield findings for missing and for invalid values."""
    for key in params.keys if _applies(workload) else ():
        attribution = attribution_of(workload, key, snapshot)
        if attribution is None:
            if key.required:
                yield _missing(workload, key, snapshot)
            continue
        problem = _problem_of(key, attribution.value)
        if problem:
            value = f"{attribution.value[:60]!r} {attribution.source}".rstrip()
            yield Finding(
                "AttributionInvalid",
                key.path,
                f"the {key.what} {value} {problem}, so it cannot be the {key.kind.lower()} {key.name} that cost tools read",
                f"{_line(workload, key)} with a shorter or simpler value.",
                Level.DENY if key.required else Level.WARN,
            )


def _missing(workload: Workload, key: AttributionKey, snapshot: ClusterSnapshot) -> Finding:
    line, kind, namespace = _line(workload, key), workload.kind.kind, workload.namespace
    aliases = f" (or {', '.join(key.aliases)}, as label or annotation)" if key.aliases else ""
    absent = f"the {key.kind.lower()} {key.name}{aliases} is missing"
    if not key.from_namespace:
        subject = f"the {kind} does not name its" if workload.is_pod() else f"neither the {kind} nor its pods name the"
        return Finding("AttributionMissing", key.path, f"{subject} {key.what}: {absent}", f"{line}.")
    if snapshot.sync_state("namespaces") is not SyncState.SYNCED or namespace not in snapshot.namespaces:
        return Finding(
            "AttributionUndecided",
            key.path,
            f"the {kind} does not name its {key.what}, and gpugate does not know whether namespace {namespace} does: {absent}",
            f"{line}, or give gpugate the namespaces of the cluster.",
        )
    verb = "label" if key.kind == "Label" else "annotate"
    return Finding(
        "AttributionMissing",
        key.path,
        f"neither the {kind}{'' if workload.is_pod() else ', its pods'} nor namespace {namespace} names the {key.what}: {absent}",
        f"{line}, or set it for the whole namespace: kubectl {verb} namespace {namespace} {key.of_namespace[0]}=<{key.what}>.",
        rests_on=("namespaces",),
    )


def _line(workload: Workload, key: AttributionKey) -> str:
    """Return what to write, and where: in the template of an owner, not in what the owner creates."""
    owner = workload.controller()
    template = "" if owner is None else f" of the template in {owner.get('kind')} {owner.get('name')}"
    return f"Write {key.name}: <{key.what}> below metadata.{key.field}{template}"


REASONS: Final[dict[str, Reason]] = {
    "AttributionInvalid": Reason(
        "The value is no valid label or annotation value.", facts=("namespaces",), warns="the key is not required"
    ),
    "AttributionMissing": Reason("A required key is missing from the workload and its namespace."),
    "AttributionUndecided": Reason("The namespace is unknown, so gpugate cannot tell whether it has the key.", action="Unknown"),
}

RULE = Rule(
    id="attribution",
    title="GPU workloads name who pays for them: owner, project and cost centre",
    since="0.1.0",
    params=AttributionParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"namespaces"}),
    reads=frozenset({"annotations", "labels"}),
    writes=frozenset({"annotations", "labels"}),
    documentation=__doc__,
    default_max_mode=Mode.DISABLED,
    default_mode_reason="Each company decides by which keys it divides costs, and whether it refuses workloads without them.",
)
