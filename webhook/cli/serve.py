"""`gpugate serve`: run the webhook."""

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from gpugate.policies.kube.quantity import QuantityError, whole
from gpugate.webhook.admission import tls
from gpugate.webhook.admission.server import IN_CLUSTER, ServerOptions
from gpugate.webhook.admission.server import serve as run_server
from gpugate.webhook.cache.kinds import KUEUE_NAMESPACE
from gpugate.webhook.cli import options
from gpugate.webhook.files.inputs import load_facts, load_policies
from gpugate.webhook.runtime.log import Bridge, Log
from gpugate.webhook.runtime.log_writer import LogWriter

_SMALLEST_RECORD = 1 << 20
_LOOPBACK = ["localhost", "127.0.0.1", "::1"]


def _size(text: str) -> int:
    try:
        size = whole(text)
    except QuantityError:
        size = 0
    if size < _SMALLEST_RECORD:
        options.fail(f"--record-limit {text}: write a size of at least 1Mi, for example 64Mi")
    return size


def serve(  # noqa: PLR0913 - one parameter per option
    *,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on.")] = "127.0.0.1:8443",
    self_signed: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory for a CA and a loopback certificate, issued if missing.")
    ] = None,
    tls_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Directory with tls.crt and tls.key.")] = None,
    tls_min_version: Annotated[str, typer.Option(metavar="1.2|1.3", help="Lowest version of TLS.")] = "1.3",
    client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Require a client certificate signed by this CA for reviews.")
    ] = None,
    policy: options.WatchedPolicies = None,
    cluster: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Plain Kubernetes objects as facts, instead of a live cluster.")
    ] = None,
    kubeconfig: options.WatchedKubeconfig = None,
    context: options.WatchedContext = None,
    kueue_namespace: options.KueueNamespace = KUEUE_NAMESPACE,
    events: Annotated[
        bool, typer.Option("--events/--no-events", help="Emit Kubernetes Events about refusals, if a cluster is watched.")
    ] = True,
    record: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Record reviews in DIR, without secrets, for gpugate replay.")
    ] = None,
    record_limit: Annotated[
        str, typer.Option(metavar="SIZE", help="Total size of the recordings; the oldest are removed. At least 1Mi.")
    ] = "64Mi",
    drain_delay: Annotated[float, typer.Option(help="Seconds from not ready to the end of new connections.", min=0)] = 5.0,
    drain_timeout: Annotated[float, typer.Option(help="Seconds for running reviews to finish.", min=0)] = 15.0,
) -> None:
    """Serve /mutate, /validate, /healthz, /readyz and /metrics over TLS.

    Facts come from --cluster files, from the cluster of --kubeconfig, or, in a pod, from its own cluster.
    """
    host, port = options.address(listen)
    if (self_signed is None) == (tls_dir is None):
        options.fail("use one of --self-signed DIR (a certificate for loopback) and --tls-dir DIR (tls.crt and tls.key)")
    if tls_min_version not in {"1.2", "1.3"}:
        options.fail(f"--tls-min-version {tls_min_version}: write 1.2 or 1.3")
    with options.usable_inputs():
        if self_signed is not None:
            names = [*_LOOPBACK, *([host] if host not in {*_LOOPBACK, "0.0.0.0", "::"} else [])]  # noqa: S104
            certificate, key = tls.self_signed(self_signed, names)
        else:
            directory = tls_dir or Path()
            certificate, key = directory / "tls.crt", directory / "tls.key"
        settings = ServerOptions(
            host=host,
            port=port,
            certificate=certificate,
            key=key,
            policies=load_policies(policy) if policy else None,
            snapshot=load_facts(cluster) if cluster else None,
            watch=kubeconfig is not None or context is not None or (IN_CLUSTER.exists() and not cluster),
            kubeconfig=kubeconfig,
            context=context,
            kueue_namespace=kueue_namespace,
            tls_1_2=tls_min_version == "1.2",
            events=events,
            record=record,
            record_limit=_size(record_limit),
            client_ca=client_ca,
            drain_delay=drain_delay,
            drain_timeout=drain_timeout,
        )
        with LogWriter() as writer, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            log = Log(writer)
            logging.basicConfig(level=logging.WARNING, handlers=[Bridge(log)])
            runner.run(run_server(settings, log))
