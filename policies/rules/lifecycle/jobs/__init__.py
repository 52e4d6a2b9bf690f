"""Training jobs have the retries, deadlines and clean-up that the policy sets.

## What it does

Checks how jobs that request accelerators end: Job, CronJob, JobSet, Kubeflow's kinds, RayJob and Volcano's Job, also inside an
AppWrapper. Without parameters it writes nothing, and warns about wasted accelerators: a gang whose containers restart one by one,
a gang whose retries are used up by one crash of all its pods, pods that run on after the job (the cluster of a RayJob, the
workers of an MPIJob), and a job in Git with a TTL, which the GitOps tool creates and runs again after its deletion.

Parameters set fields that the job does not: its TTL after the end, its deadline, its retries, and a `podFailurePolicy` with which
exit codes of GPU faults, and evictions, do not count against `backoffLimit`. The API server fills in `backoffLimit: 6` before it
calls gpugate, so kubectl's annotation or the managed fields tell whether the user set 6. The API accepts a `podFailurePolicy`
only with `restartPolicy: Never`.

A TrainJob has none of these fields, its runtime does, so the rule neither writes nor requires them there. It checks an
`activeDeadlineSeconds`, which Kubeflow's trainer has from v2.2 on, if it is set. The rule ignores bare pods.

| | when it is deleted | how long it may take | how often it is tried | GPU faults |
|---|---|---|---|---|
| Job | `ttlSecondsAfterFinished` | `activeDeadlineSeconds` | `backoffLimit`, in pods that failed | `podFailurePolicy` |
| CronJob | by its history limits | in its Jobs | in its Jobs | in its Jobs |
| JobSet | `ttlSecondsAfterFinished` | in each of its Jobs | `failurePolicy.maxRestarts` | in each of its Jobs |
| Kubeflow | in `runPolicy` | in `runPolicy` | in `runPolicy` | no field |
| RayJob | its cluster alone | `activeDeadlineSeconds` | `backoffLimit`, in clusters | no field |
| Volcano | `ttlSecondsAfterFinished` | no field | `maxRetry`, in runs of the whole: one more than retries | no field |
| TrainJob | in its runtime | in its runtime; `activeDeadlineSeconds` from v2.2 on | in its runtime | in its runtime |

## Why

A job that hangs holds its accelerators until a person notices. In a gang, a container that restarts inside its pod waits for
peers that hang in a collective operation of the previous run. `backoffLimit` counts pods: when one of eight crashes and the
others follow, eight failures are counted, more than the default of 6. An Xid error of the driver is no exit code: the training
script, or its launcher, has to end with its own exit code if the GPU is faulty.

## Practice

- Orchestration guide, "Timeout and Failure Handling": failed jobs are retried a stated number of times.
- Orchestration guide, "Idle GPU Mitigation": completed jobs are cleaned up.
- Orchestration guide, "Spot Instances": interrupted jobs start again; an eviction is no failure of the job.
- Basics guide, "Machine Learning Training": `restartPolicy: Never` and a `backoffLimit`.
- Basics guide, "GPU Metrics and Alerts": Xid errors are distinguished from errors of the program.
- Field guide, "Step 6 · Spot/preemptible nodes for training": evicted jobs come back and resume from their checkpoint.

## Example

With `gpuFaultExitCodes: [74]` a Job with `restartPolicy: Never` gets:

```yaml
podFailurePolicy:
  rules:
    - action: Ignore
      onExitCodes: {operator: In, values: [74]}
```
"""

from typing import Final

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.lifecycle.jobs.checks import check
from gpugate.policies.rules.lifecycle.jobs.mutate import JobsParams, mutate

REASONS: Final[dict[str, Reason]] = {
    "DeadlineMissing": Reason("The job has no deadline, and the policy limits deadlines."),
    "DeadlineTooLong": Reason("The deadline is longer than the policy allows."),
    "DeadlineTooShort": Reason("The deadline is shorter than the policy requires."),
    "FaultsCount": Reason("A faulty GPU counts as a failure of the job.", action="Warn"),
    "HeldAfterEnd": Reason("Pods keep running, and hold GPUs, after the job has ended.", action="held_after_end"),
    "NeverDeleted": Reason("Nothing deletes the finished job.", action="without_ttl"),
    "RestartsInPlace": Reason(
        "A container of the gang restarts inside its pod while the other pods wait for it.", action="restarts_in_place"
    ),
    "RetriesSpentAtOnce": Reason("One crash of the gang uses up every retry.", action="Warn"),
    "RunsAgain": Reason("The TTL deletes the job, and GitOps creates it again.", action="Warn"),
    "TooFewRetries": Reason("The retry limit is below the policy's minimum."),
    "TooManyRetries": Reason("The retry limit is above the policy's maximum."),
}


RULE = Rule(
    id="jobs",
    title="Training jobs have the retries, deadlines and clean-up that the policy sets",
    since="0.1.0",
    params=JobsParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    refuses=lambda kind, _params: kind.batch or kind.wraps is not None,
    reads=frozenset({"annotations", "labels"}),
    reads_user_set=frozenset({"backoffLimit", "podReplacementPolicy"}),
    writes=frozenset(
        {
            *("activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "podFailurePolicy", "podReplacementPolicy"),
            *("shutdownAfterJobFinishes", "ttlSecondsAfterFinished"),
        }
    ),
    documentation=__doc__,
    default_max_mode=Mode.MUTATE,
    default_mode_reason="The owners of a job decide how long it may run and how often it may fail.",
)
