"""Intent classification on CLINC150, and finding requests that are out of scope.

Heads are trained on in-scope requests only, on features of one encoder that all heads share:
frozen, or with its last layers fine-tuned by a plain softmax. Out-of-scope requests are the
positive class of the detection metrics; they are found by their name, never by a number.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.experiments.cell import Cell
from sikagp.experiments.data import Intents, Utterances, clinc150
from sikagp.experiments.data.location import cache_folder
from sikagp.experiments.methods import Method, Problem, build_method
from sikagp.experiments.tasks import Best
from sikagp.experiments.text.features import cached_features, center_and_scale
from sikagp.experiments.text.finetuning import FineTuning, finetuned_features
from sikagp.experiments.text.mahalanobis import Mahalanobis
from sikagp.experiments.text.random_features import SNGP
from sikagp.experiments.text.scores import detection_scores, doubts, in_scope_scores
from sikagp.integrations.transformers.encoders import load_encoder
from sikagp.integrations.transformers.features import tokenize
from sikagp.validation import check_choice

DATA = ("clinc150",)
# The paper scores by predictive entropy.
MAIN_SCORE = "entropy"
CRITERIA: Mapping[str, Best] = {
    "validation_nll_tempered": "lowest",
    f"validation_auroc_{MAIN_SCORE}": "highest",
    f"validation_auprc_{MAIN_SCORE}": "highest",
}
_OWN_METHODS: dict[str, Callable[[Problem], Method]] = {"sngp": SNGP, "mahalanobis": Mahalanobis}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The section ``data`` of a recipe for texts.

    Attributes:
        name: of the data.
        encoder: name of the encoder; see :func:`load_encoder`.
        pooling: ``"cls"`` or ``"mean"``.
        max_tokens: longer texts are cut.
        finetuning: options of :class:`FineTuning`; None leaves the encoder as it is.
        pretrained: whether features of the encoder as it was stand beside the fine-tuned ones.
            Fine-tuning draws together what the labels do not tell apart, and with it what is new.
        rows: training texts of each intent, for quick looks; None takes all.
    """

    name: str = "clinc150"
    encoder: str = "all-MiniLM-L6-v2"
    pooling: str = "mean"
    max_tokens: int = 48
    finetuning: Mapping[str, Any] | None = None
    pretrained: bool = False
    rows: int | None = None

    def __post_init__(self) -> None:
        check_choice("name", self.name, DATA)


def run(cell: Cell) -> dict[str, Any]:
    """Train one head and score it; returns metrics, timings and the history of training."""
    options = TextOptions(**cell.recipe.data)
    intents = clinc150()
    features, labels = prepare(intents, options, seed=cell.seed, folder=text_cache())
    method = make_method(cell, features["train"].shape[-1], len(intents.names))
    report = method.fit(
        (features["train"], labels["train"]),
        (features["validation"], labels["validation"]),
        seed=cell.seed,
        folder=cell.folder / "run",
        progress=cell.progress,
    )
    found = evaluate(method, features, labels)
    return {
        **found,
        "auroc": found[f"auroc_{MAIN_SCORE}"],
        "auprc": found[f"auprc_{MAIN_SCORE}"],
        "fpr95": found[f"fpr95_{MAIN_SCORE}"],
        "minutes_per_epoch": report.seconds_per_epoch / 60,
        "history": report.history,
    }


def text_cache() -> Path:
    """Folder of features and fine-tuned layers."""
    return cache_folder() / "text"


def prepare(
    intents: Intents, options: TextOptions, *, seed: int, folder: Path
) -> tuple[dict[str, Float[Tensor, "_ features"]], dict[str, Int[Tensor, " _"]]]:
    """Features and labels of ``train``, ``validation`` and ``test``, and what lies outside them.

    Out-of-scope texts are ``outside_validation`` and ``outside_test``.
    """
    outside = {f"outside_{name}": intents.out_of_scope[name] for name in ("validation", "test")}
    parts = {**intents.in_scope, **outside}
    parts["train"] = _first_of_each(parts["train"], options.rows)
    encoder = load_encoder(options.encoder, parts["train"].texts)
    tokens = {
        name: tokenize(encoder.tokenizer, part.texts, options.max_tokens)
        for name, part in parts.items()
    }
    found = []
    if options.finetuning is not None:
        tuned = finetuned_features(
            encoder.model,
            tokens,
            parts["train"].labels,
            FineTuning(**options.finetuning),
            pooling=options.pooling,
            folder=folder,
            seed=seed,
        )
        found.append(_scaled(tuned))
    if options.finetuning is None or options.pretrained:
        kept = {
            name: cached_features(encoder.model, rows, options.pooling, folder)
            for name, rows in tokens.items()
        }
        found.append(_scaled(kept))
    features = {name: torch.cat([part[name] for part in found], dim=-1) for name in parts}
    return features, {name: part.labels for name, part in parts.items()}


def _scaled(
    features: Mapping[str, Float[Tensor, "_ features"]],
) -> dict[str, Float[Tensor, "_ features"]]:
    """Centre and scale all parts as the training rows are."""
    center, scale = center_and_scale(features["train"])
    return {name: (rows - center) / scale for name, rows in features.items()}


def make_method(cell: Cell, in_features: int, num_classes: int) -> Method:
    """Make the recipe's method: one of all experiments, or one for texts only."""
    recipe = cell.recipe
    if recipe.method in _OWN_METHODS:
        problem = Problem(
            in_features, num_classes, "classification", recipe.options, recipe.training
        )
        return _OWN_METHODS[recipe.method](problem)
    return build_method(
        recipe.method,
        in_features=in_features,
        out_features=num_classes,
        task="classification",
        options=recipe.options,
        training=recipe.training,
        device=cell.device,
    )


def evaluate(
    method: Method,
    features: Mapping[str, Float[Tensor, "_ features"]],
    labels: Mapping[str, Int[Tensor, " _"]],
) -> dict[str, float]:
    """Scores of a trained method on the test split, with and without a temperature.

    Those of the validation split, for choosing options, have ``validation_`` before their names.
    """
    names = [name for name in features if name != "train"]
    draws = {name: torch.as_tensor(method.predict(features[name])) for name in names}
    found: dict[str, float] = {}
    for part, prefix in (("validation", "validation_"), ("test", "")):
        scores = in_scope_scores(
            draws[part], labels[part], draws["validation"], labels["validation"]
        )
        inside, outside = doubts(draws[part]), doubts(draws[f"outside_{part}"])
        if isinstance(method, Mahalanobis):
            inside["distance"] = method.doubt(features[part])
            outside["distance"] = method.doubt(features[f"outside_{part}"])
        scores |= detection_scores(inside, outside)
        found |= {prefix + name: value for name, value in scores.items()}
    sharpened = [doubts(draws[name], found["temperature"]) for name in ("test", "outside_test")]
    again = detection_scores(*sharpened)
    return found | {f"{name}_tempered": again[name] for name in again if "entropy" in name}


def _first_of_each(part: Utterances, rows: int | None) -> Utterances:
    """The first rows of every intent."""
    if rows is None:
        return part
    label = part.labels
    rank = (label.unsqueeze(-1) == label).tril(-1).sum(-1)
    chosen = (rank < rows).nonzero().squeeze(-1)
    return Utterances(tuple(part.texts[index] for index in chosen.tolist()), label[chosen])
