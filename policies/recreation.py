"""UPDATEs that the API takes from nobody, so that only deleting the object and making it anew brings them about.

The API refuses such an UPDATE before any validating webhook sees it, with a code that tools take for "delete it and make it
anew" where they are told to force: Flux's `force`, Argo CD's `Force=true`, `kubectl apply --force`. Were the new object then
refused, the running one would be gone. So the mutating door, which is asked first, refuses the UPDATE itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpugate.policies.fields import Object, Path, clone, lookup
from gpugate.policies.workload import Workload

#: What nobody may change below the spec (``k8s.io/kubernetes`` ``pkg/apis/batch/validation``, ``pkg/apis/apps/validation``).
_FIXED: Final[Mapping[str, tuple[Path, ...]]] = {
    "Job": (("selector",), ("completionMode",), ("template", "spec")),
    "Deployment": (("selector",),),
    "ReplicaSet": (("selector",),),
    "DaemonSet": (("selector",),),
    "StatefulSet": (("selector",), ("serviceName",), ("podManagementPolicy",), ("volumeClaimTemplates",)),
}
#: What may be changed in the pods of a suspended Job: where they run, and, by a feature gate, what they ask for.
_OF_A_SUSPENDED_JOB: Final = frozenset({"affinity", "nodeSelector", "schedulingGates", "tolerations"})
_CONTAINERS: Final = frozenset({"containers", "initContainers"})


def as_sent(workload: Workload) -> Object | None:
    """A copy of an UPDATE's object before it is edited, where it states a fixed field otherwise; None where none does."""
    return clone(workload.root) if changes_fixed_fields(workload) else None


def changes_fixed_fields(workload: Workload) -> bool:
    """Whether an UPDATE changes what the API lets nobody change."""
    old = workload.old
    if workload.operation != "UPDATE" or old is None or workload.subresource:
        return False
    suspended = lookup(old, ("spec", "suspend")) is True
    for path in _FIXED.get(workload.kind.kind, ()):
        new_value, old_value = (lookup(root, ("spec", *path)) for root in (workload.root, old))
        if suspended and path[-1] == "spec":
            new_value, old_value = _fixed_while_suspended(new_value), _fixed_while_suspended(old_value)
        if new_value != old_value:
            return True
    return False


def _fixed_while_suspended(spec: object) -> object:
    if type(spec) is not dict:
        return spec
    kept = {key: value for key, value in spec.items() if key not in _OF_A_SUSPENDED_JOB}
    for key in _CONTAINERS & kept.keys():
        containers = kept[key]
        if type(containers) is list:
            kept[key] = [{k: v for k, v in one.items() if k != "resources"} if type(one) is dict else one for one in containers]
    return kept


def made_anew(sent: Object) -> Object:
    """The object that would be created in place of the live one."""
    return {key: value for key, value in sent.items() if key != "status"}
