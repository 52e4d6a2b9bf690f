"""Everything a test of the GitOps tools works with."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.e2e.workloads import queue
from tests.e2e_gitops.app import QUEUE, QUOTA
from tests.e2e_gitops.remaining import wait_for_none

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.controlplane.programs import Programs
    from tests.e2e.gate import Gate
    from tests.e2e_gitops.argocd import ArgoCD
    from tests.e2e_gitops.flux import Flux
    from tests.e2e_gitops.repository import Repository

#: Where the API serves the kinds that the tests look at.
_PATHS: Mapping[str, str] = {
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
    "ReplicaSet": "/apis/apps/v1/namespaces/{namespace}/replicasets",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets",
    "Workload": "/apis/kueue.x-k8s.io/v1beta1/namespaces/{namespace}/workloads",
}


@dataclass(frozen=True)
class World:
    """A cluster with Argo CD, Flux and gpugate."""

    cluster: ControlPlane
    tools: Programs
    repository: Repository
    argo: ArgoCD
    flux: Flux
    gate: Gate
    namespaces: list[str] = field(default_factory=list)
    """Those that were made and are still there."""

    def add_namespace(self, name: str, *, quota: int = QUOTA) -> None:
        """A namespace with one Kueue queue."""
        self.namespaces.append(name)
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, *queue(name, QUEUE, quota))

    def forget_all(self) -> None:
        """Take all namespaces away with what is in them, and the Applications and Kustomizations of their names."""
        names = list(self.namespaces)
        self.namespaces.clear()
        for parent in (self.argo.path, self.flux.path, "/api/v1/namespaces"):
            for name in names:
                self.cluster.request("DELETE", f"{parent}/{name}")

        def left() -> list[str]:
            there = {one["metadata"]["name"] for one in self.cluster.request("GET", "/api/v1/namespaces").body["items"]}
            return sorted(there & set(names))

        wait_for_none(left, 180, "the namespaces to go")

    def run_tool(self, name: str, *args: str) -> str:
        """Run one of the tools; what it prints."""
        return subprocess.run([self.tools[name], *args], capture_output=True, text=True, check=True).stdout

    def list(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        """The objects of this kind in a namespace."""
        answer = self.cluster.request("GET", _PATHS[kind].format(namespace=namespace))
        assert answer.status == 200, answer.body
        found: list[dict[str, Any]] = answer.body["items"]
        return found

    def get(self, obj: Mapping[str, Any]) -> dict[str, Any] | None:
        """The live object that a manifest states; None where there is none."""
        meta = obj["metadata"]
        answer = self.cluster.request("GET", f"{_PATHS[obj['kind']].format(namespace=meta['namespace'])}/{meta['name']}")
        return answer.body if answer.status == 200 else None
