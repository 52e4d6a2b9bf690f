"""Evaluate existing workloads: run the engine on each as if it were re-created now.

Rules in Warn and DryRun run as if their policy were enforced, so that the result is exactly what enforcing would do. Each item has
the mode of its rule.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from gpugate.policies.cluster.gpu_usage import place_of, state_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.engine.exemptions import REFUSED_REASONS, ExemptionRequest, requested_exemption
from gpugate.policies.findings import Mode, Severity
from gpugate.policies.framework.decision import BoundRule, Decision
from gpugate.policies.gangs.status import GangState, ParallelJobs, StuckAfter, gang_states
from gpugate.policies.kube.fields import MalformedError, Object, dotted
from gpugate.policies.kube.managers import is_gitops_managed
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.rules.gangs.gang import RULE
from gpugate.policies.rules.gangs.gang.mutate import GangParams
from gpugate.policies.rules.ownership import idle
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.workload import Workload
from gpugate.webhook.admission.response import cut, strip_immutable_words
from gpugate.webhook.audit.model import AuditedWorkload, Effect, Exemption, Item, Used
from gpugate.webhook.audit.owners import AuditTarget
from gpugate.webhook.audit.ownership import belongs_to, devices_of, pods_of, runs_of
from gpugate.webhook.audit.subjects import Subject

JsonObject: TypeAlias = dict[str, Any]
#: Team labels of a workload or its namespace; the first one present counts.
TEAM_LABELS: Final = ("gpugate.io/team", "gpugate.io/owner", "team", "owner", "app.kubernetes.io/team")
#: Longest text: the sums of a pod with a thousand containers must not fill a report. Characters.
_MAX_LENGTH: Final = 1024
_EFFECTS: Final = {
    Severity.DENY: Effect.REFUSE,
    Severity.WARN: Effect.WARN,
    Severity.UNKNOWN: Effect.UNKNOWN,
    Severity.DRYRUN: Effect.WARN,
}


class AuditContext(NamedTuple):
    """The inputs of every evaluation.

    Attributes:
        team_labels: labels with the team of a workload.
        now: the time, in seconds since 1970, for the end of exemptions; None never ends them.
    """

    policies: PolicySet
    snapshot: ClusterSnapshot
    team_labels: tuple[str, ...] = TEAM_LABELS
    now: float | None = None


def evaluate(target: AuditTarget, context: AuditContext) -> AuditedWorkload:
    """Evaluate one workload.

    Raises:
        MalformedError: a field that a rule reads has the wrong type.
    """
    subject = target.subject
    root: JsonObject = orjson.loads(subject.text)
    workload = open_workload(subject.kind, root, context.snapshot, namespace=subject.namespace)
    bound = context.policies.bind(context.snapshot.namespace_labels(subject.namespace), workload.labels())
    queue, devices, runs = queue_label(workload) or "", devices_of(workload, target.number), runs_of(workload, target.number)
    pods = sum(pods_of(workload, gpu_pod_set) for gpu_pod_set in workload.gpu_pod_sets()) * target.number
    in_git, team = is_gitops_managed(root), _team(workload, context)
    belongs = belongs_to(workload, bound, context.snapshot, team)
    request = requested_exemption(workload)
    enforced = [rule._replace(mode=rule.forecast) if rule.mode.is_rehearsed else rule for rule in bound]
    decision = decide(workload, enforced, context.snapshot, remember=False, now=context.now)
    items = _items(decision, {rule.rule.id: rule for rule in bound})
    owner = target.owner
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
        exemption=_exemption(request, items, context.now) if request.rules else None,
        in_git=in_git,
        bound_by=tuple(sorted({_policy_of(rule) for rule in bound})),
        used=_used(workload, bound, items, context.snapshot) if context.snapshot.usage is not None else (),
        belongs=belongs,
        runs=runs,
    )


def _used(workload: Workload, bound: Iterable[BoundRule], items: Iterable[Item], snapshot: ClusterSnapshot) -> tuple[Used, ...]:
    """Return the devices of the workload's pods, with their state by the idle rule unless the workload is exempt from it."""
    devices = snapshot.usage.of(place_of(workload)) if snapshot.usage is not None else ()
    exempt = any(item.rule == idle.RULE.id and item.effect is Effect.EXEMPT for item in items)
    params = next((rule.params for rule in bound if rule.rule is idle.RULE), None)
    if not isinstance(params, idle.IdleParams) or exempt:
        return tuple(Used(device, "") for device in devices)
    bounds = idle.bounds_of(params)
    return tuple(Used(device, state_of(device, bounds).value) for device in devices)


def _policy_of(bound: BoundRule) -> str:
    return f"{bound.policy}@{bound.generation}"


def _items(decision: Decision, bound: Mapping[str, BoundRule]) -> tuple[Item, ...]:
    items = [_item(change.rule, bound, Effect.CHANGE, "Changed", "; ".join(change.notes)) for change in decision.changes]
    for judged in decision.findings:
        finding = judged.finding
        effect = Effect.EXEMPT if finding.reason == "Exempt" else _EFFECTS[judged.severity]
        item = _item(judged.rule, bound, effect, finding.reason, finding.message, finding.remedy)
        path = dotted(finding.path) if finding.path else ""
        items.append(
            item._replace(path=path, message=strip_immutable_words(item.message), remedy=strip_immutable_words(item.remedy))
        )
    return tuple(sorted(items, key=sort_key))


def _item(rule: str, bound: Mapping[str, BoundRule], effect: Effect, reason: str, message: str, remedy: str = "") -> Item:
    # The engine itself has findings, too, about exemptions.
    policy, mode = (_policy_of(bound[rule]), bound[rule].mode) if rule in bound else ("", Mode.MUTATE)
    return Item(rule, policy, mode, effect, reason, "", cut(message, _MAX_LENGTH), cut(remedy, _MAX_LENGTH))


def sort_key(item: Item) -> tuple[str, str, str, str, str]:
    """Return the sort key of an item."""
    return (item.rule, item.effect.value, item.path, item.reason, item.message)


def _exemption(request: ExemptionRequest, items: Sequence[Item], now: float | None) -> Exemption:
    refused = any(item.reason in REFUSED_REASONS for item in items)
    state = "expired" if request.has_ended(now) else "refused" if refused else "active"
    reason, owner, until = (cut(text, _MAX_LENGTH) for text in (request.reason, request.owner, request.until))
    return Exemption(tuple(sorted(request.rules)), reason, owner, until, state)


def _team(workload: Workload, context: AuditContext) -> str:
    sources: list[Mapping[str, Any]] = [workload.labels()]
    sources += [pods.labels() for pods in workload.pod_sets if not workload.is_pod()]
    sources.append(context.snapshot.namespace_labels(workload.namespace))
    values = (labels.get(key) for labels in sources for key in context.team_labels)
    return next((value for value in values if isinstance(value, str) and value), "")


def stuck_after_for(snapshot: ClusterSnapshot, policies: PolicySet) -> StuckAfter:
    """Return a function with the time after which a gang counts as stuck, by policy."""

    def stuck_after(namespace: str, labels: Object) -> float | None:
        params = _gang_params(snapshot, policies, namespace, labels)
        return None if params is None else float(params.stuck_after)

    return stuck_after


def parallel_jobs_for(snapshot: ClusterSnapshot, policies: PolicySet) -> ParallelJobs:
    """Return a function that tells whether Jobs with several pods at once are gangs, by policy."""

    def parallel_jobs(namespace: str, labels: Object) -> bool:
        params = _gang_params(snapshot, policies, namespace, labels)
        return params is not None and params.jobs == "Parallel"

    return parallel_jobs


def _gang_params(snapshot: ClusterSnapshot, policies: PolicySet, namespace: str, labels: Object) -> GangParams | None:
    for bound in policies.bind(snapshot.namespace_labels(namespace), labels):
        if bound.rule is RULE and isinstance(bound.params, GangParams):
            return bound.params
    return None


def gangs_among(subjects: Iterable[Subject | str], snapshot: ClusterSnapshot, policies: PolicySet, now: float) -> list[GangState]:
    """Return the state of the gangs among ``subjects`` at ``now``, in seconds since 1970; none without pods."""
    return gang_states(
        snapshot,
        _opened(subjects, snapshot),
        now,
        stuck_after=stuck_after_for(snapshot, policies),
        parallel_jobs=parallel_jobs_for(snapshot, policies),
    )


def _opened(subjects: Iterable[Subject | str], snapshot: ClusterSnapshot) -> Iterator[Workload]:
    for subject in subjects:
        if isinstance(subject, str) or not subject.requests_gpu or (subject.kind.is_pod and subject.owner is not None):
            continue
        try:
            yield open_workload(subject.kind, orjson.loads(subject.text), snapshot)
        except MalformedError:
            # The audit reports the malformed object elsewhere.
            continue
