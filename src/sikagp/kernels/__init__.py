"""Markov kernels on the unit interval."""

from collections.abc import Callable

from sikagp.kernels.base import Bridge, MarkovKernel, TwoPoint
from sikagp.kernels.gauss_markov import BrownianBridge, BrownianMotion, GaussMarkov
from sikagp.kernels.laplace import Laplace
from sikagp.kernels.matern import Matern32, Matern52

__all__ = [
    "Bridge",
    "BrownianBridge",
    "BrownianMotion",
    "GaussMarkov",
    "Laplace",
    "MarkovKernel",
    "Matern32",
    "Matern52",
    "TwoPoint",
    "get_kernel",
]

KERNELS: dict[str, Callable[[], MarkovKernel]] = {
    "laplace": Laplace,
    "matern32": Matern32,
    "matern52": Matern52,
    "brownian": BrownianMotion,
    "bridge": BrownianBridge,
}


def get_kernel(kernel: str | MarkovKernel) -> MarkovKernel:
    """Turn a name into a kernel; a kernel passes through."""
    if isinstance(kernel, MarkovKernel):
        return kernel
    if kernel not in KERNELS:
        names = ", ".join(map(repr, KERNELS))
        raise ValueError(f"kernel must be one of {names} or a MarkovKernel, got {kernel!r}")
    return KERNELS[kernel]()
