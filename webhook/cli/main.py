"""The command line."""

from importlib.metadata import version
from typing import Annotated

import typer

from gpugate.webhook.cli import audit, certs, controller, fix, policies, replay, review, serve

app = typer.Typer(
    name="gpugate",
    help="Admission webhook and policy controller for GPU workloads on Kubernetes; reviews manifests offline.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("review")(review.review)
app.command("fix")(fix.fix)
app.command("audit")(audit.audit)
app.command("replay")(replay.replay)
app.command("serve")(serve.serve)
app.command("controller")(controller.controller)
app.command("policies")(policies.policies)
app.add_typer(certs.app)


def _show_version(value: bool) -> None:  # noqa: FBT001 - a typer callback
    if value:
        typer.echo(f"gpugate {version('gpugate')}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Admission webhook and policy controller for GPU workloads on Kubernetes; reviews manifests offline."""


def main() -> None:
    """Run the command line."""
    app()
