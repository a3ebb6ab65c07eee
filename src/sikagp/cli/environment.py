"""The commands ``sikagp info`` and ``sikagp bench``."""

import json
import os
import platform
from typing import Annotated, Any

import torch
import typer

from sikagp import __version__
from sikagp.experiments.clone import find_clone, load_suite
from sikagp.experiments.environment import describe_versions
from sikagp.ops.backends import backend_for

LIBRARIES = ("torch", "numba", "gpytorch", "lightning", "torchmetrics")
NO_BENCHMARKS = """\
The benchmarks are not part of the installed package; they live in the repository.
Get a clone of it, and inside run

    pip install -e '.[experiments]'
    sikagp bench --quick
"""


def _show_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"sikagp {__version__}")
        raise typer.Exit
    return wanted


def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and stop."
        ),
    ] = False,
) -> None:
    """Take the options of the command itself."""


def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show versions, backend, threads and devices."""
    found = describe_environment()
    typer.echo(json.dumps(found, indent=1) if as_json else as_lines(found))


def bench(
    arguments: Annotated[list[str] | None, typer.Argument(help="Names and options.")] = None,
) -> None:
    """Run the benchmarks of a clone; arguments as for `python -m benchmarks`."""
    root = find_clone()
    if root is None:
        typer.echo(NO_BENCHMARKS, err=True)
        raise typer.Exit(1)
    raise typer.Exit(load_suite(root, "__main__").main(arguments or []))


def describe_environment() -> dict[str, Any]:
    """Return versions, the backend that CPU tensors get, threads and devices, as JSON values."""
    module = backend_for(torch.empty(0))
    devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return {
        "sikagp": __version__,
        "python": platform.python_version(),
        **describe_versions(LIBRARIES),
        "backend": module.__name__.rpartition(".")[2],
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "devices": devices,
    }


def as_lines(values: dict[str, Any]) -> str:
    """Write names and values in two columns."""
    width = max(map(len, values))
    texts = {
        name: ", ".join(value) if isinstance(value, list) else value
        for name, value in values.items()
    }
    return "\n".join(f"{name:{width}}  {text}" for name, text in texts.items())
