"""Classification of images: a head with its backbone, or on the features of a frozen one."""

import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from torch import Tensor, nn

from sikagp._typing import Float, Int
from sikagp.calibration import tempered_layer
from sikagp.experiments import data
from sikagp.experiments.backbones import (
    build_backbone,
    load_backbone,
    load_last,
    pretrained_resnet,
    save_network,
)
from sikagp.experiments.cell import Cell
from sikagp.experiments.data import Images
from sikagp.experiments.figures.style import STYLE
from sikagp.experiments.images.augmentation import NORMALISATIONS
from sikagp.experiments.images.given import GivenLayer, LearnedTemperature
from sikagp.experiments.images.rows import FrozenInputs, LiveInputs
from sikagp.experiments.images.scores import (
    Draws,
    classification_scores,
    corruption_scores,
    detection_scores,
    held_out_scores,
)
from sikagp.experiments.methods import Method, Problem, build_method
from sikagp.experiments.methods.composition import OnFeatures
from sikagp.experiments.methods.networks import Network
from sikagp.experiments.tasks import Best
from sikagp.plots import plot_reliability
from sikagp.training.data import TensorRows
from sikagp.validation import check_choice

DATA = {
    "mnist": data.mnist,
    "fashion_mnist": data.fashion_mnist,
    "cifar10": data.cifar10,
    "cifar100": data.cifar100,
    "svhn": data.svhn,
}
CRITERIA: Mapping[str, Best] = {"validation_nll": "lowest"}
CHECKPOINT = "checkpoint"
OWN_LAYER, OWN_TEMPERATURE = "own-layer", "own-temperature"
OWN_METHODS = (OWN_LAYER, OWN_TEMPERATURE)
OWN_LAYERS = ("given", "tempered")
LEARN_FROM = ("train", "new")
_WITHOUT_ELBO = (OWN_LAYER, "network", "mc-dropout", "ensemble", "knn", "boosting")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """The section ``data`` of a recipe for images.

    Attributes:
        name: which images.
        backbone: which network, as in :data:`sikagp.experiments.backbones.BACKBONES`.
        normalisation: whose mean and deviation; by default those of the images.
        augmented: whether training pictures are shifted and mirrored.
        frozen: whose weights the backbone keeps: ``"checkpoint"`` for the public ones, or the name
            of the recipe that trained them; empty trains it with the head.
        own_layer: what a head on a frozen backbone adds to: nothing, or the network's own last
            layer as it is (``"given"``) or at the temperature that fits new images
            (``"tempered"``).
        learn_from: which images a head on a frozen backbone sees: those that the backbone was
            trained on (``"train"``), or new ones (``"new"``), on which it is calibrated too.
        views: versions of each such picture for a frozen backbone, all but one changed.
        change: how: ``"augmented"`` or ``"distorted"``.
        ood: other images, to be told apart.
        corruptions: how many test images are scored under every corruption too.
        validation: share of the training images that is held out, for choices and a temperature.
        reserved: how many of the first test images are set aside for the same and not scored. A
            public backbone knows its training images by heart, held out or not.
        rows: largest number of training images, for quick looks.
        test_rows: largest number of test and other images.
    """

    name: str
    backbone: str
    normalisation: str = ""
    augmented: bool = False
    frozen: str = ""
    own_layer: str = ""
    learn_from: str = "train"
    views: int = 1
    change: str = "augmented"
    ood: str = ""
    corruptions: int = 0
    validation: float = 0.0
    reserved: int = 0
    rows: int | None = None
    test_rows: int | None = None

    def __post_init__(self) -> None:
        for name in filter(None, (self.name, self.ood)):
            check_choice("name", name, DATA)
        check_choice("normalisation", self.normalisation or self.name, NORMALISATIONS)
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation must lie in [0, 1), got {self.validation}")
        if self.validation and self.reserved:
            raise ValueError(
                "new images are held out of the training images (validation) or of the test images "
                f"(reserved), not both; got {self.validation} and {self.reserved}"
            )
        check_choice("learn_from", self.learn_from, LEARN_FROM)
        if self.own_layer:
            check_choice("own_layer", self.own_layer, OWN_LAYERS)
        if not self.frozen and (self.own_layer or self.learn_from == "new"):
            raise ValueError(
                "own_layer and learn_from: new are for a frozen network; a live one has learned "
                "nothing yet"
            )
        needs_new = self.own_layer == "tempered" or self.learn_from == "new"
        if needs_new and not (self.validation or self.reserved):
            raise ValueError("a temperature needs new images: set validation or reserved")

    @property
    def depth(self) -> int:
        """Number of layers of a residual network."""
        return int(self.backbone.removeprefix("resnet"))

    def load(self, split: str) -> Images:
        """Read one split of the images, or the other images."""
        name = self.ood if split == "ood" else self.name
        images = DATA[name]("train" if split == "train" else "test")
        return images.first(self.rows if split == "train" else self.test_rows)

    def split(
        self, images: Images, seed: int
    ) -> tuple[Int[Tensor, " kept"], Int[Tensor, " held_out"]]:
        """Numbers of the training images to learn from, and of those held out."""
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        held = round(self.validation * len(images))
        return order[held:].sort().values, order[:held].sort().values


def run(cell: Cell) -> dict[str, Any]:
    """Train and score; returns metrics, timings, the history and a reliability diagram."""
    options = ImageOptions(**cell.recipe.data)
    train, (reserved, test) = options.load("train"), options.load("test").cut(options.reserved)
    kept, held = options.split(train, cell.seed)
    new = reserved if options.reserved else train.pick(held)
    inputs = _inputs(cell, options, train)
    own_layer = _own_layer(cell, options, inputs, new) if options.own_layer else None
    method = _method(cell, inputs, train.num_classes, own_layer)
    if options.learn_from == "new":
        rows = inputs.train(new, torch.arange(len(new)), seed=cell.seed)
        validation = TensorRows(inputs.predict(new), new.labels)
    else:
        rows, validation = inputs.train(train, kept, seed=cell.seed), None
    report = method.fit(
        rows,
        validation,
        seed=cell.seed,
        folder=cell.folder / "run",
        progress=cell.progress,
    )
    _keep_network(method, cell)

    def predict(images: Images) -> Draws:
        return _class_draws(method, inputs.predict(images))

    ready = inputs.predict(test)
    start = time.perf_counter()
    draws = _class_draws(method, ready)
    seconds = time.perf_counter() - start
    _draw_reliability(draws, test.labels, cell)
    scores = classification_scores(draws, test.labels)
    if len(new):
        scores |= held_out_scores(predict(new), new.labels, draws, test.labels)
    if options.ood:
        scores |= detection_scores(draws, predict(options.load("ood")))
    if options.corruptions:
        scores |= corruption_scores(predict, test.first(options.corruptions))
    return {
        **scores,
        "elbo": _elbo(cell, report.history),
        "fit_seconds": report.seconds,
        "predict_seconds": seconds,
        "epochs": report.epochs,
        "seconds_per_epoch": report.seconds_per_epoch,
        "history": report.history,
        "figures": ["reliability.png"],
    }


def _method(
    cell: Cell,
    inputs: LiveInputs | FrozenInputs,
    num_classes: int,
    own_layer: nn.Linear | None,
) -> Method:
    recipe = cell.recipe
    if recipe.method in OWN_METHODS:
        if own_layer is None:
            raise ValueError(f"{recipe.method} needs own_layer: {' or '.join(OWN_LAYERS)}")
        if recipe.method == OWN_LAYER:
            return GivenLayer(own_layer)
        options = {"device": cell.device, **recipe.options}
        sizes = inputs.num_features, num_classes
        return LearnedTemperature(
            own_layer, Problem(*sizes, "classification", options, recipe.training)
        )
    own = {} if own_layer is None else {"own_layer": own_layer}
    return build_method(
        recipe.method,
        in_features=inputs.num_features,
        out_features=num_classes,
        task="classification",
        options={**recipe.options, **inputs.method_options, **own},
        training=recipe.training,
        device=cell.device,
    )


def _inputs(cell: Cell, options: ImageOptions, train: Images) -> LiveInputs | FrozenInputs:
    normalise = NORMALISATIONS[options.normalisation or options.name]
    if not options.frozen:
        return LiveInputs(options.backbone, normalise, augmented=options.augmented, examples=train)
    backbone: nn.Module
    if options.frozen == CHECKPOINT:
        backbone, _ = pretrained_resnet(options.depth)
    else:
        backbone = build_backbone(options.backbone)
        load_backbone(backbone, _folder_of(options.frozen, cell))
    return FrozenInputs(
        backbone, normalise, views=options.views, change=options.change, device=cell.device
    )


def _own_layer(
    cell: Cell, options: ImageOptions, inputs: LiveInputs | FrozenInputs, new: Images
) -> nn.Linear:
    """Last layer of the frozen network, with another temperature if asked."""
    if options.frozen == CHECKPOINT:
        _, layer = pretrained_resnet(options.depth)
    else:
        layer = load_last(_folder_of(options.frozen, cell))
    if options.own_layer == "given":
        return layer
    return tempered_layer(layer, inputs.predict(new), new.labels)


def _folder_of(recipe: str, cell: Cell) -> Path:
    """Folder of another recipe's cell with the same scale and seed."""
    # Folders of cells end with the names of recipe, scale and seed.
    root = cell.folder.parents[1 + len(cell.recipe.name.split("/"))]
    return root / recipe / cell.scale / str(cell.seed)


def _class_draws(method: Method, x: Float[Tensor, "rows *features"]) -> Draws:
    draws = method.predict(x)
    if not isinstance(draws, Tensor):
        raise TypeError(f"expected draws of classes, but {type(draws).__name__} was predicted")
    return draws


def _keep_network(method: Method, cell: Cell) -> None:
    """Save a network that was trained here, for recipes that build on it."""
    model = getattr(method, "model", None)
    if isinstance(model, OnFeatures) and not cell.recipe.data.get("frozen"):
        save_network(model.backbone, _last_layer(model), cell.folder)


def _last_layer(model: OnFeatures) -> nn.Linear | None:
    """The linear layer on the backbone's features, where that is all there is."""
    plain = model.normalisation == "none" and type(model.layer) is Network
    if not plain or model.embedding is not None or len(model.layer.layers) > 1:
        return None
    return model.layer.layers[0]


def _elbo(cell: Cell, history: list[dict[str, float]]) -> float:
    """ELBO per training row in the last epoch; undefined for other objectives."""
    training = cell.recipe.training
    other = training.get("objective", "elbo") != "elbo" or training.get("kl_weight", 1) != 1
    if other or cell.recipe.method in _WITHOUT_ELBO or not history:
        return math.nan
    return -history[-1]["loss"]


def _draw_reliability(draws: Draws, labels: Int[Tensor, " rows"], cell: Cell) -> None:
    with rc_context({**STYLE, "legend.fontsize": 7}):
        figure = Figure(figsize=(3.4, 3.6), layout="constrained")
        plot_reliability(draws.mean(0), labels, ax=figure.subplots())
        figure.savefig(cell.folder / "reliability.png")
