"""Text experiments: features on disk, fine-tuning, peers for texts only, scores, the task."""

import pytest
import torch

from sikagp.experiments.cell import plan
from sikagp.experiments.data import Intents, Utterances
from sikagp.experiments.methods import Problem
from sikagp.experiments.recipe import load_recipes
from sikagp.experiments.tasks import load_criteria
from sikagp.experiments.tasks import text as task
from sikagp.experiments.text import features as disk
from sikagp.experiments.text import finetuning
from sikagp.experiments.text.finetuning import (
    FineTuning,
    encode_below,
    finetuned_features,
    upper_features,
)
from sikagp.experiments.text.mahalanobis import Mahalanobis
from sikagp.experiments.text.random_features import SNGP, RandomFeatureGP
from sikagp.experiments.text.scores import detection_scores, doubts, in_scope_scores
from sikagp.integrations.transformers.encoders import tiny_encoder
from sikagp.integrations.transformers.features import encode, tokenize
from sikagp.integrations.transformers.modeling import encoder_layers
from tests.helpers import assert_close
from tests.text_rows import NAMES, labelled_texts


@pytest.fixture
def encoded():
    rows = labelled_texts(12)
    encoder = tiny_encoder(rows.texts, width=16)
    return encoder.model, tokenize(encoder.tokenizer, rows.texts, 48), rows.labels


def test_features_are_computed_once(encoded, tmp_path, monkeypatch):
    model, tokens, _ = encoded
    first = disk.cached_features(model, tokens, "mean", tmp_path)
    assert first.equal(encode(model, tokens, "mean"))

    def refuse(*args):
        raise AssertionError("computed again")

    monkeypatch.setattr(disk, "encode", refuse)
    assert disk.cached_features(model, tokens, "mean", tmp_path).equal(first)
    with pytest.raises(AssertionError, match="again"):
        disk.cached_features(model, tokens, "cls", tmp_path)
    with torch.no_grad():
        next(model.parameters()).add_(1)
    with pytest.raises(AssertionError, match="again"):
        disk.cached_features(model, tokens, "mean", tmp_path)


def test_upper_layers_continue_lower_ones(encoded, tmp_path):
    model, tokens, _ = encoded
    states, features = encode_below(model, tokens, 1, "mean", tmp_path)
    assert [len(state) for state in states] == [len(row) for row in tokens]
    expected = encode(model, tokens, "mean")
    torch.testing.assert_close(features, expected)
    layers = torch.nn.ModuleList(encoder_layers(model)[-1:])
    row = upper_features(layers, states[3].float().unsqueeze(0), "mean")
    # The states are kept in half precision.
    torch.testing.assert_close(row.detach(), expected[3:4], rtol=1e-2, atol=1e-2)


def test_finetuning_separates_classes_and_is_kept(encoded, tmp_path, monkeypatch):
    model, tokens, labels = encoded
    original = {name: value.clone() for name, value in model.state_dict().items()}
    options = FineTuning(layers=1, epochs=40, encoder_rate=1e-2, head_rate=3e-2, batch_size=8)

    def finetuned(seed):
        parts = {"train": tokens, "test": tokens[:5]}
        return finetuned_features(
            model, parts, labels, options, pooling="mean", folder=tmp_path, seed=seed
        )

    found = finetuned(0)
    before = _spread(encode(model, tokens, "mean"), labels)
    assert _spread(found["train"], labels) > 2 * before
    torch.testing.assert_close(found["test"], found["train"][:5])
    assert all(value.equal(original[name]) for name, value in model.state_dict().items())
    assert not finetuned(1)["train"].equal(found["train"])

    def refuse(*args):
        raise AssertionError("trained again")

    monkeypatch.setattr(finetuning, "_train", refuse)
    assert finetuned(0)["train"].equal(found["train"])
    with pytest.raises(AssertionError, match="again"):
        finetuned(2)


def _spread(features, labels):
    """Variance between classes over the variance within them."""
    means = torch.stack([features[labels == label].mean(0) for label in range(len(NAMES))])
    within = (features - means[labels]).square().sum(-1).mean()
    return means.var(0).sum() / within


def test_random_features_approximate_the_kernel():
    head = RandomFeatureGP(2, 3, num_features=20000, lengthscale=1.5)
    x = torch.randn(5, 2)
    expected = torch.exp(-torch.cdist(x, x).square() / (2 * 2 * 1.5**2))
    torch.testing.assert_close(head.features(x) @ head.features(x).mT, expected, atol=0.03, rtol=0)


def test_the_covariance_is_that_of_bayesian_linear_regression():
    head = RandomFeatureGP(2, 3, num_features=16, ridge=0.5).eval()
    x, new = torch.randn(40, 2), torch.randn(4, 2)
    assert_close(head(new).variance[:, 0], head.features(new).square().sum(-1) / 0.5)
    head.set_covariance(x)
    phi, phi_new = head.features(x).double(), head.features(new).double()
    # Woodbury: the same posterior in the space of the rows.
    gram = phi @ phi.mT / 0.5 + torch.eye(40)
    cross = phi_new @ phi.mT / 0.5
    expected = phi_new.square().sum(-1) / 0.5 - (cross @ gram.inverse() * cross).sum(-1)
    torch.testing.assert_close(head(new).variance[:, 1].double(), expected, rtol=1e-3, atol=1e-5)
    assert head.train()(new).variance.abs().max() == 0
    head.weight.data.fill_(0.1)
    assert_close(head.kl_divergence(), torch.tensor(0.5 * 0.5 * 48 * 0.01))


def clusters(rows=60):
    labels = torch.arange(3).repeat(rows // 3)
    centers = 4 * torch.eye(3, 6)
    return centers[labels] + 0.5 * torch.randn(rows, 6), labels


@pytest.mark.parametrize("kind", [SNGP, Mahalanobis])
def test_peers_classify_and_doubt_what_is_far(kind, tmp_path):
    options = {} if kind is Mahalanobis else {"embedding": 8, "num_features": 256}
    training = {"epochs": 15, "batch_size": 10, "learning_rate": 5e-2, "kl_weight": 0.01}
    method = kind(Problem(6, 3, "classification", options, training))
    x, y = clusters()
    method.fit((x, y), None, seed=0)
    test, labels = clusters()
    draws = method.predict(test)
    assert draws.shape[1:] == (60, 3)
    assert (draws.mean(0).argmax(-1) == labels).float().mean() > 0.95
    far = -8 * torch.ones(10, 6) + torch.randn(10, 6)
    if kind is Mahalanobis:
        assert method.doubt(far).min() > method.doubt(test).max()
    else:
        variance = method.model(far).variance.mean()
        assert variance > 1.5 * method.model(test).variance.mean()


def test_mahalanobis_distances_are_those_of_the_definition():
    method = Mahalanobis(Problem(6, 3, "classification", {"shrinkage": 0.0}, {}))
    x, y = clusters()
    method.fit((x, y), None, seed=0)
    within = x - method.means[y]
    inverse = (within.mT @ within / len(x)).inverse()
    difference = x[:5] - method.means[1]
    expected = (difference @ inverse * difference).sum(-1)
    torch.testing.assert_close(method.distances(x[:5])[:, 1], expected, rtol=1e-3, atol=1e-3)


def test_sngp_needs_an_embedding():
    with pytest.raises(ValueError, match="embedding"):
        SNGP(Problem(6, 3, "classification", {}, {}))


def test_scores():
    logits = torch.randn(8, 200, 3) + 3 * torch.nn.functional.one_hot(torch.arange(200) % 3, 3)
    draws, labels = logits.softmax(-1), torch.arange(200) % 3
    found = in_scope_scores(draws, labels, draws, labels)
    assert found["accuracy"] == (draws.mean(0).argmax(-1) == labels).float().mean()
    assert found["nll_tempered"] <= found["nll"]
    every = doubts(draws)
    centred = logits - logits.mean(-1, keepdim=True)
    assert_close(every["logit_variance"], centred.var(0, correction=0).sum(-1))
    assert_close(every["max_probability"], -draws.mean(0).amax(-1))
    assert_close(doubts(draws, 1.0)["entropy"], every["entropy"])
    high = {name: value + 10 for name, value in every.items()}
    best = detection_scores(every, high)
    assert all(value == (0 if "fpr" in name else 1) for name, value in best.items())
    assert set(best) == {f"{m}_{name}" for m in ("auroc", "auprc", "fpr95") for name in every}


def intents() -> Intents:
    def part(rows, seed, unknown=0):
        texts = labelled_texts(rows, unknown=unknown, seed=seed)
        return Utterances(tuple(texts.texts), texts.labels)

    splits = ("train", "validation", "test")
    return Intents(
        tuple(NAMES),
        {name: part(12, seed) for seed, name in enumerate(splits)},
        {name: part(0, seed, 12) for seed, name in enumerate(splits)},
    )


RECIPES = [recipe for recipe in load_recipes() if recipe.experiment == "text"]


def test_there_is_a_recipe_for_every_head():
    rows = {recipe.row for recipe in RECIPES}
    assert {"DKL-SIKA", "DKL-SIKA (best)", "DAK", "SVDKL", "SNGP", "Mahalanobis"} <= rows
    assert {"Linear", "MC dropout", "Ensemble of 4", "Bayesian linear"} <= rows


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_recipe_runs(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(task, "clinc150", intents)
    monkeypatch.setattr(task, "text_cache", lambda: tmp_path / "cache")
    (cell,) = plan([recipe], "smoke", tmp_path, seeds=1)
    found = task.run(cell)
    assert 0 <= found["accuracy"] <= 1
    assert 0 <= found["auroc"] <= 1
    assert found["nll_tempered"] > 0
    assert 0 <= found["validation_auroc_entropy"] <= 1
    assert set(load_criteria("text")) <= set(found)
    assert (found["minutes_per_epoch"] > 0) == (recipe.method != "mahalanobis")


def test_pretrained_features_stand_beside_finetuned_ones(tmp_path):
    def features(**options):
        chosen = task.TextOptions(encoder="tiny", **options)
        return task.prepare(intents(), chosen, seed=0, folder=tmp_path)[0]

    tuning = {"layers": 1, "epochs": 1}
    tuned, as_they_were = features(finetuning=tuning), features()
    both = features(finetuning=tuning, pretrained=True)
    for name, rows in both.items():
        width = rows.shape[-1] // 2
        assert rows[:, :width].equal(tuned[name])
        assert rows[:, width:].equal(as_they_were[name])
    assert_close(both["train"].mean(0), torch.zeros(2 * width))
    assert_close(as_they_were["train"].std(0).mean(), torch.tensor(1.0))


def test_quick_looks_take_the_first_texts_of_every_class():
    labels = torch.tensor([0, 0, 1, 0, 1, 1])
    part = task._first_of_each(Utterances(tuple("abcdef"), labels), 2)
    assert part.texts == ("a", "b", "c", "e")
    assert part.labels.tolist() == [0, 0, 1, 1]
