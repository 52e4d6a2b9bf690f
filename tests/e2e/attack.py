"""`make bench-attack`: what one user with ``edit`` can do to others, at a real apiserver with one replica of gpugate.

A ServiceAccount of one namespace sends the ten worst bodies (`benchmarks/attack_bodies.py`) in a loop while another one creates GPU pods in
its own namespace, one after the other. In turns, the same webhook configurations call gpugate, and a trivial handler that allows
everything (`benchmarks/floor.py`): what the attack does to the apiserver itself is in both.

The cluster is a plain one, without Kueue. The audit log is off: the apiserver would write every body into it.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from benchmarks.attack_bodies import CANDIDATES, DENSEST, WORST, Body, body
from benchmarks.attacker import SENDING, Connection
from benchmarks.load import Server, cpu_seconds, running
from tests.e2e.controlplane import ControlPlane, ManagedProcess, wait_until
from tests.e2e.gate import Gate
from tests.e2e.workloads import container, gpus, pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ATTACKER, TEAM = "attacker", "team"
#: The issue of every GPU pod that is created, and how many of them in all under each of the two webhooks.
PODS, ROUNDS, CONNECTIONS = 200, 4, 8
_GATE = {"name": "e2e.gpugate.io/never"}
_DOORS = ("allow", "gpugate")


class Phase(NamedTuple):
    """One stretch of the run under one of the two webhooks.

    Attributes:
        door: ``allow`` or ``gpugate``.
        seconds: its length.
        times: seconds that each creation took.
        failed: answers to creations that were not 201.
        unedited: names of the pods that were created without gpugate's edits.
        answers: how often the attacker got which status, for each body.
        webhook_cpu: seconds of CPU that the webhook took.
        apiserver_cpu: seconds of CPU that the apiserver took.
    """

    door: str
    seconds: float
    times: list[float]
    failed: list[str]
    unedited: list[str]
    answers: Mapping[str, Mapping[str, int]]
    webhook_cpu: float
    apiserver_cpu: float

    @property
    def sent(self) -> int:
        """How many requests of the attacker were answered."""
        return sum(count for counts in self.answers.values() for count in counts.values())


class Site:
    """A control plane with both webhooks running, a ServiceAccount that attacks, and one that works."""

    def __init__(self, cluster: ControlPlane, gate: Gate, allow: Server) -> None:
        """Take what runs; `opened` starts it all."""
        self.cluster, self.gate, self.allow = cluster, gate, allow
        self._tokens = {name: self._account(name) for name in (ATTACKER, TEAM)}
        self._created = 0

    def _account(self, namespace: str) -> Path:
        """A file with the token of a ServiceAccount that has ``edit`` in a namespace of its own."""
        cluster = self.cluster
        cluster.kubectl("create", "namespace", namespace)
        cluster.kubectl("create", "serviceaccount", "user", "-n", namespace)
        edit = ("--clusterrole=edit", f"--serviceaccount={namespace}:user", "-n", namespace)
        cluster.kubectl("create", "rolebinding", "user", *edit)
        token = cluster.kubectl("create", "token", "user", "-n", namespace, "--duration=2h").stdout
        path = cluster.run_dir / f"{namespace}.token"
        path.touch(mode=0o600)
        path.write_text(token.strip(), encoding="ascii")
        return path

    def connection(self, name: str) -> Connection:
        """A connection to the apiserver as the ServiceAccount of a namespace."""
        token = self._tokens[name].read_text(encoding="ascii")
        return Connection(self.cluster.server, self.cluster.authority.ca_file, token)

    def store_what_is_there_before(self, bodies: Sequence[Body]) -> None:
        """Store what has the names of the bodies before gpugate is asked."""
        connection = self.connection(ATTACKER)
        for one in bodies:
            status, answer = connection.send("POST", one.path.rpartition("/")[0] if one.method == "PUT" else one.path, one.before)
            if status != 201:
                raise AssertionError(f"{one.name}: {status} {answer[:500]!r}")
        connection.close()

    def pid(self, door: str) -> int:
        """The process of a webhook."""
        return self.allow.pid if door == "allow" else self.gate.pid

    def switch(self, door: str) -> None:
        """Let the apiserver call this webhook from now on."""
        if door == "gpugate":
            self.gate.register()
            self.gate.wait_in_force(TEAM)
            return
        self.gate.register(f"https://127.0.0.1:{self.allow.port}")
        bad = pod("probe", TEAM, container({"limits": {"nvidia.com/mig-1g5gb": "1"}}))
        path = f"/api/v1/namespaces/{TEAM}/pods?dryRun=All"
        wait_until(lambda: self.cluster.request("POST", path, bad).status == 201, 30, "the apiserver to call the other webhook")

    @contextlib.contextmanager
    def attack(self, connections: int, *, densest: bool = False) -> Iterator[dict[str, dict[str, int]]]:
        """Attack during the block; the answers that the attacker got are there after it."""
        log = self.cluster.run_dir / "logs" / "attacker.log"
        log.unlink(missing_ok=True)
        command = [sys.executable, "-m", "benchmarks.attacker", f"--server={self.cluster.server}", f"--namespace={ATTACKER}"]
        command += [f"--ca={self.cluster.authority.ca_file}", f"--token-file={self._tokens[ATTACKER]}"]
        process = ManagedProcess.start(
            "attacker", [*command, f"--connections={connections}", *(["--densest"] if densest else [])], log=log
        )
        answers: dict[str, dict[str, int]] = {}
        try:
            process.wait_ready(lambda: SENDING in log.read_text(), 60)
            yield answers
            process.send_signal(15)
            process.wait(60)
            answers |= orjson.loads(log.read_text().splitlines()[-1])["answers"]
        finally:
            process.stop()

    def run(self, door: str, pods: int, connections: int, *, densest: bool = False) -> Phase:
        """Attack one webhook and create GPU pods meanwhile."""
        self.switch(door)
        connection = self.connection(TEAM)
        times: list[float] = []
        failed: list[str] = []
        unedited: list[str] = []
        with self.attack(connections, densest=densest) as answers:
            before = cpu_seconds(self.pid(door)), cpu_seconds(self.cluster.processes["kube-apiserver"].pid)
            begun = time.monotonic()
            for _ in range(pods):
                self._created += 1
                name = f"train-{self._created:04}"
                content = orjson.dumps(pod(name, TEAM, container(gpus(1, "32Gi", "4")), schedulingGates=[_GATE]))
                started = time.perf_counter()
                status, answer = connection.send("POST", f"/api/v1/namespaces/{TEAM}/pods", content)
                times.append(time.perf_counter() - started)
                if status != 201:
                    failed.append(f"{name}: {status} {answer[:300]!r}")
                elif not is_edited(orjson.loads(answer)):
                    unedited.append(name)
            seconds = time.monotonic() - begun
            after = cpu_seconds(self.pid(door)), cpu_seconds(self.cluster.processes["kube-apiserver"].pid)
        connection.close()
        return Phase(door, seconds, times, failed, unedited, answers, after[0] - before[0], after[1] - before[1])

    def stored_pods(self) -> list[dict[str, Any]]:
        """The pods of the team."""
        found: list[dict[str, Any]] = self.cluster.request("GET", f"/api/v1/namespaces/{TEAM}/pods").body["items"]
        return found


def is_edited(obj: Mapping[str, Any]) -> bool:
    """Whether gpugate has edited a pod: it tolerates the taint of GPU machines and has shared memory."""
    spec = obj["spec"]
    tolerates = any(one.get("key") == "nvidia.com/gpu" for one in spec.get("tolerations", []))
    return tolerates and any(one["name"] == "gpugate-shm" for one in spec.get("volumes", []))


@contextlib.contextmanager
def opened(run_dir: Path, bodies: Iterable[str] = WORST) -> Iterator[Site]:
    """A control plane with a GPU machine, gpugate in Enforce with its defaults, and the webhook that allows everything."""
    none = run_dir / "no-audit.json"
    none.write_bytes(orjson.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None"}]}))
    with ControlPlane.start(run_dir, apiserver_args=[f"--audit-policy-file={none}"]) as cluster:
        gate = Gate(cluster)
        files = cluster.authority.serving("always-allow")
        plain = [sys.executable, "-m", "benchmarks.floor", str(files.cert), str(files.key)]
        with running(plain, run_dir / "logs" / "always-allow.log") as allow:
            gate.install()
            cluster.add_gpu_node("attack-h100")
            site = Site(cluster, gate, allow)
            site.store_what_is_there_before([body(name, ATTACKER) for name in bodies])
            gate.start()
            try:
                gate.set_policy({"mode": "Enforce"})
                yield site
            finally:
                gate.stop()


def measure(
    site: Site, pods: int = PODS, rounds: int = ROUNDS, connections: int = CONNECTIONS, *, densest: bool = False
) -> list[Phase]:
    """Run the phases: the two webhooks in turns, ``rounds`` times, ``pods`` pods in all under each."""
    return [site.run(door, pods // rounds, connections, densest=densest) for _ in range(rounds) for door in _DOORS]


def percentile(times: Sequence[float], share: float) -> float:
    """The smallest time that at least this share of the times is not above."""
    ordered = sorted(times)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def pooled(phases: Sequence[Phase], door: str) -> list[float]:
    """All times under one webhook."""
    return [one for phase in phases if phase.door == door for one in phase.times]


def ratio(phases: Sequence[Phase], share: float = 0.99) -> float:
    """How many times longer a creation takes under gpugate than under the other webhook, at this percentile."""
    return percentile(pooled(phases, "gpugate"), share) / percentile(pooled(phases, "allow"), share)


def table(phases: Sequence[Phase], connections: int) -> str:
    """What was measured, for a terminal."""
    lines = [f"{len(WORST)} bodies in a loop over {connections} connections; milliseconds of one creation of a GPU pod"]
    lines.append(
        f"{'webhook':10} {'pods':>5} {'p50':>7} {'p90':>7} {'p99':>7} {'longest':>8}   attack/s  CPU of webhook, of apiserver"
    )
    for phase in phases:
        lines.append(_line(phase.door, [phase]))
    lines += [_line(f"{door}, all", [phase for phase in phases if phase.door == door]) for door in _DOORS]
    for door in _DOORS:
        lines.append(f"answers to the attacker, {door}: {dict(sorted(_statuses(phases, door).items()))}")
    lines.append("gpugate / allow: " + ", ".join(f"p{share * 100:.0f} {ratio(phases, share):.2f}" for share in (0.5, 0.9, 0.99)))
    return "\n".join(lines)


def _line(title: str, phases: Sequence[Phase]) -> str:
    times = [one for phase in phases for one in phase.times]
    seconds = sum(phase.seconds for phase in phases)
    figures = " ".join(f"{1000 * percentile(times, share):7.0f}" for share in (0.5, 0.9, 0.99))
    cpu = (
        f"{sum(phase.webhook_cpu for phase in phases) / seconds:8.2f} {sum(phase.apiserver_cpu for phase in phases) / seconds:8.2f}"
    )
    return (
        f"{title:14} {len(times):5} {figures} {1000 * max(times):8.0f} {sum(phase.sent for phase in phases) / seconds:9.1f}  {cpu}"
    )


def _statuses(phases: Sequence[Phase], door: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for phase in phases:
        if phase.door == door:
            for counts in phase.answers.values():
                found.update(counts)
    return found


class Choice(NamedTuple):
    """What one body costs: CPU of gpugate and of the trivial webhook in ms for each request, and how the request ended."""

    name: str
    size: int
    gpugate: float
    allow: float
    apiserver: float
    mutated: float
    validated: float
    statuses: dict[str, str]


def choose(site: Site, seconds: float) -> list[Choice]:
    """Send each candidate alone, one request after the other, for some seconds, to both webhooks; the costliest first."""
    choices: dict[str, dict[str, Any]] = {name: {"statuses": {}} for name in CANDIDATES}
    for door in _DOORS:
        site.switch(door)
        connection = site.connection(ATTACKER)
        for name, found in choices.items():
            one = body(name, ATTACKER)
            counted = {at: site.gate.reviews(endpoint=at) for at in ("mutate", "validate")}
            apiserver = site.cluster.processes["kube-apiserver"].pid
            before, begun, sent = (cpu_seconds(site.pid(door)), cpu_seconds(apiserver)), time.monotonic(), 0
            while time.monotonic() < begun + seconds or not sent:
                status, answer = connection.send(one.method, one.path, one.content)
                found["statuses"][door] = f"{status} {_reason(answer)}"
                sent += 1
            found[door] = 1000 * (cpu_seconds(site.pid(door)) - before[0]) / sent
            found["apiserver"] = 1000 * (cpu_seconds(apiserver) - before[1]) / sent
            if door == "gpugate":
                found |= {at: (site.gate.reviews(endpoint=at) - count) / sent for at, count in counted.items()}
            found["size"] = len(one.content)
    made = [
        Choice(name, one["size"], one["gpugate"], one["allow"], one["apiserver"], one["mutate"], one["validate"], one["statuses"])
        for name, one in choices.items()
    ]
    return sorted(made, key=lambda choice: -choice.gpugate)


def _reason(answer: bytes) -> str:
    found = re.search(rb'"message":\s*"([^"]*)', answer)
    return found[1][:150].decode(errors="replace") if found else ""


def main() -> int:
    """Measure, print the table, and return 1 if a pod was lost or the p99 is above the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=PODS, help="GPU pods created under each webhook")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often the two webhooks take turns")
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help="requests of the attacker at once")
    parser.add_argument("--at-most", type=float, default=1.3, help="fail above this ratio of the p99s")
    parser.add_argument("--densest", action="store_true", help="the bodies that can be sent most often, instead of the costliest")
    parser.add_argument("--choose", type=float, metavar="SECONDS", help="measure each candidate alone instead, for so long")
    options: Any = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpugate-attack-") as folder:
        if options.choose:
            with opened(Path(folder), CANDIDATES) as site:
                for one in choose(site, options.choose):
                    print(
                        f"{one.gpugate:8.1f} {one.allow:8.1f} {one.apiserver:8.1f} {one.size:8} {one.mutated:4.1f} {one.validated:4.1f} "
                        f"{one.name}: {one.statuses}",
                        flush=True,
                    )
            return 0
        with opened(Path(folder), dict.fromkeys((*WORST, *DENSEST))) as site:
            phases = measure(site, options.pods, options.rounds, options.connections, densest=options.densest)
    print(table(phases, options.connections))
    lost = [one for phase in phases if phase.door == "gpugate" for one in (*phase.failed, *phase.unedited)]
    print(
        f"{len(lost)} pods lost or unedited{': ' + lost[0] if lost else ''}; p99 {ratio(phases):.2f} times (budget {options.at_most:g})"
    )
    return 1 if lost or ratio(phases) > options.at_most else 0


if __name__ == "__main__":
    sys.exit(main())
