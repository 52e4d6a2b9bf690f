"""Training jobs are tried again, given up and cleaned up as the policy says.

## What it does

Judges how jobs that ask for accelerators end: Job, CronJob, JobSet, Kubeflow's kinds, RayJob and Volcano's Job, also inside an
AppWrapper. Without parameters it writes nothing, and warns of what wastes accelerators: a gang whose containers are started
again one by one, a gang whose retries are used up by one crash of all its pods, what keeps running when the job has ended (the
cluster of a RayJob, the workers of an MPIJob), and a job in Git that deletes itself, so that the GitOps tool makes it, and
runs it, anew.

Where the policy asks for it, writes what the job does not state: when it is deleted after its end, how long it may take, how
often it is tried, and a `podFailurePolicy` by which exit codes of GPU faults, and evictions, do not count against
`backoffLimit`. The apiserver fills in `backoffLimit: 6` before gpugate sees the Job: what was applied tells a stated 6 from
that, by kubectl's annotation or the managed fields. A `podFailurePolicy` goes with `restartPolicy: Never` alone, as the API
has it.

A TrainJob states none of this, its runtime does: nothing is written into it or asked of it. An `activeDeadlineSeconds`, which
Kubeflow's trainer has from v2.2 on, is judged where it is stated. Pods by themselves are nobody's job.

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

A job that hangs holds its accelerators until somebody notices. In a gang a container that is started again inside its pod
waits for peers that hang in a collective operation of the run before. `backoffLimit` counts pods: when one of eight crashes
and the others follow, eight failures are counted, more than the default of 6. An Xid error of the driver is no exit code:
the training script, or what starts it, has to end with a code of its own when the card is at fault.

## Practice

- Orchestration guide, "Timeout and Failure Handling": failed jobs are tried again, a stated number of times.
- Orchestration guide, "Idle GPU Mitigation": completed jobs are cleaned up.
- Orchestration guide, "Spot Instances": what is interrupted starts again; an eviction is no failure of the job.
- Basics guide, "Machine Learning Training": `restartPolicy: Never` and a `backoffLimit`.
- Basics guide, "GPU Metrics and Alerts": Xid errors are told from errors of the program.
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
from gpugate.policies.rules.lifecycle.jobs.mutate import mutate
from gpugate.policies.rules.lifecycle.jobs.params import JobsParams

REASONS: Final[dict[str, Reason]] = {
    "DeadlineMissing": Reason("The job has no deadline, and the policy sets a longest one."),
    "DeadlineTooLong": Reason("The deadline is longer than the policy allows."),
    "DeadlineTooShort": Reason("The deadline is shorter than the policy requires."),
    "FaultsCount": Reason("A faulty GPU counts as a failure of the job.", action="Warn"),
    "HeldAfterEnd": Reason("Pods keep running, and hold GPUs, after the job has ended.", action="held_after_end"),
    "NeverDeleted": Reason("Nothing deletes the finished job.", action="without_ttl"),
    "RestartsInPlace": Reason(
        "A container of the gang restarts inside its pod while the others wait for it.", action="restarts_in_place"
    ),
    "RetriesSpentAtOnce": Reason("One crash of the gang uses up every retry.", action="Warn"),
    "RunsAgain": Reason("The TTL deletes the job, and GitOps creates it again.", action="Warn"),
    "TooFewRetries": Reason("The retry limit is below the policy's minimum."),
    "TooManyRetries": Reason("The retry limit is above the policy's maximum."),
}


RULE = Rule(
    id="jobs",
    title="Training jobs are tried again, given up and cleaned up as the policy says",
    since="0.1.0",
    params=JobsParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    reads=frozenset({"annotations", "labels"}),
    reads_user_set=frozenset({"backoffLimit", "podReplacementPolicy"}),
    writes=frozenset(
        {
            "activeDeadlineSeconds",
            "backoffLimit",
            "cleanPodPolicy",
            "podFailurePolicy",
            "podReplacementPolicy",
            "shutdownAfterJobFinishes",
            "ttlSecondsAfterFinished",
        }
    ),
    documentation=__doc__,
    default_max_mode=Mode.WARN,
    default_mode_reason="How long a job may take, and how often it may fail, is for those to say who run it.",
)
