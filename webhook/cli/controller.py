"""`gpugate controller`: run the policy controller."""

import asyncio
import logging
import os
import socket
import uuid
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop

from gpugate.webhook.audit.evaluate import TEAM_LABELS
from gpugate.webhook.cache.kinds import KUEUE_NAMESPACE
from gpugate.webhook.cli import options
from gpugate.webhook.controller.audit_loop import AuditSchedule
from gpugate.webhook.controller.leader_election import LeaseDurations
from gpugate.webhook.controller.program import ControllerOptions, run
from gpugate.webhook.files.inputs import load_policies
from gpugate.webhook.runtime.log import Bridge, Log
from gpugate.webhook.runtime.log_writer import LogWriter

#: File with the pod's own namespace.
_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE: Final = "gpugate-system"


def controller(  # noqa: PLR0913 - one parameter per option
    *,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the audit page, probes and metrics (HTTP, read only).")
    ] = "127.0.0.1:8080",
    policy: options.WatchedPolicies = None,
    kubeconfig: options.WatchedKubeconfig = None,
    context: options.WatchedContext = None,
    kueue_namespace: options.KueueNamespace = KUEUE_NAMESPACE,
    namespace: Annotated[str, typer.Option(metavar="NAMESPACE", help="Namespace of the Lease; by default the pod's own.")] = "",
    lease_duration: Annotated[
        int, typer.Option(help="Seconds after which another replica takes over from a lost leader.", min=2)
    ] = 15,
    interval: Annotated[float, typer.Option(help="Seconds between two full audits.", min=1)] = 600.0,
    settle: Annotated[float, typer.Option(help="Seconds to gather changes before they are audited.", min=0)] = 2.0,
    rate: Annotated[float, typer.Option(help="Most workloads audited per second.", min=1)] = 500.0,
    report_spacing: Annotated[float, typer.Option(help="Shortest time between two writes of a report, in seconds.", min=0)] = 5.0,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Host name of the page behind a proxy; may be repeated.")
    ] = None,
    team_label: options.TeamLabels = None,
    prometheus: options.PrometheusUrl = "",
    prometheus_token: options.PrometheusToken = None,
    prometheus_ca: options.PrometheusCa = None,
    prometheus_matcher: options.PrometheusMatchers = None,
) -> None:
    """Audit the cluster, write reports, PodGroups and policy statuses, and serve the audit page.

    Several replicas may run: all watch and serve, only the leader writes.
    """
    host, port = options.address(listen)
    with options.usable_inputs():
        settings = ControllerOptions(
            host=host,
            port=port,
            namespace=namespace or _own_namespace(),
            identity=f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}",
            kubeconfig=kubeconfig,
            context=context,
            policies=load_policies(policy) if policy else None,
            kueue_namespace=kueue_namespace,
            # Ratios of Kubernetes' components: renew within two thirds, retry after two fifteenths.
            durations=LeaseDurations(lease_duration, lease_duration * 2 / 3, lease_duration * 2 / 15),
            schedule=AuditSchedule(interval=interval, gather=settle, rate=rate),
            spacing=report_spacing,
            hosts=tuple(allow_host or ()),
            team_labels=tuple(team_label or TEAM_LABELS),
            monitoring=options.monitoring(prometheus, prometheus_token, prometheus_ca, prometheus_matcher),
        )
        with LogWriter() as writer, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            log = Log(writer)
            logging.basicConfig(level=logging.WARNING, handlers=[Bridge(log)])
            runner.run(run(settings, log))


def _own_namespace() -> str:
    try:
        return _NAMESPACE.read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE
