"""Parameters of the rule `jobs`: how often, how long and how cleanly jobs may run."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from gpugate.policies.framework.params import Params, Seconds, show_seconds
from gpugate.policies.framework.reasons import Reaction
from gpugate.policies.kube.cel import UNIQUE, CelRule

ExitCode = Annotated[int, Field(ge=1, le=255)]


#: Where durations are written the API has 32 bits for the seconds.
_LONGEST: Final = 10 * 365 * 24 * 3600


def _written_whole(name: str) -> CelRule:
    longest = show_seconds(_LONGEST)
    return CelRule(f"!has(self.{name}) || duration(self.{name}) <= duration('{longest}')", f"{name} must not be above {longest}")


def _no_longer(low: str, high: str) -> CelRule:
    rule = f"!has(self.{low}) || !has(self.{high}) || duration(self.{low}) <= duration(self.{high})"
    return CelRule(rule, f"{low} must not be above {high}")


class JobsParams(Params):
    """Parameters of `jobs`."""

    validations = (
        _written_whole("ttlAfterFinished"),
        _written_whole("defaultDeadline"),
        _no_longer("shortestDeadline", "longestDeadline"),
        _no_longer("defaultDeadline", "longestDeadline"),
        _no_longer("shortestDeadline", "defaultDeadline"),
        CelRule(
            "!has(self.fewestRetries) || !has(self.mostRetries) || self.fewestRetries <= self.mostRetries",
            "fewestRetries must not be above mostRetries",
        ),
    )

    ttl_after_finished: Seconds | None = None
    """How long a finished job is kept that does not say so. Not written where a GitOps tool keeps it: it would run it again."""
    without_ttl: Reaction = "Allow"
    """What is done about a job that nothing ever deletes."""
    default_deadline: Seconds | None = None
    """How long a job may take that does not say so."""
    shortest_deadline: Seconds | None = None
    """Below which deadline a job is refused."""
    longest_deadline: Seconds | None = None
    """Above which deadline, or without any, a job is refused."""
    backoff_limit: Annotated[int, Field(ge=0, le=1000)] | None = None
    """backoffLimit of a Job or CronJob that does not state it; more where `fewestRetries` asks for more. In a gang every pod that
    fails counts."""
    fewest_retries: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Below how many retries of the whole job it is refused; a Job's backoffLimit is divided by the pods of its gang."""
    most_retries: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Above how many retries of the whole job it is refused."""
    restarts_in_place: Reaction = "Warn"
    """What is done about a gang whose containers are started again inside their pods."""
    release_after_end: bool = False
    """Whether what would keep running when the job has ended is ended: a RayJob's cluster, an MPIJob's workers."""
    held_after_end: Reaction = "Warn"
    """What is done about accelerators that are held when the job has ended."""
    gpu_fault_exit_codes: Annotated[tuple[ExitCode, ...], *UNIQUE] = ()
    """Exit codes by which training says that a GPU is at fault."""
    gpu_fault_action: Literal["Ignore", "FailJob"] = "Ignore"
    """What becomes of a Job whose pod ends with one: the pod is replaced and not counted, or the Job has failed."""
    ignore_disruptions: bool = False
    """Whether pods that are evicted or preempted do not count against backoffLimit."""

    @model_validator(mode="after")
    def _short_enough(self) -> JobsParams:
        for name in ("ttl_after_finished", "default_deadline"):
            if (getattr(self, name) or 0) > _LONGEST:
                message = f"{type(self).model_fields[name].alias} must not be above {show_seconds(_LONGEST)}"
                raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _bounds_in_order(self) -> JobsParams:
        for low, high in (
            ("shortest_deadline", "longest_deadline"),
            ("default_deadline", "longest_deadline"),
            ("shortest_deadline", "default_deadline"),
            ("fewest_retries", "most_retries"),
        ):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least > most:
                fields = type(self).model_fields
                message = f"{fields[low].alias} must not be above {fields[high].alias}"
                raise ValueError(message)
        return self
