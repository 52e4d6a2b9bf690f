"""Findings of the rule `jobs`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.framework.params import show_seconds
from gpugate.policies.gangs.gang import Gang, gang_of, is_elastic
from gpugate.policies.kube.fields import Object, Path, integer_at, lookup
from gpugate.policies.rules.lifecycle.jobs.job_fields import (
    JobSpec,
    deadlines_of,
    job_specs,
    jobs_of,
    optional_deadlines_of,
    pods_held_after_end,
    retry_limit,
    ttl_deletes_object,
    ttl_of,
)
from gpugate.policies.rules.lifecycle.jobs.mutate import JobsParams, is_kept_by_git, is_own, show_yaml
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: JobsParams, _snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Check the retries, deadlines and clean-up of jobs."""
    if workload.is_pod() or not is_own(workload):
        return
    jobs = jobs_of(workload)
    gang = gang_of(workload) if jobs else None
    for job in jobs:
        yield from _check_retries(workload, job, gang, params)
        yield from _check_deadlines(job, workload.root, params)
        yield from _check_end(workload, job, params)
        for pods, spec in job_specs(job):
            if gang is not None and gang.size > 1 and not is_elastic(workload):
                yield from _check_restarts(job, pods, spec, workload.root)
            if params.gpu_fault_exit_codes and lookup(workload.root, (*spec, "podFailurePolicy")) is None:
                yield _faults_count(pods, spec)


def _check_retries(workload: Workload, job: JobSpec, gang: Gang | None, params: JobsParams) -> Iterator[Finding]:
    root = workload.root
    limit = retry_limit(job, root)
    if limit is None:
        return
    stated = integer_at(root, limit.path)
    if limit.zero_is_default:
        stated = stated or None
    allowed = limit.default if stated is None else stated
    if allowed is None:
        return
    size = gang.size if gang is not None and limit.by_pod else 1
    retries = max(0, allowed // size - limit.first)
    sums = f"{limit.path[-1]} {allowed}{' (by default)' if stated is None else ''}"
    if size > 1:
        sums += f" / {size} pods that fail together"
    elif limit.first:
        sums += f" - {limit.first} for the first run"
    whole = f"{sums} = {retries} {'retry' if retries == 1 else 'retries'} of the whole job"
    if params.fewest_retries is not None and retries < params.fewest_retries:
        yield Finding(
            "TooFewRetries",
            limit.path,
            f"{whole}, but the policy requires at least {params.fewest_retries}",
            f"Write {limit.path[-1]}: {params.fewest_retries * size + limit.first}.",
            measure=params.fewest_retries - retries,
        )
    elif params.most_retries is not None and retries > params.most_retries:
        yield Finding(
            "TooManyRetries",
            limit.path,
            f"{whole}, but the policy allows {params.most_retries}",
            f"Write {limit.path[-1]}: {params.most_retries * size + limit.first}.",
            measure=retries,
        )
    elif limit.by_pod and allowed and not retries and not is_elastic(workload) and not _has_failure_policy(job, root):
        yield Finding(
            "RetriesSpentAtOnce",
            limit.path,
            f"{sums} = {retries}: each failed pod counts, so one crash of the gang uses up all retries",
            f"Write {limit.path[-1]}: {size} for one retry of the whole gang, or 0 for none.",
        )


def _has_failure_policy(job: JobSpec, root: Object) -> bool:
    return any(lookup(root, (*spec, "podFailurePolicy")) is not None for _, spec in job_specs(job))


def _check_deadlines(job: JobSpec, root: Object, params: JobsParams) -> Iterator[Finding]:
    longest, shortest = params.longest_deadline, params.shortest_deadline
    if longest is None and shortest is None:
        return
    required = deadlines_of(job)
    for path in (*required, *optional_deadlines_of(job)):
        stated = integer_at(root, path)
        if stated is None:
            if longest is not None and path in required:
                yield Finding(
                    "DeadlineMissing",
                    path,
                    f"the job has no deadline, so it holds its GPUs if it hangs; the policy allows at most {show_seconds(longest)}",
                    f"Write {path[-1]}: {longest}, or less.",
                    measure=1,
                )
        elif longest is not None and stated > longest:
            yield Finding(
                "DeadlineTooLong",
                path,
                f"the job may run for {show_seconds(stated)}, but the policy allows {show_seconds(longest)}: {stated} > {longest}",
                f"Write {path[-1]}: {longest}, or less.",
                measure=stated,
            )
        elif shortest is not None and stated < shortest:
            yield Finding(
                "DeadlineTooShort",
                path,
                f"the job may run for {show_seconds(stated)}, but the policy requires at least {show_seconds(shortest)}:"
                f" {stated} < {shortest}",
                f"Write {path[-1]}: {shortest}, or more.",
                measure=shortest - stated,
            )


def _check_end(workload: Workload, job: JobSpec, params: JobsParams) -> Iterator[Finding]:
    held = pods_held_after_end(job, workload.root)
    if held is not None:
        ending = "s" if held.value is True else ""
        yield Finding(
            "HeldAfterEnd",
            held.path,
            f"{held.what} keep{ending} running and hold{ending} accelerators after the end of the job",
            f"Write {held.path[-1]}: {show_yaml(held.value)}.",
            measure=1,
        )
    path = ttl_of(job)
    if path is None:
        return
    ttl, in_git = integer_at(workload.root, path), is_kept_by_git(workload)
    if ttl is not None and in_git and ttl_deletes_object(job, workload.root):
        yield Finding(
            "RunsAgain",
            path,
            f"the job is deleted {show_seconds(ttl)} after its end but stays in Git, so the GitOps tool creates and runs it again",
            f"Remove {path[-1]}, or make the job a hook of the sync.",
        )
    elif ttl is None and not in_git:
        yield Finding(
            "NeverDeleted",
            path,
            "nothing ever deletes the finished job and its pods",
            f"Write {path[-1]}: {params.ttl_after_finished or 86400}.",
            measure=1,
        )


def _check_restarts(job: JobSpec, pods: PodSet, spec: Path, root: Object) -> Iterator[Finding]:
    stated = pods.spec.get("restartPolicy")
    policy = job.kind.default_restart_policy if stated is None else stated
    # A Job without retries fails at the first restart of a container.
    if policy != "OnFailure" or integer_at(root, (*spec, "backoffLimit")) == 0:
        return
    subject = "restartPolicy OnFailure" if stated else f"{job.kind.kind} sets the missing restartPolicy to OnFailure, which"
    yield Finding(
        "RestartsInPlace",
        pods.field("restartPolicy"),
        f"{subject} restarts a container of the gang inside its pod, while the other pods hang in a collective operation with the"
        " old process",
        "Write restartPolicy: Never.",
        measure=1,
    )


def _faults_count(pods: PodSet, spec: Path) -> Finding:
    never = pods.spec.get("restartPolicy") == "Never"
    reason = (
        "podReplacementPolicy is set, and a podFailurePolicy allows only Failed there"
        if never
        else "a podFailurePolicy requires restartPolicy Never"
    )
    return Finding(
        "FaultsCount",
        (*spec, "podFailurePolicy"),
        f"a GPU fault counts as a failure of the job, because {reason}",
        "Write podReplacementPolicy: Failed." if never else "Write restartPolicy: Never.",
    )
