"""KWOK: keeps fake nodes alive and runs the pods that are bound to them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

from tests.e2e.controlplane.components import HOST
from tests.e2e.controlplane.nodes import FAKE_ANNOTATION, FINISH_ANNOTATION
from tests.e2e.controlplane.ports import free_port
from tests.e2e.controlplane.process import ManagedProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.controlplane.access import ClusterAccess
    from tests.e2e.controlplane.programs import Programs

MODULE = "sigs.k8s.io/kwok"
# Taken as they are from the module's kustomize/stage.
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)


def start_kwok(programs: Programs, cluster: ClusterAccess, run_dir: Path) -> tuple[ManagedProcess, str]:
    """Start KWOK under the rights its own manifests give it; returns the URL that says when it is ready."""
    module = programs.sources[MODULE] / "kustomize"
    cluster.kubectl("apply", "--server-side", "-k", str(module / "rbac"))
    stages = [module / "stage" / stage for stage in _STAGES] + [_finish_stage(module / "stage", run_dir)]
    address = f"{HOST}:{free_port()}"
    command = [
        str(programs["kwok"]),
        f"--kubeconfig={cluster.kubeconfig_for_service_account('kube-system', 'kwok-controller')}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={FAKE_ANNOTATION}=fake",
        f"--server-address={address}",
        f"--node-ip={HOST}",
        # Leases are what tells the node controller that a machine lives: without them each is unreachable once a minute.
        "--node-lease-duration-seconds=40",
        *(f"--config={stage}" for stage in stages),
    ]
    process = ManagedProcess.start(
        "kwok",
        command,
        log=run_dir / "logs" / "kwok.log",
        env={"KWOK_WORKDIR": str(run_dir / "kwok"), "HOME": str(run_dir)},
    )
    return process, f"http://{address}/healthz"


def _finish_stage(stages: Path, run_dir: Path) -> Path:
    """KWOK's stage that completes a Job's pods, made to complete the pods that carry the annotation instead."""
    stage = YAML(typ="safe").load(stages / "pod" / "fast" / "pod-complete.yaml")
    expressions = stage["spec"]["selector"]["matchExpressions"]
    kept = [expression for expression in expressions if "ownerReferences" not in expression["key"]]
    if len(kept) != len(expressions) - 1:
        raise RuntimeError(f"KWOK's pod-complete stage selects pods in another way than expected: {expressions}")
    kept.append({"key": f'.metadata.annotations["{FINISH_ANNOTATION}"]', "operator": "Exists"})
    stage["spec"]["selector"]["matchExpressions"] = kept
    path = run_dir / "kwok-finish.yaml"
    path.write_text(json.dumps(stage))
    return path
