"""The page, served: its headers, what browsers keep, and that making it holds up nobody."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator

import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.output.json import as_json
from gpugate.webhook.audit.page import live
from gpugate.webhook.audit.page.render import content_security_policy, render
from tests.shared import sample_audits

PLAIN = {"Accept-Encoding": "identity"}


class Latest:
    """The latest audit, as a controller would have it."""

    def __init__(self) -> None:
        self.audit: Audit | None = sample_audits.realistic(20)

    def __call__(self) -> Audit | None:
        return self.audit


def page_app(latest: live.Latest) -> web.Application:
    app = web.Application()
    live.add_page(app, latest)
    return app


@pytest.fixture
def latest() -> Latest:
    return Latest()


@pytest_asyncio.fixture
async def client(latest: Latest) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(page_app(latest)), auto_decompress=False) as client:
        yield client


@pytest.mark.asyncio
async def test_the_page_and_the_json_are_those_of_the_latest_audit(client: TestClient, latest: Latest) -> None:
    assert latest.audit
    page, document = await client.get("/", headers=PLAIN), await client.get("/audit.json", headers=PLAIN)
    assert (await page.read(), page.content_type, page.charset) == (render(latest.audit), "text/html", "utf-8")
    assert (await document.read(), document.content_type) == (as_json(latest.audit), "application/json")
    latest.audit = sample_audits.realistic(21)
    assert await (await client.get("/", headers=PLAIN)).read() == render(latest.audit)


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/", "/audit.json"])
async def test_every_answer_tells_the_browser_to_be_strict(client: TestClient, latest: Latest, path: str) -> None:
    for _ in range(2):
        answer = await client.get(path)
        headers = answer.headers
        assert headers["Content-Security-Policy"] == f"{content_security_policy()}; frame-ancestors 'none'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "no-cache" in headers["Cache-Control"] or "no-store" in headers["Cache-Control"]
        latest.audit = None
    assert answer.status == 503


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [("gzip, br", True), ("*", True), ("br;q=1, gzip;q=0.5", True), ("gzip;q=0", False), ("gzip;q=0.000", False), ("br", False)],
)
async def test_the_page_is_compressed_for_those_who_take_it(
    client: TestClient, latest: Latest, accepted: str, compressed: bool
) -> None:
    assert latest.audit
    answer = await client.get("/", headers={"Accept-Encoding": accepted})
    body = await answer.read()
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert (answer.headers.get("Content-Encoding") == "gzip") is compressed
    assert (gzip.decompress(body) if compressed else body) == render(latest.audit)


@pytest.mark.asyncio
async def test_a_browser_that_has_the_page_is_told_so_until_there_is_a_newer_one(client: TestClient, latest: Latest) -> None:
    tag = (await client.get("/")).headers["ETag"]
    for known in (tag, f'W/{tag}, "other"', "*"):
        answer = await client.get("/", headers={"If-None-Match": known})
        assert (answer.status, await answer.read(), answer.headers["ETag"]) == (304, b"", tag)
    assert (await client.get("/", headers={"If-None-Match": '"other"'})).status == 200
    latest.audit = sample_audits.realistic(21)
    answer = await client.get("/", headers={"If-None-Match": tag})
    assert answer.status == 200
    assert answer.headers["ETag"] != tag


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/", "/audit.json"])
async def test_nothing_but_reading_is_allowed(client: TestClient, path: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = await client.request(method, path)
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET,HEAD"
    head = await client.head(path)
    assert (head.status, await head.read()) == (200, b"")


@pytest.mark.asyncio
async def test_before_the_first_audit_a_page_says_so_and_loads_itself_again(client: TestClient, latest: Latest) -> None:
    latest.audit = None
    answer = await client.get("/")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "10")
    assert '<meta http-equiv="refresh" content="10">' in await answer.text()
    document = await client.get("/audit.json")
    assert (document.status, orjson.loads(await document.read())) == (503, {"error": "the first audit is running"})


@pytest.mark.asyncio
async def test_an_audit_is_rendered_once_for_all_who_ask_and_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    begun, may_end = threading.Event(), threading.Event()

    def slow(audit: Audit) -> bytes:
        made.append(threading.get_ident())
        begun.set()
        assert may_end.wait(10)
        return render(audit)

    monkeypatch.setattr(live, "render", slow)
    async with TestClient(TestServer(page_app(Latest()))) as client:
        asking = [asyncio.create_task(client.get("/")) for _ in range(5)]
        assert await asyncio.to_thread(begun.wait, 10)
        # The page is being made, and other requests are answered.
        assert (await client.get("/audit.json")).status == 200
        assert not any(one.done() for one in asking)
        may_end.set()
        assert [one.status for one in await asyncio.gather(*asking)] == 5 * [200]
    assert len(made) == 1
    assert made[0] != threading.get_ident()
