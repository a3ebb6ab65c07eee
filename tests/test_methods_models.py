"""The peers' models against other formulations of the same thing."""

import gpytorch
import pytest
import torch
from helpers import doubles
from torch import nn
from torch.distributions import Normal, kl_divergence

from sikagp import DeepGP, Domain, GaussianMixture, SIKALayer
from sikagp.basis import dense_features
from sikagp.experiments.methods.bayesian import BayesianLinear
from sikagp.experiments.methods.composition import FlipoutDeepGP, OnFeatures, Stack
from sikagp.experiments.methods.dense import CORRELATIONS, DenseLayer
from sikagp.experiments.methods.gpytorch_heads import GPyTorchDeepGP, GPyTorchHead
from sikagp.experiments.methods.gpytorch_models import SVGP, AdditiveKISSGP, SVDKLHead
from sikagp.experiments.methods.networks import DropoutNetwork, Network
from sikagp.objectives import VariationalELBO
from sikagp.training import TrainingConfig
from sikagp.training.optimization import build_optimizer

LEVEL, FEATURES, OUTPUTS = 3, 2, 3
LENGTHSCALE, VARIANCE = doubles([0.7, 1.9]), doubles([0.4, 1.3])


def sika_and_dense(*, fixed: bool = False) -> tuple[SIKALayer, DenseLayer]:
    """The same additive prior twice, in double precision."""
    bounds = -1.0, 2.0
    lengthscale = doubles([0.7, 0.7]) if fixed else LENGTHSCALE
    sika = SIKALayer(FEATURES, OUTPUTS, level=LEVEL, domain=bounds, residual="none")
    dense = DenseLayer(
        FEATURES,
        OUTPUTS,
        level=LEVEL,
        domain=Domain(*bounds),
        lengthscale=0.7,
        learn_lengthscale=not fixed,
    )
    sika, dense = sika.double(), dense.double()
    sika.lengthscale = lengthscale
    sika.variance = dense.variance = VARIANCE
    if not fixed:
        dense.lengthscale = lengthscale
    return sika, dense


def rotations(sika: SIKALayer, dense: DenseLayer) -> list[torch.Tensor]:
    """Orthogonal matrices between the two whitenings of each feature, from the nodes."""
    nodes = torch.linspace(-1, 2, 2**LEVEL + 1, dtype=torch.float64)
    nodes = nodes.unsqueeze(-1).expand(-1, FEATURES)
    basis = dense_features(sika.features(nodes), 2**LEVEL + 1)
    factor = dense.features(nodes) / dense.variance.sqrt().unsqueeze(-1)
    return [torch.linalg.solve(factor[:, d], basis[:, d]) for d in range(FEATURES)]


@pytest.mark.parametrize("fixed", [False, True])
@torch.no_grad()
def test_dense_laplace_layer_is_the_sika_layer(fixed):
    sika, dense = sika_and_dense(fixed=fixed)
    turns = rotations(sika, dense)
    for turn in turns:
        torch.testing.assert_close(turn @ turn.T, torch.eye(len(turn), dtype=turn.dtype))
    sika.bias_mean.normal_()
    dense.bias_mean.copy_(sika.bias_mean)
    mapped = [turn @ sika.weight_mean[d] for d, turn in enumerate(turns)]
    dense.weight_mean.copy_(torch.cat(mapped))
    # Rotations keep independent weights independent if their deviations are equal.
    sika.weight_scale = dense.weight_scale = 0.3
    x = 4 * torch.rand(40, FEATURES, dtype=torch.float64) - 1.5  # some lie beyond the grid
    expected, found = sika(x), dense(x)
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.variance, expected.variance)
    torch.testing.assert_close(dense.kl_divergence(), sika.kl_divergence())


@pytest.mark.parametrize("kernel", CORRELATIONS)
@torch.no_grad()
def test_dense_basis_reproduces_its_kernel(kernel):
    layer = DenseLayer(1, 1, level=6, kernel=kernel, domain=Domain(-2.0, 2.0), lengthscale=0.8)
    x = torch.linspace(-2, 2, 33).unsqueeze(-1)  # every second node
    phi = layer.features(x).squeeze(1)
    expected = CORRELATIONS[kernel]((x - x.T).abs() / 0.8)
    torch.testing.assert_close(phi @ phi.T, expected, atol=2e-4, rtol=0)


def test_dense_layer_learns_its_lengthscale_unless_fixed():
    x = torch.randn(5, 2)
    learned = DenseLayer(2, 1, level=2, domain=Domain(-3.0, 3.0))
    learned(x).mean.sum().backward()
    assert learned.log_lengthscale.grad.abs().min() > 0
    fixed = DenseLayer(2, 1, level=2, domain=Domain(-3.0, 3.0), learn_lengthscale=False)
    assert "log_lengthscale" not in dict(fixed.named_parameters())


@torch.no_grad()
def test_bayesian_layer_agrees_with_draws_of_weights():
    layer = BayesianLinear(4, 2, activation="relu").double()
    layer.weight_scale = torch.rand(4, 2) + 0.2
    x = torch.randn(3, 4, dtype=torch.float64)
    weight = Normal(layer.weight_mean, layer.weight_scale).sample((40_000,))
    bias = Normal(layer.bias_mean, layer.bias_scale).sample((40_000,))
    draws = (2 / 4) ** 0.5 * x.relu() @ weight + bias.unsqueeze(1)
    found = layer(x)
    torch.testing.assert_close(found.mean, draws.mean(0), atol=0.02, rtol=0)
    torch.testing.assert_close(found.variance, draws.var(0), atol=0, rtol=0.05)
    expected = sum(
        kl_divergence(Normal(mean, scale), Normal(0.0, 1.0)).sum()
        for mean, scale in [
            (layer.weight_mean, layer.weight_scale),
            (layer.bias_mean, layer.bias_scale),
        ]
    )
    torch.testing.assert_close(layer.kl_divergence(), expected)


@pytest.mark.parametrize("outputs", [1, 3])
def test_svgp_gives_gpytorch_s_own_marginals_and_objective(outputs):
    model = SVGP(2, outputs, 8, kernel="rbf")
    head = GPyTorchHead(model, 2)
    x, y = torch.randn(20, 2), torch.randn(20, outputs).squeeze(-1)
    head(x)  # initialises q
    with torch.no_grad():
        for parameter in model.variational_strategy.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    own, marginals = model(x), head(x)
    torch.testing.assert_close(marginals.mean.view_as(own.mean), own.mean)
    torch.testing.assert_close(marginals.variance.view_as(own.variance), own.variance)
    if outputs == 1:
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        reference = gpytorch.mlls.VariationalELBO(likelihood, model, 100)(own, y)
        torch.testing.assert_close(VariationalELBO(likelihood, head, 100)(marginals, y), reference)


def test_grid_models_map_and_clamp_to_their_domain():
    head = GPyTorchHead(AdditiveKISSGP(2, 16), 2, Domain(-1.0, 3.0)).eval()
    inside, beyond = torch.tensor([[3.0, -1.0]]), torch.tensor([[9.0, -5.0]])
    with torch.no_grad():
        torch.testing.assert_close(head(inside).mean, head(beyond).mean)
        torch.testing.assert_close(
            head(inside).mean, head.model(torch.tensor([[1.0, 0.0]])).mean[:, None]
        )


@pytest.mark.parametrize("shared", [True, False])
def test_additive_kiss_gp_sums_the_processes_of_its_features(shared):
    parts, total = (kind(3, 16, shared_kernel=shared) for kind in (SVDKLHead, AdditiveKISSGP))
    x = torch.rand(6, 3)
    parts(x)
    total.load_state_dict(parts.state_dict())
    with torch.no_grad():
        each, sum_ = parts(x), total(x)
        torch.testing.assert_close(sum_.mean, each.mean.sum(-1))
        torch.testing.assert_close(sum_.variance, each.variance.sum(-1))
        difference = each.mean - parts(x.flip(0)).mean.flip(0)
        torch.testing.assert_close(difference, torch.zeros(6, 3), atol=1e-5, rtol=0)


def test_gpytorch_deep_gp_is_a_mixture_that_repeats_in_evaluation():
    model = GPyTorchDeepGP(torch.randn(6, 2), (2, 3, 1), num_samples=(2, 5))
    x = torch.randn(4, 2)
    assert model(x).components.mean.shape == (2, 4, 1)
    model.eval()
    with torch.no_grad():
        first, second = model(x), model(x)
    assert first.components.mean.shape == (5, 4, 1)
    torch.testing.assert_close(first.components.mean, second.components.mean)
    expected = sum(layer.variational_strategy.kl_divergence().sum() for layer in model.layers)
    torch.testing.assert_close(model.kl_divergence(), expected)


def test_flipout_trains_on_draws_whose_moments_are_the_marginals():
    model = FlipoutDeepGP((2, 1), level=2, domain=(-2.0, 2.0), residual="none")
    model.layers[0].weight_scale = 0.5
    x = torch.randn(6, 2)
    with torch.no_grad():
        draws = model(x, 20_000)
        exact = model.layers[0](x)
    assert draws.components.variance.abs().max() == 0
    torch.testing.assert_close(draws.mean, exact.mean, atol=0.03, rtol=0)
    torch.testing.assert_close(draws.variance, exact.variance, atol=0, rtol=0.06)


@torch.no_grad()
def test_deep_flipout_agrees_with_the_deep_gp():
    model = FlipoutDeepGP((2, 3, 1), level=2, residual="none", mean_function="fixed")
    reference = DeepGP((2, 3, 1), level=2, residual="none", mean_function="fixed")
    reference.load_state_dict(model.state_dict())
    for layer in (*model.layers, *reference.layers):
        layer.weight_scale = 0.4
    x = torch.randn(4, 2)
    copies = x.repeat_interleave(200, 0)  # signs make copies of a row nearly independent
    draws = model(copies, 40).components.mean.unflatten(1, (4, 200))
    expected = reference(x, 3000)
    torch.testing.assert_close(draws.mean((0, 2)), expected.mean, atol=0.06, rtol=0)
    torch.testing.assert_close(draws.var((0, 2)), expected.variance, atol=0.03, rtol=0.15)
    found, expected = model.eval()(x), reference.eval()(x)
    torch.testing.assert_close(found.mean, expected.mean)


@pytest.mark.parametrize("hidden", [(), (16, 16)])
@torch.no_grad()
def test_dropout_draws_differ_repeat_and_ignore_other_rows(hidden):
    network = DropoutNetwork((4, *hidden, 2), rate=0.3, num_samples=40)
    x = torch.randn(6, 4)
    assert not torch.equal(network(x).mean, network(x).mean)
    network.eval()
    draws = network(x)
    assert isinstance(draws, GaussianMixture)
    assert draws.components.mean.shape == (40, 6, 2)
    assert draws.components.mean.std(0).min() > 0
    torch.testing.assert_close(network(x[2:3]).mean, draws.mean[2:3])
    assert network.kl_divergence() == 0


@torch.no_grad()
def test_dropout_on_features_keeps_the_mean_of_a_linear_head():
    head = DropoutNetwork((8, 3), rate=0.2, num_samples=20_000).eval()
    x = torch.randn(5, 8)
    torch.testing.assert_close(head(x).mean, head.layers[0](x), atol=0.03, rtol=0)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(lambda: SIKALayer(3, 2, level=2, domain=(-3.0, 3.0)), id="sika"),
        pytest.param(lambda: DenseLayer(3, 2, level=2, domain=Domain(-3.0, 3.0)), id="dense"),
        pytest.param(lambda: Stack([BayesianLinear(3, 2, activation="relu")]), id="bnn"),
        pytest.param(lambda: GPyTorchHead(SVDKLHead(3, 8), 3, Domain(-3.0, 3.0)), id="svdkl"),
        pytest.param(lambda: Network((3, 2)), id="network"),
        pytest.param(lambda: DropoutNetwork((3, 2)), id="mc-dropout"),
    ],
)
def test_heads_work_alike_on_a_live_backbone_and_on_cached_features(head):
    options = {"embedding": 3, "normalisation": "running", "spectral_norm": False}
    backbone = nn.Sequential(nn.Linear(4, 5), nn.ReLU())
    live = OnFeatures(backbone, 5, head(), **options)
    cached = OnFeatures(nn.Identity(), 5, head(), **options)
    x = torch.randn(12, 4)
    live(x)
    own = {k: v for k, v in live.state_dict().items() if not k.startswith("backbone")}
    cached.load_state_dict(own)
    live.eval(), cached.eval()
    with torch.no_grad():
        found, expected = cached(backbone(x)), live(x)
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.variance, expected.variance)
    torch.testing.assert_close(cached.kl_divergence(), live.kl_divergence())


@pytest.mark.parametrize(
    ("head", "decayed"),
    [
        (lambda: Network((3, 2)), {"layer.layers.0.weight", "layer.layers.0.bias"}),
        (lambda: DenseLayer(3, 2, level=2, domain=Domain(-3.0, 3.0)), set()),
        (lambda: GPyTorchHead(SVGP(3, 2, 4), 3), set()),
    ],
)
def test_weight_decay_spares_what_has_a_prior(head, decayed):
    model = OnFeatures(
        nn.Linear(4, 3), 3, head(), embedding=None, normalisation="none", spectral_norm=False
    )
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    optimizer = build_optimizer(model, likelihood, TrainingConfig(weight_decay=0.1))
    groups = [group for group in optimizer.param_groups if group["weight_decay"] > 0]
    found = {id(parameter) for group in groups for parameter in group["params"]}
    names = {name for name, parameter in model.named_parameters() if id(parameter) in found}
    assert names == {"backbone.weight", "backbone.bias"} | decayed
