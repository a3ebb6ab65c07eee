"""Models built from SIKA layers."""

from sikagp.models.deep_gp import DeepGP, DeepPaths
from sikagp.models.deep_kernel import DeepKernel
from sikagp.models.temperature import DeepTemperature

__all__ = ["DeepGP", "DeepKernel", "DeepPaths", "DeepTemperature"]
