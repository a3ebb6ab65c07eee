"""Deep GPs: limiting cases, sampling, paths."""

import numpy as np
import pytest
import torch
from helpers import assert_close, randomize

from sikagp import SIKALayer
from sikagp.domains import Domain
from sikagp.models import DeepGP
from sikagp.models.architecture import with_pairs


def random_model(sizes=(2, 3, 1), **options) -> DeepGP:
    model = DeepGP(sizes, **{"level": 3, **options}).double()
    for layer in model.layers:
        randomize(layer)
    return model.eval()


def test_one_layer_is_a_sika_layer():
    model = random_model((2, 3))
    x = torch.randn(5, 2, dtype=torch.float64)
    output, expected = model(x), model.layers[0](x)
    assert len(output) == 1
    assert_close(output.mean, expected.mean)
    assert_close(output.variance, expected.variance)


def test_without_uncertainty_layers_compose():
    model = random_model((2, 4, 4, 1), num_samples=3, residual="none")
    for layer in model.layers:
        layer.weight_scale = 1e-12
        layer.bias_scale = 1e-12
    x = torch.randn(5, 2, dtype=torch.float64)
    hidden = x
    for layer, mean in zip(model.layers, [*model.means, None], strict=True):
        hidden = layer(hidden).mean + (mean(hidden) if mean is not None else 0)
    assert_close(model(x).mean, hidden, dtype=torch.float32)
    assert model(x).stddev.max() < 1e-6


def test_moments_match_nested_monte_carlo():
    model = random_model(num_samples=(1, 4000))
    x = torch.randn(3, 2, dtype=torch.float64)
    first, last = model.layers
    hidden = first(x).rsample((4000,)) + model.means[0](x)
    draws = last(hidden).rsample()
    output = model(x)
    torch.testing.assert_close(output.mean, draws.mean(0), atol=0.06, rtol=0)
    torch.testing.assert_close(output.variance, draws.var(0), atol=0.12, rtol=0.1)


def test_training_draws_every_row_by_itself():
    model = random_model(num_samples=2).train()
    x = torch.zeros(50, 2, dtype=torch.float64)
    means = model(x).components.mean
    assert len(means) == 2
    assert means.unique().numel() > 90


def test_evaluation_repeats_and_ignores_the_other_rows():
    model = random_model(num_samples=(2, 8))
    x = torch.randn(6, 2, dtype=torch.float64)
    output = model(x)
    assert len(output) == 8
    assert torch.equal(output.mean, model(x).mean)
    assert_close(model(x[[4, 1]]).components.mean, output.components.mean[:, [4, 1]])
    assert_close(
        model(x.view(2, 3, 2)).components.mean, output.components.mean.unflatten(1, (2, 3))
    )


def test_generators_draw_rows_independently():
    model = random_model(num_samples=4)
    x = torch.zeros(2, 2, dtype=torch.float64)
    one = model(x, generator=torch.Generator().manual_seed(0)).components.mean
    two = model(x, generator=torch.Generator().manual_seed(0)).components.mean
    assert torch.equal(one, two)
    assert not torch.equal(one[:, 0], one[:, 1])


def test_number_of_samples_can_be_chosen_at_the_call():
    model = random_model(num_samples=(2, 5))
    x = torch.randn(3, 2, dtype=torch.float64)
    assert [len(model(x)), len(model(x, 7)), len(model.train()(x))] == [5, 7, 2]


def test_first_layer_is_evaluated_once_for_all_samples(monkeypatch):
    model, rows = random_model(num_samples=10), []
    evaluate = SIKALayer._moments
    monkeypatch.setattr(
        SIKALayer, "_moments", lambda self, unit: rows.append(len(unit)) or evaluate(self, unit)
    )
    model(torch.randn(4, 2, dtype=torch.float64))
    assert rows == [4, 40]


def test_divergence_is_the_sum_over_layers():
    model = random_model((2, 3, 3, 1))
    assert_close(model.kl_divergence(), sum(layer.kl_divergence() for layer in model.layers))


def test_paths_are_functions_with_the_model_s_moments():
    model = random_model(num_samples=(1, 4000), residual="none")
    x = torch.rand(4, 2, dtype=torch.float64)
    paths = model.paths(4000)
    values = paths(x)
    assert values.shape == (4000, 4, 1)
    assert torch.equal(values[:, :2], paths(x[:2]))
    output = model(x)
    torch.testing.assert_close(values.mean(0), output.mean, atol=0.08, rtol=0)
    torch.testing.assert_close(values.var(0), output.variance, atol=0.2, rtol=0.12)


def test_paths_do_not_follow_later_changes():
    model = random_model()
    x = torch.rand(4, 2, dtype=torch.float64)
    paths = model.paths(3, generator=torch.Generator().manual_seed(0))
    before = paths(x)
    with torch.no_grad():
        for parameter in (*model.parameters(), *model.buffers()):
            parameter.add_(1)
    assert torch.equal(paths(x), before)


def test_far_from_the_data_the_prior_returns():
    model = random_model((1, 1), domain=(-1.0, 1.0), bias=False)
    far = model(torch.tensor([[1e6]], dtype=torch.float64))
    assert_close(far.mean, torch.zeros(1, 1, dtype=torch.float64))
    assert_close(far.variance, model.layers[0].variance.detach().view(1, 1))


@pytest.mark.parametrize(("mean_function", "learned"), [("fixed", 0), ("learned", 2)])
def test_mean_functions(mean_function, learned):
    model = DeepGP((3, 5, 5, 1), level=2, mean_function=mean_function)
    first, second = model.means
    assert torch.equal(second.weight.detach(), torch.eye(5))
    names = [name for name, _ in model.named_parameters() if name.startswith("means")]
    assert len(names) == learned
    x = torch.randn(20_000, 3)
    torch.testing.assert_close(first(x).detach().std(0), torch.ones(5), atol=0.05, rtol=0)


def test_no_mean_function():
    model = random_model(mean_function="none")
    x = torch.rand(4, 2, dtype=torch.float64)
    assert len(model.means) == 0
    hidden = model.layers[0](x)
    noise = model.get_buffer("noise0").double().unsqueeze(1)
    expected = model.layers[1](hidden.mean + hidden.stddev * noise).mean
    assert_close(model(x).components.mean, expected)


@pytest.mark.parametrize("sizes", [(2, 1), (2, 3, 1)])
def test_a_trend_is_added_to_predictions_and_paths_and_saved(sizes, tmp_path):
    plain, trended = random_model(sizes), random_model(sizes, trend=True)
    trended.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(4, 2, dtype=torch.float64)
    assert_close(trended(x).mean, plain(x).mean)  # it starts at zero
    with torch.no_grad():
        trended.trend.weight.copy_(torch.tensor([[2.0, -1.0]]))
    line = x @ torch.tensor([[2.0], [-1.0]], dtype=torch.float64)
    assert_close(trended(x).mean, plain(x).mean + line)
    assert_close(trended(x).variance, plain(x).variance)
    paths = [m.paths(3, generator=torch.Generator().manual_seed(1))(x) for m in (plain, trended)]
    assert_close(paths[1], paths[0] + line)
    trended.save_pretrained(tmp_path)
    assert torch.equal(DeepGP.from_pretrained(tmp_path)(x).mean, trended(x).mean)


def test_levels_domains_and_options_reach_their_layers():
    inputs = Domain(torch.tensor([0.0, 1.0]), torch.tensor([5.0, 9.0]))
    model = DeepGP(
        (2, 3, 1),
        level=(4, 2),
        domain=inputs,
        hidden_domain=(-1.5, 1.5),
        kernel="laplace",
        residual="none",
    )
    assert [layer.level for layer in model.layers] == [4, 2]
    assert model.layers[0].domain.high.tolist() == [5.0, 9.0]
    assert float(model.layers[1].domain.width) == 3.0
    assert {layer.residual for layer in model.layers} == {"none"}
    assert (model.in_features, model.out_features) == (2, 1)


def test_gradients_reach_every_parameter():
    model = DeepGP((2, 3, 3, 1), level=2, mean_function="learned")
    model(torch.randn(8, 2)).log_prob(torch.randn(8, 1)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_bad_arguments_are_refused(as_users_run):
    with pytest.raises(ValueError, match=r"at least input and output, got \(3,\)"):
        DeepGP((3,))
    with pytest.raises(ValueError, match="2 layers need as many levels, got 3"):
        DeepGP((3, 2, 1), level=(1, 2, 3))
    with pytest.raises(ValueError, match="'fixed', 'learned', 'none', got 'linear'"):
        DeepGP((3, 1), mean_function="linear")
    with pytest.raises(ValueError, match="pair"):
        DeepGP((3, 1), num_samples=(1, 2, 3))
    with pytest.raises(ValueError, match="at least input and output, got 3"):
        DeepGP(3)
    for pairs in (False, True):
        with pytest.raises(ValueError, match="every number in sizes must be at least 1, got -3"):
            DeepGP((-3, 1), pairs=pairs)
        with pytest.raises(TypeError, match="every number in sizes must be an integer"):
            DeepGP((3.0, 1), pairs=pairs)
    for name in ("level", "num_samples"):
        with pytest.raises(TypeError, match=f"{name} must be an integer, got 1.5"):
            DeepGP((3, 1), **{name: 1.5})
    with pytest.raises(ValueError, match=r"\(\*batch, 3\)"):
        DeepGP((3, 2, 1))(torch.zeros(4, 2))


def test_pairs_are_sums_and_differences_that_keep_the_variance():
    x = torch.randn(4000, 3, dtype=torch.float64)
    terms = with_pairs(x, x.shape[1])
    a, b, c = x.T
    root = 2**0.5
    expected = [a, b, c, (a + b) / root, (a + c) / root, (b + c) / root]
    expected += [(a - b) / root, (a - c) / root, (b - c) / root]
    assert_close(terms, torch.stack(expected, 1))
    torch.testing.assert_close(terms.var(0), torch.ones(9).double(), atol=0.15, rtol=0)


@pytest.mark.parametrize("sizes", [(3, 2), (3, 4, 1)])
def test_a_model_of_pairs_is_additive_over_them(sizes, tmp_path):
    model = random_model(sizes, pairs=True, num_samples=4)
    x = torch.randn(5, 3, dtype=torch.float64)
    assert (model.in_features, model.layers[0].in_features) == (3, 9)
    plain = random_model((9, *sizes[1:]), num_samples=4)
    plain.layers, plain.means = model.layers, model.means
    assert_close(model(x).mean, plain(with_pairs(x, x.shape[1])).mean)
    paths, others = (m.paths(3, generator=torch.Generator().manual_seed(0)) for m in (model, plain))
    assert_close(paths(x), others(with_pairs(x, x.shape[1])))
    model.save_pretrained(tmp_path)
    again = DeepGP.from_pretrained(tmp_path).double().eval()
    assert torch.equal(again(x).mean, model(x).mean)


def test_models_saved_before_there_were_pairs_have_none():
    config = random_model().get_config()
    del config["pairs"]
    assert not DeepGP.from_config(config).pairs


def test_pairs_refuse_other_numbers_of_features():
    with pytest.raises(ValueError, match="3"):
        random_model((3, 1), pairs=True)(torch.randn(5, 9, dtype=torch.float64))
    paths = random_model((3, 1), pairs=True).paths(2)
    with pytest.raises(ValueError, match=r"\(\*batch, 3\), got shape \(5, 2\)"):
        paths(torch.randn(5, 2, dtype=torch.float64))


def test_pairs_know_a_product_that_single_features_cannot():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(400, 2, generator=generator) * 4 - 2
    y = x.prod(1, keepdim=True)
    errors = {}
    for pairs in (False, True):
        model = DeepGP((2, 1), level=3, kernel="matern32", domain=(-3.0, 3.0), pairs=pairs)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(100):
            optimizer.zero_grad()
            ((model(x).mean - y) ** 2).mean().backward()
            optimizer.step()
        errors[pairs] = float((model(x).mean - y).detach().pow(2).mean() / y.var())
    assert errors[True] < 0.02 < 0.5 < errors[False]


def test_sums_of_half_precision_numbers_are_not_rounded_and_do_not_overflow():
    x = torch.tensor([[2048.0, 1.0], [60000.0, 50000.0]], dtype=torch.float16)
    assert_close(with_pairs(x, x.shape[1]), with_pairs(x.float(), 2), dtype=torch.float64)


@pytest.mark.parametrize("pairs", [False, True])
def test_parameters_and_inputs_of_any_type_go_together(pairs):
    model = random_model((3, 4, 2), pairs=pairs, trend=True, num_samples=2).eval()
    with torch.no_grad():
        model.trend.weight.normal_()
    x = torch.randn(5, 3, dtype=torch.float64).half()
    expected = model(x.double())
    for stored in (torch.float64, torch.float32, torch.float16):
        model.to(stored)
        for given in (torch.float64, torch.float32, torch.float16):
            assert_close(model(x.to(given)).mean, expected.mean, dtype=torch.float16)
            assert model.paths(2)(x.to(given)).isfinite().all()


def test_the_size_of_numpy_s_arrays_will_do(as_users_run):
    labels = np.array([0, 2, 1])
    model = DeepGP((2, labels.max() + 1), level=np.int32(3), num_samples=np.int64(2))
    assert (model.out_features, model.layers[0].level, model.num_samples) == (3, 3, (2, 2))
    assert {type(number) for number in model.get_config()["num_samples"]} == {int}


def test_a_model_says_whether_it_knows_pairs():
    assert "pairs=True" in repr(random_model((3, 1), pairs=True))
