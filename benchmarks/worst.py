"""`make bench-worst`: search for the object that costs most, and fail where a cost is not near-linear in the object's size.

Every list and map of every kind grows alone, in steps of two, to what the apiserver can store, or to what one second of CPU
allows. Then several grow together, chosen at random, until the time is over. The cost is the CPU of `/mutate` and `/validate`
beyond parsing the JSON, with all rules in Enforce and the example cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import itertools
import random
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

import orjson
from ruamel.yaml import YAML

from benchmarks.bench import EXAMPLES
from benchmarks.bodies import Growth, Object, grown, kinds, places, review, title
from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.policy.models import API_VERSION, KIND, parse_policy
from gpugate.webhook.admission.handler import AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log

#: Bytes of JSON of the largest object that the apiserver stores (etcd's default request limit, `--max-request-bytes`).
LARGEST = 1_500_000
#: Costs below this are not compared with that of half the size: noise. Milliseconds.
_LEAST = 20.0
_SIZES = tuple(2**power for power in range(4, 18))


class _TooLongError(BaseException):
    """A review took longer than is waited for; no handler of errors may catch it."""


class Cost(NamedTuple):
    """What one object costs.

    Attributes:
        kind: ``apiVersion kind``.
        growths: which lists and maps have grown.
        size: bytes of JSON.
        parsing: milliseconds of CPU for parsing the JSON of both reviews.
        deciding: milliseconds of CPU for answering both beyond parsing; infinite if it took too long.
    """

    kind: str
    growths: list[Growth]
    size: int
    parsing: float
    deciding: float

    def __str__(self) -> str:
        deciding = f"{self.deciding:9.1f}" if self.deciding != float("inf") else " too long"
        return f"{deciding} ms + {self.parsing:5.1f} ms parsing, {self.size:8} bytes, {self.kind}: {title(self.growths)}"


class Reviews:
    """Answers reviews in process and measures their CPU."""

    def __init__(self, mode: str = "Enforce") -> None:
        policy = parse_policy({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "all"}, "spec": {"mode": mode}})
        objects = [
            item
            for document in YAML(typ="safe").load_all((EXAMPLES / "cluster.yaml").read_text(encoding="utf-8"))
            for item in document.get("items") or [document]
        ]
        state = CurrentState(snapshot_from_objects(objects), [policy])
        self._log = io.StringIO()
        self._handler = AdmissionHandler(state, Metrics(), Log(self._log))

    def cost(self, kind: str, root: Object, growths: list[Growth], longest: float, old: Object | None = None) -> Cost:
        """Measure one object; ``longest`` is the CPU in seconds after which a review is given up."""
        body = orjson.dumps(review(root, old))
        started = time.process_time()
        orjson.loads(body)
        parsing = time.process_time() - started
        started = time.process_time()
        try:
            with _deadline(longest):
                self._handler.answer("mutate", body)
                self._handler.answer("validate", body)
            deciding = time.process_time() - started - 2 * parsing
        except _TooLongError:
            deciding = float("inf")
        self._log.seek(0)
        self._log.truncate()
        return Cost(kind, growths, len(body), 2e3 * parsing, 1e3 * max(deciding, 0.0))


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise `_TooLongError` in the block after ``seconds`` of CPU."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def curve(reviews: Reviews, kind: str, root: Object, growths: list[Growth], longest: float) -> list[Cost]:
    """Measure ``root`` while the last of ``growths`` doubles, to the largest size or to a cost of ``longest`` seconds."""
    costs: list[Cost] = []
    *others, last = growths
    for times in _SIZES:
        if times < last.times:
            continue
        now = [*others, Growth(last.place, times)]
        larger = grown(root, now)
        if len(orjson.dumps(larger)) > LARGEST:
            break
        costs.append(reviews.cost(kind, larger, now, longest))
        if costs[-1].deciding > 1e3 * longest:
            break
    return costs


def is_superlinear(costs: list[Cost]) -> bool:
    """Return whether a doubling of the bytes made the cost per byte at least 1.6 times as high, where it is no noise."""
    pairs = itertools.pairwise(costs)
    return any(
        after.deciding > _LEAST and after.deciding / after.size > 1.6 * max(before.deciding, _LEAST / 4) / before.size
        for before, after in pairs
        if after.size > 1.5 * before.size
    )


def _random_growths(chosen: random.Random, root: Object) -> list[Growth]:
    found = list(places(root))
    picked = chosen.sample(found, min(len(found), chosen.randint(2, 4)))
    return [Growth(place, 2 ** chosen.randint(1, 10)) for place in picked]


def search(options: argparse.Namespace) -> tuple[list[Cost], list[list[Cost]]]:
    """Return all costs, and the curves that are not near-linear."""
    reviews, objects = Reviews(), kinds()
    chosen = random.Random(options.seed)  # noqa: S311 - which objects are tried, no secret
    every: list[Cost] = []
    steep: list[list[Cost]] = []
    names = [name for name in objects if options.kind in name]
    for name in names:
        reviews.cost(name, objects[name], [], options.longest)
        for place in places(objects[name]):
            costs = curve(reviews, name, objects[name], [Growth(place, _SIZES[0])], options.longest)
            every += costs
            if is_superlinear(costs):
                costs = curve(reviews, name, objects[name], [Growth(place, _SIZES[0])], options.longest)
            if is_superlinear(costs):
                steep.append(costs)
                print(f"not near-linear: {costs[-1]}", flush=True)
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        name = chosen.choice(names)
        growths = _random_growths(chosen, objects[name])
        with contextlib.suppress(KeyError, IndexError):
            larger = grown(objects[name], growths)
            if len(orjson.dumps(larger)) <= LARGEST:
                every.append(reviews.cost(name, larger, growths, options.longest))
    worst = sorted((cost for cost in every if cost.growths), key=lambda cost: -cost.deciding)[: options.updates]
    for cost in worst:
        # An UPDATE is compared with the old object, which is as large.
        larger = grown(objects[cost.kind], cost.growths)
        changed = {**larger, "metadata": {**larger["metadata"], "labels": {"app": "b"}}}
        every.append(reviews.cost(f"UPDATE {cost.kind}", changed, cost.growths, options.longest, old=larger))
    return every, steep


def main() -> int:
    """Search, print the worst, and return 1 if a cost is over the budget or a curve is not near-linear."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="", help="only kinds whose `apiVersion kind` has this in it")
    parser.add_argument("--seconds", type=float, default=120.0, help="time for random combinations")
    parser.add_argument("--longest", type=float, default=1.0, help="CPU in seconds after which a review is given up")
    parser.add_argument(
        "--at-most", type=float, default=100.0, help="fail above this CPU in milliseconds beyond parsing, of one review"
    )
    parser.add_argument("--updates", type=int, default=200, help="how many of the worst objects are tried as UPDATEs, too")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random combinations")
    options: Any = parser.parse_args()
    gc.collect()
    gc.freeze()
    every, steep = search(options)
    worst = sorted(every, key=lambda cost: -cost.deciding)[:25]
    print(f"\n{len(every)} objects; the worst (CPU of /mutate and /validate):")
    for cost in worst:
        print(cost)
    over = [cost for cost in every if cost.deciding > 2 * options.at_most]
    print(f"{len(over)} over {options.at_most:g} ms a review, {len(steep)} curves not near-linear")
    return 1 if over or steep else 0


if __name__ == "__main__":
    sys.exit(main())
