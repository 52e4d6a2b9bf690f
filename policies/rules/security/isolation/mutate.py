"""Parameters and edits of the rule `isolation`, and the security contexts of pods: the container's own before the pod's.

The controls are those of the Kubernetes Pod Security Standards (1.36). The combinations that the API rejects are in
``k8s.io/kubernetes`` ``pkg/apis/core/validation`` ``ValidateSecurityContext``.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import MOST, UNIQUE
from gpugate.policies.kube.fields import Object, mapping, sequence
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.device_access import (
    STACK_ACCOUNTS,
    AccountPatterns,
    ImagePattern,
    ImagePatterns,
    has_account,
    has_image,
)
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Capabilities that the standard ``baseline`` allows a container to add.
_BASELINE_CAPABILITIES: Final = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID"),
    *("SETPCAP", "SETUID", "SYS_CHROOT"),
)
#: Capabilities that the API rejects beside allowPrivilegeEscalation: false, since they would bypass it.
_ESCALATING: Final = frozenset({"ALL", "SYS_ADMIN"})

_Hardening: TypeAlias = Literal["Ignore", "Report", "Write"]
_Capability: TypeAlias = Annotated[str, Field(min_length=1, max_length=63, pattern="^[A-Z][A-Z_]*$")]
_Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]


class HostPathParam(Params):
    """A directory of nodes that accelerator pods may mount."""

    path: Annotated[str, Field(min_length=1, max_length=4096, pattern="^/")]
    """The directory; paths below it may be mounted, too."""
    read_only: bool = True
    """Whether it may only be mounted read-only."""


class UserParam(Params):
    """The user that an image's processes run as."""

    image: ImagePattern
    """The image, with `*` for any characters."""
    user: Annotated[int, Field(ge=1, le=2147483647)]
    """The user id to write if the pod states none."""


class IsolationParams(Params):
    """Parameters of `isolation`."""

    run_as_non_root: _Hardening = "Ignore"
    """What to do if nothing prevents a container from running as root."""
    users: Annotated[tuple[UserParam, ...], Field(max_length=MOST)] = ()
    """Images that can run as another user than root, and which; the first that matches counts."""
    seccomp: _Hardening = "Ignore"
    """What to do if a container has no seccomp profile; `Write` sets `RuntimeDefault`."""
    privilege_escalation: _Hardening = "Ignore"
    """What to do if `allowPrivilegeEscalation` is not false."""
    capabilities: Annotated[tuple[_Capability, ...], *UNIQUE] = (*_BASELINE_CAPABILITIES, "IPC_LOCK")
    """Capabilities that containers may add."""
    host_paths: Annotated[tuple[HostPathParam, ...], Field(max_length=MOST)] = ()
    """Directories of nodes that pods may mount."""
    host_network: bool = False
    """Whether pods may use the host's network, as some RDMA clusters need."""
    host_ports: Annotated[tuple[_Port, ...], *UNIQUE] = ()
    """Ports of the host that containers may use."""
    host_pid: bool = False
    """Whether pods may see the host's processes."""
    host_ipc: bool = False
    """Whether pods may use the host's shared memory segments."""
    images: ImagePatterns = ()
    """Images, with `*` for any characters, that are left alone."""
    service_accounts: AccountPatterns = STACK_ACCOUNTS
    """Service accounts (`namespace/name`, `namespace/*`) whose pods are left alone."""


def pod_context(pods: PodSet) -> Object:
    """Return the pod-level security context; empty if there is none."""
    return mapping(pods.spec, "securityContext", pods.field())


def own_context(container: Container) -> Object:
    """Return the container's own security context; empty if it has none."""
    return mapping(container.spec, "securityContext", container.path)


def effective(pods: PodSet, container: Container, field: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the field of the container's security context, else of the pod's; None if neither sets it."""
    own = own_context(container).get(field)
    return pod_context(pods).get(field) if own is None else own


def is_privileged(container: Container) -> bool:
    """Return whether the container has every device and capability of its node."""
    return own_context(container).get("privileged") is True


def added_capabilities(container: Container) -> Iterator[str]:
    """Yield the capabilities that the container adds, without the prefix ``CAP_``."""
    place = (*container.path, "securityContext")
    added = sequence(mapping(own_context(container), "capabilities", place), "add", (*place, "capabilities"))
    return (str(name).upper().removeprefix("CAP_") for name in added)


def hardened(pods: PodSet, params: IsolationParams) -> list[Container]:
    """Return the containers that the rule edits and checks."""
    return [container for container in pods.containers if not params.images or not has_image(container, params.images)]


def user_of(container: Container, params: IsolationParams) -> int | None:
    """Return the user ID that the policy gives the image; None if it gives none."""
    return next((entry.user for entry in params.users if has_image(container, (entry.image,))), None)


def may_escalate(container: Container) -> bool:
    """Return whether processes of the container may gain privileges, and the API allows to forbid it."""
    return (
        own_context(container).get("allowPrivilegeEscalation") is not False
        and not is_privileged(container)
        and _ESCALATING.isdisjoint(added_capabilities(container))
    )


def lacks_seccomp(pods: PodSet, container: Container) -> bool:
    """Return whether neither the container nor its pod sets a seccomp profile."""
    return effective(pods, container, "seccompProfile") is None and not is_privileged(container)


def mutate(workload: Workload, params: IsolationParams, _snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Write the settings that the policy demands and the pods do not state."""
    if "Write" not in {params.run_as_non_root, params.seccomp, params.privilege_escalation}:
        return ()
    return [
        edit
        for pods in workload.templated_gpu_pod_sets()
        if not has_account(workload, pods, params.service_accounts)
        for edit in _edits(pods, params)
    ]


def _edits(pods: PodSet, params: IsolationParams) -> Iterator[Edit]:
    # An ephemeral container cannot change after it is added.
    containers = [container for container in hardened(pods, params) if container.role is not EPHEMERAL]
    if (
        params.seccomp == "Write"
        and pod_context(pods).get("seccompProfile") is None
        and any(lacks_seccomp(pods, container) for container in containers)
    ):
        place = pods.field("securityContext", "seccompProfile")
        yield Edit("set", place, {"type": "RuntimeDefault"}, "seccomp profile RuntimeDefault")
    for container in containers:
        if (
            params.privilege_escalation == "Write"
            and may_escalate(container)
            and own_context(container).get("allowPrivilegeEscalation") is None
        ):
            place = (*container.path, "securityContext", "allowPrivilegeEscalation")
            yield Edit("set", place, value=False, note=f"no privilege escalation in {container.name}")
        if params.run_as_non_root == "Write":
            yield from _as_user(pods, container, params)


def _as_user(pods: PodSet, container: Container, params: IsolationParams) -> Iterator[Edit]:
    user = user_of(container, params)
    if user is None or any(effective(pods, container, field) is not None for field in ("runAsNonRoot", "runAsUser")):
        return
    place, group = (*container.path, "securityContext"), f"user {container.name}"
    yield Edit("set", (*place, "runAsNonRoot"), value=True, note=f"user {user}, not root, in {container.name}", group=group)
    yield Edit("set", (*place, "runAsUser"), user, "", group)
