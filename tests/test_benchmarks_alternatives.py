"""What the benchmarks compare computes the same function, and what they measure is what it says."""

import pytest
import torch
from helpers import assert_close, randomize

from benchmarks import baselines, depth, heads, memory, peak, workloads
from benchmarks.harness import Settings
from sikagp import SIKALayer

SETTINGS = Settings(quick=True, threads=1)

# GPyTorch still uses what torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def tiny_layer(**options) -> tuple[SIKALayer, torch.Tensor]:
    layer = workloads.make_layer(3, 4, 4, SETTINGS, residual="none", **options)
    return randomize(layer), torch.rand(6, 3)


def test_dense_predictions_equal_ours() -> None:
    layer, x = tiny_layer()
    found = {name: option.run() for name, option in workloads.predictions(layer, x, 2).items()}
    expected = layer(x)
    for name in (workloads.CACHED, workloads.UNCACHED, workloads.SPARSE):
        assert_close(found[name].mean, expected.mean)
        assert_close(found[name].variance, expected.variance)
    for name in (workloads.LOCAL, workloads.PRODUCTS):
        assert_close(found[name][0], expected.mean)
        assert_close(found[name][1], expected.variance)


def test_local_predictor_notices_other_batch_sizes() -> None:
    layer, x = tiny_layer()
    local = baselines.DenseLocal(layer)
    for rows in (x, x[:2], torch.rand(9, 3), x):
        assert_close(local(rows)[0], layer(rows).mean)


@pytest.mark.parametrize("name", sorted(workloads.DRAWS))
@pytest.mark.parametrize("differs", [False, True])
def test_draws_have_our_moments(name: str, differs: bool) -> None:
    layer, x = tiny_layer()
    samples = 4000
    drawn = baselines.Drawn(layer, samples, workloads.DRAWS[name])
    values = drawn(x.expand(samples, -1, -1) if differs else x).detach()
    expected = layer(x)
    error = (values.mean(0) - expected.mean).abs() / (expected.stddev / samples**0.5)
    assert error.max() < 4.5
    ratio = values.var(0) / expected.variance
    assert (ratio - 1).abs().max() < 4.5 * (2 / samples) ** 0.5


def test_training_steps_have_the_same_gradients() -> None:
    layer, x = tiny_layer()
    weight = torch.randn(6, 4), torch.randn(6, 4)

    def gradients(outputs, inputs):
        return torch.autograd.grad(outputs, inputs, weight)

    x.requires_grad_()
    inputs = [x, layer.weight_mean, layer.raw_weight_scale]
    marginals = layer(x)
    ours = gradients((marginals.mean, marginals.variance), inputs)
    features, weights = baselines.LaplaceFeatures(layer), baselines.current_weights(layer)
    theirs = gradients(baselines.dense_moments(features.dense(x), weights), inputs)
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other)


def test_every_training_step_runs() -> None:
    layer, x = tiny_layer()
    for name, option in workloads.training_steps(layer, x, 2).items():
        gradients = option.run()
        assert all(bool(g.isfinite().all()) for g in gradients), name


def test_deep_baselines_equal_ours_in_distribution() -> None:
    case = {"D": 2, "layers": 2, "L": 3, "S": 3}
    model = depth.make_model(case, SETTINGS)
    x = torch.rand(5, 2)
    for name, option in depth.predictions(model, x, case["S"]).items():
        if name in workloads.DRAWS:
            assert option.run().shape == (3, 5, 2)
    layers = [baselines.DenseLocal(layer) for layer in model.layers]
    with torch.no_grad():
        mean, variance = depth.local_draws(layers, x, 4000)
        ours = model.eval()(x, 4000, generator=torch.Generator().manual_seed(1))
    assert (mean.mean(0) - ours.mean).abs().max() < 0.01
    assert (variance.mean(0) - ours.components.variance.mean(0)).abs().max() < 0.01
    assert set(depth.training_steps(model, x, 2)) >= {workloads.LOCAL, workloads.TABLE}


@pytest.mark.parametrize("name", [heads.LINEAR, heads.SIKA])
def test_heads_learn(name: str) -> None:
    head = heads.make_head(name, 5, 3)
    before = [p.clone() for p in head.layer.parameters()]
    gradient = head.step(torch.randn(8, 5), torch.randint(3, (8,)))
    assert gradient.shape == (8, 5)
    assert gradient.abs().max() > 0
    changed = zip(before, head.layer.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in changed)


def test_memory_of_a_known_call() -> None:
    def call() -> None:
        first = torch.ones(1_000_000)
        second = first + 1
        del first
        torch.ones(100) + second[:100]

    assert peak.allocated_peak(call, SETTINGS) == pytest.approx(8_000_000, rel=0.01)


def test_memory_bound_counts_parameters_and_rows() -> None:
    case = {"B": 10, "D": 3, "O": 2, "S": 5}
    assert memory.bound(case, 1000) == 6000 + 4 * (32 * 30 + 8 * 100)
