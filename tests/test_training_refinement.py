"""Coarse to fine: refined grids keep the function, the optimizer's state and resumed runs."""

import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood
from helpers import assert_close, random_layer
from lightning.pytorch import Callback
from training_run import QUIET, rows

from sikagp.models import DeepGP
from sikagp.training import TrainingConfig, fit, refine

CONFIG = TrainingConfig(epochs=4, batch_size=20, validation=0.2, levels={1: 2, 3: 3})


def deep_gp() -> DeepGP:
    torch.manual_seed(0)
    return DeepGP((2, 3, 1), level=1, num_samples=1, domain=(0.0, 1.0)).double()


@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_the_optimizer_goes_on_with_the_coarse_weights(name):
    layer = random_layer(2, 1, level=2)
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.1, **options)
    x = torch.rand(8, 2, dtype=torch.float64)
    layer(x).mean.sum().backward()
    optimizer.step()
    key = "momentum_buffer" if name == "SGD" else "exp_avg"
    old, mean = optimizer.state[layer.weight_mean][key], layer(x).mean
    refine(layer, 4, optimizer)
    assert layer.level == 4
    assert_close(layer(x).mean, mean)
    state = optimizer.state[layer.weight_mean][key]
    assert torch.equal(state[:, :5], old)
    assert not state[:, 5:].any()
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert trained == {id(p) for p in layer.parameters()}
    assert set(optimizer.state) <= set(layer.parameters())
    optimizer.zero_grad()
    layer(x).mean.sum().backward()
    before = layer.weight_mean.detach().clone()
    optimizer.step()
    assert (layer.weight_mean[:, 5:] != before[:, 5:]).any()


def test_new_weights_bring_no_sudden_noise():
    x = torch.rand(50, 2, dtype=torch.float64)
    for residual in ("outside", "full"):
        layer = random_layer(2, 1, level=2, residual=residual)
        coarse, divergence = layer.raw_weight_scale.detach().clone(), layer.kl_divergence()
        mean, variance = layer(x).mean, layer(x).variance
        refine(layer, 5)
        assert torch.equal(layer.raw_weight_scale[:, :5], coarse)
        assert_close(layer(x).mean, mean)
        if residual == "full":
            assert_close(layer(x).variance, variance)
            assert_close(layer.kl_divergence(), divergence)
        else:
            assert (layer(x).variance - variance).abs().max() < 0.02


def test_finer_layers_are_left_alone():
    model = DeepGP((2, 3, 1), level=(4, 2))
    refine(model, 3)
    assert [layer.level for layer in model.layers] == [4, 3]
    before = list(model.parameters())
    refine(model, 3)
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))


def test_levels_follow_their_schedule():
    seen = []

    class Levels(Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            seen.append([layer.level for layer in pl_module.model.layers])

    model = deep_gp()
    noise = GaussianLikelihood().double()
    result = fit(model, noise, rows(), CONFIG, callbacks=[Levels()], trainer_options=QUIET)
    assert seen == [[1, 1], [2, 2], [2, 2], [3, 3]]
    assert result.best_epoch == 3


def test_a_stopped_run_resumes_on_the_right_grid(tmp_path):
    class Stop(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if trainer.global_step == 7:
                raise RuntimeError("power cut")

    def train(folder, *callbacks):
        model, noise = deep_gp(), GaussianLikelihood().double()
        options = {"folder": tmp_path / folder, "callbacks": callbacks, "trainer_options": QUIET}
        return model, fit(model, noise, rows(), CONFIG, **options)

    with pytest.raises(RuntimeError, match="power cut"):
        train("stopped", Stop())
    resumed, second = train("stopped")
    whole, first = train("whole")
    assert first == second
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
