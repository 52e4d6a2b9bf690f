"""How a command ends when what it was given cannot be used."""

from __future__ import annotations

from typing import Final, NoReturn

import typer

UNUSABLE: Final = 2


def fail(message: str) -> NoReturn:
    """Say why in one line on standard error, and end with exit code 2."""
    typer.echo(f"gpugate: {message}", err=True)
    raise typer.Exit(UNUSABLE)
