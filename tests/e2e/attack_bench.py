"""`make bench-attack`: what the worst bodies of one user cost others, as a table and in docs/operate/reliability.md.

With ``--choose``, each candidate of `benchmarks/attack_bodies.py` is sent alone instead, and the table says what it costs.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.attack_bodies import CANDIDATES, DENSEST, WORST, body
from benchmarks.load import cpu_seconds
from benchmarks.reliability import Row, write
from tests.e2e import attack
from tests.e2e.attack import DOORS, Phase, Site, percentile, ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHARES = (0.5, 0.9, 0.99)
#: What the same attack came to before there were limits and a queue.
_BEFORE = "one pod of 55 KB (600 init containers): 17.8 s of CPU, 7 of 7 GPU pods of other teams failed"


def table(phases: Sequence[Phase]) -> str:
    """What was measured, for a terminal."""
    lines = [
        "milliseconds of one creation of a GPU pod; requests of the attacker, and CPU of webhook and apiserver, for each second",
        f"{'':14} {'pods':>5} {'p50':>7} {'p90':>7} {'p99':>7} {'longest':>8} {'attack':>9} {'webhook':>8} {'apiserver':>9}",
    ]
    lines += [_line(phase.door, [phase]) for phase in phases]
    lines += [_line(f"{door}, all", [phase for phase in phases if phase.door == door]) for door in DOORS]
    lines += [f"answers to the attacker, {door}: {dict(sorted(_statuses(phases, door).items()))}" for door in DOORS]
    lines.append("gpugate / allow: " + ", ".join(f"p{share * 100:.0f} {ratio(phases, share):.2f}" for share in _SHARES))
    return "\n".join(lines)


def _line(title: str, phases: Sequence[Phase]) -> str:
    times = [one.seconds for phase in phases for one in phase.created]
    seconds = sum(phase.seconds for phase in phases)
    figures = " ".join(f"{1000 * percentile(times, share):7.0f}" for share in _SHARES)
    rates = (sum(getattr(phase, name) for phase in phases) / seconds for name in ("sent", "webhook_cpu", "apiserver_cpu"))
    return f"{title:14} {len(times):5} {figures} {1000 * max(times):8.0f} {'{:9.1f} {:8.2f} {:9.2f}'.format(*rates)}"


def _statuses(phases: Sequence[Phase], door: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for phase in phases:
        if phase.door == door:
            for counts in phase.answers.values():
                found.update(counts)
    return found


def rows(phases: Sequence[Phase], connections: int, at_most: float, *, densest: bool) -> list[Row]:
    """What was measured, for the page."""
    which = "ten bodies that cost most for each second of the apiserver's CPU" if densest else "ten worst bodies"
    times = {door: attack.times(phases, door) for door in DOORS}
    lost = sum(len(phase.lost) for phase in phases if phase.door == "gpugate")
    p50, p99 = (f"{1000 * percentile(times['gpugate'], share):.0f} ms ({ratio(phases, share):.2f} times)" for share in (0.5, 0.99))
    done = (
        f"a ServiceAccount with `edit` sends the {which} in a loop over {connections} connections, while another one creates "
        f"{len(times['gpugate'])} GPU pods, {attack.SENDERS} at once, at a real apiserver with one replica"
    )
    end = (
        f"no pod is lost or unedited, and p99 of a creation is at most {at_most:g} times that under webhooks that allow everything"
    )
    return [Row(done, end, _BEFORE, f"{lost} lost, p50 {p50}, p99 {p99}")]


class Choice(NamedTuple):
    """What one request with a candidate costs.

    Attributes:
        size: bytes of the body.
        cpu: milliseconds of CPU, by program: ``gpugate``, ``allow``, ``apiserver``.
        reviews: how often each endpoint of gpugate was asked.
        answers: the last answer, by webhook.
    """

    name: str
    size: int
    cpu: dict[str, float]
    reviews: dict[str, float]
    answers: dict[str, str]

    def __str__(self) -> str:
        figures = " ".join(f"{self.cpu[name]:9.1f}" for name in ("gpugate", "allow", "apiserver"))
        asked = " ".join(f"{number:4.1f}" for number in self.reviews.values())
        return f"{figures} {self.size:9} {asked}  {self.name}: {self.answers}"


def choose(site: Site, seconds: float) -> list[Choice]:
    """Send each candidate alone, one request after the other, for some seconds, to both webhooks; the costliest first."""
    made = {name: Choice(name, len(body(name, attack.ATTACKER).content), {}, {}, {}) for name in CANDIDATES}
    for door in DOORS:
        site.switch(door)
        for choice in made.values():
            _measure(site, door, choice, seconds)
    return sorted(made.values(), key=lambda choice: -choice.cpu["gpugate"])


def _measure(site: Site, door: str, choice: Choice, seconds: float) -> None:
    one, connection = body(choice.name, attack.ATTACKER), site.connection(attack.ATTACKER)
    processes = {door: site.pid(door), "apiserver": site.cluster.processes["kube-apiserver"].pid}
    spent = {name: cpu_seconds(pid) for name, pid in processes.items()}
    asked = {endpoint: site.gate.reviews(endpoint=endpoint) for endpoint in ("mutate", "validate")}
    begun, sent = time.monotonic(), 0
    while time.monotonic() < begun + seconds or not sent:
        status, answer = connection.send(one.method, one.path, one.content)
        found = re.search(rb'"message":\s*"([^"]*)', answer)
        choice.answers[door] = f"{status} {found[1][:80].decode(errors='replace') if found else ''}"
        sent += 1
    connection.close()
    choice.cpu.update({name: 1000 * (cpu_seconds(pid) - spent[name]) / sent for name, pid in processes.items()})
    if door == "gpugate":
        choice.reviews.update(
            {endpoint: (site.gate.reviews(endpoint=endpoint) - count) / sent for endpoint, count in asked.items()}
        )


def main() -> int:
    """Measure, print the table, and return 1 if a pod was lost or the p99 is above the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=attack.PODS, help="GPU pods created under each webhook")
    parser.add_argument("--rounds", type=int, default=attack.ROUNDS, help="how often the two webhooks take turns")
    parser.add_argument("--connections", type=int, default=attack.CONNECTIONS, help="requests of the attacker at once")
    parser.add_argument("--at-most", type=float, default=attack.AT_MOST, help="fail above this ratio of the p99s")
    parser.add_argument("--densest", action="store_true", help="measure only the bodies that can be sent most often")
    parser.add_argument("--write", action="store_true", help="write the rows into docs/operate/reliability.md")
    parser.add_argument("--choose", type=float, metavar="SECONDS", help="measure each candidate alone instead, for so long")
    options: Any = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpugate-attack-") as folder:
        if options.choose:
            with attack.opened(Path(folder), CANDIDATES) as site:
                print(
                    "CPU ms of gpugate, of a webhook that allows everything, of the apiserver; bytes; calls of /mutate, /validate"
                )
                print(*choose(site, options.choose), sep="\n")
            return 0
        found: list[Row] = []
        failed = False
        with attack.opened(Path(folder), dict.fromkeys((*WORST, *DENSEST))) as site:
            for densest in (True,) if options.densest else (False, True):
                phases = attack.measure(site, options.pods, options.rounds, options.connections, densest=densest)
                lost = [one for phase in phases for one in phase.lost]
                print(f"{'the densest' if densest else 'the worst'} bodies over {options.connections} connections\n{table(phases)}")
                print(f"{len(lost)} pods lost or unedited {lost[:1]}; budget of the p99 {options.at_most:g} times\n", flush=True)
                found += rows(phases, options.connections, options.at_most, densest=densest)
                failed = failed or bool(lost) or ratio(phases) > options.at_most
    if options.write:
        write("attack", found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
