"""What the tests share: tolerances, layers with random parameters, awkward inputs, folders."""

import os
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sikagp import SIKALayer

doubles = partial(torch.tensor, dtype=torch.float64)

PLANS = ("sparse", "table", "dense")

TOLERANCES = {
    torch.float64: (1e-9, 1e-10),
    torch.float32: (1e-4, 2e-5),
    torch.float16: (1e-2, 1e-2),
    torch.bfloat16: (4e-2, 4e-2),
}


def assert_close(actual: Tensor, expected: Tensor, *, dtype: torch.dtype | None = None) -> None:
    """Compare within the tolerance of the less precise type, or of the one that is named."""
    if dtype is None:
        dtype = min(actual.dtype, expected.dtype, key=lambda kind: torch.finfo(kind).bits)
    rtol, atol = TOLERANCES[dtype]
    torch.testing.assert_close(actual.double(), expected.double(), rtol=rtol, atol=atol)


def randomize(layer: SIKALayer) -> SIKALayer:
    """Give every parameter but the lengthscale random values, far from a symmetric start."""
    with torch.no_grad():
        layer.weight_mean.normal_()
        layer.weight_scale = torch.empty(layer.weight_mean.shape).uniform_(0.3, 1.2)
        layer.variance = torch.empty(layer.in_features).uniform_(0.5, 2.0)
        if layer.bias_mean is not None:
            layer.bias_mean.normal_()
            layer.bias_scale = torch.empty(layer.out_features).uniform_(0.3, 1.2)
    return layer


def random_layer(
    in_features: int = 2, out_features: int = 3, *, dtype: torch.dtype = torch.float64, **options
) -> SIKALayer:
    """Return a small layer in float64 with random parameters."""
    return randomize(SIKALayer(in_features, out_features, dtype=dtype, **{"level": 3, **options}))


def off_node_points(
    level: int, rows: int, features: int, *, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Points inside and beyond [0, 1] that keep clear of all nodes, where f has kinks."""
    cell = torch.randint(-(2 ** (level - 1)), 3 * 2 ** (level - 1), (rows, features))
    offset = 0.2 + 0.6 * torch.rand(rows, features, dtype=dtype)
    return (cell + offset) / 2**level


def awkward_points(level: int, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """Nodes, points between, just off the ends, outside and very far away, as one column."""
    nodes = torch.linspace(0, 1, 2 ** min(level, 4) + 1, dtype=dtype)
    between = (nodes[1:] + nodes[:-1]) / 2 + 1e-3
    ends = torch.tensor([-1e-7, 1e-7, 1 - 1e-6, 1 + 1e-6], dtype=dtype)
    outside = torch.tensor([-0.3, 1.7, -25.0, 40.0, -1e6, 1e6], dtype=dtype)
    return torch.cat([nodes, between, ends, outside]).unsqueeze(-1)


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Temporary folder that all workers of this run see."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def tenth_of_the_smallest() -> float:
    """A number below those of full precision, or zero where these are flushed."""
    return (torch.tensor([torch.finfo(torch.float32).tiny]) * 0.1).item()
