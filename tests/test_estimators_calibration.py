"""Noise, temperature and architecture are those under which rows held out are most probable."""

import copy

import numpy as np
import pytest
import torch

from sikagp.calibration import temper
from sikagp.estimators import SIKAClassifier, SIKARegressor, recipes
from sikagp.estimators.calibration import MAX_ROWS, SPREAD, held_out_temperature, refit_noise
from sikagp.estimators.preparation import Rows, hold_out
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


def test_held_out_rows_and_the_others_are_all_rows():
    weight = np.arange(20.0) + 1
    whole = Rows(np.arange(40.0).reshape(20, 2), np.arange(20.0)[:, None], weight)
    everything, learned, held_out = hold_out(whole, 6)
    assert everything is whole
    assert [len(part.x) for part in (learned, held_out)] == [14, 6]
    for values, parts in zip(whole, zip(learned, held_out, strict=True), strict=True):
        assert np.array_equal(np.sort(np.concatenate(parts), axis=0), values)
    assert np.array_equal(learned.x[:, 0] / 2, learned.y[:, 0])  # rows stay together


@pytest.mark.parametrize(
    ("count", "options", "held_out"),
    [
        (600, {"hidden": (2,)}, 60),
        (600, {"hidden": ()}, 0),
        (100, {"hidden": (2,)}, 0),
        (600, {"hidden": (2,), "likelihood": "student_t"}, 0),
        (600, {"likelihood": "student_t"}, 60),
    ],
)
def test_noise_is_set_by_rows_that_were_not_learned_from(monkeypatch, count, options, held_out):
    seen = {}
    train, calibrate = SIKARegressor._train, SIKARegressor._calibrate

    def spy_train(self, rows, *arguments, **keywords):
        seen.setdefault("learned", rows.x)
        return train(self, rows, *arguments, **keywords)

    def spy_calibrate(self, split):
        seen["calibrated"] = split.held_out.x
        calibrate(self, split)

    monkeypatch.setattr(SIKARegressor, "_train", spy_train)
    monkeypatch.setattr(SIKARegressor, "_calibrate", spy_calibrate)
    X = np.random.RandomState(0).rand(count, 1)
    SIKARegressor(level=2, max_epochs=1, **options).fit(X, X[:, 0])
    assert len(seen["learned"]) == count - held_out
    assert len(np.intersect1d(seen["learned"], seen["calibrated"])) == (0 if held_out else count)


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic", "student_t"])
def test_the_architecture_is_chosen_by_rows_that_were_not_learned_from(monkeypatch, likelihood):
    trials = []
    score = SIKARegressor._score

    def spy(self, trial, split):
        x = torch.from_numpy(self._input(split.held_out.x))
        y = torch.from_numpy(self._output(split.held_out.y))
        with torch.no_grad():
            expected = float(trial.members[0](x).log_prob(y).sum())
        found = score(self, trial, split)
        assert found == pytest.approx(expected)
        trials.append((trial, found))
        return found

    monkeypatch.setattr(SIKARegressor, "_score", spy)
    monkeypatch.setattr(recipes, "CLOSE", 1e6)  # all are trained to the end
    random = np.random.RandomState(0)
    X = random.rand(600, 3)
    y = np.sin(9 * X.sum(1)) + 0.1 * random.randn(600)
    options = {"level": 2, "max_epochs": 10, "likelihood": likelihood, "random_state": 0}
    model = SIKARegressor(**options).fit(X, y)
    # With Gaussian noise pairs are learned in two ways, of which the same rows choose one.
    ways = 2 if likelihood == "gaussian" else 0
    lengths = [len(trial.results[0].history) for trial, _ in trials]
    assert lengths == [1, 1, 1] + [2] * (ways + 3)
    best = max(trials[3:], key=lambda pair: pair[1])[0]
    assert model._members is best.members
    assert model.results_ is best.results
    again = SIKARegressor(**{**options, "hidden": model.hidden_})
    if likelihood == "gaussian":  # which holds rows out for its noise as well
        assert np.array_equal(again.fit(X, y).predict(X), model.predict(X))


def test_what_falls_behind_early_is_not_trained_to_the_end(monkeypatch):
    score = {(3,): -recipes.CLOSE - 1, (64,): 0.0, recipes.PAIRS: -recipes.CLOSE + 1}
    trained = []

    def architecture(members):
        model = members[0].model
        return recipes.PAIRS if model.pairs else (model.layers[0].out_features,)

    def spy(self, rows, plan, **options):
        trained.append((architecture(self._members), plan.epochs))
        return []

    monkeypatch.setattr(SIKARegressor, "_train", spy)
    monkeypatch.setattr(SIKARegressor, "_calibrate", lambda *_: None)
    monkeypatch.setattr(SIKARegressor, "_concluded", lambda self, trial, split: trial)
    monkeypatch.setattr(
        SIKARegressor, "_score", lambda self, trial, split: score[architecture(trial.members)]
    )
    X = np.random.RandomState(0).rand(600, 3)
    model = SIKARegressor(max_epochs=360).fit(X, X[:, 0])
    assert [epochs for _, epochs in trained[:3]] == [10, 10, 10]
    assert trained[3:] == [((64,), 40), (recipes.PAIRS, 40)]
    assert model.hidden_ == (64,)


@pytest.mark.parametrize(("features", "chosen"), [(1, {(1,), (64,)}), (17, {(17,), (64,)})])
def test_pairs_are_tried_for_few_features_only(monkeypatch, features, chosen):
    tried = []
    build = SIKARegressor._build

    def spy(self, rows, hidden):
        tried.append(hidden)
        return build(self, rows, hidden)

    monkeypatch.setattr(SIKARegressor, "_build", spy)
    X = np.random.RandomState(0).rand(500, features)
    SIKARegressor(level=1, max_epochs=1).fit(X, X[:, 0])
    assert set(tried) == chosen


def test_wide_inputs_leave_no_choice():
    X = np.random.RandomState(0).rand(500, 64)
    assert SIKARegressor(level=1, max_epochs=1).fit(X, X[:, 0]).hidden_ == (64,)


def predicted(count: int, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities whose logarithms are too small by a factor, and labels of the true ones."""
    generator = torch.Generator().manual_seed(count)
    logits = 3 * torch.randn(count, 4, generator=generator, dtype=torch.float64)
    label = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return (logits * temperature).softmax(1), label


def test_many_rows_find_the_temperature_and_few_stay_near_one():
    probs, label = predicted(20_000, 0.6)
    assert held_out_temperature(probs, label, torch.ones(20_000).double()) == pytest.approx(
        0.6, rel=0.03
    )
    sure = torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    one = held_out_temperature(sure, torch.tensor([0]), torch.ones(1).double())
    many = held_out_temperature(
        sure.expand(500, 2), torch.zeros(500).long(), torch.ones(500).double()
    )
    assert 0.2 < many < 0.7 < one < 1


def test_no_other_temperature_is_more_probable():
    probs, label = predicted(50, 1.5)
    weight = torch.rand(50, generator=torch.Generator().manual_seed(0)).double()
    found = held_out_temperature(probs, label, weight)

    def posterior(temperature: float) -> float:
        log_probs = temper(probs, temperature)[torch.arange(50), label]
        return float(weight @ log_probs) - np.log(temperature) ** 2 / (2 * SPREAD**2)

    assert posterior(found) > max(posterior(found * 1.02), posterior(found / 1.02))


def test_a_repeated_row_sets_the_temperature_as_one_of_twice_the_weight():
    probs, label = predicted(30, 0.5)
    weight = torch.arange(30) % 3
    twice = held_out_temperature(
        probs.repeat_interleave(weight, 0),
        label.repeat_interleave(weight),
        torch.ones(int(weight.sum())).double(),
    )
    assert held_out_temperature(probs, label, weight.double()) == pytest.approx(twice)


@pytest.fixture(scope="module")
def rings():
    random = np.random.RandomState(0)
    X = random.randn(600, 2)
    return X, np.digitize((X**2).sum(1) + 0.1 * random.randn(600), [0.7, 2.0])


def test_the_temperature_is_set_by_rows_that_were_not_learned_from(monkeypatch, rings):
    learned, held_out = [], []
    train, calibrate = SIKAClassifier._train, SIKAClassifier._calibrate

    def spy_train(self, rows, plan, **options):
        learned.append(rows.x)
        return train(self, rows, plan, **options)

    def spy_calibrate(self, split):
        held_out.append(split.held_out.x)
        calibrate(self, split)

    monkeypatch.setattr(SIKAClassifier, "_train", spy_train)
    monkeypatch.setattr(SIKAClassifier, "_calibrate", spy_calibrate)
    model = SIKAClassifier(level=1, max_epochs=4, random_state=0).fit(*rings)
    assert model.temperature_ != 1
    [x], [other] = learned, held_out
    assert (len(x), len(other), len(np.intersect1d(x[:, 0], other[:, 0]))) == (540, 60, 0)


def test_probabilities_are_tempered_by_rows_held_out(rings, tmp_path):
    X, y = rings
    model = SIKAClassifier(level=2, max_epochs=60, random_state=0).fit(X, y)
    assert model.temperature_ < 0.97
    tempered = model.predict_proba(X)
    model.save(tmp_path / "model")
    again = SIKAClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(X), tempered)
    temperature, model.temperature_ = model.temperature_, 1.0
    expected = temper(torch.from_numpy(model.predict_proba(X)), temperature).exp()
    np.testing.assert_allclose(tempered, expected.numpy(), rtol=1e-9)


def test_few_rows_have_no_temperature(rings):
    X, y = rings
    model = SIKAClassifier(level=1, max_epochs=2).fit(X[:499], y[:499])
    assert model.temperature_ == 1
