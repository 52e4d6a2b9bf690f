"""Edits of the rule `jobs`."""

from collections.abc import Iterator
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.fields import Object, Path, integer_at
from gpugate.policies.kube.managers import is_gitops_managed, is_user_set
from gpugate.policies.patch import Edit
from gpugate.policies.rules.lifecycle.jobs.failure_policy import failure_rules, give_failure_policy
from gpugate.policies.rules.lifecycle.jobs.job_fields import (
    JobSpec,
    deadlines_of,
    job_specs,
    kept_after_end,
    parts_of,
    retry_limit,
    ttl_of,
)
from gpugate.policies.rules.lifecycle.jobs.params import JobsParams
from gpugate.policies.workloads.kinds.model import API_BACKOFF_LIMIT
from gpugate.policies.workloads.workload import Workload

#: Objects that a GitOps tool runs once for each sync, and does not miss when they are gone.
_HOOKS: Final = ("argocd.argoproj.io/hook", "helm.sh/hook")


def is_own(workload: Workload) -> bool:
    """Whether the job is nobody else's: what another made was judged with it, and is kept and ended by it."""
    return workload.controller() is None


def _is_of_schedule(workload: Workload) -> bool:
    """Whether a CronJob created the job."""
    owner = workload.owner_kind()
    return owner is not None and owner.scheduled


def is_kept_by_git(workload: Workload) -> bool:
    """Return whether a GitOps tool applies the object, and not as a hook."""
    return is_gitops_managed(workload.root) and all(key not in workload.annotations() for key in _HOOKS)


def _writes(params: JobsParams) -> bool:
    """Whether the policy asks for anything to be written."""
    given = (params.ttl_after_finished, params.default_deadline, params.backoff_limit)
    asked = params.release_after_end or params.ignore_disruptions or bool(params.gpu_fault_exit_codes)
    return asked or any(one is not None for one in given)


def mutate(workload: Workload, params: JobsParams, _facts: ClusterSnapshot) -> Iterator[Edit]:
    """Write what the policy gives and the job does not state."""
    if workload.is_pod() or not (is_own(workload) or _is_of_schedule(workload)):
        return
    root = workload.root
    for part in parts_of(workload) if _writes(params) else ():
        if params.ttl_after_finished is not None and is_own(workload) and not is_kept_by_git(workload):
            ttl = ttl_of(part)
            yield from _give([] if ttl is None else [ttl], root, params.ttl_after_finished)
        if params.default_deadline is not None:
            yield from _give(deadlines_of(part), root, params.default_deadline)
        if params.backoff_limit is not None:
            yield from _give_limit(part, root, max(params.backoff_limit, _fewest(workload, part, params)))
        if params.release_after_end:
            kept = kept_after_end(part, root)
            if kept is not None and kept.absent:
                yield Edit("set", kept.path, kept.value, f"{kept.path[-1]} {shown(kept.value)}")
        if params.gpu_fault_exit_codes or params.ignore_disruptions:
            rules = failure_rules(params.gpu_fault_exit_codes, params.gpu_fault_action, disruptions=params.ignore_disruptions)
            for pods, spec in job_specs(part):
                yield from give_failure_policy(pods, spec, root, rules)


def shown(value: object) -> str:
    """Format a value as YAML writes it."""
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
