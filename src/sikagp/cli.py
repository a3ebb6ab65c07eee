"""The command line: ``sikagp info`` and ``sikagp bench``."""

import importlib
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch

from sikagp import __version__
from sikagp.ops.backends import backend_for
from sikagp.tabular.commands import add_commands

if TYPE_CHECKING:
    from typer import Typer

LIBRARIES = ("torch", "numba", "gpytorch", "lightning", "torchmetrics")
NO_TYPER = "the command line needs typer: pip install 'sikagp[experiments]'"
NO_BENCHMARKS = """\
The benchmarks are not part of the installed package; they live in the repository.
Get a clone of it, and inside run

    pip install -e '.[experiments]'
    sikagp bench --quick
"""


def main() -> None:
    """Entry point of the ``sikagp`` command."""
    try:
        import typer  # noqa: F401
    except ImportError:
        raise SystemExit(NO_TYPER) from None
    build_app()()


def build_app() -> "Typer":
    """Return the commands as a typer app."""
    import typer

    app = typer.Typer(name="sikagp", no_args_is_help=True, help=__doc__)

    @app.command()
    def info(
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """Show versions, backend, threads and devices."""
        found = describe_environment()
        typer.echo(json.dumps(found, indent=1) if as_json else as_lines(found))

    # Unknown options are arguments here, so that the suite sees them; its own help included.
    @app.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
    def bench(
        arguments: Annotated[list[str] | None, typer.Argument(help="Names and options.")] = None,
    ) -> None:
        """Run the benchmarks of a clone; arguments as for `python -m benchmarks`."""
        root = find_benchmarks()
        if root is None:
            typer.echo(NO_BENCHMARKS, err=True)
            raise typer.Exit(1)
        raise typer.Exit(run_benchmarks(root, arguments or []))

    add_commands(app)
    return app


def describe_environment() -> dict[str, Any]:
    """Return versions, the backend that CPU tensors get, threads and devices, as JSON values."""
    module = backend_for(torch.empty(0))
    devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return {
        "sikagp": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in LIBRARIES},
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


def find_benchmarks() -> Path | None:
    """Folder of a clone: the current one, or the one that this package lies in."""
    candidates = (Path.cwd(), Path(__file__).resolve().parents[2])
    return next((root for root in candidates if (root / "benchmarks/harness.py").is_file()), None)


def run_benchmarks(root: Path, arguments: list[str]) -> int:
    """Hand the arguments to the suite; returns its exit status."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    suite = importlib.import_module("benchmarks.__main__")
    return suite.main(arguments)


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
