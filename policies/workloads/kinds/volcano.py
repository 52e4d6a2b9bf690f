"""The kind of Volcano's Job.

Sources: Volcano v1.10 ``pkg/apis/batch/v1alpha1``, ``pkg/controllers/job`` (``state/restarting.go``: the first run counts against
``maxRetry``; ``createJobPod`` mounts ``spec.volumes`` in every container) and ``pkg/webhooks/admission/jobs/mutate`` (a
``maxRetry`` that is missing or 0 becomes 3, a ``minAvailable`` of 0 is filled in).
"""

from typing import Final

from gpugate.policies.workloads.kinds.model import Members, MinAvailable, PodSetSpec, Recovery, RetryLimit, TimeToLive, WorkloadKind

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
