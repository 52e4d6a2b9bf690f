"""Environment variables of accelerator pods have names that a library reads, and none is for debugging.

## What it does

Warns, in containers of pods that request accelerators, about

- a variable that no library reads while one with a similar name is read: `NCCL_TOPOLOGY_FILE` for `NCCL_TOPO_FILE`. Known are the
  variables of NCCL and RCCL, PyTorch, CUDA and MPS, NVIDIA's container toolkit, OpenMP, UCX and Gloo. The rule ignores a name
  that is similar to none of them, since a newer version may read it;
- a former name, with the one that replaced it: `NCCL_ASYNC_ERROR_HANDLING`, which is PyTorch's and not NCCL's;
- `NCCL_P2P_DISABLE` and `NCCL_SHM_DISABLE` in pods with several GPUs, `NCCL_IB_DISABLE` unless no possible node has RDMA, and
  `CUDA_LAUNCH_BLOCKING`, if they are on;
- a value of `NVIDIA_DRIVER_CAPABILITIES` that the container toolkit does not know.

It changes nothing.

## Why

No library warns about an unknown variable, and a training job with a misspelt one runs, slowly. Variables that NCCL's user guide
lists for debugging turn off the fast paths between GPUs: NVLink, shared memory, InfiniBand. Users set them to find a fault, and
forget to remove them. An unknown capability keeps the container from starting.

## Practice

- NUMA guide, "Topology-Aware GPU Scheduling for Multi-Node Training": NCCL reads the topology from a file, under the name that
  NCCL reads.
- Field guide, "Topology-aware scheduling": collectives run over NVLink and InfiniBand, and no variable turns these off.
- Orchestration guide, "Distributed Training Hangs": a variable that NCCL reads turns debugging on, and is removed when the fault
  is found.

## Example

A warning, `Write NCCL_TOPO_FILE instead of NCCL_TOPOLOGY_FILE`:

```yaml
env:
  - name: NCCL_TOPOLOGY_FILE
    value: /etc/nccl/topo.xml
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.lifecycle.environment.checks import DEBUGGING_VARIABLES, EnvironmentParams, check
from gpugate.policies.rules.lifecycle.environment.variables import CAPABILITIES

REASONS: Final[dict[str, Reason]] = {
    "DebuggingAid": Reason("A variable for debugging is set.", action="Warn"),
    "FormerVariable": Reason("The variable has a new name.", action="Warn"),
    "UnknownCapability": Reason("NVIDIA_DRIVER_CAPABILITIES names an unknown capability.", action="Warn"),
    "UnreadVariable": Reason("No known program reads the variable.", action="Warn"),
}


RULE = Rule(
    id="environment",
    title="Environment variables of accelerator pods have names that a library reads, and none is for debugging",
    since="0.1.0",
    params=EnvironmentParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"nodes"}),
    reads=frozenset({"env"}),
    reads_variables=frozenset({"NCCL_*", *DEBUGGING_VARIABLES, CAPABILITIES}),
    documentation=__doc__,
)
