"""Argo CD: its own manifests applied, its repo server and application controller run beside the apiserver."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import orjson

from tests.e2e.controlplane import ManagedProcess, free_port
from tests.e2e.controlplane.components import HOST, answers_ok
from tests.e2e.controlplane.crds import install_crds
from tests.e2e.controlplane.process import stop_all
from tests.e2e_gitops.programs import ARGO_MODULE
from tests.e2e_gitops.remaining import wait_for_none

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.controlplane.programs import Programs
    from tests.e2e_gitops.repository import Repository

NAMESPACE = "argocd"
_APPLICATIONS = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/applications"
_REFRESH = "argocd.argoproj.io/refresh"
_MERGE = "application/merge-patch+json"

#: The ways in which Argo CD compares and applies: annotations and sync options of an Application.
MODES: Mapping[str, tuple[Mapping[str, str], Sequence[str]]] = {
    "default": ({}, ()),
    "server-side-diff": ({"argocd.argoproj.io/compare-options": "ServerSideDiff=true"}, ()),
    "server-side-apply": ({}, ("ServerSideApply=true",)),
}


class ArgoCD:
    """A running Argo CD, without its user interface.

    Attributes:
        path: where the API serves its Applications.
        log: the application controller's log.
    """

    path = _APPLICATIONS

    def __init__(self, cluster: ControlPlane, tools: Programs, repository: Repository) -> None:
        """Prepare one that reads from this repository; nothing runs before `start`."""
        self._cluster = cluster
        self._tools = tools
        self._repository = repository
        self._folder = cluster.run_dir / "argocd"
        self._processes: list[ManagedProcess] = []
        self.log = cluster.run_dir / "logs" / "argocd-application-controller.log"

    def start(self) -> None:
        """Install its CRDs, configuration and rights, and start Redis, the repo server and the application controller."""
        module = self._tools.sources[ARGO_MODULE] / "manifests"
        crds = ("application-crd", "applicationset-crd", "appproject-crd")
        install_crds(self._cluster, [(module / "crds" / f"{name}.yaml").read_bytes() for name in crds])
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        project = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "AppProject",
            "metadata": {"name": "default", "namespace": NAMESPACE},
            "spec": {
                "sourceRepos": ["*"],
                "destinations": [{"server": "*", "namespace": "*"}],
                "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
            },
        }
        self._cluster.apply(namespace, project)
        for folder in ("base/config", "base/application-controller-roles", "cluster-rbac/application-controller"):
            self._cluster.kubectl("apply", "--server-side", "-n", NAMESPACE, "-k", str(module / folder))
        redis, repo_server = self._start_repo_server()
        self._start_controller(redis, repo_server)

    def _start_repo_server(self) -> tuple[str, str]:
        """Start what renders manifests; returns the addresses of Redis and of the repo server."""
        redis, port, metrics = f"{HOST}:{free_port()}", free_port(), free_port()
        self._processes.append(self._run("redis", [self._tools["redis"], redis]))
        self._processes[-1].wait_ready(lambda: _listens(redis))
        command: list[str | Path] = [
            self._tools["argocd"],
            "--disable-tls",
            "--client-ca-path=",
            f"--address={HOST}",
            f"--port={port}",
            f"--metrics-address={HOST}",
            f"--metrics-port={metrics}",
            f"--redis={redis}",
        ]
        self._processes.append(self._run("argocd-repo-server", command))
        self._processes[-1].wait_ready(lambda: answers_ok(f"http://{HOST}:{metrics}/healthz?full=true"))
        return redis, f"{HOST}:{port}"

    def _start_controller(self, redis: str, repo_server: str) -> None:
        metrics = free_port()
        command: list[str | Path] = [
            self._tools["argocd"],
            f"--repo-server={repo_server}",
            "--repo-server-plaintext",
            f"--redis={redis}",
            f"--metrics-port={metrics}",
            "--app-resync=10",
            "--app-resync-jitter=0",
        ]
        self._processes.append(self._run("argocd-application-controller", command))
        self._processes[-1].wait_ready(lambda: answers_ok(f"http://{HOST}:{metrics}/healthz"))

    def _run(self, role: str, command: list[str | Path]) -> ManagedProcess:
        folders = {name: self._folder / name for name in ("config", "tls", "ssh", "gpg", "plugins", "tmp", "home", "bin")}
        for folder in folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        wrapper = folders["bin"] / "git-verify-wrapper.sh"
        wrapper.write_bytes((self._tools.sources[ARGO_MODULE] / "hack" / wrapper.name).read_bytes())
        wrapper.chmod(0o755)
        programs = [str(folders["bin"]), str(self._tools["kustomize"].parent), str(self._tools["helm"].parent)]
        env = {
            "ARGOCD_BINARY_NAME": role,
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            "ARGOCD_APP_CONF_PATH": str(folders["config"]),
            "ARGOCD_TLS_DATA_PATH": str(folders["tls"]),
            "ARGOCD_SSH_DATA_PATH": str(folders["ssh"]),
            "ARGOCD_GNUPGHOME": str(folders["gpg"]),
            "ARGOCD_PLUGINSOCKFILEPATH": str(folders["plugins"]),
            "HOME": str(folders["home"]),
            "TMPDIR": str(folders["tmp"]),
            "KUBECONFIG": str(self._cluster.kubeconfig_for_service_account(NAMESPACE, "argocd-application-controller")),
            "PATH": ":".join([*programs, os.environ.get("PATH", os.defpath)]),
        }
        return ManagedProcess.start(role, command, log=self._cluster.run_dir / "logs" / f"{role}.log", env=env)

    def stop(self) -> None:
        """Stop all of it."""
        stop_all(self._processes)

    def configure(self, data: Mapping[str, str]) -> None:
        """Add these settings to argocd-cm."""
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/argocd-cm"
        self._cluster.request("PATCH", path, {"data": dict(data)}, content_type=_MERGE)

    def application(
        self, name: str, path: str, mode: str = "default", *, automated: bool = True, options: Sequence[str] = ()
    ) -> dict[str, Any]:
        """An Application that applies a folder of the repository, in one of `MODES`, healing itself where it is automated."""
        annotations, sync_options = MODES[mode]
        policy: dict[str, Any] = {"syncOptions": [*sync_options, *options]}
        if automated:
            policy["automated"] = {"selfHeal": True, "prune": True}
        return {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations)},
            "spec": {
                "project": "default",
                "source": {"repoURL": self._repository.url, "path": path, "targetRevision": "main"},
                "destination": {"server": "https://kubernetes.default.svc"},
                "syncPolicy": policy,
            },
        }

    def get(self, name: str) -> dict[str, Any]:
        """An Application."""
        answer = self._cluster.request("GET", f"{_APPLICATIONS}/{name}")
        found: dict[str, Any] = answer.body if answer.status == 200 else {}
        return found

    def delete(self, *names: str) -> None:
        """Take Applications away; what they applied stays."""
        for name in names:
            self._cluster.request("DELETE", f"{_APPLICATIONS}/{name}")

    def status(self, name: str) -> dict[str, Any]:
        """The status of an Application."""
        found: dict[str, Any] = self.get(name).get("status") or {}
        return found

    def refresh(self, *names: str, kind: str = "hard") -> None:
        """Have these Applications compared anew, and wait until they were."""
        for name in names:
            patch = {"metadata": {"annotations": {_REFRESH: kind}}}
            self._cluster.request("PATCH", f"{_APPLICATIONS}/{name}", patch, content_type=_MERGE)

        def waiting() -> set[str]:
            items = self._cluster.request("GET", _APPLICATIONS).body["items"]
            marked = [one["metadata"]["name"] for one in items if _REFRESH in (one["metadata"].get("annotations") or {})]
            return set(marked) & set(names)

        wait_for_none(waiting, 120, f"Argo CD to compare {', '.join(names)}")

    def sync(self, name: str, options: Sequence[str] = ()) -> None:
        """Sync an Application once, by hand."""
        operation = {"operation": {"initiatedBy": {"username": "e2e"}, "sync": {"syncOptions": list(options), "prune": True}}}
        self._cluster.request("PATCH", f"{_APPLICATIONS}/{name}", operation, content_type=_MERGE)

    def operations(self, name: str) -> int:
        """How many syncs of an Application have begun, their retries counted."""
        begun = (b'"msg":"Initialized new operation', b'"msg":"Retrying operation')
        lines = [line for line in self.log.read_bytes().splitlines() if any(word in line for word in begun)]
        return sum(orjson.loads(line)["application"] in {name, f"{NAMESPACE}/{name}"} for line in lines)

    def wait_synced(self, *names: str, revision: str | None = None, timeout: float = 180) -> None:
        """Wait until these Applications are Synced, at this revision where one is given, with no sync under way."""

        def unsynced() -> dict[str, Any]:
            found = {}
            for name in names:
                status = self.status(name)
                sync, operation = status.get("sync") or {}, status.get("operationState") or {}
                right = revision is None or sync.get("revision") == revision
                if not (right and sync.get("status") == "Synced" and operation.get("phase") == "Succeeded"):
                    found[name] = (sync.get("status"), operation.get("phase"), operation.get("message"), status.get("conditions"))
            return found

        wait_for_none(unsynced, timeout, f"{', '.join(names)} to be synced")


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        return True
