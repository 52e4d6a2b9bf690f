"""What reviews share on their way in: the bodies that arrive, and the queue."""

import time
from collections.abc import Iterator
from typing import Final

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpugate.webhook.admission.overload.bodies import Bodies
from gpugate.webhook.admission.overload.reviews import ReviewQueue
from gpugate.webhook.admission.overload.shedding import OverloadedError, Shedding
from gpugate.webhook.runtime.connections import Listener
from gpugate.webhook.runtime.log_writer import LogWriter

#: Seconds after which the apiserver may send a review again: the smallest that the header can say.
_RETRY_AFTER: Final = 1
#: Seconds that a review sent again needs for its decision.
_ENOUGH: Final = 0.5


class Intake(Collector):
    """The bounds of one server, and their metrics.

    Attributes:
        bodies: bodies that arrive or wait.
        reviews: reviews that wait for their decision.
        listener: the connections, once there are any.
        log_writer: the writer of the log, if it may drop lines.
    """

    def __init__(self) -> None:
        self.shedding = Shedding()
        self.bodies = Bodies(self.shedding)
        self.reviews = ReviewQueue(self.bodies, self.shedding)
        self.listener: Listener | None = None
        self.log_writer: LogWriter | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        shed = CounterMetricFamily("gpugate_shed_reviews", "Reviews that were given up without a decision.", labels=["reason"])
        for reason in ("queue", "deadline", "bytes", "gone"):
            shed.add_metric([reason], self.shedding.counts[reason])
        yield shed
        yield GaugeMetricFamily("gpugate_waiting_reviews", "Reviews that wait for their decision.", value=self.reviews.number)
        yield GaugeMetricFamily("gpugate_body_bytes", "Bytes of bodies that arrive or wait.", value=self.bodies.held)
        if self.listener is not None:
            yield GaugeMetricFamily("gpugate_connections", "Open connections.", value=self.listener.number)
            closed = CounterMetricFamily(
                "gpugate_closed_connections", "Connections that were closed early or not accepted.", labels=["reason"]
            )
            for reason, count in sorted(self.listener.closed.items()):
                closed.add_metric([reason], count)
            yield closed
        if self.log_writer is not None:
            yield CounterMetricFamily("gpugate_dropped_log_lines", "Log lines that nothing read.", value=self.log_writer.dropped)


def overloaded(error: OverloadedError, deadline: float) -> web.Response:
    """Return the answer for a review that was given up, and could be decided until ``deadline`` on the monotonic clock.

    The apiserver sends a review again after a 429 or 503 with ``Retry-After``, until its timeout.
    """
    again = deadline - time.monotonic() > _RETRY_AFTER + _ENOUGH
    headers = {"Retry-After": str(_RETRY_AFTER)} if again else None
    response = web.Response(status=429 if again else 503, text=f"{error}\n", headers=headers)
    if error.reason == "bytes":
        response.force_close()
    return response
