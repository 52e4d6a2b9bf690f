"""`make playground`: a real control plane with GPU nodes, Kueue and gpugate, until Ctrl-C."""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
import threading
from pathlib import Path

from tests.e2e.controller import Controller
from tests.e2e.controlplane import ControlPlane, crds
from tests.e2e.controlplane.programs import find_programs
from tests.e2e.gate import Gate
from tests.e2e.workloads import queue

_EXAMPLES = Path("examples") / "workloads"
_MACHINES = (*((f"h100-{number}", "NVIDIA-H100-80GB-HBM3") for number in range(1, 5)), ("a100-1", "NVIDIA-A100-SXM4-40GB"))


def prepare(cluster: ControlPlane, door: Gate) -> None:
    """GPU machines, a team with a queue, and gpugate enforcing at the door."""
    door.install()
    for name, product in _MACHINES:
        cluster.add_gpu_node(name, product)
    cluster.add_node("cpu-1")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    cluster.apply(*queue("team-a", "team-a-train", 40))
    door.start()
    door.register()
    door.set_policy({"mode": "Enforce", "rules": {"queue": {"required": True}}})


def main() -> int:
    """Run until SIGINT or SIGTERM, then stop everything that was started."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with tempfile.TemporaryDirectory(prefix="gpugate-playground-") as folder:
        print("starting etcd, kube-apiserver, controller-manager, scheduler, KWOK and Kueue ...", flush=True)
        with ControlPlane.start(Path(folder), kueue=True) as cluster:
            door, controller = Gate(cluster), Controller(cluster)
            try:
                prepare(cluster, door)
                crds.install_report_kind(cluster, find_programs(), "policyreports.wgpolicyk8s.io")
                controller.start()
                kubectl = shlex.quote(str(cluster.kubectl_path))
                print(f"\n  export KUBECONFIG={cluster.kubeconfig}\n\nTry, in another terminal in this folder:\n")
                print(
                    f"  {kubectl} apply -f {_EXAMPLES / '10-distributed-training-job.yaml'} && {kubectl} get pods -n team-a -o wide"
                )
                print(f"  {kubectl} apply -f {_EXAMPLES / '20-fragmented-gang.yaml'}\n")
                print(f"  {kubectl} get policyreports -A; {kubectl} get gpupolicies")
                print(f"  the audit's page: {controller.url}\n")
                print(f"gpugate logs to {door.log}. Ctrl-C ends it all.", flush=True)
                while not ended.wait(0.5):
                    pass
            finally:
                controller.stop()
                door.stop()
    print("stopped; nothing is left running.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
