"""`gpugate certs`: issue, inspect and print the webhook's certificates."""

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from gpugate.certs import files
from gpugate.certs.inspect import CertificateError, CertificateState, parse, timestamp
from gpugate.certs.issue import Lifetimes
from gpugate.certs.renew import trust_bundle
from gpugate.certs.store import ensure, paths_in, read
from gpugate.certs.survey import CertificateEntry, Role, Survey, survey_file, survey_store
from gpugate.webhook.cli.options import fail

_ATTENTION: Final = 1
_STYLES: Final = {
    CertificateState.VALID: "green",
    CertificateState.RENEW: "yellow",
    CertificateState.NOT_YET: "yellow",
    CertificateState.EXPIRED: "red",
}
_ONE_DAY: Final = timedelta(days=1)

app = typer.Typer(name="certs", help="Issue, inspect and print the webhook's certificates.", no_args_is_help=True)


class CertsOutput(StrEnum):
    """Output format of a report."""

    TEXT = "text"
    JSON = "json"


Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory with ca.crt, ca.key, tls.crt and tls.key.")]


@app.command()
def issue(
    directory: Directory,
    *,
    hostname: Annotated[
        list[str], typer.Option(help="DNS name or IP address to serve, e.g. gpugate.gpugate-system.svc; repeat it for more.")
    ],
    days: Annotated[int, typer.Option(help="Lifetime of a new serving certificate, in days.")] = 90,
    ca_days: Annotated[int, typer.Option(help="Lifetime of a new CA, in days.")] = 3650,
    force: Annotated[bool, typer.Option("--force", help="Renew the serving certificate now.")] = False,
) -> None:
    """Issue certificates in DIR that are missing, wrong or due; keep valid ones.

    To replace a CA early, move ca.crt and ca.key away first.
    """
    with _unusable_input():
        lifetimes = Lifetimes(ca=_days("--ca-days", ca_days), serving=_days("--days", days))
        bundle = ensure(directory, hostname, _now(), lifetimes, force=force)
        info = parse(bundle.serving.certificate_pem)[0]
    _print_line("action", bundle.plan.action)
    _print_line("reason", bundle.plan.reason)
    _print_line("directory", str(directory))
    _print_line("names", ", ".join(info.sans))
    _print_line("ends", timestamp(info.not_after))


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="PEM file, or directory.")],
    *,
    hostname: Annotated[list[str] | None, typer.Option(help="Name that the certificate of DIR must cover; repeatable.")] = None,
    within: Annotated[
        int,
        typer.Option(metavar="DAYS", help="Also exit with 1 for what ends within DAYS, besides the last third of its life.", min=0),
    ] = 0,
    output: Annotated[CertsOutput, typer.Option("-o", "--output", help="Output format.")] = CertsOutput.TEXT,
) -> None:
    """Show subjects, names and ends of the certificates in FILE or DIR.

    Exit code 0: all valid; 1: something has expired, is due for renewal (in the last third of its life, or ends within --within)
    or does not match; 2: an input is unusable.
    """
    now = _now()
    with _unusable_input():
        survey = _survey(path, hostname or [], now, _days("--within", within))
    if output is CertsOutput.JSON:
        typer.echo(json.dumps(_document(survey, now), indent=2))
    else:
        _print_text(survey)
    if not survey.healthy:
        raise typer.Exit(_ATTENTION)


@app.command()
def ca_bundle(directory: Directory) -> None:
    """Print the CA of DIR in base64, for the caBundle of a webhook configuration."""
    with _unusable_input():
        place = paths_in(directory).ca_certificate
        pem = read(directory).ca_certificate
        if pem is None:
            raise CertificateError(place=place, problem="is not there", remedy="run 'gpugate certs issue' first")
        bundle = trust_bundle(pem, _now(), place)
    typer.echo(base64.b64encode(bundle).decode("ascii"))


@contextmanager
def _unusable_input() -> Iterator[None]:
    try:
        yield
    except CertificateError as error:
        fail(_printable(str(error)))


def _now() -> datetime:
    return datetime.now(UTC)


def _days(option: str, count: int) -> timedelta:
    try:
        return timedelta(days=count)
    except OverflowError:
        raise CertificateError(place=option, problem=f"{count} is too many", remedy="give fewer") from None


def _survey(path: Path, hostnames: list[str], now: datetime, within: timedelta) -> Survey:
    with files.explained(path):
        directory = path.is_dir()
    if not directory:
        if hostnames:
            raise CertificateError(place="--hostname", problem="needs a directory", remedy="give the directory of the files")
        return survey_file(files.read(path), str(path), now, within)
    return survey_store(read(path), paths_in(path), hostnames, now, within)


def _document(survey: Survey, now: datetime) -> dict[str, object]:
    return {
        "healthy": survey.healthy,
        "checkedAt": timestamp(now),
        "certificates": [
            {
                "file": entry.file,
                "role": entry.role,
                "subject": entry.info.subject,
                "issuer": entry.info.issuer,
                "sans": list(entry.info.sans),
                "notBefore": timestamp(entry.info.not_before),
                "notAfter": timestamp(entry.info.not_after),
                "daysLeft": entry.validity.remaining // _ONE_DAY,
                "state": entry.validity.state,
                "serial": f"{entry.info.serial:x}",
                "isCA": entry.info.is_ca,
                "fingerprintSHA256": entry.info.fingerprint_sha256,
            }
            for entry in survey.entries
        ],
        "problems": [{"kind": problem.kind, "message": problem.message, "remedy": problem.remedy} for problem in survey.problems],
    }


def _print_text(survey: Survey) -> None:
    console = Console(file=sys.stdout, soft_wrap=True, highlight=False)
    for entry in survey.entries:
        _print_line("file", entry.file)
        _print_line("role", entry.role)
        _print_line("subject", entry.info.subject)
        _print_line("names", ", ".join(entry.info.sans) or "-")
        _print_line("ends", f"{timestamp(entry.info.not_after)} ({_days_left(entry)})")
        state = entry.validity.state
        style = "" if entry.role is Role.RETIRED_CA else _STYLES[state]
        console.print(Text.assemble(f"{'state':<11}", (state, style)))
        typer.echo()
    for problem in survey.problems:
        _print_line("problem", str(problem))
    _print_line("result", "all good" if survey.healthy else "needs attention")


def _days_left(entry: CertificateEntry) -> str:
    remaining = entry.validity.remaining
    is_past = remaining < timedelta(0)
    return f"ended {-remaining // _ONE_DAY} days ago" if is_past else f"{remaining // _ONE_DAY} days left"


def _print_line(label: str, text: str) -> None:
    typer.echo(f"{label:<11}{_printable(text)}")


def _printable(text: str) -> str:
    """Escape control characters, which a certificate may contain."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
