"""What one user with ``edit`` can do to others, at a real apiserver with one replica of gpugate.

A ServiceAccount of one namespace sends the ten worst bodies (`benchmarks/attack_bodies.py`) in a loop while another one creates GPU
pods in its own namespace. In turns, the same webhook configurations call gpugate, and a trivial handler that allows everything
(`benchmarks/floor.py`): what the attack does to the apiserver itself is in both.

The cluster is a plain one, without Kueue. The audit log is off: the apiserver would write every body into it. The pods have a
scheduling gate, so that the scheduler and KWOK do the same for both webhooks: nothing.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from benchmarks.attack_bodies import WORST, Body, body
from benchmarks.attacker import SENDING, Connection
from benchmarks.load import Server, cpu_seconds, running
from tests.e2e.controlplane import ControlPlane, ManagedProcess, wait_until
from tests.e2e.gate import Gate
from tests.e2e.workloads import container, gpus, pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

ATTACKER, TEAM = "attacker", "team"
#: GPU pods that are created under each of the two webhooks, the turns in which, and how many at once.
PODS, ROUNDS, SENDERS = 400, 4, 4
#: Requests of the attacker at once.
CONNECTIONS = 8
#: The most that the p99 of a creation may be above that under the webhooks that allow everything, as a ratio.
AT_MOST = 1.3
_GATE = {"name": "e2e.gpugate.io/never"}
DOORS = ("allow", "gpugate")


class Created(NamedTuple):
    """One creation of a GPU pod: its name, what went wrong if anything did, and the seconds that it took."""

    name: str
    problem: str
    seconds: float


class Phase(NamedTuple):
    """One turn of one of the two webhooks.

    Attributes:
        door: ``allow`` or ``gpugate``.
        seconds: its length.
        created: the pods.
        answers: how often the attacker got which status, for each body.
        reviews: reviews that gpugate has answered.
        webhook_cpu: seconds of CPU that the webhook took.
        apiserver_cpu: seconds of CPU that the apiserver took.
    """

    door: str
    seconds: float
    created: list[Created]
    answers: Mapping[str, Mapping[str, int]]
    reviews: int
    webhook_cpu: float
    apiserver_cpu: float

    @property
    def sent(self) -> int:
        """How many requests of the attacker were answered."""
        return sum(count for counts in self.answers.values() for count in counts.values())

    @property
    def lost(self) -> list[str]:
        """What went wrong with pods."""
        return [f"{one.name}: {one.problem}" for one in self.created if one.problem]


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

    def run(self, door: str, pods: int, connections: int = CONNECTIONS, *, densest: bool = False) -> Phase:
        """Attack one webhook and create GPU pods meanwhile."""
        self.switch(door)
        first, self._created = self._created, self._created + pods
        with self.attack(connections, densest=densest) as answers:
            before, reviews, begun = self._cpu(door), self.gate.reviews(), time.monotonic()
            with ThreadPoolExecutor(SENDERS) as pool:
                parts = pool.map(lambda at: self._create(door, range(first + at, first + pods, SENDERS)), range(SENDERS))
                created = [one for part in parts for one in part]
            seconds, after = time.monotonic() - begun, self._cpu(door)
            reviews = self.gate.reviews() - reviews
        return Phase(door, seconds, created, answers, reviews, after[0] - before[0], after[1] - before[1])

    def _cpu(self, door: str) -> tuple[float, float]:
        """Seconds of CPU that a webhook and the apiserver have taken."""
        return cpu_seconds(self.pid(door)), cpu_seconds(self.cluster.processes["kube-apiserver"].pid)

    def _create(self, door: str, numbers: Iterable[int]) -> list[Created]:
        """Create GPU pods over one connection, one after the other."""
        connection, created = self.connection(TEAM), list[Created]()
        for number in numbers:
            name = f"train-{number:04}"
            content = orjson.dumps(pod(name, TEAM, container(gpus(1, "32Gi", "4")), schedulingGates=[_GATE]))
            started = time.perf_counter()
            status, answer = connection.send("POST", f"/api/v1/namespaces/{TEAM}/pods", content)
            seconds = time.perf_counter() - started
            problem = "" if status == 201 else f"{status} {answer[:300]!r}"
            if not problem and is_edited(orjson.loads(answer)) != (door == "gpugate"):
                problem = "the pod has no edits" if door == "gpugate" else "the pod has edits"
            created.append(Created(name, problem, seconds))
        connection.close()
        return created

    def stored(self) -> dict[str, bool]:
        """The names of the pods that the team has, each with whether gpugate has edited it."""
        items = self.cluster.request("GET", f"/api/v1/namespaces/{TEAM}/pods").body["items"]
        return {one["metadata"]["name"]: is_edited(one) for one in items}


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
    return [site.run(door, pods // rounds, connections, densest=densest) for _ in range(rounds) for door in DOORS]


def percentile(times: Iterable[float], share: float) -> float:
    """The smallest time that at least this share of the times is not above."""
    ordered = sorted(times)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def times(phases: Sequence[Phase], door: str) -> list[float]:
    """Seconds of all creations under one webhook."""
    return [one.seconds for phase in phases if phase.door == door for one in phase.created]


def ratio(phases: Sequence[Phase], share: float = 0.99) -> float:
    """How many times longer a creation takes under gpugate than under the other webhook, at this percentile."""
    return percentile(times(phases, "gpugate"), share) / percentile(times(phases, "allow"), share)
