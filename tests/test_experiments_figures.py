"""Figures of the paper: the functions they show are those of the theory, and scores by hand."""

import math

import pytest
import torch
from experiment_cells import recipe
from torch import nn
from torch.testing import assert_close

from sikagp.experiments.cell import Cell
from sikagp.experiments.figures import basis, indexing, one_dimensional
from sikagp.experiments.figures.one_dimensional import (
    NOISE,
    Sampled,
    deep_gp,
    deep_kernel,
    draw_truth,
    fix_prior,
    observe,
    score,
)
from sikagp.experiments.tasks import figure as task
from sikagp.grid import dyadic_order
from sikagp.variational import GaussianMarginals


def psi(x: torch.Tensor, node: float, half: float, theta: float) -> torch.Tensor:
    """Basis function of Theorem 1 around a node, by hyperbolic sines; zero beyond its cells."""
    away = theta * (half - (x - node).abs())
    height = torch.tensor(math.tanh(theta * half)).sqrt() / math.sinh(theta * half)
    return height * torch.sinh(away.clamp_min(0))


@pytest.mark.parametrize("theta", [0.5, 4.0])
def test_the_basis_is_that_of_the_theorem(theta):
    x, found = basis.basis_functions(3, theta, points=201)
    assert (x[0], x[-1], len(x)) == (0, 1, 201)
    positions = (dyadic_order(3) / 8).tolist()
    levels = [0, 0, 1, 2, 2, 3, 3, 3, 3]
    for column in range(2, 9):
        expected = psi(x, positions[column], 2.0 ** -levels[column], theta)
        assert_close(found[:, column], expected, rtol=1e-3, atol=1e-4)
    # The two boundary functions alone give the covariance of the ends.
    ends = found[[0, -1], :2]
    expected = torch.tensor([[1.0, math.exp(-theta)], [math.exp(-theta), 1.0]])
    assert_close(ends @ ends.T, expected)


def test_panels_show_every_function_on_its_support():
    figure, measured = basis.draw(level=2)
    axes = figure.get_axes()
    assert (len(axes), measured) == (3, {})
    # One more line in each panel is the axis.
    assert [len(ax.get_lines()) - 1 for ax in axes] == [2, 1, 2]
    first, second = axes[2].get_lines()[1:]
    assert first.get_xdata().max() <= 0.5 <= second.get_xdata().min()
    names = [text.get_text() for ax in axes for text in ax.texts]
    assert names == [rf"$\psi_{{{name}}}$" for name in ("01", "02", "11", "21", "23")]


def test_the_tree_marks_the_path_of_x():
    figure, measured = indexing.draw(level=3, x=0.3)
    tree, vector = figure.get_axes()
    assert measured == {}
    active = [index for index, bar in enumerate(vector.patches) if bar.get_facecolor()[2] < 0.5]
    assert active == indexing.active_weights(0.3, 3).tolist()
    assert "5 of 9 are active" in vector.get_xlabel()
    assert [line.get_xdata()[0] for line in tree.get_lines()].count(0.3) == 1


def test_truths_are_draws_from_the_kernel():
    draws = torch.stack([draw_truth(21, seed)[1] for seed in range(1000)])
    x = draw_truth(21, 0)[0]
    assert (x[0], x[-1]) == (-5, 5)
    expected = torch.exp(-((x[:, None] - x) ** 2))
    assert_close(draws.T @ draws / len(draws), expected, atol=0.15, rtol=0)
    assert torch.equal(draw_truth(21, 4)[1], draws[4])


def test_observations_lie_inside_and_have_their_noise():
    truth = draw_truth(401, 0)
    x, y = observe(truth, 5000, 1)
    assert x.shape == y.shape == (5000, 1)
    assert x.abs().max() <= 3
    assert x.abs().max() > 2.9
    place = torch.searchsorted(truth[0], x[:, 0].double() - 1e-4)
    noise = y[:, 0].double() - truth[1][place]
    assert noise.std().item() == pytest.approx(NOISE, rel=0.05)
    assert not torch.equal(observe(truth, 50, 1)[1], observe(truth, 50, 2)[1])


class Band(nn.Module):
    """A prediction of zero with deviation one inside, two outside."""

    def forward(self, x: torch.Tensor) -> GaussianMarginals:
        deviation = torch.where(x.abs() <= 3, 1.0, 2.0)
        return GaussianMarginals(torch.zeros_like(x), deviation.square())


@pytest.mark.usefixtures("as_users_run")
def test_coverage_and_width_by_hand():
    x = torch.tensor([-5.0, -4.0, -3.0, 0.0, 1.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    f = torch.tensor([3.9, 4.0, 1.9, 2.0, -1.9, 0.0, 0.0, -4.0], dtype=torch.float64)
    found = score(Band(), (x, f))
    assert found["coverage inside"] == pytest.approx(3 / 4)
    assert found["coverage outside"] == pytest.approx(1 / 2)
    assert (found["deviation inside"], found["deviation outside"]) == (1, 2)


def test_priors_are_fixed_and_nothing_else():
    for model in (deep_gp(2), deep_kernel(2)):
        fix_prior(model)
        for name, parameter in model.named_parameters():
            fixed = name.endswith(("log_variance", "log_lengthscale"))
            assert parameter.requires_grad != fixed, name


def test_models_are_those_of_the_paper():
    layers = deep_gp(7).layers
    assert [(layer.in_features, layer.out_features) for layer in layers] == [
        (1, 10),
        (10, 10),
        (10, 1),
    ]
    assert {layer.level for layer in layers} == {6}
    assert tuple(deep_gp(7).num_samples) == (7, 50)
    kernel = deep_kernel(7).kernel
    widths = [part.out_features for part in kernel.backbone if isinstance(part, nn.Linear)]
    assert widths == [100, 50, 10]
    assert kernel.layer.level == 6


@torch.no_grad()
def test_a_kernel_is_trained_on_draws_and_predicts_by_marginals():
    model = deep_kernel(4000)
    x = torch.randn(20, 1)
    model(x)  # moves the running statistics
    assert isinstance(model, Sampled)
    model.eval()
    exact = model(x)
    model.train()
    model.kernel.eval()
    draws = model(x).components
    assert draws.mean.shape == (4000, 20, 1)
    assert draws.variance.abs().max() == 0
    assert_close(draws.mean.mean(0), exact.mean, atol=0.1, rtol=0)
    assert_close(draws.mean.var(0), exact.variance, rtol=0.15, atol=0)
    assert_close(model.kl_divergence(), model.kernel.kl_divergence())


def test_a_figure_is_written_under_its_name_and_leaves_the_random_state_alone(tmp_path):
    chosen = recipe("basis", experiment="figure", method="basis", options={"level": 1})
    before = torch.random.get_rng_state()
    found = task.run(Cell(chosen, "smoke", 3, tmp_path))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert found == {"figures": ["basis.png"], "rows": {}}
    assert (tmp_path / "basis.png").read_bytes().startswith(b"\x89PNG")
    other = recipe("basis", experiment="figure", method="sketch")
    with pytest.raises(ValueError, match="method must be one of 'basis'"):
        task.run(Cell(other, "smoke", 0, tmp_path))


def test_averages_are_those_of_the_functions(monkeypatch):
    seeds = []

    def train(name, samples, data, *, epochs, objective, seed):
        seeds.append((name, samples, seed))
        return seed

    monkeypatch.setattr(one_dimensional, "train", train)
    monkeypatch.setattr(one_dimensional, "score", lambda found, truth: {"width": float(found)})
    found = one_dimensional.average(3, samples=[2], seed=5)
    assert found == {"DGP, S = 2": {"width": 6.0}, "DKL, S = 2": {"width": 6.0}}
    assert seeds == [(name, 2, seed) for name in ("DGP", "DKL") for seed in (5, 6, 7)]
