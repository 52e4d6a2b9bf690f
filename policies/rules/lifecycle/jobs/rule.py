"""Training jobs are tried again, given up and cleaned up as the policy says.

## What it does

Judges how jobs that ask for accelerators end: Job, CronJob, JobSet, Kubeflow's kinds, RayJob and Volcano's Job, also inside an
AppWrapper. Without parameters it writes nothing, and warns of what wastes accelerators: a gang whose containers are started
again one by one, a gang whose retries are used up by one crash of all its pods, what keeps running when the job has ended (the
cluster of a RayJob, the workers of an MPIJob), and a job in Git that deletes itself, so that the GitOps tool makes it, and
runs it, anew.

Where the policy asks for it, writes what the job does not state: when it is deleted after its end, how long it may take, how
often it is tried, and a `podFailurePolicy` by which exit codes of GPU faults, and evictions, do not count against
`backoffLimit`. The apiserver fills in `backoffLimit: 6` before gpugate sees the Job: what was applied tells a stated 6 from
that, by kubectl's annotation or the managed fields. A `podFailurePolicy` goes with `restartPolicy: Never` alone, as the API
has it.

A TrainJob states none of this, its runtime does: nothing is written into it or asked of it. An `activeDeadlineSeconds`, which
Kubeflow's trainer has from v2.2 on, is judged where it is stated. Pods by themselves are nobody's job.

| | when it is deleted | how long it may take | how often it is tried | GPU faults |
|---|---|---|---|---|
| Job | `ttlSecondsAfterFinished` | `activeDeadlineSeconds` | `backoffLimit`, in pods that failed | `podFailurePolicy` |
| CronJob | by its history limits | in its Jobs | in its Jobs | in its Jobs |
| JobSet | `ttlSecondsAfterFinished` | in each of its Jobs | `failurePolicy.maxRestarts` | in each of its Jobs |
| Kubeflow | in `runPolicy` | in `runPolicy` | in `runPolicy` | no field |
| RayJob | its cluster alone | `activeDeadlineSeconds` | `backoffLimit`, in clusters | no field |
| Volcano | `ttlSecondsAfterFinished` | no field | `maxRetry`, in runs of the whole: one more than retries | no field |
| TrainJob | in its runtime | in its runtime; `activeDeadlineSeconds` from v2.2 on | in its runtime | in its runtime |

## Why

A job that hangs holds its accelerators until somebody notices. In a gang a container that is started again inside its pod
waits for peers that hang in a collective operation of the run before. `backoffLimit` counts pods: when one of eight crashes
and the others follow, eight failures are counted, more than the default of 6. An Xid error of the driver is no exit code:
the training script, or what starts it, has to end with a code of its own when the card is at fault.

## Practice

- Orchestration guide, "Timeout and Failure Handling": failed jobs are tried again, a stated number of times.
- Orchestration guide, "Idle GPU Mitigation": completed jobs are cleaned up.
- Orchestration guide, "Spot Instances": what is interrupted starts again; an eviction is no failure of the job.
- Basics guide, "Machine Learning Training": `restartPolicy: Never` and a `backoffLimit`.
- Basics guide, "GPU Metrics and Alerts": Xid errors are told from errors of the program.
- Field guide, "Step 6 · Spot/preemptible nodes for training": evicted jobs come back and resume from their checkpoint.

## Example

With `gpuFaultExitCodes: [74]` a Job with `restartPolicy: Never` gets:

```yaml
podFailurePolicy:
  rules:
    - action: Ignore
      onExitCodes: {operator: In, values: [74]}
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Level, Mode
from gpugate.policies.framework.rule import Rule, show_seconds
from gpugate.policies.gangs.gang import Gang, gang_of, is_elastic
from gpugate.policies.kube.fields import Object, Path, integer_at, lookup
from gpugate.policies.kube.managers import is_gitops_managed, is_user_set
from gpugate.policies.patch import Edit
from gpugate.policies.rules.lifecycle.jobs.failure_policy import (
    check_restarts,
    failure_rules,
    give_failure_policy,
    without_failure_policy,
)
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
from gpugate.policies.rules.lifecycle.jobs.params import JobsParams
from gpugate.policies.workloads.kinds import API_BACKOFF_LIMIT
from gpugate.policies.workloads.workload import Workload

#: Objects that a GitOps tool runs once for each sync, and does not miss when they are gone.
_HOOKS: Final = ("argocd.argoproj.io/hook", "helm.sh/hook")


def _is_own(workload: Workload) -> bool:
    """Whether the job is nobody else's: what another made was judged with it, and is kept and ended by it."""
    return workload.controller() is None


def _is_of_schedule(workload: Workload) -> bool:
    """Whether a CronJob created the job."""
    owner = workload.owner_kind()
    return owner is not None and owner.scheduled


def _is_kept_by_git(workload: Workload) -> bool:
    return is_gitops_managed(workload.root) and all(key not in workload.annotations() for key in _HOOKS)


def _writes(params: JobsParams) -> bool:
    """Whether the policy asks for anything to be written."""
    given = (params.ttl_after_finished, params.default_deadline, params.backoff_limit)
    asked = params.release_after_end or params.ignore_disruptions or bool(params.gpu_fault_exit_codes)
    return asked or any(one is not None for one in given)


def mutate(workload: Workload, params: JobsParams, _facts: ClusterSnapshot) -> Iterator[Edit]:
    """Write what the policy gives and the job does not state."""
    if workload.is_pod() or not (_is_own(workload) or _is_of_schedule(workload)):
        return
    root = workload.root
    for part in parts_of(workload) if _writes(params) else ():
        if params.ttl_after_finished is not None and _is_own(workload) and not _is_kept_by_git(workload):
            ttl = ttl_of(part)
            yield from _give([] if ttl is None else [ttl], root, params.ttl_after_finished)
        if params.default_deadline is not None:
            yield from _give(deadlines_of(part), root, params.default_deadline)
        if params.backoff_limit is not None:
            yield from _give_limit(part, root, max(params.backoff_limit, _fewest(workload, part, params)))
        if params.release_after_end:
            kept = kept_after_end(part, root)
            if kept is not None and kept.absent:
                yield Edit("set", kept.path, kept.value, f"{kept.path[-1]} {_shown(kept.value)}")
        if params.gpu_fault_exit_codes or params.ignore_disruptions:
            rules = failure_rules(params.gpu_fault_exit_codes, params.gpu_fault_action, disruptions=params.ignore_disruptions)
            for pods, spec in job_specs(part):
                yield from give_failure_policy(pods, spec, root, rules)


def _shown(value: object) -> str:
    return "true" if value is True else str(value)


def _give(paths: list[Path], root: Object, value: int) -> Iterator[Edit]:
    for path in paths:
        if integer_at(root, path) is None:
            yield Edit("set", path, value, f"{path[-1]} {value}")


def _fewest(workload: Workload, part: JobSpec, params: JobsParams) -> int:
    """The least limit that the policy's own bound lets through: each pod of a gang that fails counts."""
    limit = retry_limit(part, workload.root)
    if params.fewest_retries is None or limit is None:
        return 0
    gang = gang_of(workload) if limit.by_pod else None
    return params.fewest_retries * (gang.size if gang is not None else 1)


def _give_limit(part: JobSpec, root: Object, value: int) -> Iterator[Edit]:
    limit = retry_limit(part, root)
    # Only the limit that the API itself fills in is replaced; the limits of other kinds count something else.
    if limit is None or limit.default != API_BACKOFF_LIMIT or integer_at(root, limit.path) not in {None, limit.default}:
        return
    stated = is_user_set(root, limit.path)
    if stated is not True:
        yield Edit("set", limit.path, value, f"backoffLimit {value}", defaulted=stated is False)


def check(workload: Workload, params: JobsParams, _facts: ClusterSnapshot) -> Iterator[Finding]:
    """Judge how often, how long and how cleanly the jobs run."""
    if workload.is_pod() or not _is_own(workload):
        return
    parts = parts_of(workload)
    gang = gang_of(workload) if parts else None
    for part in parts:
        yield from _check_retries(workload, part, gang, params)
        yield from _check_deadlines(part, workload.root, params)
        yield from _check_end(workload, part, params)
        for pods, spec in job_specs(part):
            in_place = params.restarts_in_place
            if in_place != "Allow" and gang is not None and gang.size > 1 and not is_elastic(workload):
                yield from check_restarts(part, pods, spec, workload.root, refuse=in_place == "Deny")
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
            Level.WARN,
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
    kept = kept_after_end(part, workload.root) if params.held_after_end != "Allow" else None
    if kept is not None:
        yield Finding(
            "HeldAfterEnd",
            kept.path,
            f"{kept.what} keep{'s' if kept.value is True else ''} running, and holding accelerators, when the job has ended",
            f"Write {kept.path[-1]}: {_shown(kept.value)}.",
            Level.DENY if params.held_after_end == "Deny" else Level.WARN,
            measure=1,
        )
    path = ttl_of(part)
    if path is None:
        return
    stated, in_git = integer_at(workload.root, path), _is_kept_by_git(workload)
    if stated is not None and in_git and goes_with_ttl(part, workload.root):
        yield Finding(
            "RunsAgain",
            path,
            f"the job is deleted {show_seconds(stated)} after its end, and Git states it still: the GitOps tool makes it anew, and"
            " it runs again",
            f"Leave {path[-1]} out, or make the job a hook of the sync.",
            Level.WARN,
        )
    elif stated is None and not in_git and params.without_ttl != "Allow":
        yield Finding(
            "NeverDeleted",
            path,
            "nothing ever deletes the finished job and its pods",
            f"Write {path[-1]}: {params.ttl_after_finished or 86400}.",
            Level.DENY if params.without_ttl == "Deny" else Level.WARN,
            measure=1,
        )


RULE = Rule(
    id="jobs",
    title="Training jobs are tried again, given up and cleaned up as the policy says",
    since="0.1.0",
    params=JobsParams,
    mutate=mutate,
    check=check,
    documentation=__doc__,
    default_max_mode=Mode.WARN,
    default_mode_reason="How long a job may take, and how often it may fail, is for those to say who run it.",
)
