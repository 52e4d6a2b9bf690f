"""Commands of the gpugate command line, one Typer application a module."""
