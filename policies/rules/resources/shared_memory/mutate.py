"""Edits of the rule `shared-memory`."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.fields import Path, mappings
from gpugate.policies.kube.quantity import MIB, format_bytes
from gpugate.policies.patch import Edit
from gpugate.policies.rules.resources.shared_memory.params import SharedMemoryParams
from gpugate.policies.workloads.container import INIT, LONGEST_NAME, SHM_DIRECTORY, Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import pod_level
from gpugate.policies.workloads.workload import Workload

_NAME: Final = "gpugate-shm"


def size_for(limit: int | None, params: SharedMemoryParams) -> int:
    """Size in bytes of /dev/shm for a memory ``limit`` in bytes, whole MiB where it is one at least."""
    if limit is None:
        return params.size_without_limit
    wanted = max(params.min_size, min(params.max_size, int(limit * params.fraction)))
    size = wanted if wanted < limit else int(limit * params.fraction)
    return size // MIB * MIB if size >= MIB else max(size, 1)


def consumers(pods: PodSet, params: SharedMemoryParams) -> list[Container]:
    """Return the containers with GPUs that need shared memory."""
    return [one for one in pods.holders() if one.role is not INIT or params.init_containers]


def left_alone(pods: PodSet) -> bool:
    """Return whether the pods use the node's shared memory (``hostIPC``)."""
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
        if not left_alone(pods):
            bare = [one for one in consumers(pods, params) if pods.shared_memory(one) is None]
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
    note = f"{SHM_DIRECTORY} of {size} in {', '.join(container for _, container in bare)}"
    mount = {"name": name, "mountPath": SHM_DIRECTORY}
    mounts = (Edit("append", (*path, "volumeMounts"), mount, "", group) for path, _ in bare)
    return (Edit("append", volumes, volume, note, group), *mounts)
