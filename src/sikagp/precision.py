"""Floating-point types: layers compute in float32 or better, whatever they are stored or fed in."""

import contextlib
import functools
import subprocess
import sys
from typing import Any

import torch
from torch import Tensor

from sikagp._typing import Float

# Instructions of processors that multiply bfloat16 numbers.
_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
# Large enough for the instructions that multiply blocks.
_PRODUCT = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"


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
        announced = accelerator in ("cpu", "auto") and any(known.get(name) for name in _BFLOAT16)
        native = announced and _multiplies_bfloat16()
    return "bf16-mixed" if native else "32-true"


@functools.cache
def _multiplies_bfloat16() -> bool:
    """Whether a product in bfloat16 ends well, tried in a process of its own.

    Some virtual machines announce instructions that they do not have; whoever uses them is killed.
    """
    tried = subprocess.run([sys.executable, "-c", _PRODUCT], capture_output=True, check=False)
    return tried.returncode == 0


def flush_denormals() -> None:
    """Make numbers below 1e-38 zero, in this thread and in those that it starts from now on.

    Weight decay takes weights there that nothing else moves, and processors need many times longer
    for such numbers. Threads that torch has already started go on as before.
    """
    torch.set_flush_denormal(True)


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Keep autocast from narrowing the products inside."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return contextlib.nullcontext()
