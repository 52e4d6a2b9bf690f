"""The workload kinds that gpugate reads.

No other module names a kind: it reads a capability of the entry. :mod:`gpugate.policies.workloads.kinds.model` says what a new
entry must state.
"""

from typing import Final, Literal, TypeAlias

from gpugate.policies.workloads.kinds.appwrapper import APP_WRAPPER
from gpugate.policies.workloads.kinds.core import CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, POD, REPLICA_SET, STATEFUL_SET
from gpugate.policies.workloads.kinds.jobset import JOB_SET
from gpugate.policies.workloads.kinds.kubeflow import JAX_JOB, MPI_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, TRAIN_JOB, XGBOOST_JOB
from gpugate.policies.workloads.kinds.lws import LEADER_WORKER_SET
from gpugate.policies.workloads.kinds.model import WorkloadKind
from gpugate.policies.workloads.kinds.ray import RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from gpugate.policies.workloads.kinds.volcano import VOLCANO_JOB

__all__ = ["CONTROLLERS", "EXCLUSIVE_TOPOLOGY", "KINDS", "POD", "QueuedKind", "WorkloadKind", "kind_of", "kinds_named"]

KINDS: Final[tuple[WorkloadKind, ...]] = (
    *(POD, JOB, CRON_JOB, DEPLOYMENT, STATEFUL_SET, REPLICA_SET, DAEMON_SET),
    *(PYTORCH_JOB, TF_JOB, XGBOOST_JOB, JAX_JOB, PADDLE_JOB, MPI_JOB, TRAIN_JOB),
    *(JOB_SET, LEADER_WORKER_SET, RAY_CLUSTER, RAY_JOB, RAY_SERVICE, VOLCANO_JOB, APP_WRAPPER),
)

QueuedKind: TypeAlias = Literal[
    "AppWrapper",
    "CronJob",
    "Deployment",
    "JAXJob",
    "Job",
    "JobSet",
    "LeaderWorkerSet",
    "MPIJob",
    "PaddleJob",
    "Pod",
    "PyTorchJob",
    "RayCluster",
    "RayJob",
    "StatefulSet",
    "TFJob",
    "TrainJob",
    "XGBoostJob",
]
"""The kinds that Kueue v0.15 can manage, for policies: those with a ``framework`` of their own (a test compares both)."""

#: The controllers that run the pods in this cluster, as in ``managedBy`` fields.
CONTROLLERS: Final = frozenset(kind.controller for kind in KINDS if kind.controller)

#: The annotations for a topology domain per child object.
EXCLUSIVE_TOPOLOGY: Final = tuple(kind.exclusive_topology for kind in KINDS if kind.exclusive_topology)

_BY_NAME: Final = {(kind.group, kind.kind): kind for kind in KINDS}


def kind_of(api_version: str, kind: str) -> WorkloadKind | None:
    """Return the entry for ``apiVersion`` and ``kind`` of an object, in any version of the group; None if there is none."""
    return _BY_NAME.get((api_version.rpartition("/")[0], kind))


def kinds_named(name: str) -> list[WorkloadKind]:
    """Return the kinds of this name in all API groups."""
    return [kind for kind in KINDS if kind.kind == name]
