"""`gpugate serve`: the TLS server, the watchers that feed it, and its orderly end."""

from __future__ import annotations

import asyncio
import gc
import signal
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from gpugate.policies.facts import NO_FACTS, Facts
from gpugate.policies.policy import Policy
from gpugate.webhook import tls
from gpugate.webhook.app import make_app
from gpugate.webhook.cluster import WatchedKind
from gpugate.webhook.cluster.client import ApiClient, connect
from gpugate.webhook.cluster.reflector import Reflector, run_all
from gpugate.webhook.cluster.store import FACT_KINDS, POLICIES, FactStore, strip
from gpugate.webhook.inputs import InputError
from gpugate.webhook.log import Log
from gpugate.webhook.metrics import Metrics
from gpugate.webhook.state import State

#: Where Kubernetes puts a pod's credentials.
IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@dataclass(frozen=True, slots=True)
class Options:
    """How the server runs.

    Attributes:
        host: address to listen on.
        port: port to listen on, 0 for any free one.
        certificate: PEM file with the serving certificate and its chain.
        key: PEM file with its private key.
        policies: policies from files; None to watch GPUPolicies instead.
        facts: facts from files; None where there are none.
        watch: whether facts come from the cluster.
        kubeconfig: kubeconfig of that cluster; the pod's own credentials where it is None.
        context: context in the kubeconfig.
        tls_1_2: whether TLS 1.2 is accepted, too.
        client_ca: CA of the client certificates that reviews must bring; none needed where it is None.
        drain_delay: seconds between not being ready and taking no new connections.
        drain_timeout: seconds that reviews under way may take to end.
    """

    host: str
    port: int
    certificate: Path
    key: Path
    policies: Sequence[Policy] | None = None
    facts: Facts | None = None
    watch: bool = False
    kubeconfig: Path | None = None
    context: str | None = None
    tls_1_2: bool = False
    client_ca: Path | None = None
    drain_delay: float = 5.0
    drain_timeout: float = 15.0


async def serve(options: Options, log: Log) -> None:
    """Serve until SIGTERM or SIGINT, then leave in order.

    Raises:
        InputError: the certificate cannot be used, the address is taken, or the cluster cannot be reached as configured.
        ClusterConfigError: the kubeconfig is missing or does not parse.
    """
    metrics = Metrics()
    context = tls.make_context(options.certificate, options.key, tls_1_2=options.tls_1_2, client_ca=options.client_ca)
    tls.note_end(options.certificate, metrics)
    state = State(options.facts or NO_FACTS, options.policies or ())
    client, watchers = await _watch(options, state, log)
    tasks = [asyncio.create_task(tls.exchange(context, options.certificate, options.key, log, metrics), name="certificates")]
    if watchers is not None:
        tasks.append(asyncio.create_task(run_all(watchers), name="watchers"))
        tasks.append(asyncio.create_task(_report(watchers, metrics, log), name="report"))
    runner = web.AppRunner(
        make_app(state, metrics, log, client_ca=options.client_ca is not None),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=options.drain_timeout,
    )
    try:
        await _listen(runner, options, context, log)
        _settle_memory()
        await _until_signal(tasks)
        state.draining = True
        log.info("draining", seconds=options.drain_delay)
        await asyncio.sleep(options.drain_delay)
    finally:
        await _stop(runner, tasks, client)
        log.flush()
    log.info("stopped")
    log.flush()


async def _watch(options: Options, state: State, log: Log) -> tuple[ApiClient | None, list[Reflector] | None]:
    if not options.watch:
        return None, None
    client = await connect(options.kubeconfig, options.context)
    kinds: list[WatchedKind] = list(FACT_KINDS) if options.facts is None else []
    if options.policies is None:
        kinds.append(POLICIES)
    store = FactStore(state, log, kinds, fixed=options.facts)
    return client, [Reflector(client, kind, store, strip=strip) for kind in kinds]


async def _report(watchers: Sequence[Reflector], metrics: Metrics, log: Log) -> None:
    """Put the watchers' states into metrics, and say in the log when one changes."""
    seen: dict[str, tuple[str, str | None]] = {}
    while True:
        for watcher in watchers:
            state = watcher.state
            metrics.facts.labels(state.kind).set(1 if state.synced else 0)
            now = (state.phase, state.error)
            if seen.get(state.kind) != now:
                seen[state.kind] = now
                tell = log.info if state.phase in {"pending", "synced", "absent"} else log.warning
                tell("watch", kind=state.kind, phase=state.phase, objects=state.objects, error=state.error)
        await asyncio.sleep(1.0)


async def _listen(runner: web.AppRunner, options: Options, context: ssl.SSLContext, log: Log) -> None:
    await runner.setup()
    site = web.TCPSite(runner, options.host, options.port, ssl_context=context, backlog=1024)
    try:
        await site.start()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"--listen {options.host}:{options.port}: cannot listen there: {reason}; give another HOST:PORT"
        raise InputError(message) from None
    port = runner.addresses[0][1] if runner.addresses else options.port
    log.info("listening", address=f"{options.host}:{port}", tls="1.2" if options.tls_1_2 else "1.3")
    log.flush()


def _settle_memory() -> None:
    """Leave what lives as long as the server out of garbage collection: its full walks are the tail of a review's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


async def _until_signal(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for a signal to end, or for a task that should never end."""
    loop = asyncio.get_running_loop()
    ending = loop.create_future()

    def end() -> None:
        if not ending.done():
            ending.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    done, _ = await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        if isinstance(task, asyncio.Task):
            task.result()


async def _stop(runner: web.AppRunner, tasks: Sequence[asyncio.Task[None]], client: ApiClient | None) -> None:
    await runner.cleanup()
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
    if client is not None:
        await client.close()
