"""A serving certificate that is exchanged on disk is used for new connections; one that does not load is not."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from cryptography import x509

from gpugate.certs.issue import KeyPair, issue_ca, issue_serving
from gpugate.webhook.admission import tls
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.runtime.log import Log

_NOW = datetime.now(UTC)
_CA = issue_ca(_NOW)
_PATIENCE = 10.0


def pair() -> KeyPair:
    return issue_serving(_CA, ["localhost"], _NOW)


def number(one: KeyPair) -> int:
    return x509.load_pem_x509_certificate(one.certificate_pem).serial_number


def put(directory: Path, certificate: KeyPair, key: KeyPair | None = None) -> None:
    """Exchange both files as a mounted Secret is: new files in the place of the old."""
    for name, content in (("tls.crt", certificate.certificate_pem), ("tls.key", (key or certificate).key_pem)):
        (directory / f"new-{name}").write_bytes(content)
        (directory / f"new-{name}").replace(directory / name)


class Told(io.StringIO):
    """A stream that tells when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text: str, /) -> int:
        self.written.set()
        return super().write(text)


class Exchanging:
    """A TLS server whose certificate is watched."""

    def __init__(self, directory: Path) -> None:
        self.stream = Told()
        self.metrics = Metrics()
        self.log = Log(self.stream)
        self.files = (directory / "tls.crt", directory / "tls.key")
        self.context = tls.make_context(*self.files, tls_1_2=False, client_ca=None)
        self.port = 0

    async def logged(self, message: str) -> None:
        """Wait until the log has a line with this message."""
        async with asyncio.timeout(_PATIENCE):
            while not any(line["message"] == message for line in self.lines()):
                self.stream.written.clear()
                await self.stream.written.wait()

    def lines(self) -> list[dict[str, str]]:
        return [orjson.loads(line) for line in self.stream.getvalue().splitlines()]

    async def serial(self) -> int:
        """The serial number of the certificate that a new connection gets."""
        trusting = ssl.create_default_context(cadata=_CA.certificate_pem.decode())
        _, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=trusting, server_hostname="localhost")
        encoded = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return x509.load_der_x509_certificate(encoded).serial_number


@asynccontextmanager
async def exchanging(directory: Path) -> AsyncIterator[Exchanging]:
    made = Exchanging(directory)

    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    watch = asyncio.create_task(tls.reload_certificates(made.context, *made.files, made.log, made.metrics))
    try:
        async with await asyncio.start_server(close, "127.0.0.1", 0, ssl=made.context) as server:
            made.port = server.sockets[0].getsockname()[1]
            # Let the watch take its first look, so that what a test changes is a change.
            await asyncio.sleep(0)
            yield made
            assert not watch.done(), "the watch ended"
    finally:
        watch.cancel()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "_INTERVAL", 0.001)


@pytest.mark.asyncio
async def test_new_connections_get_the_new_certificate(tmp_path: Path) -> None:
    first, second = pair(), pair()
    put(tmp_path, first)
    async with exchanging(tmp_path) as server:
        assert await server.serial() == number(first)
        put(tmp_path, second)
        await server.logged("serving certificate reloaded")
        assert await server.serial() == number(second)
        assert b"gpugate_serving_certificate_not_after_seconds 0.0" not in server.metrics.text()


@pytest.mark.asyncio
async def test_half_of_a_new_pair_leaves_the_old_one_serving_until_the_other_half_is_there(tmp_path: Path) -> None:
    first, second = pair(), pair()
    put(tmp_path, first)
    async with exchanging(tmp_path) as server:
        put(tmp_path, second, first)
        await server.logged("cannot load the new serving certificate yet")
        assert await server.serial() == number(first)
        put(tmp_path, second)
        await server.logged("serving certificate reloaded")
        assert await server.serial() == number(second)


@pytest.mark.asyncio
@pytest.mark.parametrize("content", [b"", b"junk", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
async def test_a_certificate_that_does_not_parse_leaves_the_old_one_serving(tmp_path: Path, content: bytes) -> None:
    first = pair()
    put(tmp_path, first)
    async with exchanging(tmp_path) as server:
        put(tmp_path, KeyPair(content, first.key_pem))
        await server.logged("cannot load the new serving certificate yet")
        assert await server.serial() == number(first)


@pytest.mark.asyncio
async def test_a_file_that_is_away_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    first, second = pair(), pair()
    put(tmp_path, first)
    async with exchanging(tmp_path) as server:
        (tmp_path / "tls.key").unlink()
        assert await server.serial() == number(first)
        put(tmp_path, second)
        await server.logged("serving certificate reloaded")
        assert await server.serial() == number(second)
