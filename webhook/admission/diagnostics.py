"""Metrics and the details of readiness, on a port apart from reviews: they name facts, policies and what rules refuse."""

import time

from aiohttp import web

from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.kube.types import KindState


def make_diagnostics_app(state: CurrentState, metrics: Metrics) -> web.Application:
    """Return the application with /metrics and /readyz, which tells more with ``?verbose``."""

    async def readyz(request: web.Request) -> web.Response:
        response = readiness(state)
        if "verbose" in request.query:
            lines = _facts(state, time.monotonic())
            lines += [f"policy {policy.name}: generation {policy.generation}" for policy in state.in_force.policies.policies]
            lines += [f"bad policy {policy.name}: {policy.outcome}: {policy.error}" for policy in state.policies() if policy.error]
            response.text = "\n".join([*(response.text or "").splitlines(), *lines, ""])
        return response

    async def metrics_text(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics_text)
    return app


def readiness(state: CurrentState) -> web.Response:
    """Return the answer of /readyz: one line, with status 503 while the server is not ready."""
    reason = state.not_ready
    return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")


def _facts(state: CurrentState, now: float) -> list[str]:
    """Return a line for each resource: sync state, and objects, age and error of a watched one."""
    known = {resource: sync_state.value for resource, sync_state in state.in_force.snapshot.known.items()}
    watched = {kind_state.resource: _watched(kind_state, now) for kind_state in state.watched()}
    return [f"{resource}: {text}" for resource, text in sorted((known | watched).items())]


def _watched(state: KindState, now: float) -> str:
    age = state.age(now)
    text = f"{state.phase}, objects {state.objects}, {'never read' if age is None else f'age {age:.1f} s'}"
    return f"{text}: {' '.join(state.error.split())}" if state.error else text
