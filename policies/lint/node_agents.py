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
    value = _part_of(obj)
    kind = kind_of(text_at(obj, "apiVersion"), text_at(obj, "kind"))
    if value is None or kind is None:
        return
    at, container, part = value
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
        message = f"it does not mount {_PLUGINS_FOLDER} of the node: the kubelet never hears of the device plugin"
        yield Finding("NotRegistered", (*path, "volumeMounts"), message, f"Mount a hostPath volume of {_PLUGINS_FOLDER} there.")


def _part_of(obj: Object) -> tuple[int, Object, str] | None:
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
            message = f"no component puts the label {key}: {value} on nodes: {part} runs only where somebody has set it by hand"
            remedy = f'Write {_PRESENT}: "true" (GPU feature discovery, GPU Operator) or {_PCI}: "true" (Node Feature Discovery).'
            yield Finding("UnsetLabel", (*path, key), message, remedy, Level.WARN)
    if shapes:
        message = f"its node selector selects none of the nodes with accelerators: {part} runs on none of them"
        remedy = f'Select by a label that they carry, such as {_PRESENT}: "true".'
        yield Finding("SelectsNoNode", _SPEC, message, remedy, Level.WARN)


def _check_tolerations(obj: Object, pods: PodSet, part: str, shapes: list[NodeShape]) -> Iterator[Finding]:
    path = (*_SPEC, "tolerations")
    taints = sorted({(taint.key, taint.effect) for shape in shapes for taint in untolerated_taints(pods, shape)})
    if taints:
        nodes = sum(len(shape.nodes) for shape in shapes if untolerated_taints(pods, shape))
        keys = ", ".join(dict.fromkeys(key for key, _ in taints))
        message = (
            f"{part} does not tolerate the taints of {nodes} node{'s' if nodes > 1 else ''} with accelerators ({keys})"
            " and does not run there"
        )
    elif shapes or any(toleration_of(one).covers(_USUAL_TAINT) for _, one in maps_at(obj, *path)):
        return
    else:
        message = f"{part} has no toleration of {NVIDIA_GPU}: where nodes with accelerators carry this taint it does not run"
        taints = [(NVIDIA_GPU, _USUAL_TAINT.effect)]
    lines = [f"{{key: {key}, operator: Exists, effect: {effect}}}" for key, effect in taints]
    remedy = f"Add the toleration{'s' if len(lines) > 1 else ''} {' and '.join(lines)}."
    yield Finding("KeptOff", path, message, remedy, Level.WARN)


def _check_exporter(path: Path, obj: Object, container: Object) -> Iterator[Finding]:
    if not _is_on(container, _BY_POD):
        message = f"{_BY_POD} is not true: the series say nothing of pods, so that no use can be told by workload or team"
        remedy = f'Add the variable {_BY_POD} with the value "true".'
        yield Finding("NotByPod", (*path, "env"), message, remedy, Level.WARN)
    elif not _mounts(obj, container, _POD_RESOURCES):
        message = f"it does not mount {_POD_RESOURCES} of the node: the series say nothing of pods"
        remedy = f"Mount a hostPath volume of {_POD_RESOURCES} there."
        yield Finding("NotByPod", (*path, "volumeMounts"), message, remedy, Level.WARN)


def _is_on(container: Object, variable: str) -> bool:
    args = [str(one) for name in ("command", "args") for one in list_at(container, name)]
    if "--kubernetes" in args or "-k" in args or "--kubernetes=true" in args:
        return True
    stated = next((one for _, one in maps_at(container, "env") if one.get("name") == variable), {})
    return "valueFrom" in stated or str(stated.get("value", "")).lower() in {"1", "t", "true"}


def _mounts(obj: Object, container: Object, folder: str) -> bool:
    """Return whether a container mounts the node's ``folder``, or a parent of it."""
    hosts = {
        text_at(one, "name"): text_at(one, "hostPath", "path") for _, one in maps_at(obj, *_SPEC, "volumes") if one.get("hostPath")
    }
    mounted = (hosts.get(text_at(one, "name"), "") for _, one in maps_at(container, "volumeMounts"))
    return any(host and f"{folder}/".startswith(f"{host.rstrip('/')}/") for host in mounted)
