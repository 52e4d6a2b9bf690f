"""gpugate at the door of a test cluster: its own manifests applied, its server run as a process beside the apiserver."""

from __future__ import annotations

import contextlib
import re
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tests.e2e.controlplane import WEBHOOK_CALLER, ManagedProcess, answers_ok, free_port, wait_until
from tests.e2e.workloads import container, pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.e2e.controlplane import ControlPlane

MANIFESTS = Path(__file__).parents[2] / "manifests" / "base"
NAMESPACE = "gpugate-system"
#: The specs of policies by which most tests go: every rule refuses.
ENFORCED: Sequence[Mapping[str, Any]] = ({"mode": "Enforce"},)
_WEBHOOKS = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})
_REVIEWS = re.compile(r"^gpugate_reviews_total\{([^}]*)\} (\S+)$", re.MULTILINE)


class Gate:
    """A running gpugate, registered with the apiserver by the manifests that a real cluster applies.

    Attributes:
        url: where it answers.
        log: its log file.
        tls: the directory of its certificate, as a mounted Secret.
    """

    def __init__(self, cluster: ControlPlane, name: str = "gpugate", *options: str) -> None:
        """Prepare a replica of this name, run with these options; nothing runs before `install` and `start`."""
        self._cluster = cluster
        self._options = options
        self._name = name
        self._files = cluster.authority.serving(name)
        self.tls = cluster.run_dir / f"{name}-tls"
        self._port, self._metrics_port = free_port(), free_port()
        self._process: ManagedProcess | None = None
        self.url = f"https://127.0.0.1:{self._port}"
        self.log = cluster.run_dir / f"{name}.log"

    @staticmethod
    def authenticating(cluster: ControlPlane) -> tuple[str, str]:
        """The options of a server that takes reviews from the apiserver of ``cluster`` alone."""
        return f"--client-ca={cluster.authority.ca_file}", f"--client-name={WEBHOOK_CALLER}"

    def _rendered(self, *, webhooks: bool) -> list[str]:
        """The documents that `kubectl kustomize` makes of the base: the webhook configurations, or all the others."""
        text = self._cluster.kubectl("kustomize", str(MANIFESTS)).stdout
        return [one for one in text.split("\n---\n") if one.strip() and _is_webhook(one) == webhooks]

    def install(self) -> None:
        """Apply all of the base but the webhook configurations."""
        plain = "\n---\n".join(self._rendered(webhooks=False))
        self._cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", input=plain)
        self._cluster.kubectl("wait", "--for=condition=Established", "crd/gpupolicies.gpugate.io", "--timeout=30s")

    def register(self, url: str | None = None, *, policies: Sequence[Mapping[str, Any]] = ENFORCED) -> None:
        """Apply the webhook configurations: the CA added, a loopback URL in place of the Service, and nothing else changed.

        They are those for policies of the specs ``policies``, and those of the base without any. ``url`` is where the
        apiserver calls, by default this replica.
        """
        for document in self._configurations(policies) if policies else self._rendered(webhooks=True):
            by_url = self._by_url(document, url or self.url)
            self._cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", input=by_url)

    def _configurations(self, policies: Sequence[Mapping[str, Any]]) -> list[str]:
        """What the command prints for these policies."""
        file = self._cluster.run_dir / f"{self._name}-policies.yaml"
        objects = (
            {"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy", "metadata": {"name": f"policy-{at}"}, "spec": dict(spec)}
            for at, spec in enumerate(policies)
        )
        file.write_bytes(b"\n---\n".join(map(orjson.dumps, objects)))
        command = [str(Path(sys.executable).with_name("gpugate")), "policies", "--policy", str(file), "--format"]
        return [
            subprocess.run([*command, f"{phase}-webhook"], check=True, capture_output=True, text=True).stdout
            for phase in ("mutating", "validating")
        ]

    def _by_url(self, document: str, url: str) -> str:
        listed = self._cluster.kubectl("create", "--dry-run=client", "-o", "json", "-f", "-", input=document)
        configuration = orjson.loads(listed.stdout)
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"] |= {"url": url + path, "caBundle": self._cluster.authority.ca_bundle}
        configuration["metadata"].pop("creationTimestamp", None)
        return orjson.dumps(configuration).decode()

    @property
    def port(self) -> int:
        """The port on the loopback interface where it answers."""
        return self._port

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        if self._process is None:
            raise RuntimeError(f"{self._name} does not run")
        return self._process.pid

    def wait_in_force(self, namespace: str = "default") -> None:
        """Wait until the apiserver calls gpugate, which enforces: a name that nobody serves is refused."""
        bad = pod("probe", namespace, container({"limits": {"nvidia.com/mig-1g5gb": "1"}}))
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        wait_until(lambda: self._cluster.request("POST", path, bad).status == 403, 30, "the apiserver to call gpugate")

    def unregister(self) -> None:
        """Take the webhook configurations away, the first step of removing gpugate."""
        for kind, name in (("mutating", "gpugate-mutating"), ("validating", "gpugate-validating")):
            self._cluster.kubectl("delete", f"{kind}webhookconfiguration", name, "--ignore-not-found")

    def start(self) -> None:
        """Run the server under its own service account and wait until it is ready."""
        self.tls.mkdir(exist_ok=True)
        for name, source in (("tls.crt", self._files.cert), ("tls.key", self._files.key)):
            (self.tls / name).write_bytes(source.read_bytes())
        kubeconfig = self._cluster.kubeconfig_for_service_account(NAMESPACE, "gpugate")
        command: list[str | Path] = [
            Path(sys.executable).with_name("gpugate"),
            "serve",
            f"--listen=127.0.0.1:{self._port}",
            f"--metrics-listen=127.0.0.1:{self._metrics_port}",
            f"--tls-dir={self.tls}",
            f"--kubeconfig={kubeconfig}",
            "--drain-delay=0",
            *self._options,
        ]
        self._process = ManagedProcess.start(self._name, command, log=self.log)
        self._process.wait_ready(lambda: answers_ok(f"{self.url}/readyz", self._files.ca), 30)

    def stop(self) -> None:
        """Stop the server; the webhook configurations stay."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """End the server without a chance to say goodbye."""
        if self._process is not None:
            self._process.send_signal(9)
            self._process.wait(10)
            self._process = None

    def get(self, path: str) -> str:
        """The text at ``path`` of the server; metrics and details of readiness have a port of their own."""
        if path.startswith(("/metrics", "/readyz?")):
            with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}{path}", timeout=10) as response:
                return str(response.read().decode())
        with urllib.request.urlopen(self.url + path, context=self.context(), timeout=10) as response:
            return str(response.read().decode())

    def context(self) -> ssl.SSLContext:
        """A new TLS context of a client without a certificate that trusts the server."""
        return ssl.create_default_context(cafile=str(self._files.ca))

    def reviews(self, **labels: str) -> int:
        """How many reviews the server counts with these labels (``kind="Pod"``)."""
        total = 0.0
        for found, value in _REVIEWS.findall(self.get("/metrics")):
            have = dict(re.findall(r'(\w+)="([^"]*)"', found))
            if all(have.get(name) == wanted for name, wanted in labels.items()):
                total += float(value)
        return int(total)

    def set_policy(self, spec: Mapping[str, Any], name: str = "default") -> None:
        """Apply a GPUPolicy, of the profile `recommended` unless it names one, and wait until the server has it in force."""
        self._cluster.apply(
            {
                "apiVersion": "gpugate.io/v1alpha1",
                "kind": "GPUPolicy",
                "metadata": {"name": name},
                "spec": {"profile": "recommended", **spec},
            }
        )
        generation = self._cluster.kubectl_json("get", "gpupolicy", name, "-o", "json")["metadata"]["generation"]
        line = f"policy {name}: generation {generation}"
        wait_until(lambda: line in self.get("/readyz?verbose"), 20, f"{line} to be in force")

    def events(self, **fields: object) -> list[dict[str, Any]]:
        """Lines of the server's log with these fields."""
        found = []
        for line in self.log.read_bytes().splitlines():
            if line.startswith(b"{"):
                event = orjson.loads(line)
                if all(event.get(name) == value for name, value in fields.items()):
                    found.append(event)
        return found


@contextlib.contextmanager
def enforcing(cluster: ControlPlane, gate: Gate, *machines: str) -> Iterator[Gate]:
    """Run ``gate`` during the block, with every rule in Enforce and these machines of 8 GPUs behind it."""
    try:
        gate.install()
        for machine in machines:
            cluster.add_gpu_node(machine)
        gate.start()
        gate.register()
        gate.set_policy({"mode": "Enforce"})
        gate.wait_in_force()
        yield gate
    finally:
        gate.unregister()
        gate.stop()
        for machine in machines:
            cluster.remove_node(machine)


def _is_webhook(document: str) -> bool:
    return any(f"\nkind: {kind}\n" in f"\n{document}\n" for kind in _WEBHOOKS)
