"""Training with Lightning: one module, one function."""

from sikagp.training.configuration import TrainingConfig
from sikagp.training.fitting import FitResult, fit
from sikagp.training.module import VariationalModule
from sikagp.training.refinement import refine

__all__ = ["FitResult", "TrainingConfig", "VariationalModule", "fit", "refine"]
