"""Judging what is there: the engine of the door, asked what it would do with each workload, were it made now.

Rules in DryRun are asked as if they were enforced, so that the answer is the very one that enforcing would give; each item
says in which mode its rule is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from gpugate.policies.cluster.gpu_usage import place_of, state_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.engine.exemptions import REFUSED_REASONS, ExemptionRequest, requested_exemption
from gpugate.policies.findings import Judged, Mode, Severity
from gpugate.policies.framework.decision import BoundRule, Change, Decision
from gpugate.policies.kube.fields import MalformedError, dotted
from gpugate.policies.kube.managers import is_gitops_managed
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.rules.ownership import idle
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.queue_name import queue_label
from gpugate.policies.workloads.workload import Workload
from gpugate.webhook.admission.response import cut, strip_immutable_words
from gpugate.webhook.audit.model import AuditedWorkload, Effect, Exemption, Item, Used
from gpugate.webhook.audit.ownership import belongs_to
from gpugate.webhook.audit.requests import devices_of, pods_of, runs_of
from gpugate.webhook.audit.subjects import AuditTarget

JsonObject: TypeAlias = dict[str, Any]

#: Labels by which a workload or its namespace says who it belongs to; the first that is there counts.
TEAM_LABELS: Final = ("gpugate.io/team", "gpugate.io/owner", "team", "owner", "app.kubernetes.io/team")
#: What a text may have at the most: sums of a pod with a thousand containers fill no report. Characters.
_LONGEST: Final = 1024
_EFFECTS: Final = {
    Severity.DENY: Effect.REFUSE,
    Severity.WARN: Effect.WARN,
    Severity.UNKNOWN: Effect.UNKNOWN,
    Severity.DRYRUN: Effect.WARN,
}


class AuditContext(NamedTuple):
    """By what the workloads are judged.

    Attributes:
        policies: the policies.
        snapshot: one snapshot of the cluster.
        team_labels: labels that say who a workload belongs to.
        now: the time, in seconds since 1970, at which exemptions may have ended; without it, none has.
    """

    policies: PolicySet
    snapshot: ClusterSnapshot
    team_labels: tuple[str, ...] = TEAM_LABELS
    now: float | None = None


def audit_one(chosen: AuditTarget, lens: AuditContext) -> AuditedWorkload:
    """What the rules make of one workload.

    Raises:
        MalformedError: a field that a rule reads is of the wrong type.
    """
    subject = chosen.subject
    root: JsonObject = orjson.loads(subject.text)
    workload = open_workload(subject.kind, root, lens.snapshot, namespace=subject.namespace)
    bound = lens.policies.bind(lens.snapshot.namespace_labels(subject.namespace), workload.labels())
    queue, devices, runs = queue_label(workload) or "", devices_of(workload, chosen.number), runs_of(workload, chosen.number)
    pods = sum(pods_of(workload, one) for one in workload.gpu_pod_sets()) * chosen.number
    in_git, team = is_gitops_managed(root), _team(workload, lens)
    belongs = belongs_to(workload, bound, lens.snapshot, team)
    plea = requested_exemption(workload)
    decision = decide(workload, [_enforced(one) for one in bound], lens.snapshot, remember=False, now=lens.now)
    items = _items(decision, {one.rule.id: one for one in bound})
    owner = chosen.owner
    return AuditedWorkload(
        api_version=owner.api_version if owner else str(root.get("apiVersion")),
        kind=owner.kind if owner else subject.kind.kind,
        namespace=subject.namespace,
        name=owner.name if owner else subject.name,
        uid=owner.uid if owner else subject.uid,
        team=team,
        queue=queue,
        pods=pods,
        devices=devices,
        items=items,
        exemption=_exemption(plea, items, lens.now) if plea.rules else None,
        in_git=in_git,
        bound_by=tuple(sorted({_named(one) for one in bound})),
        used=_used(workload, bound, items, lens.snapshot) if lens.snapshot.usage is not None else (),
        belongs=belongs,
        runs=runs,
    )


def _used(workload: Workload, bound: Iterable[BoundRule], items: Iterable[Item], snapshot: ClusterSnapshot) -> tuple[Used, ...]:
    """The devices that the workload's pods hold, judged by the policy that binds the rule, unless it is exempt from it."""
    devices = snapshot.usage.of(place_of(workload)) if snapshot.usage is not None else ()
    exempt = any(one.rule == idle.RULE.id and one.effect is Effect.EXEMPT for one in items)
    params = next((one.params for one in bound if one.rule is idle.RULE), None)
    if not isinstance(params, idle.IdleParams) or exempt:
        return tuple(Used(one, "") for one in devices)
    bounds = idle.bounds_of(params)
    return tuple(Used(one, state_of(one, bounds).value) for one in devices)


def unreadable(chosen: AuditTarget, error: MalformedError) -> str:
    """What is said of a workload that cannot be judged."""
    subject = chosen.subject
    return f"{subject.kind.kind} {subject.namespace}/{subject.name} cannot be judged: {error}"


def _named(one: BoundRule) -> str:
    return f"{one.policy}@{one.generation}"


def _enforced(one: BoundRule) -> BoundRule:
    return one._replace(mode=Mode.ENFORCE) if one.mode is Mode.DRY_RUN else one


def _items(decision: Decision, bound: Mapping[str, BoundRule]) -> tuple[Item, ...]:
    found = [_change(one, bound) for one in decision.changes]
    found += [_finding(one, bound) for one in decision.findings]
    return tuple(sorted(found, key=sort_key))


def _change(one: Change, bound: Mapping[str, BoundRule]) -> Item:
    item = _item(one.rule, bound, Effect.CHANGE)
    return item._replace(reason="Changed", message=cut("; ".join(one.notes), _LONGEST))


def _finding(one: Judged, bound: Mapping[str, BoundRule]) -> Item:
    finding = one.finding
    effect = Effect.EXEMPT if finding.reason == "Exempt" else _EFFECTS[one.severity]
    return _item(one.rule, bound, effect)._replace(
        reason=finding.reason,
        path=dotted(finding.path) if finding.path else "",
        message=strip_immutable_words(cut(finding.message, _LONGEST)),
        remedy=strip_immutable_words(cut(finding.remedy, _LONGEST)),
    )


def _item(rule: str, bound: Mapping[str, BoundRule], effect: Effect) -> Item:
    by = bound.get(rule)
    if by is None:  # what the engine says of its own accord, of exemptions
        return Item(rule, "", Mode.WARN, effect, "", "", "", "")
    return Item(rule, _named(by), by.mode, effect, "", "", "", "")


def sort_key(one: Item) -> tuple[str, str, str, str, str]:
    """Items are listed in this order."""
    return (one.rule, one.effect.value, one.path, one.reason, one.message)


def _exemption(plea: ExemptionRequest, items: Sequence[Item], now: float | None) -> Exemption:
    lacking = any(one.reason in REFUSED_REASONS for one in items)
    state = "expired" if plea.has_ended(now) else "refused" if lacking else "active"
    reason, owner, until = (cut(text, _LONGEST) for text in (plea.reason, plea.owner, plea.until))
    return Exemption(tuple(sorted(plea.rules)), reason, owner, until, state)


def _team(workload: Workload, lens: AuditContext) -> str:
    places: list[Mapping[str, Any]] = [workload.labels()]
    places += [pods.labels() for pods in workload.pod_sets if not workload.is_pod()]
    places.append(lens.snapshot.namespace_labels(workload.namespace))
    for labels in places:
        for key in lens.team_labels:
            if isinstance(labels.get(key), str) and labels[key]:
                return str(labels[key])
    return ""
