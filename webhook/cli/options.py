"""Options shared by commands: listen address, watched cluster, Prometheus, and the exit with an error."""

import re
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeAlias

import typer

from gpugate.webhook.prometheus.client import Address, address_of
from gpugate.webhook.runtime.errors import InputError

_PORT: Final = re.compile("[0-9]{1,5}")


def address(listen: str) -> tuple[str, int]:
    """Parse ``--listen HOST:PORT``; end the program if it is invalid."""
    host, colon, port = listen.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) >= 1 << 16:
        fail(f"--listen {listen}: write HOST:PORT, for example 127.0.0.1:8443 or [::]:8443")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - what an empty host means


UNUSABLE: Final = 2


def fail(message: str) -> NoReturn:
    """Print one line to standard error, and end with exit code 2."""
    typer.echo(f"gpugate: {message}", err=True)
    raise typer.Exit(UNUSABLE)


PrometheusUrl: TypeAlias = Annotated[
    str,
    typer.Option(
        "--prometheus",
        metavar="URL",
        envvar="GPUGATE_PROMETHEUS",
        show_envvar=True,
        help="Prometheus with dcgm-exporter's series, to find idle GPUs; may contain user and password.",
    ),
]
PrometheusToken: TypeAlias = Annotated[
    Path | None, typer.Option("--prometheus-token", metavar="FILE", help="File with a bearer token for Prometheus.")
]
PrometheusCa: TypeAlias = Annotated[
    Path | None, typer.Option("--prometheus-ca", metavar="FILE", help="CA certificates to verify Prometheus.")
]
PrometheusMatchers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--prometheus-matcher", metavar="MATCHER", help="Use only series that match, such as 'cluster=\"a\"'; may be repeated."
    ),
]


def monitoring(url: str, token: Path | None, ca: Path | None, matchers: list[str] | None) -> Address | None:
    """Return the address of Prometheus from the options; None without them.

    Raises:
        InputError: the address is invalid, or missing while other options need it.
    """
    if not url:
        if token or ca or matchers:
            message = "--prometheus-token, --prometheus-ca and --prometheus-matcher go with --prometheus URL"
            raise InputError(message)
        return None
    return address_of(url, token_file=token, ca_file=ca, matchers=tuple(matchers or ()))
