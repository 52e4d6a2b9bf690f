"""Send instant queries to the HTTP API of Prometheus.

A missing, wrong or too large answer becomes a one-line error without secrets.
"""

import asyncio
import math
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import unquote, urlsplit, urlunsplit

import aiohttp
import orjson

from gpugate.webhook.runtime.errors import InputError

#: Bytes and series of one answer: some ten thousand devices.
MOST_BYTES: Final = 64 << 20
MOST_SERIES: Final = 100_000
#: Seconds for one answer.
TIMEOUT_SECONDS: Final = 60.0
_CONNECT: Final = 10.0
#: Concurrent queries.
_CONCURRENT: Final = 4
_MAX_LENGTH: Final = 300
#: DCGM reports unsupported fields as values near the largest 64-bit integer.
_BLANK: Final = 1e18
_MATCHER: Final = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*(?:=|!=|=~|!~)"(?:[^"\\\n]|\\["\\nt])*"')


class PrometheusError(Exception):
    """Prometheus is not usable."""


class QueryError(PrometheusError):
    """Prometheus does not answer one query; it may answer others."""


class TimeSeries(NamedTuple):
    """One series of an answer: its labels, and its value."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Address:
    """Address of Prometheus with credentials.

    Attributes:
        url: its address, without user and password.
        user: user of HTTP basic authentication; empty for none.
        token_file: file with a bearer token, read for each query: it may be renewed.
        ca_file: file with the trusted CA certificates; None for the system's.
        matchers: label matchers added to every query: ``cluster="a"``.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    token_file: Path | None = None
    ca_file: Path | None = None
    matchers: tuple[str, ...] = ()


def address_of(url: str, *, token_file: Path | None = None, ca_file: Path | None = None, matchers: tuple[str, ...] = ()) -> Address:
    """Return the address from the command-line options.

    Raises:
        InputError: the URL or a matcher is invalid.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
        message = "--prometheus: invalid address; write http://HOST:PORT or https://HOST, with the path of Prometheus if it has one"
        raise InputError(message)
    for matcher in matchers:
        if not _MATCHER.fullmatch(matcher):
            message = f"--prometheus-matcher {matcher!r:.80} is not a matcher, such as 'cluster=\"a\"'"
            raise InputError(message)
    if parts.username and token_file:
        message = "give either a user and password in the address of --prometheus or --prometheus-token, not both"
        raise InputError(message)
    name = f"[{host}]" if ":" in host else host
    where = f"{name}:{port}" if port else name
    clean = urlunsplit((parts.scheme, where, parts.path.rstrip("/"), "", ""))
    return Address(clean, unquote(parts.username or ""), unquote(parts.password or ""), token_file, ca_file, matchers)


class Prometheus:
    """A client for one Prometheus; use it as an async context manager."""

    def __init__(self, address: Address, timeout: float = TIMEOUT_SECONDS) -> None:
        """Make a client with ``timeout`` seconds for one answer; the first query opens the first connection."""
        self.address = address
        self._timeout = timeout
        self._session: aiohttp.ClientSession
        self._turns = asyncio.Semaphore(_CONCURRENT)

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._timeout, sock_connect=min(_CONNECT, self._timeout))
        connector = aiohttp.TCPConnector(ssl=self._ssl_context())
        self._session = aiohttp.ClientSession(timeout=timeout, connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def query(self, query: str, at: float) -> list[TimeSeries]:
        """Return the series of ``query`` at a time, in seconds since 1970.

        Raises:
            QueryError: this query is not answered.
            PrometheusError: no query would be answered.
        """
        form = {"query": query, "time": f"{at:.3f}", "timeout": f"{int(self._timeout)}s"}
        try:
            # Limit concurrency, so that waiting for other queries does not use up the timeout.
            async with self._turns:
                status, body = await self._send(form)
            # Parse in a thread: a large answer must not block the event loop.
            return await asyncio.to_thread(_series, status, body)
        except PrometheusError as error:
            message = f"Prometheus at {self.address.url} {error}"
            raise type(error)(message) from None

    async def _send(self, form: Mapping[str, str]) -> tuple[int, bytes]:
        try:
            async with self._session.post(
                f"{self.address.url}/api/v1/query", data=form, headers=self._authorization(), allow_redirects=False
            ) as answer:
                return answer.status, await _bounded(answer)
        except TimeoutError:
            message = f"did not answer within {self._timeout:g} s"
            raise QueryError(message) from None
        except aiohttp.ClientError as error:
            message = f"cannot be reached: {_plain(error)}"
            raise PrometheusError(message) from None

    def _authorization(self) -> dict[str, str]:
        if self.address.user:
            credentials = b64encode(f"{self.address.user}:{self.address.password}".encode()).decode()
            return {"Authorization": f"Basic {credentials}"}
        if self.address.token_file is None:
            return {}
        try:
            token = self.address.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            message = f"cannot be queried: the token in {self.address.token_file} cannot be read ({type(error).__name__})"
            raise PrometheusError(message) from None
        if not token or not token.isascii() or not token.isprintable():
            message = f"cannot be queried: {self.address.token_file} contains no token"
            raise PrometheusError(message)
        return {"Authorization": f"Bearer {token}"}

    def _ssl_context(self) -> ssl.SSLContext | bool:
        if self.address.ca_file is None:
            return True
        try:
            return ssl.create_default_context(cafile=str(self.address.ca_file))
        except (OSError, ssl.SSLError) as error:
            problem = f"{self.address.ca_file} contains no certificates ({_plain(error)})"
            message = f"Prometheus at {self.address.url} cannot be queried: {problem}"
            raise PrometheusError(message) from None


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(1 << 16):
        body += chunk
        if len(body) > MOST_BYTES:
            message = f"answers with more than {MOST_BYTES >> 20} MiB: select fewer with --prometheus-matcher"
            raise QueryError(message)
    return bytes(body)


def _series(status: int, body: bytes) -> list[TimeSeries]:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        message = f"refuses: {_phrase(status)}; give --prometheus-token FILE, or a user and password in the address"
        raise PrometheusError(message)
    document = _document(body)
    if document is None:
        what = "does not answer with JSON of Prometheus" if status == HTTPStatus.OK else f"answers {_phrase(status)}"
        message = f"{what}: is this the address of Prometheus itself?"
        raise (QueryError if status >= HTTPStatus.INTERNAL_SERVER_ERROR else PrometheusError)(message)
    if document.get("status") != "success":
        message = f"does not answer a query: {document.get('error')!s:.{_MAX_LENGTH}}"
        raise QueryError(message)
    data = document.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list):
        message = "answers without a result: is this the address of Prometheus itself?"
        raise PrometheusError(message)
    if len(result) > MOST_SERIES:
        message = f"answers with {len(result)} series, more than {MOST_SERIES}: select fewer with --prometheus-matcher"
        raise QueryError(message)
    return [series for series in map(_parse, result) if series is not None]


def _document(body: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) and "status" in value else None


def _parse(item: Any) -> TimeSeries | None:  # noqa: ANN401 - any JSON value
    """Return one element of a result; None if it is malformed, or its value means that DCGM has none."""
    try:
        labels, value = item["metric"], float(item["value"][1])
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    if not isinstance(labels, dict) or not math.isfinite(value) or abs(value) >= _BLANK:
        return None
    return TimeSeries({str(key): str(text) for key, text in labels.items() if text}, value)


def _phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _plain(error: BaseException) -> str:
    return re.sub(r"\s+", " ", str(error))[:_MAX_LENGTH] or type(error).__name__
