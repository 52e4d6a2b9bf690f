"""Kueue: its manifests with its webhooks on this machine, and its manager under its own service account."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

from tests.e2e.controlplane.components import HOST
from tests.e2e.controlplane.crds import install_crds
from tests.e2e.controlplane.ports import free_port
from tests.e2e.controlplane.process import ManagedProcess

if TYPE_CHECKING:
    from tests.e2e.controlplane.access import ClusterAccess
    from tests.e2e.controlplane.authority import CertificateFiles
    from tests.e2e.controlplane.programs import Programs

MODULE = "sigs.k8s.io/kueue"
NAMESPACE = "kueue-system"
# Off in Kueue's default configuration. LeaderWorkerSet waits for its CRD, which a test may install.
EXTRA_FRAMEWORKS = ("pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset")
# A namespace with this label is left out, as many Configurations leave some out.
UNMANAGED = "gpugate.io/e2e-without-kueue"
_CONFIG_MAP, _CONFIG_KEY = "kueue-manager-config", "controller_manager_config.yaml"
# What would run or route to Kueue inside a cluster. The visibility API is off: its port cannot be chosen.
_LEFT_OUT = ("APIService", "Deployment", "Secret", "Service")
# The manager reads the certificate of its metrics from this folder, which it does not let one choose.
_METRICS_CERTS = "kueue/metrics/certs"

Manifest = dict[str, Any]


def start_kueue(programs: Programs, cluster: ClusterAccess, run_dir: Path) -> tuple[ManagedProcess, str]:
    """Install Kueue and start its manager; returns the URL that says when it is ready."""
    folder = run_dir / "kueue"
    folder.mkdir()
    serving = cluster.authority.serving("kueue")
    webhooks, health = free_port(), f"{HOST}:{free_port()}"
    manifests = _render(programs, cluster)
    config_map = next(m for m in manifests if m["kind"] == "ConfigMap" and m["metadata"]["name"] == _CONFIG_MAP)
    config = _configure(YAML(typ="safe").load(config_map["data"][_CONFIG_KEY]), webhooks, health, serving)
    config_map["data"][_CONFIG_KEY] = json.dumps(config, indent=1)
    config_file = folder / _CONFIG_KEY
    config_file.write_text(config_map["data"][_CONFIG_KEY])

    _redirect(manifests, f"https://{HOST}:{webhooks}", cluster.authority.ca_bundle)
    crds = [m for m in manifests if m["kind"] == "CustomResourceDefinition"]
    install_crds(cluster, crds)
    # The webhooks among them fail closed: nobody can make a pod until the manager is ready.
    cluster.apply(*(m for m in manifests if m not in crds), server_side=True)
    process = ManagedProcess.start(
        "kueue",
        [*_see_certificates(folder, serving), programs["kueue"], f"--config={config_file}", "--zap-log-level=2"],
        log=run_dir / "logs" / "kueue.log",
        env={"KUBECONFIG": str(cluster.kubeconfig_for_service_account(NAMESPACE, "kueue-controller-manager"))},
    )
    return process, f"http://{health}/readyz"


def _render(programs: Programs, cluster: ClusterAccess) -> list[Manifest]:
    """Kueue's own default installation, without what only makes sense inside a cluster."""
    rendered = cluster.kubectl("kustomize", str(programs.sources[MODULE] / "config" / "default")).stdout
    return [manifest for manifest in YAML(typ="safe").load_all(rendered) if manifest["kind"] not in _LEFT_OUT]


def _configure(config: Manifest, webhook_port: int, health: str, serving: CertificateFiles) -> Manifest:
    """Kueue's default Configuration, on loopback, with our certificate and the integrations for plain pods."""
    frameworks = [*config["integrations"]["frameworks"], *EXTRA_FRAMEWORKS]
    left_out = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}
    return config | {
        "health": {"healthProbeBindAddress": health},
        "metrics": {"bindAddress": f"{HOST}:{free_port()}"},
        "webhook": {"host": HOST, "port": webhook_port, "certDir": str(serving.cert.parent)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "managedJobsNamespaceSelector": {"matchExpressions": [left_out, {"key": UNMANAGED, "operator": "DoesNotExist"}]},
        "integrations": {**config["integrations"], "frameworks": list(dict.fromkeys(frameworks))},
        "featureGates": {**config.get("featureGates", {}), "VisibilityOnDemand": False},
    }


def _redirect(manifests: list[Manifest], url: str, ca_bundle: str) -> None:
    """Point every webhook, conversion of CRDs included, at this URL instead of a Service."""
    for manifest in manifests:
        holders: list[Manifest] = manifest.get("webhooks", [])
        if manifest["kind"] == "CustomResourceDefinition":
            conversion = manifest["spec"].get("conversion", {})
            holders = [conversion["webhook"]] if "webhook" in conversion else []
        for holder in holders:
            path = holder["clientConfig"]["service"]["path"]
            holder["clientConfig"] = {"url": url + path, "caBundle": ca_bundle}


def _see_certificates(folder: Path, serving: CertificateFiles) -> list[str]:
    """What to put before the manager's command so that it finds our certificate under /etc.

    In a mount namespace of its own a folder of this run is laid over /etc: the machine's /etc stays as it is, and runs
    side by side do not meet. It works for any user where user namespaces are allowed. Where no namespace can be made,
    the certificate goes into the real /etc, once.
    """
    layer = folder / "etc"
    _copy_certificates(serving, layer / _METRICS_CERTS)
    mount = 'mount -t overlay overlay -o "ro,lowerdir=$0:/etc" /etc && exec "$@"'
    for namespaces in (["--user", "--map-root-user", "--mount"], ["--mount"]):
        prefix = ["unshare", *namespaces, "sh", "-c", mount, str(layer)]
        check = ["test", "-f", f"/etc/{_METRICS_CERTS}/tls.crt"]
        try:
            if subprocess.run([*prefix, *check], capture_output=True, check=False).returncode == 0:
                return prefix
        except FileNotFoundError:  # no unshare on this machine
            break
    real = Path("/etc") / _METRICS_CERTS
    if not (real / "tls.key").exists():
        if not os.access("/etc", os.W_OK):
            raise RuntimeError(f"Kueue needs a certificate in {real}: no namespace can be made, nor is /etc writable")
        _copy_certificates(serving, real)
    return []


def _copy_certificates(serving: CertificateFiles, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for source in (serving.cert, serving.key):
        (target / source.name).write_bytes(source.read_bytes())
