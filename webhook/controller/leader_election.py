"""Elect one leader among several controllers by a Lease (``coordination.k8s.io/v1``), as Kubernetes' components do.

A Lease may be taken over after its whole duration without renewal, as measured by this controller: clocks of different
machines are never compared. A leader that cannot renew stops writing well before another may start.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.errors import CONFLICT, NOT_FOUND, ApiError, ClusterError
from gpugate.webhook.kube.types import JsonObject
from gpugate.webhook.runtime.log import Log

#: Name of the Lease of gpugate's controllers.
NAME: Final = "gpugate-controller"


@dataclass(frozen=True, slots=True)
class LeaseDurations:
    """Durations of a Lease, in seconds; the defaults of Kubernetes' own components.

    Attributes:
        duration: time without renewal after which another may take over.
        deadline: time without renewal after which the leader stops; less than ``duration``.
        retry: time between two tries.
    """

    duration: int = 15
    deadline: float = 10.0
    retry: float = 2.0


class Elector:
    """Takes part in the election; ``leader`` is the known leader, empty for none."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        identity: str,
        log: Log,
        durations: LeaseDurations | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity
        self.leading = False
        self.leader = ""
        self._client = client
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{NAME}"
        self._log = log
        self._durations = durations or LeaseDurations()
        self._clock = clock
        self._seen: tuple[str, object] = ("", None)
        self._seen_at = float("-inf")
        self._renewed_at = float("-inf")

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Take part until cancelled; run ``lead`` while this controller leads, and cancel it afterwards."""
        work: asyncio.Task[None] | None = None
        try:
            while True:
                await self._try()
                if self.leading and work is None:
                    self._log.info("leading", identity=self.identity)
                    work = asyncio.create_task(lead(), name="lead")
                elif not self.leading and work is not None:
                    self._log.warning("stopped leading", identity=self.identity, leader=self.leader)
                    await _cancel_and_wait(work)
                    if not work.cancelled():
                        work.result()
                    work = None
                await _pause(self._durations.retry, work)
        finally:
            if work is not None:
                await _cancel_and_wait(work)
            await self._release()

    def holds(self) -> bool:
        """Return whether no other controller can lead now: the Lease was renewed in time."""
        return self.leading and self._clock() - self._renewed_at < self._durations.deadline

    async def _try(self) -> None:
        sent_at = self._clock()
        left = self._durations.deadline - (sent_at - self._renewed_at) if self.leading else self._durations.deadline
        try:
            async with asyncio.timeout(max(0.0, left)):
                won = await self._take()
        except (ClusterError, TimeoutError) as error:
            self._log.warning("cannot read or renew the Lease", error=str(error) or type(error).__name__)
            won = self.holds()
        else:
            if won:
                # Others count from the change of the Lease, which may be long before the answer.
                self._renewed_at = sent_at
        self.leading = won

    async def _take(self) -> bool:
        sent_at = self._clock()
        try:
            lease = await self._client.get(self._path)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return await self._create()
        spec = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        self.leader = holder
        now = (holder, spec.get("renewTime"))
        if now != self._seen:
            self._seen, self._seen_at = now, self._clock()  # latest possible time of the change
        duration = spec.get("leaseDurationSeconds")
        held = sent_at - self._seen_at < (duration if type(duration) is int else self._durations.duration)
        if holder and holder != self.identity and held:
            return False
        return await self._write(self._client.replace(self._path, {**lease, "spec": self._spec(spec, holder)}))

    async def _create(self) -> bool:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": "gpugate"}},
            "spec": self._spec({}, ""),
        }
        return await self._write(self._client.create(self._collection, lease))

    async def _write(self, call: Awaitable[JsonObject]) -> bool:
        try:
            await call
        except ApiError as error:
            # Another controller was faster. A leader retries: only a label of the Lease may have changed.
            if error.status != CONFLICT or self.leading:
                raise
            return False
        self.leader = self.identity
        return True

    def _spec(self, before: JsonObject, holder: str) -> JsonObject:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = holder == self.identity
        transitions = before.get("leaseTransitions")
        count = transitions if type(transitions) is int else 0
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._durations.duration,
            "acquireTime": before.get("acquireTime") or now if mine else now,
            "renewTime": now,
            "leaseTransitions": count if mine or not before else count + 1,
        }

    async def _release(self) -> None:
        """Release the Lease, so that another controller can lead at once."""
        if not self.leading:
            return
        self.leading = False
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(self._durations.retry):
                lease = await self._client.get(self._path)
                spec = lease.get("spec") or {}
                if spec.get("holderIdentity") == self.identity:
                    released = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._client.replace(self._path, {**lease, "spec": released})


async def _cancel_and_wait(work: asyncio.Task[None]) -> None:
    """Cancel ``work`` and wait for its end; a cancellation of the caller is passed on."""
    work.cancel()
    await asyncio.wait([work])


async def _pause(seconds: float, work: asyncio.Task[None] | None) -> None:
    """Wait; raise if the tasks of the leader end by themselves, which is a defect."""
    if work is None:
        await asyncio.sleep(seconds)
        return
    done, _ = await asyncio.wait([work], timeout=seconds)
    for task in done:
        task.result()
        message = "the tasks of the leader ended unexpectedly"
        raise RuntimeError(message)


class NotLeadingError(ClusterError):
    """A write was blocked: another controller may lead."""


class LeaderOnlyClient:
    """An API client that refuses to write unless ``leads`` returns true: writes raise NotLeadingError.

    A process that was frozen (a paused machine) continues its work long after another controller took over, and before it checks
    its Lease: so the Lease's time is checked before each write.
    """

    def __init__(self, api: ApiClient, leads: Callable[[], bool]) -> None:
        self.get, self.list, self.served = api.get, api.list, api.served
        self._api = api
        self._leads = leads

    async def create(self, path: str, item: JsonObject) -> JsonObject:
        """Create an object in the collection at `path`."""
        return await self._leading().create(path, item)

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """Merge `patch` into the object at `path`."""
        return await self._leading().patch(path, patch)

    async def delete(self, path: str, *, uid: str = "") -> None:
        """Delete the object at `path`, with a `uid` only that one."""
        await self._leading().delete(path, uid=uid)

    def _leading(self) -> ApiClient:
        if not self._leads():
            message = "the Lease was not renewed in time: another controller may lead by now"
            raise NotLeadingError(message)
        return self._api
