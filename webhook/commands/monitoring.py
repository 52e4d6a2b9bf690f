"""Where Prometheus is, as `gpugate audit` and `gpugate controller` take it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from gpugate.webhook.inputs import InputError
from gpugate.webhook.usage.prometheus import Address, address_of

PrometheusUrl: TypeAlias = Annotated[
    str,
    typer.Option(
        "--prometheus",
        metavar="URL",
        envvar="GPUGATE_PROMETHEUS",
        show_envvar=True,
        help="Prometheus with dcgm-exporter's series: say which held GPUs are hardly used. A name and password may stand in it.",
    ),
]
PrometheusToken: TypeAlias = Annotated[
    Path | None, typer.Option("--prometheus-token", metavar="FILE", help="File with a bearer token for it.")
]
PrometheusCa: TypeAlias = Annotated[
    Path | None, typer.Option("--prometheus-ca", metavar="FILE", help="Certificates of the authorities that it is trusted by.")
]
PrometheusMatchers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--prometheus-matcher", metavar="MATCHER", help="Only series that match, such as 'cluster=\"a\"'; may be repeated."
    ),
]


def monitoring(url: str, token: Path | None, ca: Path | None, matchers: list[str] | None) -> Address | None:
    """The address that the options give; None where they give none.

    Raises:
        InputError: it is no address, or there are options for it without one.
    """
    if not url:
        if token or ca or matchers:
            message = "--prometheus-token, --prometheus-ca and --prometheus-matcher go with --prometheus URL"
            raise InputError(message)
        return None
    return address_of(url, token_file=token, ca_file=ca, matchers=tuple(matchers or ()))
