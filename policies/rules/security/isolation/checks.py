"""Findings of the rule `isolation`."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from pydantic.alias_generators import to_camel

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.kube.fields import mappings
from gpugate.policies.rules.security.isolation.mutate import (
    IsolationParams,
    added_capabilities,
    effective,
    hardened,
    is_privileged,
    lacks_seccomp,
    may_escalate,
    own_context,
    pod_context,
    user_of,
)
from gpugate.policies.workloads.container import EPHEMERAL, Container, normal_path
from gpugate.policies.workloads.device_access import has_account, host_path
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Field of the pod spec: what the pod then shares with its node, and the parameter that allows it.
_HOST_NAMESPACES: Final[Mapping[str, tuple[str, str]]] = {
    "hostNetwork": ("network", "host_network"),
    "hostPID": ("processes", "host_pid"),
    "hostIPC": ("IPC namespace", "host_ipc"),
}


def check(workload: Workload, params: IsolationParams, _snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Find settings that undo the separation of containers."""
    for pods in workload.templated_gpu_pod_sets():
        findings = [
            *_of_pod(pods, params),
            *(finding for container in hardened(pods, params) for finding in _of_container(pods, container, params)),
        ]
        if findings and not has_account(workload, pods, params.service_accounts):
            yield from findings


def _of_pod(pods: PodSet, params: IsolationParams) -> Iterator[Finding]:
    for field, (shared, allowed) in _HOST_NAMESPACES.items():
        if pods.spec.get(field) is True and not getattr(params, allowed):
            yield Finding(
                "HostNamespace",
                pods.field(field),
                f"{field}: true gives the containers of a GPU pod the {shared} of the node",
                f"Remove {field}, or allow it in the policy (rules.isolation.{to_camel(allowed)}).",
            )
    if "volumes" in pods.spec:
        for at, volume in enumerate(pods.volumes()):
            path = host_path(volume)
            if path and not _may_mount(pods, path, volume.get("name"), params):
                yield Finding(
                    "HostPath",
                    pods.field("volumes", at, "hostPath"),
                    f"volume {volume.get('name')!s:.63} mounts {path:.120} of the node into a GPU pod",
                    "Use a PersistentVolumeClaim or an emptyDir, or allow the directory in the policy (rules.isolation.hostPaths).",
                )


def _may_mount(pods: PodSet, path: str, name: object, params: IsolationParams) -> bool:
    allowed = [directory for directory in params.host_paths if _lies_below(path, directory.path)]
    if not all(directory.read_only for directory in allowed):
        return True
    return bool(allowed) and all(
        mount.get("readOnly") is True
        for container in pods.containers
        for mount in mappings(container.spec, "volumeMounts", container.path)
        if mount.get("name") == name
    )


def _lies_below(path: str, directory: str) -> bool:
    place, above = normal_path(path), normal_path(directory)
    return above in {place, "//"} or place.startswith(f"{above}/")


def _of_container(pods: PodSet, container: Container, params: IsolationParams) -> Iterator[Finding]:
    spec = container.spec
    who = f"{container.role} {container.name}"
    if "securityContext" in spec:
        yield from _by_context(container, params, who)
    for at, port in enumerate(mappings(spec, "ports", container.path) if "ports" in spec else ()):
        number = port.get("hostPort")
        if number and number not in params.host_ports:
            yield Finding(
                "HostPort",
                (*container.path, "ports", at, "hostPort"),
                f"{who} uses port {number!s:.20} of its node, so each node holds only one such pod, even if GPUs are left there",
                "Use a Service, or allow the port in the policy (rules.isolation.hostPorts).",
            )
    if own_context(container) or pod_context(pods):
        yield from _by_seccomp(pods, container, who)
    if not params.run_as_non_root == params.seccomp == params.privilege_escalation == "Ignore":
        yield from _unhardened(pods, container, params, who)


def _by_seccomp(pods: PodSet, container: Container, who: str) -> Iterator[Finding]:
    profile = effective(pods, container, "seccompProfile")
    if type(profile) is dict and profile.get("type") == "Unconfined" and not is_privileged(container):
        stated = own_context(container).get("seccompProfile") is not None
        yield Finding(
            "Unconfined",
            (*container.path, "securityContext", "seccompProfile") if stated else pods.field("securityContext", "seccompProfile"),
            f"{who} runs without a seccomp filter, so it can call all of the kernel, including the GPU driver",
            "Write seccompProfile: {type: RuntimeDefault}, or a profile of your own.",
        )


def _by_context(container: Container, params: IsolationParams, who: str) -> Iterator[Finding]:
    place = (*container.path, "securityContext")
    if is_privileged(container):
        yield Finding(
            "Privileged",
            (*place, "privileged"),
            f"{who} is privileged, so it has every device of its node, including the GPUs of other pods",
            "Remove privileged: true, and add the capability IPC_LOCK if the pod uses RDMA.",
        )
    not_allowed = (name for name in added_capabilities(container) if name not in params.capabilities)
    # A text of 200 characters shows no more than these.
    beyond = ", ".join(sorted(set(islice(not_allowed, 100))))
    if beyond:
        yield Finding(
            "AddsCapabilities",
            (*place, "capabilities", "add"),
            f"{who} adds {beyond:.200} to its capabilities, but the policy allows"
            f" {', '.join(sorted(params.capabilities)) or 'none'}",
            _remedy(container, f"Remove {beyond:.200}, or allow it in the policy (rules.isolation.capabilities)."),
        )
    if own_context(container).get("procMount") == "Unmasked":
        yield Finding(
            "Unmasked",
            (*place, "procMount"),
            f"{who} sees all of /proc, including the parts that the runtime hides",
            "Remove procMount: Unmasked.",
        )


def _unhardened(pods: PodSet, container: Container, params: IsolationParams, who: str) -> Iterator[Finding]:
    place = (*container.path, "securityContext")
    if lacks_seccomp(pods, container):
        yield Finding(
            "NoSeccomp",
            place,
            f"neither {who} nor its pod sets a seccomp profile",
            _remedy(container, "Write securityContext.seccompProfile: {type: RuntimeDefault} in the pod."),
        )
    if may_escalate(container):
        yield Finding(
            "MayEscalate",
            (*place, "allowPrivilegeEscalation"),
            f"{who} may gain more privileges than its process starts with",
            _remedy(container, f"Write securityContext.allowPrivilegeEscalation: false in {container.name}."),
        )
    if _may_be_root(pods, container, params):
        user = user_of(container, params) or "<an id that the image can run as>"
        yield Finding(
            "MayRunAsRoot",
            (*place, "runAsNonRoot"),
            f"nothing prevents {who} from running as root",
            _remedy(container, f"Write securityContext.runAsNonRoot: true and runAsUser: {user} in {container.name}."),
        )


def _remedy(container: Container, remedy: str) -> str:
    """Return ``remedy``, for an ephemeral container with the option of kubectl (1.36, ``pkg/cmd/debug/profiles.go``)."""
    return f"{remedy} With kubectl debug, use --profile=restricted." if container.role == EPHEMERAL else remedy


def _may_be_root(pods: PodSet, container: Container, params: IsolationParams) -> bool:
    """Return whether the container may run as root, and it states root or the policy covers its image."""
    user, non_root = effective(pods, container, "runAsUser"), effective(pods, container, "runAsNonRoot")
    if user or (non_root is True and user != 0):
        return False
    return user == 0 or non_root is False or params.run_as_non_root == "Report" or user_of(container, params) is not None
