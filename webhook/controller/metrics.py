"""Metrics of the controller, computed at each scrape."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpugate.policies.kube.times import lasting
from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.totals import held_in_all
from gpugate.webhook.controller.audit_loop import AuditLoop
from gpugate.webhook.controller.gangs import GangObserver
from gpugate.webhook.controller.leader_election import Elector
from gpugate.webhook.prometheus.poller import UsagePoller

_ACTIONS: Final = ("created", "updated", "deleted", "failed")
_GANG_STATES: Final = ("running", "queued", "starting", "stuck", "done")


def _filled(family: GaugeMetricFamily | CounterMetricFamily, counts: Mapping[str, float]) -> Metric:
    for label, count in sorted(counts.items()):
        family.add_metric([label], count)
    return family


class Families(Collector):
    """Metrics that a function yields at each scrape."""

    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        return self._families()

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)


def audit_families(audit_loop: AuditLoop) -> Iterator[Metric]:
    """Yield metrics of the last audit, without labels that grow with the cluster."""
    audit, last = audit_loop.latest, audit_loop.last
    yield CounterMetricFamily("gpugate_audit_rounds", "Finished audit rounds.", value=audit_loop.done)
    if audit is None or last is None:
        return
    outcomes = GaugeMetricFamily(
        "gpugate_audit_workloads", "Workloads that request accelerators, by most severe outcome.", labels=["outcome"]
    )
    yield _filled(outcomes, Counter(workload.outcome for workload in audit.workloads))
    findings = GaugeMetricFamily(
        "gpugate_audit_findings",
        "Workloads by rule, effect and mode; in Warn and DryRun the effect is what enforcing would do.",
        labels=["rule", "effect", "mode"],
    )
    counts: Counter[tuple[str, str, str]] = Counter()
    for workload in audit.workloads:
        counts.update({(item.rule, item.effect.value, item.mode.value) for item in workload.items})
    for labels, count in sorted(counts.items()):
        findings.add_metric(labels, count)
    yield findings
    yield GaugeMetricFamily("gpugate_audit_round_seconds", "Duration of the last audit round.", value=last.seconds)
    stranded = sum(shape.total.stranded for shape in audit.shapes)
    idle = sum(shape.total.idle for shape in audit.shapes)
    yield GaugeMetricFamily("gpugate_accelerators_stranded", "Free accelerators that no pod can use.", value=stranded)
    yield GaugeMetricFamily("gpugate_accelerators_idle", "Free accelerators that a pod can use.", value=idle)


def write_families(elector: Elector, written: Mapping[str, int], calls: Mapping[str, int]) -> Iterator[Metric]:
    """Yield metrics of the election, the calls to the apiserver, and the reports written."""
    yield GaugeMetricFamily("gpugate_leader", "1 if this controller leads.", value=float(elector.leading))
    family = CounterMetricFamily("gpugate_api_calls", "Calls to the apiserver, by verb.", labels=["verb"])
    yield _filled(family, calls)
    writes = CounterMetricFamily("gpugate_report_writes", "Write calls for reports, by action.", labels=["action"])
    yield _filled(writes, {action: written[action] for action in _ACTIONS})
    yield CounterMetricFamily("gpugate_report_bytes", "Bytes of reports sent.", value=written["bytes"])


def gang_families(observer: GangObserver) -> Iterator[Metric]:
    """Yield metrics of the observed gangs and their PodGroups."""
    gangs = GaugeMetricFamily("gpugate_gangs", "Gangs by state.", labels=["state"])
    yield _filled(gangs, {state: sum(gang.state == state for gang in observer.states) for state in _GANG_STATES})
    stuck = [gang for gang in observer.states if gang.state == "stuck"]
    yield GaugeMetricFamily("gpugate_gangs_stuck", "Gangs that are incomplete for too long.", value=len(stuck))
    yield GaugeMetricFamily(
        "gpugate_gangs_stuck_accelerators",
        "Accelerators that stuck gangs hold without using them.",
        value=sum(gang.held for gang in stuck),
    )
    groups = GaugeMetricFamily("gpugate_pod_groups", "Gangs by owner of their PodGroup.", labels=["state"])
    yield _filled(groups, {state.replace(" ", "_"): count for state, count in observer.reconciler.states.items()})
    writes = CounterMetricFamily("gpugate_pod_group_writes", "Write calls for PodGroups, by action.", labels=["action"])
    yield _filled(writes, {action: observer.reconciler.written[action] for action in _ACTIONS})


def usage_families(audit: Audit | None, poller: UsagePoller | None) -> Iterator[Metric]:
    """Yield metrics of held devices in the last audit, and of the queries to Prometheus; none without Prometheus."""
    if poller is None:
        return
    yield CounterMetricFamily(
        "gpugate_prometheus_questions", "Readings of GPU figures requested from Prometheus.", value=poller.asked
    )
    yield CounterMetricFamily("gpugate_prometheus_failures", "Readings of GPU figures that failed.", value=poller.failed)
    if audit is None or audit.fleet is None:
        return
    totals = held_in_all(audit)
    yield GaugeMetricFamily("gpugate_gpus_held", "GPUs and MIG slices that pods hold, by Prometheus.", value=totals.devices)
    yield GaugeMetricFamily("gpugate_gpus_held_idle", "Held GPUs and MIG slices that are idle by their policy.", value=totals.idle)
    yield GaugeMetricFamily(
        "gpugate_gpus_held_low", "Held GPUs and MIG slices that are too large for their work by their policy.", value=totals.low
    )
    ratio = GaugeMetricFamily(
        "gpugate_gpus_utilisation_ratio", "Utilisation of all held GPUs over a time window.", labels=["window"]
    )
    for use in totals.window_use:
        if use.percent is not None:
            ratio.add_metric([lasting(use.seconds)], use.percent / 100)
    yield ratio
