"""The page answers to names that are its own."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gpugate.webhook.audit.page.live import is_expected, only_expected


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8080",
        "10.0.3.7",
        "[::1]:8080",
        "fd00::7",
        "localhost",
        "LOCALHOST:8080",
        "gpugate-controller.gpugate-system.svc",
        "gpugate-controller.gpugate-system.svc.cluster.local:80",
        "audit.example.com",
        "audit.example.com.:443",
    ],
)
def test_addresses_this_machine_the_service_and_allowed_names_are_expected(host: str) -> None:
    assert is_expected(host, {"audit.example.com"})


@pytest.mark.parametrize("host", ["evil.example.com", "localhost.evil.example.com", "127.0.0.1.evil.example.com:8080", "", "svc"])
def test_other_names_are_not(host: str) -> None:
    assert not is_expected(host, {"audit.example.com"})


@pytest.mark.asyncio
async def test_a_request_that_names_another_host_reads_nothing_and_says_what_to_do() -> None:
    async def secret(_request: web.Request) -> web.Response:
        return web.Response(text="what every team runs")

    app = web.Application(middlewares=[only_expected(["Audit.example.com"])])
    app.router.add_get("/", secret)
    async with TestClient(TestServer(app)) as client:
        refused = await client.get("/", headers={"Host": "evil.example.com"})
        assert refused.status == 421
        assert "--allow-host" in await refused.text()
        for host in ("audit.example.com", "127.0.0.1"):
            assert (await client.get("/", headers={"Host": host})).status == 200
        assert (await client.get("/")).status == 200
