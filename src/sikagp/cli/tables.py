"""The commands ``sikagp fit`` and ``sikagp predict``; heavy imports wait until they run."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from sikagp.cli.refusals import refusals

AS_JSON = typer.Option("--json", help="Print JSON, nothing else.")


def fit(
    data: Annotated[Path, typer.Argument(help="CSV (perhaps .gz) or Parquet with a header.")],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    out: Annotated[Path, typer.Option(help="New folder for model and report.")] = Path("model"),
    task: Annotated[
        str | None, typer.Option(help="regression or classification; found out if not given.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to ignore.")] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(help="Column of codes that are not quantities.")
    ] = None,
    missing: Annotated[str, typer.Option(help="impute or refuse missing values.")] = "impute",
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Passes over the rows; by default as many as they need."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of training.")] = 0,
    json_only: Annotated[bool, AS_JSON] = False,
) -> None:
    """Fit a model to a table; writes the model, its scores and a report."""
    from sikagp.tabular.columns import Schema, check_columns
    from sikagp.tabular.files import TableError, read_table
    from sikagp.tabular.workflow import fit_table

    with refusals():
        table = read_table(data)
        drop, categorical = drop or [], categorical or []
        check_columns(table, [target, *drop, *categorical])
        if target in drop:
            raise TableError(f"column {target!r} is the target and cannot be dropped")
        if target in categorical:
            raise TableError(f"{target!r} is the target: `--task classification` makes it a label")
        table = table.drop(columns=drop)
        schema = Schema.infer(table.drop(columns=target), categorical=categorical, missing=missing)
        summary = fit_table(
            table,
            target,
            out,
            task=task,
            schema=schema,
            seed=seed,
            max_epochs="auto" if epochs is None else epochs,
            verbose=0 if json_only else 1,
        )
    typer.echo(json.dumps(summary, indent=2) if json_only else _in_words(summary, out))


def predict(
    model: Annotated[Path, typer.Argument(help="Folder that fit wrote.")],
    data: Annotated[Path, typer.Argument(help="Table with the columns of the training table.")],
    out: Annotated[Path | None, typer.Option(help="CSV or Parquet file to write.")] = None,
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    json_only: Annotated[bool, AS_JSON] = False,
) -> None:
    """Predict the target of every row; prints CSV unless told where to write."""
    from sikagp.tabular.files import read_table, write_table
    from sikagp.tabular.model import TabularModel

    with refusals():
        predictions = TabularModel.load(model).predict(read_table(data), level=level)
        if out is not None:
            write_table(predictions, out)
    if json_only:
        typer.echo(predictions.to_json(orient="records"))
    elif out is None:
        typer.echo(predictions.to_csv(index=False), nl=False)
    else:
        typer.echo(f"{len(predictions)} predictions: {out}")


def _in_words(summary: dict[str, Any], out: Path) -> str:
    scores = "\n".join(f"  {name:28} {value:.4g}" for name, value in summary["scores"].items())
    features = "1 feature" if summary["features"] == 1 else f"{summary['features']} features"
    return (
        f"{summary['task']} of {summary['target']!r} from {features}, "
        f"{summary['rows']} rows, {summary['seconds']:.0f} s\n"
        f"scores on {summary['test_rows']} held-out rows:\n{scores}\n"
        f"model: {out}\nreport: {out / 'report.html'}"
    )
