"""The HTTP server: paths, limits and probes."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from email.utils import formatdate
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import SERVER_SOFTWARE

from gpugate.webhook.admission.admission_review import BadRequestError
from gpugate.webhook.admission.callers import rejection
from gpugate.webhook.admission.denials import DenialReporter
from gpugate.webhook.admission.diagnostics import readiness
from gpugate.webhook.admission.handler import LONGEST_TIMEOUT, AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.overload.bodies import BODY_LIMIT, TooLargeError
from gpugate.webhook.admission.overload.intake import Intake, overloaded
from gpugate.webhook.admission.overload.reviews import deadline_of
from gpugate.webhook.admission.overload.shedding import OverloadedError
from gpugate.webhook.admission.recorder import ReviewRecorder
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log

#: Time for the watch to catch up before a second decision. Seconds.
_LAG: Final = 0.25
_JSON: Final = {"Content-Type": "application/json"}
#: What keeps a body from being read: the reason for metrics, and the answer.
_BODY_PROBLEMS: Final[dict[type[Exception], tuple[str, int, str]]] = {
    web.RequestPayloadError: ("encoding", 400, "the body does not match its Content-Encoding"),
    TooLargeError: ("size", 413, f"the body is larger than {BODY_LIMIT} bytes"),
    TimeoutError: ("timeout", 408, "the body did not arrive within the apiserver's timeout"),
}

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class _Answer(web.StreamResponse):
    """A status 200 with JSON, for HTTP/1.1 on a connection that stays open: what nearly each review gets.

    It is the answer that a `web.Response` gives, and takes less time.
    """

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._json = body

    @property
    def keep_alive(self) -> bool:
        """Return that the connection stays open."""
        return True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Write the whole answer."""
        await request.writer.write_eof(b"%bContent-Length: %d\r\n\r\n%b" % (_head(int(time.time())), len(self._json), self._json))
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: everything is written."""


@lru_cache(maxsize=1)
def _head(now: int) -> bytes:
    """Return the head of answers in one second, without the length."""
    fields = f"Content-Type: application/json\r\nDate: {formatdate(now, usegmt=True)}\r\nServer: {SERVER_SOFTWARE}\r\n"
    return f"HTTP/1.1 200 OK\r\n{fields}".encode()


def _answer(request: web.BaseRequest, body: bytes, *, draining: bool) -> web.StreamResponse:
    if request.version == HttpVersion11 and request.keep_alive and not draining:
        return _Answer(body)
    response = web.Response(body=body, headers=_JSON)
    if draining:
        # Send the apiserver's next review to another replica.
        response.force_close()
    return response


async def wait_for_the_watch(seconds: float) -> None:
    """Wait until the watches have caught up with events before the review."""
    await asyncio.sleep(seconds)


def _problem(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=message + "\n")


def _forget_frames(error: Exception) -> None:
    """Drop the frames that ``error`` keeps alive, and the body in them, which only the garbage collector would free."""
    error.__traceback__ = error.__context__ = None


@lru_cache(maxsize=256)
def timeout_of(query: str) -> float:
    """Return the timeout of the apiserver in seconds, from its query ``timeout=3s`` (or ``500ms``); the longest by default.

    Raises:
        BadRequestError: the timeout is invalid.
    """
    text = next((value for key, value in parse_qsl(query) if key == "timeout"), "")
    if not text:
        return LONGEST_TIMEOUT
    for suffix, unit in (("ms", 0.001), ("m", 60.0), ("s", 1.0)):
        number = text.removesuffix(suffix)
        if number != text and number.replace(".", "", 1).isascii() and number.replace(".", "", 1).isdigit():
            return max(0.001, min(float(number) * unit, LONGEST_TIMEOUT))
    message = f"timeout {text!r:.20} is not a duration such as 5s or 500ms"
    raise BadRequestError(message, reason="timeout")


def _review_handler(
    endpoint: str,
    handler: AdmissionHandler,
    state: CurrentState,
    metrics: Metrics,
    intake: Intake,
    client_names: Collection[str] | None,
) -> Handler:
    bodies, reviews = intake.bodies, intake.reviews

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        arrived = time.monotonic()
        deadline = arrived
        try:
            rejected = rejection(request.transport, client_names) if client_names is not None else None
            if rejected is not None:
                metrics.refused_body("client-certificate")
                return _problem(*rejected)
            timeout = timeout_of(request.query_string)
            deadline = deadline_of(arrived, timeout)
            # Usually the whole body arrives with the head: nothing to wait for.
            body = request.content.read_nowait(-1) if request.content.is_eof() else await bodies.read(request, deadline)
            decided = time.monotonic()
            may_wait = deadline - arrived > 2 * _LAG
            answer = await reviews.answer(
                lambda: handler.answer_or_defer(endpoint, body, may_wait=may_wait, timeout=timeout), body, deadline, request
            )
            if answer is None:
                await asyncio.gather(wait_for_the_watch(_LAG), state.rediscovered())
                answer = await reviews.answer(
                    lambda: handler.answer(endpoint, body, timeout=timeout, since=decided), body, deadline, request
                )
                assert answer is not None  # noqa: S101 - it was not deferred again
            return _answer(request, answer, draining=state.draining)
        except BadRequestError as error:
            metrics.refused_body(error.reason)
            return _problem(400, str(error))
        except OverloadedError as error:
            _forget_frames(error)
            return overloaded(error, deadline)
        except tuple(_BODY_PROBLEMS) as error:
            _forget_frames(error)
            reason, status, message = next(problem for kind, problem in _BODY_PROBLEMS.items() if isinstance(error, kind))
            metrics.refused_body(reason)
            return _problem(status, message)

    return handle


async def _continued(request: web.BaseRequest, handler: Handler) -> web.StreamResponse:
    """Ask for the body of a client that expects to be asked, and answer."""
    if request.headers["Expect"].lower() != "100-continue":
        raise web.HTTPExpectationFailed
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    # What counts from here on is the answer.
    request.writer.output_size = 0
    return await handler(request)


def _by_path(paths: Mapping[str, Mapping[str, Handler]]) -> Handler:
    """Return what answers requests by their path and method."""

    def handle(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        methods = paths.get(request.path)
        if methods is None:
            raise web.HTTPNotFound
        handler = methods.get(request.method)
        if handler is None:
            raise web.HTTPMethodNotAllowed(request.method, methods)
        return _continued(request, handler) if "Expect" in request.headers else handler(request)

    return handle


def make_handler(  # noqa: PLR0913 - one parameter per part
    state: CurrentState,
    metrics: Metrics,
    log: Log,
    *,
    ledger: InFlightLedger | None = None,
    denials: DenialReporter | None = None,
    review_recorder: ReviewRecorder | None = None,
    client_names: Collection[str] | None = None,
    intake: Intake | None = None,
) -> Handler:
    """Return what answers requests, reviews from ``state``; ``intake`` bounds what waits.

    It is for a `web.Server`, which takes less time for a review than an application with a router.

    ``ledger`` is None without a watch. Without ``denials``, denials are counted in ``metrics`` only. With ``client_names``,
    reviews need a client certificate with one of these names, or with any name if there are none; probes never do.
    """
    handler = AdmissionHandler(
        state, metrics, log, ledger, denials=denials, review_recorder=review_recorder, authenticated=client_names is not None
    )

    async def healthz(_request: web.BaseRequest) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.BaseRequest) -> web.Response:
        return readiness(state)

    intake = intake or Intake()
    paths: dict[str, dict[str, Handler]] = {
        f"/{endpoint}": {"POST": _review_handler(endpoint, handler, state, metrics, intake, client_names)}
        for endpoint in ("mutate", "validate")
    }
    paths["/healthz"] = {"GET": healthz, "HEAD": healthz}
    paths["/readyz"] = {"GET": readyz, "HEAD": readyz}
    return _by_path(paths)
