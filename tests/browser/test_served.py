"""The page as the controller serves it: the same page, under the policy that comes with the answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web

from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.page.live import add_page
from tests.browser.conftest import Open
from tests.shared import sample_audits


class Served:
    """A server in a thread of its own, whose latest audit a test sets."""

    def __init__(self) -> None:
        self.audit: Audit | None = None
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        assert self._ready.wait(10)

    def _serve(self) -> None:
        async def serve() -> None:
            app = web.Application()
            add_page(app, lambda: self.audit)
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            self._end = asyncio.Event()
            self._ready.set()
            await self._end.wait()
            await runner.cleanup()

        self._loop.run_until_complete(serve())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def served() -> Iterator[Served]:
    server = Served()
    yield server
    server.stop()


def test_the_served_page_filters_and_breaks_no_policy(visit: Open, served: Served) -> None:
    served.audit = sample_audits.realistic()
    page = visit(f"http://127.0.0.1:{served.port}/", fragment="#team=speech")
    wanted = sum(1 for one in served.audit.workloads if one.team == "speech")
    assert (page.locator("#found").text_content() or "").startswith(f"{wanted} of 341 workloads")
    served.audit = sample_audits.empty()
    page.reload()
    assert "No workload requests GPUs" in (page.locator("h1").text_content() or "")
