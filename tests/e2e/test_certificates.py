"""The apiserver goes on reaching gpugate whatever becomes of the files of its serving certificate."""

from __future__ import annotations

import ssl
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from gpugate.certs.issue import issue_ca, issue_serving
from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import pod

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = pytest.mark.e2e
_LOOPBACK = ["127.0.0.1", "localhost"]
#: Pods sent at the same time: more than the apiserver has connections, so that it makes new ones.
_AT_ONCE = 24


def _rewritten(control_plane: ControlPlane, namespace: str) -> int:
    """How many of the GPU pods that are sent at the same time the apiserver admits and gpugate rewrites."""

    def send(number: int) -> bool:
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        answer = control_plane.request("POST", path, pod(f"p{number}", namespace))
        return answer.status == 201 and "tolerations" in answer.body["spec"]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return sum(pool.map(send, range(_AT_ONCE)))


def _served(gate: Gate) -> int:
    text = ssl.get_server_certificate(("127.0.0.1", gate.port))
    return x509.load_pem_x509_certificate(text.encode()).serial_number


def _put(directory: Path, certificate: bytes, key: bytes) -> None:
    (directory / "tls.key").write_bytes(key)
    (directory / "tls.crt").write_bytes(certificate)


@pytest.fixture
def good(gate: Gate) -> Iterator[tuple[bytes, bytes]]:
    """The pair in service; put back afterwards."""
    found = (gate.tls / "tls.crt").read_bytes(), (gate.tls / "tls.key").read_bytes()
    yield found
    (gate.tls / "ca.crt").unlink(missing_ok=True)
    _put(gate.tls, *found)


@pytest.mark.parametrize("spoilt", ["ended", "of another CA", "cut", "of another key"])
def test_an_unusable_certificate_on_disk_costs_no_pod(
    control_plane: ControlPlane, gate: Gate, namespace: str, good: tuple[bytes, bytes], spoilt: str
) -> None:
    number, now = _served(gate), datetime.now(UTC)
    foreign = issue_ca(now - timedelta(days=100))
    pairs = {
        "ended": issue_serving(foreign, _LOOPBACK, now - timedelta(days=100)),
        "of another CA": issue_serving(foreign, _LOOPBACK, now),
    }
    before = len(gate.events(message="serving certificate not loaded"))
    if spoilt == "of another CA":
        (gate.tls / "ca.crt").write_bytes(control_plane.authority.ca_file.read_bytes())
    if spoilt in pairs:
        _put(gate.tls, pairs[spoilt].certificate_pem, pairs[spoilt].key_pem)
    elif spoilt == "cut":
        _put(gate.tls, good[0][:300], good[1])
    else:
        _put(gate.tls, good[0], pairs["of another CA"].key_pem)
    wait_until(lambda: len(gate.events(message="serving certificate not loaded")) > before, 30, "the problem to be logged")
    assert gate.get("/readyz") == "ok\n"
    assert _served(gate) == number
    assert _rewritten(control_plane, namespace) == _AT_ONCE


@pytest.mark.usefixtures("good")
def test_a_new_certificate_reaches_the_apiserver_without_a_restart(control_plane: ControlPlane, gate: Gate, namespace: str) -> None:
    number = _served(gate)
    renewed = control_plane.authority.serving("renewed")
    _put(gate.tls, renewed.cert.read_bytes(), renewed.key.read_bytes())
    wait_until(lambda: _served(gate) != number, 30, "the new certificate to be served")
    assert gate.get("/readyz") == "ok\n"
    assert _rewritten(control_plane, namespace) == _AT_ONCE
