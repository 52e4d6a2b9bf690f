"""What one object costs: CPU of `/mutate` and `/validate` beyond parsing its JSON, in process, with the example cluster.

A machine differs from the next, and from itself a minute later, so a cost is the least of several, and a budget grows by what a
fixed piece of work takes here.
"""

from __future__ import annotations

import contextlib
import gc
import io
import math
import signal
import time
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Final, NamedTuple
from unittest import mock

import orjson
from ruamel.yaml import YAML

from benchmarks.bench import EXAMPLES
from benchmarks.bodies import Growth, Object, review, title
from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.policy.models import API_VERSION, KIND, parse_policy
from gpugate.policies.rules.security.object_size import ObjectSizeParams
from gpugate.webhook.admission import handler
from gpugate.webhook.admission.admission_review import parse
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log

#: Milliseconds of CPU of one review beyond parsing, on a machine where :func:`slowness` is 1.
BUDGET: Final = 100.0
#: Costs below this are not compared with those of smaller objects: noise. Milliseconds.
LEAST: Final = 20.0
#: The largest exponent of a curve that counts as near-linear: half way between linear (1) and quadratic (2).
STEEPEST: Final = 1.5
#: Milliseconds that the fixed piece of work of :func:`slowness` takes on the machine that the budget was chosen on.
_USUAL: Final = 7.0
#: Every limit of `object-size` as high as a policy can set it: the code alone bounds the work.
RAISED: Final[Mapping[str, int]] = dict.fromkeys(ObjectSizeParams().model_dump(by_alias=True), 100_000)
_REPEATS: Final = 3


class _TooLongError(BaseException):
    """A review took longer than is waited for; no handler of errors may catch it."""


class Cost(NamedTuple):
    """What one object costs.

    Attributes:
        kind: ``apiVersion kind``.
        growths: which lists and maps have grown.
        size: bytes of JSON of the review.
        parsing: milliseconds of CPU for parsing the JSON of one review.
        deciding: milliseconds of CPU of the more expensive of the two reviews beyond parsing; infinite if it took too long.
        judged: whether the object was within the limits of `object-size`.
    """

    kind: str
    growths: list[Growth]
    size: int
    parsing: float
    deciding: float
    judged: bool

    def __str__(self) -> str:
        deciding = f"{self.deciding:9.1f}" if self.deciding != float("inf") else " too long"
        judged = "" if self.judged else ", over a limit"
        return f"{deciding} ms + {self.parsing:5.1f} ms parsing, {self.size:8} bytes, {self.kind}: {title(self.growths)}{judged}"


def slowness() -> float:
    """Return how many times slower than usual this machine is now, 1 at least: the least time of a fixed piece of work."""
    items = [{"name": f"n{at}", "values": [at, at + 1]} for at in range(2000)]
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        for _ in range(10):
            seen = {item["name"]: sum(item["values"]) for item in orjson.loads(orjson.dumps(items))}
        best = min(best, time.process_time() - started)
        del seen
    return max(1.0, 1e3 * best / _USUAL)


class Reviews:
    """Answers reviews in process and measures their CPU, with all rules in ``mode`` and these ``limits`` of `object-size`."""

    def __init__(self, mode: str = "Enforce", limits: Mapping[str, int] | None = None) -> None:
        spec: Object = {"mode": mode, "rules": {"object-size": {**(limits or {})}}}
        policy = parse_policy(
            {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "all"}, "spec": {"profile": "recommended", **spec}}
        )
        objects = [
            item
            for document in YAML(typ="safe").load_all((EXAMPLES / "cluster.yaml").read_text(encoding="utf-8"))
            for item in document.get("items") or [document]
        ]
        state = CurrentState(snapshot_from_objects(objects), [policy])
        self._log = io.StringIO()
        self._handler = handler.AdmissionHandler(state, Metrics(), Log(self._log))

    def cost(self, kind: str, root: Object, growths: list[Growth], longest: float = 5.0, old: Object | None = None) -> Cost:
        """Measure one object; ``longest`` is the CPU in seconds after which a review is given up."""
        body = orjson.dumps(review(root, old))
        parsing, deciding = float("inf"), {"mutate": float("inf"), "validate": float("inf")}
        for _ in range(_REPEATS):
            started = time.process_time()
            parse(body)
            parsing = min(parsing, time.process_time() - started)
            for endpoint, least in deciding.items():
                deciding[endpoint] = min(least, self._time(endpoint, body, longest))
            worst = max(deciding.values())
            if worst < LEAST / 4e3 or worst > longest:
                break
        judged = b"TooMany" not in (self._handler.answer("validate", body) or b"") if worst <= longest else True
        self._log.seek(0)
        self._log.truncate()
        return Cost(kind, growths, len(body), 1e3 * parsing, 1e3 * worst, judged)

    def _time(self, endpoint: str, body: bytes, longest: float) -> float:
        """Return the seconds of CPU of one answer to a review that is parsed before; infinite if it takes too long."""
        request = parse(body)
        gc.collect(0)
        with mock.patch.object(handler, "parse", return_value=request):
            started = time.process_time()
            try:
                with _deadline(longest):
                    self._handler.answer(endpoint, body)
            except _TooLongError:
                return float("inf")
            return time.process_time() - started


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise `_TooLongError` in the block after three times ``seconds``: a timer of CPU time makes its clock coarse (4 ms)."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 3 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_superlinear(costs: list[tuple[int, float]], base: float = 0.0, slow: float = 1.0) -> bool:
    """Return whether a cost grows clearly faster than the number of entries.

    Args:
        costs: number of entries and milliseconds, by rising number.
        base: milliseconds of the object with hardly any entry.
        slow: the :func:`slowness` of the machine.
    """
    least = LEAST * slow
    for number, cost in costs:
        before = [(fewer, less) for fewer, less in costs if fewer * 4 <= number]
        if not before or cost - base < least or cost == float("inf"):
            continue
        fewer, less = before[-1]
        growth = (cost - base) / max(less - base, least / 16)
        if math.log(growth) > STEEPEST * math.log(number / fewer):
            return True
    return False
