"""Asking Prometheus: addresses, credentials, and answers of every kind, each wrong one an error of one line."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gpugate.webhook.prometheus import client as module
from gpugate.webhook.prometheus.client import Address, Prometheus, PrometheusError, QueryError, address_of
from gpugate.webhook.runtime.errors import InputError

pytestmark = pytest.mark.asyncio
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answering(result: Any, *, status: int = 200) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        body = result if isinstance(result, bytes) else orjson.dumps(result)
        return web.Response(status=status, body=body)

    return answer


def vector(*rows: tuple[dict[str, str], str]) -> dict[str, Any]:
    return {
        "status": "success",
        "data": {"resultType": "vector", "result": [{"metric": one, "value": [1.0, two]} for one, two in rows]},
    }


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    app.router.add_post("/prom/api/v1/query", answer)
    server = TestServer(app)
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


async def asked(answer: Answer, *, seconds: float = 10.0, **address: Any) -> Any:
    async with served(answer) as url, Prometheus(Address(url, **address), seconds) as prometheus:
        return await prometheus.query("up", 12.5)


async def test_values_that_no_card_could_have_are_left_out() -> None:
    rows = [({"a": "1", "b": ""}, "2.5"), ({"a": "2"}, "NaN"), ({"a": "3"}, "+Inf"), ({"a": "4"}, "9223372036854775794")]
    assert await asked(answering(vector(*rows))) == [({"a": "1"}, 2.5)]


async def test_the_query_and_the_time_are_sent_as_a_form() -> None:
    seen: dict[str, str] = {}

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.update({key: str(value) for key, value in (await request.post()).items()})
        return web.json_response(vector())

    assert await asked(answer, seconds=7.0) == []
    assert seen == {"query": "up", "time": "12.500", "timeout": "7s"}


async def test_a_token_is_read_anew_for_each_question_and_a_name_and_password_are_sent(tmp_path: Path) -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response(vector())

    token = tmp_path / "token"
    async with served(answer) as url:
        async with Prometheus(Address(url, token_file=token)) as prometheus:
            for text in ("first\n", "second\n"):
                token.write_text(text)
                await prometheus.query("up", 1)
        async with Prometheus(Address(url, user="me", password="p:w")) as prometheus:  # noqa: S106 - none
            await prometheus.query("up", 1)
    assert seen == ["Bearer first", "Bearer second", f"Basic {base64.b64encode(b'me:p:w').decode()}"]


@pytest.mark.parametrize("content", [None, b"", b"\n", b"two\nlines", b"\xff\xfe"])
async def test_a_token_that_cannot_be_sent_is_an_error_that_names_the_file(tmp_path: Path, content: bytes | None) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    with pytest.raises(PrometheusError, match=str(token)) as caught:
        await asked(answering(vector()), token_file=token)
    assert not isinstance(caught.value, QueryError)


@pytest.mark.parametrize(
    ("answer", "said", "one_query"),
    [
        (answering(b"no", status=401), "refuses: 401 Unauthorized; give --prometheus-token", False),
        (answering(b"no", status=403), "refuses: 403 Forbidden", False),
        (answering(b"not found", status=404), "answers 404 Not Found: is this the address of Prometheus itself?", False),
        (answering(b"<html>", status=200), "does not answer with JSON of Prometheus", False),
        (answering([1]), "does not answer with JSON of Prometheus", False),
        (answering(b"busy", status=503), "answers 503 Service Unavailable", True),
        (answering(b"odd", status=599), "answers 599", True),
        (answering({"status": "error", "errorType": "timeout", "error": "query timed out"}, status=503), "query timed out", True),
        (answering({"status": "error", "error": "x" * 999}, status=422), "does not answer a query: " + "x" * 300, True),
        (answering({"status": "success", "data": {}}), "answers without a result", False),
        (answering({"status": "success", "data": {"result": "no"}}), "answers without a result", False),
    ],
)
async def test_an_answer_that_is_none_is_one_line(answer: Answer, said: str, one_query: bool) -> None:
    with pytest.raises(PrometheusError) as caught:
        await asked(answer)
    text = str(caught.value)
    assert said in text
    assert "\n" not in text
    assert text.startswith("Prometheus at http://127.0.0.1:")
    assert isinstance(caught.value, QueryError) is one_query


async def test_odd_rows_are_left_out() -> None:
    odd = [
        1,
        None,
        {},
        {"metric": {}},
        {"metric": 3, "value": [1, "2"]},
        {"metric": {}, "value": []},
        {"metric": {}, "value": [1, "x"]},
    ]
    assert await asked(answering({"status": "success", "data": {"result": odd}})) == []


async def test_a_silent_prometheus_costs_its_patience_and_no_more() -> None:
    silent = asyncio.Event()

    async def answer(_request: web.Request) -> web.StreamResponse:
        await silent.wait()
        return web.Response()

    try:
        with pytest.raises(QueryError, match=r"did not answer within 0\.2 s"):
            await asked(answer, seconds=0.2)
    finally:
        silent.set()


async def test_questions_wait_for_their_turn_and_not_for_their_patience() -> None:
    under_way: list[int] = [0, 0]

    async def answer(_request: web.Request) -> web.StreamResponse:
        under_way[0] += 1
        under_way[1] = max(under_way)
        await asyncio.sleep(0.05)
        under_way[0] -= 1
        return web.json_response(vector())

    async with served(answer) as url, Prometheus(Address(url), 0.5) as prometheus, asyncio.timeout(30):
        assert await asyncio.gather(*(prometheus.query("up", 1) for _ in range(60))) == [[]] * 60
    assert under_way[1] <= 4


async def test_what_is_too_large_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    with pytest.raises(QueryError, match="answers with more than 1 MiB: select fewer with --prometheus-matcher"):
        await asked(answering(b" " * (2 << 20)))
    monkeypatch.setattr(module, "MOST_SERIES", 2)
    with pytest.raises(QueryError, match="answers with 3 series, more than 2"):
        await asked(answering(vector(*[({"a": str(at)}, "1") for at in range(3)])))


async def test_a_redirect_is_not_followed_with_the_token(tmp_path: Path) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("http://elsewhere.example.com/")

    token = tmp_path / "token"
    token.write_text("secret")
    with pytest.raises(PrometheusError, match="answers 302 Found"):
        await asked(answer, token_file=token)


async def test_certificates_that_are_none_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    for content in (None, "no certificate"):
        file = tmp_path / f"ca-{content is None}"
        if content:
            file.write_text(content)
        with pytest.raises(PrometheusError, match=f"{file} contains no certificates"):
            await asked(answering(vector()), ca_file=file)


async def test_an_address_keeps_its_path_and_hides_its_password() -> None:
    found = address_of("https://me:p%40ss@prometheus.example.com:9090/prom/")
    assert (found.url, found.user, found.password) == ("https://prometheus.example.com:9090/prom", "me", "p@ss")
    assert "p@ss" not in repr(found)
    assert address_of("http://[::1]:9090").url == "http://[::1]:9090"
    async with served(answering(vector())) as url, Prometheus(address_of(f"{url}/prom")) as prometheus:
        assert await prometheus.query("up", 1) == []


@pytest.mark.parametrize(
    "bad", ["", "prometheus:9090", "ftp://h", "http://", "http://h:x", "http://h/?a=1", "http://h/#a", "http://[::1"]
)
async def test_what_is_no_address_is_said_so_without_repeating_what_may_be_a_secret(bad: str) -> None:
    with pytest.raises(InputError, match="invalid address; write http://HOST:PORT"):
        address_of(bad)


@pytest.mark.parametrize("bad", ["cluster", "cluster=a", 'cluster="a"} or up{', 'a="b\n"', '="x"', 'a="b" ,c="d"'])
async def test_what_is_no_matcher_cannot_change_the_query(bad: str) -> None:
    with pytest.raises(InputError, match="is not a matcher"):
        address_of("http://h", matchers=(bad,))


async def test_matchers_of_every_sort_are_taken() -> None:
    matchers = ('cluster="a"', 'a!="b"', 'a=~"x|y"', 'a!~"\\"z\\\\"')
    assert address_of("http://h", matchers=matchers).matchers == matchers


async def test_two_ways_to_say_who_asks_are_one_too_many() -> None:
    with pytest.raises(InputError, match="not both"):
        address_of("http://me:pw@h", token_file=Path("t"))
