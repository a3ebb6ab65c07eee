"""A text classifier that may say "I don't know": trained from texts and labels in one call.

The encoder stays frozen, so its features are computed once and a pass over the texts takes
seconds. Temperature and threshold come from validation texts: the answer is withheld where the
entropy of the prediction exceeds that of all but a few of them.
"""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from sikagp._typing import Float
from sikagp.calibration import fit_temperature
from sikagp.integrations.transformers.encoders import Encoder
from sikagp.integrations.transformers.features import encode, tokenize
from sikagp.integrations.transformers.modeling import SIKAForSequenceClassification, TextPrediction
from sikagp.integrations.transformers.texts import Texts
from sikagp.integrations.transformers.training import MAX_TOKENS
from sikagp.likelihoods import build_likelihood
from sikagp.metrics import accuracy, auroc, ece, nll
from sikagp.training import TrainingConfig, fit

HEAD_OPTIONS = {"level": 4, "residual": "outside"}
TRAINING = TrainingConfig(
    epochs=30, batch_size=128, learning_rate=5e-3, kl_weight=0.05, objective="predictive"
)


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the classifier says about one text; the label is None where it does not know."""

    label: str | None
    probability: float
    entropy: float


@dataclasses.dataclass(frozen=True)
class AbstainingClassifier:
    """A trained model with its tokenizer; ``model.config.doubt_threshold`` decides."""

    model: SIKAForSequenceClassification
    tokenizer: PreTrainedTokenizerBase

    def answer(self, texts: Sequence[str]) -> list[Answer]:
        """Label texts, or decline to."""
        prediction, config = self.predict(texts), self.model.config
        limit = config.doubt_threshold if config.doubt_threshold is not None else torch.inf
        names = list((config.id2label or {}).values())
        best, label = prediction.probs.max(-1)
        return [
            Answer(names[int(c)] if float(h) <= limit else None, float(p), float(h))
            for c, p, h in zip(label, best, prediction.entropy, strict=True)
        ]

    def predict(self, texts: Sequence[str]) -> TextPrediction:
        """Probabilities and scores of doubt of each text, shapes (texts, classes) and (texts,)."""
        return self.model.predict_features(self.features(texts))

    def features(self, texts: Sequence[str]) -> Float[Tensor, "texts features"]:
        """Pooled features of the frozen encoder."""
        tokens = tokenize(self.tokenizer, texts, MAX_TOKENS)
        return encode(self.model.encoder, tokens, self.model.config.pooling)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write model and tokenizer to a folder."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "AbstainingClassifier":
        """Load what :meth:`save` wrote, in evaluation mode."""
        model = SIKAForSequenceClassification.from_pretrained(folder)
        return cls(model, AutoTokenizer.from_pretrained(folder))


def fit_abstaining(
    train: Texts,
    validation: Texts,
    names: Sequence[str],
    encoder: Encoder,
    *,
    coverage: float = 0.95,
    training: TrainingConfig = TRAINING,
) -> AbstainingClassifier:
    """Train a head on frozen features, calibrate it, and choose its threshold.

    Args:
        train: texts to learn from; those without a class are left out.
        validation: texts for temperature and threshold.
        names: of the classes.
        encoder: model and tokenizer.
        coverage: share of validation texts with a class that get an answer.
        training: how the head is trained.
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage must lie in (0, 1], got {coverage}")
    train, validation = train.known(), validation.known()
    model = SIKAForSequenceClassification.from_encoder(
        encoder.model,
        pooling="mean",
        head_options=HEAD_OPTIONS,
        num_data=len(train.texts),
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )
    classifier = AbstainingClassifier(model, encoder.tokenizer)
    rows = classifier.features(train.texts), train.labels
    quiet = {"enable_progress_bar": False}
    fit(model.head, build_likelihood("softmax", len(names)), rows, training, trainer_options=quiet)
    model.eval()
    features = classifier.features(validation.texts)
    probs = model.predict_features(features).probs
    model.config.calibration_temperature = fit_temperature(probs, validation.labels)
    entropy = model.predict_features(features).entropy
    model.config.doubt_threshold = float(entropy.quantile(coverage))
    return classifier


def score(classifier: AbstainingClassifier, test: Texts) -> dict[str, float]:
    """Metrics on test texts; those about texts without a class only if there are some."""
    known = test.known()
    prediction = classifier.predict(known.texts)
    limit = float(classifier.model.config.doubt_threshold)
    answered = prediction.entropy <= limit
    found = {
        "accuracy": float(accuracy(prediction.probs, known.labels)),
        "nll": float(nll(prediction.probs, known.labels)),
        "ece": float(ece(prediction.probs, known.labels)),
        "coverage": float(answered.float().mean()),
        "accuracy_of_answers": float(accuracy(prediction.probs[answered], known.labels[answered])),
    }
    unknown = test.take((test.labels < 0).nonzero().squeeze(-1))
    if len(unknown.texts) > 0:
        doubt = classifier.predict(unknown.texts).entropy
        both = torch.cat([prediction.entropy, doubt])
        positive = torch.arange(len(both)) >= len(known.texts)
        found["unknown_declined"] = float((doubt > limit).float().mean())
        found["unknown_auroc"] = float(auroc(both, positive))
    return found
