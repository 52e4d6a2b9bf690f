"""Findings of the rule `shared-memory`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.kube.quantity import format_bytes
from gpugate.policies.rules.resources.shared_memory.mutate import consumers, left_alone, size_for
from gpugate.policies.rules.resources.shared_memory.params import SharedMemoryParams
from gpugate.policies.workloads.container import SHM_DIRECTORY, Container, SharedMemory
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: SharedMemoryParams, _facts: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse a missing /dev/shm; warn about one of the user's own that cannot serve."""
    for pods in workload.templated_gpu_pod_sets():
        if left_alone(pods):
            continue
        for container in consumers(pods, params):
            mounted = pods.shared_memory(container)
            if mounted is None:
                yield _not_mounted(container, params)
            else:
                yield from _check_own(container, mounted)


def _not_mounted(container: Container, params: SharedMemoryParams) -> Finding:
    return Finding(
        "NotMounted",
        (*container.path, "volumeMounts"),
        f"{container.name} has nothing mounted at {SHM_DIRECTORY}: the runtime's default is 64Mi",
        f"Mount an emptyDir with medium Memory and sizeLimit"
        f" {format_bytes(size_for(container.memory('limits'), params))} at {SHM_DIRECTORY}.",
    )


def _check_own(container: Container, found: SharedMemory) -> Iterator[Finding]:
    place = (*container.path, "volumeMounts")
    if found.mount.get("readOnly") is True:
        yield Finding(
            "ReadOnly",
            place,
            f"{container.name} mounts {SHM_DIRECTORY} read-only: nothing can be shared through it",
            "Remove readOnly: true from that mount.",
        )
    if found.volume is None or "emptyDir" not in found.volume:
        return
    if not found.is_memory:
        yield Finding(
            "NotInMemory",
            (*found.place, "emptyDir"),
            f"{SHM_DIRECTORY} of {container.name} lies on the node's disk",
            "Write medium: Memory in that emptyDir.",
        )
    elif found.size_limit is None and container.memory("limits") is None:
        yield Finding(
            "Unbounded",
            (*found.place, "emptyDir"),
            f"{SHM_DIRECTORY} of {container.name} has no sizeLimit and the container no memory limit: it may fill the node's"
            " memory",
            "Write a sizeLimit in that emptyDir, 8Gi to 16Gi for training, and a memory limit.",
        )
