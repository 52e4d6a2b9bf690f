"""Accelerator pods do on their node what their work needs, and no more.

## What it does

Finds in pods that ask for accelerators what undoes the separation of containers, outside of what the policy allows. Each
corresponds to a control of the Pod Security Standards:

| Reason | What | Control |
| --- | --- | --- |
| `Privileged` | a privileged container | baseline: Privileged Containers |
| `HostNamespace` | `hostNetwork`, `hostPID`, `hostIPC` | baseline: Host Namespaces |
| `HostPath` | a hostPath volume | baseline: HostPath Volumes |
| `HostPort` | a port of the host | baseline: Host Ports |
| `AddsCapabilities` | an added capability beyond baseline's and `IPC_LOCK`, which RDMA needs | baseline: Capabilities |
| `Unmasked` | `procMount: Unmasked` | baseline: /proc Mount Type |
| `Unconfined` | seccomp `Unconfined` | baseline: Seccomp |
| `NoSeccomp` | no seccomp profile (`seccomp`) | restricted: Seccomp |
| `MayEscalate` | `allowPrivilegeEscalation` not false (`privilegeEscalation`) | restricted: Privilege Escalation |
| `MayRunAsRoot` | nothing keeps a container from running as root (`runAsNonRoot`) | restricted: Running as Non-root |

The last three wait for a parameter: each is left alone (`Ignore`), warned about (`Report`), or written where nothing is stated
(`Write`), and then refused where it is missing or the opposite is stated. A user id is written for images that `users` lists,
since only who builds an image knows what it runs as; other images are left alone. `allowPrivilegeEscalation: false` is not
written beside `privileged: true` or `SYS_ADMIN`, which the API refuses.

By default it only warns of the first seven and writes nothing. AppArmor, SELinux, sysctls, host probes and types of volumes are Pod
Security's alone; a namespace under its `baseline` or `restricted` refuses them for every pod, with or without gpugate
([isolation](../guide/isolation.md)).

## Why

GPU pods share the driver in their node's kernel, and a driver's fault is open to whoever may call it as root without a filter.
A privileged container has all GPUs of its node, whatever it asked for. The seccomp profile of the runtime may keep programs from
setting their memory policy (`set_mempolicy`, numactl) without the capability `SYS_NICE`: hence nothing is written until a
policy says so.

## Practice

- Field guide, "What we learned the hard way": no root in GPU containers, a dedicated user id and a seccomp profile.

## Example

With `seccomp`, `privilegeEscalation` and `runAsNonRoot` at `Write`, and
`users: [{image: "registry.example.com/train*", user: 10001}]`:

```yaml
spec:
  securityContext:
    seccompProfile: {type: RuntimeDefault}
  containers:
    - image: registry.example.com/train:1
      securityContext:
        allowPrivilegeEscalation: false
        runAsNonRoot: true
        runAsUser: 10001
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Level, Mode
from gpugate.policies.framework.rule import Params, Rule
from gpugate.policies.kube.cel import MOST, UNIQUE
from gpugate.policies.kube.fields import mappings
from gpugate.policies.patch import Edit
from gpugate.policies.rules.security.isolation.security_context import (
    BASELINE_CAPABILITIES,
    added_capabilities,
    effective,
    is_privileged,
    lies_below,
    may_keep_privileges,
    own_context,
    pod_context,
)
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.device_access import (
    STACK_ACCOUNTS,
    AccountPatterns,
    ImagePattern,
    ImagePatterns,
    has_account,
    has_image,
    host_path,
)
from gpugate.policies.workloads.workload import PodSet, Workload

_Hardening: TypeAlias = Literal["Ignore", "Report", "Write"]
_Capability: TypeAlias = Annotated[str, Field(min_length=1, max_length=63, pattern="^[A-Z][A-Z_]*$")]
_Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]
_HOST_NAMESPACES: Final = (
    ("hostNetwork", "network", "host_network"),
    ("hostPID", "processes", "host_pid"),
    ("hostIPC", "IPC", "host_ipc"),
)


class HostPathParam(Params):
    """A directory of nodes that accelerator pods may mount."""

    path: Annotated[str, Field(min_length=1, max_length=4096, pattern="^/")]
    """The directory; what lies below it may be mounted, too."""
    read_only: bool = True
    """Whether it may be mounted read-only alone."""


class UserParam(Params):
    """The user that an image's processes run as."""

    image: ImagePattern
    """The image, with `*` for any characters."""
    user: Annotated[int, Field(ge=1, le=2147483647)]
    """The user id that is written where none is stated."""


class IsolationParams(Params):
    """Parameters of `isolation`."""

    run_as_non_root: _Hardening = "Ignore"
    """What is done where nothing keeps a container from running as root."""
    users: Annotated[tuple[UserParam, ...], Field(max_length=MOST)] = ()
    """Images that can run as another user than root, and which; the first that matches counts."""
    seccomp: _Hardening = "Ignore"
    """What is done where no seccomp profile is stated; `RuntimeDefault` is written."""
    privilege_escalation: _Hardening = "Ignore"
    """What is done where `allowPrivilegeEscalation` is not false."""
    capabilities: Annotated[tuple[_Capability, ...], *UNIQUE] = (*BASELINE_CAPABILITIES, "IPC_LOCK")
    """Capabilities that containers may add."""
    host_paths: Annotated[tuple[HostPathParam, ...], Field(max_length=MOST)] = ()
    """Directories of nodes that pods may mount."""
    host_network: bool = False
    """Whether pods may use the host's network, as some RDMA clusters need."""
    host_ports: Annotated[tuple[_Port, ...], *UNIQUE] = ()
    """Ports of the host that containers may take."""
    host_pid: bool = False
    """Whether pods may see the host's processes."""
    host_ipc: bool = False
    """Whether pods may use the host's shared memory segments."""
    images: ImagePatterns = ()
    """Images, with `*` for any characters, that are left alone."""
    service_accounts: AccountPatterns = STACK_ACCOUNTS
    """Service accounts (`namespace/name`, `namespace/*`) whose pods are left alone."""


def _hardened(pods: PodSet, params: IsolationParams) -> list[Container]:
    """The containers that the rule speaks of."""
    return [one for one in pods.containers if not has_image(one, params.images)] if params.images else list(pods.containers)


def mutate(workload: Workload, params: IsolationParams, _facts: ClusterSnapshot) -> Iterable[Edit]:
    """Write what the policy wants written and nobody has stated."""
    if "Write" not in {params.run_as_non_root, params.seccomp, params.privilege_escalation}:
        return ()
    return [
        edit
        for pods in workload.templated_gpu_pod_sets()
        if not has_account(workload, pods, params.service_accounts)
        for edit in _edits(pods, params)
    ]


def _edits(pods: PodSet, params: IsolationParams) -> Iterator[Edit]:
    # What an ephemeral container states is fixed when it is put in.
    containers = [one for one in _hardened(pods, params) if one.role is not EPHEMERAL]
    if params.seccomp == "Write" and pod_context(pods).get("seccompProfile") is None and _lacking_seccomp(pods, containers):
        place = pods.field("securityContext", "seccompProfile")
        yield Edit("set", place, {"type": "RuntimeDefault"}, "seccomp profile RuntimeDefault")
    for one in containers:
        if (
            params.privilege_escalation == "Write"
            and _lets_escalate(one)
            and own_context(one).get("allowPrivilegeEscalation") is None
        ):
            place = (*one.path, "securityContext", "allowPrivilegeEscalation")
            yield Edit("set", place, value=False, note=f"no privilege escalation in {one.name}")
        if params.run_as_non_root == "Write":
            yield from _as_user(pods, one, params)


def _as_user(pods: PodSet, container: Container, params: IsolationParams) -> Iterator[Edit]:
    non_root = effective(pods, container, "runAsNonRoot")
    user = _user_of(container, params)
    if user is None or non_root is not None or effective(pods, container, "runAsUser") is not None:
        return
    place, group = (*container.path, "securityContext"), f"user {container.name}"
    yield Edit("set", (*place, "runAsNonRoot"), value=True, note=f"user {user}, not root, in {container.name}", group=group)
    yield Edit("set", (*place, "runAsUser"), user, "", group)


def _user_of(container: Container, params: IsolationParams) -> int | None:
    return next((one.user for one in params.users if has_image(container, (one.image,))), None)


def _lets_escalate(container: Container) -> bool:
    return own_context(container).get("allowPrivilegeEscalation") is not False and may_keep_privileges(container)


def _lacking_seccomp(pods: PodSet, containers: Iterable[Container]) -> list[Container]:
    return [one for one in containers if effective(pods, one, "seccompProfile") is None and not is_privileged(one)]


def check(workload: Workload, params: IsolationParams, _facts: ClusterSnapshot) -> Iterable[Finding]:
    """Find what undoes the separation of containers."""
    found: list[Finding] = []
    for pods in workload.templated_gpu_pod_sets():
        here = [
            *_of_pod(pods, params),
            *(finding for one in _hardened(pods, params) for finding in _of_container(pods, one, params)),
        ]
        if here and not has_account(workload, pods, params.service_accounts):
            found += here
    return found


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
    if params.seccomp != "Ignore" and _lacking_seccomp(pods, [container]):
        yield Finding(
            "NoSeccomp",
            place,
            f"{who} states no seccomp profile, and its pod none",
            _cure(container, "Write securityContext.seccompProfile: {type: RuntimeDefault} in the pod."),
            Level.DENY if params.seccomp == "Write" else Level.WARN,
        )
    if params.privilege_escalation != "Ignore" and _lets_escalate(container):
        yield Finding(
            "MayEscalate",
            (*place, "allowPrivilegeEscalation"),
            f"{who} may gain privileges that its process was not started with",
            _cure(container, f"Write securityContext.allowPrivilegeEscalation: false in {container.name}."),
            Level.DENY if params.privilege_escalation == "Write" else Level.WARN,
        )
    if params.run_as_non_root != "Ignore" and _may_be_root(pods, container, params):
        user = _user_of(container, params) or "<an id that the image can run as>"
        yield Finding(
            "MayRunAsRoot",
            (*place, "runAsNonRoot"),
            f"nothing keeps {who} from running as root",
            _cure(container, f"Write securityContext.runAsNonRoot: true and runAsUser: {user} in {container.name}."),
            Level.DENY if params.run_as_non_root == "Write" else Level.WARN,
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
    return stated or params.run_as_non_root == "Report" or _user_of(container, params) is not None


RULE = Rule(
    id="isolation",
    title="Accelerator pods do on their node what their work needs, and no more",
    since="0.1.0",
    params=IsolationParams,
    mutate=mutate,
    check=check,
    documentation=__doc__,
    default_max_mode=Mode.WARN,
    default_mode_reason=(
        "Clusters with RDMA or their own runtimes need some of what it finds, so that a policy has to allow that first."
    ),
)
