"""Checks of compilation and export, run by test_tracing in a process without shape hints.

The hints' wrappers cannot be traced, and users do not have them.
"""

import sys
import warnings

import torch
from helpers import assert_close, awkward_points, random_layer
from torch import Tensor, nn

from sikagp import DeepKernel, DeepTemperature, SIKALayer
from sikagp.mixtures import as_mixture


class Moments(nn.Module):
    """A layer that returns plain tensors."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q = self.layer(x)
        return q.mean, q.variance


def inputs() -> Tensor:
    column = awkward_points(3)
    return torch.cat([column, column.flip(0)], dim=1)


def assert_same_moments_and_gradients(actual: nn.Module, expected: nn.Module) -> None:
    """Parameters are shared between the two."""
    gradients = []
    for model in (actual, expected):
        x = inputs().requires_grad_()
        mean, variance = model(x)
        loss = mean.sin().sum() + variance.square().sum()
        gradients.append([mean, variance, *torch.autograd.grad(loss, [x, *expected.parameters()])])
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other)


def compile_in_training() -> None:
    for plan in ("table", "sparse"):
        torch.compiler.reset()
        eager = Moments(random_layer(plan=plan))
        compiled = torch.compile(eager, fullgraph=True, backend="aot_eager")
        assert_same_moments_and_gradients(compiled, eager)


def compile_in_evaluation() -> None:
    eager = Moments(random_layer(kernel="brownian")).eval()
    compiled = torch.compile(eager, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for _ in range(2):
            for actual, expected in zip(compiled(inputs()), eager(inputs()), strict=True):
                assert_close(actual, expected)
            eager.layer.weight_mean.add_(0.5)


def compile_itself() -> None:
    layer = random_layer()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_close(compiled(inputs()).mean, layer(inputs()).mean)


def compile_skips_the_finite_check() -> None:
    layer = random_layer()
    compiled = torch.compile(Moments(layer), fullgraph=True, backend="aot_eager")
    bad = torch.full((2, 2), float("nan"), dtype=torch.float64)
    assert bool(compiled(bad)[0].isnan().all())


def export() -> None:
    for plan, kernel in (("table", "laplace"), ("table", "brownian"), ("sparse", "laplace")):
        model = Moments(random_layer(plan=plan, kernel=kernel)).eval()
        rows = torch.export.Dim("rows", min=2)
        program = torch.export.export(model, (inputs(),), dynamic_shapes={"x": {0: rows}})
        x = inputs()[3:20]
        for actual, expected in zip(program.module()(x), model(x), strict=True):
            assert_close(actual, expected)
        called = {str(node.target) for node in program.graph.nodes}
        assert not any("sikagp" in name for name in called), "export needs plain operations"


class Output(nn.Module):
    """A model around a network that returns plain tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return as_mixture(self.model(x)).components.mean


def export_models_for_any_number_of_rows() -> None:
    network, last = nn.Sequential(nn.Linear(2, 6), nn.Tanh()), nn.Linear(6, 3)
    for model in (
        SIKALayer(2, 3, level=10),  # far more nodes than rows
        DeepKernel(network, 6, 3, level=4),
        DeepTemperature(network, last, level=4),
    ):
        output, rows = Output(model).eval(), torch.export.Dim("rows", min=2)
        program = torch.export.export(output, (torch.rand(5, 2),), dynamic_shapes=({0: rows},))
        for count in (2, 300):
            x = torch.rand(count, 2)
            assert_close(program.module()(x), output(x))


CHECKS = {
    "compile": (
        compile_in_training,
        compile_in_evaluation,
        compile_itself,
        compile_skips_the_finite_check,
    ),
    "export": (export, export_models_for_any_number_of_rows),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("error", module="sikagp")
    for check in CHECKS[sys.argv[1]]:
        check()
