"""`gpugate serve`: the TLS server, the watchers that feed it, and its orderly end."""

from __future__ import annotations

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
from gpugate.webhook.admission.recorder import ReviewRecorder
from gpugate.webhook.cache.health import look_after
from gpugate.webhook.cache.kinds import KUEUE_NAMESPACE, POLICIES, fact_kinds, reducer_for
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.kube.client import ApiClient, connect
from gpugate.webhook.kube.discovery import Discovery
from gpugate.webhook.kube.events import Recorder
from gpugate.webhook.kube.reflector import Reflector, run_all
from gpugate.webhook.kube.types import WatchedKind
from gpugate.webhook.runtime.lifecycle import cancelled, listen, until_signal
from gpugate.webhook.runtime.log import Log

#: Where Kubernetes puts a pod's credentials.
IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
#: Seconds between two freezings of what came in while the cluster is read for the first time.
_FREEZE: Final = 0.5
_FREEZES: Final = 600
#: Objects, and walks over younger ones, after which the garbage collector walks.
_YOUNGEST: Final = 20_000
_OLDER: Final = (20, 50)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How the server runs.

    Attributes:
        host: address to listen on.
        port: port to listen on, 0 for any free one.
        certificate: PEM file with the serving certificate and its chain.
        key: PEM file with its private key.
        policies: policies from files; None to watch GPUPolicies instead.
        snapshot: facts from files; None where there are none.
        watch: whether facts come from the cluster.
        kubeconfig: kubeconfig of that cluster; the pod's own credentials where it is None.
        context: context in the kubeconfig.
        kueue_namespace: where Kueue's own Configuration is.
        tls_1_2: whether TLS 1.2 is accepted, too.
        events: whether Events tell of refusals, where a cluster is watched.
        record: directory in which reviews are written down; None where they are not.
        record_limit: bytes that recordings may take in all.
        client_ca: CA of the client certificates that reviews must bring; none needed where it is None.
        drain_delay: seconds between not being ready and taking no new connections.
        drain_timeout: seconds that reviews under way may take to end.
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
    """Serve until SIGTERM or SIGINT, then leave in order.

    Raises:
        InputError: the certificate cannot be used, the address is taken, or the cluster cannot be reached as configured.
        ClusterConfigError: the kubeconfig is missing or does not parse.
    """
    metrics = Metrics()
    context = tls.make_context(options.certificate, options.key, tls_1_2=options.tls_1_2, client_ca=options.client_ca)
    tls.note_end(options.certificate, metrics)
    state = CurrentState(options.snapshot or EMPTY_SNAPSHOT, options.policies or ())
    ledger = InFlightLedger() if options.watch and options.snapshot is None else None
    client, watchers, store = await _watch(options, state, log, ledger)
    tasks = [asyncio.create_task(tls.exchange(context, options.certificate, options.key, log, metrics), name="certificates")]
    if watchers is not None and store is not None:
        tasks.append(asyncio.create_task(run_all(watchers), name="watchers"))
        tasks.append(asyncio.create_task(look_after(watchers, store, log), name="report"))
        state.watched = metrics.watched = lambda: [one.state for one in watchers]
        state.policies = metrics.policies = store.policies.seen
    recorder = Recorder(client, log, count=metrics.event) if client is not None and options.events else None
    if recorder is not None:
        tasks.append(asyncio.create_task(recorder.run(), name="events"))
    traces = DenialReporter(metrics, recorder)
    recording = None
    if options.record is not None:
        recording = ReviewRecorder(options.record, options.record_limit, log, count=metrics.recorded)
        tasks.append(asyncio.create_task(recording.run(), name="recording"))
    runner = web.AppRunner(
        make_app(
            state,
            metrics,
            log,
            ledger=ledger,
            traces=traces,
            recording=recording,
            client_ca=options.client_ca is not None,
        ),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=options.drain_timeout,
    )
    try:
        await listen(runner, options.host, options.port, log, context, tls="1.2" if options.tls_1_2 else "1.3")
        _settle_memory()
        tasks.append(asyncio.create_task(_settle_records(state), name="memory"))
        await until_signal(tasks)
        state.draining = True
        log.info("draining", seconds=options.drain_delay)
        await asyncio.sleep(options.drain_delay)
    finally:
        await _stop(runner, tasks, client)
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


def _settle_memory() -> None:
    """Leave what lives as long as the server out of garbage collection: its full walks are the tail of a review's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNGEST, *_OLDER)


async def _settle_records(state: CurrentState) -> None:
    """Leave the records that come in until the server is ready out of garbage collection, too.

    No review is answered during a walk over those of a large cluster. A server that does not get ready walks as ever after a while.
    """
    gc.set_threshold(10 * _YOUNGEST, *_OLDER)
    for _ in range(_FREEZES):
        if not state.not_ready:
            break
        await asyncio.sleep(_FREEZE)
        gc.freeze()
    gc.set_threshold(_YOUNGEST, *_OLDER)
    await asyncio.Event().wait()


async def _stop(runner: web.AppRunner, tasks: Sequence[asyncio.Task[None]], client: ApiClient | None) -> None:
    await runner.cleanup()
    await cancelled(tasks)
    if client is not None:
        await client.close()
