"""Tensors as the loops take them: NumPy arrays without gaps, and room for results."""

from typing import Any

import torch
from torch import Tensor


def as_arrays(*tensors: Tensor) -> tuple[Any, ...]:
    """Contiguous arrays with the values of tensors; contiguous tensors share their memory."""
    return tuple(tensor.detach().contiguous().numpy() for tensor in tensors)


def empty_like(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Room for as many results of the same shapes, contiguous whatever the tensors' layout."""
    layout = torch.contiguous_format
    return tuple(torch.empty_like(tensor, memory_format=layout) for tensor in tensors)
