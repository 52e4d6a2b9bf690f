"""Whether a workload restarts after its nodes are reclaimed, and how often.

Sources:

- Job: a pod that is evicted, or whose node is removed, has failed for its Job; its condition ``DisruptionTarget`` says why
  (``k8s.io/api/batch/v1``, ``PodFailurePolicyOnPodConditionsPattern``). The other pods of a gang then fail without that condition,
  since their peer is missing.
- Training operator v1.9 ``pkg/apis/kubeflow.org/v1``: a role without restart policy has ``Never`` in a TFJob, XGBoostJob, JAXJob
  and its own MPIJob (v1), whose launcher is a pod (``pkg/controller.v1/mpi``, ``newLauncher``).
- MPI operator v0.7 ``pkg/controller/mpi_job_controller.go``: workers are re-created whatever their restart policy
  (``getOrCreateWorker``). The launcher ends with the first worker that it loses. It is a Job with ``runPolicy.backoffLimit``
  (``newLauncherJob``), by default with ``OnFailure``: Kubernetes fails such a Job when its containers have restarted as often as
  the limit, not only when more often (``pastBackoffLimitOnFailure``).
- Volcano v1.10 ``pkg/controllers/job``: an evicted or deleted pod is the event ``PodEvicted``. The policies of its task come before
  those of the job (``applyPolicies``). Without a policy only that pod is re-created (``syncJob``), without a limit; failed pods
  stay failed. ``RestartJob`` counts, and the job fails on restart number ``maxRetry`` (``state/restarting.go``), so the first run
  counts, too; the webhook turns 0 into 3 (``mutate_job.go``).
- KubeRay v1.5 ``controllers/ray``: the head of a RayJob's cluster is not re-created, with or without GCS fault tolerance
  (``reconcilePods``); the job fails and is retried ``backoffLimit`` times, each in a new cluster. ``InteractiveMode`` allows no
  ``backoffLimit`` (``ValidateRayJobSpec``). Workers are re-created without a limit; the program handles a lost one.

A LeaderWorkerSet with either restart policy (v0.7 ``pkg/controllers/pod_controller.go``), a RayCluster and a RayService have no
findings: they are re-created without a limit.
"""

from collections.abc import Iterator
from typing import Any, Final

from gpugate.policies.findings import Finding, Level
from gpugate.policies.gangs.gang import gang_of, is_elastic
from gpugate.policies.kube.fields import Object, Path, lookup
from gpugate.policies.workloads.kinds.model import API_BACKOFF_LIMIT, Recovery
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_DISRUPTION: Final = "DisruptionTarget"
_NEVER: Final = "Never"
_EVICTED: Final = "PodEvicted"
_FAILED: Final = "PodFailed"
_ANY_EVENT: Final = "*"
_RESTART: Final = "RestartJob"
_ENDING: Final = frozenset({"AbortJob", "CompleteJob", "TerminateJob"})


def check_restarts(workload: Workload, pods: PodSet, interruptions: int) -> Iterator[Finding]:
    """Yield findings for ``pods`` that do not restart after so many ``interruptions``."""
    recovery = pods.kind.recovery
    if workload.is_pod():
        if workload.controller() is None:
            yield Finding(
                "NotRestarted",
                ("metadata", "ownerReferences"),
                "the pod has no controller, so nothing restarts it when its node is reclaimed",
                "Make it a Job.",
                Level.WARN,
            )
    elif recovery is Recovery.BACKOFF:
        yield from _check_job(workload, pods, interruptions)
    elif recovery is Recovery.LAUNCHER:
        yield from _check_mpi(workload, pods, interruptions)
    elif recovery is Recovery.ROLE:
        yield from _check_kubeflow(workload, pods)
    elif recovery is Recovery.POLICIES:
        yield from _check_volcano(workload, pods, interruptions)
    elif recovery is Recovery.NEW_CLUSTER:
        yield from _check_ray_head(workload, pods, interruptions)


def _number_or(value: Any, default: int) -> int:  # noqa: ANN401 - any JSON value
    return value if type(value) is int else default


def _shown(number: int, written: object) -> str:
    return f"{number}" if type(written) is int else f"{number} (by default)"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _check_job(workload: Workload, pods: PodSet, interruptions: int) -> Iterator[Finding]:
    path = pods.path[:-1]
    spec = lookup(workload.root, path)
    if type(spec) is not dict or _all_jobs_restart(workload, pods, interruptions):
        return
    failed = max(1, _number_or(spec.get("parallelism"), 1)) if gang_of(workload) is not None else 1
    ignored = _ignores_disruption(spec)
    counted = failed - ignored
    name, default = "backoffLimit", API_BACKOFF_LIMIT
    if spec.get("backoffLimitPerIndex") is not None:
        name, default, counted = "backoffLimitPerIndex", 0, min(1, counted)
    limit, needed = _number_or(spec.get(name), default), interruptions * counted
    if limit < needed:
        gang = ": when one node is reclaimed, all pods of the gang fail" if failed > 1 else ""
        yield Finding(
            "BackoffTooSmall",
            (*path, name),
            f"{name} {limit} < {interruptions} interruptions x {counted} failed pod{'s' if counted != 1 else ''} = {needed}{gang}"
            f"{', and podFailurePolicy ignores one of them' if gang and ignored else ''}",
            _job_remedy(spec, name, interruptions, failed, needed=needed, ignored=ignored),
            measure=needed - limit,
        )


def _job_remedy(spec: Object, name: str, interruptions: int, failed: int, *, needed: int, ignored: bool) -> str:
    if ignored or (name != "backoffLimit" and failed > 1):
        return f"Write {name}: {needed} or more."
    if lookup(spec, ("template", "spec", "restartPolicy")) != _NEVER:
        return f"Write {name}: {needed} or more; with restartPolicy: {_NEVER}, a podFailurePolicy can ignore interruptions."
    rest = interruptions * (failed - 1)
    policy = f"a podFailurePolicy rule with action: Ignore and onPodConditions: [{{type: {_DISRUPTION}}}]"
    return f"Write {name}: {needed} or more. Or write {policy}{f', and {name}: {rest} or more' if rest else ''}."


def _ignores_disruption(spec: Object) -> bool:
    """Return whether the Job does not count a pod whose node is reclaimed: the first rule about that condition decides."""
    rules = lookup(spec, ("podFailurePolicy", "rules"))
    for rule in rules if type(rules) is list else ():
        conditions = lookup(rule, ("onPodConditions",))
        for condition in conditions if type(conditions) is list else ():
            if lookup(condition, ("type",)) == _DISRUPTION and (lookup(condition, ("status",)) or "True") == "True":
                return bool(lookup(rule, ("action",)) == "Ignore")
    return False


def _all_jobs_restart(workload: Workload, pods: PodSet, interruptions: int) -> bool:
    """Return whether the kind re-creates all its Jobs so often, whatever the limits of the Jobs."""
    limit = pods.kind.retry
    if limit is None or limit.by_pod:
        return False
    return _number_or(lookup(workload.root, (*workload.owner_path(pods), *limit.path)), 0) >= interruptions


def _check_kubeflow(workload: Workload, pods: PodSet) -> Iterator[Finding]:
    path: Path = (*pods.path[:-1], "restartPolicy")
    written = lookup(workload.root, path)
    if written == _NEVER or (written is None and pods.kind.default_restart_policy == _NEVER):
        shown = f"restartPolicy: {_NEVER}" if written else f"restartPolicy {_NEVER}, the default of a {pods.kind.kind},"
        yield Finding(
            "NotRestarted",
            path,
            f"{shown} fails the whole job when the node of one pod is reclaimed",
            "Write restartPolicy: OnFailure, or ExitCode if exit codes from 128 on mean that the script can be retried.",
        )


def _check_mpi(workload: Workload, pods: PodSet, interruptions: int) -> Iterator[Finding]:
    spec = pods.path[:-3]
    roles = lookup(workload.root, pods.path[:-2])
    launcher = next((name for name in roles if str(name).casefold() == "launcher"), None) if type(roles) is dict else None
    # The launcher of an elastic job outlives its workers.
    if launcher is None or is_elastic(workload) or not interruptions:
        return
    policy = lookup(roles, (launcher, "restartPolicy"))
    if lookup(workload.root, (*spec[:-1], "apiVersion")) == f"{pods.kind.group}/v1":
        if policy in (None, _NEVER):
            yield Finding(
                "NotRestarted",
                (*pods.path[:-2], launcher, "restartPolicy"),
                f"the launcher ends with the first worker whose node is reclaimed, and restartPolicy {_NEVER} does not restart it",
                "Write restartPolicy: OnFailure.",
            )
        return
    written = lookup(workload.root, (*spec, "runPolicy", "backoffLimit"))
    limit = _number_or(written, API_BACKOFF_LIMIT)
    needed = interruptions + (policy != _NEVER)
    if limit < needed:
        restarts = limit if policy == _NEVER else max(0, limit - 1)
        yield Finding(
            "BackoffTooSmall",
            (*spec, "runPolicy", "backoffLimit"),
            f"backoffLimit {_shown(limit, written)} restarts the launcher {_times(restarts)}, and each interruption of a worker"
            f" ends it: {restarts} < {interruptions}",
            f"Write backoffLimit: {needed} or more.",
            measure=needed - limit,
        )


def _events_of(policy: Object) -> list[Any]:
    events, event = policy.get("events"), policy.get("event")
    return [*(events if type(events) is list else ()), *([event] if event else ())]


def _policies(workload: Workload, pods: PodSet) -> Iterator[tuple[Path, Object]]:
    """Yield Volcano's policies for ``pods``, those of their task first."""
    for holder in (pods.path[:-1], pods.path[:-3]):
        policies = lookup(workload.root, (*holder, "policies"))
        for at, policy in enumerate(policies if type(policies) is list else ()):
            if type(policy) is dict:
                yield (*holder, "policies", at), policy


def _policy_for(workload: Workload, pods: PodSet, event: str) -> tuple[Path, Object] | None:
    for path, policy in _policies(workload, pods):
        if any(name in {event, _ANY_EVENT} for name in _events_of(policy) if type(name) is str):
            return path, policy
    return None


def _check_volcano(workload: Workload, pods: PodSet, interruptions: int) -> Iterator[Finding]:
    if not interruptions:
        return
    spec = pods.path[:-3]
    written = lookup(workload.root, (*spec, "maxRetry"))
    limit = pods.kind.retry
    runs, needed = _number_or(written, 0) or (limit and limit.default) or 0, interruptions + 1
    retries = f", and maxRetry: {needed} or more" if runs < needed else ""
    event, policy = _EVICTED, _policy_for(workload, pods, _EVICTED)
    if policy is None and _peers_stay_failed(workload, pods):
        event, policy = _FAILED, _policy_for(workload, pods, _FAILED)
        if policy is None:
            yield Finding(
                "NotRestarted",
                (*spec, "policies"),
                "nothing restarts the gang: Volcano re-creates only the pod whose node is reclaimed; the other pods fail with it,"
                f" and restartPolicy: {_NEVER} does not restart them",
                f"Add {{events: [{_EVICTED}, {_FAILED}], action: {_RESTART}}} to the policies of the job{retries}.",
            )
    if policy is None:
        return
    path, fields = policy
    action = str(fields.get("action"))
    if action in _ENDING:
        only_event = _events_of(fields) == [event]
        remedy = (
            f"Write action: {_RESTART}"
            if only_event
            else f"List only other events in this policy, and add {{event: {event}, action: {_RESTART}}}"
        )
        yield Finding(
            "NotRestarted",
            (*path, "action"),
            f"{action} ends the job when the node of one pod is reclaimed ({event})",
            f"{remedy}{retries}.",
        )
    elif action == _RESTART and runs < needed:
        yield Finding(
            "BackoffTooSmall",
            (*spec, "maxRetry"),
            f"maxRetry {_shown(runs, written or None)} counts the first run, so the job restarts {_times(runs - 1)}:"
            f" {runs - 1} < {interruptions} interruptions",
            f"Write maxRetry: {needed} or more.",
            measure=needed - runs,
        )


def _peers_stay_failed(workload: Workload, pods: PodSet) -> bool:
    """Return whether the pods are a gang that fails with one of them, and are not restarted."""
    if pods.spec.get("restartPolicy") != _NEVER or (pods.count or 0) < 2 or is_elastic(workload):
        return False
    if gang_of(workload) is None or any("exitCode" in policy for _, policy in _policies(workload, pods)):
        return False
    total = sum(peers.count or 0 for peers in workload.pod_sets if peers.path[:-2] == pods.path[:-2])
    # A job with a minAvailable below the total goes on without the failed pods.
    return (_number_or(lookup(workload.root, (*pods.path[:-3], "minAvailable")), 0) or total) >= total


def _check_ray_head(workload: Workload, pods: PodSet, interruptions: int) -> Iterator[Finding]:
    spec = pods.path[:-3]
    written = lookup(workload.root, (*spec, "backoffLimit"))
    limit = _number_or(written, 0)
    if pods.path[-2] != "headGroupSpec" or limit >= interruptions:
        return
    off_spot = "keep the head off spot nodes with gpugate.io/spot: never in the annotations of its template"
    if lookup(workload.root, (*spec, "submissionMode")) == "InteractiveMode":
        yield Finding(
            "NotRestarted",
            (*spec, "submissionMode"),
            "the job ends when the node of its head is reclaimed, and submissionMode InteractiveMode does not restart it",
            f"Write submissionMode: K8sJobMode and backoffLimit: {interruptions} or more, or {off_spot}.",
        )
        return
    yield Finding(
        "BackoffTooSmall",
        (*spec, "backoffLimit"),
        f"backoffLimit {_shown(limit, written)} < {interruptions} interruptions of the head, each of which ends the Ray cluster and"
        " its run",
        f"Write backoffLimit: {interruptions} or more, or {off_spot}.",
        measure=interruptions - limit,
    )
