"""Which implementation of the operators runs where.

``"auto"`` takes the compiled loops for float32 and float64 on the CPU and plain torch elsewhere;
the environment variable ``SIKAGP_BACKEND`` and :func:`use_backend` override it.
"""

import contextlib
import importlib
import os
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from types import ModuleType

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from sikagp.ops import reference
from sikagp.validation import check_choice

BACKENDS = ("auto", "reference", "compiled")
_chosen: ContextVar[str | None] = ContextVar("sikagp_backend", default=None)


@contextlib.contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Run the operators on one backend within a block: "auto", "reference" or "compiled"."""
    token = _chosen.set(check_choice("backend", name, BACKENDS))
    try:
        yield
    finally:
        _chosen.reset(token)


def backend_for(tensor: Tensor) -> ModuleType:
    """Return the module whose functions compute on this tensor."""
    return compiled_for(tensor) or reference


def compiled_for(tensor: Tensor) -> ModuleType | None:
    """Return the compiled backend where it is chosen and fits this tensor."""
    name = _chosen.get() or os.environ.get("SIKAGP_BACKEND", "auto")
    check_choice("SIKAGP_BACKEND", name, BACKENDS)
    fits = tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64)
    if name == "compiled" and not fits:
        raise ValueError(
            f"the compiled backend takes float32 or float64 on the CPU, got {tensor.dtype} "
            f"on {tensor.device}"
        )
    return _load_compiled() if fits and name != "reference" else None


def is_traced() -> bool:
    """Whether something records operators, which must then all be registered ones."""
    return torch.compiler.is_compiling() or is_in_torch_dispatch_mode()


@cache
def _load_compiled() -> ModuleType | None:
    try:
        return importlib.import_module("sikagp.ops.compiled")
    except ImportError as error:
        warnings.warn(
            f"Numba cannot be imported ({error}); SIKA layers run on plain torch operations, "
            "several times slower. Install it with: pip install numba",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
