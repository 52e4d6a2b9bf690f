"""Findings of the rule `visible-devices`."""

from collections.abc import Iterable, Iterator
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.kube.fields import Object, Path, mappings
from gpugate.policies.rules.security.visible_devices.params import VisibleDevicesParams
from gpugate.policies.scheduling.node_selection import node_candidates
from gpugate.policies.workloads.container import Container, normal_path
from gpugate.policies.workloads.device_access import (
    DEVICE_ANNOTATIONS,
    DEVICE_LIST,
    NO_DEVICES,
    VARIABLES,
    asks_for_a_part,
    has_account,
    host_path,
    is_device_file,
    is_of_daemon_set,
    runs_stack_image,
    value_of,
)
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: What stands behind it is a device, with a slash between them or without (NVIDIA container toolkit, ``cuda_image.go``).
_LIST: Final = "/var/run/nvidia-container-devices"


#: Variables that hide from a program some of the devices that its container has, and the resource that these are asked for by.
_HIDING: Final = {
    "CUDA_VISIBLE_DEVICES": "nvidia.com/gpu",
    "HIP_VISIBLE_DEVICES": "amd.com/gpu",
    "ROCR_VISIBLE_DEVICES": "amd.com/gpu",
}


#: Reasons of findings about devices that the pod itself requests.
_HARMLESS: Final = frozenset({"HidesDevices", "LeavesDevicesIdle", "NamesItsOwnDevices"})


READ: Final = frozenset({*VARIABLES, *_HIDING})


#: Where the maker's own manifests take the value from: what its scheduler wrote there.
_OWN_ANNOTATION: Final = "metadata.annotations['huawei.com/"


def check(workload: Workload, params: VisibleDevicesParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse devices that were not asked for; warn of those that were and stay hidden."""
    for pods in workload.pod_sets:
        if not pods.is_whole:
            continue
        per_container: list[Finding] = []
        for one in pods.containers:
            if "env" in one.spec or "volumeMounts" in one.spec:
                per_container += _of_container(workload, pods, one, params, snapshot)
        per_container = [_told(workload, finding) for finding in per_container] if per_container else per_container
        of_pod = [*_by_volumes(pods), *_by_annotations(pods)]
        if (per_container or of_pod) and not has_account(workload, pods, params.service_accounts):
            yield from per_container
            yield from [] if _is_stack(workload, pods, params) else of_pod


def _told(workload: Workload, finding: Finding) -> Finding:
    """``finding``, with the way out for the node stack where its images come from a mirror."""
    if finding.reason in _HARMLESS or not is_of_daemon_set(workload):
        return finding
    more = " Where it belongs to the node stack, name its image in the policy (rules.visible-devices.images)."
    return finding._replace(remedy=finding.remedy + more)


def _is_stack(workload: Workload, pods: PodSet, params: VisibleDevicesParams) -> bool:
    return all(runs_stack_image(workload, one, params.images) for one in pods.containers)


def _of_container(
    workload: Workload, pods: PodSet, container: Container, params: VisibleDevicesParams, snapshot: ClusterSnapshot
) -> Iterable[Finding]:
    spec = container.spec
    found: list[Finding] = []
    if "env" in spec:
        # Of two entries of one name the last one counts.
        entries = {
            name: (at, one)
            for at, one in enumerate(mappings(spec, "env", container.path))
            if type(name := one.get("name")) is str and name in READ
        }
        for name, (at, entry) in entries.items():
            judged = _by_variable if name in VARIABLES else _hidden
            found += judged(pods, container, entry, (*container.path, "env", at), snapshot)
    if "volumeMounts" in spec:
        found += _by_mounts(pods, container)
    return [] if found and runs_stack_image(workload, container, params.images) else found


def _asked(pods: PodSet, resource: str) -> dict[str, int]:
    """What the pods ask for of a maker's accelerators."""
    maker = resource.partition("/")[0] + "/"
    found = {name: count for name, count in pods.accelerators().items() if name.startswith(maker)}
    if not found and resource == VARIABLES["ASCEND_VISIBLE_DEVICES"]:
        for container in pods.containers:
            found |= {name: container.count("limits", name) or 0 for name in container.limits if name.startswith(resource)}
    return found


def _shown_asked(pods: PodSet, resource: str) -> str:
    asked = _asked(pods, resource)
    if not asked:
        return "a claim for GPUs" if pods.gpu_claims and resource == VARIABLES["NVIDIA_VISIBLE_DEVICES"] else ""
    return ", ".join(f"{count} of {name}" for name, count in sorted(asked.items()))


def _by_variable(pods: PodSet, container: Container, entry: Object, place: Path, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    name = entry["name"]
    resource = VARIABLES[name]
    who = f"{container.role} {container.name}"
    if entry.get("valueFrom") is not None:
        if not _is_of_the_scheduler(pods, entry):
            yield _unseen(who, name, place)
        return
    value = value_of(entry)
    if value in NO_DEVICES:
        held = {one: count for one, count in container.accelerators().items() if one.startswith(resource.partition("/")[0])}
        if value and held:
            yield _all_hidden(who, name, value, held, place)
        return
    asked = _shown_asked(pods, resource)
    shown = f"{name}={value:.60}"
    if asked and _is_all_of_a_node(pods, resource, snapshot):
        yield Finding(
            "NamesItsOwnDevices",
            (*place, "value"),
            f"{who} sets {shown}, which on the nodes of today is no more than the {asked} that the pod asks for",
            f"Remove {name}: the device plugin sets it.",
        )
    elif asked:
        yield Finding(
            "TakesMoreDevices",
            (*place, "value"),
            f"{who} sets {shown} in a pod that asks for {asked}: its own value wins over the device plugin's and takes devices"
            " that the scheduler gave to others and no quota counts",
            f"Remove {name}: the device plugin sets it to the devices that the pod was given.",
        )
    else:
        yield Finding(
            "TakesDevices",
            (*place, "value"),
            f"{who} sets {shown} in a pod that asks for 0 of {resource}: the container runtime hands it devices that the"
            " scheduler gave to others and no quota counts",
            f'Ask for {resource} under resources.limits and remove {name}, or write {name}: "void" where none are needed.',
        )


def _is_of_the_scheduler(pods: PodSet, entry: Object) -> bool:
    """Whether a scheduler that hands out devices wrote the value: Ascend's into an annotation, KAI's into a ConfigMap."""
    source = entry.get("valueFrom")
    if type(source) is not dict:
        return False
    field = source.get("fieldRef")
    if type(field) is dict and entry["name"] == "ASCEND_VISIBLE_DEVICES":
        return str(field.get("fieldPath")).startswith(_OWN_ANNOTATION)
    return "configMapKeyRef" in source and asks_for_a_part(pods)


def _unseen(who: str, name: str, place: Path) -> Finding:
    return Finding(
        "DevicesUnseen",
        (*place, "valueFrom"),
        f"{who} takes {name} from elsewhere: it is not known here which devices it takes",
        f"Remove {name}: the device plugin sets it to the devices that the pod was given.",
    )


def _is_all_of_a_node(pods: PodSet, resource: str, snapshot: ClusterSnapshot) -> bool:
    """Whether the pods ask for all of ``resource`` that any node has on which they may land."""
    count = pods.accelerators().get(resource)
    roomy = node_candidates(pods, snapshot).large_enough if count else ()
    return bool(roomy) and all(shape.devices.get(resource) == count for shape in roomy)


def _all_hidden(who: str, name: str, value: str, held: dict[str, int], place: Path) -> Finding:
    asked = ", ".join(f"{count} of {one}" for one, count in sorted(held.items()))
    return Finding(
        "HidesDevices",
        (*place, "value"),
        f"{who} asks for {asked} and sets {name}={value}, which wins over the device plugin's value: it sees none, and all"
        f" {sum(held.values())} lie idle",
        f"Remove {name}, or ask for no accelerator.",
    )


def _hidden(pods: PodSet, container: Container, entry: Object, place: Path, _facts: ClusterSnapshot) -> Iterator[Finding]:
    name, value = entry["name"], entry.get("value")
    resource = _HIDING[name]
    asked = container.accelerators().get(resource, 0)
    if not asked or type(value) is not str or "$(" in value or pods.gpu_claims:
        return
    seen = _seen(value, asked)
    if seen < asked:
        yield Finding(
            "LeavesDevicesIdle",
            (*place, "value"),
            f"{container.role} {container.name} asks for {asked} of {resource} and {name}={value:.60} shows {seen} of them to its"
            f" program: {asked - seen} of {asked} lie idle",
            f"Remove {name}, or ask for {seen} of {resource}." if seen else f"Remove {name}, or ask for no accelerator.",
        )


def _seen(value: str, asked: int) -> int:
    """How many of the ``asked`` devices of a container a program sees: those before the first index that is none of them."""
    seen: set[str] = set()
    for one in (part.strip() for part in value.split(",")):
        is_index = one.isascii() and one.isdigit()
        is_one = int(one[:9]) < asked if is_index else one.lower().startswith(("gpu-", "mig-"))
        if not is_one or one in seen:
            break
        seen.add(one)
    return min(len(seen), asked)


def _by_mounts(pods: PodSet, container: Container) -> Iterator[Finding]:
    for at, mount in enumerate(mappings(container.spec, "volumeMounts", container.path)):
        written = mount.get("mountPath")
        if type(written) is not str or DEVICE_LIST not in written or not normal_path(written).startswith(_LIST):
            continue
        device = normal_path(written)[len(_LIST) :].strip("/")
        volume = pods.volume(mount.get("name"))
        if not device or volume is None or normal_path(host_path(volume[1]) or "/") != "/dev/null":
            continue
        yield Finding(
            "MountsDeviceList",
            (*container.path, "volumeMounts", at, "mountPath"),
            f"{container.role} {container.name} mounts the host's /dev/null at {written:.120}, by which the device plugin names"
            f" devices to the NVIDIA runtime: it takes {device:.60} beside the scheduler and every quota",
            "Remove that mount and ask for nvidia.com/gpu under resources.limits.",
        )


def _by_volumes(pods: PodSet) -> Iterator[Finding]:
    if "volumes" not in pods.spec or pods.requests_gpu():
        return
    for at, volume in enumerate(pods.volumes()):
        path = host_path(volume)
        if path and is_device_file(path):
            yield Finding(
                "MountsDevices",
                pods.field("volumes", at, "hostPath", "path"),
                f"volume {volume.get('name')!s:.63} is the host's {path:.120} in a pod that asks for no accelerator: with it a"
                " privileged container uses devices that the scheduler gave to others and no quota counts",
                "Remove that volume and ask for the accelerator under resources.limits, from which the device plugin mounts it.",
            )


def _by_annotations(pods: PodSet) -> Iterator[Finding]:
    for key, value in pods.annotations().items():
        if key.startswith(DEVICE_ANNOTATIONS):
            yield Finding(
                "NamesDevices",
                pods.meta("annotations", key),
                f"annotation {key:.120}: {value!s:.60} names devices to the container runtime beside the scheduler and every quota",
                "Remove that annotation and ask for the accelerator under resources.limits.",
            )
