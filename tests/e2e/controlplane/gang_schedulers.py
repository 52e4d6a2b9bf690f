"""Schedulers that place pods as gangs, beside Kubernetes' own: the coscheduling plugin's, and Volcano."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.e2e.controlplane.components import HOST, answers_ok
from tests.e2e.controlplane.crds import VOLCANO, install_crds
from tests.e2e.controlplane.ports import free_port
from tests.e2e.controlplane.process import ManagedProcess
from tests.e2e.controlplane.programs import COSCHEDULING, GANG_BUILDS, build_all

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.controlplane.cluster import ControlPlane

#: What pods name to be placed by the scheduler with the plugin.
COSCHEDULING_NAME = "coscheduling"
_VOLCANO_CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: nodeorder}]
"""
_READY = 60.0


def start_coscheduling(cluster: ControlPlane) -> ManagedProcess:
    """Install the CRD of the plugin's PodGroup, and start a scheduler with it."""
    built = build_all(GANG_BUILDS)
    install_crds(cluster, [_crd(built.sources[COSCHEDULING] / "manifests" / "coscheduling" / "crd.yaml")])
    plugins = {
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
    }
    arguments = {"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 5}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
        "podMaxBackoffSeconds": 2,
        "profiles": [{"schedulerName": COSCHEDULING_NAME, "plugins": plugins, "pluginConfig": [arguments]}],
    }
    path = cluster.run_dir / "coscheduling.json"
    path.write_text(json.dumps(configuration))
    port = free_port()
    serving = cluster.authority.serving("coscheduling-scheduler")
    command = [
        str(built["coscheduling-scheduler"]),
        f"--config={path}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={serving.cert}",
        f"--tls-private-key-file={serving.key}",
        f"--authentication-kubeconfig={cluster.kubeconfig}",
        f"--authorization-kubeconfig={cluster.kubeconfig}",
    ]
    process = ManagedProcess.start("coscheduling-scheduler", command, log=cluster.run_dir / "logs" / "coscheduling.log")
    process.wait_ready(lambda: answers_ok(f"https://{HOST}:{port}/healthz", cluster.authority.ca_file), _READY)
    return process


def start_volcano(cluster: ControlPlane) -> list[ManagedProcess]:
    """Install Volcano's CRDs, those of its Job left out where they are there, and start its scheduler and its controllers."""
    built = build_all(GANG_BUILDS)
    folder = built.sources[VOLCANO] / "config" / "crd"
    files = sorted([*(folder / "volcano" / "bases").glob("*.yaml"), *(folder / "jobflow" / "bases").glob("*.yaml")])
    install_crds(cluster, [_crd(file) for file in files])
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}})
    conf = cluster.run_dir / "volcano-scheduler.conf"
    conf.write_text(_VOLCANO_CONF)
    processes = []
    for name, more in (("volcano-controllers", []), ("volcano-scheduler", [f"--scheduler-conf={conf}", "--schedule-period=1s"])):
        address = f"{HOST}:{free_port()}"
        command = [
            str(built[name]),
            f"--kubeconfig={cluster.kubeconfig}",
            "--leader-elect=false",
            "--enable-healthz=true",
            f"--healthz-address={address}",
            *more,
        ]
        process = ManagedProcess.start(
            name, command, log=cluster.run_dir / "logs" / f"{name}.log", env={"DEBUG_SOCKET_DIR": str(cluster.run_dir)}
        )
        processes.append(process)
        process.wait_ready(lambda address=address: answers_ok(f"http://{address}/healthz"), _READY)  # type: ignore[misc]
    return processes


def _crd(path: Path) -> bytes:
    return path.read_bytes()
