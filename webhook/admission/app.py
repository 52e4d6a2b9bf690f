"""The HTTP application: routes, limits and probes."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

from gpugate.webhook.admission.admission_review import BadRequestError
from gpugate.webhook.admission.callers import rejection
from gpugate.webhook.admission.denials import DenialReporter
from gpugate.webhook.admission.diagnostics import readiness
from gpugate.webhook.admission.handler import LONGEST_TIMEOUT, AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.recorder import ReviewRecorder
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log

#: Largest body: an object in etcd is at most 1.5 MiB, and a review may contain two. Bytes.
BODY_LIMIT: Final = 4 * 1024 * 1024
#: Time for the watch to catch up before a second decision. Seconds.
_LAG: Final = 0.25
_JSON: Final = {"Content-Type": "application/json"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def wait_for_the_watch(seconds: float) -> None:
    """Wait until the watches have caught up with events before the review."""
    await asyncio.sleep(seconds)


def _problem(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=message + "\n")


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
    endpoint: str, handler: AdmissionHandler, state: CurrentState, metrics: Metrics, client_names: Collection[str] | None
) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            rejected = rejection(request.transport, client_names) if client_names is not None else None
            if rejected is not None:
                metrics.refused_body("client-certificate")
                return _problem(*rejected)
            timeout = timeout_of(request.query_string)
            if request.content.is_eof():
                # The whole body arrived with the head, the usual case: no timeout needed.
                body = await request.read()
            else:
                async with asyncio.timeout(timeout):
                    body = await request.read()
            answer = handler.answer_or_defer(endpoint, body, may_wait=endpoint == "validate", timeout=timeout)
            if answer is None:
                await wait_for_the_watch(_LAG)
                answer = handler.answer(endpoint, body, timeout=timeout)
            response = web.Response(body=answer, headers=_JSON)
            if state.draining:
                # Send the apiserver's next review to another replica.
                response.force_close()
            return response  # noqa: TRY300 - every line above may raise
        except BadRequestError as error:
            metrics.refused_body(error.reason)
            return _problem(400, str(error))
        except web.RequestPayloadError:
            metrics.refused_body("encoding")
            return _problem(400, "the body does not match its Content-Encoding")
        except web.HTTPRequestEntityTooLarge:
            metrics.refused_body("size")
            return _problem(413, f"the body is larger than {BODY_LIMIT} bytes")
        except TimeoutError:
            metrics.refused_body("timeout")
            return _problem(408, "the body did not arrive within the apiserver's timeout")

    return handle


def make_app(  # noqa: PLR0913 - one parameter per part
    state: CurrentState,
    metrics: Metrics,
    log: Log,
    *,
    ledger: InFlightLedger | None = None,
    denials: DenialReporter | None = None,
    review_recorder: ReviewRecorder | None = None,
    client_names: Collection[str] | None = None,
    body_limit: int = BODY_LIMIT,
) -> web.Application:
    """Return the application that serves reviews from ``state``, with bodies of at most ``body_limit`` bytes.

    ``ledger`` is None without a watch. Without ``denials``, denials are counted in ``metrics`` only. With ``client_names``,
    reviews need a client certificate with one of these names, or with any name if there are none; probes never do.
    """
    handler = AdmissionHandler(
        state, metrics, log, ledger, denials=denials, review_recorder=review_recorder, authenticated=client_names is not None
    )

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        return readiness(state)

    app = web.Application(client_max_size=body_limit)
    app.router.add_post("/mutate", _review_handler("mutate", handler, state, metrics, client_names))
    app.router.add_post("/validate", _review_handler("validate", handler, state, metrics, client_names))
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app
