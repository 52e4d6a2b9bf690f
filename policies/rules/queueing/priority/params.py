"""Parameters of the rule `priority`, and what they come to for a workload: its classes and the highest that it may use."""

from pydantic import field_validator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import CelRule, LabelKey
from gpugate.policies.rules.queueing.priority.classes import (
    SYSTEM,
    ClassName,
    PriorityBound,
    PriorityCap,
    WorkloadClassName,
    bound_of,
    scale_of_pods,
    scale_of_workloads,
)
from gpugate.policies.rules.queueing.priority.purpose import purpose_of
from gpugate.policies.workloads.workload import Workload


class ClassesParam(Params):
    """The classes of workloads of one kind."""

    validations = (
        CelRule(
            f"!has(self.pods) || !self.pods.startsWith('{SYSTEM}')", f"pods: {SYSTEM}* classes are for the cluster's own parts"
        ),
    )

    pods: ClassName | None = None
    """PriorityClass of the pods."""
    workload: WorkloadClassName | None = None
    """WorkloadPriorityClass of Kueue."""

    @field_validator("pods")
    @classmethod
    def _not_the_systems(cls, name: str | None) -> str | None:
        if name is not None and name.startswith(SYSTEM):
            message = f"{name:.60}: {SYSTEM}* classes are for the cluster's own parts"
            raise ValueError(message)
        return name


class PriorityParams(Params):
    """Parameters of `priority`."""

    training: ClassesParam = ClassesParam()
    """Classes of what runs to its end."""
    inference: ClassesParam = ClassesParam()
    """Classes of what serves."""
    interactive: ClassesParam = ClassesParam()
    """Classes of what somebody sits before."""
    required: bool = False
    """Whether a workload is refused that names no class and gets none, neither for its pods nor for Kueue."""
    highest: PriorityCap | None = None
    """The highest PriorityClass of namespaces that do not say it themselves."""
    highest_workload: PriorityCap | None = None
    """The highest WorkloadPriorityClass of namespaces that do not say it themselves."""
    highest_key: LabelKey = "gpugate.io/highest-priority"
    """Label or annotation by which a namespace says the highest PriorityClass."""
    highest_workload_key: LabelKey = "gpugate.io/highest-workload-priority"
    """Label or annotation by which a namespace says the highest WorkloadPriorityClass."""


def classes_for(workload: Workload, params: PriorityParams) -> ClassesParam | None:
    """The policy's classes for what the workload is; None where nobody can tell that."""
    purpose = purpose_of(workload)
    found: ClassesParam | None = None if purpose is None else getattr(params, purpose)
    return found


def bound_of_pods(workload: Workload, params: PriorityParams, snapshot: ClusterSnapshot) -> PriorityBound | None:
    """The highest PriorityClass that the workload may use; None where nothing bounds it."""
    return bound_of(scale_of_pods(snapshot), params.highest, params.highest_key, workload, snapshot)


def bound_of_workloads(workload: Workload, params: PriorityParams, snapshot: ClusterSnapshot) -> PriorityBound | None:
    """The highest WorkloadPriorityClass that the workload may use; None where nothing bounds it."""
    return bound_of(scale_of_workloads(snapshot), params.highest_workload, params.highest_workload_key, workload, snapshot)
