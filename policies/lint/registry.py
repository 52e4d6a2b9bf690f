"""Map each linted kind to its check, and run the checks of one object."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from gpugate.policies.findings import Finding, Judged, Mode, judge
from gpugate.policies.kube.fields import Object
from gpugate.policies.lint import api_versions, device_plugin, node_agents, quotas
from gpugate.policies.lint.context import LintContext, group_of, text_at
from gpugate.policies.lint.distributed_jobs import check_network_policy, check_training_job, check_volume_claim
from gpugate.policies.lint.monitoring import check_prometheus_rule, check_service_monitor
from gpugate.policies.workloads.kinds import KINDS

#: The rule id of every finding of a lint check.
RULE: Final = "setup"
Check: TypeAlias = Callable[[Object, LintContext], Iterator[Finding]]

#: The check of each kind, by API group and kind.
CHECKS: Final[dict[tuple[str, str], Check]] = {
    ("", "ResourceQuota"): quotas.check_resource_quota,
    ("", "ConfigMap"): device_plugin.check,
    ("", "PersistentVolumeClaim"): check_volume_claim,
    **{(kind.group, kind.kind): node_agents.check for kind in KINDS if kind.per_node},
    ("networking.k8s.io", "NetworkPolicy"): check_network_policy,
    ("monitoring.coreos.com", "PrometheusRule"): check_prometheus_rule,
    ("monitoring.coreos.com", "ServiceMonitor"): check_service_monitor,
    (quotas.GROUP, "ClusterQueue"): quotas.check_cluster_queue,
    (quotas.GROUP, "LocalQueue"): quotas.check_local_queue,
    **{(kind.group, kind.kind): check_training_job for kind in KINDS if kind.only_trains},
}


def is_linted(api_version: str, kind: str) -> bool:
    """Return whether a check reads the kind."""
    return (group_of(api_version), kind) in CHECKS


def findings_of(obj: Object, context: LintContext) -> list[Judged]:
    """Run the API version check and the check of the object's kind; return the findings, sorted."""
    api_version, kind = text_at(obj, "apiVersion"), text_at(obj, "kind")
    findings = [*api_versions.check(obj)]
    check = CHECKS.get((group_of(api_versions.current(api_version, kind)), kind))
    if check is not None:
        findings += check(obj, context)
    return sorted((judge(RULE, Mode.ENFORCE, finding) for finding in findings), key=lambda judged: judged.sort_key)
