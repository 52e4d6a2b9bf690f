"""What is left of a review that was given up."""

from __future__ import annotations

import gc
import io
import weakref
from typing import TYPE_CHECKING

import pytest
from aiohttp.test_utils import RawTestServer, TestClient

from gpugate.webhook.admission.app import make_handler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.overload.intake import Intake
from gpugate.webhook.admission.overload.shedding import OverloadedError
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.asyncio


class _Body:
    """Stands for a large body: unlike bytes it can be watched."""


async def test_the_body_of_a_review_that_was_given_up_is_freed_without_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    intake, bodies = Intake(), list[weakref.ref[_Body]]()

    async def give_up(_decide: Callable[[], bytes | None], *_rest: object) -> bytes:
        body = _Body()
        bodies.append(weakref.ref(body))
        try:
            raise TimeoutError  # noqa: TRY301 - as the queue does
        except TimeoutError:
            error = OverloadedError("deadline")
            raise error from None

    monkeypatch.setattr(intake.reviews, "answer", give_up)
    app = make_handler(CurrentState(), Metrics(), Log(io.StringIO()), intake=intake)
    gc.disable()
    try:
        async with TestClient(RawTestServer(app)) as client:
            answer = await client.post("/validate?timeout=3s", data=b"{}")
            assert answer.status in {429, 503}
            assert [body() for body in bodies] == [None]
    finally:
        gc.enable()
