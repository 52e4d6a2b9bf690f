"""Parameters of the rule `spread`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import CelRule, LabelKey


class TopologyParam(Params):
    """A label of nodes over whose values replicas are spread."""

    validations = (
        CelRule(
            "!has(self.minDomains) || (has(self.whenUnsatisfiable) && self.whenUnsatisfiable == 'DoNotSchedule')",
            "minDomains goes with whenUnsatisfiable DoNotSchedule alone",
        ),
    )

    key: LabelKey
    """The label's key."""
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"
    """Whether a pod that cannot be placed so is placed otherwise, or waits. With anti-affinity: preferred or required."""
    max_skew: Annotated[int, Field(ge=1, le=1000)] = 1
    """How many pods more one domain may have than another."""
    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many domains there must be before a second pod goes into one; with DoNotSchedule alone."""

    @model_validator(mode="after")
    def _waits_for_domains(self) -> TopologyParam:
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            message = "minDomains goes with whenUnsatisfiable DoNotSchedule alone"
            raise ValueError(message)
        return self

    @property
    def is_hard(self) -> bool:
        """Whether a pod waits rather than be placed otherwise."""
        return self.when_unsatisfiable == "DoNotSchedule"


class SpreadParams(Params):
    """Parameters of `spread`."""

    validations = (
        CelRule(
            "!has(self.over) || self.over.all(a, self.over.exists_one(b, a.key == b.key))", "over: a topology stands there twice"
        ),
    )

    by: Literal["Constraints", "AntiAffinity", "Nothing"] = "Constraints"
    """How replicas are spread: by topologySpreadConstraints, by anti-affinity, or not at all."""
    over: Annotated[tuple[TopologyParam, ...], Field(max_length=8)] = ()
    """The topologies that replicas are spread over; hosts and zones, as preferences, where it is left out."""
    within_revision: bool = True
    """Whether the pods of a rollout are counted apart from those that they replace."""
    fabric_key: LabelKey | None = None
    """The label of nodes within whose values a gang is to run; gangs are left alone where it is not given."""
    fabric: Literal["Preferred", "Required"] = "Preferred"
    """Whether a gang's pods prefer one fabric, or run in no other."""

    @model_validator(mode="after")
    def _each_once(self) -> SpreadParams:
        keys = [one.key for one in self.over]
        if len(set(keys)) < len(keys):
            message = "over: a topology stands there twice"
            raise ValueError(message)
        return self
