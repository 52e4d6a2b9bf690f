"""The kinds of other operators: JobSet, LeaderWorkerSet, Volcano's Job and AppWrapper.

Sources: JobSet v0.10 (API types, ``pkg/webhooks``: a template without a restart policy gets ``OnFailure``), LeaderWorkerSet v0.7
(API types, ``pkg/controllers``), AppWrapper v1.1 (API types, ``pkg/utils``), Volcano v1.10 ``pkg/apis/batch/v1alpha1``,
``pkg/controllers/job`` (``state/restarting.go``: the first run counts against ``maxRetry``; ``createJobPod`` mounts
``spec.volumes`` in every container) and ``pkg/webhooks/admission/jobs/mutate`` (a ``maxRetry`` that is missing or 0 becomes 3, a
``minAvailable`` of 0 is filled in).
"""

from typing import Final

from gpugate.policies.workloads.kinds.model import (
    Deadline,
    Members,
    MinAvailable,
    PodSetSpec,
    Recovery,
    RetryLimit,
    TimeToLive,
    WorkloadKind,
)

_REPLICATED_JOB: Final = ("spec", "replicatedJobs", "*")
_JOB_SPEC: Final = (*_REPLICATED_JOB, "template", "spec")
_NAME_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"

#: The pods belong to Jobs of the JobSet; only labels name the JobSet.
JOB_SET: Final = WorkloadKind(
    "jobset.x-k8s.io",
    "JobSet",
    "jobsets",
    (
        PodSetSpec(
            (*_JOB_SPEC, "template"),
            ((*_JOB_SPEC, "parallelism"), (*_REPLICATED_JOB, "replicas")),
            at_most=(*_JOB_SPEC, "completions"),
            after=(*_REPLICATED_JOB, "dependsOn"),
        ),
    ),
    versions=("v1alpha2",),
    template_mutable=False,
    batch=True,
    default_restart_policy="OnFailure",
    controller="jobset.sigs.k8s.io/jobset-controller",
    managed_by=("spec", "managedBy"),
    suspend=("spec", "suspend"),
    running=(("status", "replicatedJobsStatus", "*", "active"),),
    members=Members(_NAME_LABEL, "JobSet"),
    pod_label=_NAME_LABEL,
    job_spec=_JOB_SPEC,
    retry=RetryLimit(("spec", "failurePolicy", "maxRestarts"), 0, by_pod=False),
    deadline=Deadline((*_JOB_SPEC, "activeDeadlineSeconds")),
    ttl=TimeToLive(("spec", "ttlSecondsAfterFinished")),
    recovery=Recovery.BACKOFF,
    exclusive_topology="alpha.jobset.sigs.k8s.io/exclusive-topology",
    framework="jobset.x-k8s.io/jobset",
)

_TEMPLATES: Final = ("spec", "leaderWorkerTemplate")
_LEADER: Final = (*_TEMPLATES, "leaderTemplate")

#: The pods belong to StatefulSets; only labels name the LeaderWorkerSet.
LEADER_WORKER_SET: Final = WorkloadKind(
    "leaderworkerset.x-k8s.io",
    "LeaderWorkerSet",
    "leaderworkersets",
    (
        PodSetSpec(_LEADER, (("spec", "replicas"),)),
        PodSetSpec((*_TEMPLATES, "workerTemplate"), ((*_TEMPLATES, "size"), ("spec", "replicas")), leader=_LEADER),
    ),
    gangs=("spec", "replicas"),
    serving=True,
    running=(("status", "readyReplicas"),),
    members=Members("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet", index_label="leaderworkerset.sigs.k8s.io/group-index"),
    exclusive_topology="leaderworkerset.sigs.k8s.io/exclusive-topology",
    framework="leaderworkerset.x-k8s.io/leaderworkerset",
)

_TASK: Final = ("spec", "tasks", "*")
VOLCANO_JOB: Final = WorkloadKind(
    "batch.volcano.sh",
    "Job",
    "jobs",
    (PodSetSpec((*_TASK, "template"), ((*_TASK, "replicas"),), default=0, after=(*_TASK, "dependsOn")),),
    versions=("v1alpha1",),
    template_mutable=False,
    batch=True,
    running=(("status", "running"),),
    members=Members(),
    pod_label="volcano.sh/job-name",
    retry=RetryLimit(("spec", "maxRetry"), 3, by_pod=False, zero_is_default=True, first=1),
    ttl=TimeToLive(("spec", "ttlSecondsAfterFinished")),
    recovery=Recovery.POLICIES,
    volumes=("spec", "volumes"),
    groups_itself=True,
    min_available=MinAvailable(("spec", "minAvailable"), zero_is_absent=True),
    priority_class=("spec", "priorityClassName"),
    topology=("spec", "networkTopology"),
)

APP_WRAPPER: Final = WorkloadKind(
    "workload.codeflare.dev",
    "AppWrapper",
    "appwrappers",
    (),
    versions=("v1beta2",),
    template_mutable=False,
    wraps=("spec", "components"),
    controller="workload.codeflare.dev/appwrapper",
    managed_by=("spec", "managedBy"),
    suspend=("spec", "suspend"),
    running=(("status", "phase"),),
    groups_itself=True,
    framework="workload.codeflare.dev/appwrapper",
)
