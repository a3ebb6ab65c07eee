"""Scores of image draws against scikit-learn, options of the task, and when there is an ELBO."""

import math
from pathlib import Path

import pytest
import torch
from sklearn import metrics as sklearn_metrics

from sikagp.experiments.cell import Cell
from sikagp.experiments.data import Images
from sikagp.experiments.images.rows import FrozenInputs, LiveInputs, ViewRows
from sikagp.experiments.images.scores import (
    classification_scores,
    corruption_scores,
    detection_scores,
    held_out_scores,
)
from sikagp.experiments.recipe import Recipe
from sikagp.experiments.tasks import images as task
from sikagp.experiments.tasks.images import DATA, ImageOptions


def draws_of(rows: int, *, samples: int = 3, scale: float = 2.0) -> torch.Tensor:
    return (scale * torch.randn(samples, rows, 4)).softmax(-1)


def entropy(probs: torch.Tensor) -> torch.Tensor:
    return -(probs * probs.log()).sum(-1)


def test_scores_are_those_of_the_averaged_probabilities():
    draws, labels = torch.randn(3, 300, 4).double().softmax(-1), torch.randint(4, (300,))
    found = classification_scores(draws, labels)
    probs = draws.mean(0)
    assert found["accuracy"] == pytest.approx((probs.argmax(-1) == labels).double().mean().item())
    assert found["nll"] == pytest.approx(sklearn_metrics.log_loss(labels, probs), rel=1e-6)
    one_hot = torch.nn.functional.one_hot(labels, 4)
    assert found["brier"] == pytest.approx((probs - one_hot).square().sum(-1).mean().item())
    assert set(found) == {"accuracy", "nll", "ece", "brier"}


def test_foreign_images_are_the_positive_ones():
    known, foreign = draws_of(200, scale=3.0), draws_of(120, scale=2.0)
    found = detection_scores(known, foreign)
    marks = [0] * 200 + [1] * 120
    total = torch.cat([entropy(known.mean(0)), entropy(foreign.mean(0))])
    inner = torch.cat([entropy(known).mean(0), entropy(foreign).mean(0)])
    for score, suffix in ((total, ""), (total - inner, "_mutual_information")):
        auroc = sklearn_metrics.roc_auc_score(marks, score)
        auprc = sklearn_metrics.average_precision_score(marks, score)
        assert found[f"auroc{suffix}"] == pytest.approx(auroc, abs=1e-3)
        assert found[f"auprc{suffix}"] == pytest.approx(auprc, abs=5e-3)
        false, true, _ = sklearn_metrics.roc_curve(marks, score, drop_intermediate=False)
        assert found[f"fpr95{suffix}"] == pytest.approx(false[true >= 0.95].min(), abs=1e-3)


def test_the_temperature_comes_from_held_out_images_alone():
    held, labels = draws_of(400), torch.randint(4, (400,))
    one = held_out_scores(held, labels, draws_of(50), torch.zeros(50).long())
    other = held_out_scores(held, labels, draws_of(50), torch.ones(50).long())
    assert one["temperature"] == other["temperature"]
    validation = classification_scores(held, labels)
    for name in ("accuracy", "nll", "ece"):
        assert one[f"validation_{name}"] == other[f"validation_{name}"] == validation[name]


def test_a_temperature_changes_likelihood_and_calibration_as_a_power_does():
    held, labels, draws = draws_of(400), torch.randint(4, (400,)), draws_of(50)
    target = torch.randint(4, (50,))
    found = held_out_scores(held, labels, draws, target)
    power = draws.mean(0) ** (1 / found["temperature"])
    expected = classification_scores((power / power.sum(-1, keepdim=True)).unsqueeze(0), target)
    assert found["nll_tempered"] == pytest.approx(expected["nll"], rel=1e-5)
    assert found["ece_tempered"] == pytest.approx(expected["ece"], rel=1e-4)


def test_corrupted_images_keep_their_labels_and_accuracies_are_averaged():
    pixels = torch.randint(0, 256, (6, 1, 8, 8), dtype=torch.uint8)
    images = Images(pixels, torch.tensor([0, 1, 2, 3, 0, 1]), 4, "made here")
    seen = []

    def predict(changed: Images) -> torch.Tensor:
        seen.append(changed.pixels)
        assert torch.equal(changed.labels, images.labels)
        right = torch.eye(4)[images.labels]
        return (right if len(seen) % 3 == 0 else right.roll(1, -1)).unsqueeze(0) * 0.96 + 0.01

    found = corruption_scores(predict, images)
    assert len(seen) == 15
    assert not any(torch.equal(a, b) for i, a in enumerate(seen) for b in seen[:i])
    assert found["corrupted_accuracy"] == pytest.approx(1 / 3)
    assert {"corrupted_nll", "corrupted_ece", "blur3_brier"} <= set(found)


def image_set(rows: int = 60) -> Images:
    pixels = torch.randint(0, 256, (rows, 3, 32, 32), dtype=torch.uint8)
    return Images(pixels, torch.arange(rows) % 4, 4, "made here")


def test_options_read_the_split_they_name(monkeypatch):
    asked = []

    def load(name):
        return lambda split: asked.append((name, split)) or image_set()

    for name in ("cifar10", "svhn"):
        monkeypatch.setitem(DATA, name, load(name))
    options = ImageOptions(name="cifar10", backbone="fast", ood="svhn", rows=20, test_rows=7)
    assert [len(options.load(split)) for split in ("train", "test", "ood")] == [20, 7, 7]
    assert asked == [("cifar10", "train"), ("cifar10", "test"), ("svhn", "test")]
    assert len(ImageOptions(name="cifar10", backbone="fast").load("test")) == 60


def test_depths_are_read_from_names():
    assert ImageOptions(name="cifar10", backbone="resnet20").depth == 20
    assert ImageOptions(name="cifar10", backbone="resnet56").depth == 56


def test_held_out_images_are_a_rounded_share_in_order():
    options = ImageOptions(name="cifar10", backbone="fast", validation=0.11)
    kept, held = options.split(image_set(), 5)
    assert len(held) == 7
    for part in (kept, held):
        assert part.tolist() == sorted(part.tolist())
    assert held.tolist() != list(range(7))


@pytest.mark.parametrize(
    ("method", "training", "defined"),
    [
        ("sika", {}, True),
        ("sika", {"objective": "elbo", "kl_weight": 1}, True),
        ("sika", {"objective": "predictive"}, False),
        ("sika", {"kl_weight": 0.1}, False),
        ("network", {}, False),
        ("ensemble", {}, False),
        ("own-layer", {}, False),
    ],
)
def test_only_the_elbo_is_called_one(method, training, defined):
    recipe = Recipe(
        name="a", table="b", row="c", experiment="images", method=method, training=training
    )
    cell = Cell(recipe, "smoke", 0, Path("nowhere"))
    found = task._elbo(cell, [{"loss": 3.0}, {"loss": 1.25}])
    assert found == -1.25 if defined else math.isnan(found)
    assert math.isnan(task._elbo(cell, []))


class Mean(torch.nn.Module):
    """A backbone of one feature."""

    num_features = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((1, 2, 3)).unsqueeze(-1)


def test_views_are_augmented_copies_of_the_same_images(tmp_path):
    images = image_set(5)
    normalise = task.NORMALISATIONS["cifar10"]
    inputs = FrozenInputs(Mean(), normalise, views=3, folder=tmp_path)
    rows = torch.tensor([4, 1])
    views = inputs.train(images, rows, seed=0).tensors[0]
    assert views.shape == (2, 3, 1)
    torch.testing.assert_close(views[:, 0], Mean()(normalise(images.pixels[rows])))
    assert (views[:, 0] - views[:, 1]).abs().min() > 0
    assert (views[:, 1] - views[:, 2]).abs().min() > 0


def test_batches_pick_views_by_seed():
    views = torch.arange(40.0).view(1, 40, 1).expand(6, 40, 1)
    batches = [ViewRows(views, torch.arange(6), seed=seed).__getitems__([0, 3]) for seed in (0, 1)]
    assert batches[0][0].tolist() != batches[1][0].tolist()
    assert batches[0][1].tolist() == [0, 3]
    feature, label = ViewRows(views, torch.arange(6), seed=0)[3]
    assert feature.shape == (1,)
    assert label.item() == 3


def test_backbones_are_prepared_by_normalised_training_images():
    images = image_set(20)
    normalise = task.NORMALISATIONS["cifar10"]
    live = LiveInputs("fast-tiny", normalise, augmented=False, examples=images)
    module, expected = (live.method_options["backbone"]() for _ in range(2))
    expected.prepare(normalise(images.pixels))
    torch.testing.assert_close(module.whiten.weight, expected.whiten.weight)
    assert module is not expected
