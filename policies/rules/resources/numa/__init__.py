"""Pods that hold whole accelerators are eligible for NUMA alignment and go where nodes align.

## What it does

For pods that hold whole devices (no MIG slices, no time-sliced shares):

- Guaranteed quality of service, for pods whose author asks for it by the annotation `gpugate.io/numa: aligned` (of the object or
  its pod template), or for all if the policy says `guaranteed: Always`: in every container, init containers and sidecars too,
  requests are raised to the limits and CPU to whole cores; a container with accelerators and no CPU gets the policy's figure, or
  its accelerators' share of the nodes in reach if these agree. Other pods stay as they are stated; on nodes whose kubelets are
  known to align, a warning says what keeps the kubelet from aligning them.
- Nothing is raised if one container lacks a limit; if Git or Kueue forbid a change; if a node shape in reach, a ResourceQuota or
  the quota of the Kueue queue would hold fewer of these pods than before; if the pod would exceed a LimitRange; if other
  accelerators of the node would become unusable; or if a memory request would grow by more than the policy's ratio. The warning
  has the sum.
- If the policy names the label of nodes known to align, a node affinity for it, unless no node has it.
- A topologySpreadConstraint on the policy's NUMA key, with a label selector for the workload's own pods, only if nodes
  have that key (no stock component sets one: it takes one node object per NUMA domain).
- `NCCL_TOPO_FILE` and other NCCL settings of the policy, if the container does not set them.

Refuses a pod that no NUMA zone holds on any node that it may land on, if the nodes' agents report their zones
(NodeResourceTopology) and the kubelets' policy is `single-numa-node`, or if `restricted` kubelets could never place its parts in
the same zones; warns if that is so on some of these nodes. Only known places of devices and whole CPUs of Guaranteed pods count.

Warns about a pod-level `spec.resources`, which makes the kubelet skip alignment.

## Why

The kubelet's Topology Manager aligns CPUs, memory and devices only for Guaranteed pods with whole CPUs. A pod across two
NUMA domains loses PCIe and memory bandwidth for its whole run. A webhook can't set the kubelet's policy: nodes must run
`topologyManagerPolicy: single-numa-node` or `restricted`.

## Practice

- NUMA guide, "Topology-Aware GPU Scheduling for Multi-Node Training": a training pod's GPUs, CPUs and memory are in one NUMA
  domain, by the kubelet's Topology Manager.
- NUMA guide, "Topology-Aware GPU Scheduling for Multi-Node Training": NCCL reads the topology from `NCCL_TOPO_FILE`.
- Orchestration guide, "Distributed Training Hangs": NCCL is configured for all jobs in one place, such as its debug log.

## Example

Before, with the annotation `gpugate.io/numa: aligned`: `limits: {cpu: 7500m, memory: 64Gi, nvidia.com/gpu: 1}`,
`requests: {cpu: "4", memory: 32Gi}`. After:

```yaml
resources:
  limits:
    cpu: "8"
    memory: 64Gi
    nvidia.com/gpu: 1
  requests:
    cpu: "8"
    memory: 64Gi
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.queueing.headroom import BOUNDING
from gpugate.policies.rules.resources.numa.checks import check
from gpugate.policies.rules.resources.numa.guaranteed_qos import ALIGNMENT, NumaParams
from gpugate.policies.rules.resources.numa.mutate import mutate
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "NoZoneHolds": Reason(
        "No NUMA zone holds the pod, and the kubelet would end it.",
        action="no_zone_holds",
        facts=("noderesourcetopologies", "nodes"),
        warns="some node does not insist on alignment",
        owner_reviewed_warns=True,
    ),
    "NotGuaranteed": Reason("The pod is not of QoS class Guaranteed, so the kubelet aligns nothing.", action="Warn"),
    "PodLevelResources": Reason("Pod-level resources make the kubelet skip NUMA alignment.", action="Warn"),
    "QueueDoesNotCover": Reason("The ClusterQueue does not cover CPU, so no CPU is added.", action="Warn"),
    "RaisedBeyondBounds": Reason(
        "With raised requests a quota would hold fewer pods, or the pod would exceed a LimitRange.", action="Warn"
    ),
    "RaisedTooFar": Reason("The memory limit is too many times the request to raise the request to it.", action="Warn"),
    "RaisedWouldNotFit": Reason("With raised requests fewer pods would fit their nodes.", action="Warn"),
    "RaisedWouldStrand": Reason(
        "With raised requests the pod would leave other GPUs of the node unusable.", action="Warn", facts=("nodes",)
    ),
    "ZonesUnknown": Reason("The NodeResourceTopologies are not synced yet.", action="Unknown"),
}


RULE = Rule(
    id="numa",
    title="Pods that hold whole accelerators are eligible for NUMA alignment and go where nodes align",
    since="0.1.0",
    params=NumaParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=BOUNDING | {"noderesourcetopologies", "nodes"},
    reads=SCHEDULING_FIELDS | {"annotations", "env", "overhead", "topologySpreadConstraints"},
    writes=frozenset({"affinity", "env", "resources", "topologySpreadConstraints"}),
    after=("host-memory",),
    trigger_annotations=frozenset({ALIGNMENT}),
    documentation=__doc__,
)
