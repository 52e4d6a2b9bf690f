"""A serving certificate that is exchanged on disk is used for new connections; one that is unusable is not, and is reported."""

from __future__ import annotations

import asyncio
import io
import os
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from gpugate.certs.issue import KeyPair, issue_ca, issue_serving
from gpugate.webhook.admission import serving_certificate, tls
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.serving_certificate import CertificateFiles, ServingCertificate
from gpugate.webhook.runtime.log import Log
from tests.certs.client_certificates import issue_client
from tests.shared.ordinary_user import as_ordinary_user
from tests.shared.reviews import counted

_NOW = datetime.now(UTC)
_CA = issue_ca(_NOW)
_OTHER_CA = issue_ca(_NOW)
_PATIENCE = 10.0
_RELOADED = "serving certificate reloaded"
_KEPT, _NONE = "serving certificate not loaded", "no usable serving certificate"


def pair(ca: KeyPair = _CA, moved: timedelta = timedelta(0)) -> KeyPair:
    """Issue a pair of 90 days that was or will be issued ``moved`` from now."""
    return issue_serving(ca if not moved else issue_ca(_NOW + moved), ["localhost"], _NOW + moved)


def number(one: KeyPair) -> int:
    return x509.load_pem_x509_certificate(one.certificate_pem).serial_number


def put(directory: Path, certificate: KeyPair, key: KeyPair | None = None) -> None:
    """Exchange both files as a mounted Secret is: new files in the place of the old."""
    for name, content in (("tls.crt", certificate.certificate_pem), ("tls.key", (key or certificate).key_pem)):
        (directory / f"new-{name}").write_bytes(content)
        (directory / f"new-{name}").replace(directory / name)


def rsa_pair() -> KeyPair:
    """A certificate with an RSA key, signed by the CA."""
    key = rsa.generate_private_key(65537, 2048)
    issuer = x509.load_pem_x509_certificate(_CA.certificate_pem)
    signer = serialization.load_pem_private_key(_CA.key_pem, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rsa")])
    builder = x509.CertificateBuilder(
        issuer.subject, subject, key.public_key(), x509.random_serial_number(), _NOW - timedelta(1), _NOW + timedelta(80)
    ).add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    return KeyPair(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), key.private_bytes(*form))


def encrypted(one: KeyPair) -> bytes:
    """The key of a pair, with a password."""
    key = serialization.load_pem_private_key(one.key_pem, None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(*form, serialization.BestAvailableEncryption(b"a password"))


class Told(io.StringIO):
    """A stream that tells when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text: str, /) -> int:
        self.written.set()
        return super().write(text)


class Exchanging:
    """A TLS server whose certificate is checked when a test says so, or by its own watch.

    Attributes:
        ahead: seconds that its clock is ahead.
    """

    def __init__(self, directory: Path, client_ca: Path | None = None) -> None:
        self.stream = Told()
        self.metrics = Metrics()
        self.log = Log(self.stream)
        self.ahead = 0.0
        paths = CertificateFiles(directory / "tls.crt", directory / "tls.key", directory / "ca.crt")
        new_context = tls.context_maker(tls_1_2=False, client_ca=client_ca)
        self.certificate = ServingCertificate(paths, new_context, self.log, self.metrics, lambda: time.time() + self.ahead)
        self.port = 0
        self.said: bytes = b""

    async def logged(self, message: str) -> None:
        """Wait until the log has a line with this message."""
        async with asyncio.timeout(_PATIENCE):
            while message not in self.messages():
                self.stream.written.clear()
                await self.stream.written.wait()

    def lines(self) -> list[dict[str, str]]:
        self.log.flush()
        return [orjson.loads(line) for line in self.stream.getvalue().splitlines()]

    def messages(self) -> list[str]:
        return [line["message"] for line in self.lines()]

    def rejected(self, reason: str) -> float:
        return counted(self.metrics.text().decode(), f'gpugate_serving_certificate_rejected_total{{reason="{reason}"}}')

    async def check(self, times: int = 1) -> None:
        """Check the files; a thread blocked by one of them is a failure."""
        async with asyncio.timeout(_PATIENCE):
            for _ in range(times):
                await self.certificate.check()

    async def serial(self, *, trusting: bool = True, identity: Path | None = None, name: str | None = "localhost") -> int:
        """The serial number of the certificate that a new connection gets."""
        context = ssl.create_default_context(cadata=_CA.certificate_pem.decode())
        if not trusting:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if identity is not None:
            context.load_cert_chain(identity)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=name)
        encoded = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        self.said = await reader.read()
        writer.close()
        return x509.load_der_x509_certificate(encoded).serial_number


@asynccontextmanager
async def exchanging(directory: Path, *, client_ca: Path | None = None, watching: bool = False) -> AsyncIterator[Exchanging]:
    made = Exchanging(directory, client_ca)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say who the client is."""
        writer.write(str(writer.get_extra_info("peercert")).encode())
        writer.close()

    watch = asyncio.create_task(made.certificate.watch()) if watching else None
    try:
        async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=made.certificate.context) as server:
            made.port = server.sockets[0].getsockname()[1]
            yield made
            assert watch is None or not watch.done(), "the watch ended"
    finally:
        if watch is not None:
            watch.cancel()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_INTERVAL", "_RETRY"):
        monkeypatch.setattr(serving_certificate, name, 0.001)


@pytest.mark.asyncio
async def test_new_connections_get_the_new_certificate(tmp_path: Path) -> None:
    first, second = pair(), pair()
    put(tmp_path, first)
    async with exchanging(tmp_path, watching=True) as server:
        assert await server.serial() == number(first)
        put(tmp_path, second)
        await server.logged(_RELOADED)
        assert await server.serial() == number(second)
        assert b"gpugate_serving_certificate_not_after_seconds 0.0" not in server.metrics.text()


@pytest.mark.asyncio
async def test_half_of_a_new_pair_leaves_the_old_one_serving_until_the_other_half_is_there(tmp_path: Path) -> None:
    first, second = pair(), pair()
    put(tmp_path, first)
    async with exchanging(tmp_path, watching=True) as server:
        put(tmp_path, second, first)
        await server.logged(_KEPT)
        assert await server.serial() == number(first)
        put(tmp_path, second)
        await server.logged(_RELOADED)
        assert await server.serial() == number(second)


@pytest.mark.asyncio
async def test_half_of_a_new_pair_for_one_check_is_not_reported(tmp_path: Path) -> None:
    first, second = pair(), pair()
    put(tmp_path, first)
    async with exchanging(tmp_path) as server:
        put(tmp_path, second, first)
        await server.check()
        put(tmp_path, second)
        await server.check(2)
        assert server.messages() == [_RELOADED]
        assert "reason=" not in server.metrics.text().decode()
        assert await server.serial() == number(second)


def _directory_in_place_of(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe_in_place_of(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _bytes(content: bytes) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(content), None)[1]


_CORRUPTIONS: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "missing": ("tls.crt", Path.unlink, "unreadable"),
    "empty": ("tls.crt", _bytes(b""), "damaged"),
    "of another kind": ("tls.crt", _bytes(_CA.key_pem), "damaged"),
    "text": ("tls.key", _bytes(b"junk"), "damaged"),
    "cut": ("tls.crt", _bytes(pair().certificate_pem[:300]), "damaged"),
    "damaged": ("tls.crt", _bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "damaged"),
    "huge": ("tls.crt", lambda path: os.truncate(path, 1 << 30), "unreadable"),
    "many certificates": ("tls.crt", _bytes(pair().certificate_pem * 11), "damaged"),
    "a directory": ("tls.key", _directory_in_place_of, "unreadable"),
    "a pipe": ("tls.crt", _pipe_in_place_of, "unreadable"),
    "an endless device": ("tls.key", lambda path: (path.unlink(), path.symlink_to("/dev/zero"), None)[2], "unreadable"),
    "a loop of links": ("tls.key", lambda path: (path.unlink(), path.symlink_to(path), None)[2], "unreadable"),
    "encrypted": ("tls.key", _bytes(encrypted(pair())), "damaged"),
    "of another certificate": ("tls.key", _bytes(pair().key_pem), "key-mismatch"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("corruption", _CORRUPTIONS)
async def test_an_unusable_file_leaves_the_last_pair_serving_and_the_replica_ready(tmp_path: Path, corruption: str) -> None:
    name, corrupt, reason = _CORRUPTIONS[corruption]
    first, second = pair(), pair()
    put(tmp_path, first)
    async with exchanging(tmp_path) as server:
        corrupt(tmp_path / name)
        await server.check(3)
        assert server.certificate.not_ready == ""
        assert await server.serial() == number(first)
        assert server.messages() == [_KEPT], "said once, not at each check"
        assert server.lines()[0]["reason"] == reason
        assert server.rejected(reason) == 2
        if (tmp_path / name).is_dir():
            (tmp_path / name).rmdir()
        put(tmp_path, second)
        await server.check()
        assert server.messages() == [_KEPT, _RELOADED]
        assert await server.serial() == number(second)


@pytest.mark.asyncio
async def test_a_file_that_may_not_be_read_leaves_the_last_pair_serving() -> None:
    with as_ordinary_user() as home:
        put(home, first := pair())
        async with exchanging(home) as server:
            (home / "tls.key").chmod(0)
            await server.check(2)
            assert server.lines()[-1]["reason"] == "unreadable"
            assert await server.serial() == number(first)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (pair(moved=timedelta(days=-100)), "serving-expired"),
        (pair(moved=timedelta(days=1)), "serving-not-yet"),
        (issue_client(_CA, "a client", _NOW), "wrong-usage"),
    ],
)
async def test_a_pair_that_clients_would_refuse_is_not_loaded(tmp_path: Path, other: KeyPair, reason: str) -> None:
    put(tmp_path, first := pair())
    async with exchanging(tmp_path) as server:
        put(tmp_path, other)
        await server.check(2)
        assert server.lines()[-1]["reason"] == reason
        assert server.certificate.not_ready == ""
        assert await server.serial() == number(first)


@pytest.mark.asyncio
async def test_a_pair_that_begins_later_is_loaded_when_it_does(tmp_path: Path) -> None:
    put(tmp_path, first := pair())
    async with exchanging(tmp_path) as server:
        put(tmp_path, later := pair(moved=timedelta(days=1)))
        await server.check(2)
        assert await server.serial() == number(first)
        server.ahead = 25 * 3600
        await server.check()
        assert await server.serial(trusting=False) == number(later)


@pytest.mark.asyncio
async def test_a_pair_that_does_not_chain_to_the_bundle_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(_CA.certificate_pem)
    put(tmp_path, first := pair())
    async with exchanging(tmp_path) as server:
        put(tmp_path, foreign := pair(_OTHER_CA))
        await server.check(2)
        assert server.lines()[-1]["reason"] == "foreign-ca"
        assert await server.serial() == number(first)
        (tmp_path / "ca.crt").write_bytes(_OTHER_CA.certificate_pem + _CA.certificate_pem)
        await server.check()
        assert await server.serial(trusting=False) == number(foreign)


@pytest.mark.asyncio
async def test_the_pair_in_service_stays_when_the_bundle_no_longer_has_its_ca(tmp_path: Path) -> None:
    put(tmp_path, first := pair())
    async with exchanging(tmp_path) as server:
        (tmp_path / "ca.crt").write_bytes(_OTHER_CA.certificate_pem)
        await server.check(2)
        assert server.rejected("foreign-ca") == 1
        assert server.certificate.not_ready == ""
        assert await server.serial() == number(first)


@pytest.mark.asyncio
@pytest.mark.parametrize("bundle", [b"junk", None])
async def test_a_damaged_bundle_keeps_no_pair_out_and_is_reported(tmp_path: Path, bundle: bytes | None) -> None:
    if bundle is None:
        (tmp_path / "ca.crt").mkdir()
    else:
        (tmp_path / "ca.crt").write_bytes(bundle)
    put(tmp_path, pair())
    async with exchanging(tmp_path) as server:
        assert server.certificate.not_ready == ""
        put(tmp_path, second := pair())
        await server.check()
        assert await server.serial() == number(second)
        assert server.rejected("damaged-bundle") == 2
        assert "serving certificate not compared with its CA bundle" in server.messages()


@pytest.mark.asyncio
async def test_an_empty_bundle_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"\n")
    put(tmp_path, first := pair())
    async with exchanging(tmp_path) as server:
        assert server.messages() == []
        assert await server.serial() == number(first)


@pytest.mark.asyncio
@pytest.mark.parametrize("turned", [False, True])
async def test_a_key_of_another_type_takes_the_place_of_the_old_one(tmp_path: Path, *, turned: bool) -> None:
    first, second = (rsa_pair(), pair()) if turned else (pair(), rsa_pair())
    put(tmp_path, first)
    async with exchanging(tmp_path) as server:
        put(tmp_path, second)
        await server.check()
        assert server.messages() == [_RELOADED]
        assert await server.serial() == number(second)


@pytest.mark.asyncio
async def test_a_client_that_names_no_host_gets_the_new_certificate_too(tmp_path: Path) -> None:
    put(tmp_path, pair())
    async with exchanging(tmp_path) as server:
        put(tmp_path, second := pair())
        await server.check()
        assert await server.serial(trusting=False, name="") == number(second)


@pytest.mark.asyncio
async def test_a_key_that_tls_does_not_accept_is_not_loaded(tmp_path: Path) -> None:
    put(tmp_path, first := pair())
    weak = rsa.generate_private_key(65537, 1024)  # noqa: S505 - that is the point
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "weak")])
    certificate = x509.CertificateBuilder(
        name, name, weak.public_key(), x509.random_serial_number(), _NOW - timedelta(1), _NOW + timedelta(1)
    ).sign(weak, hashes.SHA256())
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    async with exchanging(tmp_path) as server:
        put(tmp_path, KeyPair(certificate.public_bytes(serialization.Encoding.PEM), weak.private_bytes(*form)))
        await server.check(2)
        assert server.lines()[-1]["reason"] == "unsupported"
        assert await server.serial() == number(first)


@pytest.mark.asyncio
async def test_a_chain_in_the_wrong_order_says_which_certificate_goes_first(tmp_path: Path) -> None:
    put(tmp_path, first := pair())
    async with exchanging(tmp_path) as server:
        second = pair()
        put(tmp_path, KeyPair(_CA.certificate_pem + second.certificate_pem, second.key_pem))
        await server.check(2)
        assert server.lines()[-1]["reason"] == "key-mismatch"
        assert "belongs to certificate 2" in server.lines()[-1]["error"]
        assert await server.serial() == number(first)


@pytest.mark.asyncio
async def test_without_a_usable_pair_the_replica_answers_and_is_not_ready_until_there_is_one(tmp_path: Path) -> None:
    async with exchanging(tmp_path, watching=True) as server:
        assert server.messages() == [_NONE]
        assert "tls.crt" in server.certificate.not_ready
        assert await server.serial(trusting=False)
        with pytest.raises(ssl.SSLCertVerificationError):
            await server.serial()
        put(tmp_path, first := pair())
        await server.logged(_RELOADED)
        assert server.certificate.not_ready == ""
        assert await server.serial() == number(first)


@pytest.mark.asyncio
async def test_a_pair_that_has_ended_is_no_usable_pair_at_the_start(tmp_path: Path) -> None:
    put(tmp_path, pair(moved=timedelta(days=-100)))
    async with exchanging(tmp_path) as server:
        assert "the serving certificate ended at" in server.certificate.not_ready
        assert server.rejected("serving-expired") == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("years", [10, -10, 100_000, -100_000])
async def test_the_replica_is_unready_while_its_clock_is_outside_the_certificates_time(tmp_path: Path, years: int) -> None:
    put(tmp_path, first := pair())
    async with exchanging(tmp_path) as server:
        server.ahead = years * 365.25 * 86400
        assert ("ended at" if years > 0 else "begins only at") in server.certificate.not_ready, "without a check"
        await server.check(3)
        assert ("ended at" if years > 0 else "begins only at") in server.certificate.not_ready
        assert server.rejected("serving-expired" if years > 0 else "serving-not-yet") == 2
        assert await server.serial() == number(first), "it goes on answering"
        server.ahead = 0.0
        assert server.certificate.not_ready == "", "without a check"
        await server.check()
        assert await server.serial() == number(first)


@pytest.mark.asyncio
async def test_a_certificate_that_ends_in_service_gives_way_to_the_next(tmp_path: Path) -> None:
    put(tmp_path, pair())
    async with exchanging(tmp_path) as server:
        put(tmp_path, later := pair(moved=timedelta(days=80)))
        server.ahead = 100 * 86400.0
        assert server.certificate.not_ready
        await server.check()
        assert server.certificate.not_ready == ""
        assert await server.serial(trusting=False) == number(later)


@pytest.mark.asyncio
async def test_clients_are_asked_for_a_certificate_after_an_exchange_and_a_loss_of_the_clients_ca(tmp_path: Path) -> None:
    clients, identity = tmp_path / "clients.crt", tmp_path / "identity.pem"
    clients.write_bytes(_OTHER_CA.certificate_pem)
    issued = issue_client(_OTHER_CA, "apiserver", _NOW)
    identity.write_bytes(issued.certificate_pem + issued.key_pem)
    put(tmp_path, pair())
    async with exchanging(tmp_path, client_ca=clients) as server:
        clients.write_bytes(b"")
        put(tmp_path, second := pair())
        await server.check()
        assert await server.serial(identity=identity) == number(second)
        assert b"apiserver" in server.said
        await server.serial()
        assert server.said in {b"None", b"{}"}


@pytest.mark.asyncio
async def test_a_file_that_is_away_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    first, second = pair(), pair()
    put(tmp_path, first)
    async with exchanging(tmp_path, watching=True) as server:
        (tmp_path / "tls.key").unlink()
        assert await server.serial() == number(first)
        put(tmp_path, second)
        await server.logged(_RELOADED)
        assert await server.serial() == number(second)


@pytest.mark.asyncio
async def test_a_mounted_secret_is_exchanged_by_one_link(tmp_path: Path) -> None:
    first, second = pair(), pair()
    for name, content in (("..1", first), ("..2", second)):
        (tmp_path / name).mkdir()
        put(tmp_path / name, content)
    (tmp_path / "..data").symlink_to("..1")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    async with exchanging(tmp_path) as server:
        assert await server.serial() == number(first)
        (tmp_path / "..data_tmp").symlink_to("..2")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        await server.check()
        assert server.messages() == [_RELOADED]
        assert await server.serial() == number(second)


@pytest.mark.parametrize("clock", [0.0, -1e15, 1e15])
def test_a_start_with_an_impossible_clock_is_alive_and_unready(tmp_path: Path, clock: float) -> None:
    put(tmp_path, pair())
    paths = CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt")
    new_context = tls.context_maker(tls_1_2=False, client_ca=None)
    made = ServingCertificate(paths, new_context, Log(io.StringIO()), Metrics(), lambda: clock)
    assert "there is no usable serving certificate: the serving certificate" in made.not_ready


def test_a_read_of_a_connection_takes_the_memory_of_one_record() -> None:
    context = tls.context_maker(tls_1_2=False, client_ca=None)()
    tls.use_pair(context, pair())
    from_client, from_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=_CA.certificate_pem.decode()).wrap_bio(
        from_server, from_client, server_hostname="localhost"
    )
    server = context.wrap_bio(from_client, from_server, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    body = b"x" * 40_000
    client.write(body)
    tracemalloc.start()
    try:
        received = [server.read(256 * 1024) for _ in range(3)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert b"".join(received) == body
    assert peak < 80_000
