"""No pod takes accelerators that it did not ask for.

## What it does

Refuses what hands devices to a container beside the scheduler's count and the namespace's quota:

- a variable of a container runtime set by hand: `NVIDIA_VISIBLE_DEVICES` (`all`, indices, UUIDs, MIG ids),
  `AMD_VISIBLE_DEVICES`, `HABANA_VISIBLE_DEVICES`, `ASCEND_VISIBLE_DEVICES`; empty, `none` and `void` take nothing;
- a mount of the host's /dev/null below /var/run/nvidia-container-devices, and an annotation `cdi.k8s.io/...`: the device plugin's
  own ways to name devices to the runtime;
- a hostPath volume of an accelerator's device file (/dev/nvidia0) in a pod that asks for no accelerator.

A pod that asks for accelerators is refused, too: its own value wins over the device plugin's. It is warned where it asks for all
that a node has. Where the value comes from a ConfigMap, a Secret or a field, it is not known here (`onUnknown`).

Warns where accelerators that were asked for stay hidden: `CUDA_VISIBLE_DEVICES` (`HIP_`, `ROCR_`) that shows fewer than the
container asks for, `NVIDIA_VISIBLE_DEVICES: none`.

Left alone are DaemonSets of the node stack by their images, and service accounts of its operators. In a cluster this rule also
sees pods that ask for no accelerator; no other pod waits for it ([isolation](../guide/isolation.md)).

## Why

Where the NVIDIA runtime is the default one, the variable alone gives a container every GPU of its node. The scheduler gives the
same GPUs to others, and no quota counts them. The kubelet puts a container's own variables behind those of the device plugin, so
that a pod with one GPU may take eight.

## Practice

- Basics guide, "Basic GPU Pod" and "GPU Architecture in Kubernetes": GPUs are given out by the device plugin, by resource name.
- Basics guide, "Inference Deployment": `CUDA_VISIBLE_DEVICES: "0"` beside one GPU hides nothing and is left alone.
- Field guide, "Install the NVIDIA device plugin": what is not asked for as a resource is not there for the scheduler.

## Example

Refused:

```yaml
env:
  - name: NVIDIA_VISIBLE_DEVICES
    value: all
```

Instead:

```yaml
resources:
  limits:
    nvidia.com/gpu: 1
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.security.visible_devices.checks import READ, check
from gpugate.policies.rules.security.visible_devices.params import VisibleDevicesParams
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "DevicesUnseen": Reason("The variable takes its value from elsewhere.", action="Unknown"),
    "HidesDevices": Reason("The variable hides all GPUs that the container requests.", action="Warn"),
    "LeavesDevicesIdle": Reason("The variable hides some of the GPUs that the container requests.", action="Warn"),
    "MountsDeviceList": Reason("A mount names devices to the NVIDIA runtime."),
    "MountsDevices": Reason("The pod mounts a device file of its node without requesting a GPU."),
    "NamesDevices": Reason("An annotation names devices to the container runtime."),
    "NamesItsOwnDevices": Reason(
        "The variable names all devices of the node, which the pod requests too.", action="Warn", facts=("nodes",)
    ),
    "TakesDevices": Reason("The variable exposes GPUs to a pod that requests none."),
    "TakesMoreDevices": Reason("The variable overrides the device plugin and exposes GPUs of other pods."),
}


RULE = Rule(
    id="visible-devices",
    title="No pod takes accelerators that it did not ask for, and none that it asked for stay hidden",
    since="0.1.0",
    params=VisibleDevicesParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS | {"annotations", "env", "image", "serviceAccountName", "volumeMounts", "volumes"},
    reads_variables=READ,
    documentation=__doc__,
)
