"""Checks of arguments: each error says what was expected and what came."""

import math
import numbers
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sikagp._typing import Float

MAX_LEVEL = 20


def check_count(name: str, value: Any, *, least: int = 1) -> int:
    """Return an integer of at least ``least``; NumPy's, which searches and counts give, will do."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_level(level: Any) -> int:
    """Return a level whose grid fits in memory."""
    level = check_count("level", level)
    if level > MAX_LEVEL:
        raise ValueError(
            f"level must be at most {MAX_LEVEL} (2**{MAX_LEVEL} + 1 nodes per feature), got {level}"
        )
    return level


def check_number(name: str, value: Any) -> float:
    """Return a finite real number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return float(value)


def check_fraction(name: str, value: Any) -> float:
    """Return a number strictly between 0 and 1."""
    if not 0 < check_number(name, value) < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value}")
    return value


def check_choice(name: str, value: str, choices: Collection[str]) -> str:
    """Return one of the named choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def check_positive(name: str, value: float | Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return positive finite numbers of the given shape; one number serves for all."""
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must hold real numbers, got {value!r}") from None
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must hold real numbers, got {tensor.dtype}")
    if not isinstance(value, Tensor):
        tensor = torch.as_tensor(value, dtype=torch.float64)  # not the default, coarser type
    try:
        tensor = tensor.detach().expand(shape)
    except RuntimeError:
        raise ValueError(
            f"{name} must be one number or have shape {shape}, got shape {tuple(tensor.shape)}"
        ) from None
    bad = ~(tensor.isfinite() & (tensor > 0))
    if bool(bad.any()):
        raise ValueError(f"{name} must be positive and finite, got {tensor[bad].flatten()[0]:g}")
    return tensor


def check_input(x: Tensor, num_features: int) -> None:
    """Refuse anything but real numbers of shape (*batch, num_features)."""
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a torch.Tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(
            f"expected a floating-point tensor, got {x.dtype}; convert it with x.float()"
        )
    if x.ndim == 0 or x.shape[-1] != num_features:
        raise ValueError(
            f"expected input of shape (*batch, {num_features}), got shape {tuple(x.shape)}"
        )


def check_finite_rows(x: Float[Tensor, "*batch features"]) -> None:
    """Refuse NaN and infinity, and say how many rows hold them."""
    # One pass: NaN and infinity survive a sum. A sum of finite numbers may overflow, too.
    if bool(x.sum().isfinite()) or bool(x.isfinite().all()):
        return
    bad_rows = (~x.isfinite()).any(-1)
    raise ValueError(
        f"{int(bad_rows.sum())} of {bad_rows.numel()} rows hold NaN or infinity; clean the input, "
        "or construct the layer with check_finite=False to let them through"
    )
