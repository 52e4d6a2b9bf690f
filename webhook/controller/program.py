"""`gpugate controller`: watch, audit, and write while leading."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from gpugate.policies.gangs.status import GangState
from gpugate.policies.policy.models import Policy
from gpugate.webhook.audit.evaluate import TEAM_LABELS
from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.page.live import add_page, only_expected
from gpugate.webhook.audit.subjects import SUBJECT_KINDS
from gpugate.webhook.audit.totals import totals_by_policy
from gpugate.webhook.cache.health import fact_families, monitor_watches, policy_families
from gpugate.webhook.cache.kinds import KUEUE_NAMESPACE, POLICIES, fact_kinds, reducer_for
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.controller.audit_loop import AuditLoop, AuditSchedule, AuditSource
from gpugate.webhook.controller.gangs import GangObserver
from gpugate.webhook.controller.informers import Tee, WorkloadInformer, observe_workload, strip_for_both
from gpugate.webhook.controller.leader_election import Elector, LeaderOnlyClient, LeaseDurations
from gpugate.webhook.controller.metrics import Families, audit_families, gang_families, usage_families, write_families
from gpugate.webhook.controller.policy_status import PolicyStatusReconciler
from gpugate.webhook.controller.reports import REPORT_KINDS, ReportReconciler, report_stores, stored_of
from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.events import Recorder
from gpugate.webhook.kube.kubeconfig import connect
from gpugate.webhook.kube.lister import Discovery
from gpugate.webhook.kube.reflector import Reflector, run_all, wait_synced
from gpugate.webhook.kube.types import KindState, WatchedKind
from gpugate.webhook.prometheus.client import Address
from gpugate.webhook.prometheus.poller import UsagePoller
from gpugate.webhook.runtime.lifecycle import cancelled, listen, until_signal
from gpugate.webhook.runtime.log import Log

#: Seconds that the first audit waits for forbidden kinds, and for kinds that fail otherwise: an audit without these
#: would delete existing reports.
_SYNC_SECONDS: Final = 30.0
_LONGEST_SYNC_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Options of the controller; `gpugate controller --help` describes those of the same name.

    Attributes:
        policies: policies from files; None watches GPUPolicies instead.
        spacing: seconds between two reconciliations of the reports.
        hosts: host names of the page beside those of the cluster.
    """

    host: str
    port: int
    namespace: str
    identity: str
    kubeconfig: Path | None = None
    context: str | None = None
    policies: Sequence[Policy] | None = None
    kueue_namespace: str = KUEUE_NAMESPACE
    durations: LeaseDurations = field(default_factory=LeaseDurations)
    schedule: AuditSchedule = field(default_factory=AuditSchedule)
    spacing: float = 5.0
    team_labels: tuple[str, ...] = TEAM_LABELS
    hosts: tuple[str, ...] = ()
    monitoring: Address | None = None


async def run(options: ControllerOptions, log: Log) -> None:
    """Run until SIGTERM or SIGINT, then shut down in order.

    Raises:
        InputError: the address cannot be bound.
        ClusterConfigError: the kubeconfig is missing or invalid.
    """
    client = await connect(options.kubeconfig, options.context)
    controller = _Controller(options, client, log)
    runner = web.AppRunner(controller.app(), access_log=None, handle_signals=False)
    tasks: list[asyncio.Task[None]] = []
    try:
        await listen(runner, options.host, options.port, log)
        tasks = [asyncio.create_task(task(), name=name) for name, task in controller.tasks().items()]
        await until_signal(tasks)
    finally:
        await runner.cleanup()
        await cancelled(tasks)
        await client.close()
        log.info("stopped")
        log.flush()


class _Controller:
    def __init__(self, options: ControllerOptions, client: ApiClient, log: Log) -> None:
        self._log = log
        self._state = CurrentState(policies=options.policies or ())
        self._spacing = options.spacing
        self._hosts = options.hosts
        self._policies_are_given = options.policies is not None
        kinds = list(fact_kinds(options.kueue_namespace)) + ([] if self._policies_are_given else [POLICIES])
        self._store = SnapshotStore(self._state, log, kinds)
        self._informer = WorkloadInformer()
        self._report_stores = report_stores()
        self._recorder = Recorder(client, log, component="gpugate.io/controller")
        self.elector = Elector(client, options.namespace, options.identity, log, options.durations)
        leader_client = LeaderOnlyClient(client, self.elector.holds)
        self.gangs = GangObserver(leader_client, self._state, self._recorder, log)
        self._informer.listeners.append(self.gangs.on_workload)
        self._fact_watchers, self._others = self._watchers(client, kinds)
        self._usage: UsagePoller | None = None
        if options.monitoring is not None:
            self._usage = UsagePoller(options.monitoring, lambda: self._state.in_force[1], options.schedule.interval, log)
        source = AuditSource(
            self._state,
            self._store,
            self._informer,
            self._ready,
            f"the cluster at {client.address}",
            gangs=self.gangs.current,
            remarks=self._remarks,
            team_labels=options.team_labels,
            problems=self._problems,
            readings=self._usage.current if self._usage else lambda: None,
        )
        self.audit_loop = AuditLoop(source, options.schedule, log)
        self.reports = ReportReconciler(leader_client, self._report_stores, log, spacing=options.spacing)
        self.statuses = PolicyStatusReconciler(leader_client, self._store, self._state, log, events=self._recorder)
        self.metrics = Families(
            lambda: chain(
                audit_families(self.audit_loop),
                write_families(self.elector, self.reports.written, client.calls),
                gang_families(self.gangs),
                policy_families(self._store.policies.seen()),
                usage_families(self.audit_loop.latest, self._usage),
                fact_families(self.states()),
            )
        )
        self._state.watched = self.states

    def _watchers(self, client: ApiClient, kinds: Sequence[WatchedKind]) -> tuple[list[Reflector], list[Reflector]]:
        """Return the watchers of the snapshot's ``kinds`` (pods are shared with the audit), and those of all other kinds."""
        discovery = Discovery(client)

        def watcher(kind: WatchedKind, sink: Any, strip: Any) -> Reflector:  # noqa: ANN401 - a sink takes what its strip makes
            return Reflector(client, kind, sink, strip=strip, discovery=discovery)

        subjects = {kind.resource: kind for kind in SUBJECT_KINDS}
        pods = subjects.pop("pods")
        facts = []
        for kind in kinds:
            if kind.resource == "pods":
                both = Tee(self._store, kind, self._informer, pods)
                facts.append(watcher(kind, both, strip_for_both(reducer_for(kind), observe_workload)))
            else:
                facts.append(watcher(kind, self._store, reducer_for(kind)))
        others = [watcher(kind, self._informer, observe_workload) for kind in subjects.values()]
        others += [watcher(REPORT_KINDS[kind], store, stored_of) for kind, store in self._report_stores.items()]
        return facts, others

    def states(self) -> list[KindState]:
        """Return the state of every watcher."""
        return [watcher.state for watcher in (*self._fact_watchers, *self._others)]

    async def _ready(self) -> None:
        """Wait until everything readable is read and in force."""
        watchers = [*self._fact_watchers, *self._others]
        for _ in range(int(_LONGEST_SYNC_SECONDS / _SYNC_SECONDS)):
            unread = await wait_synced(watchers, _SYNC_SECONDS)
            if all(state.phase == "forbidden" for state in unread):
                break
            self._log.warning("waiting for resources that cannot be read yet", resources=[state.resource for state in unread])
        # Snapshots are published shortly after reading, later in a larger cluster: an earlier audit would be empty.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SYNC_SECONDS):
                synced = [watcher.kind.resource for watcher in self._fact_watchers if watcher.state.synced]
                await self._store.wait_synced(synced)

    def _remarks(self) -> tuple[str, ...]:
        unread = tuple(_unread(state) for state in self.states() if state.error)
        return (*unread, *self._usage.remarks()) if self._usage else unread

    def _problems(self) -> dict[str, str]:
        """Return the policies whose newest generation is not fully in force, and why."""
        return {policy.name: f"{policy.error} ({policy.outcome})" for policy in self._store.policies.seen() if policy.error}

    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Return the tasks that run as long as the controller."""
        return {
            "watchers": lambda: run_all([*self._fact_watchers, *self._others]),
            "states": lambda: monitor_watches(self._fact_watchers, self._store, self._log),
            "rounds": self.audit_loop.run,
            "events": self._recorder.run,
            "election": lambda: self.elector.run(self._lead),
            **({"usage": self._usage.run} if self._usage else {}),
        }

    async def _lead(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reports.run(self.audit_loop))
            group.create_task(self.gangs.run())
            if not self._policies_are_given:
                group.create_task(self.statuses.run())
                group.create_task(self._update_statuses())

    async def _update_statuses(self) -> None:
        """Pass the totals of each audit to the policy statuses, at the interval of the reports."""
        number = -1
        while True:
            audit = await self.audit_loop.after(number)
            number = self.audit_loop.done
            self.statuses.audited(totals_by_policy(audit.workloads, self.audit_loop.full_at))
            await asyncio.sleep(self._spacing)

    def app(self) -> web.Application:
        """Return the HTTP application: probes, metrics, and the last audit."""

        async def healthz(_request: web.Request) -> web.Response:
            return web.Response(text="ok\n")

        async def readyz(_request: web.Request) -> web.Response:
            reason = "" if self.audit_loop.latest is not None else self._state.not_ready or "the first audit is running"
            text = f"{reason or 'ok'}\nleader {self.elector.leader or 'unknown'}, this is {self.elector.identity}\n"
            return web.Response(status=503 if reason else 200, text=text)

        async def metrics(_request: web.Request) -> web.Response:
            headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
            return web.Response(body=self.metrics.text(), headers=headers)

        app = web.Application(middlewares=[only_expected(self._hosts)])
        app.router.add_get("/healthz", healthz)
        app.router.add_get("/readyz", readyz)
        app.router.add_get("/metrics", metrics)
        add_page(app, LatestAudit(lambda: self.audit_loop.latest, self.gangs.current))
        return app


class LatestAudit:
    """The latest audit with the current gang states, which change with time without another audit."""

    def __init__(self, latest: Callable[[], Audit | None], gangs: Callable[[], Sequence[GangState]]) -> None:
        self._latest = latest
        self._gangs = gangs
        self._audit: Audit | None = None
        self._current: Audit | None = None

    def __call__(self) -> Audit | None:
        """Return the same object until something changes, so that its page is rendered once; None before the first audit."""
        audit = self._latest()
        if audit is None:
            return None
        gangs = tuple(self._gangs())
        if self._current is None or self._audit is not audit or self._current.gangs != gangs:
            self._audit, self._current = audit, replace(audit, gangs=gangs)
        return self._current


def _unread(state: KindState) -> str:
    if state.synced:
        return f"{state.resource} cannot be read any more, their last known state is shown: {state.error}"
    return f"{state.resource} cannot be read: {state.error}"
