"""Parameters of the rule `isolation`."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import MOST, UNIQUE
from gpugate.policies.rules.security.isolation.security_context import BASELINE_CAPABILITIES
from gpugate.policies.workloads.device_access import STACK_ACCOUNTS, AccountPatterns, ImagePattern, ImagePatterns

_Hardening: TypeAlias = Literal["Ignore", "Report", "Write"]


_Capability: TypeAlias = Annotated[str, Field(min_length=1, max_length=63, pattern="^[A-Z][A-Z_]*$")]


_Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]


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
