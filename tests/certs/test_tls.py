"""Real TLS handshakes over loopback with what is issued."""

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpugate.certs.issue import KeyPair, issue_ca
from gpugate.certs.renew import Action, Held, RenewalPlan, carry_out
from gpugate.certs.store import Bundle, ensure
from tests.certs.client_certificates import issue_client

_HOSTS = ["gpugate.system.svc", "*.wild.svc", "127.0.0.1"]


@pytest.fixture(scope="module")
def real_now() -> datetime:
    # OpenSSL judges by the clock of the machine.
    return datetime.now(UTC)


@pytest.fixture
def bundle(tmp_path: Path, real_now: datetime) -> Bundle:
    return ensure(tmp_path / "certs", _HOSTS, real_now)


def _server(bundle: Bundle) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(bundle.paths.certificate, bundle.paths.key)
    return context


def _client(ca_pem: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca_pem.decode())
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    return context


def _talk(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str | None:
    """Shake hands, pass a byte each way, and return the protocol version."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer_one, args=(listener, server))
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname(), timeout=5) as plain,
                client.wrap_socket(plain, server_hostname=host) as secure,
            ):
                secure.sendall(b"?")
                # In TLS 1.3 a server refuses a client after the client's own handshake.
                if secure.recv(1) != b"!":
                    raise ConnectionResetError
                return secure.version()
        finally:
            thread.join()


def _answer_one(listener: socket.socket, context: ssl.SSLContext) -> None:
    listener.settimeout(5)
    plain, _ = listener.accept()
    with plain:
        try:
            with context.wrap_socket(plain, server_side=True) as secure:
                if secure.recv(1) == b"?":
                    secure.sendall(b"!")
        except OSError:  # The client's refusal; the test looks at it over there.
            return


@pytest.mark.parametrize("host", ["gpugate.system.svc", "a.wild.svc", "127.0.0.1"])
def test_a_strict_client_that_trusts_the_ca_shakes_hands(bundle: Bundle, host: str) -> None:
    assert _talk(_server(bundle), _client(bundle.ca_pem), host) == "TLSv1.3"


def test_a_client_with_a_foreign_ca_of_the_same_name_refuses(bundle: Bundle, real_now: datetime) -> None:
    foreign = issue_ca(real_now).certificate_pem
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        _talk(_server(bundle), _client(foreign), "gpugate.system.svc")


def test_a_host_that_is_not_named_is_refused(bundle: Bundle) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _talk(_server(bundle), _client(bundle.ca_pem), "other.svc")


def test_an_expired_certificate_is_refused(tmp_path: Path, real_now: datetime) -> None:
    old = ensure(tmp_path / "old", _HOSTS, real_now - timedelta(days=100))
    with pytest.raises(ssl.SSLCertVerificationError, match="has expired"):
        _talk(_server(old), _client(old.ca_pem), "127.0.0.1")


def test_during_a_rotation_old_and_new_certificates_are_both_believed(bundle: Bundle, tmp_path: Path, real_now: datetime) -> None:
    ca_key = bundle.paths.ca_key.read_bytes()
    held = Held(KeyPair(bundle.ca_pem, ca_key), bundle.serving)
    rotated = carry_out(RenewalPlan(Action.ROTATE_CA, ""), held, _HOSTS, real_now)
    old = _server(bundle)
    new = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (tmp_path / "new.pem").write_bytes(rotated.serving.certificate_pem + rotated.serving.key_pem)
    new.load_cert_chain(tmp_path / "new.pem")
    client = _client(rotated.ca.certificate_pem)
    assert _talk(old, client, "127.0.0.1") == "TLSv1.3"
    assert _talk(new, client, "127.0.0.1") == "TLSv1.3"


def test_a_server_that_asks_for_client_certificates_knows_those_issued(bundle: Bundle, tmp_path: Path, real_now: datetime) -> None:
    ca = KeyPair(bundle.ca_pem, bundle.paths.ca_key.read_bytes())
    caller = issue_client(ca, "kube-apiserver", real_now)
    (tmp_path / "client.pem").write_bytes(caller.certificate_pem + caller.key_pem)
    server = _server(bundle)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(cadata=bundle.ca_pem.decode())
    client = _client(bundle.ca_pem)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _talk(server, client, "127.0.0.1")
    client.load_cert_chain(tmp_path / "client.pem")
    assert _talk(server, client, "127.0.0.1") == "TLSv1.3"
