"""Who leads: one of several controllers, by a Lease (``coordination.k8s.io/v1``) as the components of Kubernetes hold theirs.

A Lease is taken over when nobody has renewed it for its whole duration, as this controller itself has seen it: clocks of
different machines are never compared. Who cannot renew stops writing well before another may begin.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeAlias

from gpugate.webhook.kube.types import CONFLICT, NOT_FOUND, ApiError, ClusterError
from gpugate.webhook.runtime.log import Log

JsonObject: TypeAlias = dict[str, Any]

#: What every Lease of gpugate's controllers is called.
NAME: Final = "gpugate-controller"


class LeaseApi(Protocol):
    """What an elector needs of an apiserver."""

    async def get(self, path: str) -> JsonObject:
        """Return the object at ``path``."""

    async def create(self, path: str, item: JsonObject) -> JsonObject:
        """Create an object in the collection at ``path``."""

    async def replace(self, path: str, item: JsonObject) -> JsonObject:
        """Put ``item`` in place of the object at ``path``."""


@dataclass(frozen=True, slots=True)
class LeaseDurations:
    """How long a Lease holds, in seconds; the defaults of Kubernetes' own components.

    Attributes:
        duration: after which a Lease that nobody renews may be taken over.
        deadline: after which a leader that could not renew stops to lead; less than ``duration``.
        retry: between two tries.
    """

    duration: int = 15
    deadline: float = 10.0
    retry: float = 2.0


class Elector:
    """Takes part in the election, and leads while elected.

    Attributes:
        identity: the name of this controller among the others.
        leading: whether it leads.
        leader: who leads, as far as is known; empty for nobody.
    """

    def __init__(
        self,
        client: LeaseApi,
        namespace: str,
        identity: str,
        log: Log,
        terms: LeaseDurations | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity
        self.leading = False
        self.leader = ""
        self._client = client
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{NAME}"
        self._log = log
        self._terms = terms or LeaseDurations()
        self._clock = clock
        self._seen: tuple[str, object] = ("", None)
        self._seen_at = float("-inf")
        self._renewed_at = float("-inf")

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Take part until cancelled: ``lead`` runs while this controller leads, and is cancelled when it does no longer."""
        work: asyncio.Task[None] | None = None
        try:
            while True:
                await self._try()
                if self.leading and work is None:
                    self._log.info("leading", identity=self.identity)
                    work = asyncio.create_task(lead(), name="lead")
                elif not self.leading and work is not None:
                    self._log.warning("leading no longer", identity=self.identity, leader=self.leader)
                    await _ended(work)
                    if not work.cancelled():
                        work.result()
                    work = None
                await _pause(self._terms.retry, work)
        finally:
            if work is not None:
                await _ended(work)
            await self._release()

    def holds(self) -> bool:
        """Whether nobody else can lead at this moment: the Lease was renewed within its time."""
        return self.leading and self._clock() - self._renewed_at < self._terms.deadline

    async def _try(self) -> None:
        """Take or renew the Lease, if it is to be had."""
        asked_at = self._clock()
        left = self._terms.deadline - (asked_at - self._renewed_at) if self.leading else self._terms.deadline
        try:
            async with asyncio.timeout(max(0.0, left)):
                won = await self._take()
        except (ClusterError, TimeoutError) as error:
            self._log.warning("the lease could not be asked for", error=str(error) or type(error).__name__)
            won = self.holds()
        else:
            if won:
                # Others count from when the Lease changed, which an answer that is late comes long after.
                self._renewed_at = asked_at
        self.leading = won

    async def _take(self) -> bool:
        asked_at = self._clock()
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
            self._seen, self._seen_at = now, self._clock()  # it may have changed as late as that
        lasts = spec.get("leaseDurationSeconds")
        held = asked_at - self._seen_at < (lasts if type(lasts) is int else self._terms.duration)
        if holder and holder != self.identity and held:
            return False
        return await self._replace(lease, spec, holder)

    async def _create(self) -> bool:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": "gpugate"}},
            "spec": self._spec({}, ""),
        }
        return await self._written(self._client.create(self._collection, lease))

    async def _replace(self, lease: JsonObject, spec: JsonObject, holder: str) -> bool:
        return await self._written(self._client.replace(self._path, {**lease, "spec": self._spec(spec, holder)}))

    async def _written(self, writing: Awaitable[JsonObject]) -> bool:
        try:
            await writing
        except ApiError as error:
            # Another was quicker. Who leads asks again: somebody may have put a label on the Lease, no more.
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
            "leaseDurationSeconds": self._terms.duration,
            "acquireTime": before.get("acquireTime") or now if mine else now,
            "renewTime": now,
            "leaseTransitions": count if mine or not before else count + 1,
        }

    async def _release(self) -> None:
        """Let another lead at once, where this controller goes in order."""
        if not self.leading:
            return
        self.leading = False
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(self._terms.retry):
                lease = await self._client.get(self._path)
                spec = lease.get("spec") or {}
                if spec.get("holderIdentity") == self.identity:
                    await self._client.replace(
                        self._path, {**lease, "spec": {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}}
                    )


async def _ended(work: asyncio.Task[None]) -> None:
    """Cancel ``work`` and wait until it is over, however it ends; who is cancelled meanwhile hears of it."""
    work.cancel()
    await asyncio.wait([work])


async def _pause(seconds: float, work: asyncio.Task[None] | None) -> None:
    """Wait; where the work ends by itself, that is a mistake, and for the program to hear."""
    if work is None:
        await asyncio.sleep(seconds)
        return
    done, _ = await asyncio.wait([work], timeout=seconds)
    for task in done:
        task.result()
        message = "what is done by the leader alone has ended, and should not"
        raise RuntimeError(message)
