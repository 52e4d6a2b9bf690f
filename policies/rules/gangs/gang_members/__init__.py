"""A pod that joins a gang matches its other members, and the gang has room for it.

## What it does

Compares a pod that names a group (Kueue, coscheduling, Volcano, the `schedulingGroup` of Kubernetes, or gpugate's own
`gpugate.io/gang-name`) with the existing members and those that were admitted a moment ago.

It refuses a pod that

- states another size, queue or priority than the others;
- requests other resources in a Kueue group with fast admission, because Kueue counts that group from one pod;
- requests spot capacity where others request on-demand; or
- joins a gang that already has all its members, or that has ended.

It refuses a PodGroup whose minimum is above the size, or below the size unless the gang is declared elastic. It warns if a group
of the same name and size waits in another namespace. A controller counts its pods itself, so a difference of its pods is a
warning.

## Why

Kubernetes does not check a group as a whole when it creates a pod. Kueue waits forever if members state different sizes or
queues, and deletes a pod too many; other schedulers start it beside a gang that does not use it.

## Practice

- NUMA guide, "Gang Scheduling for Distributed Training": the gang waits for as many pods as it states, so all pods must state the
  same.
- Field guide, step 2: no pods hold GPUs while they wait for a member that never comes.

## Example

Refused: a fifth pod that joins the Kueue group `llm`, whose four pods each state

```yaml
metadata:
  labels:
    kueue.x-k8s.io/pod-group-name: llm
  annotations:
    kueue.x-k8s.io/pod-group-total-count: "4"
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.gangs.gang_members.checks import POD_GROUPS, GangMembersParams, check

REASONS: Final[dict[str, Reason]] = {
    "AsksDiffer": Reason(
        "The pod requests other resources than the members of its group.", facts=("pods",), warns="a controller made the pod"
    ),
    "GangOver": Reason("The gang has ended.", facts=("pods",)),
    "GangRuns": Reason("The gang already runs with all its members.", facts=("pods",)),
    "GroupUnknown": Reason("The pods or PodGroups are not synced yet.", action="Unknown"),
    "MixedCapacity": Reason(
        "The pod requests another capacity type (spot, on-demand) than the members of its group.",
        facts=("pods",),
        warns="a controller made the pod",
    ),
    "NeverEnough": Reason("The minimum of the PodGroup is above the size of the gang.", warns="the object is no pod"),
    "OneTooMany": Reason("The gang has all its members.", facts=("pods",)),
    "OtherNamespace": Reason("A group of the same name waits in another namespace.", action="Warn", facts=("pods",)),
    "PartialStart": Reason("The minimum of the PodGroup lets the gang start with fewer pods than it needs."),
    "PriorityDiffers": Reason(
        "The pod has another priority class than the members of its group.",
        action="priority",
        facts=("pods", "priorityclasses"),
        warns="a controller made the pod",
    ),
    "QueueDiffers": Reason(
        "The pod is in another queue than the members of its group.", facts=("pods",), warns="a controller made the pod"
    ),
    "SizeDiffers": Reason(
        "The pod states another size than the members of its group.", facts=("pods",), warns="a controller made the pod"
    ),
}


RULE = Rule(
    id="gang-members",
    title="A pod that joins a gang matches its other members, and the gang has room for it",
    since="0.1.0",
    params=GangMembersParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"pods", "priorityclasses", *(resource for resource, _ in POD_GROUPS.values())}),
    reads=frozenset({"annotations", "labels", "nodeSelector", "priorityClassName", "schedulerName", "schedulingGroup"}),
    documentation=__doc__,
    on_update=False,
)
