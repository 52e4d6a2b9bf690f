"""Memory-backed volumes of a container: their pages count against the memory limit of whoever writes them.

A memory-backed emptyDir is a tmpfs as large as the least of the node's allocatable memory, the pod's memory limit (where
every container has one) and ``sizeLimit`` (``pkg/volume/emptydir/empty_dir.go`` ``calculateEmptyDirMemorySize``, 1.36).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpugate.policies.findings import Finding
from gpugate.policies.kube.fields import Object, Path, mappings
from gpugate.policies.kube.quantity import MIB, format_bytes, show_bytes
from gpugate.policies.workloads.container import EPHEMERAL, SHM_DIRECTORY, Container, SharedMemory
from gpugate.policies.workloads.pod_set import PodSet


class MemoryVolume(NamedTuple):
    """A memory-backed volume that a container may write.

    Attributes:
        name: its name.
        size: its ``sizeLimit`` in bytes; None where it has none.
        place: path of the volume.
    """

    name: str
    size: int | None
    place: Path


def _in_memory(volume: Object) -> bool:
    source = volume.get("emptyDir")
    return type(source) is dict and source.get("medium") == "Memory"


def check_memory_volumes(pods: PodSet, pod_limit: int | None) -> list[Finding]:
    """What is wrong with memory-backed volumes; ``pod_limit``: the pod-level memory limit in bytes, if any."""
    found: list[Finding] = []
    several = "volumes" in pods.spec and sum(map(_in_memory, pods.volumes()))
    for container in pods.containers:
        if container.role is EPHEMERAL or "volumeMounts" not in container.spec:
            continue
        mounted = pods.shared_memory(container)
        at_shm = mounted is not None and mounted.is_memory
        if mounted is not None and at_shm:
            found += _check_shared_memory(container, mounted, pod_limit)
        if several > at_shm:
            found += _check_volumes(pods, container, pod_limit)
    return found


def _check_shared_memory(container: Container, mounted: SharedMemory, pod_limit: int | None) -> Iterable[Finding]:
    size, limit = mounted.size_limit, container.amounts.memory_limit
    limit = pod_limit if limit is None else limit
    if size is None or limit is None or size <= limit:
        return ()
    finding = Finding(
        "SharedMemoryExceedsLimit",
        (*mounted.place, "emptyDir", "sizeLimit"),
        f"{SHM_DIRECTORY} of {show_bytes(size)} is larger than the memory limit of {show_bytes(limit)} in {container.name},"
        f" against which its pages count: {show_bytes(size)} > {show_bytes(limit)}",
        f"Write sizeLimit: {format_bytes(limit // 2 // MIB * MIB or limit)}, or raise the memory limit to {show_bytes(size * 2)}.",
        measure=size - limit,
    )
    return (finding,)


def _check_volumes(pods: PodSet, container: Container, pod_limit: int | None) -> Iterable[Finding]:
    limit = container.amounts.memory_limit
    limit = pod_limit if limit is None else limit
    shared = pods.shared_memory(container)
    at_shm = None if shared is None else shared.mount.get("name")
    volumes = list(memory_volumes(pods, container))
    if limit is None:
        bare = () if pods.holds(container) else [one for one in volumes if one.size is None and one.name != at_shm]
        return [_volume_unbounded(container, one) for one in bare]
    sizes = [one for one in volumes if one.size]
    total = sum(one.size or 0 for one in sizes)
    if total <= limit or all(one.name == at_shm for one in sizes):
        return ()
    terms = " + ".join(f"{show_bytes(one.size or 0)} ({one.name})" for one in sizes)
    finding = Finding(
        "MemoryVolumesExceedLimit",
        pods.field("volumes"),
        f"the memory-backed volumes that {container.name} may write are larger than its memory limit, against which their pages"
        f" count: {terms}{f' = {show_bytes(total)}' if len(sizes) > 1 else ''} > {show_bytes(limit)}",
        f"Lower their sizeLimits to {show_bytes(limit // 2 // MIB * MIB or limit)} together, or raise the memory limit to"
        f" {show_bytes(total * 2)}.",
        measure=total - limit,
    )
    return (finding,)


def _volume_unbounded(container: Container, volume: MemoryVolume) -> Finding:
    return Finding(
        "MemoryVolumeUnbounded",
        (*volume.place, "emptyDir"),
        f"the memory-backed volume {volume.name} has no sizeLimit and {container.name}, which may write it, has no memory limit:"
        " it may grow to all of the node's allocatable memory",
        "Write a sizeLimit for the volume, and a memory limit for the container.",
    )


def memory_volumes(pods: PodSet, container: Container) -> Iterator[MemoryVolume]:
    """The memory-backed volumes that ``container`` may write, each once.

    Raises:
        MalformedError: a size is no quantity.
    """
    seen: set[str] = set()
    for mount in mappings(container.spec, "volumeMounts", container.path):
        name = str(mount.get("name"))
        found = pods.volume(name)
        if found is None or name in seen or mount.get("readOnly") is True or not _in_memory(found[1]):
            continue
        seen.add(name)
        place = pods.field("volumes", found[0])
        yield MemoryVolume(name, SharedMemory(mount, found[1], place).size_limit, place)
