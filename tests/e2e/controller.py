"""gpugate's controller beside a test cluster: under its own service account, as a process."""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tests.e2e.controlplane import ManagedProcess, free_port, wait_until

if TYPE_CHECKING:
    from tests.e2e.controlplane import ControlPlane

NAMESPACE = "gpugate-system"
_SAMPLE = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


class Controller:
    """One controller among perhaps several.

    Attributes:
        url: where its page, probes and metrics are.
        log: its log file.
    """

    def __init__(self, cluster: ControlPlane, name: str = "gpugate-controller") -> None:
        """Prepare a controller of this name; nothing runs before `start`. gpugate's manifests must be installed."""
        self._cluster = cluster
        self._name = name
        self._port = free_port()
        self._process: ManagedProcess | None = None
        self.url = f"http://127.0.0.1:{self._port}"
        self.log = cluster.run_dir / f"{name}.log"

    def start(self, *options: str, ready: bool = True) -> None:
        """Run the program, and wait for its first audit."""
        kubeconfig = self._cluster.kubeconfig_for_service_account(NAMESPACE, "gpugate-controller")
        command: list[str | Path] = [
            Path(sys.executable).with_name("gpugate"),
            "controller",
            f"--listen=127.0.0.1:{self._port}",
            f"--kubeconfig={kubeconfig}",
            f"--namespace={NAMESPACE}",
            "--settle=0.2",
            "--report-spacing=0.2",
            *options,
        ]
        self._process = ManagedProcess.start(self._name, command, log=self.log)
        if ready:
            self._process.wait_ready(lambda: self.status("/readyz") == 200, 60)

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """End it in order; no object may have broken what it is fed to."""
        if self._process is not None:
            self._process.stop()
            self._process = None
            assert "the sink failed" not in self.log.read_text(encoding="utf-8"), self.log

    def kill(self) -> None:
        """End it without a chance to say goodbye."""
        if self._process is not None:
            self._process.send_signal(9)
            self._process.wait(10)
            self._process = None

    def get(self, path: str) -> bytes:
        """What is at ``path``."""
        with urllib.request.urlopen(self.url + path, timeout=60) as response:
            body: bytes = response.read()
            return body

    def status(self, path: str) -> int:
        """The HTTP status at ``path``; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name with these labels."""
        total = 0.0
        for found, text, value in _SAMPLE.findall(self.get("/metrics").decode()):
            have = dict(re.findall(r'(\w+)="([^"]*)"', text))
            if found == name and all(have.get(key) == wanted for key, wanted in labels.items()):
                total += float(value)
        return total

    @property
    def leads(self) -> bool:
        """Whether it leads."""
        return self.metric("gpugate_leader") == 1

    def wait_leading(self, seconds: float = 30) -> None:
        """Wait until it leads."""
        wait_until(lambda: self.leads, seconds, f"{self._name} to lead")

    def audit(self) -> Any:
        """The last audit as JSON."""
        return orjson.loads(self.get("/audit.json"))
