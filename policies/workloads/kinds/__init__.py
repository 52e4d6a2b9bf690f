"""The workload kinds that gpugate reads, one module per API family.

No other module names a kind: it asks the entry for a capability. :mod:`gpugate.policies.workloads.kinds.model` says what a new
entry must state.
"""

from typing import Final, Literal, TypeAlias

from gpugate.policies.workloads.kinds.appwrapper import APP_WRAPPER
from gpugate.policies.workloads.kinds.core import CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, POD, REPLICA_SET, STATEFUL_SET
from gpugate.policies.workloads.kinds.jobset import JOB_SET
from gpugate.policies.workloads.kinds.kubeflow import JAX_JOB, MPI_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, TRAIN_JOB, XGBOOST_JOB
from gpugate.policies.workloads.kinds.lws import LEADER_WORKER_SET
from gpugate.policies.workloads.kinds.model import (
    API_BACKOFF_LIMIT,
    HeldAfterEnd,
    Members,
    PodSetSpec,
    RayClusterSpec,
    Recovery,
    RetryLimit,
    WorkloadKind,
)
from gpugate.policies.workloads.kinds.ray import RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from gpugate.policies.workloads.kinds.volcano import VOLCANO_JOB

__all__ = [
    "API_BACKOFF_LIMIT",
    "CONTROLLERS",
    "EXCLUSIVE_TOPOLOGY",
    "KINDS",
    "POD",
    "HeldAfterEnd",
    "Members",
    "PodSetSpec",
    "QueuedKind",
    "RayClusterSpec",
    "Recovery",
    "RetryLimit",
    "WorkloadKind",
    "kind_of",
    "kinds_named",
]

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
"""The names of the kinds that Kueue v0.15 can manage, for policies: those with a ``framework``, as a test holds."""

#: The controllers of the kinds, as ``managedBy`` fields name them: they run the pods in this cluster.
CONTROLLERS: Final = frozenset(kind.controller for kind in KINDS if kind.controller)

#: The annotations by which controllers give each child a topology domain of its own.
EXCLUSIVE_TOPOLOGY: Final = tuple(kind.exclusive_topology for kind in KINDS if kind.exclusive_topology)

_BY_NAME: Final = {(kind.group, kind.kind): kind for kind in KINDS}
_IN_ALL_GROUPS: Final = {one.kind: [kind for kind in KINDS if kind.kind == one.kind] for one in KINDS}


def kind_of(api_version: str, kind: str) -> WorkloadKind | None:
    """Return the entry for ``apiVersion`` and ``kind`` of an object, in any version of the group; None if there is none."""
    group, _, _ = api_version.rpartition("/")
    return _BY_NAME.get((group, kind))


def kinds_named(name: str) -> list[WorkloadKind]:
    """Return the kinds of this name in all API groups."""
    return _IN_ALL_GROUPS.get(name, [])
