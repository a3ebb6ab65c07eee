"""Image recipes from files in the publishers' formats to metrics."""

from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import idx, put
from safetensors.torch import load_file

from sikagp.experiments.backbones import BACKBONES
from sikagp.experiments.backbones.checkpoints import BACKBONE_FILE, load_last
from sikagp.experiments.cell import Cell
from sikagp.experiments.data import sources
from sikagp.experiments.images.rows import FrozenInputs
from sikagp.experiments.methods import METHODS
from sikagp.experiments.recipe import Recipe, load_recipes
from sikagp.experiments.tasks import images as task
from sikagp.experiments.tasks.images import (
    OWN_LAYER,
    OWN_METHODS,
    OWN_TEMPERATURE,
    ImageOptions,
    run,
)
from sikagp.training import TrainingConfig

SMALL = {"embedding": 4, "level": 2, "train_samples": 2, "test_samples": 4}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A data folder with small files in the official formats; features are cached beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SIKAGP_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    for split, rows in (("train", 40), ("test", 12)):
        labels = np.arange(rows) * 100 // rows
        records = rng.integers(0, 256, (rows, 3074), dtype=np.uint8)
        records[:, 1] = labels
        name = f"cifar-100-binary/{split}.bin"
        member = put(tmp_path, f"cifar100/{name}", records.tobytes())
        monkeypatch.setitem(sources.CIFAR100.members, name, member)
        for source, letter in ((sources.MNIST, "m"), (sources.FASHION_MNIST, "f")):
            pixels = rng.integers(0, 256, (rows, 28, 28))
            pair = (
                put(tmp_path, f"{letter}/{split}.gz", idx(pixels)),
                put(tmp_path, f"{letter}/{split}-labels.gz", idx(np.arange(rows) % 10)),
            )
            monkeypatch.setitem(source, split, pair)
    return tmp_path


def make_cell(folder: Path, name: str, method: str, data: dict, options: dict) -> Cell:
    recipe = Recipe(
        name=name,
        table="images",
        row=name,
        experiment="images",
        data=data,
        method=method,
        options=options,
        training={"epochs": 1, "batch_size": 20},
    )
    where = folder / "out" / name / "smoke" / "0"
    where.mkdir(parents=True)
    return Cell(recipe, "smoke", 0, where)


def test_cifar100_is_trained_in_full_and_then_fine_tuned(folder):
    images = {"name": "cifar100", "backbone": "fast-tiny"}
    full = make_cell(
        folder, "images/full", "sika", {**images, "augmented": True, "corruptions": 6}, SMALL
    )
    found = run(full)
    assert 0 <= found["accuracy"] <= 1
    assert found["elbo"] == -found["history"][-1]["loss"]
    assert {"noise1_accuracy", "contrast5_ece", "corrupted_nll"} <= set(found)
    assert (full.folder / "reliability.png").stat().st_size > 1000
    trained = (full.folder / BACKBONE_FILE).read_bytes()

    tuning = {**images, "frozen": "images/full", "views": 2, "validation": 0.25}
    options = {**SMALL, "normalisation": "running"}
    tuned = run(make_cell(folder, "images/tuned", "dense-dak", tuning, options))
    assert 0 < tuned["nll"] < 20
    assert 0 < tuned["nll_tempered"] < 20
    kept = [load_file(path)["features"] for path in (folder / "cache").rglob("*.safetensors")]
    # Test images, ten held-out ones, two views.
    assert sorted(map(len, kept)) == [10, 12, 40, 40]
    assert (full.folder / BACKBONE_FILE).read_bytes() == trained


def test_fine_tuning_before_training_says_what_to_do(folder):
    data = {"name": "cifar100", "backbone": "fast-tiny", "frozen": "images/full"}
    with pytest.raises(FileNotFoundError, match="run the recipe"):
        run(make_cell(folder, "images/tuned", "sika", data, SMALL))


def test_a_head_adds_to_the_own_layer_of_a_trained_network(folder, monkeypatch):
    images = {"name": "cifar100", "backbone": "fast-tiny", "reserved": 5}
    plain = {"hidden": [], "normalisation": "none"}
    whole = run(make_cell(folder, "images/full", "network", images, plain))
    frozen = {**images, "frozen": "images/full"}

    def tune(name: str, kind: str, method: str, **options) -> dict:
        data = {**frozen, "own_layer": kind}
        return run(make_cell(folder, f"images/{name}", method, data, options))

    given = tune("given", "given", OWN_LAYER)
    for score in ("accuracy", "nll", "ece", "validation_nll", "nll_tempered", "temperature"):
        assert given[score] == pytest.approx(whole[score], rel=1e-4)
    tempered = tune("tempered", "tempered", OWN_LAYER)
    assert tempered["nll"] == pytest.approx(whole["nll_tempered"], rel=1e-4)

    heads = []
    monkeypatch.setattr(task, "_keep_network", lambda method, cell: heads.append(method.model))
    tune("added", "given", "sika", normalisation="batch", level=2)
    own = load_last(folder / "out/images/full/smoke/0")
    assert torch.equal(heads[0].trend.weight, own.weight)
    assert torch.equal(heads[0].trend.bias, own.bias)


def test_a_temperature_is_learned_from_new_images_and_leaves_decisions_alone(folder, monkeypatch):
    images = {"name": "cifar100", "backbone": "fast-tiny", "reserved": 5}
    plain = {"hidden": [], "normalisation": "none"}
    whole = run(make_cell(folder, "images/full", "network", images, plain))
    heads, rows = [], []
    monkeypatch.setattr(task, "_keep_network", lambda method, cell: heads.append(method.model))
    train = FrozenInputs.train

    def spy(self, *args, **kwargs):
        assert self.change == "distorted"
        rows.append(train(self, *args, **kwargs))
        return rows[-1]

    monkeypatch.setattr(FrozenInputs, "train", spy)
    data = {**images, "frozen": "images/full", "own_layer": "given", "learn_from": "new"}
    data |= {"views": 2, "change": "distorted"}
    found = run(make_cell(folder, "images/sure", OWN_TEMPERATURE, data, {"level": 2, "reach": 4.0}))
    assert found["accuracy"] == whole["accuracy"]
    assert found["nll"] != whole["nll"]
    assert "auroc" not in found

    views, labels = rows[0].tensors
    test = ImageOptions(**images).load("test")
    assert torch.equal(labels, test.labels[:5])
    assert views.shape[:2] == (5, 2)
    assert not torch.allclose(views[:, 0], views[:, 1])
    layer = heads[0].kernel.layer
    assert (layer.level, layer.domain.high.item()) == (2, 4)
    level = heads[0].log_factor.clone()
    assert level != 0
    heads[0].log_factor.zero_()
    heads[0].calibrate(views[:, 0], labels)  # the new images as they are set it
    assert torch.equal(heads[0].log_factor, level)
    own = load_last(folder / "out/images/full/smoke/0")
    assert torch.equal(heads[0].last.weight, own.weight)


def test_an_own_layer_needs_a_network_that_has_one(folder):
    frozen = {"name": "cifar100", "backbone": "fast-tiny", "frozen": "images/full"}
    standardised = {"hidden": [], "normalisation": "batch"}
    run(make_cell(folder, "images/full", "network", {**frozen, "frozen": ""}, standardised))
    with pytest.raises(FileNotFoundError, match=r"last\.safetensors"):
        run(make_cell(folder, "images/a", "sika", {**frozen, "own_layer": "given"}, SMALL))
    with pytest.raises(ValueError, match="needs own_layer: given or tempered"):
        run(make_cell(folder, "images/b", OWN_LAYER, frozen, {}))
    with pytest.raises(ValueError, match="own-temperature needs own_layer"):
        run(make_cell(folder, "images/c", OWN_TEMPERATURE, frozen, {}))
    with pytest.raises(ValueError, match="own_layer"):
        ImageOptions(**frozen, own_layer="other")
    with pytest.raises(ValueError, match="needs new images"):
        ImageOptions(**frozen, own_layer="tempered")
    with pytest.raises(ValueError, match="needs new images"):
        ImageOptions(**frozen, learn_from="new")
    with pytest.raises(ValueError, match="learn_from"):
        ImageOptions(**frozen, learn_from="test")
    with pytest.raises(ValueError, match="a live one has learned nothing"):
        ImageOptions(**{**frozen, "frozen": ""}, own_layer="given")
    with pytest.raises(ValueError, match="a live one has learned nothing"):
        ImageOptions(**{**frozen, "frozen": ""}, learn_from="new", reserved=5)


@pytest.mark.parametrize(
    ("method", "options", "draws"),
    [("network", {"hidden": []}, False), ("mc-dropout", {"hidden": [], "num_samples": 3}, True)],
)
def test_digits_against_clothes(folder, method, options, draws):
    data = {"name": "mnist", "backbone": "digits-cnn", "ood": "fashion_mnist", "rows": 30}
    found = run(make_cell(folder, "images/digits", method, data, options))
    assert 0 <= found["auroc"] <= 1
    assert ("auroc_mutual_information" in found) == draws
    assert np.isnan(found["elbo"])


def test_a_seed_repeats_a_run(folder):
    data = {"name": "cifar100", "backbone": "fast-tiny", "augmented": True}
    scores = []
    for name in ("a", "b"):
        found = run(make_cell(folder, name, "sika", data, SMALL))
        scores.append((found["nll"], found["history"][0]["loss"]))
    assert scores[0] == scores[1]


def test_options_are_checked():
    with pytest.raises(ValueError, match="imagenet22k"):
        ImageOptions(name="imagenet22k", backbone="fast")
    with pytest.raises(ValueError, match="normalisation"):
        ImageOptions(name="cifar10", backbone="fast", normalisation="zca")
    with pytest.raises(ValueError, match="validation"):
        ImageOptions(name="cifar10", backbone="fast", validation=1.0)
    with pytest.raises(ValueError, match=r"not both; got 0\.1 and 2000"):
        ImageOptions(name="cifar10", backbone="fast", validation=0.1, reserved=2000)


def test_reserved_test_images_are_for_choices_and_not_scored(folder, monkeypatch):
    scored = {}

    def spy(name, function):
        def call(*args):
            scored[name] = [part.tolist() for part in args if part.ndim == 1]
            return function(*args)

        monkeypatch.setattr(task, name, call)

    spy("classification_scores", task.classification_scores)
    spy("held_out_scores", task.held_out_scores)
    data = {"name": "cifar100", "backbone": "fast-tiny", "reserved": 5}
    found = run(make_cell(folder, "images/reserved", "network", data, {"hidden": []}))
    labels = ImageOptions(name="cifar100", backbone="fast-tiny").load("test").labels.tolist()
    assert scored["classification_scores"] == [labels[5:]]
    assert scored["held_out_scores"] == [labels[:5], labels[5:]]
    assert {"validation_nll", "ece_tempered"} <= set(found)


def test_some_test_images_must_be_left(folder):
    data = {"name": "cifar100", "backbone": "fast-tiny", "reserved": 12}
    with pytest.raises(ValueError, match="cannot set 12 of 12 images aside"):
        run(make_cell(folder, "images/reserved", "network", data, {"hidden": []}))


def test_cutting_images_keeps_pixels_and_labels_together(folder):
    test = ImageOptions(name="cifar100", backbone="fast-tiny").load("test")
    first, others = test.cut(5)
    assert first.pixels.equal(test.pixels[:5])
    assert first.labels.equal(test.labels[:5])
    assert others.pixels.equal(test.pixels[5:])
    assert others.labels.equal(test.labels[5:])
    assert len(test.cut(0)[0]) == 0


def test_held_out_images_depend_on_the_seed_and_are_not_learned_from(folder):
    options = ImageOptions(name="cifar100", backbone="fast-tiny", validation=0.25)
    images = options.load("train")
    kept, held = options.split(images, 0)
    assert len(held) == 10
    assert sorted([*kept.tolist(), *held.tolist()]) == list(range(40))
    assert held.tolist() != options.split(images, 1)[1].tolist()
    everything, nothing = ImageOptions(name="cifar100", backbone="fast-tiny").split(images, 0)
    assert everything.tolist() == list(range(40))
    assert len(nothing) == 0


def test_every_image_recipe_names_what_exists():
    recipes = [recipe for recipe in load_recipes() if recipe.experiment == "images"]
    names = {recipe.name for recipe in recipes}
    assert len(recipes) > 30
    for recipe in recipes:
        for scale in recipe.scales:
            scaled = recipe.at(scale)
            options = ImageOptions(**scaled.data)
            assert options.backbone in BACKBONES
            assert options.frozen in {"", "checkpoint", *names}
            assert scaled.method in {*METHODS, *OWN_METHODS}
            TrainingConfig(**scaled.training)
