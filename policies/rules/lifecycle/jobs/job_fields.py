"""Fields of jobs for their retries, their deadline and the clean-up after their end."""

from collections.abc import Iterator
from typing import NamedTuple

from gpugate.policies.kube.fields import Object, Path, integer_at, lookup, mapping, string
from gpugate.policies.workloads.kinds.model import RetryLimit, WorkloadKind
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


class JobSpec(NamedTuple):
    """A job of a workload: the object itself, or one that it wraps.

    Attributes:
        kind: its kind.
        base: its path in the object.
        pods: its pod sets that request a GPU.
    """

    kind: WorkloadKind
    base: Path
    pods: tuple[PodSet, ...]

    def paths(self, pattern: Path) -> list[Path]:
        """Return the paths in the object that ``pattern`` of the kind matches for the pod sets, each once."""
        return list(dict.fromkeys(pods.path_like(self.base, pattern) for pods in self.pods))


def jobs_of(workload: Workload) -> list[JobSpec]:
    """Return the jobs of ``workload`` whose pods request a GPU."""
    jobs: dict[Path, list[PodSet]] = {}
    for pods in workload.gpu_pod_sets():
        if pods.kind.batch:
            jobs.setdefault(workload.owner_path(pods), []).append(pods)
    return [JobSpec(pods[0].kind, base, tuple(pods)) for base, pods in jobs.items()]


def job_specs(job: JobSpec) -> Iterator[tuple[PodSet, Path]]:
    """Yield the pod set of each Kubernetes Job that ``job`` is or creates, with the path of the Job's spec."""
    if job.kind.job_spec is not None:
        for pods in job.pods:
            yield pods, pods.path_like(job.base, job.kind.job_spec)


def retry_limit(job: JobSpec, root: Object) -> RetryLimit | None:
    """Return the retry limit with its path in the object; None if the kind does not state it in one number."""
    limit = job.kind.retry
    if limit is None or (limit.unless is not None and integer_at(root, job.paths(limit.unless)[0]) is not None):
        return None
    return limit._replace(path=job.paths(limit.path)[0])


def deadlines_of(job: JobSpec) -> list[Path]:
    """Return the paths of the deadlines that the job can state; of a JobSet, those of its Jobs."""
    deadline = job.kind.deadline
    return job.paths(deadline.path) if deadline is not None and deadline.always_served else []


def optional_deadlines_of(job: JobSpec) -> list[Path]:
    """Return the paths of deadlines that only later versions of the API have: neither written nor required."""
    deadline = job.kind.deadline
    return job.paths(deadline.path) if deadline is not None and not deadline.always_served else []


def ttl_of(job: JobSpec) -> Path | None:
    """Return the path of the time to live after the end; None if the kind has none, or if another object deletes the job."""
    ttl = job.kind.ttl
    return None if ttl is None or job.base else job.paths(ttl.path)[0]


def ttl_deletes_object(job: JobSpec, root: Object) -> bool:
    """Return whether the time to live deletes the object itself."""
    versions = () if job.kind.ttl is None else job.kind.ttl.deletes_object_in
    served = [f"{job.kind.group}/{version}" for version in versions]
    return not served or lookup(root, (*job.base, "apiVersion")) in served


class HeldPods(NamedTuple):
    """Pods that hold GPUs after the end of the job.

    Attributes:
        path: path of the field that releases them.
        value: the value to write there.
        absent: whether the field is absent.
        what: the pods, in words.
    """

    path: Path
    value: object
    absent: bool
    what: str


def pods_held_after_end(job: JobSpec, root: Object) -> HeldPods | None:
    """Return the pods that hold GPUs after the end of the job; None if none do.

    Raises:
        MalformedError: the field, or a map above it, has a wrong type.
    """
    held = job.kind.held_after_end
    if held is None or (held.role and all(str(pods.path[-2]).casefold() != held.role for pods in job.pods)):
        return None
    if held.unless is not None and lookup(root, (*job.base, *held.unless)) is not None:
        return None
    paths = [(*job.base, *path) for path in held.paths]
    values = [_value_at(root, path, is_text=type(held.value) is str) for path in paths]
    stated = next((value for value in values if value not in (None, "")), None)
    if type(stated) is type(held.value) and stated not in held.held_by:
        return None
    return HeldPods(paths[0], held.value, stated is None, held.what)


def _value_at(root: Object, path: Path, *, is_text: bool) -> object:
    holder = mapping(lookup(root, path[:-2]), str(path[-2]), path[:-2])
    return string(holder, str(path[-1]), path[:-1]) if is_text else holder.get(str(path[-1]))
