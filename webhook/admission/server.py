"""`gpugate serve`: run the TLS server and its watchers, and shut them down in order."""

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.policy.models import Policy
from gpugate.webhook.admission import tls
from gpugate.webhook.admission.app import make_handler
from gpugate.webhook.admission.denials import DenialReporter
from gpugate.webhook.admission.diagnostics import make_diagnostics_app
from gpugate.webhook.admission.held_events import HeldEvents
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.overload.intake import Intake
from gpugate.webhook.admission.recorder import ReviewRecorder
from gpugate.webhook.admission.serving_certificate import CertificateFiles, ServingCertificate
from gpugate.webhook.cache.health import monitor_watches
from gpugate.webhook.cache.kinds import KUEUE_NAMESPACE, POLICIES, fact_kinds, reducer_for
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.served import follow_served_kinds
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.discovery import read_served_kinds
from gpugate.webhook.kube.events import Recorder
from gpugate.webhook.kube.kubeconfig import connect
from gpugate.webhook.kube.lister import Discovery
from gpugate.webhook.kube.reflector import Reflector, run_all
from gpugate.webhook.kube.types import WatchedKind
from gpugate.webhook.runtime.lifecycle import cancelled, listen, until_signal
from gpugate.webhook.runtime.log import Log
from gpugate.webhook.runtime.memory import return_large_memory

#: Path of a pod's credentials.
IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
#: Seconds between two freezes during the first read of the cluster, and their largest number.
_FREEZE: Final = 0.5
_FREEZES: Final = 600
#: Thresholds of the garbage collector: new objects, and collections of younger generations.
_YOUNGEST: Final = 20_000
_OLDER: Final = (20, 50)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of the server; `gpugate serve --help` describes those of the same name.

    Attributes:
        certificate: PEM file with the serving certificate and its chain; ``ca.crt`` beside it, if any, must have signed it.
        key: PEM file with its private key.
        policies: policies from files; None watches GPUPolicies instead.
        snapshot: snapshot from files; None without files.
        watch: whether to watch a cluster.
        client_ca: CA of the client certificates that reviews need; None to answer anybody.
        client_names: names of which a client certificate needs one; empty for any name.
        tls_1_2: whether to accept TLS 1.2 as well.
        record_limit: total size of the recordings in bytes.
        metrics_address: host and port for metrics and details of readiness, over HTTP; None for nowhere.
    """

    host: str
    port: int
    certificate: Path
    key: Path
    policies: Sequence[Policy] | None = None
    snapshot: ClusterSnapshot | None = None
    watch: bool = False
    kubeconfig: Path | None = None
    context: str | None = None
    kueue_namespace: str = KUEUE_NAMESPACE
    tls_1_2: bool = False
    events: bool = True
    record: Path | None = None
    record_limit: int = 64 << 20
    client_ca: Path | None = None
    client_names: Sequence[str] = ()
    metrics_address: tuple[str, int] | None = None
    drain_delay: float = 5.0
    drain_timeout: float = 15.0


async def serve(options: ServerOptions, log: Log) -> None:
    """Serve until SIGTERM or SIGINT, then shut down in order.

    Raises:
        InputError: the CA of client certificates is unusable, or the address cannot be bound.
        ClusterConfigError: the kubeconfig is missing or invalid.
    """
    return_large_memory()
    metrics = Metrics()
    new_context = tls.context_maker(tls_1_2=options.tls_1_2, client_ca=options.client_ca)
    paths = CertificateFiles(options.certificate, options.key, options.certificate.with_name("ca.crt"))
    certificate = ServingCertificate(paths, new_context, log, metrics)
    state = CurrentState(options.snapshot or EMPTY_SNAPSHOT, options.policies or ())
    authenticated = options.client_ca is not None
    ledger = InFlightLedger(authenticated=authenticated) if options.watch and options.snapshot is None else None
    held = None if authenticated else HeldEvents(lambda: metrics.event("unconfirmed"))
    client, watchers, store = await _watch(options, state, log, ledger, held)
    state.certificate = lambda: certificate.not_ready
    tasks = [asyncio.create_task(certificate.watch(), name="certificates")]
    if client is not None and watchers is not None and store is not None:
        tasks += _follow(client, watchers, store, state, log, kinds=options.snapshot is None)
        state.watched = metrics.watched = lambda: [watcher.state for watcher in watchers]
        state.policies = metrics.policies = store.policies.seen
    event_recorder = Recorder(client, log, count=metrics.event) if client is not None and options.events else None
    if event_recorder is not None:
        tasks.append(asyncio.create_task(event_recorder.run(), name="events"))
    denials = DenialReporter(metrics, event_recorder, held=held)
    review_recorder = None
    if options.record is not None:
        review_recorder = ReviewRecorder(options.record, options.record_limit, log, count=metrics.recorded)
        tasks.append(asyncio.create_task(review_recorder.run(), name="recording"))
    intake = Intake()
    metrics.registry.register(intake)
    runner = web.ServerRunner(
        web.Server(
            make_handler(
                state,
                metrics,
                log,
                ledger=ledger,
                denials=denials,
                review_recorder=review_recorder,
                client_names=options.client_names if authenticated else None,
                intake=intake,
            )
        ),
        handle_signals=False,
        shutdown_timeout=options.drain_timeout,
    )
    diagnostics = web.AppRunner(make_diagnostics_app(state, metrics), access_log=None, handle_signals=False, shutdown_timeout=1.0)
    try:
        version = "1.2" if options.tls_1_2 else "1.3"
        intake.listener = await listen(runner, options.host, options.port, log, certificate.context, tls=version)
        intake.log_writer = log.writer
        if options.metrics_address is not None:
            await listen(diagnostics, *options.metrics_address, log, message="listening for metrics", option="--metrics-listen")
        tasks.append(asyncio.create_task(_freeze_until_ready(state), name="memory"))
        await until_signal(tasks)
        state.draining = True
        log.info("draining", seconds=options.drain_delay)
        await asyncio.sleep(options.drain_delay)
    finally:
        await runner.cleanup()
        await diagnostics.cleanup()
        await cancelled(tasks)
        if client is not None:
            await client.close()
        log.flush()
    log.info("stopped")
    log.flush()


async def _watch(
    options: ServerOptions, state: CurrentState, log: Log, ledger: InFlightLedger | None, held: HeldEvents | None
) -> tuple[ApiClient | None, list[Reflector] | None, SnapshotStore | None]:
    if not options.watch:
        return None, None, None
    client = await connect(options.kubeconfig, options.context)
    kinds: list[WatchedKind] = list(fact_kinds(options.kueue_namespace)) if options.snapshot is None else []
    if options.policies is None:
        kinds.append(POLICIES)
    added_pod = held.added if held is not None else None
    store = SnapshotStore(state, log, kinds, fixed=options.snapshot, ledger=ledger, added_pod=added_pod)
    discovery = Discovery(client)
    return client, [Reflector(client, kind, store, strip=reducer_for(kind), discovery=discovery) for kind in kinds], store


def _follow(
    client: ApiClient, watchers: list[Reflector], store: SnapshotStore, state: CurrentState, log: Log, *, kinds: bool
) -> list[asyncio.Task[None]]:
    """Start the tasks that follow the cluster; ``kinds``: also the kinds that it serves."""
    tasks = [
        asyncio.create_task(run_all(watchers), name="watchers"),
        asyncio.create_task(monitor_watches(watchers, store, log), name="report"),
    ]
    if kinds:
        read = partial(read_served_kinds, client)
        tasks.append(asyncio.create_task(follow_served_kinds(read, state, store.serves, log), name="discovery"))
    return tasks


async def _freeze_until_ready(state: CurrentState) -> None:
    """Exclude the records read until the server is ready from garbage collection, and all other long-lived objects.

    A run over the records of a large cluster blocks reviews. After a while, a server that is not ready collects as usual.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10 * _YOUNGEST, *_OLDER)
    for _ in range(_FREEZES):
        if not state.not_ready:
            break
        await asyncio.sleep(_FREEZE)
        gc.freeze()
    gc.set_threshold(_YOUNGEST, *_OLDER)
    await asyncio.Event().wait()
