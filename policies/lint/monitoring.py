"""Check GPU monitoring: the expressions of a PrometheusRule, and the ports of a ServiceMonitor.

Expressions are not parsed: the check searches for metric names, and for two patterns that are wrong in any context.
Sources of the names: NVIDIA dcgm-exporter ``etc/default-counters.csv`` and its own counters (``DCGM_EXP_*``);
utkuozdemir/nvidia_gpu_exporter ``docs/METRICS.md`` for ``nvidia_smi_*``. NVIDIA's device plugin exports no GPU metrics.
ServiceMonitor: prometheus-operator, API ``monitoring.coreos.com/v1``.
"""

import re
from collections.abc import Iterator
from typing import Final

from gpugate.policies.cluster.records.common import selector_in
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import MalformedError, Object, Path
from gpugate.policies.lint.context import LintContext, list_at, map_at, maps_at, text_at, texts_at

USED: Final = "DCGM_FI_DEV_FB_USED"
FREE: Final = "DCGM_FI_DEV_FB_FREE"
XID: Final = "DCGM_FI_DEV_XID_ERRORS"


def _instead(dcgm: str, smi: str = "") -> str:
    """Return the remedy with the metrics of dcgm-exporter and nvidia_gpu_exporter that replace an unknown name."""
    other = f", or {smi} (nvidia_gpu_exporter)" if smi else ""
    return f"Write {dcgm} (dcgm-exporter){other}."


_UTILISATION: Final = _instead("DCGM_FI_DEV_GPU_UTIL", "nvidia_smi_utilization_gpu_ratio, from 0 to 1")
_MEMORY: Final = _instead(USED, "nvidia_smi_memory_used_bytes")
_TEMPERATURE: Final = _instead("DCGM_FI_DEV_GPU_TEMP", "nvidia_smi_temperature_gpu")
_POWER: Final = _instead("DCGM_FI_DEV_POWER_USAGE", "nvidia_smi_power_draw_watts")
#: Remedies for metric names from guides and dashboards that no exporter writes.
UNWRITTEN: Final = {
    "nvidia_smi_utilization_gpu": _UTILISATION,
    "nvidia_smi_gpu_utilization": _UTILISATION,
    "nvidia_smi_memory_used_mb": _MEMORY,
    "nvidia_smi_memory_used": _MEMORY,
    "nvidia_smi_memory_total_mb": _instead(f"{USED} + {FREE}", "nvidia_smi_memory_total_bytes"),
    "nvidia_smi_gpu_temperature": _TEMPERATURE,
    "nvidia_smi_power_draw": _POWER,
    "DCGM_FI_DEV_GPU_UTILIZATION": _UTILISATION,
    "DCGM_FI_DEV_MEM_USED": _MEMORY,
    "DCGM_FI_DEV_MEMORY_USED": _MEMORY,
    "DCGM_FI_DEV_GPU_TEMPERATURE": _TEMPERATURE,
    "DCGM_FI_DEV_POWER_DRAW": _POWER,
    "DCGM_FI_DEV_XID_ERROR": _instead(XID),
}
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_TEXT: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_LABELS: Final = r"(?:\s*\{[^}]*\})?"
_USED_BY_FREE: Final = re.compile(
    rf"\b{USED}{_LABELS}\s*/\s*(?:(?:on|ignoring)\s*\([^)]*\)\s*)?{FREE}\b{_LABELS}(?:\s*>=?\s*(\d*\.?\d+))?"
)
_COUNTED: Final = re.compile(rf"\b(increase|rate|irate|delta|idelta|deriv)\s*\(\s*{XID}\b")


def check_prometheus_rule(obj: Object, _context: LintContext) -> Iterator[Finding]:
    """Check the expressions of a PrometheusRule."""
    for at, group in maps_at(obj, "spec", "groups"):
        for number, rule in maps_at(group, "rules"):
            expression = text_at(rule, "expr")
            if expression:
                yield from check_expression(("spec", "groups", at, "rules", number, "expr"), expression)


def check_expression(path: Path, expression: str) -> Iterator[Finding]:
    """Check one expression for unknown GPU metrics and wrong calculations."""
    bare = _TEXT.sub('""', expression)
    for name in sorted({match[0] for match in _NAME.finditer(bare)} & set(UNWRITTEN)):
        message = f"no exporter writes {name}, so the expression is empty and an alert on it never fires"
        yield Finding("UnwrittenMetric", path, message, UNWRITTEN[name])
    share = _USED_BY_FREE.search(bare)
    if share:
        message, threshold = f"{USED} / {FREE} is not the used share because it is 1 at half and has no upper bound", share[1]
        if threshold:
            message += f"; above {threshold} it fires from {float(threshold) / (1 + float(threshold)):.0%} used"
        yield Finding("NotAShare", path, message, f"Write {USED} / ({USED} + {FREE}).", Level.WARN)
    counted = _COUNTED.search(bare)
    if counted:
        message = (
            f"{XID} is a gauge with the number of the last Xid, so {counted[1]}() subtracts error numbers from each other "
            "and misses an error that repeats"
        )
        errors = "DCGM_EXP_XID_ERRORS_COUNT > 0 if dcgm-exporter is configured to write it"
        remedy = f"Write {XID} != 0, which holds until the driver is reloaded, or {errors}."
        yield Finding("GaugeCounted", path, message, remedy, Level.WARN)


def check_service_monitor(obj: Object, context: LintContext) -> Iterator[Finding]:
    """Check for endpoints with a port name that no selected Service of the same input has."""
    services = _selected(obj, context)
    ports = {text_at(port, "name") for service in services for _, port in maps_at(service, "spec", "ports")}
    for at, endpoint in maps_at(obj, "spec", "endpoints"):
        port = text_at(endpoint, "port")
        if not services or not port or port in ports:
            continue
        names = ", ".join(sorted(text_at(service, "metadata", "name") for service in services))
        have = ", ".join(sorted(filter(None, ports))) or "no port with a name"
        message = f"the selected Service {names} has no port named {port}, so nothing is scraped"
        remedy = f"Use the same port name in both: the Service has {have}."
        yield Finding("PortNotNamed", ("spec", "endpoints", at, "port"), message, remedy, Level.WARN)


def _selected(obj: Object, context: LintContext) -> list[Object]:
    try:
        selector = selector_in(map_at(obj, "spec"), "selector")
    except MalformedError:
        return []
    if selector is None:
        return []
    spaces = list_at(obj, "spec", "namespaceSelector", "matchNames") or [context.namespace_of(obj)]
    everywhere = map_at(obj, "spec", "namespaceSelector").get("any") is True
    services = [service for service in context.of("", "Service") if everywhere or context.namespace_of(service) in spaces]
    return [service for service in services if selector.matches(texts_at(service, "metadata", "labels"))]
