"""A real Prometheus with a history, and an exporter for it to scrape; both on loopback, both gone after the test."""

from __future__ import annotations

import http.server
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import orjson

from tests.e2e.controlplane.ports import free_port
from tests.e2e.controlplane.process import ManagedProcess
from tests.e2e.monitoring.dcgm import EXPORTER, exposition
from tests.e2e.monitoring.programs import ensure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.e2e.monitoring.dcgm import Device

USER, PASSWORD = "auditor", "sesame"
_HASHED = "$2b$04$Xpy4OqL62lt5XwC7afu3CemLt8S7MId971KxhLkSnZrDxdsL87MPS"


class Prometheus:
    """One Prometheus."""

    def __init__(self, folder: Path, *, password: bool = False) -> None:
        self._folder = folder
        self._programs = ensure()
        self._password = password
        self._process: ManagedProcess | None = None
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "data").mkdir(parents=True, exist_ok=True)

    def remember(self, openmetrics: str) -> None:
        """Put series with times into its storage; before it starts."""
        file = self._folder / "history.om"
        file.write_text(openmetrics)
        tool, data = str(self._programs.promtool), str(self._folder / "data")
        command = [tool, "tsdb", "create-blocks-from", "openmetrics", str(file), data]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]

    def start(self, *scrapes: dict[str, object]) -> None:
        """Start it with these scrape configurations, and wait until it answers."""
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": list(scrapes)}
        (self._folder / "prometheus.yml").write_bytes(orjson.dumps(config))
        users = {"basic_auth_users": {USER: _HASHED}} if self._password else {}
        (self._folder / "web.yml").write_bytes(orjson.dumps(users))
        command: list[str | Path] = [
            self._programs.prometheus,
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--web.config.file={self._folder / 'web.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        self._process = ManagedProcess.start("prometheus", command, log=self._folder / "prometheus.log")
        self._process.wait_ready(self._is_ready, 60)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            return error.code == 401

    def value(self, query: str) -> float:
        """The value of the first series of ``query``; 0 for none."""
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=10) as answer:
            found = orjson.loads(answer.read())["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


@contextmanager
def exporter(devices: Sequence[Device]) -> Iterator[str]:
    """The address of an exporter that always answers with ``devices`` as they are then."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exposition(devices).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def scrape(target: str, *, honor_labels: bool) -> dict[str, object]:
    """A scrape as a ServiceMonitor has it: the exporter's own pod is in the target's labels."""
    static = [{"targets": [target], "labels": dict(EXPORTER)}]
    return {"job_name": "dcgm-exporter", "honor_labels": honor_labels, "static_configs": static}
