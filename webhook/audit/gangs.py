"""The gangs of an audit: where each stands by the objects that were read, and by the policies in force."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.status import GangState, StuckAfter, gang_states
from gpugate.policies.kube.fields import MalformedError, Object
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.rules.gangs.gang.rule import RULE, GangParams
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.workload import Workload
from gpugate.webhook.audit.subjects import Subject


def stuck_after_for(snapshot: ClusterSnapshot, policies: PolicySet) -> StuckAfter:
    """When the policies say that a gang is stuck."""

    def stuck_after(namespace: str, labels: Object) -> float | None:
        for one in policies.bind(snapshot.namespace_labels(namespace), labels):
            if one.rule is RULE and isinstance(one.params, GangParams):
                return float(one.params.stuck_after)
        return None

    return stuck_after


def gangs_among(subjects: Iterable[Subject | str], snapshot: ClusterSnapshot, policies: PolicySet, now: float) -> list[GangState]:
    """Where the gangs among ``subjects`` stand at ``now``, in seconds since 1970; none while the pods are not known."""
    return gang_states(snapshot, _opened(subjects, snapshot), now, stuck_after=stuck_after_for(snapshot, policies))


def _opened(subjects: Iterable[Subject | str], snapshot: ClusterSnapshot) -> Iterator[Workload]:
    for one in subjects:
        if isinstance(one, str) or not one.asks or (one.kind.is_pod and one.owner is not None):
            continue
        try:
            yield open_workload(one.kind, orjson.loads(one.text), snapshot)
        except MalformedError:
            # The audit itself says what is wrong with it.
            continue
