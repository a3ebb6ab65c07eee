"""The alternatives for one layer: prediction and training step, ours and the baselines'.

Every entry is a call without arguments. Ours is the layer as users get it, residual included,
and its training step also differentiates lengthscales, prior variances and bias, which the
baselines leave out.
"""

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.baselines import (
    DenseLocal,
    Draw,
    Drawn,
    current_weights,
    dense_moments,
    dense_network,
    fixed_weights,
    gather,
    shared_network,
)
from benchmarks.features import LaplaceFeatures
from benchmarks.harness import Alternative, Settings
from sikagp import SIKALayer

CACHED, UNCACHED, SPARSE = "table, cached", "table, uncached", "sparse"
TABLE = "table"
LOCAL, PRODUCTS = "dense, local", "dense, products only"
NETWORK, SHARED, GATHER = "dense BNN", "dense BNN, shared", "gather"
DRAWS: dict[str, Draw] = {NETWORK: dense_network, SHARED: shared_network, GATHER: gather}
FLOAT_BYTES = 4


def make_layer(
    in_features: int, out_features: int, level: int, settings: Settings, **options: object
) -> SIKALayer:
    """Return a fresh layer on the unit interval, on the device of the run."""
    return SIKALayer(in_features, out_features, level=level, device=settings.device, **options)


def make_rows(num_rows: int, num_features: int, settings: Settings) -> Tensor:
    """Rows spread evenly over the grid."""
    return torch.rand(num_rows, num_features, device=settings.device)


class Cost(NamedTuple):
    """Roughly what a baseline takes: bytes for one sample, bytes shared by samples, normals."""

    per_sample: int
    fixed: int
    draws: int


def costs(layer: SIKALayer, rows: int, samples: int) -> dict[str, Cost]:
    """Return the cost of every baseline for that many rows and samples."""
    nodes = layer.weight_mean[..., 0].numel()
    dense_bytes = 2 * FLOAT_BYTES * rows * nodes
    drawn = {
        NETWORK: rows * layer.weight_mean.numel(),
        SHARED: layer.weight_mean.numel(),
        GATHER: rows * layer.in_features * layer.num_active * layer.out_features,
    }
    found = {name: Cost(0, dense_bytes, 0) for name in (LOCAL, PRODUCTS)}
    for name, number in drawn.items():
        fixed = 2 * FLOAT_BYTES * number if name == GATHER else dense_bytes
        found[name] = Cost(2 * FLOAT_BYTES * number, fixed, samples * number)
    return found


def without_gradients(run: Callable[[], object]) -> Callable[[], object]:
    """Run a call as prediction does."""

    def call() -> object:
        with torch.no_grad():
            return run()

    return call


def with_plan(layer: SIKALayer, plan: str) -> SIKALayer:
    """Copy a layer, to be evaluated by another plan."""
    twin = copy.deepcopy(layer)
    twin.plan = plan
    return twin


def own_predictions(layer: SIKALayer, x: Tensor) -> dict[str, Alternative]:
    """Our plans: the table kept between calls, built for every call, and not used at all."""
    kept, built, sparse = (with_plan(layer, plan).eval() for plan in ("auto", "table", "sparse"))

    def uncached() -> object:
        built.clear_cache()
        return built(x)

    calls = {CACHED: lambda: kept(x), UNCACHED: uncached, SPARSE: lambda: sparse(x)}
    return {name: Alternative(without_gradients(run)) for name, run in calls.items()}


def dense_predictions(layer: SIKALayer, x: Tensor, samples: int) -> dict[str, Alternative]:
    """Return the baselines, with everything prepared that does not depend on x."""
    local = DenseLocal(layer)
    features: list[Tensor] = []

    def products() -> object:
        if not features:  # made once, when the alternative is warmed up
            phi = local.features.dense(x)
            features.extend((phi, phi.square()))
        return local.products(*features)

    calls: dict[str, Callable[[], object]] = {LOCAL: lambda: local(x), PRODUCTS: products}
    for name, draw in DRAWS.items():
        network = Drawn(layer, samples, draw)
        calls[name] = lambda network=network: network(x)
    found = {}
    for name, cost in costs(layer, len(x), samples).items():
        # Samples side by side need memory at the same time, those in turn do not.
        num_bytes = cost.fixed + cost.per_sample * (samples if name == SHARED else 1)
        found[name] = Alternative(without_gradients(calls[name]), num_bytes, cost.draws)
    return found


def predictions(layer: SIKALayer, x: Tensor, samples: int) -> dict[str, Alternative]:
    """All ways to predict mean and variance, or draws of the same function."""
    return own_predictions(layer, x) | dense_predictions(layer, x, samples)


def gradients(
    outputs: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor]
) -> Callable[[], object]:
    """Forward pass, then gradients of all inputs for fixed random output gradients."""
    cotangents: list[Tensor] = []

    def step() -> object:
        values = outputs()
        if not cotangents:
            cotangents.extend(torch.randn_like(value) for value in values)
        return torch.autograd.grad(values, inputs, cotangents)

    return step


def own_steps(layer: SIKALayer, x: Tensor) -> dict[str, Alternative]:
    """Training steps with gradients of x and of all parameters."""
    return {name: Alternative(own_step(layer, x, name)) for name in (TABLE, SPARSE)}


def own_step(layer: SIKALayer, x: Tensor, plan: str) -> Callable[[], object]:
    """Forward and backward pass of mean and variance by one plan."""
    layer, x = with_plan(layer, plan).train(), x.detach().requires_grad_()

    def moments() -> tuple[Tensor, Tensor]:
        marginals = layer(x)
        return marginals.mean, marginals.variance

    return gradients(moments, [x, *layer.parameters()])


def dense_steps(layer: SIKALayer, x: Tensor, samples: int) -> dict[str, Alternative]:
    """Training steps with gradients of x, of the weights' means and of their scales."""
    x, features = x.detach().requires_grad_(), LaplaceFeatures(layer)

    def local() -> Sequence[Tensor]:
        return dense_moments(features.dense(x), current_weights(layer))

    inputs = [x, layer.weight_mean, layer.raw_weight_scale]
    steps = {LOCAL: gradients(local, inputs), PRODUCTS: products_step(layer, x)}
    for name, draw in DRAWS.items():

        def drawn(draw: Draw = draw) -> Sequence[Tensor]:
            return [draw(features, current_weights(layer), x, samples)]

        steps[name] = gradients(drawn, inputs)
    return {
        name: Alternative(steps[name], 2 * (cost.fixed + cost.per_sample * samples), cost.draws)
        for name, cost in costs(layer, len(x), samples).items()
    }


def products_step(layer: SIKALayer, x: Tensor) -> Callable[[], object]:
    """Two products forward and four backward, on features that are made at the first call."""
    steps: list[Callable[[], object]] = []

    def step() -> object:
        if not steps:
            phi, weights = LaplaceFeatures(layer).dense(x).detach(), fixed_weights(layer)
            leaves = [phi, phi.square(), weights.mean.clone(), weights.deviation.square()]
            phi, squared, mean, variance = (leaf.requires_grad_() for leaf in leaves)
            steps.append(gradients(lambda: (phi @ mean, squared @ variance), leaves))
        return steps[0]()

    return step


def training_steps(layer: SIKALayer, x: Tensor, samples: int) -> dict[str, Alternative]:
    """All ways to compute mean and variance (or draws) with their gradients."""
    return own_steps(layer, x) | dense_steps(layer, x, samples)
