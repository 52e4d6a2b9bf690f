"""`gpugate controller`: watches, audits, and writes while it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from gpugate.policies.gangs.status import GangState
from gpugate.policies.policy.models import Policy
from gpugate.webhook.admission.metrics import policy_families
from gpugate.webhook.audit.evaluate import TEAM_LABELS
from gpugate.webhook.audit.listing import SUBJECT_KINDS
from gpugate.webhook.audit.metrics import usage_families
from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.page.live import add_page
from gpugate.webhook.cache.health import look_after
from gpugate.webhook.cache.kinds import KUEUE_NAMESPACE, POLICIES, fact_kinds, reducer_for
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.controller.allowed_hosts import only_expected
from gpugate.webhook.controller.audit_loop import AuditLoop, AuditSchedule, AuditSource
from gpugate.webhook.controller.gangs import GangObserver
from gpugate.webhook.controller.informers import Tee, WorkloadInformer, see, strip_for_both
from gpugate.webhook.controller.leader_client import LeaderOnlyClient
from gpugate.webhook.controller.leader_election import Elector, LeaseDurations
from gpugate.webhook.controller.metrics import ControllerMetrics
from gpugate.webhook.controller.policy_status import PolicyStatusReconciler, sums_by_policy, teller
from gpugate.webhook.controller.reports import REPORT_KINDS, ReportReconciler, report_stores, stored_of
from gpugate.webhook.kube.client import ApiClient, connect
from gpugate.webhook.kube.discovery import Discovery
from gpugate.webhook.kube.events import Recorder
from gpugate.webhook.kube.reflector import Reflector, run_all, wait_synced
from gpugate.webhook.kube.types import KindState, WatchedKind
from gpugate.webhook.prometheus.client import Address
from gpugate.webhook.prometheus.poller import UsagePoller
from gpugate.webhook.runtime.lifecycle import cancelled, listen, until_signal
from gpugate.webhook.runtime.log import Log

#: Seconds that the first round waits for kinds that may not be read, and for those that fail otherwise: an audit without them
#: would take reports away that others have written.
_PATIENCE: Final = 30.0
_MOST_PATIENCE: Final = 300.0

Duty = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """How the controller runs.

    Attributes:
        host: address to listen on.
        port: port to listen on, 0 for any free one.
        namespace: where its Lease is.
        identity: its name among several controllers.
        kubeconfig: kubeconfig of the cluster; the pod's own credentials where it is None.
        context: context in the kubeconfig.
        policies: policies from files; None to watch GPUPolicies instead.
        kueue_namespace: where Kueue's own Configuration is.
        terms: how long the Lease holds.
        rhythm: when and how fast it audits.
        spacing: seconds between two looks at the reports.
        team_labels: labels that say who a workload belongs to.
        hosts: names by which people reach the page, beside those of the cluster.
        monitoring: where Prometheus is; None to ask none.
    """

    host: str
    port: int
    namespace: str
    identity: str
    kubeconfig: Path | None = None
    context: str | None = None
    policies: Sequence[Policy] | None = None
    kueue_namespace: str = KUEUE_NAMESPACE
    terms: LeaseDurations = field(default_factory=LeaseDurations)
    rhythm: AuditSchedule = field(default_factory=AuditSchedule)
    spacing: float = 5.0
    team_labels: tuple[str, ...] = TEAM_LABELS
    hosts: tuple[str, ...] = ()
    monitoring: Address | None = None


async def run(options: ControllerOptions, log: Log) -> None:
    """Run until SIGTERM or SIGINT, then leave in order.

    Raises:
        InputError: the address is taken.
        ClusterConfigError: the kubeconfig is missing or does not parse.
    """
    client = await connect(options.kubeconfig, options.context)
    controller = _Controller(options, client, log)
    runner = web.AppRunner(controller.app(), access_log=None, handle_signals=False)
    tasks: list[asyncio.Task[None]] = []
    try:
        await listen(runner, options.host, options.port, log)
        tasks = [asyncio.create_task(one(), name=name) for name, one in controller.tasks().items()]
        await until_signal(tasks)
    finally:
        await runner.cleanup()
        await cancelled(tasks)
        await client.close()
        log.info("stopped")
        log.flush()


class _Controller:
    """The parts of the controller, put together."""

    def __init__(self, options: ControllerOptions, client: ApiClient, log: Log) -> None:
        self._log = log
        self._state = CurrentState(policies=options.policies or ())
        self._spacing = options.spacing
        self._hosts = options.hosts
        self._policies_are_given = options.policies is not None
        snapshot = list(fact_kinds(options.kueue_namespace)) + ([] if options.policies is not None else [POLICIES])
        self._store = SnapshotStore(self._state, log, snapshot)
        self._feed = WorkloadInformer()
        self._shelves = report_stores()
        self._recorder = Recorder(client, log, component="gpugate.io/controller")
        self.elector = Elector(client, options.namespace, options.identity, log, options.terms)
        fence = LeaderOnlyClient(client, self.elector.holds)
        self.gangs = GangObserver(fence, self._state, self._recorder, log)
        self._feed.listeners.append(self.gangs.on_workload)
        self._fact_watchers, self._others = self._watchers(client, snapshot)
        self._usage = self._usage_keeper(options)
        source = AuditSource(
            self._state,
            self._store,
            self._feed,
            self._ready,
            f"the cluster at {client.address}",
            gangs=self.gangs.current,
            remarks=self._remarks,
            team_labels=options.team_labels,
            problems=self._problems,
            readings=self._usage.current if self._usage else lambda: None,
        )
        self.rounds = AuditLoop(source, options.rhythm, log)
        self.keeper = ReportReconciler(fence, self._shelves, log, spacing=options.spacing)
        self.statuses = PolicyStatusReconciler(fence, self._store, self._state, log, tell=teller(self._recorder))
        own = (
            self.gangs.metrics,
            lambda: policy_families(self._store.policies.seen()),
            lambda: usage_families(self.rounds.latest, self._usage),
        )
        self.metrics = ControllerMetrics(self.rounds, self.elector, self.keeper, self.states, client.calls, *own)
        self._state.watched = self.states

    def _usage_keeper(self, options: ControllerOptions) -> UsagePoller | None:
        if options.monitoring is None:
            return None
        return UsagePoller(options.monitoring, lambda: self._state.in_force[1], options.rhythm.interval, self._log)

    def _watchers(self, client: ApiClient, snapshot: Sequence[WatchedKind]) -> tuple[list[Reflector], list[Reflector]]:
        """The watchers of facts, pods among them for the audit as well, and those of all the rest."""
        discovery = Discovery(client)

        def watcher(kind: WatchedKind, sink: Any, strip: Any) -> Reflector:  # noqa: ANN401 - a sink takes what its strip makes
            return Reflector(client, kind, sink, strip=strip, discovery=discovery)

        subjects = {kind.resource: kind for kind in SUBJECT_KINDS}
        pods = subjects.pop("pods")
        watched = []
        for kind in snapshot:
            if kind.resource == "pods":
                both = Tee(self._store, kind, self._feed, pods)
                watched.append(watcher(kind, both, strip_for_both(reducer_for(kind), see)))
            else:
                watched.append(watcher(kind, self._store, reducer_for(kind)))
        others = [watcher(kind, self._feed, see) for kind in subjects.values()]
        others += [watcher(REPORT_KINDS[kind], shelf, stored_of) for kind, shelf in self._shelves.items()]
        return watched, others

    def states(self) -> list[KindState]:
        """The state of every watcher."""
        return [one.state for one in (*self._fact_watchers, *self._others)]

    async def _ready(self) -> None:
        """Wait until all has been read that can be, and is in force."""
        watchers = [*self._fact_watchers, *self._others]
        for _ in range(int(_MOST_PATIENCE / _PATIENCE)):
            unread = await wait_synced(watchers, _PATIENCE)
            if all(one.phase == "forbidden" for one in unread):
                break
            self._log.warning("waiting for what cannot be read yet", resources=[one.resource for one in unread])
        # Facts are published a moment after they were read, the later the larger the cluster: before, an audit knows of nothing.
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._store.wait_synced([one.kind.resource for one in self._fact_watchers if one.state.synced])

    def _remarks(self) -> tuple[str, ...]:
        """What cannot be read, in words."""
        unread = tuple(_unread(one) for one in self.states() if one.error)
        return (*unread, *self._usage.remarks()) if self._usage else unread

    def _problems(self) -> dict[str, str]:
        """Policies of which the newest generation is not in force, or not all of it, and why."""
        return {one.name: f"{one.error} ({one.outcome})" for one in self._store.policies.seen() if one.error}

    def tasks(self) -> dict[str, Duty]:
        """What runs as long as the controller does."""
        return {
            "watchers": lambda: run_all([*self._fact_watchers, *self._others]),
            "states": lambda: look_after(self._fact_watchers, self._store, self._log),
            "rounds": self.rounds.run,
            "events": self._recorder.run,
            "election": lambda: self.elector.run(self._lead),
            **({"usage": self._usage.run} if self._usage else {}),
        }

    async def _lead(self) -> None:
        """Do what only one controller may."""
        async with asyncio.TaskGroup() as group:
            for duty in self._duties():
                group.create_task(duty())

    def _duties(self) -> list[Duty]:
        duties: list[Duty] = [lambda: self.keeper.run(self.rounds), self.gangs.run]
        return duties if self._policies_are_given else [*duties, self.statuses.run, self._tell_statuses]

    async def _tell_statuses(self) -> None:
        """Give the figures of each audit to the status of the policies, as often as reports are looked at."""
        number = -1
        while True:
            audit = await self.rounds.after(number)
            number = self.rounds.done
            self.statuses.audited(sums_by_policy(audit.workloads, self.rounds.whole_at))
            await asyncio.sleep(self._spacing)

    def app(self) -> web.Application:
        """What is served: probes, metrics, and the last audit."""

        async def healthz(_request: web.Request) -> web.Response:
            return web.Response(text="ok\n")

        async def readyz(_request: web.Request) -> web.Response:
            reason = "" if self.rounds.latest is not None else self._state.not_ready or "the first audit is under way"
            lines = [reason or "ok", f"leader {self.elector.leader or 'unknown'}, this is {self.elector.identity}"]
            return web.Response(status=503 if reason else 200, text="\n".join(lines) + "\n")

        async def metrics(_request: web.Request) -> web.Response:
            headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
            return web.Response(body=self.metrics.text(), headers=headers)

        app = web.Application(middlewares=[only_expected(self._hosts)])
        app.router.add_get("/healthz", healthz)
        app.router.add_get("/readyz", readyz)
        app.router.add_get("/metrics", metrics)
        add_page(app, Shown(lambda: self.rounds.latest, self.gangs.current))
        return app


class Shown:
    """The latest audit, with gangs as they stand now: what becomes of them, with time alone, is no cause of another audit."""

    def __init__(self, latest: Callable[[], Audit | None], gangs: Callable[[], Sequence[GangState]]) -> None:
        self._latest = latest
        self._gangs = gangs
        self._audit: Audit | None = None
        self._shown: Audit | None = None

    def __call__(self) -> Audit | None:
        """The very same while nothing has changed, so that its page is not made anew; None before the first audit."""
        audit = self._latest()
        if audit is None:
            return None
        gangs = tuple(self._gangs())
        if self._shown is None or self._audit is not audit or self._shown.gangs != gangs:
            self._audit, self._shown = audit, replace(audit, gangs=gangs)
        return self._shown


def _unread(one: KindState) -> str:
    if one.synced:
        return f"{one.resource} cannot be read any more, and are shown as they last were: {one.error}"
    return f"{one.resource} cannot be read: {one.error}"
