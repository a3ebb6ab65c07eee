"""Scores of a table's model, by hand, with models that need no training."""

import math

import numpy as np
import pandas as pd
import pytest

from sikagp.estimators import SIKAClassifier, SIKARegressor
from sikagp.tabular.columns import NumberColumn, Schema
from sikagp.tabular.evaluation import evaluate
from sikagp.tabular.model import TabularModel

SCHEMA = Schema((NumberColumn("x", 0.0, False),))
TRAIN = pd.DataFrame({"x": ["0", "1", "2"], "y": ["1", "2", "6"], "c": ["b", "a", "b"]})
TEST = pd.DataFrame({"x": ["0", "1", "2", "3"], "y": ["0", "2", "3", "13"], "c": list("abba")})


class Line(SIKARegressor):
    """Predicts x, give or take 2."""

    def predict(self, X, return_std=False):
        mean = X["x"].to_numpy()
        return (mean, np.full(len(mean), 2.0)) if return_std else mean

    def predict_interval(self, X, level=0.95):
        assert level == 0.95
        return X["x"].to_numpy() - 2, X["x"].to_numpy() + 2


class Coin(SIKAClassifier):
    """Is three quarters sure of "a" for even x, and of "b" for odd x."""

    classes_ = np.array(["a", "b"])

    def predict_proba(self, X):
        a = np.where(X["x"] % 2 == 0, 0.75, 0.25)
        return np.column_stack([a, 1 - a])


def test_regression_scores_by_hand():
    found = evaluate(TabularModel("y", "regression", SCHEMA, Line()), TRAIN, TEST)
    assert list(found.target) == [0, 2, 3, 13]
    errors = np.array([0.0, 1.0, 1.0, 10.0])
    assert found.scores["rmse"] == pytest.approx(math.sqrt((errors**2).mean()))
    assert found.scores["coverage_95"] == 0.75
    nlpd = 0.5 * (errors**2).mean() / 4 + 0.5 * math.log(2 * math.pi * 4)
    assert found.scores["nlpd"] == pytest.approx(nlpd)
    # The mean of the training targets is 3.
    assert found.scores["rmse_of_the_mean"] == pytest.approx(math.sqrt((9 + 1 + 0 + 100) / 4))


def test_classification_scores_by_hand():
    model = TabularModel("c", "classification", SCHEMA, Coin())
    found = evaluate(model, TRAIN, TEST)
    # right for x = 0 and 1, wrong for x = 2 (b) and 3 (a); always three quarters sure
    assert found.scores["accuracy"] == 0.5
    assert found.scores["ece"] == pytest.approx(0.25)
    assert found.scores["nll"] == pytest.approx(-(math.log(0.75) + math.log(0.25)) / 2)
    assert list(found.predictions["label"]) == ["a", "b", "a", "b"]
    # "b" is the most common by the training rows
    scores = evaluate(model, TRAIN, TEST.assign(c=list("baaa"))).scores
    assert scores["accuracy_of_the_most_common"] == 0.25
