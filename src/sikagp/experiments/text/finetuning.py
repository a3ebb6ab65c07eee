"""Features of an encoder whose last layers were fine-tuned, with a softmax on top of them.

All heads that are compared then see the same features. The states that reach the first trained
layer never change, so they are computed once for all seeds, and kept on disk; so are the features
that come out. The softmax is trained alone first: gradients of a random one would spoil the
layers.
"""

import copy
import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sikagp._typing import Float, Int
from sikagp.experiments.keeping import keep
from sikagp.experiments.text.features import center_and_scale, fingerprint
from sikagp.integrations.transformers.features import Tokens, equal_lengths, stack
from sikagp.integrations.transformers.modeling import encoder_layers
from sikagp.integrations.transformers.pooling import pool
from sikagp.objectives import warm_up

_BATCH = 128
_WEIGHT_DECAY = 0.01
_CLIP = 1.0
logger = logging.getLogger(__name__)

# Rows of every batch of every epoch.
Plan = list[list[Int[Tensor, " _"]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning:
    """Options of fine-tuning.

    Attributes:
        layers: how many of the encoder's last layers are trained.
        frozen_epochs: passes over the training texts that train the softmax alone.
        epochs: passes that train both; the learning rates fall linearly to 0.
        encoder_rate: peak learning rate of the layers.
        head_rate: peak learning rate of the softmax.
        batch_size: texts per step.
        warmup: share of all steps over which the learning rates rise.
    """

    layers: int = 2
    frozen_epochs: int = 2
    epochs: int = 4
    encoder_rate: float = 2e-4
    head_rate: float = 1e-3
    batch_size: int = 64
    warmup: float = 0.06


class Encoded(NamedTuple):
    """Texts on their way through an encoder.

    Attributes:
        states: of each text before the last layers, in half precision.
        features: after them, pooled.
    """

    states: list[Float[Tensor, "_ features"]]
    features: Float[Tensor, "rows features"]


def finetuned_features(
    encoder: PreTrainedModel,
    parts: Mapping[str, Tokens],
    labels: Int[Tensor, " rows"],
    options: FineTuning,
    *,
    pooling: str,
    folder: Path,
    seed: int,
) -> dict[str, Float[Tensor, "_ features"]]:
    """Features of all parts after training on ``"train"``, whose labels are given.

    The encoder itself stays as it is.
    """
    tokens = {name: [list(row) for row in rows] for name, rows in parts.items()}
    known = [fingerprint(encoder), tokens, labels.tolist(), pooling, seed]

    def compute() -> dict[str, Tensor]:
        encoded = {
            name: encode_below(encoder, rows, options.layers, pooling, folder)
            for name, rows in parts.items()
        }
        layers = nn.ModuleList(copy.deepcopy(encoder_layers(encoder)[-options.layers :]))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            _train(layers, encoded["train"], labels, options, pooling)
        return {name: _features(layers, part.states, pooling) for name, part in encoded.items()}

    return keep(folder, [*known, dataclasses.asdict(options)], compute)


def encode_below(
    encoder: PreTrainedModel, tokens: Tokens, layers: int, pooling: str, folder: Path
) -> Encoded:
    """States before the last ``layers`` layers and features, from the folder if they are there."""
    lengths = [len(row) for row in tokens]

    @torch.no_grad()
    def compute() -> dict[str, Tensor]:
        encoder.eval()
        states = [torch.empty(0)] * len(tokens)
        features = torch.empty(len(tokens), encoder.config.hidden_size)
        for rows in equal_lengths(lengths, _BATCH):
            output = encoder(input_ids=stack(tokens, rows), output_hidden_states=True)
            features[rows] = pool(output.hidden_states[-1], None, pooling)
            for row, state in zip(rows.tolist(), output.hidden_states[-1 - layers], strict=True):
                states[row] = state.half()
        return {"states": torch.cat(states), "features": features}

    known = [fingerprint(encoder), [list(row) for row in tokens], pooling, layers]
    kept = keep(folder, known, compute)
    return Encoded(list(kept["states"].split(lengths)), kept["features"])


def upper_features(
    layers: nn.ModuleList, states: Float[Tensor, "rows tokens features"], pooling: str
) -> Float[Tensor, "rows features"]:
    """Pooled features from the states below the last layers; all texts have the same length."""
    for layer in layers:
        output = layer(states)
        states = output[0] if isinstance(output, tuple) else output
    return pool(states, None, pooling)


def _train(
    layers: nn.ModuleList,
    encoded: Encoded,
    labels: Int[Tensor, " rows"],
    options: FineTuning,
    pooling: str,
) -> None:
    states, features = encoded
    center, scale = center_and_scale(features)
    features = (features - center) / scale
    head = nn.Linear(features.shape[-1], int(labels.max()) + 1)
    rates: dict[nn.Module, float] = {head: options.head_rate}
    plan = _plan([1] * len(states), options.frozen_epochs, options.batch_size)
    _descend(lambda rows: head(features[rows]), labels, rates, plan, options.warmup)

    def logits(rows: Int[Tensor, " batch"]) -> Float[Tensor, "batch classes"]:
        batch = torch.stack([states[row] for row in rows.tolist()]).float()
        return head((upper_features(layers, batch, pooling) - center) / scale)

    rates[layers.train()] = options.encoder_rate
    plan = _plan([len(state) for state in states], options.epochs, options.batch_size)
    _descend(logits, labels, rates, plan, options.warmup)


def _plan(lengths: list[int], epochs: int, batch_size: int) -> Plan:
    """Batches of every epoch."""
    generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
    return [list(equal_lengths(lengths, batch_size, generator=generator)) for _ in range(epochs)]


def _descend(
    logits: Callable[[Int[Tensor, " batch"]], Float[Tensor, "batch classes"]],
    labels: Int[Tensor, " rows"],
    rates: Mapping[nn.Module, float],
    plan: Plan,
    warmup: float,
) -> None:
    """Minimise the cross-entropy of all batches, with a learning rate for each module."""
    groups = [{"params": list(module.parameters()), "lr": rate} for module, rate in rates.items()]
    optimizer = torch.optim.AdamW(groups, weight_decay=_WEIGHT_DECAY)
    steps = sum(len(batches) for batches in plan)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _rate_factor(step, steps, warmup)
    )
    for epoch, batches in enumerate(plan, 1):
        total = 0.0
        for rows in batches:
            loss = nn.functional.cross_entropy(logits(rows), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            for module in rates:
                nn.utils.clip_grad_norm_(module.parameters(), _CLIP)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        logger.info("epoch %d of %d: loss %.4f", epoch, len(plan), total / len(labels))


def _rate_factor(step: int, steps: int, warmup: float) -> float:
    rise = round(warmup * steps)
    return min(warm_up(step, rise), (steps - step) / max(1, steps - rise))


@torch.no_grad()
def _features(
    layers: nn.ModuleList, states: list[Float[Tensor, "_ features"]], pooling: str
) -> Float[Tensor, "rows features"]:
    """Features of all texts from their states before the last layers, in evaluation mode."""
    layers.eval()
    features = torch.empty(len(states), states[0].shape[-1])
    for rows in equal_lengths([len(state) for state in states], _BATCH):
        batch = torch.stack([states[row] for row in rows.tolist()]).float()
        features[rows] = upper_features(layers, batch, pooling)
    return features
