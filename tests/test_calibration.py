"""One temperature or width: its optimum, its limits, and what it leaves alone."""

import pytest
import torch

from sikagp.calibration import (
    fit_factor,
    fit_temperature,
    fit_width,
    temper,
    tempered_layer,
    widen,
)
from sikagp.mixtures import GaussianMixture
from sikagp.variational import GaussianMarginals
from tests.helpers import assert_close


def test_tempering_keeps_the_order_and_one_is_nothing():
    probs = torch.rand(20, 5).softmax(-1)
    assert_close(temper(probs, 1.0).exp(), probs)
    hot = temper(probs, 3.0).exp()
    assert hot.argsort(-1).equal(probs.argsort(-1))
    assert (hot.amax(-1) < probs.amax(-1)).all()
    assert_close(hot.sum(-1), torch.ones(20))


def test_a_layer_takes_the_temperature_that_fits():
    layer, features = torch.nn.Linear(4, 3), 100 * torch.randn(200, 4)  # too sure of itself
    target = torch.distributions.Categorical(logits=layer(features) / 40).sample()
    before = layer.weight.clone()
    logits = layer(features).double()
    temperature = fit_temperature(logits.softmax(-1), target)
    assert 20 < temperature < 80
    cooler = tempered_layer(layer, features, target)
    assert_close(cooler(features).double(), logits / temperature, dtype=torch.float32)
    assert torch.equal(layer.weight, before)


def test_a_factor_is_the_inverse_temperature_of_one_sample_and_fits_the_average_of_several():
    logits = 3 * torch.randn(5, 400, 4)
    target = torch.distributions.Categorical(logits=logits[0]).sample()
    one = fit_factor(logits[:1], target)
    assert one == pytest.approx(1 / fit_temperature(logits[0].softmax(-1), target), rel=1e-3)

    found = fit_factor(logits, target)
    losses = {
        factor: -float((factor * logits).softmax(-1).mean(0)[range(400), target].log().mean())
        for factor in (found, 0.97 * found, 1.03 * found, one)
    }
    assert min(losses, key=losses.__getitem__) == found
    with pytest.raises(ValueError, match="a factor is fitted on at least one row"):
        fit_factor(logits[:, :0], target[:0])


def test_rows_are_tempered_one_by_one_in_any_shape():
    probs = torch.rand(2, 3, 4).softmax(-1)
    for index in ((0, 0), (1, 2)):
        powers = probs[index] ** (1 / 0.7)
        assert_close(temper(probs, 0.7)[index].exp(), powers / powers.sum())


def test_temperatures_and_widths_compose():
    probs = torch.rand(5, 3, dtype=torch.float64).softmax(-1)
    assert_close(temper(temper(probs, 2.0).exp(), 3.0), temper(probs, 6.0))
    parts = GaussianMarginals(torch.randn(4, 5, 2), torch.rand(4, 5, 2) + 0.1)
    once, twice = widen(GaussianMixture(parts), 6.0), widen(widen(GaussianMixture(parts), 2.0), 3.0)
    assert_close(twice.components.mean, once.components.mean)
    assert_close(twice.variance, once.variance)


def test_a_width_stretches_every_quantile_about_the_mean():
    parts = GaussianMarginals(torch.randn(4, 5, 2).double(), torch.rand(4, 5, 2).double() + 0.1)
    narrow, wide = GaussianMixture(parts), widen(GaussianMixture(parts), 2.5)
    for probability in (0.01, 0.3, 0.5, 0.975):
        stretched = narrow.mean + 2.5 * (narrow.quantile(probability) - narrow.mean)
        assert_close(wide.quantile(probability), stretched)


@pytest.mark.parametrize("truth", [0.4, 1.0, 2.5])
def test_the_temperature_of_the_data_is_found(truth):
    logits = 2 * torch.randn(20000, 4)
    target = torch.distributions.Categorical(logits=logits).sample()
    found = fit_temperature((logits * truth).softmax(-1), target)
    assert found == pytest.approx(truth, rel=0.05)


def test_it_is_a_minimum():
    probs, target = (3 * torch.randn(300, 6)).softmax(-1), torch.randint(6, (300,))
    target[:200] = probs[:200].argmax(-1)
    best = fit_temperature(probs, target)

    def loss(temperature):
        return torch.nn.functional.nll_loss(temper(probs.double(), temperature), target)

    assert loss(best) <= min(loss(best * 1.02), loss(best / 1.02))


def test_extremes_stay_finite():
    probs = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert 0 < fit_temperature(probs, torch.tensor([0, 1])) < 1
    assert fit_temperature(probs, torch.tensor([1, 0])) > 100
    assert temper(probs, 0.5).isfinite().all()


def test_bad_input():
    with pytest.raises(ValueError, match="temperature"):
        temper(torch.tensor([0.5, 0.5]), 0.0)
    with pytest.raises(ValueError, match="at least one row"):
        fit_temperature(torch.empty(0, 3), torch.empty(0, dtype=torch.long))


def test_the_width_of_gaussians_is_the_deviation_of_scaled_errors():
    mean, deviation = torch.randn(1, 500, 1).double(), torch.rand(1, 500, 1).double() + 0.5
    target = mean[0] + 3 * deviation[0] * torch.randn(500, 1).double()
    prediction = GaussianMixture(GaussianMarginals(mean, deviation.square()))
    expected = float(((target - mean[0]) / deviation[0]).square().mean().sqrt())
    assert fit_width(prediction, target) == pytest.approx(expected, rel=1e-4)


def test_widening_scales_a_mixture_about_its_mean():
    components = GaussianMarginals(torch.randn(4, 6, 2).double(), torch.rand(4, 6, 2).double())
    mixture = GaussianMixture(components)
    wide = widen(mixture, 2.5)
    assert_close(wide.mean, mixture.mean)
    assert_close(wide.stddev, 2.5 * mixture.stddev)
    target = torch.randn(6, 2).double()
    scaled = mixture.mean + (target - mixture.mean) / 2.5
    assert_close(wide.cdf(target), mixture.cdf(scaled))


def test_no_width_is_fitted_on_nothing():
    nothing = GaussianMixture(GaussianMarginals(torch.zeros(1, 0, 1), torch.ones(1, 0, 1)))
    with pytest.raises(ValueError, match="at least one row"):
        fit_width(nothing, torch.zeros(0, 1))
