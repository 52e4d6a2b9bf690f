"""The kinds of Kubeflow: the jobs of the training operator and the MPI operator, and the trainer's TrainJob.

Sources: training operator v1.9 (``pkg/apis/kubeflow.org/v1``, ``pkg/controller.v1/common``), MPI operator v0.7
(``pkg/controller``), trainer v2.1 (``manifests/base/crds``). A TrainJob has neither retries nor a time to live: its runtime
has them. From v2.2 on it has ``activeDeadlineSeconds``.
"""

from dataclasses import replace
from typing import Final

from gpugate.policies.workloads.kinds.jobset import JOB_SET
from gpugate.policies.workloads.kinds.model import (
    Deadline,
    HeldAfterEnd,
    Members,
    MinAvailable,
    PodSetSpec,
    Recovery,
    RetryLimit,
    TimeToLive,
    WorkloadKind,
)

#: Roles whose pods wait for the other pods: MPI's launcher, and the evaluator of checkpoints.
_LATE_ROLES: Final = frozenset({"Evaluator", "Launcher"})
_RUN_POLICY: Final = ("spec", "runPolicy")
_SCHEDULING_POLICY: Final = (*_RUN_POLICY, "schedulingPolicy")


def _kubeflow(kind: str, roles: str, *names: str, elastic: bool = False, workers: int = 1) -> WorkloadKind:
    """Return a kind with pods by role; ``workers`` is the default number of workers."""
    # The operator accepts the names of roles in any case (``setTypeNameToCamelCase``).
    pod_sets = tuple(
        PodSetSpec(
            ("spec", roles, "*", "template"),
            (("spec", roles, "*", "replicas"),),
            default=workers if name == "Worker" else 1,
            min_count=("spec", "elasticPolicy", "minReplicas") if elastic and name == "Worker" else None,
            starts_late=name in _LATE_ROLES,
            role=name,
        )
        for name in names
    )
    return WorkloadKind(
        "kubeflow.org",
        kind,
        f"{kind.lower()}s",
        pod_sets,
        batch=True,
        only_trains=True,
        controller="kubeflow.org/training-operator",
        managed_by=(*_RUN_POLICY, "managedBy"),
        suspend=(*_RUN_POLICY, "suspend"),
        running=(("status", "replicaStatuses", "*", "active"),),
        reports_start=True,
        members=Members(),
        pod_label="training.kubeflow.org/job-name",
        retry=RetryLimit((*_RUN_POLICY, "backoffLimit"), None, by_pod=True),
        deadline=Deadline((*_RUN_POLICY, "activeDeadlineSeconds")),
        ttl=TimeToLive((*_RUN_POLICY, "ttlSecondsAfterFinished")),
        recovery=Recovery.ROLE,
        groups_itself=True,
        min_available=MinAvailable((*_SCHEDULING_POLICY, "minAvailable")),
        priority_class=(*_SCHEDULING_POLICY, "priorityClass"),
        framework=f"kubeflow.org/{kind.lower()}",
    )


def _held(role: str, what: str) -> HeldAfterEnd:
    # The training operator's own MPIJob also has the field beside the run policy.
    paths = ((*_RUN_POLICY, "cleanPodPolicy"), ("spec", "cleanPodPolicy"))
    return HeldAfterEnd(paths, "Running", ("None",), what, role=role)


PYTORCH_JOB: Final = _kubeflow("PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker", elastic=True)
#: Parameter servers run until they are deleted.
TF_JOB: Final = replace(
    _kubeflow("TFJob", "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator"),
    default_restart_policy="Never",
    held_after_end=_held("ps", "the parameter servers"),
)
XGBOOST_JOB: Final = replace(_kubeflow("XGBoostJob", "xgbReplicaSpecs", "Master", "Worker"), default_restart_policy="Never")
JAX_JOB: Final = replace(_kubeflow("JAXJob", "jaxReplicaSpecs", "Worker"), default_restart_policy="Never")
PADDLE_JOB: Final = _kubeflow("PaddleJob", "paddleReplicaSpecs", "Master", "Worker", elastic=True)
#: Workers run until they are deleted. The retry limit applies to the launcher's Job, whose failure fails the MPIJob; in v2beta1 so
#: does the time to live (``newLauncherJob``).
MPI_JOB: Final = replace(
    _kubeflow("MPIJob", "mpiReplicaSpecs", "Launcher", "Worker", workers=0),
    versions=("v1", "v2beta1"),
    controller="kubeflow.org/mpi-operator",
    retry=RetryLimit((*_RUN_POLICY, "backoffLimit"), None, by_pod=False),
    ttl=TimeToLive((*_RUN_POLICY, "ttlSecondsAfterFinished"), deletes_object_in=("v1",)),
    held_after_end=_held("worker", "the workers"),
    recovery=Recovery.LAUNCHER,
)

#: Its runtime creates a JobSet of the same name.
TRAIN_JOB: Final = WorkloadKind(
    "trainer.kubeflow.org",
    "TrainJob",
    "trainjobs",
    (
        PodSetSpec(
            ("spec", "trainer"), (("spec", "trainer", "numNodes"),), default=None, resources=("spec", "trainer", "resourcesPerNode")
        ),
    ),
    versions=("v1alpha1",),
    template_mutable=False,
    batch=True,
    controller="trainer.kubeflow.org/trainjob-controller",
    managed_by=("spec", "managedBy"),
    suspend=("spec", "suspend"),
    running=(("status", "jobsStatus", "*", "active"),),
    members=JOB_SET.members,
    deadline=Deadline(("spec", "activeDeadlineSeconds"), always_served=False),
    groups_itself=True,
    framework="trainer.kubeflow.org/trainjob",
)
