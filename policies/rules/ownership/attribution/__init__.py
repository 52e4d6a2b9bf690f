"""Every accelerator workload says who it belongs to.

## What it does

For each key of the policy (owner, project and cost centre, where it names no others) it looks for a value: on the workload, in
whatever accepted spelling, as label or annotation; in its pods' template; on its namespace. What is found is written under the
key's own name, on the workload and on its pods' templates, where nobody has written it yet. What is there is never overwritten.

Refuses a workload for which nobody tells what the policy requires, and a value that the label cannot hold. What a controller
makes is not asked again: its owner was, and its template has passed it on. Pods of an owner of a kind that gpugate does not read
are asked themselves.

## Why

The bill for GPUs is for the cluster. Cost tools divide it by the labels of pods: OpenCost takes those of the pod before those of
its namespace, and reads annotations only where it is told to (`EMIT_POD_ANNOTATIONS_METRIC`). A workload without them is
nobody's, and what has run cannot be labelled afterwards. The names have a prefix, so that no selector of somebody's Service or
NetworkPolicy takes the pods for its own by them.

## Practice

- Orchestration guide, "Per-Pod Cost Accounting": owner, project and cost centre stand in the metadata of what costs money.
- Orchestration guide, "Cost Analysis and Optimization": teams see what they ask for: the audit sums devices and their hours by
  these keys.

## Example

Before: a Job in a namespace with the label `team: vision`. After:

```yaml
metadata:
  labels:
    gpugate.io/owner: vision
spec:
  template:
    metadata:
      labels:
        gpugate.io/owner: vision
```
"""

from typing import Final

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.ownership.attribution.checks import check
from gpugate.policies.rules.ownership.attribution.keys import DEFAULT_KEYS, AttributionKey, told_by
from gpugate.policies.rules.ownership.attribution.mutate import mutate
from gpugate.policies.rules.ownership.attribution.params import AttributionParams

__all__ = ["DEFAULT_KEYS", "RULE", "AttributionKey", "told_by"]

REASONS: Final[dict[str, Reason]] = {
    "AttributionInvalid": Reason(
        "The value is no valid label or annotation value.", facts=("namespaces",), warns="the key is not required"
    ),
    "AttributionMissing": Reason("A required key is missing from the workload and its namespace."),
    "AttributionUndecided": Reason("The namespace is not known, so neither is whether it has the key.", action="Unknown"),
}


RULE = Rule(
    id="attribution",
    title="Accelerator workloads say who they belong to: owner, project and cost centre",
    since="0.1.0",
    params=AttributionParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"namespaces"}),
    reads=frozenset({"annotations", "labels"}),
    writes=frozenset({"annotations", "labels"}),
    documentation=__doc__,
    default_max_mode=Mode.DISABLED,
    default_mode_reason=(
        "Which keys a company divides its costs by, and whether a workload without them is refused, is for it to say."
    ),
)
