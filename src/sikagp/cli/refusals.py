"""How a command says that it cannot use what it was given."""

import contextlib
from collections.abc import Iterator

import typer

STATUS = 2


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn an error about input into one line and exit status 2."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(STATUS) from None
