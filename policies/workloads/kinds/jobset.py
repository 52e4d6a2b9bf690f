"""The kind of JobSet.

Sources: JobSet v0.10: API types, and ``pkg/webhooks``: a template without a restart policy gets ``OnFailure``.
"""

from typing import Final

from gpugate.policies.workloads.kinds.model import Deadline, Members, PodSetSpec, Recovery, RetryLimit, TimeToLive, WorkloadKind

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
