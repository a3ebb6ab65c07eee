"""Deep temperatures: decisions stay, confidence is a Gaussian process of the features."""

import pytest
import torch
from gpytorch.likelihoods import SoftmaxLikelihood
from helpers import assert_close
from torch import Tensor, nn
from torch.distributions import Categorical, LogNormal

from sikagp import TrainingConfig, fit
from sikagp.calibration import fit_factor
from sikagp.likelihoods import build_likelihood
from sikagp.models import DeepTemperature
from sikagp.models.predictor import Predictor
from sikagp.predictions import predictive


def backbone() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Tanh())


def uncertain(**options) -> DeepTemperature:
    """A model whose factors differ from row to row and are in doubt."""
    model = DeepTemperature(backbone(), nn.Linear(6, 4), level=3, **options).eval()
    model.kernel.layer.variance = 1.0
    nn.init.normal_(model.kernel.layer.weight_mean)
    return model


def softmax() -> SoftmaxLikelihood:
    return build_likelihood("softmax", 4)


def test_classes_keep_the_network_s_order():
    model, x = uncertain(), torch.randn(500, 3)
    logits = model.last(model.backbone(x))
    probs = predictive(softmax(), model(x)).probs
    assert probs.argsort(-1).equal(logits.argsort(-1))
    assert not torch.allclose(probs, logits.softmax(-1), atol=0.1)


def test_factors_are_lognormal():
    model, x = uncertain(), torch.randn(20, 3)
    model.log_factor.fill_(0.4)
    g = model.kernel(model.backbone(x))
    logits, factor = model.last(model.backbone(x)), LogNormal(g.mean + 0.4, g.stddev)
    output = model(x)
    assert_close(output.mean, factor.mean * logits)
    assert (output.components.variance == 0).all()
    draws = factor.sample((50000,)) * logits
    probs = predictive(softmax(), output).probs
    torch.testing.assert_close(probs, draws.softmax(-1).mean(0), atol=0.01, rtol=0)
    assert (g.stddev > 0.3).all()


def test_the_kernel_sees_the_features_and_has_the_divergence():
    model, x = uncertain(normalisation="none"), torch.randn(20, 3)
    other = DeepTemperature(backbone(), nn.Linear(6, 4), level=3, normalisation="none").eval()
    other.load_state_dict(model.state_dict())
    assert_close(other(x).mean, model(x).mean)
    assert torch.equal(model.kl_divergence(), model.kernel.layer.kl_divergence())
    assert model.kernel.standardise(x) is x
    assert model.out_features == 4


def test_it_starts_near_the_prior_and_near_the_network():
    model = DeepTemperature(backbone(), nn.Linear(6, 4), level=3)
    layer = model.kernel.layer
    assert (layer.in_features, layer.out_features, layer.level) == (6, 1, 3)
    assert_close(layer.variance.sum(), torch.tensor(0.1))
    assert_close(layer.weight_scale, torch.ones_like(layer.weight_scale))
    features = model.backbone(torch.randn(200, 3))
    assert model.kernel.eval()(features).mean.std() < 0.1


def test_confidence_is_learned_where_the_network_is_wrong():
    """A network that is always as sure, but right only where the second feature is negative."""
    last = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        last.weight.copy_(torch.tensor([[2.0, 0.0], [-2.0, 0.0]]))

    def rows(count: int) -> tuple[Tensor, Tensor]:
        side = torch.randint(2, (count,))
        x = torch.stack([1.0 - 2 * side, torch.randn(count)], -1)
        guess = torch.randint(2, (count,))
        return x, torch.where(x[:, 1] < 0, side, guess)

    torch.manual_seed(0)
    model, train, test = DeepTemperature(nn.Identity(), last, level=4), rows(800), rows(800)
    likelihood = build_likelihood("softmax", 2)
    config = TrainingConfig(epochs=40, batch_size=200, learning_rate=0.1)
    fit(model, likelihood, train, config, trainer_options={"enable_progress_bar": False})
    model.calibrate(*train)
    assert torch.equal(model.last.weight, last.weight)

    prediction = predictive(likelihood, model.eval()(test[0]))
    sure = prediction.probs.amax(-1)
    assert sure[test[0][:, 1] < -0.5].mean() > 0.9
    assert sure[test[0][:, 1] > 0.5].mean() < 0.65
    assert prediction.probs.argmax(-1).equal(last(test[0]).argmax(-1))
    logits = last(test[0]).detach()
    best = Categorical(logits=fit_factor(logits.unsqueeze(0), test[1]) * logits)
    assert prediction.log_prob(test[1]).mean() > best.log_prob(test[1]).mean() + 0.08


def test_calibration_finds_the_best_level_and_nothing_else():
    model, x = uncertain(), torch.randn(600, 3)
    target = Categorical(logits=0.3 * model(x).mean).sample()
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.calibrate(x, target)
    assert model.training
    assert not model.backbone.training
    changed = [name for name, value in model.state_dict().items() if not value.equal(before[name])]
    assert changed == ["log_factor"]

    @torch.no_grad()
    def loss() -> float:
        return -float(predictive(softmax(), model.eval()(x)).log_prob(target).mean())

    found, level = loss(), model.log_factor.item()
    for shift in (-0.02, 0.02):
        model.log_factor.fill_(level + shift)
        assert loss() > found
    model.calibrate(x, target)  # from another level to the same
    assert model.log_factor.item() == pytest.approx(level, abs=1e-3)
    with pytest.raises(ValueError, match="at least one row"):
        model.calibrate(x[:0], target[:0])
    with pytest.raises(RuntimeError):
        model.train().calibrate(torch.randn(5, 2), target[:5])
    assert model.training


def test_network_is_frozen():
    body, last = backbone(), nn.Linear(6, 4)
    model = DeepTemperature(body, last, level=3)
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    assert trained == {f"kernel.{name}" for name, _ in model.kernel.named_parameters()}
    assert model.train().kernel.training
    assert not any(module.training for module in body.modules())
    nn.init.zeros_(last.weight)
    assert model.last.weight.any()  # a copy


def test_it_is_saved_whole_and_loaded_around_a_backbone(tmp_path):
    model, x = uncertain(normalisation="running", kernel="matern32"), torch.randn(5, 3)
    model.train()(torch.randn(50, 3))
    model.log_factor.fill_(0.7)
    expected = model.eval()(x).mean
    model.save_pretrained(tmp_path / "model")
    loaded = DeepTemperature.from_pretrained(tmp_path / "model", backbone=backbone())
    assert torch.equal(loaded(x).mean, expected)
    assert not any(value.requires_grad for value in loaded.backbone.parameters())
    with pytest.raises(ValueError, match="a DeepTemperature is loaded around a backbone"):
        DeepTemperature.from_pretrained(tmp_path / "model")

    predictor = Predictor(model, softmax())
    predictor.save_pretrained(tmp_path / "predictor")
    again = Predictor.from_pretrained(tmp_path / "predictor", backbone=backbone())
    assert torch.equal(again(x).probs, predictor(x).probs)


def test_mixed_precision_ends_with_the_backbone():
    model, x = uncertain(), torch.randn(40, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = model(x).mean
    assert narrow.dtype == torch.float32
    model.backbone = model.backbone.bfloat16()
    features = model.backbone(x.bfloat16()).float()
    model.backbone = nn.Identity()
    torch.testing.assert_close(narrow, model(features).mean, atol=0.2, rtol=0.1)


def test_what_is_no_trained_classifier_is_refused(as_users_run):
    with pytest.raises(TypeError, match="must be a linear layer, got Sequential"):
        DeepTemperature(backbone(), nn.Sequential(nn.Linear(6, 4)))
    with pytest.raises(ValueError, match=r"tensor of shape \(\*batch, 5\), got \(7, 6\)"):
        DeepTemperature(backbone(), nn.Linear(5, 4))(torch.randn(7, 3))
