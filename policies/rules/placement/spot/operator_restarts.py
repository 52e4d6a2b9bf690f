"""How often operators start again what lost a node: Kubeflow's jobs, Volcano's Job and RayJob.

Sources:

- Training operator v1.9 ``pkg/apis/kubeflow.org/v1``: a role that states no restart policy has ``Never`` in a TFJob, XGBoostJob,
  JAXJob and its own MPIJob (v1), whose launcher is a pod (``pkg/controller.v1/mpi``, ``newLauncher``).
- MPI operator v0.7 ``pkg/controller/mpi_job_controller.go``: workers that are gone are made anew whatever their restart policy says
  (``getOrCreateWorker``). The launcher, which ends with the first worker that it loses, is a Job with ``runPolicy.backoffLimit``
  (``newLauncherJob``), by default with ``OnFailure``: Kubernetes fails such a Job once its containers have started again as often
  as the limit says (``pastBackoffLimitOnFailure``), and not only when more often.
- Volcano v1.10 ``pkg/controllers/job``: a pod that is deleted, as it is by an eviction or when its node is gone, is the event
  ``PodEvicted``. The policies of its task come before those of the job (``applyPolicies``). Without any the pod alone is made anew
  (``syncJob``), as often as it takes; pods that failed are left as they are. ``RestartJob`` counts, and the job has failed when it
  was to be started again ``maxRetry`` times (``state/restarting.go``), so that the first run counts, too; the webhook makes 3 of 0
  (``mutate_job.go``).
- KubeRay v1.5 ``controllers/ray``: the head of a RayJob's cluster is not made anew, with fault tolerance of its store or without
  (``reconcilePods``); the job has failed, and is tried again ``backoffLimit`` times, each in a new cluster. ``InteractiveMode``
  takes no ``backoffLimit`` (``ValidateRayJobSpec``). Workers are made anew as often as it takes; what a lost one means is for the
  program.

Nothing is said of what is made anew for ever: a LeaderWorkerSet, with either restart policy (v0.7
``pkg/controllers/pod_controller.go``), a RayCluster and a RayService.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from gpugate.policies.findings import Finding
from gpugate.policies.gangs.gang import gang_of, is_elastic
from gpugate.policies.kube.fields import Object, Path, lookup
from gpugate.policies.workloads.kinds.model import API_BACKOFF_LIMIT, Recovery
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_NEVER: Final = "Never"
_EVICTED: Final = "PodEvicted"
_FAILED: Final = "PodFailed"
_ANY_EVENT: Final = "*"
_RESTART: Final = "RestartJob"
_ENDING: Final = frozenset({"AbortJob", "CompleteJob", "TerminateJob"})


def number_or(value: Any, absent: int) -> int:  # noqa: ANN401 - any JSON value
    """``value`` where it is a whole number, else ``absent``."""
    return value if type(value) is int else absent


def check_operators(workload: Workload, pods: PodSet, interruptions: int) -> Iterator[Finding]:
    """Speak of ``pods`` of an operator's kind that would not start again after so many ``interruptions``."""
    recovery = pods.kind.recovery
    if recovery is Recovery.LAUNCHER:
        yield from _check_mpi(workload, pods, interruptions)
    elif recovery is Recovery.ROLE:
        yield from _check_kubeflow(workload, pods)
    elif recovery is Recovery.POLICIES:
        yield from _check_volcano(workload, pods, interruptions)
    elif recovery is Recovery.NEW_CLUSTER:
        yield from _check_ray_head(workload, pods, interruptions)


def _check_kubeflow(workload: Workload, pods: PodSet) -> Iterator[Finding]:
    path: Path = (*pods.path[:-1], "restartPolicy")
    stated = lookup(workload.root, path)
    if stated == _NEVER or (stated is None and pods.kind.default_restart_policy == _NEVER):
        written = f"restartPolicy: {_NEVER}" if stated else f"restartPolicy {_NEVER}, which is the default of a {pods.kind.kind},"
        yield Finding(
            "NotRestarted",
            path,
            f"{written} fails the whole job with the first pod whose node is taken back",
            "Write restartPolicy: OnFailure, or ExitCode where the script's codes from 128 on mean that it may go on.",
        )


def _check_mpi(workload: Workload, pods: PodSet, interruptions: int) -> Iterator[Finding]:
    spec = pods.path[:-3]
    roles = lookup(workload.root, pods.path[:-2])
    launcher = next((name for name in roles if str(name).casefold() == "launcher"), None) if type(roles) is dict else None
    # A program that may lose workers outlives them.
    if launcher is None or is_elastic(workload) or not interruptions:
        return
    restarts = lookup(roles, (launcher, "restartPolicy"))
    if lookup(workload.root, (*spec[:-1], "apiVersion")) == f"{pods.kind.group}/v1":
        if restarts in (None, _NEVER):
            yield Finding(
                "NotRestarted",
                (*pods.path[:-2], launcher, "restartPolicy"),
                f"the launcher ends with the first worker whose node is taken back, and restartPolicy {_NEVER} leaves it so",
                "Write restartPolicy: OnFailure.",
            )
        return
    stated = lookup(workload.root, (*spec, "runPolicy", "backoffLimit"))
    limit = number_or(stated, API_BACKOFF_LIMIT)
    needed = interruptions + (restarts != _NEVER)
    if limit < needed:
        survived = limit if restarts == _NEVER else max(0, limit - 1)
        yield Finding(
            "BackoffTooSmall",
            (*spec, "runPolicy", "backoffLimit"),
            f"backoffLimit {_shown(limit, stated)} lets the launcher start again {_times(survived)}, and each interruption of a"
            f" worker ends it: {survived} < {interruptions}",
            f"Write backoffLimit: {needed} or more.",
            measure=needed - limit,
        )


def _shown(number: int, stated: object) -> str:
    return f"{number}" if type(stated) is int else f"{number} (by default)"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


class _Reaction(NamedTuple):
    """What Volcano does about an event: the policy, and where it is."""

    policy: Object
    path: Path
    event: str

    @property
    def action(self) -> str:
        found = self.policy.get("action")
        return found if type(found) is str else ""

    @property
    def is_of_this_alone(self) -> bool:
        return _events_of(self.policy) == [self.event]


def _events_of(policy: Object) -> list[Any]:
    events, event = policy.get("events"), policy.get("event")
    return [*(events if type(events) is list else ()), *([event] if event else ())]


def _policies(workload: Workload, pods: PodSet) -> Iterator[tuple[Path, Object]]:
    """The policies about ``pods``, those of their task first."""
    for holder in (pods.path[:-1], pods.path[:-3]):
        found = lookup(workload.root, (*holder, "policies"))
        for at, policy in enumerate(found if type(found) is list else ()):
            if type(policy) is dict:
                yield (*holder, "policies", at), policy


def _reaction(workload: Workload, pods: PodSet, event: str) -> _Reaction | None:
    """What becomes of the job with ``event``; None where no policy speaks of it."""
    for path, policy in _policies(workload, pods):
        if not {event, _ANY_EVENT}.isdisjoint(one for one in _events_of(policy) if type(one) is str):
            return _Reaction(policy, path, event)
    return None


def _check_volcano(workload: Workload, pods: PodSet, interruptions: int) -> Iterator[Finding]:
    if not interruptions:
        return
    spec = pods.path[:-3]
    stated = lookup(workload.root, (*spec, "maxRetry"))
    limit = pods.kind.retry
    runs, needed = number_or(stated, 0) or (limit and limit.default) or 0, interruptions + 1
    more = f", and maxRetry: {needed} or more" if runs < needed else ""
    found = _reaction(workload, pods, _EVICTED)
    if found is None and _peers_stay_failed(workload, pods):
        found = _reaction(workload, pods, _FAILED)
        if found is None:
            yield Finding(
                "NotRestarted",
                (*spec, "policies"),
                "nothing starts the pods of the gang again that fail with the one whose node is taken back: Volcano makes that one"
                f" anew, and with restartPolicy: {_NEVER} the others stay as they are",
                f"Add the policy {{events: [{_EVICTED}, {_FAILED}], action: {_RESTART}}} there{more}.",
            )
    if found is not None and found.action in _ENDING:
        own = f"Let this policy name other events alone, and add {{event: {found.event}, action: {_RESTART}}}"
        yield Finding(
            "NotRestarted",
            (*found.path, "action"),
            f"{found.action} ends the job with the first pod whose node is taken back ({found.event})",
            f"{f'Write action: {_RESTART}' if found.is_of_this_alone else own}{more}.",
        )
    elif found is not None and found.action == _RESTART and runs < needed:
        yield Finding(
            "BackoffTooSmall",
            (*spec, "maxRetry"),
            f"maxRetry {_shown(runs, stated or None)} counts the first run, too, so that the job starts again {_times(runs - 1)}:"
            f" {runs - 1} < {interruptions} interruptions",
            f"Write maxRetry: {needed} or more.",
            measure=needed - runs,
        )


def _peers_stay_failed(workload: Workload, pods: PodSet) -> bool:
    """Whether the other pods of the same task are a gang's, and so fail with one, for good as far as they are concerned."""
    if pods.spec.get("restartPolicy") != _NEVER or (pods.count or 0) < 2 or is_elastic(workload):
        return False
    if gang_of(workload) is None or any("exitCode" in policy for _, policy in _policies(workload, pods)):
        return False
    total = sum(one.count or 0 for one in workload.pod_sets if one.path[:-2] == pods.path[:-2])
    # Less than all is enough for such a job, whatever fails.
    return (number_or(lookup(workload.root, (*pods.path[:-3], "minAvailable")), 0) or total) >= total


def _check_ray_head(workload: Workload, pods: PodSet, interruptions: int) -> Iterator[Finding]:
    if pods.path[-2] != "headGroupSpec":
        return
    spec = pods.path[:-3]
    stated = lookup(workload.root, (*spec, "backoffLimit"))
    limit = number_or(stated, 0)
    off = "keep the head off spot nodes by gpugate.io/spot: never in the annotations of its template"
    if limit >= interruptions:
        return
    if lookup(workload.root, (*spec, "submissionMode")) == "InteractiveMode":
        yield Finding(
            "NotRestarted",
            (*spec, "submissionMode"),
            "the job ends with its head, whose node may be taken back, and InteractiveMode leaves it so",
            f"Write submissionMode: K8sJobMode and backoffLimit: {interruptions} or more, or {off}.",
        )
        return
    yield Finding(
        "BackoffTooSmall",
        (*spec, "backoffLimit"),
        f"backoffLimit {_shown(limit, stated)} < {interruptions} interruptions of the head, each of which ends the Ray cluster and"
        " the run in it",
        f"Write backoffLimit: {interruptions} or more, or {off}.",
        measure=interruptions - limit,
    )
