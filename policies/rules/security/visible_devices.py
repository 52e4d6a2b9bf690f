"""No pod takes accelerators that it did not request.

## What it does

Refuses what gives devices to a container without a request that the scheduler and the namespace's quota count:

- a variable of a container runtime set by hand: `NVIDIA_VISIBLE_DEVICES` (`all`, indices, UUIDs, MIG ids),
  `AMD_VISIBLE_DEVICES`, `HABANA_VISIBLE_DEVICES`, `ASCEND_VISIBLE_DEVICES`; empty, `none` and `void` take nothing;
- a mount of the host's /dev/null below /var/run/nvidia-container-devices, and an annotation `cdi.k8s.io/...`: the device plugin's
  own ways to name devices to the runtime;
- a hostPath volume of an accelerator's device file (/dev/nvidia0) in a pod that requests no accelerator.

A pod that requests accelerators is refused, too: its own value overrides the device plugin's. It gets a warning if it requests all
accelerators of a node. gpugate cannot see a value from a ConfigMap, a Secret or a field (`onUnknown`).

Warns if requested accelerators stay hidden by `CUDA_VISIBLE_DEVICES` (`HIP_`, `ROCR_`) or by `NVIDIA_VISIBLE_DEVICES: none`.

Service accounts of the node stack are left alone (`serviceAccounts`). In a DaemonSet of another account, an image of the node
stack (`images`) turns the refusal into a warning, or not (`imagesElsewhere`): everybody can name an image. In a cluster this rule
also sees pods that request no accelerator; no other pod waits for it ([isolation](../guide/isolation.md)).

## Why

If the NVIDIA runtime is the default one, the variable alone gives a container every GPU of its node. The scheduler gives the
same GPUs to others, and no quota counts them. The kubelet lets a container's own variables override those of the device plugin,
so a pod with one GPU may take eight.

## Practice

- Basics guide, "Basic GPU Pod" and "GPU Architecture in Kubernetes": the device plugin allocates GPUs, by resource name.
- Basics guide, "Inference Deployment": `CUDA_VISIBLE_DEVICES: "0"` beside one GPU hides nothing and is left alone.
- Field guide, "Install the NVIDIA device plugin": the scheduler knows only devices that are requested as a resource.

## Example

Refused:

```yaml
env:
  - name: NVIDIA_VISIBLE_DEVICES
    value: all
```

Instead:

```yaml
resources:
  limits:
    nvidia.com/gpu: 1
```
"""

from collections.abc import Iterator, Mapping
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Action, Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.fields import Object, Path, mappings
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS, node_candidates
from gpugate.policies.workloads.container import Container, normal_path
from gpugate.policies.workloads.device_access import (
    DEVICE_ANNOTATIONS,
    DEVICE_LIST,
    NO_DEVICES,
    STACK_ACCOUNTS,
    STACK_IMAGES,
    VARIABLES,
    AccountPatterns,
    ImagePatterns,
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

#: The text behind it names a device, with a slash between them or without (NVIDIA container toolkit, ``cuda_image.go``).
_LIST: Final = "/var/run/nvidia-container-devices"
#: Variables that hide devices of a container from its program, and the resource by which such devices are requested.
_HIDING: Final = {
    "CUDA_VISIBLE_DEVICES": "nvidia.com/gpu",
    "HIP_VISIBLE_DEVICES": "amd.com/gpu",
    "ROCR_VISIBLE_DEVICES": "amd.com/gpu",
}
_READ: Final = frozenset({*VARIABLES, *_HIDING})
#: Reasons of findings about devices that the pod itself requests.
_HARMLESS: Final = frozenset({"HidesDevices", "LeavesDevicesIdle", "NamesItsOwnDevices"})
#: Added for a DaemonSet, which may belong to the node stack.
_STACK_REMEDY: Final = " For the node stack, list the service account in the policy (rules.visible-devices.serviceAccounts)."
#: The annotation from which Huawei's own manifests take the value: its scheduler wrote it there.
_ASCEND_ANNOTATION: Final = "metadata.annotations['huawei.com/"


class VisibleDevicesParams(Params):
    """Parameters of `visible-devices`."""

    images: ImagePatterns = STACK_IMAGES
    """Images, with `*` for any characters, of the node stack's DaemonSets."""
    images_elsewhere: Action = "Warn"
    """What a DaemonSet of these images gets that takes devices under none of the service accounts."""
    service_accounts: AccountPatterns = STACK_ACCOUNTS
    """Service accounts (`namespace/name`, `namespace/*`) whose pods may take devices."""


def check(workload: Workload, params: VisibleDevicesParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse access to devices without a request; warn about requested devices that stay hidden."""
    for pods in workload.pod_sets:
        if not pods.is_whole:
            continue
        of_containers = [
            finding
            for container in pods.containers
            if "env" in container.spec or "volumeMounts" in container.spec
            for finding in _of_container(workload, pods, container, params, snapshot)
        ]
        of_pod = list(_of_pod(pods))
        if of_pod and all(runs_stack_image(workload, container, params.images) for container in pods.containers):
            of_pod = _of_stack_image(of_pod, params)
        if (of_containers or of_pod) and not has_account(workload, pods, params.service_accounts):
            yield from _with_stack_remedy(workload, of_containers)
            yield from of_pod


def _with_stack_remedy(workload: Workload, findings: list[Finding]) -> list[Finding]:
    added = _STACK_REMEDY if findings and is_of_daemon_set(workload) else ""
    return [one if one.reason in _HARMLESS else one._replace(remedy=one.remedy + added) for one in findings]


def _of_stack_image(findings: list[Finding], params: VisibleDevicesParams) -> list[Finding]:
    """Return what the policy makes of ``findings`` about an image of the node stack: the image alone is no evidence."""
    if params.images_elsewhere == "Allow":
        return []
    harmful = [finding for finding in findings if finding.reason not in _HARMLESS]
    return harmful if params.images_elsewhere == "Deny" else [finding._replace(level=Level.WARN) for finding in harmful]


def _of_container(
    workload: Workload, pods: PodSet, container: Container, params: VisibleDevicesParams, snapshot: ClusterSnapshot
) -> list[Finding]:
    findings: list[Finding] = []
    # Of two entries with one name the last one counts.
    entries = {
        name: (at, entry)
        for at, entry in enumerate(mappings(container.spec, "env", container.path))
        if type(name := entry.get("name")) is str and name in _READ
    }
    for name, (at, entry) in entries.items():
        place = (*container.path, "env", at)
        if name in VARIABLES:
            findings += _by_runtime_variable(pods, container, entry, place, snapshot)
        else:
            findings += _by_hiding_variable(pods, container, entry, place)
    findings += _by_mounts(pods, container)
    is_of_stack = findings and runs_stack_image(workload, container, params.images)
    return _of_stack_image(findings, params) if is_of_stack else findings


def _amounts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {name}" for name, count in sorted(counts.items()))


def _requested(pods: PodSet, resource: str) -> str:
    """Return what the pods request of the accelerators of the vendor of ``resource``, in words; empty if nothing."""
    vendor = resource.partition("/")[0] + "/"
    counts = {name: count for name, count in pods.accelerators().items() if name.startswith(vendor)}
    if not counts and resource == VARIABLES["ASCEND_VISIBLE_DEVICES"]:
        for container in pods.containers:
            counts |= {name: container.count("limits", name) or 0 for name in container.limits if name.startswith(resource)}
    if not counts and pods.gpu_claims and resource == VARIABLES["NVIDIA_VISIBLE_DEVICES"]:
        return "GPUs by a claim"
    return _amounts(counts)


def _by_runtime_variable(
    pods: PodSet, container: Container, entry: Object, place: Path, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    name = entry["name"]
    resource = VARIABLES[name]
    who = f"{container.role} {container.name}"
    if entry.get("valueFrom") is not None:
        if not _is_of_the_scheduler(pods, entry):
            yield Finding(
                "DevicesUnseen",
                (*place, "valueFrom"),
                f"{who} takes the value of {name} from valueFrom, so gpugate cannot tell which devices it exposes",
                f"Remove {name}, because the device plugin sets it to the devices of the pod.",
            )
        return
    place, value = (*place, "value"), value_of(entry)
    if value in NO_DEVICES:
        vendor = resource.partition("/")[0]
        own = {device: count for device, count in container.accelerators().items() if device.startswith(vendor)}
        if value and own:
            yield Finding(
                "HidesDevices",
                place,
                f"{who} requests {_amounts(own)} and sets {name}={value}, which overrides the device plugin, so it sees none and"
                f" all {sum(own.values())} stay idle",
                f"Remove {name}, or request no accelerator.",
            )
        return
    requested = _requested(pods, resource)
    sets = f"{who} sets {name}={value:.60}"
    if requested and _is_all_of_a_node(pods, resource, snapshot):
        yield Finding(
            "NamesItsOwnDevices",
            place,
            f"{sets}, which on today's nodes exposes no more than the {requested} that the pod requests",
            f"Remove {name}, because the device plugin sets it.",
        )
    elif requested:
        yield Finding(
            "TakesMoreDevices",
            place,
            f"{sets} in a pod that requests {requested}; this overrides the device plugin and exposes other pods' devices, which"
            " no quota counts",
            f"Remove {name}, because the device plugin sets it to the devices of the pod.",
        )
    else:
        yield Finding(
            "TakesDevices",
            place,
            f"{sets} in a pod that requests 0 of {resource}, so the container runtime gives it other pods' devices, which no quota"
            " counts",
            f'Request {resource} under resources.limits and remove {name}, or write {name}: "void" if the pod needs none.',
        )


def _is_of_the_scheduler(pods: PodSet, entry: Object) -> bool:
    """Return whether a scheduler that allocates devices wrote the value: Ascend's in an annotation, KAI's in a ConfigMap."""
    source = entry.get("valueFrom")
    if type(source) is not dict:
        return False
    field = source.get("fieldRef")
    if type(field) is dict and entry["name"] == "ASCEND_VISIBLE_DEVICES":
        return str(field.get("fieldPath")).startswith(_ASCEND_ANNOTATION)
    return "configMapKeyRef" in source and asks_for_a_part(pods)


def _is_all_of_a_node(pods: PodSet, resource: str, snapshot: ClusterSnapshot) -> bool:
    """Return whether the pods request all of ``resource`` that any node has on which they may land."""
    count = pods.accelerators().get(resource)
    shapes = node_candidates(pods, snapshot).large_enough if count else ()
    return bool(shapes) and all(shape.devices.get(resource) == count for shape in shapes)


def _by_hiding_variable(pods: PodSet, container: Container, entry: Object, place: Path) -> Iterator[Finding]:
    name, value = entry["name"], entry.get("value")
    resource = _HIDING[name]
    requested = container.accelerators().get(resource, 0)
    if not requested or type(value) is not str or "$(" in value or pods.gpu_claims:
        return
    seen = _seen(value, requested)
    if seen < requested:
        yield Finding(
            "LeavesDevicesIdle",
            (*place, "value"),
            f"{container.role} {container.name} requests {requested} of {resource}, but {name}={value:.60} shows {seen} of them to"
            f" its program, so {requested - seen} of {requested} stay idle",
            f"Remove {name}, or request {f'{seen} of {resource}' if seen else 'no accelerator'}.",
        )


def _seen(value: str, requested: int) -> int:
    """Return how many of the container's devices its program sees: those before the first index that is none of them."""
    seen: set[str] = set()
    for device in (part.strip() for part in value.split(",")):
        is_index = device.isascii() and device.isdigit()
        exists = int(device[:9]) < requested if is_index else device.lower().startswith(("gpu-", "mig-"))
        if not exists or device in seen:
            break
        seen.add(device)
    return min(len(seen), requested)


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
            f"{container.role} {container.name} mounts the host's /dev/null at {written:.120}, so the NVIDIA runtime gives it"
            f" {device:.60}, which neither the scheduler nor quotas count",
            "Remove that mount and request nvidia.com/gpu under resources.limits.",
        )


def _of_pod(pods: PodSet) -> Iterator[Finding]:
    for at, volume in enumerate(pods.volumes() if "volumes" in pods.spec and not pods.requests_gpu() else ()):
        path = host_path(volume)
        if path and is_device_file(path):
            yield Finding(
                "MountsDevices",
                pods.field("volumes", at, "hostPath", "path"),
                f"volume {volume.get('name')!s:.63} is the host's {path:.120} in a pod that requests no accelerator, so a"
                " privileged container can use other pods' devices, which no quota counts",
                "Remove that volume and request the accelerator under resources.limits, for which the device plugin mounts it.",
            )
    for key, value in pods.annotations().items():
        if key.startswith(DEVICE_ANNOTATIONS):
            yield Finding(
                "NamesDevices",
                pods.meta("annotations", key),
                f"annotation {key:.120}: {value!s:.60} names devices to the container runtime without a request that the scheduler"
                " and quotas count",
                "Remove that annotation and request the accelerator under resources.limits.",
            )


_STACK: Final = "`images` lists the image of a DaemonSet, and `imagesElsewhere` is Warn"
REASONS: Final[dict[str, Reason]] = {
    "DevicesUnseen": Reason("The value comes from a ConfigMap, a Secret or a field.", action="Unknown", warns=_STACK),
    "HidesDevices": Reason("The variable hides all GPUs that the container requests.", action="Warn"),
    "LeavesDevicesIdle": Reason("The variable hides some of the GPUs that the container requests.", action="Warn"),
    "MountsDeviceList": Reason("A mount names devices to the NVIDIA runtime.", warns=_STACK),
    "MountsDevices": Reason("The pod mounts a device file of its node without requesting a GPU.", warns=_STACK),
    "NamesDevices": Reason("An annotation names devices to the container runtime.", warns=_STACK),
    "NamesItsOwnDevices": Reason(
        "The variable names all devices of the node, which the pod requests too.", action="Warn", facts=("nodes",)
    ),
    "TakesDevices": Reason("The variable exposes GPUs to a pod that requests none.", warns=_STACK),
    "TakesMoreDevices": Reason("The variable overrides the device plugin and exposes GPUs of other pods.", warns=_STACK),
}

RULE = Rule(
    id="visible-devices",
    title="No pod takes accelerators that it did not request, and none that it requested stay hidden",
    since="0.1.0",
    params=VisibleDevicesParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS | {"annotations", "env", "image", "serviceAccountName", "volumeMounts", "volumes"},
    reads_variables=_READ,
    documentation=__doc__,
)
