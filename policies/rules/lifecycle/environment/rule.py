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

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.cel import UNIQUE, VariableName
from gpugate.policies.kube.fields import Object, Path, mappings
from gpugate.policies.rules.lifecycle.environment.variables import CAPABILITIES, SUPPORTED_CAPABILITIES, is_of_interest, lesson
from gpugate.policies.scheduling.node_selection import node_candidates
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.workload import PodSet, Workload

_P2P: Final = "NCCL_P2P_DISABLE"
_SHM: Final = "NCCL_SHM_DISABLE"
_IB: Final = "NCCL_IB_DISABLE"
_BLOCKING: Final = "CUDA_LAUNCH_BLOCKING"
#: What is turned off, or made slow, by a variable that is meant for debugging.
_AIDS: Final = {
    _P2P: "turns off NVLink and PCIe between the GPUs of a node, and what they exchange goes through host memory",
    _SHM: "turns off shared memory between the GPUs of a node, and what they exchange goes over the network",
    _IB: "turns off InfiniBand and RoCE, and what nodes exchange goes over sockets",
    _BLOCKING: "waits for each kernel before the next is launched",
}
_JUDGED_BY_VALUE: Final = frozenset({*_AIDS, CAPABILITIES})
_AMONG_GPUS: Final = frozenset({_P2P, _SHM})
#: Names that are looked up in one workload. Each takes a third of a millisecond, and no workload has as many that are not read.
_MOST_NAMES: Final = 256
_OFF: Final = frozenset({"", "0"})
#: How extended resources for InfiniBand and RoCE are called; with EFA, NCCL goes another way, which is not turned off.
_RDMA: Final = ("rdma/", "nvidia.com/hostdev", "openshift.io/")


class EnvironmentParams(Params):
    """Parameters of `environment`."""

    debugging_aids: bool = True
    """Whether variables that are meant for debugging, and make everything slow, are warned about."""
    read: Annotated[tuple[VariableName, ...], *UNIQUE] = ()
    """Variables that something here does read, though they look like mistakes."""


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
    if params.debugging_aids and name in _AIDS and type(value) is str and value.strip() not in _OFF:
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
        "DebuggingAid",
        path,
        f"{container.name} leaves {name} on, which is meant for debugging: it {_AIDS[name]}",
        f"Remove {name}.",
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
    reads_variables=frozenset({"NCCL_*", *_AIDS, CAPABILITIES}),
    documentation=__doc__,
)
