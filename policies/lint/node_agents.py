"""Check DaemonSets of the GPU node agents: device plugin, feature discovery, exporter.

Sources: NVIDIA k8s-device-plugin ``deployments/helm/nvidia-device-plugin/values.yaml`` (node affinity on labels of Node Feature
Discovery or ``nvidia.com/gpu.present``, toleration of ``nvidia.com/gpu``), NVIDIA dcgm-exporter ``deployment/examples`` (the same
toleration for tainted nodes, ``DCGM_EXPORTER_KUBERNETES``).
"""

from collections.abc import Iterator
from typing import Final

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import Taint, toleration_of
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.accelerators import NVIDIA_GPU
from gpugate.policies.kube.fields import MalformedError, Object, Path
from gpugate.policies.lint.context import LintContext, list_at, map_at, maps_at, text_at
from gpugate.policies.scheduling.node_selection import matches_selector, untolerated_taints
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.pod_set import PodSet

#: Node agents by a part of their image name.
_PARTS: Final = {
    "k8s-device-plugin": "the device plugin",
    "gpu-feature-discovery": "GPU feature discovery",
    "dcgm-exporter": "dcgm-exporter",
}
_SPEC: Final[Path] = ("spec", "template", "spec")
_PRESENT: Final = "nvidia.com/gpu.present"
_PCI: Final = "feature.node.kubernetes.io/pci-10de.present"
_PLUGINS_FOLDER: Final = "/var/lib/kubelet/device-plugins"
_POD_RESOURCES: Final = "/var/lib/kubelet/pod-resources"
_BY_POD: Final = "DCGM_EXPORTER_KUBERNETES"
_USUAL_TAINT: Final = Taint(NVIDIA_GPU, "", "NoSchedule")


def check(obj: Object, context: LintContext) -> Iterator[Finding]:
    """Check that a node agent runs on the GPU nodes and has what it needs there."""
    agent = _agent_in(obj)
    kind = kind_of(text_at(obj, "apiVersion"), text_at(obj, "kind"))
    if agent is None or kind is None:
        return
    at, container, part = agent
    try:
        (pods,) = open_workload(kind, obj, context.snapshot).pod_sets
        shapes = [shape for shape in context.snapshot.shapes if shape.accelerators]
        yield from _check_selector(obj, pods, part, shapes)
        yield from _check_tolerations(obj, pods, part, shapes)
    except MalformedError:
        # The review of the DaemonSet as a workload reports this.
        return
    path = (*_SPEC, "containers", at)
    if part == _PARTS["dcgm-exporter"]:
        yield from _check_exporter(path, obj, container)
    elif part == _PARTS["k8s-device-plugin"] and not _mounts(obj, container, _PLUGINS_FOLDER):
        message = f"the container does not mount {_PLUGINS_FOLDER} of the node, so the device plugin cannot register at the kubelet"
        yield Finding("NotRegistered", (*path, "volumeMounts"), message, f"Mount a hostPath volume of {_PLUGINS_FOLDER} there.")


def _agent_in(obj: Object) -> tuple[int, Object, str] | None:
    for at, container in maps_at(obj, *_SPEC, "containers"):
        name = text_at(container, "image").partition("@")[0].rpartition("/")[2].partition(":")[0]
        if name in _PARTS:
            return at, container, _PARTS[name]
    return None


def _check_selector(obj: Object, pods: PodSet, part: str, shapes: list[NodeShape]) -> Iterator[Finding]:
    path = (*_SPEC, "nodeSelector")
    if shapes and any(matches_selector(pods, shape) for shape in shapes):
        return
    for key, value in sorted(map_at(obj, *path).items()):
        # The review of the DaemonSet as a workload checks labels with a prefix.
        if "/" not in key:
            message = f"no component sets the label {key}: {value}, so {part} runs only on nodes that were labelled by hand"
            remedy = f'Write {_PRESENT}: "true" (GPU feature discovery, GPU Operator) or {_PCI}: "true" (Node Feature Discovery).'
            yield Finding("UnsetLabel", (*path, key), message, remedy, Level.WARN)
    if shapes:
        message = f"the node selector matches no node with accelerators, so {part} runs on none of them"
        remedy = f'Select by a label of these nodes, such as {_PRESENT}: "true".'
        yield Finding("SelectsNoNode", _SPEC, message, remedy, Level.WARN)


def _check_tolerations(obj: Object, pods: PodSet, part: str, shapes: list[NodeShape]) -> Iterator[Finding]:
    path = (*_SPEC, "tolerations")
    taints = sorted({(taint.key, taint.effect) for shape in shapes for taint in untolerated_taints(pods, shape)})
    if taints:
        count = sum(len(shape.nodes) for shape in shapes if untolerated_taints(pods, shape))
        keys = ", ".join(dict.fromkeys(key for key, _ in taints))
        nodes = f"{count} node{'s' if count > 1 else ''} with accelerators ({keys})"
        message = f"{part} does not tolerate the taints of {nodes}, so it does not run there"
    elif shapes or any(toleration_of(toleration).covers(_USUAL_TAINT) for _, toleration in maps_at(obj, *path)):
        return
    else:
        message = f"{part} does not tolerate the taint {NVIDIA_GPU}, so it does not run on nodes that have it"
        taints = [(NVIDIA_GPU, _USUAL_TAINT.effect)]
    lines = [f"{{key: {key}, operator: Exists, effect: {effect}}}" for key, effect in taints]
    remedy = f"Add the toleration{'s' if len(lines) > 1 else ''} {' and '.join(lines)}."
    yield Finding("KeptOff", path, message, remedy, Level.WARN)


def _check_exporter(path: Path, obj: Object, container: Object) -> Iterator[Finding]:
    if not _is_on(container, _BY_POD):
        message = f"{_BY_POD} is not true, so the metrics name no pods and cannot show use by workload or team"
        remedy = f'Add the variable {_BY_POD} with the value "true".'
        yield Finding("NotByPod", (*path, "env"), message, remedy, Level.WARN)
    elif not _mounts(obj, container, _POD_RESOURCES):
        message = f"the container does not mount {_POD_RESOURCES} of the node, so the metrics name no pods"
        remedy = f"Mount a hostPath volume of {_POD_RESOURCES} there."
        yield Finding("NotByPod", (*path, "volumeMounts"), message, remedy, Level.WARN)


def _is_on(container: Object, variable: str) -> bool:
    args = {str(argument) for name in ("command", "args") for argument in list_at(container, name)}
    if not args.isdisjoint({"--kubernetes", "-k", "--kubernetes=true"}):
        return True
    entry = next((entry for _, entry in maps_at(container, "env") if entry.get("name") == variable), {})
    return "valueFrom" in entry or str(entry.get("value", "")).lower() in {"1", "t", "true"}


def _mounts(obj: Object, container: Object, folder: str) -> bool:
    """Return whether a container mounts the node's ``folder``, or a parent of it."""
    volumes = [volume for _, volume in maps_at(obj, *_SPEC, "volumes") if volume.get("hostPath")]
    hosts = {text_at(volume, "name"): text_at(volume, "hostPath", "path") for volume in volumes}
    mounted = (hosts.get(text_at(mount, "name"), "") for _, mount in maps_at(container, "volumeMounts"))
    return any(host and f"{folder}/".startswith(f"{host.rstrip('/')}/") for host in mounted)
