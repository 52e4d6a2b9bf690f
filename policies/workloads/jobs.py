"""Where each kind that runs to completion says how often it is tried, how long it may take and what is left of it.

Sources: ``k8s.io/kubernetes`` 1.36 ``pkg/apis/batch``, JobSet v0.10 ``pkg/webhooks``, Kubeflow's training operator v1.9
``pkg/controller.v1/common`` and MPI operator v0.7 ``pkg/controller``, KubeRay v1.5 ``apis/ray/v1``, Volcano v1.10
``pkg/apis/batch/v1alpha1``, ``pkg/controllers/job/state/restarting.go`` and ``pkg/webhooks/admission/jobs/mutate``, Kubeflow
trainer v2.1 ``manifests/base/crds``: a TrainJob says none of it, its runtime does. From v2.2 on it has ``activeDeadlineSeconds``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpugate.policies.kube.fields import Object, Path, integer, lookup, mapping, string
from gpugate.policies.workloads.kinds import CRON_JOB, JOB, JOB_SET, MPI_JOB, RAY_JOB, TF_JOB, TRAIN_JOB, VOLCANO_JOB, WorkloadKind
from gpugate.policies.workloads.workload import PodSet, Workload

#: What the API makes of a Job's backoffLimit that nobody states.
API_BACKOFF_LIMIT: Final = 6
#: What Volcano's webhook makes of a ``maxRetry`` that is missing or 0.
VOLCANO_RUNS: Final = 3
_KUBEFLOW: Final = "kubeflow.org"
#: Kinds whose pods are those of a Kubernetes Job, with the Job's spec around the template.
_OF_JOBS: Final = frozenset({JOB, CRON_JOB, JOB_SET})
#: Roles whose pods run until somebody ends them: MPI's workers wait for the launcher's orders, parameter servers for anybody's.
_ENDLESS: Final = {MPI_JOB: "worker", TF_JOB: "ps"}


class JobSpec(NamedTuple):
    """A job under review: the object itself, or one that an AppWrapper wraps.

    Attributes:
        kind: its kind.
        base: where it is in the object.
        pods: those of its pods that ask for accelerators.
    """

    kind: WorkloadKind
    base: Path
    pods: tuple[PodSet, ...]

    def path(self, *parts: str) -> Path:
        """A path below its spec."""
        return (*self.base, "spec", *parts)

    @property
    def is_wrapped(self) -> bool:
        """Whether an AppWrapper holds it, and sees to its end."""
        return bool(self.base)


class RetryLimit(NamedTuple):
    """How often a job is tried again.

    Attributes:
        path: where it is stated.
        default: what holds where it is not; None for no limit.
        by_pod: whether every pod that fails counts, and not the job as a whole.
        zero_is_default: whether the API makes the default of a stated 0.
        first: how many of the limit the first run takes.
    """

    path: Path
    default: int | None
    by_pod: bool
    zero_is_default: bool = False
    first: int = 0


def parts_of(workload: Workload) -> list[JobSpec]:
    """The jobs of ``workload`` whose pods ask for accelerators."""
    wraps = workload.kind.wraps
    depth = 0 if wraps is None else len(wraps) + 2
    found: dict[Path, list[PodSet]] = {}
    for pods in workload.gpu_pod_sets():
        if pods.kind.batch:
            found.setdefault(pods.path[:depth], []).append(pods)
    return [JobSpec(pods[0].kind, base, tuple(pods)) for base, pods in found.items()]


def number(root: Object, path: Path) -> int | None:
    """The whole number at ``path``; None where there is none.

    Raises:
        MalformedError: something else is there.
    """
    parent = lookup(root, path[:-1])
    return integer(parent, str(path[-1]), path[:-1]) if type(parent) is dict else None


def job_specs(part: JobSpec) -> Iterator[tuple[PodSet, Path]]:
    """The pods of each Kubernetes Job that ``part`` is or makes, and where the Job's spec is."""
    if part.kind in _OF_JOBS:
        for pods in part.pods:
            yield pods, pods.path[:-1]


def retry_limit(part: JobSpec, root: Object) -> RetryLimit | None:
    """How often the job is tried again; None where its kind does not say so in one number."""
    kind = part.kind
    if kind in {JOB, CRON_JOB}:
        spec = part.pods[0].path[:-1]
        per_index = number(root, (*spec, "backoffLimitPerIndex"))
        return RetryLimit((*spec, "backoffLimit"), API_BACKOFF_LIMIT, by_pod=True) if per_index is None else None
    if kind is JOB_SET:
        return RetryLimit(part.path("failurePolicy", "maxRestarts"), 0, by_pod=False)
    if kind is VOLCANO_JOB:
        return RetryLimit(part.path("maxRetry"), VOLCANO_RUNS, by_pod=False, zero_is_default=True, first=1)
    if kind is RAY_JOB:
        return RetryLimit(part.path("backoffLimit"), 0, by_pod=False)
    if kind.group == _KUBEFLOW:
        # MPI's limit is that of the launcher's Job, whose failure is everybody's.
        return RetryLimit(part.path("runPolicy", "backoffLimit"), None, by_pod=kind is not MPI_JOB)
    return None


def deadlines_of(part: JobSpec) -> list[Path]:
    """Where the job says how long it may take; a JobSet in each of its Jobs."""
    if part.kind in _OF_JOBS:
        return [(*spec, "activeDeadlineSeconds") for _, spec in job_specs(part)]
    if part.kind.group == _KUBEFLOW:
        return [part.path("runPolicy", "activeDeadlineSeconds")]
    return [part.path("activeDeadlineSeconds")] if part.kind is RAY_JOB else []


def deadlines_read_of(part: JobSpec) -> list[Path]:
    """Where the job says how long it may take in later versions of its API alone: nothing is written there, or missed."""
    return [part.path("activeDeadlineSeconds")] if part.kind is TRAIN_JOB else []


def ttl_of(part: JobSpec) -> Path | None:
    """Where the job says when it is deleted; None where its kind cannot, or what made it sees to that.

    A CronJob keeps a few Jobs and deletes the others, an AppWrapper would miss what it wraps, and a RayJob deletes its cluster
    alone.
    """
    if part.is_wrapped or part.kind in {CRON_JOB, RAY_JOB}:
        return None
    if part.kind.group == _KUBEFLOW:
        return part.path("runPolicy", "ttlSecondsAfterFinished")
    return part.path("ttlSecondsAfterFinished") if part.kind in {JOB, JOB_SET, VOLCANO_JOB} else None


def goes_with_ttl(part: JobSpec, root: Object) -> bool:
    """Whether its time to live deletes the object itself: the MPI operator gives it to the launcher's Job (``newLauncherJob``)."""
    return part.kind is not MPI_JOB or lookup(root, (*part.base, "apiVersion")) == f"{_KUBEFLOW}/v1"


class Kept(NamedTuple):
    """What holds accelerators when the job has ended.

    Attributes:
        path: the field that would release them.
        value: what to write there.
        absent: whether nothing is there yet.
        what: what is kept, in words.
    """

    path: Path
    value: object
    absent: bool
    what: str


def kept_after_end(part: JobSpec, root: Object) -> Kept | None:
    """What holds accelerators after the job's end, where its kind keeps it running; None where nothing does."""
    spec = mapping(_at(root, part.base), "spec", part.base)
    if part.kind is RAY_JOB:
        path = part.path("shutdownAfterJobFinishes")
        present = spec.get("shutdownAfterJobFinishes")
        if present is True or spec.get("deletionStrategy") is not None:
            return None
        return Kept(path, True, present is None, "the Ray cluster")  # noqa: FBT003 - a value to be written
    role = _ENDLESS.get(part.kind)
    if role is None or all(str(pods.path[-2]).casefold() != role for pods in part.pods):
        return None
    path = part.path("runPolicy", "cleanPodPolicy")
    policy = mapping(spec, "runPolicy", part.path())
    # The training operator's own MPIJob has the field beside the run policy, too.
    found = string(policy, "cleanPodPolicy", path[:-1]) or string(spec, "cleanPodPolicy", part.path())
    if found not in {None, "None"}:
        return None
    return Kept(path, "Running", found is None, "the workers" if part.kind is MPI_JOB else "the parameter servers")


def _at(root: Object, base: Path) -> Object:
    found: Object = lookup(root, base)
    return found
