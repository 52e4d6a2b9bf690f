"""The HTTP edge: routes, limits, probes and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

from gpugate.webhook.admission.admission_review import BadRequestError
from gpugate.webhook.admission.denials import DenialReporter
from gpugate.webhook.admission.handler import AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.recorder import ReviewRecorder
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.kube.types import KindState
from gpugate.webhook.runtime.log import Log

#: An object in etcd is at most 1.5 MiB, and a review may hold two of them. Bytes.
BODY_LIMIT: Final = 4 * 1024 * 1024
#: How long the watch may lag behind what was made or deleted just before. Seconds.
_LAG: Final = 0.25
#: The longest that the apiserver lets a webhook take (``timeoutSeconds``). Seconds.
_LONGEST_TIMEOUT: Final = 30.0
_JSON: Final = {"Content-Type": "application/json"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def wait_for_the_watch(seconds: float) -> None:
    """Let the watches catch up with what happened before a review came."""
    await asyncio.sleep(seconds)


def _problem(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=message + "\n")


@lru_cache(maxsize=256)
def timeout_of(query: str) -> float:
    """Seconds that the apiserver waits, from its query ``timeout=3s`` (or ``500ms``); the longest where it says none.

    Raises:
        BadRequestError: the text is no such time.
    """
    text = next((value for key, value in parse_qsl(query) if key == "timeout"), "")
    if not text:
        return _LONGEST_TIMEOUT
    for suffix, unit in (("ms", 0.001), ("m", 60.0), ("s", 1.0)):
        number = text.removesuffix(suffix)
        if number != text and number.replace(".", "", 1).isascii() and number.replace(".", "", 1).isdigit():
            return max(0.001, min(float(number) * unit, _LONGEST_TIMEOUT))
    message = f"timeout {text!r:.20} is no time such as 5s or 500ms"
    raise BadRequestError(message, reason="timeout")


def _review_handler(endpoint: str, door: AdmissionHandler, state: CurrentState, metrics: Metrics, *, client_ca: bool) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            if client_ca and not _authenticated(request):
                metrics.refused_body("client-certificate")
                return _problem(401, "a client certificate signed by the configured CA is required")
            timeout = timeout_of(request.query_string)
            if request.content.is_eof():
                # The whole body came with the head, as nearly always: there is nothing to wait for.
                body = await request.read()
            else:
                async with asyncio.timeout(timeout):
                    body = await request.read()
            answer = door.answer_or_defer(endpoint, body, may_wait=endpoint == "validate")
            if answer is None:
                await wait_for_the_watch(_LAG)
                answer = door.answer(endpoint, body)
            response = web.Response(body=answer, headers=_JSON)
            if state.draining:
                # The apiserver's next review goes to another replica.
                response.force_close()
            return response  # noqa: TRY300 - the errors are all of what is above
        except BadRequestError as error:
            metrics.refused_body(error.reason)
            return _problem(error.status, str(error))
        except web.RequestPayloadError:
            metrics.refused_body("encoding")
            return _problem(400, "the body cannot be decoded as its headers say")
        except web.HTTPRequestEntityTooLarge:
            metrics.refused_body("size")
            return _problem(413, f"the body is larger than {BODY_LIMIT} bytes")
        except TimeoutError:
            metrics.refused_body("timeout")
            return _problem(408, "the body did not arrive within the apiserver's timeout")

    return handle


def _authenticated(request: web.Request) -> bool:
    return bool(request.transport is not None and request.transport.get_extra_info("peercert"))


def _facts(state: CurrentState, now: float) -> list[str]:
    """A line for each resource: how far it is known and, where it is watched, how many objects, how old, and what is wrong."""
    known = {resource: found.value for resource, found in state.in_force.snapshot.known.items()}
    watched = {one.resource: _watched(one, now) for one in state.watched()}
    return [f"{resource}: {text}" for resource, text in sorted((known | watched).items())]


def _watched(one: KindState, now: float) -> str:
    age = one.age(now)
    text = f"{one.phase}, objects {one.objects}, {'never read' if age is None else f'age {age:.1f} s'}"
    return f"{text}: {' '.join(one.error.split())}" if one.error else text


def make_app(  # noqa: PLR0913 - one parameter a part of it
    state: CurrentState,
    metrics: Metrics,
    log: Log,
    *,
    ledger: InFlightLedger | None = None,
    traces: DenialReporter | None = None,
    recording: ReviewRecorder | None = None,
    client_ca: bool = False,
    body_limit: int = BODY_LIMIT,
) -> web.Application:
    """The application that serves reviews from ``state``.

    Args:
        state: the snapshot in force and readiness.
        metrics: where reviews are counted.
        log: where they are logged.
        ledger: where admitted objects are counted until the watch shows them; None where nothing is watched.
        traces: what refusals leave behind; where it is None they are counted in ``metrics`` and nothing else.
        recording: where reviews are written down; None where they are not.
        client_ca: whether reviews need a client certificate (probes and metrics never do).
        body_limit: the largest body read, in bytes.
    """
    door = AdmissionHandler(state, metrics, log, ledger, traces=traces, recording=recording)

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        reason = state.not_ready
        lines = [reason or "ok"]
        if "verbose" in request.query:
            lines += _facts(state, time.monotonic())
            lines += [f"policy {one.name}: generation {one.generation}" for one in state.in_force.policies.policies]
            lines += [f"bad policy {one.name}: {one.outcome}: {one.error}" for one in state.policies() if one.error]
        return web.Response(status=503 if reason else 200, text="\n".join(lines) + "\n")

    async def metrics_text(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application(client_max_size=body_limit)
    app.router.add_post("/mutate", _review_handler("mutate", door, state, metrics, client_ca=client_ca))
    app.router.add_post("/validate", _review_handler("validate", door, state, metrics, client_ca=client_ca))
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics_text)
    return app
