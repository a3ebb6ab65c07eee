"""The command line: from a table or texts to a calibrated model, and all that the paper shows."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer

NO_TYPER = "the command line needs typer: pip install 'sikagp[experiments]'"


def main() -> None:
    """Entry point of the ``sikagp`` command."""
    try:
        import typer  # noqa: F401
    except ImportError:
        raise SystemExit(NO_TYPER) from None
    from sikagp.precision import flush_denormals

    flush_denormals()
    build_app()()


def build_app() -> "Typer":
    """Return the commands as a typer app."""
    import typer

    from sikagp.cli import environment, reproduction, tables, text

    app = typer.Typer(name="sikagp", no_args_is_help=True, help=__doc__)
    app.callback()(environment.options)
    app.command()(tables.fit)
    app.command()(tables.predict)
    app.command()(text.fit_text)
    app.command()(reproduction.reproduce)
    app.command()(reproduction.choose)
    app.command()(reproduction.report)
    # Unknown options are arguments of bench, so that the suite sees them; its own help included.
    settings = {"ignore_unknown_options": True, "help_option_names": []}
    app.command(context_settings=settings)(environment.bench)
    app.command()(environment.info)
    return app
