"""Counters and histograms of the door, without labels that grow with the cluster (no namespaces, no names)."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gpugate.policies.engine import Decision
from gpugate.policies.kinds import KINDS

_KNOWN_KINDS: Final = frozenset(kind.kind for kind in KINDS)
#: Seconds. A review takes a fraction of a millisecond; the tail is what a busy machine adds.
_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)


class Metrics:
    """All metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._reviews = Counter(
            "gpugate_reviews",
            "Admission reviews answered.",
            ["endpoint", "kind", "operation", "outcome"],
            registry=self.registry,
        )
        self._duration = Histogram(
            "gpugate_review_duration_seconds",
            "Time from the body read to the answer made.",
            ["endpoint"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._findings = Counter("gpugate_findings", "Findings by rule and severity.", ["rule", "severity"], registry=self.registry)
        self._changes = Counter(
            "gpugate_changes",
            "Objects that a rule changed, or in DryRun would have changed.",
            ["rule", "mode"],
            registry=self.registry,
        )
        self._failures = Counter("gpugate_rule_failures", "Rules that broke on an object.", ["rule"], registry=self.registry)
        self._bad = Counter("gpugate_bad_requests", "Bodies that were no review.", ["reason"], registry=self.registry)
        self.facts = Gauge(
            "gpugate_facts_synced", "1 where a kind is synced or known absent.", ["resource"], registry=self.registry
        )
        self.policies = Gauge("gpugate_policies", "GPUPolicies by whether they are in force.", ["state"], registry=self.registry)
        self.certificate = Gauge(
            "gpugate_serving_certificate_not_after_seconds", "When the serving certificate ends, Unix time.", registry=self.registry
        )
        self._review_children: dict[tuple[str, str, str, str], Counter] = {}
        self._duration_children = {name: self._duration.labels(name) for name in ("mutate", "validate")}

    def reviewed(self, endpoint: str, kind: str, operation: str, outcome: str, seconds: float) -> None:
        """Count one answered review."""
        key = (endpoint, kind if kind in _KNOWN_KINDS else "other", operation, outcome)
        child = self._review_children.get(key)
        if child is None:
            child = self._review_children[key] = self._reviews.labels(*key)
        child.inc()
        self._duration_children[endpoint].observe(seconds)

    def decided(self, decision: Decision) -> None:
        """Count what a decision changed and found."""
        for change in decision.changes:
            self._changes.labels(change.rule, "enforced").inc()
        for change in decision.would_change:
            self._changes.labels(change.rule, "dryrun").inc()
        for one in decision.findings:
            self._findings.labels(one.rule, one.severity.value).inc()
        for failure in decision.failures:
            self._failures.labels(failure.rule).inc()

    def refused_body(self, reason: str) -> None:
        """Count a body that was no review."""
        self._bad.labels(reason).inc()

    def text(self) -> bytes:
        """Everything in the Prometheus text format."""
        return generate_latest(self.registry)
