"""What all methods share: reports, held-out rows, settings, names, clocks and ensembles."""

import logging
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from sikagp.experiments.methods import METHODS, FitReport, build_method, timing
from sikagp.experiments.methods.base import hold_out, tensors
from sikagp.experiments.methods.ensembles import Ensemble, OnColumns
from sikagp.experiments.methods.settings import Setting
from sikagp.experiments.methods.timing import EpochLog, EpochTimer
from sikagp.training.data import TensorRows

SIZES = {"in_features": 3, "out_features": 2}


def build(name: str, task: str = "classification", training: dict | None = None, **options):
    return build_method(name, **SIZES, task=task, options=options, training=training or {})


def test_time_per_epoch_is_an_average_and_no_number_without_epochs():
    assert FitReport(6.0, 4).seconds_per_epoch == 1.5
    assert math.isnan(FitReport(6.0, 0).seconds_per_epoch)


def test_a_tenth_of_the_rows_is_held_out_if_nobody_gives_others():
    x, y = torch.arange(50.0).unsqueeze(-1), torch.arange(50.0)
    train, held = hold_out((x, y), None, 3)
    parts = [train[i][1].item() for i in range(len(train))], [row[1].item() for row in held]
    assert [len(part) for part in parts] == [45, 5]
    assert sorted(parts[0] + parts[1]) == y.tolist()
    again, other = (hold_out((x, y), None, seed)[1] for seed in (3, 4))
    assert [row[1].item() for row in again] == parts[1]
    assert [row[1].item() for row in other] != parts[1]
    given = x[:7], y[:7]
    assert hold_out((x, y), given, 3) == ((x, y), given)


def test_rows_are_tensors_or_refused():
    x, y = torch.randn(4, 2), torch.randn(4)
    assert all(a is b for a, b in zip(tensors((x, y)), (x, y), strict=True))
    assert all(a is b for a, b in zip(tensors(TensorRows(x, y)), (x, y), strict=True))


@pytest.mark.usefixtures("as_users_run")
def test_rows_of_another_kind_are_named():
    with pytest.raises(TypeError, match=r"expected tensors \(x, y\), got dict"):
        tensors({"x": torch.randn(4)})


@pytest.mark.parametrize(
    ("options", "normalises", "plain"),
    [
        ({}, False, True),
        ({"normalisation": "none"}, False, True),
        ({"normalisation": "batch"}, True, False),
        ({"embedding": 4}, True, False),
        ({"embedding": 4, "normalisation": "none"}, False, False),
        ({"backbone": torch.nn.Identity}, True, False),
        ({"backbone": torch.nn.Identity, "normalisation": "none"}, False, False),
    ],
)
def test_what_stands_between_inputs_and_head(options, normalises, plain):
    setting = Setting(**options)
    assert (setting.normalises, setting.plain) == (normalises, plain)


def test_methods_have_their_own_defaults_and_users_the_last_word():
    assert build("svdkl").problem.training == {"likelihood_rate": 1.0}
    assert build("svdkl", training={"likelihood_rate": 0.5}).problem.training == {
        "likelihood_rate": 0.5
    }
    for name in ("network", "mc-dropout"):
        setting = build(name).setting
        assert (setting.train_samples, setting.test_samples) == (1, 1)
        assert build(name, test_samples=7).setting.test_samples == 7
    setting = build("sika").setting
    assert (setting.train_samples, setting.test_samples) == (20, 100)


def test_an_ensemble_has_four_networks_unless_told_otherwise():
    assert [member.name for member in build("ensemble").members] == ["network"] * 4
    two = build("ensemble", member="sika", members=2, level=3).members
    assert [member.name for member in two] == ["sika"] * 2
    assert two[0].head_options == {"level": 3}
    with pytest.raises(ValueError, match="members"):
        build("ensemble", members=0)


def test_options_are_those_of_the_setting_or_of_the_head():
    method = build("sika", level=5, embedding=4, lengthscale=0.3)
    assert method.setting.embedding == 4
    assert method.head_options == {"level": 5, "lengthscale": 0.3}


@pytest.mark.parametrize("name", METHODS)
def test_impossible_sizes_are_refused_by_name(name):
    with pytest.raises(ValueError, match="out_features"):
        build_method(
            name, in_features=2, out_features=0, task="regression", options={}, training={}
        )


class Member:
    """Learns nothing, and notes what it was asked."""

    def fit(self, train, validation, *, seed, folder=None, progress=False):
        self.seed, self.folder, self.progress = seed, folder, progress
        self.rows = train, validation
        return FitReport(2.0 + seed, 3, [{"loss": float(seed)}])

    def predict(self, x: Tensor) -> Tensor:
        return torch.full((2, len(x), 2), float(self.seed))


def test_members_differ_by_seed_and_folder_and_their_times_add_up():
    ensemble = Ensemble([Member() for _ in range(3)])
    rows = torch.randn(5, 2), torch.zeros(5)
    report = ensemble.fit(rows, None, seed=1, folder=Path("run"), progress=True)
    seeds = [member.seed for member in ensemble.members]
    assert seeds[0] == 1
    assert len(set(seeds)) == 3
    assert [m.folder for m in ensemble.members] == [Path(f"run/member{i}") for i in range(3)]
    assert all(member.progress for member in ensemble.members)
    assert report.seconds == sum(2.0 + seed for seed in seeds)
    assert (report.epochs, report.history) == (3, [{"loss": 1.0}])
    draws = ensemble.predict(rows[0])
    assert draws[:, 0, 0].tolist() == [float(seed) for seed in seeds for _ in range(2)]
    ensemble.fit(rows, None, seed=0)
    assert [member.folder for member in ensemble.members] == [None] * 3


def test_a_method_on_columns_learns_and_predicts_by_them_alone():
    member = Member()
    method = OnColumns(member, [1, 3])
    x, y = torch.randn(5, 4), torch.randn(5)
    method.fit((x, y), (x + 1, y - 1), seed=4, folder=Path("run"), progress=True)
    assert (member.seed, member.folder, member.progress) == (4, Path("run"), True)
    (seen, targets), (held_out, others) = member.rows
    assert torch.equal(seen, x[:, 1:3])
    assert torch.equal(held_out, x[:, 1:3] + 1)
    assert torch.equal(targets, y)
    assert torch.equal(others, y - 1)
    method.fit((x, y), None, seed=4)
    assert member.rows[1] is None
    member.predict = lambda part: part.unsqueeze(0)
    assert torch.equal(method.predict(x)[0], x[:, 1:3])


def test_members_take_further_options_in_turn():
    each = [{"columns": [1, 2], "level": 3}, {"level": 4}]
    ensemble = build("ensemble", member="sika", members=3, each=each, lengthscale=0.3)
    first, second, third = ensemble.members
    assert isinstance(first, OnColumns)
    assert (first.columns, first.method.problem.in_features) == (slice(1, 2), 1)
    assert first.method.head_options == {"level": 3, "lengthscale": 0.3}
    assert second.head_options == {"level": 4, "lengthscale": 0.3}
    assert third.method.head_options == first.method.head_options


@pytest.mark.parametrize("columns", [[0, 9], [1, 1], [-1, 1]])
def test_columns_that_are_not_there_are_refused(columns):
    with pytest.raises(ValueError, match="columns must lie in"):
        build("ensemble", member="sika", each=[{"columns": columns}])


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    mine = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", mine)
    monkeypatch.setattr(timing.time, "monotonic", mine)
    return mine


def run_epoch(timer: EpochTimer, clock: Clock, epoch: int, seconds: float) -> None:
    """Two batches, then validation for a long time."""
    trainer = SimpleNamespace(current_epoch=epoch)
    timer.on_train_epoch_start(trainer, None)
    for _ in range(2):
        clock.now += seconds / 2
        timer.on_train_batch_end(trainer)
    clock.now += 100


@pytest.mark.usefixtures("as_users_run")  # a trainer is what has an epoch
def test_epochs_are_timed_without_validation_and_a_broken_one_is_timed_again(clock):
    timer = EpochTimer()
    for epoch, seconds in enumerate((1.0, 2.0, 5.0)):
        run_epoch(timer, clock, epoch, seconds)
    assert timer.seconds == [1, 2, 5]
    resumed = EpochTimer()
    resumed.load_state_dict(timer.state_dict())
    run_epoch(resumed, clock, 2, 3.0)  # the checkpoint was written after the second
    assert resumed.seconds == [1, 2, 3]
    assert timer.seconds == [1, 2, 5]


@pytest.mark.usefixtures("as_users_run")
def test_a_run_says_once_a_minute_how_far_it_is(clock, caplog):
    caplog.set_level(logging.INFO, "sikagp.experiments")
    log = EpochLog()
    for epoch in range(6):
        clock.now += 25
        metrics = {"loss": torch.tensor(1.0 - epoch / 10)}
        trainer = SimpleNamespace(current_epoch=epoch, max_epochs=6, callback_metrics=metrics)
        log.on_train_epoch_end(trainer, None)
    assert caplog.messages == ["epoch 3 of 6: loss 0.8000", "epoch 6 of 6: loss 0.5000"]
