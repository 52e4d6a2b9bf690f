"""Drills on the serving certificate of a real server: clients send reviews while its files and its clock go wrong.

Each drill returns its figures, and fails where the server does not hold.
"""

from __future__ import annotations

import http.client
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from gpugate.certs.issue import KeyPair, issue_ca, issue_serving
from tests.shared.clocked import jump
from tests.shared.reviews import CLUSTER, POLICY, admission, pod
from tests.shared.running import PATIENCE, Server, serving

#: Clients that send reviews all the time, each one review after the other.
CLIENTS: Final = 4
#: Reviews of a client over one connection; the next one is a new handshake.
_PER_CONNECTION: Final = 5
_YEARS: Final = 365.25 * 86400
_CA: Final = issue_ca(datetime.now(UTC))
_FOREIGN: Final = issue_ca(datetime.now(UTC))


@dataclass
class Load:
    """What clients saw.

    Attributes:
        reviews: answered ones.
        handshakes: new connections, each verified against the CA.
        slowest: seconds of the slowest review, its handshake included.
        failures: what went wrong.
    """

    reviews: int = 0
    handshakes: int = 0
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Figures:
    """What a drill measured.

    Attributes:
        cases: what was done to the server, in order.
        load: what the clients saw meanwhile.
        slowest_repair: seconds from good files, or the right clock, to the new certificate or readiness.
    """

    cases: tuple[str, ...]
    load: Load
    slowest_repair: float


def _pair(ca: KeyPair = _CA, days: float = 0) -> KeyPair:
    """A pair that was or will be issued some days from now."""
    moment = datetime.now(UTC) + timedelta(days=days)
    return issue_serving(ca if not days else issue_ca(moment), ["localhost", "127.0.0.1"], moment)


def _put(directory: Path, pair: KeyPair) -> None:
    for name, content in (("tls.key", pair.key_pem), ("tls.crt", pair.certificate_pem)):
        place = directory / name
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
        new = directory / f".{name}.new"
        new.write_bytes(content)
        new.replace(place)


def _serial(pair: KeyPair) -> int:
    return x509.load_pem_x509_certificate(pair.certificate_pem).serial_number


def _encrypted(pair: KeyPair) -> bytes:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    return serialization.load_pem_private_key(pair.key_pem, None).private_bytes(*form)


def _replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def _expired(tls: Path) -> None:
    (tls / "ca.crt").unlink()
    _put(tls, _pair(days=-100))


def _tomorrows(tls: Path) -> None:
    (tls / "ca.crt").unlink()
    _put(tls, _pair(days=1))


#: What becomes of the files, and the reason that the log gives.
_CORRUPTIONS: Final[dict[str, tuple[Callable[[Path], object], str]]] = {
    "certificate removed": (lambda tls: (tls / "tls.crt").unlink(), "unreadable"),
    "key removed": (lambda tls: (tls / "tls.key").unlink(), "unreadable"),
    "certificate empty": (lambda tls: (tls / "tls.crt").write_bytes(b""), "damaged"),
    "key empty": (lambda tls: (tls / "tls.key").write_bytes(b""), "damaged"),
    "certificate cut": (lambda tls: os.truncate(tls / "tls.crt", 300), "damaged"),
    "random bytes": (lambda tls: (tls / "tls.crt").write_bytes(os.urandom(4096)), "damaged"),
    "certificate of 1 GiB": (lambda tls: os.truncate(tls / "tls.crt", 1 << 30), "unreadable"),
    "key is a directory": (lambda tls: _replaced(tls / "tls.key", Path.mkdir), "unreadable"),
    "certificate is a named pipe": (lambda tls: _replaced(tls / "tls.crt", os.mkfifo), "unreadable"),
    "key is an endless device": (lambda tls: _replaced(tls / "tls.key", lambda key: key.symlink_to("/dev/zero")), "unreadable"),
    "key of another certificate": (lambda tls: (tls / "tls.key").write_bytes(_pair().key_pem), "key-mismatch"),
    "key with a password": (lambda tls: (tls / "tls.key").write_bytes(_encrypted(_pair())), "damaged"),
    "pair of another CA": (lambda tls: _put(tls, _pair(_FOREIGN)), "foreign-ca"),
    "bundle of another CA": (lambda tls: (tls / "ca.crt").write_bytes(_FOREIGN.certificate_pem), "foreign-ca"),
    "pair without the bundle's CA, expired": (_expired, "serving-expired"),
    "pair of tomorrow": (_tomorrows, "serving-not-yet"),
}


class _Clients:
    """Clients that send reviews until they are stopped."""

    def __init__(self, server: Server, trusting: ssl.SSLContext) -> None:
        self._server, self._trusting = server, trusting
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.load = Load()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]

    @contextmanager
    def sending(self) -> Iterator[Load]:
        for thread in self._threads:
            thread.start()
        try:
            yield self.load
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(PATIENCE)

    def more(self, reviews: int) -> None:
        """Wait until so many more reviews were answered, or one failed."""
        goal, deadline = self.load.reviews + reviews, time.monotonic() + PATIENCE
        while self.load.reviews < goal and not self.load.failures:
            assert time.monotonic() < deadline, "the reviews stand still"
            self._stop.wait(0.005)

    def _run(self, client: int) -> None:
        count = 0
        while not self._stop.is_set():
            connection = self._server.connection(self._trusting)
            try:
                for _ in range(_PER_CONNECTION):
                    self._review(connection, f"{client}-{count}")
                    count += 1
            except (OSError, AssertionError, http.client.HTTPException) as error:
                with self._lock:
                    self.load.failures.append(repr(error))
                return
            finally:
                connection.close()

    def _review(self, connection: http.client.HTTPSConnection, uid: str) -> None:
        fresh = connection.sock is None
        started = time.monotonic()
        connection.request("POST", "/mutate", orjson.dumps(admission(pod(), uid=uid)), {"Content-Type": "application/json"})
        response = connection.getresponse()
        body = response.read()
        seconds = time.monotonic() - started
        assert response.status == 200, response.status
        answer = orjson.loads(body)["response"]
        assert answer["uid"] == uid
        assert answer["allowed"] is True
        with self._lock:
            self.load.reviews += 1
            self.load.handshakes += fresh
            self.load.slowest = max(self.load.slowest, seconds)


def _served(server: Server, trusting: ssl.SSLContext) -> int:
    """The serial number of the certificate of a new connection, verified."""
    connection = server.connection(trusting)
    try:
        connection.connect()
        encoded = connection.sock.getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(encoded).serial_number
    finally:
        connection.close()


@contextmanager
def _loaded_server(directory: Path) -> Iterator[tuple[Server, _Clients, ssl.SSLContext, KeyPair, Path]]:
    tls, clock = directory / "tls", directory / "clock"
    tls.mkdir()
    jump(clock, 0)
    (tls / "ca.crt").write_bytes(_CA.certificate_pem)
    _put(tls, first := _pair())
    trusting = ssl.create_default_context(cadata=_CA.certificate_pem.decode())
    with serving(directory, "--policy", str(POLICY), "--cluster", str(CLUSTER), tls=tls, clock=clock) as server:
        clients = _Clients(server, trusting)
        with clients.sending():
            yield server, clients, trusting, first, clock
        assert server.process.poll() is None, "the server ended"


def corrupt_files(directory: Path) -> Figures:
    """Corrupt the files in every way, one after the other, and repair them each time with a new pair."""
    slowest = 0.0
    with _loaded_server(directory) as (server, clients, trusting, good, _):
        tls = directory / "tls"
        for name, (corrupt, reason) in _CORRUPTIONS.items():
            corrupt(tls)
            server.logged(message="serving certificate not loaded", reason=reason)
            clients.more(2 * CLIENTS * _PER_CONNECTION)
            assert _served(server, trusting) == _serial(good), f"{name}: not the last good one"
            assert server.ask("GET", "/readyz", context=trusting)[:2] == (200, b"ok\n"), name
            (tls / "ca.crt").write_bytes(_CA.certificate_pem)
            started = time.monotonic()
            _put(tls, good := _pair())
            server.logged(message="serving certificate reloaded")
            assert _served(server, trusting) == _serial(good), f"{name}: not the new one"
            slowest = max(slowest, time.monotonic() - started)
    return Figures(tuple(_CORRUPTIONS), clients.load, slowest)


def jump_clock(directory: Path) -> Figures:
    """Set the clock of the server years ahead and years back, and right again after each jump."""
    jumps = {"10 years ahead": 10 * _YEARS, "10 years back": -10 * _YEARS, "91 days ahead": 91 * 86400.0, "an hour back": -3600.0}
    slowest = 0.0
    with _loaded_server(directory) as (server, clients, trusting, good, clock):
        for name, seconds in jumps.items():
            jump(clock, seconds)
            answer = server.ask("GET", "/readyz", context=trusting)
            assert answer.status == 503, name
            assert ("ended at" if seconds > 0 else "begins only at") in answer.text
            # The checks of the files run in this time, too, and must not take the pair out of service.
            server.logged(message="serving certificate not loaded")
            clients.more(2 * CLIENTS * _PER_CONNECTION)
            assert _served(server, trusting) == _serial(good), name
            assert server.ask("GET", "/healthz", context=trusting).status == 200, name
            started = time.monotonic()
            jump(clock, 0)
            assert server.ask("GET", "/readyz", context=trusting)[:2] == (200, b"ok\n"), name
            slowest = max(slowest, time.monotonic() - started)
    return Figures(tuple(jumps), clients.load, slowest)
