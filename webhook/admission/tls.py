"""The TLS context of the server, and the reload of its certificate."""

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path

from gpugate.certs.inspect import CertificateError, parse
from gpugate.certs.store import ensure
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.runtime.errors import InputError
from gpugate.webhook.runtime.log import Log

#: Seconds between two checks of the files; the kubelet updates a mounted Secret within a minute or two.
_INTERVAL = 10.0


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


def make_context(certificate: Path, key: Path, *, tls_1_2: bool, client_ca: Path | None) -> ssl.SSLContext:
    """Return a server context: TLS 1.3 unless ``tls_1_2``, HTTP/1.1 by ALPN, client certificates if a CA is given.

    Raises:
        InputError: a file is missing or does not parse.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2 if tls_1_2 else ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        message = f"{certificate} and {key} cannot be used as a serving certificate: {_reason(error)}; gpugate certs issues a pair"
        raise InputError(message) from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            message = f"{client_ca} cannot be used as the CA of client certificates: {_reason(error)}; give a PEM file"
            raise InputError(message) from None
        # Optional here, required for reviews: the kubelet's probes have no certificate.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _reason(error: OSError) -> str:
    # OpenSSL's messages end with a line of Python's source: "[X509: NO_CERTIFICATE_OR_CRL_FOUND] ... (_ssl.c:4149)".
    return str(error.strerror or error).partition(" (_ssl.c")[0].lower()


def record_expiry(certificate: Path, metrics: Metrics) -> None:
    """Set the metric for the end of the serving certificate."""
    try:
        info = parse(certificate.read_bytes(), certificate)[0]
    except (OSError, CertificateError):
        return
    metrics.certificate.set(info.not_after.timestamp())


async def reload_certificates(context: ssl.SSLContext, certificate: Path, key: Path, log: Log, metrics: Metrics) -> None:
    """Reload certificate and key when the files change, for new connections, until cancelled."""
    seen = _stamp(certificate, key)
    while True:
        await asyncio.sleep(_INTERVAL)
        now = _stamp(certificate, key)
        if now == seen or None in now:
            continue
        try:
            # Test in another context: a mismatched pair would replace the key of this one.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            # The pair may be incomplete for a moment: check again later.
            log.warning("cannot load the new serving certificate yet", file=str(certificate), error=str(error))
            continue
        seen = now
        record_expiry(certificate, metrics)
        log.info("serving certificate reloaded", file=str(certificate))


def _stamp(*paths: Path) -> tuple[tuple[int, int] | None, ...]:
    stamps: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((status.st_mtime_ns, status.st_ino))
    return tuple(stamps)
