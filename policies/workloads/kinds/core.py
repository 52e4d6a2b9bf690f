"""The workload kinds of Kubernetes itself: Pod, and the kinds of the groups ``apps`` and ``batch``.

Sources: ``k8s.io/kubernetes`` 1.36 ``pkg/apis/batch`` and ``pkg/apis/apps`` (``validation`` for immutable fields), Kueue v0.15.0
``pkg/controller/jobs`` (pod sets, counts, suspension).
"""

from typing import Final

from gpugate.policies.kube.fields import Path
from gpugate.policies.workloads.kinds.model import (
    API_BACKOFF_LIMIT,
    Deadline,
    Members,
    PodSetSpec,
    Recovery,
    RetryLimit,
    TimeToLive,
    WorkloadKind,
)

_READY: Final = (("status", "readyReplicas"),)
_SELECTOR: Final = ("spec", "selector")


def _pods_of_job(spec: Path) -> tuple[PodSetSpec, ...]:
    return (PodSetSpec((*spec, "template"), ((*spec, "parallelism"),), at_most=(*spec, "completions")),)


def _retries_of_job(spec: Path) -> RetryLimit:
    return RetryLimit((*spec, "backoffLimit"), API_BACKOFF_LIMIT, by_pod=True, unless=(*spec, "backoffLimitPerIndex"))


POD: Final = WorkloadKind(
    "",
    "Pod",
    "pods",
    (PodSetSpec(()),),
    template_mutable=False,
    reports_start=True,
    grouped_by_kai=False,
    framework="pod",
    counted_as_pods=True,
    admitted_by_pod=True,
)

_JOB_SPEC: Final = ("spec",)
JOB: Final = WorkloadKind(
    "batch",
    "Job",
    "jobs",
    _pods_of_job(_JOB_SPEC),
    template_mutable=False,
    immutable=("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"),
    batch=True,
    owner_creates_once=True,
    controller="kubernetes.io/job-controller",
    managed_by=("spec", "managedBy"),
    suspend=("spec", "suspend"),
    running=(("status", "active"), ("status", "ready")),
    reports_start=True,
    members=Members(),
    pod_label="batch.kubernetes.io/job-name",
    template_labels=("batch.kubernetes.io/job-name", "job-name"),
    job_spec=_JOB_SPEC,
    retry=_retries_of_job(_JOB_SPEC),
    deadline=Deadline((*_JOB_SPEC, "activeDeadlineSeconds")),
    ttl=TimeToLive(("spec", "ttlSecondsAfterFinished")),
    recovery=Recovery.BACKOFF,
    grouped_by_kai=False,
    framework="batch/job",
    partial_admission=True,
)

_CRON_TEMPLATE: Final = ("spec", "jobTemplate")
_CRON_SPEC: Final = (*_CRON_TEMPLATE, "spec")
#: It keeps a few finished Jobs and deletes the others, so its Jobs need no time to live.
CRON_JOB: Final = WorkloadKind(
    "batch",
    "CronJob",
    "cronjobs",
    _pods_of_job(_CRON_SPEC),
    batch=True,
    scheduled=True,
    creates="jobs.batch",
    managed_by=(*_CRON_SPEC, "managedBy"),
    job_spec=_CRON_SPEC,
    retry=_retries_of_job(_CRON_SPEC),
    deadline=Deadline((*_CRON_SPEC, "activeDeadlineSeconds")),
    recovery=Recovery.BACKOFF,
    grouped_by_kai=False,
    framework="batch/job",
    queue=_CRON_TEMPLATE,
    partial_admission=True,
)

_REPLICATED: Final = (PodSetSpec(("spec", "template"), (("spec", "replicas"),)),)
DEPLOYMENT: Final = WorkloadKind(
    "apps",
    "Deployment",
    "deployments",
    _REPLICATED,
    immutable=("selector",),
    one_by_one=True,
    serving=True,
    creates="replicasets.apps",
    running=_READY,
    selector=_SELECTOR,
    revision_label="pod-template-hash",
    grouped_by_kai=False,
    framework="deployment",
    counted_as_pods=True,
    admitted_by_pod=True,
)
STATEFUL_SET: Final = WorkloadKind(
    "apps",
    "StatefulSet",
    "statefulsets",
    _REPLICATED,
    immutable=("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"),
    serving=True,
    shares_model=True,
    running=_READY,
    members=Members(),
    selector=_SELECTOR,
    revision_label="controller-revision-hash",
    claim_templates=("spec", "volumeClaimTemplates"),
    framework="statefulset",
    counted_as_pods=True,
)
REPLICA_SET: Final = WorkloadKind(
    "apps",
    "ReplicaSet",
    "replicasets",
    _REPLICATED,
    immutable=("selector",),
    one_by_one=True,
    serving=True,
    is_revision_of_owner=True,
    running=_READY,
    members=Members(),
    selector=_SELECTOR,
    revision_label="",
    grouped_by_kai=False,
    framework="pod",
    queue=("spec", "template"),
    queued_as="Pod",
    counted_as_pods=True,
    admitted_by_pod=True,
)
DAEMON_SET: Final = WorkloadKind(
    "apps",
    "DaemonSet",
    "daemonsets",
    (PodSetSpec(("spec", "template"), default=None),),
    immutable=("selector",),
    per_node=True,
    one_by_one=True,
    selector=_SELECTOR,
    grouped_by_kai=False,
)
