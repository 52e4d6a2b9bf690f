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

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Annotated, Final

from pydantic import Field

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.rule import Bytes, Params, Rule
from gpugate.policies.kube.fields import Path, mappings
from gpugate.policies.kube.quantity import GIB, MIB, format_bytes
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.container import INIT, LONGEST_NAME, Container
from gpugate.policies.workloads.requests import pod_level
from gpugate.policies.workloads.shm import DIRECTORY, SharedMemory
from gpugate.policies.workloads.workload import PodSet, Workload

_NAME: Final = "gpugate-shm"


class SharedMemoryParams(Params):
    """Parameters of `shared-memory`."""

    in_order = (("min_size", "max_size"),)

    fraction: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Part of the container's memory limit that /dev/shm may take."""
    min_size: Bytes = 1 * GIB
    """Smallest size given, where the memory limit allows it."""
    max_size: Bytes = 16 * GIB
    """Largest size given."""
    size_without_limit: Bytes = 8 * GIB
    """Size given where the container has no memory limit."""
    init_containers: bool = False
    """Whether init containers that ask for accelerators get the mount, too (sidecars always do)."""


def size_for(limit: int | None, params: SharedMemoryParams) -> int:
    """Size in bytes of /dev/shm for a memory ``limit`` in bytes, whole MiB where it is one at least."""
    if limit is None:
        return params.size_without_limit
    wanted = max(params.min_size, min(params.max_size, int(limit * params.fraction)))
    size = wanted if wanted < limit else int(limit * params.fraction)
    return size // MIB * MIB if size >= MIB else max(size, 1)


def _consumers(pods: PodSet, params: SharedMemoryParams) -> list[Container]:
    return [one for one in pods.holders() if one.role is not INIT or params.init_containers]


def _left_alone(pods: PodSet) -> bool:
    return pods.spec.get("hostIPC") is True


def _unused_name(pods: PodSet) -> str:
    taken = [volume.get("name") for volume in pods.volumes()]
    name, number = _NAME, 2
    while name in taken:
        name, number = f"{_NAME}-{number}", number + 1
    return name


def _left_over(pods: PodSet, size: str) -> str | None:
    """The name of a volume as this rule writes it that nobody mounts; None where there is none.

    A patch from Git, which states containers and no volumes, takes the mount out of a custom resource and leaves the volume.
    """
    wanted = {"medium": "Memory", "sizeLimit": size}
    names = (str(one.get("name")) for one in pods.volumes() if one.get("emptyDir") == wanted)
    mounts = [mount.get("name") for one in pods.containers for mount in mappings(one.spec, "volumeMounts", one.path)]
    return next((name for name in names if name.startswith(_NAME) and name not in mounts), None)


def mutate(workload: Workload, params: SharedMemoryParams, _facts: ClusterSnapshot) -> Iterable[Edit]:
    """Mount one memory-backed volume at /dev/shm in the containers that have nothing there."""
    found: list[Edit] = []
    for pods in workload.templated_gpu_pod_sets():
        if not _left_alone(pods):
            bare = [one for one in _consumers(pods, params) if pods.shared_memory(one) is None]
            if bare:
                found += _mount(pods, bare, params)
    return found


def _mount(pods: PodSet, bare: list[Container], params: SharedMemoryParams) -> Iterable[Edit]:
    # The kubelet shares the volume among its containers: each may fill it, so the smallest limit bounds it.
    smallest = pod_level(pods, "limits").get("memory")
    for one in bare:
        limit = one.amounts.memory_limit
        if limit is not None and (smallest is None or limit < smallest):
            smallest = limit
    size = format_bytes(size_for(smallest, params))
    make = _edits.__wrapped__ if [one for one in bare if len(one.name) > LONGEST_NAME] else _edits
    left = _left_over(pods, size) if "volumes" in pods.spec else None
    edits = make(pods.field("volumes"), left or _unused_name(pods), size, tuple([(one.path, one.name) for one in bare]))
    return edits if left is None else (edits[1]._replace(note=edits[0].note), *edits[2:])


@lru_cache(maxsize=256)
def _edits(volumes: Path, name: str, size: str, bare: tuple[tuple[Path, str], ...]) -> tuple[Edit, ...]:
    """The volume and its mounts; workloads of one team differ in little of this."""
    group = f"shm {name}"
    volume = {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    note = f"{DIRECTORY} of {size} in {', '.join(container for _, container in bare)}"
    mount = {"name": name, "mountPath": DIRECTORY}
    mounts = (Edit("append", (*path, "volumeMounts"), mount, "", group) for path, _ in bare)
    return (Edit("append", volumes, volume, note, group), *mounts)


def check(workload: Workload, params: SharedMemoryParams, _facts: ClusterSnapshot) -> Iterable[Finding]:
    """Refuse a missing /dev/shm; warn about one of the user's own that cannot serve."""
    found: list[Finding] = []
    for pods in workload.templated_gpu_pod_sets():
        if _left_alone(pods):
            continue
        for container in _consumers(pods, params):
            mounted = pods.shared_memory(container)
            if mounted is None:
                found.append(_not_mounted(container, params))
            else:
                found += _check_own(container, mounted)
    return found


def _not_mounted(container: Container, params: SharedMemoryParams) -> Finding:
    return Finding(
        "NotMounted",
        (*container.path, "volumeMounts"),
        f"{container.name} has nothing mounted at {DIRECTORY}: the runtime's default is 64Mi",
        f"Mount an emptyDir with medium Memory and sizeLimit"
        f" {format_bytes(size_for(container.memory('limits'), params))} at {DIRECTORY}.",
    )


def _check_own(container: Container, found: SharedMemory) -> Iterator[Finding]:
    place = (*container.path, "volumeMounts")
    if found.mount.get("readOnly") is True:
        yield Finding(
            "ReadOnly",
            place,
            f"{container.name} mounts {DIRECTORY} read-only: nothing can be shared through it",
            "Remove readOnly: true from that mount.",
            Level.WARN,
        )
    if found.volume is None or "emptyDir" not in found.volume:
        return
    if not found.is_memory:
        yield Finding(
            "NotInMemory",
            (*found.place, "emptyDir"),
            f"{DIRECTORY} of {container.name} lies on the node's disk",
            "Write medium: Memory in that emptyDir.",
            Level.WARN,
        )
    elif found.size_limit is None and container.memory("limits") is None:
        yield Finding(
            "Unbounded",
            (*found.place, "emptyDir"),
            f"{DIRECTORY} of {container.name} has no sizeLimit and the container no memory limit: it may fill the node's memory",
            "Write a sizeLimit in that emptyDir, 8Gi to 16Gi for training, and a memory limit.",
            Level.WARN,
        )


RULE = Rule(
    id="shared-memory",
    title="Containers with accelerators get a /dev/shm that is large enough and that their memory limit holds",
    since="0.1.0",
    params=SharedMemoryParams,
    mutate=mutate,
    check=check,
    documentation=__doc__,
)
