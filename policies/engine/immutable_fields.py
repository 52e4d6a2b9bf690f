"""UPDATEs that the API takes from nobody, so that only deleting the object and making it anew brings them about.

The API refuses such an UPDATE before any validating webhook sees it, with a code that tools take for "delete it and make it
anew" where they are told to force: Flux's `force`, Argo CD's `Force=true`, `kubectl apply --force`. Were the new object then
refused, the running one would be gone. So the mutating door, which is asked first, refuses the UPDATE itself.
"""

from __future__ import annotations

from typing import Any, Final

from gpugate.policies.kube.equivalence import semantically_equal
from gpugate.policies.kube.fields import Object, clone, lookup
from gpugate.policies.workloads.workload import Workload

#: What may be changed in the pods of a suspended job: where they run, and, by a feature gate, what they ask for.
_WHILE_SUSPENDED: Final = frozenset({"affinity", "nodeSelector", "schedulingGates", "tolerations"})
_CONTAINERS: Final = frozenset({"containers", "initContainers"})


def as_submitted(workload: Workload) -> Object | None:
    """A copy of an UPDATE's object before it is edited, where it states a fixed field otherwise; None where none does."""
    return clone(workload.root) if changes_immutable_fields(workload) else None


def changes_immutable_fields(workload: Workload) -> bool:
    """Whether an UPDATE changes what the API lets nobody change."""
    old = workload.old
    if workload.operation != "UPDATE" or old is None or workload.subresource:
        return False
    kind = workload.kind
    if any(lookup(workload.root, ("spec", name)) != lookup(old, ("spec", name)) for name in kind.immutable):
        return True
    if kind.template_mutable or workload.is_pod():
        return False
    # Kueue stops a job and takes out what it put in to place it in one UPDATE.
    switch = kind.suspend
    suspended = switch is not None and any(lookup(root, switch) is True for root in (old, workload.root))
    for pods in workload.pod_sets:
        before, after = lookup(old, pods.field()), pods.spec
        if suspended:
            before, after = _fixed_while_suspended(before), _fixed_while_suspended(after)
        # Operators, too, compare what they have read into their types.
        if before is not None and not semantically_equal(before, after):
            return True
    return False


def _fixed_while_suspended(spec: Any) -> Any:  # noqa: ANN401 - any JSON value
    if type(spec) is not dict:
        return spec
    kept = {key: value for key, value in spec.items() if key not in _WHILE_SUSPENDED}
    for key in _CONTAINERS & kept.keys():
        containers = kept[key]
        if type(containers) is list:
            kept[key] = [{k: v for k, v in one.items() if k != "resources"} if type(one) is dict else one for one in containers]
    return kept


def as_recreated(sent: Object) -> Object:
    """The object that would be created in place of the live one."""
    return {key: value for key, value in sent.items() if key != "status"}
