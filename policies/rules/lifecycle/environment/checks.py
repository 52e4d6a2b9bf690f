"""Parameters and findings of the rule `environment`."""

from collections.abc import Iterator
from typing import Annotated, Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import UNIQUE, VariableName
from gpugate.policies.kube.fields import Object, Path, mappings
from gpugate.policies.rules.lifecycle.environment.variables import (
    CAPABILITIES,
    SUPPORTED_CAPABILITIES,
    has_known_prefix,
    replacement_for,
)
from gpugate.policies.scheduling.node_selection import node_candidates
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_P2P: Final = "NCCL_P2P_DISABLE"
_SHM: Final = "NCCL_SHM_DISABLE"
_IB: Final = "NCCL_IB_DISABLE"
#: Variables for debugging, with their effect.
DEBUGGING_VARIABLES: Final = {
    _P2P: "turns off NVLink and PCIe between the GPUs of a node, so their data goes through host memory",
    _SHM: "turns off shared memory between the GPUs of a node, so their data goes over the network",
    _IB: "turns off InfiniBand and RoCE, so data between nodes goes over sockets",
    "CUDA_LAUNCH_BLOCKING": "makes each kernel wait for the one before",
}
_OFF: Final = frozenset({"", "0"})
#: The most names that are compared in one workload: each comparison takes a third of a millisecond.
_MOST_NAMES: Final = 64
#: Prefixes of extended resources for InfiniBand and RoCE; with EFA, NCCL uses another path, which stays on.
_RDMA: Final = ("rdma/", "nvidia.com/hostdev", "openshift.io/")


class EnvironmentParams(Params):
    """Parameters of `environment`."""

    debugging_aids: bool = True
    """Whether gpugate warns about variables for debugging that make programs slow."""
    read: Annotated[tuple[VariableName, ...], *UNIQUE] = ()
    """Variables that a program of this cluster reads, though they look like mistakes."""


def check(workload: Workload, params: EnvironmentParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Warn about variables that no library reads, and about those for debugging."""
    names: set[str] = set()
    for pods in workload.gpu_pod_sets():
        for container in pods.containers:
            if "env" not in container.spec or container.role is EPHEMERAL:
                continue
            reported: set[str] = set()
            for at, entry in enumerate(mappings(container.spec, "env", container.path)):
                name = entry.get("name")
                if type(name) is not str or not has_known_prefix(name) or name in params.read or name in reported:
                    continue
                # A container may state a variable many times; one finding is enough.
                names.add(name)
                if len(names) <= _MOST_NAMES or name in DEBUGGING_VARIABLES or name == CAPABILITIES:
                    findings = list(_check_entry(pods, container, (*container.path, "env", at), entry, params, snapshot))
                    if findings:
                        reported.add(name)
                        yield from findings


def _check_entry(
    pods: PodSet, container: Container, path: Path, entry: Object, params: EnvironmentParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    name, value = entry["name"], entry.get("value")
    if params.debugging_aids and name in DEBUGGING_VARIABLES and type(value) is str and value.strip() not in _OFF:
        if _has_effect(name, pods, snapshot):
            message = f"{container.name} sets {name}, a variable for debugging that {DEBUGGING_VARIABLES[name]}"
            yield Finding("DebuggingAid", path, message, f"Remove {name}.")
    elif name == CAPABILITIES and type(value) is str:
        unknown = [item for item in value.split(",") if item.strip() and item.strip() not in SUPPORTED_CAPABILITIES]
        if unknown and "$(" not in value:
            yield Finding(
                "UnknownCapability",
                (*path, "value"),
                f"{container.name} requests the driver capabilities {', '.join(unknown):.80}, which the NVIDIA container toolkit"
                " does not know",
                f"Use only {', '.join(sorted(SUPPORTED_CAPABILITIES))}.",
            )
    else:
        yield from _check_name(container, path, name)


def _has_effect(name: str, pods: PodSet, snapshot: ClusterSnapshot) -> bool:
    """Return whether the pods have several GPUs, or may run on a node with RDMA, if the variable is about these."""
    if name in {_P2P, _SHM}:
        return pods.whole_devices() > 1
    if name != _IB:
        return True
    shapes = node_candidates(pods, snapshot).matching
    if snapshot.sync_state("nodes") is not SyncState.SYNCED or not shapes:
        return True
    return any(device.startswith(_RDMA) for shape in shapes for device in shape.devices)


def _check_name(container: Container, path: Path, name: str) -> Iterator[Finding]:
    replacement = replacement_for(name)
    if replacement is None or container.env(replacement.name) is not None:
        # Images for two versions of a library set both names.
        return
    write = f"Write {replacement.name} instead of {name:.80}"
    if replacement.since:
        message = f"{container.name} sets {name}, which {replacement.since} replaced by {replacement.name}"
        yield Finding("FormerVariable", (*path, "name"), message, f"{write}.")
    else:
        message = f"{container.name} sets {name:.80}, which {replacement.reader} does not read"
        remedy = f"{write}, or add it to rules.environment.read of the policy if another program reads it."
        yield Finding("UnreadVariable", (*path, "name"), message, remedy)
