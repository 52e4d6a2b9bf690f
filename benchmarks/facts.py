"""`make bench-facts`: what it costs to know the cluster, and that a review's time does not grow with it.

A recorded cluster is played over loopback to real `gpugate serve` processes, one for each of several sizes: time to ready,
memory, CPU per event, how late a change shows, reviews over TLS while nothing happens and while events pour in. In process:
what one object of each kind costs, what a snapshot costs, and one review against all sizes of cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from benchmarks import curve, records, reviews
from benchmarks.apiserver import kubeconfig
from benchmarks.bench import asking
from benchmarks.curve import Cost, Size
from benchmarks.load import port_in, running
from benchmarks.served import Gate, Report, measure
from gpugate.certs.store import ensure
from gpugate.webhook.files.inputs import load_policies

_POLICY = Path(__file__).parent.parent / "examples" / "policy.yaml"
#: From this many nodes on a cluster has every sort of machine; below, there is less to look at.
_SMALL = 100


@contextmanager
def _gate(size: Size, work: Path, seed: int) -> Iterator[Gate]:
    """A recorded cluster of this size, and a gpugate that has just begun to watch it."""
    folder = work / f"{size.nodes}-{size.pods}"
    folder.mkdir()
    play = [sys.executable, "-m", "benchmarks.apiserver", f"--nodes={size.nodes}", f"--pods={size.pods}", f"--seed={seed}"]
    with running([*play, f"--policy={_POLICY}"], folder / "apiserver.log") as played:
        (folder / "kubeconfig").write_text(kubeconfig(played.port), encoding="utf-8")
        serve = [str(Path(sys.executable).with_name("gpugate")), "serve", "--listen=127.0.0.1:0", f"--tls-dir={work / 'tls'}"]
        serve += [f"--kubeconfig={folder / 'kubeconfig'}", "--drain-delay=0", "--metrics-listen=127.0.0.1:0"]
        with running(serve, folder / "gpugate.log") as server:
            metrics = server._replace(port=port_in(folder / "gpugate.log", message="listening for metrics"))
            yield Gate(size, server, metrics, played, work / "tls" / "ca.crt")


def _through_the_server(sizes: Sequence[Size], events: int, seconds: float, seed: int) -> list[Report]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Path(folder)
        bundle = ensure(work / "tls", ["localhost", "127.0.0.1"], datetime.now(UTC))
        ca = bundle.paths.ca_certificate
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        # Each is measured while it starts, with nothing beside it; reviews then go to all of them in turns.
        gates = []
        for size in sizes:
            gate = stack.enter_context(_gate(size, work, seed))._replace(ca=ca)
            gates.append((gate, runner.run(gate.sync())))
        review = curve.recorded_review()
        bodies = [reviews.bodies(review, asking(gate.server, ca)) for gate, _ in gates]
        return runner.run(measure(gates, bodies, events, seconds))


def _show_kinds(nodes: int, seed: int) -> None:
    print(f"{'one object of':34} {'wire B':>7} {'parse us':>9} {'read us':>8} {'put us':>7} {'kept B':>7}")
    for resource, one in records.kind_costs(nodes, seed).items():
        print(f"{resource:34} {one.wire:7} {one.parse:9.1f} {one.read:8.1f} {one.put:7.1f} {one.kept:7}")


def _show_snapshots(nodes: int, pods: int, seed: int) -> None:
    print(f"\nCPU of a snapshot of {nodes} nodes and {pods} pods after a change of ...")
    for turn in records.snapshot_costs(nodes, pods, seed):
        print(f"  {turn.what:20} {turn.median:8.3f} ms (longest {turn.longest:.3f} ms)")


def _show_curve(costs: dict[Size, Cost], at_most: float) -> bool:
    """Print the curve; say whether it is flat."""
    print(f"\nCPU of one review in process, microseconds\n{'nodes':>7} {'pods':>7} {'mutate':>8} {'validate':>9} {'first':>8}")
    for size, cost in costs.items():
        name = " no facts given" if size == curve.WITHOUT else f"{size.nodes:7} {size.pods:7}"
        print(f"{name} {cost.mutate:8.1f} {cost.validate:9.1f} {cost.first:8.1f}")
    small = min((size for size in costs if size.nodes >= _SMALL), default=min(costs))
    worst = max(
        max(costs[size].mutate / costs[small].mutate, costs[size].validate / costs[small].validate)
        for size in costs
        if size >= small
    )
    print(f"largest against {small.nodes} nodes and {small.pods} pods: {worst:.2f} x (budget {at_most:g} x)")
    return worst <= at_most


def _show_reports(reports: Sequence[Report], at_most: float) -> bool:
    rows: list[tuple[str, list[str]]] = [("nodes / pods", [f"{one.size.nodes} / {one.size.pods}" for one in reports])]
    rows += [(title, [form.format(getattr(one, name)) for one in reports]) for title, name, form in Report.ROWS]
    print("\nThrough the server")
    for title, cells in rows:
        print(f"{title:44} " + " ".join(f"{cell:>15}" for cell in cells))
    compared = [one for one in reports if one.size.nodes >= _SMALL] or list(reports)
    worst = max(max(one.mutate_cpu / compared[0].mutate_cpu, one.validate_cpu / compared[0].validate_cpu) for one in compared)
    print(f"CPU of a review at the largest against {compared[0].size.nodes} nodes: {worst:.2f} x (budget {at_most:g} x)")
    return worst <= at_most


def main() -> int:
    """Measure, print tables, and fail where a review's time grows with the cluster."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000, help="nodes of the largest cluster")
    parser.add_argument("--pods", type=int, default=100_000, help="pods of the largest cluster")
    parser.add_argument("--events", type=int, default=20_000, help="events of pods; of nodes there are a quarter as many")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round of reviews")
    parser.add_argument("--seed", type=int, default=1, help="the same objects for the same seed")
    parser.add_argument("--at-most", type=float, default=1.3, help="fail where a review costs more than this times the small one")
    options = parser.parse_args()
    nodes, pods = options.nodes, options.pods
    print(f"Python {sys.version.split()[0]}\n")
    _show_kinds(nodes, options.seed)
    _show_snapshots(nodes, min(pods, 20_000), options.seed)
    costs = curve.measure(
        sorted({0, min(_SMALL, nodes), nodes // 5, nodes}), sorted({0, pods // 10, pods}), options.seed, load_policies([_POLICY])
    )
    flat = _show_curve(costs, options.at_most)
    sizes = sorted({Size(0, 0), Size(min(_SMALL, nodes), pods // 50), Size(nodes, pods)})
    flat = _show_reports(_through_the_server(sizes, options.events, options.seconds, options.seed), options.at_most) and flat
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
