"""No write leaves a controller that another may have replaced, however long it stood still."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from gpugate.webhook.controller.leader_election import Elector, LeaderOnlyClient, LeaseDurations, NotLeadingError
from gpugate.webhook.kube.errors import ApiError
from gpugate.webhook.runtime.log import Log

Object = dict[str, Any]
pytestmark = pytest.mark.asyncio
_REPORT = "/apis/wgpolicyk8s.io/v1alpha2/namespaces/team-a/policyreports/gpugate"


class _Server:
    """An apiserver with one Lease, on a clock that only its own slowness and the tests move."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lease: Object | None = None
        self.reading = self.writing = 0.0
        self.writes: list[str] = []

    async def get(self, path: str) -> Object:
        if self.lease is None:
            raise ApiError(404, "NotFound", path)
        found = self.lease
        self.now += self.reading
        return found

    async def list(self, path: str, *, limit: int, field_selector: str | None = None) -> Object:  # noqa: ARG002
        return {"items": []}

    async def served(self, group: str, version: str, plural: str) -> bool:  # noqa: ARG002
        return True

    async def create(self, path: str, item: Object) -> Object:
        if not path.endswith("/leases"):
            self.writes.append(f"create {path}")
            return item
        return await self.replace(path, item)

    async def replace(self, _path: str, item: Object) -> Object:
        self.lease = item
        self.now += self.writing
        return item

    async def patch(self, path: str, patch: Object) -> Object:
        self.writes.append(f"patch {path}")
        return patch

    async def delete(self, path: str, *, uid: str = "") -> None:  # noqa: ARG002
        self.writes.append(f"delete {path}")


def _elector(server: _Server, name: str = "one") -> Elector:
    terms = LeaseDurations(duration=15, deadline=10.0, retry=0.0)
    return Elector(server, "gpugate-system", name, Log(io.StringIO()), terms, clock=lambda: server.now)


async def _turns(elector: Elector, number: int = 3) -> None:
    """Let the elector look at the Lease a few times, and end without giving it back."""

    async def lead() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(elector.run(lead))
    for _ in range(number):
        await asyncio.sleep(0)
    leading = elector.leading
    elector.leading = False  # else it hands the Lease over
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    elector.leading = leading


async def test_a_leader_that_stood_still_writes_nothing_when_it_goes_on() -> None:
    server = _Server()
    elector = _elector(server)
    fence = LeaderOnlyClient(server, elector.holds)
    await _turns(elector)
    await fence.patch(_REPORT, {})
    assert server.writes == [f"patch {_REPORT}"]
    server.now += 10.0
    assert elector.leading, "it has not looked at its Lease since"
    for write in (fence.create(_REPORT, {}), fence.patch(_REPORT, {}), fence.delete(_REPORT)):
        with pytest.raises(NotLeadingError, match="another controller may lead by now"):
            await write
    assert len(server.writes) == 1
    assert await fence.list("/api/v1/events", limit=1) == {"items": []}, "whoever does not lead may read"


async def test_a_lease_holds_from_when_it_was_asked_for_not_from_when_the_answer_came() -> None:
    server = _Server()
    server.writing = 9.0
    elector = _elector(server)
    await _turns(elector, 1)
    assert elector.holds()
    server.now += 1.0
    assert not elector.holds(), "others count from when the apiserver wrote it, which may be nine seconds before the answer"


async def test_whoever_waits_counts_from_when_the_lease_was_read() -> None:
    server = _Server()
    first, second = _elector(server), _elector(server, "two")
    await _turns(first, 1)
    server.reading = 9.0
    await _turns(second, 1)
    server.reading = 0.0
    server.now += 14.9
    await _turns(second, 1)
    assert not second.leading, "the Lease may have been renewed just before the slow answer was made"
    server.now += 0.2
    await _turns(second, 1)
    assert second.leading
