"""Estimators with scikit-learn's interface (needs the extra ``train``, and scikit-learn)."""

from sikagp.estimators.classifier import SIKAClassifier
from sikagp.estimators.components import Component
from sikagp.estimators.regressor import SIKARegressor

__all__ = ["Component", "SIKAClassifier", "SIKARegressor"]
