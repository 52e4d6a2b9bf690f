"""Which check reads which kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from gpugate.policies.findings import Finding, Judged, Mode, judge
from gpugate.policies.kube.fields import Object
from gpugate.policies.lint import (
    alert_rules,
    api_versions,
    device_plugin,
    kueue_queues,
    network_policy,
    resource_quota,
    training_jobs,
    volume_claims,
)
from gpugate.policies.lint import lost_indentation as flattened
from gpugate.policies.lint import node_agents as node_stack
from gpugate.policies.lint import service_monitors as service_monitor
from gpugate.policies.lint.context import LintContext, group_of, text_at
from gpugate.policies.workloads.kinds import KINDS

#: By what id findings about such objects are told.
RULE: Final = "setup"
Check: TypeAlias = Callable[[Object, LintContext], Iterator[Finding]]

#: The check of each kind that is read, by API group and kind.
CHECKS: Final[dict[tuple[str, str], Check]] = {
    ("", "ResourceQuota"): resource_quota.check,
    ("", "ConfigMap"): device_plugin.check,
    ("", "PersistentVolumeClaim"): volume_claims.check,
    ("networking.k8s.io", "NetworkPolicy"): network_policy.check,
    ("monitoring.coreos.com", "PrometheusRule"): alert_rules.check,
    ("monitoring.coreos.com", "ServiceMonitor"): service_monitor.check,
    (kueue_queues.GROUP, "ClusterQueue"): kueue_queues.check_cluster_queue,
    (kueue_queues.GROUP, "LocalQueue"): kueue_queues.check_local_queue,
    **{(kind.group, kind.kind): node_stack.check for kind in KINDS if kind.per_node},
    **{(kind.group, kind.kind): training_jobs.check for kind in KINDS if kind.only_trains},
}


def is_read(api_version: str, kind: str) -> bool:
    """Whether there is a check for a kind."""
    return (group_of(api_version), kind) in CHECKS


def findings_of(obj: Object, around: LintContext) -> list[Judged]:
    """What is found in an object of whatever kind; in one whose indentation is lost, what would be found in it with it."""
    found = [*flattened.check(obj)]
    obj = flattened.restored(obj) if found else obj
    api_version, kind = text_at(obj, "apiVersion"), text_at(obj, "kind")
    found += api_versions.check(obj)
    check = CHECKS.get((group_of(api_versions.current(api_version, kind)), kind))
    if check is not None:
        found += check(obj, around)
    return sorted((judge(RULE, Mode.ENFORCE, one) for one in found), key=lambda one: one.sort_key)
