"""`gpugate serve`: run the TLS server and its watchers, and shut them down in order."""

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.policy.models import Policy
from gpugate.webhook.admission import tls
from gpugate.webhook.admission.app import make_app
from gpugate.webhook.admission.denials import DenialReporter
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.overload.intake import Intake
from gpugate.webhook.admission.recorder import ReviewRecorder
from gpugate.webhook.cache.health import monitor_watches
from gpugate.webhook.cache.kinds import KUEUE_NAMESPACE, POLICIES, fact_kinds, reducer_for
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.kube.client import ApiClient
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
        certificate: PEM file with the serving certificate and its chain.
        key: PEM file with its private key.
        policies: policies from files; None watches GPUPolicies instead.
        snapshot: snapshot from files; None without files.
        watch: whether to watch a cluster.
        tls_1_2: whether to accept TLS 1.2 as well.
        record_limit: total size of the recordings in bytes.
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
    drain_delay: float = 5.0
    drain_timeout: float = 15.0


async def serve(options: ServerOptions, log: Log) -> None:
    """Serve until SIGTERM or SIGINT, then shut down in order.

    Raises:
        InputError: the certificate is unusable, or the address cannot be bound.
        ClusterConfigError: the kubeconfig is missing or invalid.
    """
    return_large_memory()
    metrics = Metrics()
    context = tls.make_context(options.certificate, options.key, tls_1_2=options.tls_1_2, client_ca=options.client_ca)
    tls.record_expiry(options.certificate, metrics)
    state = CurrentState(options.snapshot or EMPTY_SNAPSHOT, options.policies or ())
    ledger = InFlightLedger() if options.watch and options.snapshot is None else None
    client, watchers, store = await _watch(options, state, log, ledger)
    tasks = [
        asyncio.create_task(tls.reload_certificates(context, options.certificate, options.key, log, metrics), name="certificates")
    ]
    if watchers is not None and store is not None:
        tasks.append(asyncio.create_task(run_all(watchers), name="watchers"))
        tasks.append(asyncio.create_task(monitor_watches(watchers, store, log), name="report"))
        state.watched = metrics.watched = lambda: [watcher.state for watcher in watchers]
        state.policies = metrics.policies = store.policies.seen
    event_recorder = Recorder(client, log, count=metrics.event) if client is not None and options.events else None
    if event_recorder is not None:
        tasks.append(asyncio.create_task(event_recorder.run(), name="events"))
    denials = DenialReporter(metrics, event_recorder)
    review_recorder = None
    if options.record is not None:
        review_recorder = ReviewRecorder(options.record, options.record_limit, log, count=metrics.recorded)
        tasks.append(asyncio.create_task(review_recorder.run(), name="recording"))
    intake = Intake()
    metrics.registry.register(intake)
    runner = web.AppRunner(
        make_app(
            state,
            metrics,
            log,
            ledger=ledger,
            denials=denials,
            review_recorder=review_recorder,
            client_ca=options.client_ca is not None,
            intake=intake,
        ),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=options.drain_timeout,
    )
    try:
        intake.listener = await listen(runner, options.host, options.port, log, context, tls="1.2" if options.tls_1_2 else "1.3")
        intake.log_writer = log.writer
        # Exclude long-lived objects from garbage collection: its full runs are the slowest reviews.
        gc.collect()
        gc.freeze()
        tasks.append(asyncio.create_task(_freeze_until_ready(state), name="memory"))
        await until_signal(tasks)
        state.draining = True
        log.info("draining", seconds=options.drain_delay)
        await asyncio.sleep(options.drain_delay)
    finally:
        await runner.cleanup()
        await cancelled(tasks)
        if client is not None:
            await client.close()
        log.flush()
    log.info("stopped")
    log.flush()


async def _watch(
    options: ServerOptions, state: CurrentState, log: Log, ledger: InFlightLedger | None
) -> tuple[ApiClient | None, list[Reflector] | None, SnapshotStore | None]:
    if not options.watch:
        return None, None, None
    client = await connect(options.kubeconfig, options.context)
    kinds: list[WatchedKind] = list(fact_kinds(options.kueue_namespace)) if options.snapshot is None else []
    if options.policies is None:
        kinds.append(POLICIES)
    store = SnapshotStore(state, log, kinds, fixed=options.snapshot, ledger=ledger)
    discovery = Discovery(client)
    return client, [Reflector(client, kind, store, strip=reducer_for(kind), discovery=discovery) for kind in kinds], store


async def _freeze_until_ready(state: CurrentState) -> None:
    """Exclude the records read until the server is ready from garbage collection.

    A run over the records of a large cluster blocks reviews. After a while, a server that is not ready collects as usual.
    """
    gc.set_threshold(10 * _YOUNGEST, *_OLDER)
    for _ in range(_FREEZES):
        if not state.not_ready:
            break
        await asyncio.sleep(_FREEZE)
        gc.freeze()
    gc.set_threshold(_YOUNGEST, *_OLDER)
    await asyncio.Event().wait()
