"""What a pod may do on its node, as its security contexts come to it: the container's own before the pod's.

The controls are those of the Kubernetes Pod Security Standards (1.36); what the API refuses together stands in
``k8s.io/kubernetes`` ``pkg/apis/core/validation`` ``ValidateSecurityContext``.
"""

from typing import Any, Final

from gpugate.policies.kube.fields import Object, mapping, sequence
from gpugate.policies.workloads.container import Container, normal_path
from gpugate.policies.workloads.pod_set import PodSet

#: Capabilities that the standard ``baseline`` lets a container add.
BASELINE_CAPABILITIES: Final = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID"),
    *("SETPCAP", "SETUID", "SYS_CHROOT"),
)
#: With these a process may do what allowPrivilegeEscalation: false would keep it from; the API takes no such pair.
_ESCALATING: Final = frozenset({"ALL", "SYS_ADMIN"})


def pod_context(pods: PodSet) -> Object:
    """The pods' own security context; an empty one where they state none."""
    return mapping(pods.spec, "securityContext", pods.field())


def own_context(container: Container) -> Object:
    """The container's own security context; an empty one where it states none."""
    return mapping(container.spec, "securityContext", container.path)


def effective(pods: PodSet, container: Container, field: str) -> Any:  # noqa: ANN401 - any JSON value
    """What holds for the container: its own word, else the pod's; None where neither says anything."""
    own = own_context(container).get(field)
    return pod_context(pods).get(field) if own is None else own


def is_privileged(container: Container) -> bool:
    """Whether the container has every device and capability of its node."""
    return own_context(container).get("privileged") is True


def added_capabilities(container: Container) -> list[str]:
    """The capabilities that the container adds, sorted, without the prefix that some write."""
    stated = mapping(own_context(container), "capabilities", (*container.path, "securityContext"))
    added = sequence(stated, "add", (*container.path, "securityContext", "capabilities"))
    return sorted({str(one).upper().removeprefix("CAP_") for one in added})


def may_keep_privileges(container: Container) -> bool:
    """Whether the API takes ``allowPrivilegeEscalation: false`` of the container."""
    return not is_privileged(container) and _ESCALATING.isdisjoint(added_capabilities(container))


def lies_below(path: str, prefix: str) -> bool:
    """Whether a host's ``path`` is ``prefix`` or lies below it."""
    place, above = normal_path(path), normal_path(prefix)
    return above in {place, "//"} or place.startswith(f"{above}/")
