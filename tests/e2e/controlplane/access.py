"""Ways into a cluster: kubectl, raw API requests, kubeconfigs for other identities."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import urllib.parse
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tests.e2e.controlplane.nodes import CPU_ONLY, H100, is_schedulable, node_manifest, shape_of
from tests.e2e.controlplane.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.e2e.controlplane.authority import Authority, CertificateFiles
    from tests.e2e.controlplane.nodes import NodeShape

ADMIN_GROUP = "system:masters"


class ApiResponse(NamedTuple):
    """What the apiserver answered."""

    status: int
    body: Any
    """Parsed JSON, or text where the answer is not JSON."""
    warnings: tuple[str, ...]
    """The texts of its Warning headers, such as a webhook's warnings."""


class ClusterAccess:
    """A cluster as its administrator sees it."""

    def __init__(self, server: str, authority: Authority, kubectl: Path, run_dir: Path) -> None:
        """Reach the apiserver at this URL; certificates are issued by `authority`."""
        self.server = server
        self.authority = authority
        self.run_dir = run_dir
        self.kubectl_path = kubectl
        self._contexts: dict[Path, ssl.SSLContext] = {}
        self._admin = authority.client("admin", "e2e-admin", [ADMIN_GROUP])
        self.kubeconfig = self._write_kubeconfig("admin", self._admin, "default")

    def kubeconfig_for(self, user: str, groups: Sequence[str] = (), *, namespace: str = "default", name: str | None = None) -> Path:
        """A kubeconfig with a client certificate for this user and these groups. Its rights are what RBAC grants."""
        name = name or user.replace(":", "-").replace("/", "-")
        return self._write_kubeconfig(name, self.authority.client(name, user, groups), namespace)

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig whose certificate makes it the service account, to RBAC and to webhooks."""
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        return self.kubeconfig_for(f"system:serviceaccount:{namespace}:{name}", groups, namespace=namespace)

    def kubectl(
        self,
        *args: str,
        input: str | bytes | None = None,
        check: bool = True,
        kubeconfig: Path | None = None,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl; where it fails and `check` is set, the exception shows what it said."""
        env = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            "KUBECACHEDIR": str(self.run_dir / "kubectl"),
        }
        text = input.decode() if isinstance(input, bytes) else input
        done = subprocess.run(
            [self.kubectl_path, *args],
            input=text or "",
            capture_output=True,
            text=True,
            env=env,
            check=False,
            timeout=timeout,
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(args)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
        return done

    def kubectl_json(self, *args: str, **options: Any) -> Any:
        """Run kubectl with `-o json` and parse what it prints."""
        return orjson.loads(self.kubectl(*args, "-o", "json", **options).stdout)

    def apply(self, *objects: Mapping[str, Any], server_side: bool = False) -> None:
        """Apply objects in this order."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        how = ["--server-side", "--force-conflicts"] if server_side else []
        self.kubectl("apply", *how, "-f", "-", input=orjson.dumps(items))

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        identity: CertificateFiles | None = None,
        timeout: float = 30.0,
    ) -> ApiResponse:
        """One API request, as the administrator or with another client certificate. Any status is an answer."""
        url = urllib.parse.urlsplit(self.server)
        context = self._context(identity or self._admin)
        connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=context, timeout=timeout)
        try:
            payload = None if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
            connection.request(method, path, payload, {"Content-Type": content_type, "Accept": "application/json, */*"})
            answer = connection.getresponse()
            content = answer.read()
            warnings = tuple(_warning_text(header) for header in answer.headers.get_all("Warning", []))
            is_json = answer.headers.get_content_type() == "application/json"
            return ApiResponse(answer.status, orjson.loads(content) if is_json else content.decode(), warnings)
        finally:
            connection.close()

    def _context(self, files: CertificateFiles) -> ssl.SSLContext:
        """The TLS settings for this identity, read once: a run makes thousands of requests."""
        found = self._contexts.get(files.cert)
        if found is None:
            found = ssl.create_default_context(cafile=self.authority.ca_file)
            found.load_cert_chain(files.cert, files.key)
            self._contexts[files.cert] = found
        return found

    def metrics(self) -> str:
        """The apiserver's metrics, as Prometheus text."""
        return str(self.request("GET", "/metrics").body)

    def add_gpu_node(
        self,
        name: str,
        product: str = H100.product,
        *,
        gpus: int | None = None,
        cpu: str | None = None,
        memory: str | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] | None = None,
    ) -> dict[str, Any]:
        """Add a machine with GPUs; see `nodes.SHAPES` for the products whose other figures are known."""
        shape = shape_of(product, gpus=gpus, cpu=cpu, memory=memory)
        return self.add_node(name, shape, labels=labels, taints=taints)

    def add_node(
        self,
        name: str,
        shape: NodeShape = CPU_ONLY,
        *,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] | None = None,
    ) -> dict[str, Any]:
        """Add a machine and wait until pods can be scheduled on it; the Node as it is then."""
        status, body, _ = self.request("POST", "/api/v1/nodes", node_manifest(name, shape, labels=labels, taints=taints))
        if status != http.HTTPStatus.CREATED:
            raise AssertionError(f"node {name} was not created: {status} {body}")

        def ready() -> dict[str, Any] | None:
            node = self.request("GET", f"/api/v1/nodes/{name}").body
            return node if is_schedulable(node) else None

        node = wait_until(ready, 60, f"node {name} to be ready")
        assert node is not None
        return node

    def remove_node(self, name: str) -> None:
        """Take a machine away, with the pods on it; none of that name is fine."""
        pods = self.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}").body["items"]
        now = {"gracePeriodSeconds": 0}
        for meta in (pod["metadata"] for pod in pods):
            self.request("DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", now)
        self.request("DELETE", f"/api/v1/nodes/{name}")

    def _write_kubeconfig(self, name: str, files: CertificateFiles, namespace: str) -> Path:
        certificate, key = files.embedded()
        cluster = {"server": self.server, "certificate-authority-data": self.authority.ca_bundle}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": name, "user": {"client-certificate-data": certificate, "client-key-data": key}}],
            "contexts": [{"name": name, "context": {"cluster": "e2e", "user": name, "namespace": namespace}}],
        }
        folder = self.run_dir / "kubeconfig"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.yaml"
        path.touch(mode=0o600)
        path.write_text(json.dumps(content, indent=1))  # JSON is YAML
        return path


def _warning_text(header: str) -> str:
    """The text of `299 - "text"`."""
    quoted = header.partition('"')[2].rpartition('"')[0]
    return quoted.replace('\\"', '"').replace("\\\\", "\\")
