"""The page about a table's model: what its figures show, and in which order."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from sikagp.estimators import SIKAClassifier, SIKARegressor
from sikagp.tabular import report
from sikagp.tabular.columns import NumberColumn, Schema
from sikagp.tabular.evaluation import Evaluation, class_probabilities
from sikagp.tabular.model import TabularModel

SCHEMA = Schema(tuple(NumberColumn(name, 0.0, False) for name in ("width", "<height>")))


class Important(SIKARegressor):
    """Says which of its features matter, and notes which are drawn."""

    feature_importances_ = np.array([0.1, 0.9])

    def plot_components(self, features):
        self.drawn = features
        return [Figure().subplots()]


class Coin(SIKAClassifier):
    classes_ = np.array(["a", "b", "c"])


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    pyplot.close("all")


def evaluation() -> Evaluation:
    mean = np.array([1.0, 2.0, 4.0])
    predictions = pd.DataFrame({"mean": mean, "std": 2.0, "lower": mean - 1, "upper": mean + 3})
    return Evaluation(np.array([0.0, 2.5, 3.0]), predictions, {"rmse": 0.75, "coverage_95": 1.0})


def test_targets_stand_against_predictions_with_their_intervals():
    ax = report._predicted(evaluation())
    points, diagonal = ax.get_lines()
    assert points.get_xydata().tolist() == [[0.0, 1.0], [2.5, 2.0], [3.0, 4.0]]
    assert diagonal.get_xydata().tolist() == [[0.0, 0.0], [4.0, 4.0]]
    (bars,) = ax.collections
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [
        [0.0, 4.0],
        [1.0, 5.0],
        [3.0, 7.0],
    ]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("observed", "predicted")


def test_coverage_is_that_of_the_predicted_deviations(monkeypatch):
    seen = []
    monkeypatch.setattr(report.plots, "plot_coverage", seen.append)
    report._covered(evaluation())
    errors = [-1.0, 0.5, -1.0]
    expected = [0.5 * (1 + math.erf(error / 2 / math.sqrt(2))) for error in errors]
    assert seen[0].tolist() == pytest.approx(expected)


def test_features_are_drawn_by_importance_and_not_too_many(monkeypatch):
    model = TabularModel("y", "regression", SCHEMA, Important())
    captions = [caption for caption, _ in report._figures(model, evaluation())]
    assert model.estimator.drawn == [1, 0]
    assert captions[-1] == "Effect of each feature, most important first"
    assert len(captions) == 3
    monkeypatch.setattr(report, "MAX_PANELS", 1)
    report._figures(model, evaluation())
    assert model.estimator.drawn == [1]


def test_the_page_has_scores_in_words_and_escapes_names(tmp_path: Path):
    model = TabularModel("y", "regression", SCHEMA, Important())
    summary = {
        "target": "y",
        "task": "regression",
        "rows": 3,
        "test_rows": 3,
        "features": 2,
        "seconds": 1.0,
        "scores": evaluation().scores,
    }
    report.write_report(tmp_path / "report.html", model, evaluation(), summary)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "root mean squared error" in page
    assert "0.75" in page
    assert "&lt;height&gt;" in page
    assert "<height>" not in page
    assert page.count("data:image/png;base64,") == 3


def test_every_score_has_words():
    assert all(words[0].islower() or words.startswith("root") for words in report.SCORES.values())
    assert set(evaluation().scores) <= set(report.SCORES)


def test_probabilities_are_the_last_columns_in_the_order_of_the_classes():
    predictions = pd.DataFrame(
        {"label": ["b", "c"], "probability": [0.5, 0.6], "entropy": [1.0, 0.9]}
        | {"P(a)": [0.2, 0.1], "P(b)": [0.5, 0.3], "P(c)": [0.3, 0.6]}
    )
    model = TabularModel("y", "classification", SCHEMA, Coin())
    probs, labels = class_probabilities(model, predictions, np.array(["c", "a"]))
    assert probs.tolist() == [[0.2, 0.5, 0.3], [0.1, 0.3, 0.6]]
    assert labels.tolist() == [2, 0]
