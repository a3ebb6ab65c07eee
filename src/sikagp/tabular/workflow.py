"""``sikagp fit``: hold rows out, fit, score, fit again on all rows, write a folder."""

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from sikagp.tabular.columns import Schema, check_columns, hint_at_numbers
from sikagp.tabular.evaluation import evaluate
from sikagp.tabular.files import TableError
from sikagp.tabular.model import TabularModel, guess_task, target_values
from sikagp.tabular.report import write_report

MIN_ROWS = 10


def fit_table(
    table: pd.DataFrame,
    target: str,
    out: str | os.PathLike[str],
    *,
    task: str | None = None,
    schema: Schema | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    **options: Any,
) -> dict[str, Any]:
    """Fit a model to a table and write it with its scores and a report; returns the scores.

    The scores come from a model that has not seen the test rows; the model that is saved has seen
    all rows. The folder appears as a whole or not at all.

    Args:
        table: rows with a target.
        target: name of the column to predict.
        out: new folder.
        task: ``"regression"`` or ``"classification"``; None looks at the target.
        schema: meaning of the other columns; None looks at them.
        test_fraction: share of rows to score.
        seed: of the split and of training.
        options: parameters of the estimator.
    """
    out = Path(out)
    if out.exists():
        raise TableError(f"{out} exists already; name another folder or remove it")
    check_columns(table, [target])
    if len(table) < MIN_ROWS:
        raise TableError(f"expected at least {MIN_ROWS} rows, got {len(table)}")
    task = task or guess_task(table[target])
    schema = schema or Schema.infer(table.drop(columns=target))
    options = {"task": task, "schema": schema, "random_state": seed, **options}
    train, test = _split(table, target, task, test_fraction, seed)
    with _new_folder(out) as folder:
        start = time.perf_counter()
        evaluation = evaluate(TabularModel.fit(train, target, **options), train, test)
        model = TabularModel.fit(table, target, **options)
        summary = {
            "target": target,
            "task": task,
            "rows": len(table),
            "test_rows": len(test),
            "features": len(schema.features),
            "seconds": round(time.perf_counter() - start, 2),
            "scores": evaluation.scores,
        }
        model.save(folder)
        (folder / "metrics.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")
        write_report(folder / "report.html", model, evaluation, summary)
    return summary


@contextlib.contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Yield a scratch folder beside ``out``, which takes its name if the block ends well."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise TableError(f"cannot write to {out.parent}: {error.strerror}") from None
    try:
        yield scratch
        scratch.chmod(0o755)
        os.rename(scratch, out)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _split(
    table: pd.DataFrame, target: str, task: str, fraction: float, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Hold rows out at random, each label in proportion."""
    values = target_values(table[target], task)
    labels = None
    if task == "classification":
        names, counts = np.unique(values, return_counts=True)
        if len(names) < 2:
            raise TableError(f"column {target!r} has one label only, {str(names[0])!r}")
        if counts.min() < 2:
            rare = str(names[counts.argmin()])
            raise TableError(
                f"column {target!r}: label {rare!r} occurs once; every label needs at least two "
                f"rows, or is the task regression?{hint_at_numbers(rare)}"
            )
        labels = values
    train, test = train_test_split(table, test_size=fraction, random_state=seed, stratify=labels)
    return train.reset_index(drop=True), test.reset_index(drop=True)
