"""Edits of the rule `accelerator-names`."""

from collections.abc import Iterable, Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.accelerators import LEGACY_GPU, NVIDIA_GPU
from gpugate.policies.patch import Edit
from gpugate.policies.rules.resources.accelerator_names.params import AcceleratorNamesParams
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.workload import Workload

KINDS = ("limits", "requests")


def mutate(workload: Workload, _params: AcceleratorNamesParams, _facts: ClusterSnapshot) -> Iterable[Edit]:
    """Rename the legacy resource; make requests and limits equal."""
    odd = [one for pods in workload.pod_sets for one in pods.containers if not one.stated.is_plain and one.role is not EPHEMERAL]
    return [edit for container in odd for edit in _correct(container)] if odd else ()


def _correct(container: Container) -> Iterator[Edit]:
    names: Iterable[str] = container.stated.extended
    if LEGACY_GPU in names:
        yield from _rename(container)
        names = [name for name in names if name not in {LEGACY_GPU, NVIDIA_GPU}]
    for name in names:
        yield from _equalise(container, name)


def _rename(container: Container) -> Iterator[Edit]:
    group = f"rename {container.name}"
    legacy = {kind: container.raw(kind, LEGACY_GPU) for kind in KINDS}
    proper = {kind: container.raw(kind, NVIDIA_GPU) for kind in KINDS}
    amount = next((value for value in (*proper.values(), *legacy.values()) if value is not None), None)
    note = f"{LEGACY_GPU} renamed to {NVIDIA_GPU} in {container.name}"
    for kind in KINDS:
        if legacy[kind] is not None:
            yield Edit("remove", container.place(kind, LEGACY_GPU), None, note, group)
    yield Edit("set", container.place("limits", NVIDIA_GPU), amount, "", group)
    if legacy["requests"] is not None or proper["requests"] is not None:
        yield Edit("set", container.place("requests", NVIDIA_GPU), amount, "", group)


def _equalise(container: Container, name: str) -> Iterator[Edit]:
    limit, request = container.raw("limits", name), container.raw("requests", name)
    if request is None or request == limit or container.is_fraction("requests", name):
        return
    if limit is None:
        yield Edit("set", container.place("limits", name), request, f"limit of {name} set to its request in {container.name}")
    elif container.count("limits", name) != container.count("requests", name) and not container.is_fraction("limits", name):
        yield Edit("set", container.place("requests", name), limit, f"request of {name} made its limit in {container.name}")
