"""Every system that is compared, trained with equal care through one interface."""

from sikagp.experiments.methods.base import FitReport, Method, Problem
from sikagp.experiments.methods.registry import METHODS, build_method

__all__ = ["METHODS", "FitReport", "Method", "Problem", "build_method"]
