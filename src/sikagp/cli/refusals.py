"""How a command says that it cannot use what it was given."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import typer

STATUS = 2


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn an error about input into one line and exit status 2."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(STATUS) from None


def check_folder(path: Path) -> None:
    """Refuse a folder that could not be written to, before any work is done."""
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ValueError(f"cannot write to {path}: {nearest} is no folder with write permission")
