"""Metrics of held devices and of asking for them, made when somebody scrapes; without Prometheus there are none."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gpugate.policies.kube.times import lasting
from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.usage import held_in_all
from gpugate.webhook.prometheus.poller import UsagePoller


def usage_families(audit: Audit | None, keeper: UsagePoller | None) -> Iterator[Metric]:
    """What the last audit knows of held devices, and how the asking went."""
    if keeper is None:
        return
    yield CounterMetricFamily("gpugate_prometheus_questions", "Readings of GPU figures that were asked for.", value=keeper.asked)
    yield CounterMetricFamily("gpugate_prometheus_failures", "Those that gave no answer.", value=keeper.failed)
    if audit is None or audit.fleet is None:
        return
    sums = held_in_all(audit)
    yield GaugeMetricFamily("gpugate_gpus_held", "GPUs and MIG slices that pods hold, as monitoring tells.", value=sums.devices)
    yield GaugeMetricFamily("gpugate_gpus_held_idle", "Those that are idle by their policy.", value=sums.idle)
    yield GaugeMetricFamily("gpugate_gpus_held_low", "Those that are too large for their work by their policy.", value=sums.low)
    ratio = GaugeMetricFamily("gpugate_gpus_utilisation_ratio", "Utilisation of all held GPUs over a time.", labels=["window"])
    for one in sums.worths:
        if one.percent is not None:
            ratio.add_metric([lasting(one.seconds)], one.percent / 100)
    yield ratio
