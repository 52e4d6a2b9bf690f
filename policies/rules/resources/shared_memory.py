"""Containers with accelerators get a /dev/shm that is large enough and that their memory limit holds.

## What it does

Mounts an `emptyDir` in memory at `/dev/shm` in the containers that request accelerators (sidecars too, other init containers
only by parameter), sized as a fraction of the smallest memory limit among them, between the policy's bounds and never above
that limit, less the sizes of other memory-backed volumes. Pod-level limits and the defaults of LimitRanges, which pods get at
creation, count as limits. A mount of the user's own at `/dev/shm`, or above it, wins in its container, and a pod with `hostIPC`
is left alone. Warns if the user's own mount cannot serve: read-only, not in memory, or without any bound.

## Why

The container runtime's default is 64 MiB. PyTorch DataLoader workers and NCCL put tensors there and die with a bus error
when it is full. A tmpfs without a size may fill the node; its pages count against the memory limit of their container.

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

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Final

from pydantic import Field

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.framework.params import Bytes, Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.fields import Object, Path, mappings
from gpugate.policies.kube.quantity import GIB, MIB, format_bytes
from gpugate.policies.patch import Edit
from gpugate.policies.scheduling.pod_resources import defaults_for
from gpugate.policies.workloads.container import INIT, LONGEST_NAME, SHM_DIRECTORY, Container, SharedMemory
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import pod_level
from gpugate.policies.workloads.workload import Workload

_NAME: Final = "gpugate-shm"


class SharedMemoryParams(Params):
    """Parameters of `shared-memory`."""

    in_order = (("min_size", "max_size"),)

    fraction: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Part of the container's memory limit that /dev/shm may take."""
    min_size: Bytes = 1 * GIB
    """Smallest size of the volume, if the memory limit allows it."""
    max_size: Bytes = 16 * GIB
    """Largest size of the volume."""
    size_without_limit: Bytes = 8 * GIB
    """Size of the volume if the container has no memory limit."""
    init_containers: bool = False
    """Whether init containers that request accelerators get the mount, too (sidecars always do)."""


def _size_for(limit: int | None, left: int | None, params: SharedMemoryParams) -> int:
    """Return the size in bytes of /dev/shm: whole MiB if it is at least one; zero if nothing is left for it.

    Args:
        limit: the memory limit in bytes; None if there is none.
        left: the part of it that other memory-backed volumes leave.
        params: the rule's parameters.
    """
    if limit is None or left is None:
        return params.size_without_limit
    part = int(limit * params.fraction)
    size = max(params.min_size, min(params.max_size, part))
    size = min(part if size >= limit else size, left)
    return size // MIB * MIB if size >= MIB else max(size, min(left, 1), 0)


def _size_in(
    workload: Workload, pods: PodSet, containers: Sequence[Container], params: SharedMemoryParams, snapshot: ClusterSnapshot
) -> int:
    """Return the size in bytes of one volume at /dev/shm of ``containers``, as their pods will be limited; zero for no volume.

    The kubelet shares the volume among the containers: each may fill it, so the smallest limit bounds it. A LimitRange gives
    containers without a limit its default when the pod is created.
    """
    default = defaults_for(snapshot, workload.namespace).limits.get("memory")
    of_pod = pod_level(pods, "limits").get("memory")
    limits: list[int] = []
    left: list[int] = []
    for container in containers:
        stated = container.amounts.memory_limit
        bounds = [limit for limit in (default if stated is None else stated, of_pod) if limit is not None]
        if bounds:
            limits.append(min(bounds))
            volumes = pods.memory_volumes(container) if "volumeMounts" in container.spec else {}
            left.append(min(bounds) - sum(volume.size_limit or 0 for volume in volumes.values()))
    return _size_for(min(limits, default=None), min(left, default=None), params)


def _consumers(workload: Workload, params: SharedMemoryParams) -> Iterator[tuple[PodSet, list[Container]]]:
    """Yield the pods, and their containers with GPUs that need shared memory; pods with ``hostIPC`` use the node's."""
    for pods in workload.templated_gpu_pod_sets():
        if pods.spec.get("hostIPC") is not True:
            yield pods, [container for container in pods.holders() if container.role is not INIT or params.init_containers]


def _unused_name(volumes: list[Object]) -> str:
    taken = [volume.get("name") for volume in volumes]
    name, number = _NAME, 2
    while name in taken:
        name, number = f"{_NAME}-{number}", number + 1
    return name


def _unmounted_volume(pods: PodSet, volumes: list[Object], size: str) -> str | None:
    """Return the name of one of the ``volumes`` of ``pods`` that this rule wrote and no container mounts; None if there is none.

    A patch from Git that states containers and no volumes removes the mount from a custom resource and leaves the volume.
    """
    written = {"medium": "Memory", "sizeLimit": size}
    names = [str(volume.get("name")) for volume in volumes if volume.get("emptyDir") == written]
    if not names:
        return None
    mounts = (mappings(container.spec, "volumeMounts", container.path) for container in pods.containers)
    mounted = {str(mount.get("name")) for of_container in mounts for mount in of_container}
    return next((name for name in names if name.startswith(_NAME) and name not in mounted), None)


def mutate(workload: Workload, params: SharedMemoryParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Mount one memory-backed volume at /dev/shm in the containers that have nothing there."""
    edits: list[Edit] = []
    for pods, containers in _consumers(workload, params):
        without = [container for container in containers if pods.shared_memory(container) is None]
        size = _size_in(workload, pods, without, params, snapshot) if without else 0
        if without and not size:
            without = [container for container in without if _size_in(workload, pods, (container,), params, snapshot)]
            size = _size_in(workload, pods, without, params, snapshot) if without else 0
        if size:
            edits += _mount(pods, without, format_bytes(size))
    return edits


def _mount(pods: PodSet, containers: list[Container], size: str) -> Iterable[Edit]:
    make = _edits if max([len(container.name) for container in containers]) <= LONGEST_NAME else _edits.__wrapped__
    volumes = pods.volumes()
    existing = _unmounted_volume(pods, volumes, size)
    mounting = tuple([(container.path, container.name) for container in containers])
    edits = make(pods.field("volumes"), existing or _unused_name(volumes), size, mounting)
    return edits if existing is None else (edits[1]._replace(note=edits[0].note), *edits[2:])


@lru_cache(maxsize=256)
def _edits(volumes: Path, name: str, size: str, containers: tuple[tuple[Path, str], ...]) -> tuple[Edit, ...]:
    """Return the edits that add the volume and its mounts; workloads of one team differ in little of this."""
    group = f"shm {name}"
    volume = {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    note = f"{SHM_DIRECTORY} of {size} in {', '.join(container for _, container in containers)}"
    mounts = [((*path, "volumeMounts"), {"name": name, "mountPath": SHM_DIRECTORY}) for path, _ in containers]
    return (Edit("append", volumes, volume, note, group), *[Edit("append", place, mount, "", group) for place, mount in mounts])


def check(workload: Workload, params: SharedMemoryParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse a missing /dev/shm; warn about one of the user's own that cannot serve."""
    for pods, containers in _consumers(workload, params):
        for container in containers:
            mounted = pods.shared_memory(container)
            if mounted is None:
                size = _size_in(workload, pods, (container,), params, snapshot)
                write = f"Mount an emptyDir with medium Memory and sizeLimit {format_bytes(size)} at {SHM_DIRECTORY}."
                finding = Finding(
                    "NotMounted",
                    (*container.path, "volumeMounts"),
                    f"{container.name} has nothing mounted at {SHM_DIRECTORY}, so it gets the runtime's default of 64Mi"
                    + ("" if size else "; its other memory-backed volumes leave nothing of its memory limit"),
                    write if size else "Raise the memory limit, or lower the sizeLimit of those volumes.",
                )
                yield finding if size else finding.as_warning()
            else:
                yield from _check_own(container, mounted)


def _check_own(container: Container, mounted: SharedMemory) -> Iterator[Finding]:
    if mounted.mount.get("readOnly") is True:
        yield Finding(
            "ReadOnly",
            (*container.path, "volumeMounts"),
            f"{container.name} mounts {SHM_DIRECTORY} read-only, so its processes cannot share memory through it",
            "Remove readOnly: true from that mount.",
        )
    if mounted.volume is None or "emptyDir" not in mounted.volume:
        return
    place = (*mounted.place, "emptyDir")
    if not mounted.is_memory:
        yield Finding(
            "NotInMemory",
            place,
            f"{SHM_DIRECTORY} of {container.name} is on the disk of the node",
            "Write medium: Memory in that emptyDir.",
        )
    elif mounted.size_limit is None and container.memory("limits") is None:
        yield Finding(
            "Unbounded",
            place,
            f"{SHM_DIRECTORY} of {container.name} has no sizeLimit and the container has no memory limit, so it could fill the"
            " memory of the node",
            "Write a sizeLimit in that emptyDir, 8Gi to 16Gi for training, and a memory limit.",
        )


REASONS: Final[dict[str, Reason]] = {
    "NotInMemory": Reason("The volume for shared memory is on the disk of the node.", action="Warn"),
    "NotMounted": Reason(
        "No volume for shared memory is mounted, which leaves 64Mi.",
        warns="other memory-backed volumes leave nothing of the memory limit",
    ),
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
    needs=frozenset({"limitranges"}),
    reads=frozenset({"hostIPC", "volumeMounts", "volumes"}),
    writes=frozenset({"volumeMounts", "volumes"}),
    after=("host-memory", "numa"),
    documentation=__doc__,
)
