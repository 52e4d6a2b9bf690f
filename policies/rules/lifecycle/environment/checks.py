"""Findings of the rule `environment`."""

from collections.abc import Iterator
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.kube.fields import Object, Path, mappings
from gpugate.policies.rules.lifecycle.environment.params import EnvironmentParams
from gpugate.policies.rules.lifecycle.environment.variables import CAPABILITIES, SUPPORTED_CAPABILITIES, is_of_interest, lesson
from gpugate.policies.scheduling.node_selection import node_candidates
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_P2P: Final = "NCCL_P2P_DISABLE"


_SHM: Final = "NCCL_SHM_DISABLE"


_IB: Final = "NCCL_IB_DISABLE"


_BLOCKING: Final = "CUDA_LAUNCH_BLOCKING"


#: What is turned off, or made slow, by a variable that is meant for debugging.
AIDS: Final = {
    _P2P: "turns off NVLink and PCIe between the GPUs of a node, and what they exchange goes through host memory",
    _SHM: "turns off shared memory between the GPUs of a node, and what they exchange goes over the network",
    _IB: "turns off InfiniBand and RoCE, and what nodes exchange goes over sockets",
    _BLOCKING: "waits for each kernel before the next is launched",
}


_JUDGED_BY_VALUE: Final = frozenset({*AIDS, CAPABILITIES})


_AMONG_GPUS: Final = frozenset({_P2P, _SHM})


#: Names that are looked up in one workload. Each takes a third of a millisecond, and no workload has as many that are not read.
_MOST_NAMES: Final = 256


_OFF: Final = frozenset({"", "0"})


#: How extended resources for InfiniBand and RoCE are called; with EFA, NCCL goes another way, which is not turned off.
_RDMA: Final = ("rdma/", "nvidia.com/hostdev", "openshift.io/")


def check(workload: Workload, params: EnvironmentParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Warn about names that nothing reads, and about what slows everything down."""
    names: set[str] = set()
    for pods in workload.gpu_pod_sets():
        for container in pods.containers:
            if "env" not in container.spec or container.role is EPHEMERAL:
                continue
            for at, entry in enumerate(mappings(container.spec, "env", container.path)):
                name = entry.get("name")
                if type(name) is not str or not is_of_interest(name) or name in params.read:
                    continue
                names.add(name)
                if len(names) <= _MOST_NAMES or name in _JUDGED_BY_VALUE:
                    yield from _check_entry(pods, container, (*container.path, "env", at), entry, params, snapshot)


def _check_entry(
    pods: PodSet, container: Container, path: Path, entry: Object, params: EnvironmentParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    name, value = entry["name"], entry.get("value")
    if params.debugging_aids and name in AIDS and type(value) is str and value.strip() not in _OFF:
        yield from _check_aid(pods, container, path, name, snapshot)
    elif name == CAPABILITIES and type(value) is str:
        yield from _check_capabilities(container, path, value)
    else:
        yield from _check_name(container, path, name)


def _check_name(container: Container, path: Path, name: str) -> Iterator[Finding]:
    told = lesson(name)
    if told is None or container.env(told.proper) is not None:
        # Beside the proper one it does no harm: people who serve two versions write both.
        return
    if told.since:
        yield Finding(
            "FormerVariable",
            (*path, "name"),
            f"{container.name} sets {name}, which {told.since} gave up",
            f"Write {told.proper} instead of {name}.",
        )
    else:
        yield Finding(
            "UnreadVariable",
            (*path, "name"),
            f"{container.name} sets {name:.80}, which {told.reader} does not read",
            f"Write {told.proper} instead of {name:.80}, or name it in the policy if something else reads it.",
        )


def _check_aid(pods: PodSet, container: Container, path: Path, name: str, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    if name in _AMONG_GPUS and pods.whole_devices() <= 1:
        # There is nobody on the node to exchange anything with.
        return
    if name == _IB and not _may_have_rdma(pods, snapshot):
        return
    yield Finding(
        "DebuggingAid", path, f"{container.name} leaves {name} on, which is meant for debugging: it {AIDS[name]}", f"Remove {name}."
    )


def _may_have_rdma(pods: PodSet, snapshot: ClusterSnapshot) -> bool:
    """Whether some node in reach has RDMA for containers, as far as is known."""
    shapes = node_candidates(pods, snapshot).matching
    if snapshot.sync_state("nodes") is not SyncState.SYNCED or not shapes:
        return True
    return any(name.startswith(_RDMA) for shape in shapes for name in shape.devices)


def _check_capabilities(container: Container, path: Path, value: str) -> Iterator[Finding]:
    wrong = [one for one in value.split(",") if one.strip() and one.strip() not in SUPPORTED_CAPABILITIES]
    if wrong and "$(" not in value:
        yield Finding(
            "UnknownCapability",
            (*path, "value"),
            f"{container.name} asks for the driver capabilities {', '.join(wrong):.80}: the NVIDIA container toolkit takes no such",
            f"Write some of {', '.join(sorted(SUPPORTED_CAPABILITIES))}.",
        )
