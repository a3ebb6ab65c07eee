"""Floating-point types: layers compute in float32 or better, whatever they are stored or fed in."""

import contextlib

import torch
from torch import Tensor

from sikagp._typing import Float


def at_least_float32(tensor: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Widen half-precision numbers; float32 and float64 pass through."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Keep autocast from narrowing the products inside."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return contextlib.nullcontext()
