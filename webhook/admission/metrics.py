"""Metrics of the webhook, without labels that grow with the cluster (no namespaces; policies are the only names).

Reviews count in plain dictionaries, which become Prometheus metrics at each scrape: the library's counters take a lock and
check every label each time.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gpugate.policies.findings import Mode
from gpugate.policies.framework.decision import Decision
from gpugate.policies.rules.security import object_size
from gpugate.policies.workloads.kinds import KINDS
from gpugate.webhook.cache.health import fact_families, policy_families
from gpugate.webhook.cache.policies import SeenPolicy
from gpugate.webhook.kube.types import KindState

_KNOWN_KINDS: Final = frozenset(kind.kind for kind in KINDS)
_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
#: Buckets in seconds. A review takes a fraction of a millisecond; the upper buckets are for a busy machine.
_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
#: Help text and labels of each counter.
_COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "gpugate_reviews": ("Admission reviews answered.", ("endpoint", "kind", "operation", "outcome")),
    "gpugate_findings": ("Findings by rule and severity.", ("rule", "severity")),
    "gpugate_refusals": ("Reviews that a rule refused, or would refuse in Warn or DryRun.", ("rule", "mode", "dry_run")),
    "gpugate_changes": ("Objects that a rule changed, or would change in Warn or DryRun.", ("rule", "mode")),
    "gpugate_unjudged_objects": ("Objects that were not judged, since they are over a limit of object-size.", ("reason",)),
    "gpugate_rule_failures": ("Rules that failed on an object.", ("rule",)),
    "gpugate_bad_requests": ("Requests whose body is not a review.", ("reason",)),
    "gpugate_recordings": ("Reviews to record, by outcome.", ("outcome",)),
    "gpugate_serving_certificate_rejected": ("Checks that found a problem of the certificate files.", ("reason",)),
    "gpugate_events": ("Events, by outcome.", ("outcome",)),
}


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(_BUCKETS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts, as Prometheus expects them."""
        running, cumulative = 0, []
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), self.counts, strict=True):
            running += count
            cumulative.append((bound, float(running)))
        return cumulative


class Metrics(Collector):
    """All metrics of one server, in their own registry.

    Attributes:
        watched: returns the state of every watched kind, called at each scrape.
        policies: returns every watched GPUPolicy, called at each scrape.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, tuple[str, ...]], int] = {}
        self._combinations: dict[tuple[str, ...], int] = {}
        self._durations = {name: _Histogram() for name in ("mutate", "validate")}
        self.registry = CollectorRegistry()
        self.watched: Callable[[], Iterable[KindState]] = tuple
        self.policies: Callable[[], Iterable[SeenPolicy]] = tuple
        self.certificate = Gauge(
            "gpugate_serving_certificate_not_after_seconds", "End of the serving certificate, Unix time.", registry=self.registry
        )
        self.registry.register(self)

    def _count(self, name: str, *labels: str) -> None:
        key = (name, labels)
        self._counts[key] = self._counts.get(key, 0) + 1

    def reviewed(self, endpoint: str, kind: str, operation: str, outcome: str, seconds: float) -> None:
        """Count one answered review."""
        known = kind if kind in _KNOWN_KINDS else "other"
        self._count("gpugate_reviews", endpoint, known, operation if operation in _OPERATIONS else "other", outcome)
        self._durations[endpoint].observe(seconds)

    def decided(self, decision: Decision) -> None:
        """Count the changes and findings of a decision."""
        # Most decisions change the same few combinations of rules: count these, and split them at the scrape.
        if decision.changes:
            key = tuple([change.rule for change in decision.changes])
            self._combinations[key] = self._combinations.get(key, 0) + 1
        for change in decision.would_change:
            self._count("gpugate_changes", change.rule, change.mode.value.lower())
        for finding in decision.findings:
            self._count("gpugate_findings", finding.rule, finding.severity.value)
            if finding.rule == object_size.RULE.id and finding.finding.reason in object_size.REASONS:
                self._count("gpugate_unjudged_objects", finding.finding.reason)
        for failure in decision.failures:
            self._count("gpugate_rule_failures", failure.rule)

    def refused(self, rules: Iterable[str], mode: Mode, *, dry_run: bool) -> None:
        """Count a review that ``rules`` refused, or in Warn or DryRun would refuse; ``dry_run`` is the request's dryRun."""
        for rule in rules:
            self._count("gpugate_refusals", rule, mode.value, "true" if dry_run else "false")

    def event(self, outcome: str) -> None:
        """Count the outcome of an Event."""
        self._count("gpugate_events", outcome)

    def recorded(self, outcome: str, number: int) -> None:
        """Count outcomes of reviews to record."""
        key = ("gpugate_recordings", (outcome,))
        self._counts[key] = self._counts.get(key, 0) + number

    def certificate_rejected(self, reason: str) -> None:
        """Count a check that found a problem of the certificate files."""
        self._count("gpugate_serving_certificate_rejected", reason)

    def broken(self) -> None:
        """Count a review on which gpugate itself failed, outside of a rule."""
        self._count("gpugate_rule_failures", "none")

    def refused_body(self, reason: str) -> None:
        """Count a request whose body is not a review."""
        self._count("gpugate_bad_requests", reason)

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        counts = dict(self._counts)
        for rules, count in self._combinations.items():
            for rule in rules:
                key = ("gpugate_changes", (rule, "enforced"))
                counts[key] = counts.get(key, 0) + count
        for name, (text, labels) in _COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=labels)
            for (counter, values), count in sorted(counts.items()):
                if counter == name:
                    family.add_metric(values, count)
            yield family
        durations = HistogramMetricFamily(
            "gpugate_review_duration_seconds", "Time from reading the body to the complete answer.", labels=["endpoint"]
        )
        for endpoint, histogram in self._durations.items():
            durations.add_metric([endpoint], histogram.buckets(), histogram.total)
        yield durations
        yield from fact_families(self.watched())
        yield from policy_families(self.policies())

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)
