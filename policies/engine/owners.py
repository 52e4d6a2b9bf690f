"""Decide which owners count: those that a known controller names, or that the cluster shows.

Every user may write an ownerReference, and most rules trust an object that a controller created: its owner was reviewed. So an
owner that a user names is judged by its kind. A kind that owns no workloads, or that the cluster does not serve, is no owner. Any
other owner may be true, so it refuses nothing: what a review without it would refuse is reported as unknown.

Source for the identities: ``k8s.io/kubernetes`` 1.36 ``cmd/kube-controller-manager`` (``--use-service-account-credentials``) and
``plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go``.
"""

from collections.abc import Collection
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.checks import check_all
from gpugate.policies.engine.edit_guard import EditGuard
from gpugate.policies.findings import Judged, Level
from gpugate.policies.framework.decision import BoundRules, Decision
from gpugate.policies.kube.fields import Object, lookup
from gpugate.policies.workloads.kinds.owners import OwnerDoubt, ServedKinds
from gpugate.policies.workloads.workload import Workload

_SERVICE_ACCOUNT: Final = "system:serviceaccount:"


def identities_of(controller: str) -> tuple[str, str]:
    """Return the identities of a controller of kube-controller-manager (``replicaset``): that of all, and its own."""
    return "system:kube-controller-manager", f"{_SERVICE_ACCOUNT}kube-system:{controller}-controller"


#: The identities of kube-controller-manager: its own, and those of its controllers that create pods or workloads.
KUBERNETES_CONTROLLERS: Final = frozenset(
    identity
    for controller in ("cronjob", "daemon-set", "deployment", "job", "replicaset", "replication", "statefulset")
    for identity in identities_of(controller)
)


def is_controller(user: str, listed: Collection[str]) -> bool:
    """Return whether ``user`` is a controller of Kubernetes, or one that is ``listed``."""
    if user in KUBERNETES_CONTROLLERS or user in listed:
        return True
    return user.startswith(_SERVICE_ACCOUNT) and f"{user.rpartition(':')[0]}:*" in listed


def _named_by_user(
    workload: Workload, user: str, listed: Collection[str], snapshot: ClusterSnapshot
) -> tuple[Object, ServedKinds] | None:
    """Return the controller of ``workload`` and the kinds that the cluster serves; None if no doubt is possible."""
    owner = workload.controller()
    if owner is None or snapshot.served is None or is_controller(user, listed):
        return None
    return owner, snapshot.served


def doubt_about_owner(workload: Workload, user: str, listed: Collection[str], snapshot: ClusterSnapshot) -> OwnerDoubt | None:
    """Return the doubt about the controller of ``workload``, which ``user`` names; None without one, or if it is believed."""
    named = _named_by_user(workload, user, listed, snapshot)
    if named is None:
        return None
    owner, served = named
    doubt = OwnerDoubt(served)
    if doubt.rejects(owner):
        return doubt
    uid = owner.get("uid")
    before = lookup(workload.old, ("metadata", "ownerReferences")) if workload.operation == "UPDATE" else None
    if type(before) is list and any(
        type(one) is dict and one.get("controller") is True and one.get("uid") == uid for one in before
    ):
        # It was judged when it was written.
        return None
    return None if snapshot.kueue_workloads.belong_to(str(uid)) else doubt


def rests_on_discovery(workload: Workload, user: str, listed: Collection[str], snapshot: ClusterSnapshot) -> bool:
    """Return whether the owner of ``workload`` counts as none only because the cluster does not serve its kind."""
    named = _named_by_user(workload, user, listed, snapshot)
    if named is None:
        return False
    owner, served = named
    return not served.may_own(owner) and served.may_come(owner)


def unconfirmed(workload: Workload, bound: BoundRules, snapshot: ClusterSnapshot, decision: Decision) -> list[Judged]:
    """Return what would be refused if the unconfirmed owner of ``workload`` did not exist, as unknown findings."""
    doubt, owner = workload.owner_doubt, workload.controller()
    if doubt is None or owner is None:
        return []
    without = Decision()
    workload.owner_doubt = doubt.of_every_owner()
    try:
        check_all(workload, bound, snapshot, without, EditGuard(workload))
    finally:
        workload.owner_doubt = doubt
    bindings = {binding.rule.id: binding for binding in bound}
    known = {(one.rule, one.finding.reason, one.finding.path) for one in decision.findings if one.finding.level is Level.DENY}
    named = f"{owner.get('kind')} {owner.get('name')}"
    remedy = f"If {named} is its controller, list the user that creates the object in spec.controllerIdentities of the policy."
    return [
        bindings[one.rule].judge(
            one.finding._replace(
                level=Level.UNKNOWN, remedy=remedy, message=f"{one.finding.message} (not refused: {named} may be its owner)"
            )
        )
        for one in without.findings
        if one.finding.level is Level.DENY and (one.rule, one.finding.reason, one.finding.path) not in known
    ]
