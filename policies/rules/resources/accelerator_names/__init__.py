"""Accelerators are asked for by names and counts that a device plugin serves.

## What it does

Renames the legacy `alpha.kubernetes.io/nvidia-gpu` to `nvidia.com/gpu` and makes requests and limits of an extended
resource equal, as the API demands. Refuses a name that no device plugin serves, with the name that one does, and a count
that is no whole number. Warns about a count of zero, which asks for nothing.

## Why

The legacy name went with Kubernetes 1.11, yet the apiserver takes it. A pod that asks for a name nobody serves stays
Pending without an error.

## Practice

- NUMA guide, "Migrating from kube-gpu to the Device Plugin": pod specs leave the legacy resource name for the plugin's.
- NUMA guide, "MIG Profiles on NVIDIA A100 and H100": a slice is asked for by its profile; the name that the guide writes for
  it, `nvidia.com/gpu.mig-1g.5gb`, is one of those that no plugin serves.
- Basics guide, "Basic GPU Pod", and field guide, step 1: GPUs are asked for under `limits`, by the device plugin's resource.
- Orchestration guide, "GPU Resource Scheduling Fundamentals": requests and limits of GPUs are one number, and a whole one.

## Example

Before:

```yaml
resources:
  limits:
    alpha.kubernetes.io/nvidia-gpu: 1
```

After:

```yaml
resources:
  limits:
    nvidia.com/gpu: 1
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.resources.accelerator_names.checks import check
from gpugate.policies.rules.resources.accelerator_names.mutate import mutate
from gpugate.policies.rules.resources.accelerator_names.params import AcceleratorNamesParams
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "ClaimUnknown": Reason("The ResourceClaim or its template is not known, so neither is what it requests.", action="Unknown"),
    "FractionalCount": Reason("A device count is not a whole number."),
    "LegacyName": Reason("The pod requests alpha.kubernetes.io/nvidia-gpu, which no device plugin serves."),
    "NegativeCount": Reason("A device count is below zero."),
    "NotOffered": Reason("No node offers the requested device now.", action="Warn"),
    "UnequalCounts": Reason("Request and limit of a device differ, which the API server rejects."),
    "UnservedName": Reason("No device plugin serves the requested name."),
    "ZeroCount": Reason("The pod requests 0 devices, so no GPU rule applies to it.", action="Warn"),
}


RULE = Rule(
    id="accelerator-names",
    title="Accelerators are asked for by names and counts that a device plugin serves",
    since="0.1.0",
    params=AcceleratorNamesParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS,
    writes=frozenset({"resources"}),
    documentation=__doc__,
)
