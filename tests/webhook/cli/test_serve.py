"""`gpugate serve` that cannot start ends at once, with exit code 2 and one line that names the place and the way out."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpugate.certs.issue import issue_ca, issue_serving
from gpugate.webhook.cli.main import app
from tests.shared.reviews import CLUSTER, POLICY
from tests.shared.running import run, serving

_NOW = datetime.now(UTC)
_CA = issue_ca(_NOW)
_POLICY = "apiVersion: gpugate.io/v1alpha1\nkind: GPUPolicy\nmetadata: {name: mine}\nspec: "


def serve(*arguments: str) -> Result:
    """Run `gpugate serve` in this process; every case here ends before it listens."""
    return CliRunner().invoke(app, ["serve", *arguments])


def the_line(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("gpugate: ")
    assert "Traceback" not in lines[0]
    return str(lines[0])


def test_a_port_that_is_taken_is_named_by_the_real_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("serve", "--listen", address, "--self-signed", str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert address in line
    assert "in use" in line
    assert "--listen" in line


@pytest.mark.parametrize(
    "listen",
    ["8443", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:http", "127.0.0.1:\N{SUPERSCRIPT TWO}", ""],
)
def test_an_address_that_is_none_is_shown_how_to_be_written(tmp_path: Path, listen: str) -> None:
    line = the_line(serve("--listen", listen, "--self-signed", str(tmp_path)))
    assert f"--listen {listen}:" in line
    assert "127.0.0.1:8443" in line


def test_one_way_to_a_certificate_must_be_given_and_not_both(tmp_path: Path) -> None:
    for options in ([], ["--self-signed", str(tmp_path), "--tls-dir", str(tmp_path)]):
        line = the_line(serve(*options))
        assert "--self-signed DIR" in line
        assert "--tls-dir DIR" in line


@pytest.mark.parametrize("version", ["1.1", "1", "TLSv1.3", ""])
def test_other_versions_of_tls_are_refused(tmp_path: Path, version: str) -> None:
    assert "write 1.2 or 1.3" in the_line(serve("--self-signed", str(tmp_path), "--tls-min-version", version))


def test_a_tls_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name, problem in (("nowhere", "no such file"), ("file", "not a directory")):
        line = the_line(serve("--tls-dir", str(tmp_path / name), "--policy", str(POLICY), "--cluster", str(CLUSTER)))
        assert f"--tls-dir {tmp_path / name}: " in line
        assert problem in line
        assert "gpugate certs" in line


@pytest.mark.parametrize("content", [None, b"", b"no certificate", _CA.certificate_pem])
def test_a_certificate_that_is_none_leaves_the_replica_alive_and_unready_until_there_is_one(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "tls.crt").write_bytes(content)
        (tmp_path / "tls.key").write_bytes(b"no key")
    with serving(tmp_path / "unused", "--policy", str(POLICY), "--cluster", str(CLUSTER), tls=tmp_path) as server:
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        assert server.ask("GET", "/healthz", context=unverified).status == 200
        answer = server.ask("GET", "/readyz", context=unverified)
        assert answer.status == 503
        assert answer.text.startswith("there is no usable serving certificate: ")
        assert "tls." in answer.text
        _put(tmp_path)
        server.logged(message="serving certificate reloaded")
        trusting = ssl.create_default_context(cadata=(tmp_path / "ca.crt").read_text(encoding="ascii"))
        assert server.ask("GET", "/readyz", context=trusting)[:2] == (200, b"ok\n")


def _put(directory: Path) -> None:
    pair = issue_serving(_CA, ["127.0.0.1"], _NOW)
    for name, data in (("ca.crt", _CA.certificate_pem), ("tls.key", pair.key_pem), ("tls.crt", pair.certificate_pem)):
        (directory / name).write_bytes(data)


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_client_ca_that_is_none_is_named_and_the_serving_certificate_is_not_blamed(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "clients.crt"
    if content is not None:
        file.write_bytes(content)
    line = the_line(serve("--self-signed", str(tmp_path), "--policy", str(POLICY), "--client-ca", str(file)))
    assert line.startswith(f"gpugate: {file} ")
    assert "client" in line
    assert "tls.crt" not in line


def test_a_self_signed_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    line = the_line(serve("--self-signed", str(tmp_path / "file"), "--policy", str(POLICY)))
    assert str(tmp_path / "file") in line
    assert "directory" in line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["there is no such file"]),
        ("", ["contains no GPUPolicy"]),
        ("kind: Pod\napiVersion: v1\n", ["contains no GPUPolicy"]),
        ("a: b: c\n", ["line 1, column"]),
        ("apiVersion: gpugate.io/v9\nkind: GPUPolicy\nmetadata: {name: mine}\n", ["gpugate.io/v9", "gpugate.io/v1alpha1"]),
        ("apiVersion: gpugate.io/v1alpha1\nkind: GPUPolicy\n", ["metadata.name"]),
        (_POLICY + "{mode: Off}\n", ["mine", "spec.mode", "Enforce"]),
        (_POLICY + "{rules: {numma: {}}}\n", ["spec.rules.numma", "there is no such field"]),
        (_POLICY + "{rules: {queue: {required: [1]}}}\n", ["spec.rules.queue.required"]),
        (_POLICY + "{exemptions: {rules: [nothing]}}\n", ["nothing", "host-memory"]),
        (_POLICY + "7\n", ["mine", "spec"]),
        (_POLICY + "{}\n---\n" + _POLICY + "{}\n", ["two policies with the name mine"]),
    ],
    ids=["missing", "empty", "pod", "yaml", "version", "nameless", "mode", "rule", "type", "exemption", "number", "twice"],
)
def test_a_policy_file_that_cannot_be_used_is_named_with_the_field(tmp_path: Path, content: str | None, words: list[str]) -> None:
    file = tmp_path / "policy.yaml"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    line = the_line(serve("--self-signed", str(tmp_path / "tls"), "--policy", str(file)))
    assert line.startswith(f"gpugate: {file}: ")
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["cluster.yaml", "there is no such file"]),
        ("a: b: c\n", ["cluster.yaml", "line 1, column"]),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: gpu-1, labels: [x]}\n", ["Node gpu-1", "metadata.labels", "a map"]),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: gpu-1}\nstatus: 7\n", ["Node gpu-1", "status"]),
    ],
    ids=["missing", "yaml", "labels", "status"],
)
def test_a_cluster_file_that_cannot_be_used_is_named_with_the_object(tmp_path: Path, content: str | None, words: list[str]) -> None:
    file = tmp_path / "cluster.yaml"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    line = the_line(serve("--self-signed", str(tmp_path / "tls"), "--policy", str(POLICY), "--cluster", str(file)))
    for word in words:
        assert word in line


def test_a_kubeconfig_that_is_missing_is_named_in_one_line(tmp_path: Path) -> None:
    done = run("serve", "--listen", "127.0.0.1:0", "--self-signed", str(tmp_path), "--kubeconfig", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert str(tmp_path / "nowhere") in line
    assert "KUBECONFIG" in line
