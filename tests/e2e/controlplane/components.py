"""How each of Kubernetes' own programs is started."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from typing import TYPE_CHECKING

from tests.e2e.controlplane.ports import free_port
from tests.e2e.controlplane.process import ManagedProcess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.e2e.controlplane.authority import Authority
    from tests.e2e.controlplane.programs import Programs

HOST = "127.0.0.1"

# Who asked for what, with bodies and webhook patches for what changes objects; reads and housekeeping are left out.
#: The common name of the apiserver's client certificate for webhooks.
WEBHOOK_CALLER = "kube-apiserver-webhooks"
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        # What gpugate's own Events cost is counted by tests.
        {
            "level": "Metadata",
            "userGroups": ["system:serviceaccounts:gpugate-system"],
            "resources": [{"group": "events.k8s.io", "resources": ["events"]}],
        },
        {
            "level": "None",
            "resources": [
                {"group": "coordination.k8s.io", "resources": ["leases"]},
                {"group": "", "resources": ["events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
            ],
        },
        {
            "level": "Metadata",
            "resources": [
                {"group": "", "resources": ["secrets", "serviceaccounts/token"]},
                {"group": "authentication.k8s.io"},
                {"group": "apiextensions.k8s.io"},
            ],
        },
        {"level": "Request"},
    ],
}


def answers_ok(url: str, ca_file: Path | None = None) -> bool:
    """Whether a GET of this URL answers 200; raises OSError where nobody listens yet."""
    parts = urllib.parse.urlsplit(url)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=ca_file)
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=5, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except http.client.HTTPException:
        return False
    finally:
        connection.close()


def start_etcd(programs: Programs, run_dir: Path) -> tuple[ManagedProcess, str]:
    """Start etcd; returns its client URL too."""
    client, peer = (f"http://{HOST}:{free_port()}" for _ in range(2))
    command = [
        str(programs["etcd"]),
        "--name=e2e",
        f"--data-dir={run_dir / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=e2e={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]
    return ManagedProcess.start("etcd", command, log=run_dir / "logs" / "etcd.log"), client


def start_apiserver(
    programs: Programs, run_dir: Path, authority: Authority, etcd: str, port: int, extra: Sequence[str]
) -> ManagedProcess:
    """Start kube-apiserver. `extra` is added to its arguments."""
    serving = authority.serving("kube-apiserver", (HOST, "localhost", "10.96.0.1", "kubernetes.default.svc"))
    policy = run_dir / "audit-policy.yaml"
    policy.write_text(json.dumps(_AUDIT_POLICY))
    key = service_account_key(authority)
    admission = _admission_configuration(run_dir, authority)
    command = [
        str(programs["kube-apiserver"]),
        f"--etcd-servers={etcd}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={serving.cert}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={serving.ca}",
        "--authorization-mode=RBAC",
        # No kubelet mounts tokens here, and nothing should wait for service accounts to exist.
        "--disable-admission-plugins=ServiceAccount",
        f"--service-account-issuer=https://{HOST}:{port}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        f"--admission-control-config-file={admission}",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={audit_log(run_dir)}",
        *extra,
    ]
    return ManagedProcess.start("kube-apiserver", command, log=run_dir / "logs" / "kube-apiserver.log")


def _admission_configuration(run_dir: Path, authority: Authority) -> Path:
    """The files by which the apiserver shows every webhook a client certificate, as docs/operate/client-certificate.md has them."""
    files = authority.client("webhook-caller", WEBHOOK_CALLER)
    # Webhooks are called by URL here; with a Service the name of the user is gpugate.gpugate-system.svc.
    user = {"client-certificate": str(files.cert), "client-key": str(files.key)}
    kubeconfig = run_dir / "webhook-callers.yaml"
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}))
    plugin = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    plugins = [{"name": f"{name}AdmissionWebhook", "configuration": plugin} for name in ("Mutating", "Validating")]
    path = run_dir / "admission.yaml"
    path.write_text(json.dumps({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}))
    return path


def start_controller_manager(
    programs: Programs, run_dir: Path, authority: Authority, kubeconfig: Path, extra: Sequence[str] = ()
) -> tuple[ManagedProcess, str]:
    """Start kube-controller-manager; returns the URL that says when it is ready."""
    command = [
        str(programs["kube-controller-manager"]),
        f"--root-ca-file={authority.ca_file}",
        f"--service-account-private-key-file={service_account_key(authority)}",
        # Each controller under its own name, as in real clusters: webhooks see who asks.
        "--use-service-account-credentials=true",
        *extra,
    ]
    return _start_controllers("kube-controller-manager", command, run_dir, authority, kubeconfig)


def start_scheduler(
    programs: Programs, run_dir: Path, authority: Authority, kubeconfig: Path, extra: Sequence[str] = ()
) -> tuple[ManagedProcess, str]:
    """Start kube-scheduler; returns the URL that says when it is ready."""
    return _start_controllers("kube-scheduler", [str(programs["kube-scheduler"]), *extra], run_dir, authority, kubeconfig)


def _start_controllers(
    name: str, command: list[str], run_dir: Path, authority: Authority, kubeconfig: Path
) -> tuple[ManagedProcess, str]:
    serving = authority.serving(name)
    port = free_port()
    command += [
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={serving.cert}",
        f"--tls-private-key-file={serving.key}",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
    return ManagedProcess.start(name, command, log=run_dir / "logs" / f"{name}.log"), f"https://{HOST}:{port}/healthz"


def audit_log(run_dir: Path) -> Path:
    """Where kube-apiserver writes its audit log, one JSON event per line."""
    return run_dir / "logs" / "audit.log"


def service_account_key(authority: Authority) -> Path:
    """The key that signs service account tokens, made on first use."""
    path = authority.folder / "service-accounts.key"
    return path if path.exists() else authority.signing_key("service-accounts")
