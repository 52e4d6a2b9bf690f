"""Findings of the rule `jobs`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.framework.params import show_seconds
from gpugate.policies.gangs.gang import Gang, gang_of, is_elastic
from gpugate.policies.kube.fields import Object, integer_at, lookup
from gpugate.policies.rules.lifecycle.jobs.failure_policy import check_restarts, without_failure_policy
from gpugate.policies.rules.lifecycle.jobs.job_fields import (
    JobSpec,
    deadlines_of,
    deadlines_read_of,
    goes_with_ttl,
    job_specs,
    kept_after_end,
    parts_of,
    retry_limit,
    ttl_of,
)
from gpugate.policies.rules.lifecycle.jobs.mutate import is_kept_by_git, is_own, shown
from gpugate.policies.rules.lifecycle.jobs.params import JobsParams
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: JobsParams, _facts: ClusterSnapshot) -> Iterator[Finding]:
    """Judge how often, how long and how cleanly the jobs run."""
    if workload.is_pod() or not is_own(workload):
        return
    parts = parts_of(workload)
    gang = gang_of(workload) if parts else None
    for part in parts:
        yield from _check_retries(workload, part, gang, params)
        yield from _check_deadlines(part, workload.root, params)
        yield from _check_end(workload, part, params)
        for pods, spec in job_specs(part):
            if gang is not None and gang.size > 1 and not is_elastic(workload):
                yield from check_restarts(part, pods, spec, workload.root)
            if params.gpu_fault_exit_codes and lookup(workload.root, (*spec, "podFailurePolicy")) is None:
                yield without_failure_policy(pods, spec)


def _check_retries(workload: Workload, part: JobSpec, gang: Gang | None, params: JobsParams) -> Iterator[Finding]:
    root = workload.root
    limit = retry_limit(part, root)
    stated = None if limit is None else integer_at(root, limit.path)
    if limit is not None and limit.zero_is_default:
        stated = stated or None
    allowed = stated if stated is not None or limit is None else limit.default
    if limit is None or allowed is None:
        return
    size = gang.size if gang is not None and limit.by_pod else 1
    retries = max(0, allowed // size - limit.first)
    sums = f"{limit.path[-1]} {allowed}" + ("" if stated is not None else " (by default)")
    if size > 1:
        sums += f" / {size} pods that fail together = {retries}"
    elif limit.first:
        sums += f", the first run included, = {retries}"
    if params.fewest_retries is not None and retries < params.fewest_retries:
        yield Finding(
            "TooFewRetries",
            limit.path,
            f"{sums} {_times(retries)}, where the policy asks for {params.fewest_retries} at least",
            f"Write {limit.path[-1]}: {params.fewest_retries * size + limit.first}.",
            measure=params.fewest_retries - retries,
        )
    elif params.most_retries is not None and retries > params.most_retries:
        yield Finding(
            "TooManyRetries",
            limit.path,
            f"{sums} {_times(retries)}, where the policy allows {params.most_retries}",
            f"Write {limit.path[-1]}: {params.most_retries * size + limit.first}.",
            measure=retries,
        )
    elif limit.by_pod and allowed and not retries and not is_elastic(workload) and not _counts_otherwise(part, root):
        yield Finding(
            "RetriesSpentAtOnce",
            limit.path,
            f"{sums}: one crash of the gang uses every retry up, since each pod that fails counts",
            f"Write {limit.path[-1]}: {size} for one retry of the whole gang, or 0 for none.",
        )


def _times(retries: int) -> str:
    return "retry of the whole" if retries == 1 else "retries of the whole"


def _counts_otherwise(part: JobSpec, root: Object) -> bool:
    """Whether a failure policy decides which failures count."""
    return any(lookup(root, (*spec, "podFailurePolicy")) is not None for _, spec in job_specs(part))


def _check_deadlines(part: JobSpec, root: Object, params: JobsParams) -> Iterator[Finding]:
    longest, shortest = params.longest_deadline, params.shortest_deadline
    owed = deadlines_of(part)
    for path in (*owed, *deadlines_read_of(part)) if longest is not None or shortest is not None else ():
        stated = integer_at(root, path)
        if stated is None:
            if longest is not None and path in owed:
                yield Finding(
                    "DeadlineMissing",
                    path,
                    f"nothing ends the job if it hangs; the policy allows {show_seconds(longest)} at most",
                    f"Write {path[-1]}: {longest}, or less.",
                    measure=1,
                )
        elif longest is not None and stated > longest:
            yield Finding(
                "DeadlineTooLong",
                path,
                f"the job may take {show_seconds(stated)}, the policy allows {show_seconds(longest)}: {stated} > {longest}",
                f"Write {path[-1]}: {longest}, or less.",
                measure=stated,
            )
        elif shortest is not None and stated < shortest:
            yield Finding(
                "DeadlineTooShort",
                path,
                f"the job is ended after {show_seconds(stated)}, the policy asks for {show_seconds(shortest)} at least:"
                f" {stated} < {shortest}",
                f"Write {path[-1]}: {shortest}, or more.",
                measure=shortest - stated,
            )


def _check_end(workload: Workload, part: JobSpec, params: JobsParams) -> Iterator[Finding]:
    """What is left when the job has ended: accelerators that are held, and the job itself."""
    kept = kept_after_end(part, workload.root)
    if kept is not None:
        yield Finding(
            "HeldAfterEnd",
            kept.path,
            f"{kept.what} keep{'s' if kept.value is True else ''} running, and holding accelerators, when the job has ended",
            f"Write {kept.path[-1]}: {shown(kept.value)}.",
            measure=1,
        )
    path = ttl_of(part)
    if path is None:
        return
    stated, in_git = integer_at(workload.root, path), is_kept_by_git(workload)
    if stated is not None and in_git and goes_with_ttl(part, workload.root):
        yield Finding(
            "RunsAgain",
            path,
            f"the job is deleted {show_seconds(stated)} after its end, and Git states it still: the GitOps tool makes it anew, and"
            " it runs again",
            f"Leave {path[-1]} out, or make the job a hook of the sync.",
        )
    elif stated is None and not in_git:
        yield Finding(
            "NeverDeleted",
            path,
            "nothing ever deletes the finished job and its pods",
            f"Write {path[-1]}: {params.ttl_after_finished or 86400}.",
            measure=1,
        )
