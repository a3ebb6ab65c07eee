"""Floating-point types: layers compute in float32 or better, whatever they are stored or fed in."""

import contextlib
from typing import Any

import torch
from torch import Tensor

from sikagp._typing import Float

# Instructions of processors that multiply bfloat16 numbers.
_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")


def at_least_float32(tensor: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Widen half-precision numbers; float32 and float64 pass through."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def fastest_precision(accelerator: str) -> str:
    """Lightning's name for bfloat16 where a device has instructions for it, else for float32.

    Elsewhere bfloat16 is emulated and takes longer than float32.
    """
    if accelerator != "cpu" and torch.cuda.is_available():
        native = torch.cuda.is_bf16_supported()
    else:
        # Older versions of torch do not tell.
        known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        native = accelerator in ("cpu", "auto") and any(known.get(name) for name in _BFLOAT16)
    return "bf16-mixed" if native else "32-true"


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Keep autocast from narrowing the products inside."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return contextlib.nullcontext()
