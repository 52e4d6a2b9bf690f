"""The HTTP application: routes, limits, probes and metrics."""

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
from gpugate.webhook.admission.overload.bodies import BODY_LIMIT, TooLargeError
from gpugate.webhook.admission.overload.intake import Intake, overloaded
from gpugate.webhook.admission.overload.reviews import deadline_of
from gpugate.webhook.admission.overload.shedding import OverloadedError
from gpugate.webhook.admission.recorder import ReviewRecorder
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.kube.types import KindState
from gpugate.webhook.runtime.log import Log

#: Time for the watch to catch up before a second decision. Seconds.
_LAG: Final = 0.25
#: Largest ``timeoutSeconds`` of a webhook. Seconds.
_LONGEST_TIMEOUT: Final = 30.0
_JSON: Final = {"Content-Type": "application/json"}
#: What keeps a body from being read: the reason for metrics, and the answer.
_BODY_PROBLEMS: Final[dict[type[Exception], tuple[str, int, str]]] = {
    web.RequestPayloadError: ("encoding", 400, "the body does not match its Content-Encoding"),
    TooLargeError: ("size", 413, f"the body is larger than {BODY_LIMIT} bytes"),
    TimeoutError: ("timeout", 408, "the body did not arrive within the apiserver's timeout"),
}

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
        return _LONGEST_TIMEOUT
    for suffix, unit in (("ms", 0.001), ("m", 60.0), ("s", 1.0)):
        number = text.removesuffix(suffix)
        if number != text and number.replace(".", "", 1).isascii() and number.replace(".", "", 1).isdigit():
            return max(0.001, min(float(number) * unit, _LONGEST_TIMEOUT))
    message = f"timeout {text!r:.20} is not a duration such as 5s or 500ms"
    raise BadRequestError(message, reason="timeout")


def _review_handler(
    endpoint: str,
    handler: AdmissionHandler,
    state: CurrentState,
    metrics: Metrics,
    intake: Intake,
    *,
    client_ca: bool,
) -> Handler:
    bodies, reviews = intake.bodies, intake.reviews

    async def handle(request: web.Request) -> web.StreamResponse:
        arrived = time.monotonic()
        deadline = arrived
        try:
            if client_ca and (request.transport is None or not request.transport.get_extra_info("peercert")):
                metrics.refused_body("client-certificate")
                return _problem(401, "a client certificate signed by the configured CA is required")
            deadline = deadline_of(arrived, timeout_of(request.query_string))
            # Usually the whole body arrives with the head: nothing to wait for.
            body = request.content.read_nowait(-1) if request.content.is_eof() else await bodies.read(request, deadline)
            may_wait = endpoint == "validate" and deadline - arrived > 2 * _LAG
            answer = await reviews.answer(
                lambda: handler.answer_or_defer(endpoint, body, may_wait=may_wait), len(body), deadline, request, body
            )
            if answer is None:
                await wait_for_the_watch(_LAG)
                answer = await reviews.answer(lambda: handler.answer(endpoint, body), len(body), deadline, request, body)
            response = web.Response(body=answer, headers=_JSON)
            if state.draining:
                # Send the apiserver's next review to another replica.
                response.force_close()
            return response  # noqa: TRY300 - every line above may raise
        except BadRequestError as error:
            metrics.refused_body(error.reason)
            return _problem(400, str(error))
        except OverloadedError as error:
            return overloaded(error, deadline)
        except tuple(_BODY_PROBLEMS) as error:
            reason, status, message = _BODY_PROBLEMS[type(error)]
            metrics.refused_body(reason)
            return _problem(status, message)

    return handle


def _facts(state: CurrentState, now: float) -> list[str]:
    """Return a line for each resource: sync state, and objects, age and error of a watched one."""
    known = {resource: sync_state.value for resource, sync_state in state.in_force.snapshot.known.items()}
    watched = {kind_state.resource: _watched(kind_state, now) for kind_state in state.watched()}
    return [f"{resource}: {text}" for resource, text in sorted((known | watched).items())]


def _watched(state: KindState, now: float) -> str:
    age = state.age(now)
    text = f"{state.phase}, objects {state.objects}, {'never read' if age is None else f'age {age:.1f} s'}"
    return f"{text}: {' '.join(state.error.split())}" if state.error else text


def make_app(  # noqa: PLR0913 - one parameter per part
    state: CurrentState,
    metrics: Metrics,
    log: Log,
    *,
    ledger: InFlightLedger | None = None,
    denials: DenialReporter | None = None,
    review_recorder: ReviewRecorder | None = None,
    client_ca: bool = False,
    intake: Intake | None = None,
) -> web.Application:
    """Return the application that serves reviews from ``state``; ``intake`` bounds what waits.

    ``ledger`` is None without a watch. Without ``denials``, denials are counted in ``metrics`` only. With ``client_ca``, reviews
    need a client certificate; probes and metrics never do.
    """
    handler = AdmissionHandler(state, metrics, log, ledger, denials=denials, review_recorder=review_recorder)

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        reason = state.not_ready
        lines = [reason or "ok"]
        if "verbose" in request.query:
            lines += _facts(state, time.monotonic())
            lines += [f"policy {policy.name}: generation {policy.generation}" for policy in state.in_force.policies.policies]
            lines += [f"bad policy {policy.name}: {policy.outcome}: {policy.error}" for policy in state.policies() if policy.error]
        return web.Response(status=503 if reason else 200, text="\n".join(lines) + "\n")

    async def metrics_text(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    intake = intake or Intake()
    for endpoint in ("mutate", "validate"):
        app.router.add_post(f"/{endpoint}", _review_handler(endpoint, handler, state, metrics, intake, client_ca=client_ca))
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics_text)
    return app
