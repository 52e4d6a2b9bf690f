"""Containers with accelerators get a /dev/shm that is large enough and that their memory limit holds.

## What it does

Mounts an `emptyDir` in memory at `/dev/shm` in the containers that ask for accelerators (sidecars too, other init containers
only by parameter), sized as a fraction of the smallest memory limit among them, between the policy's bounds and never above
that limit. A mount of the user's own at `/dev/shm`, or above it, wins in its container, and a pod with `hostIPC` is left
alone. Warns where the user's own mount cannot serve: read-only, not in memory, or without any bound.

## Why

The container runtime's default is 64 MiB. PyTorch DataLoader workers and NCCL put tensors there and die with a bus error
when it is full. A tmpfs without a size may fill the node; its pages count against the memory limit of the container that
writes them.

## Practice

- Basics guide, "Shared Memory for Deep Learning": a memory-backed volume is mounted at `/dev/shm` for data loaders.
- Field guide, "What we learned the hard way": the default size is too small, 8 to 16 GB are right.

## Example

After, with a memory limit of 32Gi:

```yaml
volumeMounts:
  - name: gpugate-shm
    mountPath: /dev/shm
volumes:
  - name: gpugate-shm
    emptyDir:
      medium: Memory
      sizeLimit: 16Gi
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.resources.shared_memory.checks import check
from gpugate.policies.rules.resources.shared_memory.mutate import mutate
from gpugate.policies.rules.resources.shared_memory.params import SharedMemoryParams

REASONS: Final[dict[str, Reason]] = {
    "NotInMemory": Reason("The volume for shared memory is on the disk of the node.", action="Warn"),
    "NotMounted": Reason("No volume for shared memory is mounted, which leaves 64Mi."),
    "ReadOnly": Reason("Shared memory is mounted read-only.", action="Warn"),
    "Unbounded": Reason("The volume for shared memory has no sizeLimit, and its container no memory limit.", action="Warn"),
}


RULE = Rule(
    id="shared-memory",
    title="Containers with accelerators get a /dev/shm that is large enough and that their memory limit holds",
    since="0.1.0",
    params=SharedMemoryParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    reads=frozenset({"hostIPC", "volumeMounts", "volumes"}),
    writes=frozenset({"volumeMounts", "volumes"}),
    after=("host-memory", "numa"),
    documentation=__doc__,
)
