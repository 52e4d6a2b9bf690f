"""`make bench-worst`: search for the object that costs most, and fail where a cost is not near-linear in the object's size.

For each kind: every list and map grows alone, in steps of two, in random order, to the largest body that the apiserver sends. Then
several grow together, chosen at random. The worst of them are tried as UPDATEs, too. Each kind has the same time. The cost is the
CPU of `/mutate` or `/validate` beyond parsing the JSON, with all rules in Enforce and the example cluster. With ``--raised`` every
limit of `object-size` is as high as a policy can set it, which shows the curves of the code itself.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import random
import sys
import time
from typing import Any, NamedTuple

import orjson

from benchmarks import reliability
from benchmarks.bodies import Growth, Object, grown, kinds, places, title
from benchmarks.cases import CASES, body_of
from benchmarks.costs import BUDGET, LEAST, RAISED, Cost, Reviews, is_superlinear, slowness
from gpugate.policies.kube.fields import clone

#: Bytes of JSON of the largest body that the apiserver accepts (`MaxRequestBodyBytes`), and of the object and the old one together.
LARGEST = 3 * 1024 * 1024
_SIZES = tuple(2**power for power in range(4, 19))


class Found(NamedTuple):
    """What the search found for one kind.

    Attributes:
        costs: every cost, worst first.
        steep: the last cost of every curve that is not near-linear.
        grown: how many lists and maps grew alone, and how many there are.
    """

    costs: list[Cost]
    steep: list[Cost]
    grown: tuple[int, int]


def curve(reviews: Reviews, kind: str, root: Object, growths: list[Growth], longest: float) -> list[Cost]:
    """Measure ``root`` while the last of ``growths`` doubles, to the largest size or to a cost of ``longest`` seconds."""
    costs: list[Cost] = []
    *others, last = growths
    for times in (size for size in _SIZES if size >= last.times):
        now = [*others, Growth(last.place, times)]
        larger = grown(root, now)
        if len(orjson.dumps(larger)) > LARGEST:
            break
        costs.append(reviews.cost(kind, larger, now, longest))
        if costs[-1].deciding > 1e3 * longest:
            break
    return costs


def _is_steep(costs: list[Cost], base: float, slow: float, longest: float) -> bool:
    # What took too long took that long at least.
    points = [(cost.judged, cost.growths[-1].times, min(cost.deciding, 1e3 * longest)) for cost in costs]
    return any(
        is_superlinear([(times, took) for at, times, took in points if at is judged], base, slow) for judged in (True, False)
    )


def _random_growths(chosen: random.Random, found: list[tuple[str | int, ...]]) -> list[Growth]:
    picked = chosen.sample(found, min(len(found), chosen.randint(2, 4)))
    return [Growth(place, 2 ** chosen.randint(1, 11)) for place in picked]


def changed(root: Object) -> list[Object]:
    """Return new versions of ``root`` for an UPDATE: another label, other images and names, every list reversed."""
    relabelled = {**root, "metadata": {**root["metadata"], "labels": {"app": "b"}}}
    return [relabelled, _mapped(root, str.swapcase), _reversed(root)]


def _mapped(value: Any, of: Any, key: str = "") -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return {name: _mapped(item, of, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, of, key) for item in value]
    return of(value) if key in {"image", "value", "path"} and isinstance(value, str) else value


def _reversed(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return {name: _reversed(item) for name, item in value.items()}
    return [_reversed(item) for item in reversed(value)] if isinstance(value, list) else value


class Search:
    """The search among the objects of one kind."""

    def __init__(self, kind: str, root: Object, options: argparse.Namespace, slow: float) -> None:
        self.kind, self.root, self.options, self.slow = kind, root, options, slow
        self.reviews = Reviews(limits=RAISED if options.raised else None)
        self.chosen = random.Random(f"{kind} {options.seed}")  # noqa: S311 - which objects are tried, no secret
        self.base = self.reviews.cost(kind, root, [], options.longest).deciding
        self.costs: list[Cost] = []
        self.steep: list[Cost] = []
        self.places = list(places(root))
        self.chosen.shuffle(self.places)
        # What belongs to the kind itself comes first: pod templates are the same in every kind.
        self.places.sort(key=lambda place: "containers" in place or "spec" in place[3:])

    def run(self) -> Found:
        """Search for as long as the options say."""
        now, seconds = time.monotonic(), self.options.seconds
        done = self._grow_alone(now + 0.6 * seconds)
        self._grow_together(now + 0.8 * seconds)
        self._update(now + seconds)
        return Found(sorted(self.costs, key=lambda cost: -cost.deciding), self.steep, (done, len(self.places)))

    def _grow_alone(self, end: float) -> int:
        for done, place in enumerate(self.places):
            if time.monotonic() > end:
                return done
            for _ in range(2):
                costs = curve(self.reviews, self.kind, self.root, [Growth(place, _SIZES[0])], self.options.longest)
                if not _is_steep(costs, self.base, self.slow, self.options.longest):
                    break
            else:
                self.steep.append(costs[-1])
                print(f"not near-linear: {costs[-1]}\n    {[round(cost.deciding, 1) for cost in costs]}", flush=True)
            self.costs += costs
        return len(self.places)

    def _grow_together(self, end: float) -> None:
        while time.monotonic() < end:
            growths = _random_growths(self.chosen, self.places)
            with contextlib.suppress(KeyError, IndexError):
                larger = grown(self.root, growths)
                if len(orjson.dumps(larger)) <= LARGEST:
                    self.costs.append(self.reviews.cost(self.kind, larger, growths, self.options.longest))

    def _update(self, end: float) -> None:
        for cost in sorted(self.costs, key=lambda cost: -cost.deciding):
            larger = grown(self.root, cost.growths)
            if not cost.growths or len(orjson.dumps(larger)) > LARGEST / 2:
                continue
            for new in changed(larger):
                if time.monotonic() > end:
                    return
                tried = self.reviews.cost(f"UPDATE {self.kind}", new, cost.growths, self.options.longest, old=clone(larger))
                self.costs.append(tried)


def _rows(worst: list[Cost], budget: float) -> list[reliability.Row]:
    end = f"at most {budget:.0f} ms of CPU beyond parsing"
    rows = []
    reviews = Reviews()
    for case in CASES:
        cost = reviews.cost(case.kind, body_of(case), [])
        rows.append(
            reliability.Row(
                case.name, end, case.before, f"{cost.deciding:.1f} ms ({cost.size:,} bytes, parsing {cost.parsing:.0f} ms)"
            )
        )
    rows += [reliability.Row(f"the worst found of {cost.kind}: {title(cost.growths)}", end, "-", _shown(cost)) for cost in worst]
    return rows


def _shown(cost: Cost) -> str:
    return f"{cost.deciding:.1f} ms ({cost.size:,} bytes, parsing {cost.parsing:.0f} ms)"


def main() -> int:
    """Search, write the worst of each kind, and return 1 if a cost is over the budget or a curve is not near-linear."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="", help="only kinds whose `apiVersion kind` has this in it")
    parser.add_argument("--seconds", type=float, default=30.0, help="time for each kind")
    parser.add_argument("--longest", type=float, default=1.0, help="CPU in seconds after which a review is given up")
    parser.add_argument("--raised", action="store_true", help="with every limit raised: only the curves are judged")
    parser.add_argument("--write", action="store_true", help="write the table of docs/operate/reliability.md")
    parser.add_argument("--seed", type=int, default=1, help="seed of what is tried")
    options: Any = parser.parse_args()
    objects = {name: root for name, root in kinds().items() if options.kind in name}
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    slow = slowness()
    budget = BUDGET * slow
    print(f"this machine is {slow:.1f} times slower than usual: budget {budget:.0f} ms, curves judged from {LEAST * slow:.0f} ms")
    worst: list[Cost] = []
    failed = 0
    for name, root in objects.items():
        found = Search(name, root, options, slow).run()
        over = [cost for cost in found.costs if cost.deciding > budget] if not options.raised else []
        failed += len(over) + len(found.steep)
        print(
            f"{name}: {len(found.costs)} objects, {found.grown[0]} of {found.grown[1]} lists and maps, "
            f"{len(over)} over the budget, {len(found.steep)} curves not near-linear; the worst:"
        )
        for cost in found.costs[:3]:
            print(f"    {cost}", flush=True)
        worst += found.costs[:1]
    if options.write:
        reliability.write("bench-worst", _rows(worst, budget))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
