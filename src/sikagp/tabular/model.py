"""A fitted estimator together with the meaning of its columns, saved in one folder."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from sikagp._typing import Shaped
from sikagp.estimators import SIKAClassifier, SIKARegressor
from sikagp.manifests import read_manifest, write_manifest
from sikagp.metrics import predictive_entropy
from sikagp.tabular.columns import Schema, as_numbers, check_columns, count, looks_numeric
from sikagp.tabular.files import TableError
from sikagp.validation import check_choice

FILE = "table.json"
FORMAT = "sikagp-table"
TASKS = ("regression", "classification")
# A target of whole numbers with at most this many values is a label.
MAX_NUMERIC_CLASSES = 10

ESTIMATORS: dict[str, type[SIKARegressor | SIKAClassifier]] = {
    "regression": SIKARegressor,
    "classification": SIKAClassifier,
}


@dataclasses.dataclass(frozen=True)
class TabularModel:
    """Predicts one column of a table from the others.

    Attributes:
        target: name of the column to predict.
        task: ``"regression"`` or ``"classification"``.
        schema: columns to predict from.
        estimator: fitted on the encoded columns.
    """

    target: str
    task: str
    schema: Schema
    estimator: SIKARegressor | SIKAClassifier

    @classmethod
    def fit(
        cls,
        table: pd.DataFrame,
        target: str,
        *,
        task: str | None = None,
        schema: Schema | None = None,
        **options: Any,
    ) -> "TabularModel":
        """Fit an estimator; ``options`` are its parameters, a task of None is found out."""
        check_columns(table, [target])
        task = check_choice("task", task or guess_task(table[target]), TASKS)
        schema = schema or Schema.infer(table.drop(columns=target))
        estimator = ESTIMATORS[task](**options)
        estimator.fit(schema.encode(table), target_values(table[target], task))
        return cls(target, task, schema, estimator)

    def predict(self, table: pd.DataFrame, *, level: float = 0.95) -> pd.DataFrame:
        """One row of predictions for each row of the table.

        Regression gives ``mean``, ``std`` and the bounds ``lower``, ``upper`` of an interval that
        holds the target with probability ``level``; classification gives ``label``,
        ``probability``, ``entropy`` (in nats) and the probability of every label.
        """
        features = self.schema.encode(table)
        if isinstance(self.estimator, SIKARegressor):
            mean, std = self.estimator.predict(features, return_std=True)
            lower, upper = self.estimator.predict_interval(features, level)
            return pd.DataFrame({"mean": mean, "std": std, "lower": lower, "upper": upper})
        probability = self.estimator.predict_proba(features)
        labels = self.estimator.classes_
        columns = {f"P({label})": probability[:, i] for i, label in enumerate(labels)}
        return pd.DataFrame(
            {
                "label": labels[probability.argmax(1)],
                "probability": probability.max(1),
                "entropy": predictive_entropy(torch.tensor(probability)).numpy(),
                **columns,
            }
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``table.json`` and the estimator to a folder; half-written it is no model."""
        folder = Path(folder)
        (folder / FILE).unlink(missing_ok=True)
        self.estimator.save(folder / "estimator")
        schema = self.schema.get_config()
        content = {"target": self.target, "task": self.task, "schema": schema}
        write_manifest(folder / FILE, FORMAT, self, content)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "TabularModel":
        """Read what :meth:`save` wrote."""
        path = Path(folder) / FILE
        if not path.is_file():
            raise TableError(f"{folder} holds no model: it has no {FILE}")
        content = read_manifest(path, FORMAT)
        estimator = ESTIMATORS[content["task"]].load(Path(folder) / "estimator")
        schema = Schema.from_config(content["schema"])
        return cls(content["target"], content["task"], schema, estimator)


def guess_task(target: pd.Series) -> str:
    """Texts and few whole numbers are labels, other numbers are quantities."""
    if not looks_numeric(target):
        return "classification"
    values = as_numbers(target.dropna())
    few = len(np.unique(values)) <= MAX_NUMERIC_CLASSES
    return "classification" if few and np.all(values == np.round(values)) else "regression"


def target_values(target: pd.Series, task: str) -> Shaped[np.ndarray, " rows"]:
    """Targets as the estimator takes them: numbers, or labels as texts."""
    absent = target.isna().to_numpy()
    if absent.any():
        row = int(np.flatnonzero(absent)[0]) + 1
        raise TableError(
            f"column {target.name!r}, row {row}: the target is missing "
            f"({count(absent, 'such row')}); leave such rows out of training"
        )
    return as_numbers(target) if task == "regression" else target.astype(str).to_numpy(dtype=str)
