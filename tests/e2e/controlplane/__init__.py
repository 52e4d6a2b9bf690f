"""A real Kubernetes control plane, built from Go modules and run on this machine.

`ControlPlane.start` is the way in; `ManagedProcess` runs a program of your own beside it.
"""

from __future__ import annotations

from tests.e2e.controlplane.access import ApiResponse, ClusterAccess
from tests.e2e.controlplane.authority import Authority, CertificateFiles
from tests.e2e.controlplane.cluster import ControlPlane
from tests.e2e.controlplane.components import WEBHOOK_CALLER, answers_ok
from tests.e2e.controlplane.nodes import A100, CPU_ONLY, FINISH_ANNOTATION, GPU_TAINT, H100, T4, NodeShape
from tests.e2e.controlplane.ports import free_port
from tests.e2e.controlplane.process import ManagedProcess, ProcessFailed
from tests.e2e.controlplane.waiting import WaitTimeout, wait_until

__all__ = [
    "A100",
    "CPU_ONLY",
    "FINISH_ANNOTATION",
    "GPU_TAINT",
    "H100",
    "T4",
    "WEBHOOK_CALLER",
    "ApiResponse",
    "Authority",
    "CertificateFiles",
    "ClusterAccess",
    "ControlPlane",
    "ManagedProcess",
    "NodeShape",
    "ProcessFailed",
    "WaitTimeout",
    "answers_ok",
    "free_port",
    "wait_until",
]
