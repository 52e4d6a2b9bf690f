"""Flux's kustomize-controller beside the apiserver. What source-controller would do, the tests do themselves."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import orjson

from tests.e2e.controlplane import ManagedProcess, free_port
from tests.e2e.controlplane.components import HOST, answers_ok
from tests.e2e.controlplane.crds import install_crds
from tests.e2e_gitops.programs import FLUX_MODULE
from tests.e2e_gitops.remaining import wait_for_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.controlplane.programs import Programs
    from tests.e2e_gitops.repository import Artifact, ArtifactServer

NAMESPACE = "flux-system"
_SOURCES = f"/apis/source.toolkit.fluxcd.io/v1/namespaces/{NAMESPACE}/gitrepositories"
_KUSTOMIZATIONS = f"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{NAMESPACE}/kustomizations"
_MERGE = "application/merge-patch+json"
_NOW = "2026-01-01T00:00:00Z"


class Flux:
    """A running kustomize-controller.

    Attributes:
        path: where the API serves its Kustomizations.
        log: its log.
    """

    path = _KUSTOMIZATIONS

    def __init__(self, cluster: ControlPlane, tools: Programs, artifacts: ArtifactServer) -> None:
        """Prepare one that reads archives from this server; nothing runs before `start`."""
        self._cluster = cluster
        self._tools = tools
        self._artifacts = artifacts
        self._process: ManagedProcess | None = None
        self._requests = itertools.count(1)
        self.log = cluster.run_dir / "logs" / "kustomize-controller.log"

    def start(self) -> None:
        """Install the CRDs and rights, and start the controller."""
        crd = self._tools.sources[FLUX_MODULE] / "config" / "crd" / "bases" / "kustomize.toolkit.fluxcd.io_kustomizations.yaml"
        # The controller watches all three kinds of sources. Their CRDs are in no Go module: these stand in for them.
        sources = (("GitRepository", "gitrepositories"), ("OCIRepository", "ocirepositories"), ("Bucket", "buckets"))
        install_crds(self._cluster, [crd.read_bytes(), *(_source_crd(kind, plural) for kind, plural in sources)])
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "cluster-reconciler-flux-system"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "kustomize-controller", "namespace": NAMESPACE}],
        }
        self._cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, binding)
        health, metrics = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
        command: list[str | Path] = [
            self._tools["kustomize-controller"],
            "--no-remote-bases",
            "--requeue-dependency=2s",
            f"--health-addr={health}",
            f"--metrics-addr={metrics}",
        ]
        temporary = self._cluster.run_dir / "flux"
        temporary.mkdir()
        env = {
            "RUNTIME_NAMESPACE": NAMESPACE,
            "KUBECONFIG": str(self._cluster.kubeconfig_for_service_account(NAMESPACE, "kustomize-controller")),
            "TMPDIR": str(temporary),
        }
        self._process = ManagedProcess.start("kustomize-controller", command, log=self.log, env=env)
        self._process.wait_ready(lambda: answers_ok(f"http://{health}/readyz"))

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def publish(self, name: str, objects: Iterable[Mapping[str, Any]]) -> str:
        """Let the source of this name hold exactly these objects; returns the revision."""
        return self._state(name, self._artifacts.publish(name, objects))

    def publish_files(self, name: str, files: Mapping[str, bytes]) -> str:
        """Let the source of this name hold exactly these files; returns the revision."""
        return self._state(name, self._artifacts.publish_files(name, files))

    def _state(self, name: str, artifact: Artifact) -> str:
        source = {
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "GitRepository",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"interval": "1h", "url": "https://git.example.com/team"},
        }
        if self._cluster.request("GET", f"{_SOURCES}/{name}").status == 404:
            self._cluster.apply(source)
        ready = {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": _NOW}
        status = {"conditions": [ready], "artifact": {**artifact._asdict(), "lastUpdateTime": _NOW}}
        answer = self._cluster.request("PATCH", f"{_SOURCES}/{name}/status", {"status": status}, content_type=_MERGE)
        assert answer.status == 200, answer.body
        return artifact.revision

    def kustomization(self, name: str, *, source: str | None = None, path: str = "./", **spec: Any) -> dict[str, Any]:
        """A Kustomization that applies a source (by default that of its own name)."""
        return {
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "interval": "1h",
                "retryInterval": "3s",
                "prune": True,
                "path": path,
                "sourceRef": {"kind": "GitRepository", "name": source or name},
                **spec,
            },
        }

    def delete(self, *names: str) -> None:
        """Take Kustomizations away, and wait until they are gone and write no more; what they applied stays."""
        paths = [f"{_KUSTOMIZATIONS}/{name}" for name in names]
        for path in paths:
            self._cluster.request("PATCH", path, {"spec": {"prune": False}}, content_type=_MERGE)
            self._cluster.request("DELETE", path)
        wait_for_none(lambda: [path for path in paths if self._cluster.request("GET", path).status == 200], 60, "them to go")

    def ready(self, name: str) -> dict[str, Any]:
        """The Ready condition of a Kustomization; empty while there is none."""
        conditions = self.status(name).get("conditions") or []
        return next((one for one in conditions if one["type"] == "Ready"), {})

    def status(self, name: str) -> dict[str, Any]:
        answer = self._cluster.request("GET", f"{_KUSTOMIZATIONS}/{name}")
        found: dict[str, Any] = (answer.body.get("status") or {}) if answer.status == 200 else {}
        return found

    def wait_applied(self, *names: str, revisions: Mapping[str, str] | None = None, timeout: float = 180) -> None:
        """Wait until these Kustomizations are Ready, at these revisions where they are given."""

        def left() -> dict[str, Any]:
            found = {}
            for name in names:
                status, ready = self.status(name), self.ready(name)
                right = revisions is None or status.get("lastAppliedRevision") == revisions[name]
                if not (right and ready.get("status") == "True"):
                    found[name] = ready
            return found

        wait_for_none(left, timeout, f"{', '.join(names)} to be applied")

    def reconcile(self, *names: str) -> None:
        """Force one reconcile of each, and wait until it is done, whatever came of it."""
        token = f"e2e-{next(self._requests)}"
        for name in names:
            patch = {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": token}}}
            self._cluster.request("PATCH", f"{_KUSTOMIZATIONS}/{name}", patch, content_type=_MERGE)

        def left() -> list[str]:
            return [name for name in names if self.status(name).get("lastHandledReconcileAt") != token]

        wait_for_none(left, 120, f"Flux to reconcile {', '.join(names)}")

    def applied(self, name: str) -> list[dict[str, str]]:
        """What each apply of a Kustomization did to its objects, in order (``{"Job/team-a/train": "unchanged"}``)."""
        found = []
        for line in self.log.read_bytes().splitlines():
            if b'"server-side apply completed"' in line:
                entry = orjson.loads(line)
                if entry["Kustomization"]["name"] == name:
                    found.append(entry["output"])
        return found


def _source_crd(kind: str, plural: str) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.source.toolkit.fluxcd.io"},
        "spec": {
            "group": "source.toolkit.fluxcd.io",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
