"""Findings of the rule `isolation`."""

from collections.abc import Iterator
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.kube.fields import mappings
from gpugate.policies.rules.security.isolation.mutate import hardened, lacking_seccomp, lets_escalate, user_of
from gpugate.policies.rules.security.isolation.params import IsolationParams
from gpugate.policies.rules.security.isolation.security_context import (
    added_capabilities,
    effective,
    is_privileged,
    lies_below,
    own_context,
)
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.device_access import has_account, host_path
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_HOST_NAMESPACES: Final = (
    ("hostNetwork", "network", "host_network"),
    ("hostPID", "processes", "host_pid"),
    ("hostIPC", "IPC", "host_ipc"),
)


def check(workload: Workload, params: IsolationParams, _facts: ClusterSnapshot) -> Iterator[Finding]:
    """Find what undoes the separation of containers."""
    for pods in workload.templated_gpu_pod_sets():
        here = [
            *_of_pod(pods, params),
            *(finding for one in hardened(pods, params) for finding in _of_container(pods, one, params)),
        ]
        if here and not has_account(workload, pods, params.service_accounts):
            yield from here


def _of_pod(pods: PodSet, params: IsolationParams) -> Iterator[Finding]:
    for field, what, allowed in _HOST_NAMESPACES:
        if pods.spec.get(field) is True and not getattr(params, allowed):
            yield Finding(
                "HostNamespace",
                pods.field(field),
                f"{field}: true in a pod with accelerators gives its containers the {what} of the node",
                f"Remove {field}, or allow it in the policy (rules.isolation.{field}).",
            )
    if "volumes" in pods.spec:
        for at, volume in enumerate(pods.volumes()):
            path = host_path(volume)
            if path and not _may_mount(pods, path, volume.get("name"), params):
                yield Finding(
                    "HostPath",
                    pods.field("volumes", at, "hostPath"),
                    f"volume {volume.get('name')!s:.63} of a pod with accelerators is {path:.120} of its node",
                    "Use a PersistentVolumeClaim or an emptyDir, or allow the directory in the policy (rules.isolation.hostPaths).",
                )


def _may_mount(pods: PodSet, path: str, name: object, params: IsolationParams) -> bool:
    allowed = [one for one in params.host_paths if lies_below(path, one.path)]
    if not allowed or not all(one.read_only for one in allowed):
        return bool(allowed)
    mounts = [mount for one in pods.containers for mount in mappings(one.spec, "volumeMounts", one.path)]
    return all(mount.get("readOnly") is True for mount in mounts if mount.get("name") == name)


def _of_container(pods: PodSet, container: Container, params: IsolationParams) -> Iterator[Finding]:
    spec = container.spec
    who = f"{container.role} {container.name}"
    if "securityContext" in spec:
        yield from _by_context(container, params, who)
    if "ports" in spec:
        yield from _by_ports(container, params, who)
    if "securityContext" in spec or "securityContext" in pods.spec:
        yield from _unconfined(pods, container, who)
    if not params.run_as_non_root == params.seccomp == params.privilege_escalation == "Ignore":
        yield from _unhardened(pods, container, params, who)


def _unconfined(pods: PodSet, container: Container, who: str) -> Iterator[Finding]:
    profile = effective(pods, container, "seccompProfile")
    if type(profile) is dict and profile.get("type") == "Unconfined" and not is_privileged(container):
        stated = own_context(container).get("seccompProfile") is not None
        yield Finding(
            "Unconfined",
            (*container.path, "securityContext", "seccompProfile") if stated else pods.field("securityContext", "seccompProfile"),
            f"{who} runs without a seccomp filter: it may call all of the kernel, and the accelerators' driver in it",
            "Write seccompProfile: {type: RuntimeDefault}, or a profile of your own.",
        )


def _by_context(container: Container, params: IsolationParams, who: str) -> Iterator[Finding]:
    place = (*container.path, "securityContext")
    if is_privileged(container):
        yield Finding(
            "Privileged",
            (*place, "privileged"),
            f"{who} is privileged: it has every device of its node, also the accelerators of others",
            "Remove privileged: true; for RDMA add the capability IPC_LOCK.",
        )
    beyond = [one for one in added_capabilities(container) if one not in params.capabilities]
    if beyond:
        yield Finding(
            "AddsCapabilities",
            (*place, "capabilities", "add"),
            f"{who} adds {', '.join(beyond):.200} to its capabilities, beyond {', '.join(sorted(params.capabilities)) or 'none'}",
            _cure(container, f"Remove {', '.join(beyond):.200}, or allow it in the policy (rules.isolation.capabilities)."),
        )
    if own_context(container).get("procMount") == "Unmasked":
        yield Finding(
            "Unmasked",
            (*place, "procMount"),
            f"{who} sees all of /proc, with what the runtime hides of the node",
            "Remove procMount: Unmasked.",
        )


def _by_ports(container: Container, params: IsolationParams, who: str) -> Iterator[Finding]:
    for at, port in enumerate(mappings(container.spec, "ports", container.path)):
        number = port.get("hostPort")
        if number and number not in params.host_ports:
            yield Finding(
                "HostPort",
                (*container.path, "ports", at, "hostPort"),
                f"{who} takes port {number!s:.20} of its node: one such pod fits each node, whatever accelerators are left there",
                "Use a Service, or allow the port in the policy (rules.isolation.hostPorts).",
            )


def _unhardened(pods: PodSet, container: Container, params: IsolationParams, who: str) -> Iterator[Finding]:
    place = (*container.path, "securityContext")
    if lacking_seccomp(pods, [container]):
        yield Finding(
            "NoSeccomp",
            place,
            f"{who} states no seccomp profile, and its pod none",
            _cure(container, "Write securityContext.seccompProfile: {type: RuntimeDefault} in the pod."),
        )
    if lets_escalate(container):
        yield Finding(
            "MayEscalate",
            (*place, "allowPrivilegeEscalation"),
            f"{who} may gain privileges that its process was not started with",
            _cure(container, f"Write securityContext.allowPrivilegeEscalation: false in {container.name}."),
        )
    if _may_be_root(pods, container, params):
        user = user_of(container, params) or "<an id that the image can run as>"
        yield Finding(
            "MayRunAsRoot",
            (*place, "runAsNonRoot"),
            f"nothing keeps {who} from running as root",
            _cure(container, f"Write securityContext.runAsNonRoot: true and runAsUser: {user} in {container.name}."),
        )


def _cure(container: Container, remedy: str) -> str:
    """``remedy``, for an ephemeral container with the option that does it (kubectl 1.36 ``pkg/cmd/debug/profiles.go``)."""
    return f"{remedy} With kubectl debug: --profile=restricted." if container.role == EPHEMERAL else remedy


def _may_be_root(pods: PodSet, container: Container, params: IsolationParams) -> bool:
    """Whether the container may run as root, and the policy has a word on its image or root is asked for."""
    user = effective(pods, container, "runAsUser")
    if effective(pods, container, "runAsNonRoot") is True and user != 0:
        return False
    if user:
        return False
    stated = user == 0 or effective(pods, container, "runAsNonRoot") is False
    return stated or params.run_as_non_root == "Report" or user_of(container, params) is not None
