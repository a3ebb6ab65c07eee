"""Training: what a run does to the parameters, against torch's own optimizers and schedules."""

import csv
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood
from helpers import assert_close
from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import TensorDataset

from sikagp import SIKALayer
from sikagp.likelihoods import build_likelihood
from sikagp.models import DeepGP, DeepKernel
from sikagp.objectives import VariationalELBO
from sikagp.predictions import log_density, predictive
from sikagp.training import TrainingConfig, fit, fitting
from sikagp.training.callbacks import BestParameters
from sikagp.training.data import TensorRows, split
from sikagp.training.optimization import build_optimizer, rate_factor

QUIET = {"enable_progress_bar": False, "accelerator": "cpu"}


def rows(count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.rand(count, 2)
    return x, torch.sin(6 * x[:, 0]) + 0.1 * torch.randn(count)


def layer(**options) -> SIKALayer:
    torch.manual_seed(0)
    return SIKALayer(2, 1, **{"level": 3, **options})


class Spy(Callback):
    """Records what a run does, step by step."""

    def __init__(self) -> None:
        self.kl_weights: list[float] = []
        self.rates: list[float] = []
        self.batches: list[torch.Tensor] = []
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.kl_weights.append(pl_module.objective.beta)
        self.batches.append(batch[0])
        model = pl_module.model.named_parameters()
        self.steps.append({name: p.detach().clone() for name, p in model})

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.rates.append(optimizer.param_groups[0]["lr"])


def test_a_run_is_the_plain_loop_it_stands_for():
    data, model, likelihood = rows(), layer(), GaussianLikelihood()
    config = TrainingConfig(
        epochs=2, batch_size=32, kl_warmup=0.0, schedule="constant", likelihood_rate=1.0
    )
    spy = Spy()
    fit(model, likelihood, data, config, callbacks=[spy], trainer_options=QUIET)
    twin, noise = layer(), GaussianLikelihood()
    optimizer = torch.optim.Adam([*twin.parameters(), *noise.parameters()], lr=5e-3)
    objective = VariationalELBO(noise, twin, 64)
    target = dict(zip(map(tuple, data[0].tolist()), data[1], strict=True))
    for x in spy.batches:
        y = torch.stack([target[tuple(row)] for row in x.tolist()])
        optimizer.zero_grad()
        (-objective(twin(x), y)).backward()
        optimizer.step()
    for one, two in zip(model.parameters(), twin.parameters(), strict=True):
        assert_close(one.detach(), two.detach())
    assert not model.training
    assert not likelihood.training


def test_every_epoch_sees_every_row_once_in_a_new_order():
    data, spy = rows(50), Spy()
    config = TrainingConfig(epochs=2, batch_size=16)
    fit(layer(), GaussianLikelihood(), data, config, callbacks=[spy], trainer_options=QUIET)
    epochs = torch.cat(spy.batches[:4]), torch.cat(spy.batches[4:])
    assert not torch.equal(*epochs)
    for epoch in epochs:
        assert torch.equal(epoch[:, 0].sort().values, data[0][:, 0].sort().values)


def test_the_same_seed_gives_the_same_parameters_and_leaves_the_random_state_alone():
    data, models = rows(), []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        models.append(DeepGP((2, 3, 1), level=2, num_samples=2))
        config = TrainingConfig(epochs=2, batch_size=32, seed=seed)
        state = torch.get_rng_state()
        fit(models[-1], GaussianLikelihood(), data, config, trainer_options=QUIET)
        assert torch.equal(torch.get_rng_state(), state)
    one, two, other = ([p.detach() for p in model.parameters()] for model in models)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_divergence_weight_and_learning_rate_follow_their_schedules():
    spy = Spy()
    config = TrainingConfig(
        epochs=10, batch_size=32, kl_weight=0.5, kl_warmup=0.2, schedule="linear", warmup=0.25
    )
    fit(layer(), GaussianLikelihood(), rows(), config, callbacks=[spy], trainer_options=QUIET)
    assert spy.kl_weights == pytest.approx([0.1, 0.2, 0.3, 0.4] + [0.5] * 16)
    peak = max(spy.rates)
    assert spy.rates.index(peak) == 5
    assert peak == pytest.approx(config.learning_rate)
    assert spy.rates[0] == pytest.approx(peak / 6)
    assert spy.rates[-1] == pytest.approx(peak / 15)


def test_schedules_are_torch_s():
    steps, per_epoch = 40, 4

    def rates(schedule: lr_scheduler.LRScheduler) -> list[float]:
        seen = []
        for _ in range(steps):
            seen.append(schedule.get_last_lr()[0])
            schedule.optimizer.step()
            schedule.step()
        return seen

    def sgd() -> torch.optim.Optimizer:
        return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)

    oracles = {
        "constant": lr_scheduler.ConstantLR(sgd(), 1.0),
        "cosine": lr_scheduler.CosineAnnealingLR(sgd(), steps),
        "linear": lr_scheduler.LinearLR(sgd(), 1.0, 0.0, steps),
        "step": lr_scheduler.StepLR(sgd(), 2 * per_epoch, 0.7),
    }
    for name, oracle in oracles.items():
        config = TrainingConfig(schedule=name, step_epochs=2)
        own = [rate_factor(step, config, steps, per_epoch) for step in range(steps)]
        assert own == pytest.approx(rates(oracle), abs=1e-9)


def test_one_cycle_peaks_and_ends_low():
    spy = Spy()
    config = TrainingConfig(epochs=10, batch_size=32, schedule="one_cycle", warmup=0.3)
    fit(layer(), GaussianLikelihood(), rows(), config, callbacks=[spy], trainer_options=QUIET)
    assert max(spy.rates) == pytest.approx(config.learning_rate)
    assert spy.rates.index(max(spy.rates)) == 5
    assert spy.rates[-1] < 1e-3 * config.learning_rate


def test_parameter_groups_have_their_own_rates_and_decay():
    model, likelihood = DeepKernel(nn.Linear(2, 3), 3, 1, embedding=2), GaussianLikelihood()
    config = TrainingConfig(
        optimizer="sgd",
        optimizer_options={"momentum": 0.9},
        learning_rates={"backbone": 1e-4},
        weight_decay=0.1,
    )
    optimizer = build_optimizer(model, likelihood, config)
    found = {
        id(p): (group["lr"], group["weight_decay"], group["momentum"])
        for group in optimizer.param_groups
        for p in group["params"]
    }
    assert found[id(model.backbone.weight)] == (1e-4, 0.1, 0.9)
    assert found[id(model.embedding.weight)] == (5e-3, 0.1, 0.9)
    assert found[id(model.layer.weight_mean)] == (5e-3, 0.0, 0.9)
    assert found[id(likelihood.raw_noise)] == (5e-2, 0.0, 0.9)
    with pytest.raises(ValueError, match="'head'"):
        build_optimizer(model, likelihood, TrainingConfig(learning_rates={"head": 1.0}))


def test_the_best_parameters_on_held_out_rows_are_kept():
    data, held_out = rows(32), rows(32)
    model, likelihood = layer(), GaussianLikelihood()
    config = TrainingConfig(
        epochs=60, batch_size=32, learning_rate=0.3, patience=4, schedule="constant"
    )
    result = fit(model, likelihood, data, config, validation_data=held_out, trainer_options=QUIET)
    scores = [epoch["val_loss"] for epoch in result.history]
    assert result.best_score == pytest.approx(min(scores))
    assert result.best_epoch == scores.index(min(scores))
    with torch.no_grad():
        score = -log_density(predictive(likelihood, model(held_out[0])), held_out[1]).mean()
    assert float(score) == pytest.approx(result.best_score, abs=1e-5)
    assert result.stopped_early
    assert len(scores) == result.best_epoch + 1 + 4


def test_a_fraction_of_the_rows_can_be_held_out():
    data, spy = rows(50), Spy()
    config = TrainingConfig(epochs=1, batch_size=64, validation=0.2)
    result = fit(
        layer(), GaussianLikelihood(), data, config, callbacks=[spy], trainer_options=QUIET
    )
    assert len(spy.batches[0]) == 40
    assert set(result.history[0]) == {"loss", "val_loss"}


def test_frozen_parts_move_only_when_their_time_comes():
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model, spy = DeepKernel(backbone, 3, 1, level=2), Spy()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    statistics = backbone[1].running_mean.clone()
    config = TrainingConfig(epochs=3, batch_size=64, trainable={0: "none", 1: 1, 2: "all"})
    fit(model, GaussianLikelihood(), rows(), config, callbacks=[spy], trainer_options=QUIET)

    def moved(step: int, before: dict[str, torch.Tensor]) -> set[str]:
        names = [name for name in start if name.startswith("backbone")]
        return {name for name in names if not torch.equal(spy.steps[step][name], before[name])}

    assert moved(0, start) == set()
    assert moved(1, spy.steps[0]) == {"backbone.2.weight", "backbone.2.bias"}
    assert "backbone.0.weight" in moved(2, spy.steps[1])
    assert not torch.equal(backbone[1].running_mean, statistics)
    with pytest.raises(TypeError, match="got SIKALayer"):
        fit(layer(), GaussianLikelihood(), rows(), config, trainer_options=QUIET)


def test_gradients_are_clipped():
    norms = []

    class Norms(Callback):
        def on_before_zero_grad(self, trainer, pl_module, optimizer):
            grads = [p.grad for p in pl_module.parameters() if p.grad is not None]
            if grads:
                norms.append(float(torch.cat([g.flatten() for g in grads]).norm()))

    config = TrainingConfig(epochs=2, batch_size=64, gradient_clip=1e-3)
    fit(layer(), GaussianLikelihood(), rows(), config, callbacks=[Norms()], trainer_options=QUIET)
    assert norms
    assert max(norms) == pytest.approx(1e-3, rel=1e-3)


def test_weights_of_rows_reach_the_objective():
    x, y = rows(40)
    weight = (torch.arange(40) < 20).float()
    half, full = layer(), layer()
    config = TrainingConfig(epochs=3, batch_size=40, kl_weight=0.0, optimizer="sgd")
    fit(half, GaussianLikelihood(), (x, y, weight * 2), config, trainer_options=QUIET)
    fit(full, GaussianLikelihood(), (x[:20], y[:20]), config, trainer_options=QUIET)
    for one, two in zip(half.parameters(), full.parameters(), strict=True):
        assert_close(one.detach(), two.detach())


def test_datasets_and_named_inputs_work():
    class Named(TensorDataset):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return {"x": x}, y

    config = TrainingConfig(epochs=2, batch_size=16, validation=0.25)
    result = fit(layer(), GaussianLikelihood(), Named(*rows(40)), config, trainer_options=QUIET)
    assert math.isfinite(result.history[-1]["val_loss"])


@pytest.mark.parametrize(
    "name", ["heteroscedastic", "student_t", "bernoulli", "logistic", "softmax", "poisson"]
)
@pytest.mark.parametrize("objective", ["elbo", "predictive"])
def test_every_likelihood_learns(name, objective):
    torch.manual_seed(0)
    x = torch.rand(300, 1)
    label = (x > 0.5).float()
    y = {"bernoulli": label, "logistic": label, "softmax": (3 * x).long()}
    y["poisson"] = (9 * x).round()
    target = y.get(name, torch.sin(6 * x)).squeeze(-1)
    outputs = {"softmax": 3, "heteroscedastic": 2}.get(name, 1)
    model, likelihood = SIKALayer(1, outputs, level=3), build_likelihood(name, min(outputs, 3))
    config = TrainingConfig(
        epochs=15, batch_size=100, learning_rate=0.1, objective=objective, validation=0.2
    )
    history = fit(model, likelihood, (x, target), config, trainer_options=QUIET).history
    assert history[-1]["val_loss"] < history[0]["val_loss"] - 0.1


def test_numbers_are_logged(tmp_path):
    for logger in (CSVLogger(tmp_path, name="csv"), TensorBoardLogger(tmp_path, name="board")):
        config = TrainingConfig(epochs=2, batch_size=32, validation=0.2)
        options = {**QUIET, "logger": logger}
        result = fit(layer(), GaussianLikelihood(), rows(), config, trainer_options=options)
    with (tmp_path / "csv" / "version_0" / "metrics.csv").open() as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]]
    assert losses == pytest.approx([epoch["loss"] for epoch in result.history])
    assert list((tmp_path / "board" / "version_0").glob("events.*"))


@pytest.mark.parametrize("precision", ["bf16-mixed", "auto"])
def test_mixed_precision_trains(monkeypatch, precision):
    monkeypatch.setattr(fitting, "fastest_precision", {"cpu": "bf16-mixed"}.get)
    seen = []
    backbone = nn.Linear(2, 8)
    backbone.register_forward_hook(lambda *call: seen.append(call[-1].dtype))
    config = TrainingConfig(epochs=2, batch_size=32, precision=precision)
    model = DeepKernel(backbone, 8, 1, level=2)
    result = fit(model, GaussianLikelihood(), rows(), config, trainer_options=QUIET)
    assert math.isfinite(result.history[-1]["loss"])
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert set(seen) == {torch.bfloat16}


def test_divergence_and_impossible_options_are_reported(as_users_run):
    likelihood = GaussianLikelihood()
    x, y = rows()
    config = TrainingConfig(epochs=2)
    with pytest.raises(ValueError, match="diverged in epoch 0: the loss is inf"):
        fit(layer(), likelihood, (x, y * 1e30), config, trainer_options=QUIET)
    with pytest.raises(ValueError, match="patience needs held-out rows"):
        fit(layer(), likelihood, (x, y), TrainingConfig(patience=3), trainer_options=QUIET)
    with pytest.raises(ValueError, match=r"got 2 tensors of \[64, 63\] rows"):
        fit(layer(), likelihood, (x, y[1:]), trainer_options=QUIET)
    with pytest.raises(ValueError, match=r"got 4 tensors of \[64, 64, 64, 64\] rows"):
        fit(layer(), likelihood, (x, y, y, y), trainer_options=QUIET)
    with pytest.raises(ValueError, match="at least one row"):
        fit(layer(), likelihood, (x[:0], y[:0]), trainer_options=QUIET)
    config = TrainingConfig(validation=0.5)
    with pytest.raises(ValueError, match="one row cannot be split"):
        fit(layer(), likelihood, (x[:1], y[:1]), config, trainer_options=QUIET)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"optimizer": "lion"},
        {"schedule": "cyclic"},
        {"kl_warmup": 1.0},
        {"learning_rate": 0.0},
        {"kl_weight": -1.0},
        {"kl_weight": math.nan},
        {"weight_decay": -0.1},
        {"likelihood_rate": -1.0},
        {"patience": -1},
        {"num_workers": -1},
    ],
)
def test_configurations_are_checked(wrong):
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must"):
        TrainingConfig(**wrong)


@pytest.mark.parametrize("name", ["epochs", "patience", "learning_rate", "kl_weight", "validation"])
def test_configurations_hold_numbers(name, as_users_run):
    with pytest.raises(TypeError, match=f"^{name} must be .*, got 'many'"):
        TrainingConfig(**{name: "many"})


def test_counts_of_numpy_become_python_s(as_users_run):
    assert type(TrainingConfig(epochs=np.int64(3)).epochs) is int


def test_rows_that_cannot_be_learned_from_are_refused_before_training(as_users_run):
    model, likelihood, (x, y) = layer(), GaussianLikelihood(), rows()
    before = [parameter.clone() for parameter in model.parameters()]
    bad = y.clone()
    bad[[3, 5]] = torch.tensor([torch.nan, torch.inf]).reshape(2, *[1] * (y.ndim - 1))
    with pytest.raises(ValueError, match="2 of 64 rows of y hold NaN or infinity"):
        fit(model, likelihood, (x, bad), trainer_options=QUIET)
    weight = torch.ones(64)
    weight[7] = torch.nan
    with pytest.raises(ValueError, match="1 of 64 rows of weight hold NaN or infinity"):
        fit(model, likelihood, (x, y, weight), trainer_options=QUIET)
    with pytest.raises(TypeError, match=r"rows as torch\.Tensor, got ndarray"):
        fit(model, likelihood, (x.numpy(), y.numpy()), trainer_options=QUIET)
    for data in (x, None):
        with pytest.raises(TypeError, match=r"tensors \(x, y\) or a dataset, got"):
            fit(model, likelihood, data, trainer_options=QUIET)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("total", "fraction", "held"),
    [(2, 0.01, 1), (2, 0.99, 1), (3, 0.5, 2), (10, 0.25, 2), (9, 0.9, 8)],
)
def test_a_split_leaves_rows_on_both_sides(total, fraction, held):
    values = torch.arange(float(total))
    for dataset in (TensorRows(values, values), TensorDataset(values, values)):
        kept, out = split(dataset, fraction, seed=0)
        assert (len(kept), len(out)) == (total - held, held)
        seen = [float(part[i][0]) for part in (kept, out) for i in range(len(part))]
        assert sorted(seen) == values.tolist()


def test_of_equally_good_epochs_the_first_is_kept(as_users_run):
    best, module = BestParameters(), nn.Linear(1, 1)
    for epoch, score in enumerate([2.0, 1.0, 1.0, math.nan]):
        with torch.no_grad():
            module.weight.fill_(epoch)
        trainer = SimpleNamespace(
            callback_metrics={"val_loss": torch.tensor(score)},
            sanity_checking=False,
            current_epoch=epoch,
        )
        best.on_validation_end(trainer, module)
    best.restore(module)
    assert (best.epoch, best.score, module.weight.item()) == (1, 1.0, 1.0)
