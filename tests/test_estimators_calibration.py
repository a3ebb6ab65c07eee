"""The noise of deep models is the one under which the rows are most probable."""

import copy

import pytest
import torch

from sikagp.estimators.calibration import MAX_ROWS, refit_noise
from sikagp.likelihoods import build_likelihood
from sikagp.models import DeepGP
from sikagp.models.predictor import Predictor


def rows(count: int = 200) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.rand(count, 2).double()
    y = torch.stack([0.3 * torch.randn(count), 2 * torch.randn(count)], dim=1).double()
    return x, y, torch.ones(count).double()


def predictor(name: str = "gaussian", outputs: int = 2) -> Predictor:
    """An untrained model whose draws hardly differ: nearly all spread of y must be noise."""
    model = DeepGP((2, 3, outputs), level=2)
    with torch.no_grad():
        for layer in model.layers:
            layer.weight_mean.zero_()
            layer.weight_scale = torch.full_like(layer.weight_scale, 0.05)
            layer.bias_scale = torch.full_like(layer.bias_scale, 0.05)
    return Predictor(model, build_likelihood(name, 2)).double().eval()


def density(member: Predictor, x, y, weight) -> float:
    with torch.no_grad():
        return float(weight @ member(x).log_prob(y))


def test_no_other_noise_makes_the_rows_more_probable():
    member, (x, y, weight) = predictor(), rows()
    weight = torch.rand(200).double()
    refit_noise(member, x, y, weight)
    best, noise = density(member, x, y, weight), member.likelihood.noise.clone()
    for factor in (0.9, 1.1):
        for target in (0, 1):
            changed = noise.clone()
            changed[target] *= factor
            member.likelihood.noise = changed
            assert density(member, x, y, weight) < best


def test_noise_is_found_for_each_target():
    member, data = predictor(), rows(2 * MAX_ROWS)
    refit_noise(member, *data)
    torch.testing.assert_close(
        member.likelihood.noise.flatten().sqrt(),
        torch.tensor([0.3, 2.0]).double(),
        rtol=0.05,
        atol=0.02,
    )


def test_rows_without_weight_do_not_count():
    x, y, weight = rows()
    one = predictor()
    other = copy.deepcopy(one)
    weight[100:] = 0
    refit_noise(one, x, y, weight)
    y[100:] *= 10
    refit_noise(other, x, y, weight)
    assert torch.equal(one.likelihood.noise, other.likelihood.noise)


@pytest.mark.parametrize("name", ["heteroscedastic", "student_t"])
def test_other_likelihoods_are_left_alone(name):
    member = predictor(name, 4 if name == "heteroscedastic" else 2)
    before = {key: value.clone() for key, value in member.state_dict().items()}
    refit_noise(member, *rows())
    assert all(torch.equal(value, before[key]) for key, value in member.state_dict().items())
