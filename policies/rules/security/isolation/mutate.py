"""Edits of the rule `isolation`."""

from collections.abc import Iterable, Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.patch import Edit
from gpugate.policies.rules.security.isolation.params import IsolationParams
from gpugate.policies.rules.security.isolation.security_context import (
    effective,
    is_privileged,
    may_keep_privileges,
    own_context,
    pod_context,
)
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.device_access import has_account, has_image
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


def hardened(pods: PodSet, params: IsolationParams) -> list[Container]:
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
    containers = [one for one in hardened(pods, params) if one.role is not EPHEMERAL]
    if params.seccomp == "Write" and pod_context(pods).get("seccompProfile") is None and lacking_seccomp(pods, containers):
        place = pods.field("securityContext", "seccompProfile")
        yield Edit("set", place, {"type": "RuntimeDefault"}, "seccomp profile RuntimeDefault")
    for one in containers:
        if (
            params.privilege_escalation == "Write"
            and lets_escalate(one)
            and own_context(one).get("allowPrivilegeEscalation") is None
        ):
            place = (*one.path, "securityContext", "allowPrivilegeEscalation")
            yield Edit("set", place, value=False, note=f"no privilege escalation in {one.name}")
        if params.run_as_non_root == "Write":
            yield from _as_user(pods, one, params)


def _as_user(pods: PodSet, container: Container, params: IsolationParams) -> Iterator[Edit]:
    non_root = effective(pods, container, "runAsNonRoot")
    user = user_of(container, params)
    if user is None or non_root is not None or effective(pods, container, "runAsUser") is not None:
        return
    place, group = (*container.path, "securityContext"), f"user {container.name}"
    yield Edit("set", (*place, "runAsNonRoot"), value=True, note=f"user {user}, not root, in {container.name}", group=group)
    yield Edit("set", (*place, "runAsUser"), user, "", group)


def user_of(container: Container, params: IsolationParams) -> int | None:
    """Return the user ID that the policy gives the image; None if it gives none."""
    return next((one.user for one in params.users if has_image(container, (one.image,))), None)


def lets_escalate(container: Container) -> bool:
    """Return whether processes of the container may gain privileges."""
    return own_context(container).get("allowPrivilegeEscalation") is not False and may_keep_privileges(container)


def lacking_seccomp(pods: PodSet, containers: Iterable[Container]) -> list[Container]:
    """Return the containers without a seccomp profile of their own or of their pod."""
    return [one for one in containers if effective(pods, one, "seccompProfile") is None and not is_privileged(one)]
