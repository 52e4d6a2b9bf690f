"""Environment variables have names that a library reads, and leave on nothing that is meant for debugging.

## What it does

Warns, in containers of pods that ask for accelerators, about

- a variable that nothing reads while a name near it is read: `NCCL_TOPOLOGY_FILE` for `NCCL_TOPO_FILE`. Known are the variables of
  NCCL and RCCL, PyTorch, CUDA and MPS, NVIDIA's container toolkit, OpenMP, UCX and Gloo. A name that is near none of them is left
  alone: a newer version may read it;
- a name that was given up, with the one that replaced it: `NCCL_ASYNC_ERROR_HANDLING`, which is PyTorch's and not NCCL's;
- `NCCL_P2P_DISABLE` and `NCCL_SHM_DISABLE` for pods with several GPUs, `NCCL_IB_DISABLE` unless no node in reach has RDMA, and
  `CUDA_LAUNCH_BLOCKING`, where they are left on;
- a value of `NVIDIA_DRIVER_CAPABILITIES` that the container toolkit does not take.

Changes nothing.

## Why

No library warns about a variable that it does not know, and a training job with a misspelt one runs, slowly. What NCCL's user guide
lists for debugging turns off the fast ways between GPUs: NVLink, shared memory, InfiniBand. It is set to find a fault, and left
there. A capability that does not exist keeps the container from starting.

## Practice

- NUMA guide, "Topology-Aware GPU Scheduling for Multi-Node Training": NCCL is told of the topology by a file, under the name
  that NCCL reads.
- Field guide, "Topology-aware scheduling": collectives run over NVLink and InfiniBand, and nothing turns these off.
- Orchestration guide, "Distributed Training Hangs": debugging is switched on by a variable that NCCL reads, and what slows the job
  down goes when the fault is found.

## Example

Warned about, with the words `Write NCCL_TOPO_FILE instead of NCCL_TOPOLOGY_FILE.`:

```yaml
env:
  - name: NCCL_TOPOLOGY_FILE
    value: /etc/nccl/topo.xml
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.lifecycle.environment.checks import AIDS, check
from gpugate.policies.rules.lifecycle.environment.params import EnvironmentParams
from gpugate.policies.rules.lifecycle.environment.variables import CAPABILITIES

REASONS: Final[dict[str, Reason]] = {
    "DebuggingAid": Reason("A variable for debugging is set.", action="Warn"),
    "FormerVariable": Reason("The variable has a new name.", action="Warn"),
    "UnknownCapability": Reason("NVIDIA_DRIVER_CAPABILITIES names an unknown capability.", action="Warn"),
    "UnreadVariable": Reason("No known program reads the variable.", action="Warn"),
}


RULE = Rule(
    id="environment",
    title="Environment variables of accelerator pods have names that something reads, and no debugging aid is left on",
    since="0.1.0",
    params=EnvironmentParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"nodes"}),
    reads=frozenset({"env"}),
    reads_variables=frozenset({"NCCL_*", *AIDS, CAPABILITIES}),
    documentation=__doc__,
)
