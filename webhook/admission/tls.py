"""The TLS contexts of the server."""

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from gpugate.certs.inspect import CertificateError
from gpugate.certs.issue import KeyPair
from gpugate.certs.store import ensure
from gpugate.webhook.runtime.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Largest content of a TLS record, and so of one read. Bytes.
_RECORD: Final = 16 * 1024


class _Connection(ssl.SSLObject):
    """A TLS connection whose reads take the memory of one record.

    OpenSSL returns at most one record for each read, but uvloop asks for 256 KiB. Memory of that size comes from the system and
    goes back to it each time (`gpugate.webhook.runtime.memory`).
    """

    def read(self, len: int = _RECORD, buffer: "WriteableBuffer | None" = None) -> bytes:  # noqa: A002 - ssl's own name
        """Return at most ``len`` bytes, of one record."""
        return super().read(min(len, _RECORD), buffer)


def self_signed(directory: Path, hostnames: list[str]) -> tuple[Path, Path]:
    """Return certificate and key in ``directory``, issued for ``hostnames`` if missing or due.

    Raises:
        InputError: the directory or a file in it is unusable.
    """
    try:
        bundle = ensure(directory, hostnames, datetime.now(UTC))
    except CertificateError as error:
        raise InputError(str(error)) from None
    return bundle.paths.certificate, bundle.paths.key


def context_maker(*, tls_1_2: bool, client_ca: Path | None) -> Callable[[], ssl.SSLContext]:
    """Return what makes server contexts without certificate: TLS 1.3 unless ``tls_1_2``, and HTTP/1.1.

    With a CA they ask for client certificates. It is read once, so that a change of its file keeps no new serving certificate out.

    Raises:
        InputError: the file of the CA is missing or does not parse.
    """
    version = ssl.TLSVersion.TLSv1_2 if tls_1_2 else ssl.TLSVersion.TLSv1_3
    if client_ca is None:
        return partial(_context, version, None)
    try:
        authorities = client_ca.read_bytes()
        _context(version, authorities)
    except OSError as error:
        message = f"{client_ca} cannot be used as the CA of client certificates: {reason(error)}; give a PEM file"
        raise InputError(message) from None
    return partial(_context, version, authorities)


def _context(version: ssl.TLSVersion, client_ca: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = version
    context.sslobject_class = _Connection
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        with _nameless(client_ca) as file:
            context.load_verify_locations(file)
        # Optional here, required for reviews: the kubelet's probes have no certificate.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def use_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Load a certificate with its key, as checked, into a context that has none.

    The files may have changed since the check, and OpenSSL reads files alone: it gets one without a name, in memory where the
    system can. An encrypted key is refused; without a password OpenSSL would ask for one at the terminal.

    Raises:
        OSError: OpenSSL does not accept the pair (ssl.SSLError), or there is no memory or space for the file.
    """
    with _nameless(pair.certificate_pem + b"\n" + pair.key_pem) as file:
        context.load_cert_chain(file, password="")


def reason(error: OSError) -> str:
    """Return the reason of an error of files or TLS."""
    # OpenSSL's messages end with a line of Python's source: "[X509: NO_CERTIFICATE_OR_CRL_FOUND] ... (_ssl.c:4149)".
    return str(error.strerror or error).partition(" (_ssl.c")[0].lower()


@contextmanager
def _nameless(data: bytes) -> Iterator[str]:
    """Give a path to a file with ``data`` that no other process can find by name."""
    with _file() as file:
        file.write(data)
        file.flush()
        yield f"/dev/fd/{file.fileno()}"


def _file() -> BinaryIO:
    if hasattr(os, "memfd_create"):
        try:
            return os.fdopen(os.memfd_create("gpugate-tls"), "w+b")
        except OSError:  # The system may forbid it (vm.memfd_noexec).
            pass
    return tempfile.TemporaryFile()
