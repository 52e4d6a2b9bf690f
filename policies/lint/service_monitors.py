"""A ServiceMonitor scrapes ports that the Services which it selects have by name.

Source: prometheus-operator, API ``monitoring.coreos.com/v1``.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpugate.policies.cluster.records.common import selector_in
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import MalformedError, Object
from gpugate.policies.lint.context import LintContext, list_at, map_at, maps_at, text_at, texts_at


def check(obj: Object, around: LintContext) -> Iterator[Finding]:
    """Endpoints by a port that no selected Service of the same input has."""
    services = _selected(obj, around)
    ports = {text_at(port, "name") for service in services for _, port in maps_at(service, "spec", "ports")}
    for at, endpoint in maps_at(obj, "spec", "endpoints"):
        port = text_at(endpoint, "port")
        if not services or not port or port in ports:
            continue
        names = ", ".join(sorted(text_at(one, "metadata", "name") for one in services))
        have = ", ".join(sorted(filter(None, ports))) or "no port with a name"
        message = f"the Service {names} that it selects has no port named {port}: nothing is scraped"
        yield Finding(
            "PortNotNamed", ("spec", "endpoints", at, "port"), message, f"The Service has {have}: use one name.", Level.WARN
        )


def _selected(obj: Object, around: LintContext) -> list[Object]:
    try:
        selector = selector_in(map_at(obj, "spec"), "selector")
    except MalformedError:
        return []
    if selector is None:
        return []
    spaces = list_at(obj, "spec", "namespaceSelector", "matchNames") or [around.namespace_of(obj)]
    everywhere = map_at(obj, "spec", "namespaceSelector").get("any") is True
    return [
        one
        for one in around.of("", "Service")
        if (everywhere or around.namespace_of(one) in spaces) and selector.matches(texts_at(one, "metadata", "labels"))
    ]
