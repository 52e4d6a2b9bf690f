"""Metrics of the controller, made when somebody scrapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpugate.webhook.admission.metrics import fact_families
from gpugate.webhook.controller.audit_loop import AuditLoop
from gpugate.webhook.controller.leader_election import Elector
from gpugate.webhook.controller.reports import ReportReconciler
from gpugate.webhook.kube.types import KindState


class ControllerMetrics(Collector):
    """What the controller tells of itself and of the last audit, without labels that grow with the cluster."""

    def __init__(
        self,
        rounds: AuditLoop,
        elector: Elector,
        keeper: ReportReconciler,
        watched: Callable[[], Iterable[KindState]],
        calls: Mapping[str, int],
        *others: Callable[[], Iterator[Metric]],
    ) -> None:
        self._rounds = rounds
        self._elector = elector
        self._keeper = keeper
        self._watched = watched
        self._calls = calls
        self._others = others
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def text(self) -> bytes:
        """Everything in the Prometheus text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """The families as they stand now."""
        yield GaugeMetricFamily("gpugate_leader", "1 where this controller leads.", value=float(self._elector.leading))
        yield from self._audit()
        yield from self._reports()
        yield self._calls_to_the_apiserver()
        for other in self._others:
            yield from other()
        yield from fact_families(self._watched())

    def _calls_to_the_apiserver(self) -> Metric:
        family = CounterMetricFamily("gpugate_api_calls", "Calls to the apiserver, by what they do.", labels=["verb"])
        for verb, count in sorted(self._calls.items()):
            family.add_metric([verb], count)
        return family

    def _audit(self) -> Iterator[Metric]:
        audit, last = self._rounds.latest, self._rounds.last
        yield CounterMetricFamily("gpugate_audit_rounds", "Rounds of the audit that were finished.", value=self._rounds.done)
        if audit is None or last is None:
            return
        outcomes = GaugeMetricFamily(
            "gpugate_audit_workloads", "Workloads that ask for accelerators, by the gravest that a rule says.", labels=["outcome"]
        )
        for outcome, count in sorted(Counter(one.outcome for one in audit.workloads).items()):
            outcomes.add_metric([outcome], count)
        findings = GaugeMetricFamily(
            "gpugate_audit_findings",
            "Workloads of which a rule says this; in DryRun, what enforcing would do.",
            labels=["rule", "effect", "mode"],
        )
        said = Counter(
            key for one in audit.workloads for key in {(item.rule, item.effect.value, item.mode.value) for item in one.items}
        )
        for labels, count in sorted(said.items()):
            findings.add_metric(labels, count)
        yield from (outcomes, findings)
        yield GaugeMetricFamily("gpugate_audit_round_seconds", "How long the last round took.", value=last.seconds)
        stranded = sum(node.stranded for shape in audit.shapes for node in shape.nodes)
        idle = sum(node.idle for shape in audit.shapes for node in shape.nodes)
        yield GaugeMetricFamily("gpugate_accelerators_stranded", "Free accelerators that no pod can get at.", value=stranded)
        yield GaugeMetricFamily("gpugate_accelerators_idle", "Free accelerators that a pod could get.", value=idle)

    def _reports(self) -> Iterator[Metric]:
        written = self._keeper.written
        writes = CounterMetricFamily("gpugate_report_writes", "Calls that wrote reports, by what they did.", labels=["action"])
        for action in ("created", "updated", "deleted", "failed"):
            writes.add_metric([action], getattr(written, action))
        yield writes
        yield CounterMetricFamily("gpugate_report_bytes", "Bytes of reports that were sent.", value=written.bytes)
