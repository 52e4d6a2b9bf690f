"""Metrics of the controller, computed at each scrape."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpugate.policies.kube.times import lasting
from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.usage import held_in_all
from gpugate.webhook.cache.health import fact_families
from gpugate.webhook.controller.audit_loop import AuditLoop
from gpugate.webhook.controller.leader_election import Elector
from gpugate.webhook.controller.reports import ReportReconciler
from gpugate.webhook.kube.types import KindState
from gpugate.webhook.prometheus.poller import UsagePoller


class ControllerMetrics(Collector):
    """Metrics of the controller and of the last audit, without labels that grow with the cluster."""

    def __init__(
        self,
        audit_loop: AuditLoop,
        elector: Elector,
        reports: ReportReconciler,
        watched: Callable[[], Iterable[KindState]],
        calls: Mapping[str, int],
        *others: Callable[[], Iterator[Metric]],
    ) -> None:
        self._audit_loop = audit_loop
        self._elector = elector
        self._reports_written = reports
        self._watched = watched
        self._calls = calls
        self._others = others
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        yield GaugeMetricFamily("gpugate_leader", "1 if this controller leads.", value=float(self._elector.leading))
        yield from self._audit()
        yield from self._reports()
        yield self._calls_to_the_apiserver()
        for other in self._others:
            yield from other()
        yield from fact_families(self._watched())

    def _calls_to_the_apiserver(self) -> Metric:
        family = CounterMetricFamily("gpugate_api_calls", "Calls to the apiserver, by verb.", labels=["verb"])
        for verb, count in sorted(self._calls.items()):
            family.add_metric([verb], count)
        return family

    def _audit(self) -> Iterator[Metric]:
        audit, last = self._audit_loop.latest, self._audit_loop.last
        yield CounterMetricFamily("gpugate_audit_rounds", "Finished audit rounds.", value=self._audit_loop.done)
        if audit is None or last is None:
            return
        outcomes = GaugeMetricFamily(
            "gpugate_audit_workloads", "Workloads that request accelerators, by most severe outcome.", labels=["outcome"]
        )
        for outcome, count in sorted(Counter(workload.outcome for workload in audit.workloads).items()):
            outcomes.add_metric([outcome], count)
        findings = GaugeMetricFamily(
            "gpugate_audit_findings",
            "Workloads by rule, effect and mode; in DryRun the effect is what enforcing would do.",
            labels=["rule", "effect", "mode"],
        )
        said = Counter(
            key
            for workload in audit.workloads
            for key in {(item.rule, item.effect.value, item.mode.value) for item in workload.items}
        )
        for labels, count in sorted(said.items()):
            findings.add_metric(labels, count)
        yield from (outcomes, findings)
        yield GaugeMetricFamily("gpugate_audit_round_seconds", "Duration of the last audit round.", value=last.seconds)
        stranded = sum(node.stranded for shape in audit.shapes for node in shape.nodes)
        idle = sum(node.idle for shape in audit.shapes for node in shape.nodes)
        yield GaugeMetricFamily("gpugate_accelerators_stranded", "Free accelerators that no pod can use.", value=stranded)
        yield GaugeMetricFamily("gpugate_accelerators_idle", "Free accelerators that a pod can use.", value=idle)

    def _reports(self) -> Iterator[Metric]:
        written = self._reports_written.written
        writes = CounterMetricFamily("gpugate_report_writes", "Write calls for reports, by action.", labels=["action"])
        for action in ("created", "updated", "deleted", "failed"):
            writes.add_metric([action], getattr(written, action))
        yield writes
        yield CounterMetricFamily("gpugate_report_bytes", "Bytes of reports sent.", value=written.bytes)


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
    sums = held_in_all(audit)
    yield GaugeMetricFamily("gpugate_gpus_held", "GPUs and MIG slices that pods hold, by Prometheus.", value=sums.devices)
    yield GaugeMetricFamily("gpugate_gpus_held_idle", "Held GPUs and MIG slices that are idle by their policy.", value=sums.idle)
    yield GaugeMetricFamily(
        "gpugate_gpus_held_low", "Held GPUs and MIG slices that are too large for their work by their policy.", value=sums.low
    )
    ratio = GaugeMetricFamily(
        "gpugate_gpus_utilisation_ratio", "Utilisation of all held GPUs over a time window.", labels=["window"]
    )
    for one in sums.window_use:
        if one.percent is not None:
            ratio.add_metric([lasting(one.seconds)], one.percent / 100)
    yield ratio
