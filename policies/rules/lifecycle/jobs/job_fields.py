"""The fields by which a job limits its retries, its run time and what remains after its end."""

from collections.abc import Iterator
from typing import NamedTuple

from gpugate.policies.kube.fields import Object, Path, integer_at, lookup, mapping, string
from gpugate.policies.workloads.kinds.model import RetryLimit, WorkloadKind
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


class JobSpec(NamedTuple):
    """A job under review: the object itself, or one that it wraps.

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

    @property
    def is_wrapped(self) -> bool:
        """Whether another object wraps it and deletes it."""
        return bool(self.base)


def parts_of(workload: Workload) -> list[JobSpec]:
    """Return the jobs of ``workload`` whose pods request a GPU."""
    jobs: dict[Path, list[PodSet]] = {}
    for pods in workload.gpu_pod_sets():
        if pods.kind.batch:
            jobs.setdefault(workload.owner_path(pods), []).append(pods)
    return [JobSpec(pods[0].kind, base, tuple(pods)) for base, pods in jobs.items()]


def job_specs(part: JobSpec) -> Iterator[tuple[PodSet, Path]]:
    """Yield the pod set of each Kubernetes Job that ``part`` is or creates, with the path of the Job's spec."""
    if part.kind.job_spec is not None:
        for pods in part.pods:
            yield pods, pods.path_like(part.base, part.kind.job_spec)


def retry_limit(part: JobSpec, root: Object) -> RetryLimit | None:
    """Return the retry limit with its path in the object; None if the kind does not state it in one number."""
    limit = part.kind.retry
    if limit is None or (limit.unless is not None and integer_at(root, part.paths(limit.unless)[0]) is not None):
        return None
    return limit._replace(path=part.paths(limit.path)[0])


def deadlines_of(part: JobSpec) -> list[Path]:
    """Return the paths of the deadlines that the job can state; of a JobSet, those of its Jobs."""
    deadline = part.kind.deadline
    return part.paths(deadline.path) if deadline is not None and deadline.always_served else []


def deadlines_read_of(part: JobSpec) -> list[Path]:
    """Return the paths of deadlines that only later versions of the API have: never written, never reported as missing."""
    deadline = part.kind.deadline
    return part.paths(deadline.path) if deadline is not None and not deadline.always_served else []


def ttl_of(part: JobSpec) -> Path | None:
    """Return the path of the time to live after the end; None if the kind has none, or if another object deletes the job."""
    ttl = part.kind.ttl
    return None if ttl is None or part.is_wrapped else part.paths(ttl.path)[0]


def goes_with_ttl(part: JobSpec, root: Object) -> bool:
    """Whether the time to live deletes the object itself."""
    versions = () if part.kind.ttl is None else part.kind.ttl.deletes_object_in
    served = [f"{part.kind.group}/{version}" for version in versions]
    return not served or lookup(root, (*part.base, "apiVersion")) in served


class Kept(NamedTuple):
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


def kept_after_end(part: JobSpec, root: Object) -> Kept | None:
    """Return the pods that hold GPUs after the end of the job; None if none do.

    Raises:
        MalformedError: the field, or a map on the way to it, has a wrong type.
    """
    held = part.kind.held_after_end
    if held is None or (held.role and all(str(pods.path[-2]).casefold() != held.role for pods in part.pods)):
        return None
    if held.unless is not None and lookup(root, (*part.base, *held.unless)) is not None:
        return None
    paths = [(*part.base, *path) for path in held.paths]
    values = [_value_at(root, path, is_text=type(held.value) is str) for path in paths]
    stated = next((value for value in values if value not in (None, "")), None)
    if type(stated) is type(held.value) and stated not in held.held_by:
        return None
    return Kept(paths[0], held.value, stated is None, held.what)


def _value_at(root: Object, path: Path, *, is_text: bool) -> object:
    holder = mapping(lookup(root, path[:-2]), str(path[-2]), path[:-2])
    return string(holder, str(path[-1]), path[:-1]) if is_text else holder.get(str(path[-1]))
