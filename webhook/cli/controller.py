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
from gpugate.webhook.cli.options import PrometheusCa, PrometheusMatchers, PrometheusToken, PrometheusUrl, address, fail, monitoring
from gpugate.webhook.controller.audit_loop import AuditSchedule
from gpugate.webhook.controller.leader_election import LeaseDurations
from gpugate.webhook.controller.program import ControllerOptions, run
from gpugate.webhook.files.inputs import load_policies
from gpugate.webhook.kube.errors import ClusterError
from gpugate.webhook.runtime.errors import InputError
from gpugate.webhook.runtime.log import Bridge, Log

#: File with the pod's own namespace.
_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE: Final = "gpugate-system"


def controller(  # noqa: PLR0913 - one parameter an option
    *,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the audit page, probes and metrics (HTTP, read only).")
    ] = "127.0.0.1:8080",
    policy: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="GPUPolicy file; may be repeated. Without it GPUPolicies are watched.")
    ] = None,
    kubeconfig: Annotated[Path | None, typer.Option(metavar="FILE", help="kubeconfig of the cluster.")] = None,
    context: Annotated[str | None, typer.Option(help="Context in the kubeconfig.")] = None,
    kueue_namespace: Annotated[
        str, typer.Option(metavar="NAMESPACE", help="Where Kueue runs: its Configuration is read there.")
    ] = KUEUE_NAMESPACE,
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
    team_label: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Label that says who a workload belongs to; may be repeated.")
    ] = None,
    prometheus: PrometheusUrl = "",
    prometheus_token: PrometheusToken = None,
    prometheus_ca: PrometheusCa = None,
    prometheus_matcher: PrometheusMatchers = None,
) -> None:
    """Audit the cluster, write reports, PodGroups and policy statuses, and serve the audit page.

    Several replicas may run: all watch and serve, one at a time writes.
    """
    host, port = address(listen)
    try:
        options = ControllerOptions(
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
            monitoring=monitoring(prometheus, prometheus_token, prometheus_ca, prometheus_matcher),
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            log = Log()
            logging.basicConfig(level=logging.WARNING, handlers=[Bridge(log)])
            runner.run(run(options, log))
    except (InputError, ClusterError) as error:
        fail(str(error))


def _own_namespace() -> str:
    try:
        return _NAMESPACE.read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE
