"""Fine-tuning the last layers of an encoder, with a softmax on its features.

All heads that are compared then see the same features. The states that reach the first trained
layer never change, so they are computed once; and an encoder that was fine-tuned with the same
options is taken from the folder. The softmax is trained alone first: gradients of a random one
would spoil the layers.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sikagp._typing import Float, Int
from sikagp.experiments.keeping import keep
from sikagp.experiments.text.features import fingerprint
from sikagp.integrations.transformers.features import Tokens, equal_lengths, stack
from sikagp.integrations.transformers.modeling import encoder_layers
from sikagp.integrations.transformers.pooling import pool
from sikagp.objectives import warm_up

_BATCH = 128
_WEIGHT_DECAY = 0.01
_CLIP = 1.0
logger = logging.getLogger(__name__)


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


def finetune(
    encoder: PreTrainedModel,
    tokens: Tokens,
    labels: Int[Tensor, " rows"],
    options: FineTuning,
    *,
    pooling: str,
    folder: Path,
    seed: int,
) -> None:
    """Train the last layers in place, or load them if they were trained before."""
    values = [fingerprint(encoder), [list(row) for row in tokens], labels.tolist(), pooling, seed]
    trained = nn.ModuleList(encoder_layers(encoder)[-options.layers :])

    def train() -> dict[str, Tensor]:
        states = lower_states(encoder, tokens, options.layers)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            _train(trained, states, labels, options, pooling)
        return trained.state_dict()

    trained.load_state_dict(keep(folder, [*values, dataclasses.asdict(options)], train))
    encoder.eval()


@torch.no_grad()
def lower_states(
    encoder: PreTrainedModel, tokens: Tokens, layers: int
) -> list[Float[Tensor, "tokens features"]]:
    """States of every text before the last ``layers`` layers, in evaluation mode."""
    encoder.eval()
    states = [torch.empty(0)] * len(tokens)
    for rows in equal_lengths([len(row) for row in tokens], _BATCH):
        output = encoder(input_ids=stack(tokens, rows), output_hidden_states=True)
        for row, state in zip(rows.tolist(), output.hidden_states[-1 - layers], strict=True):
            states[row] = state.half()
    return states


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
    states: list[Float[Tensor, "_ features"]],
    labels: Int[Tensor, " rows"],
    options: FineTuning,
    pooling: str,
) -> None:
    features = _all_features(layers.eval(), states, pooling)
    # One scale for all features: some of an encoder's never vary.
    center, scale = features.mean(0), features.std(0).mean()
    features = (features - center) / scale
    head = nn.Linear(features.shape[-1], int(labels.max()) + 1)
    rates = {head: options.head_rate}
    plan = _plan([1] * len(states), options.frozen_epochs, options.batch_size)
    _descend(lambda rows: head(features[rows]), labels, rates, plan, options.warmup)

    def logits(rows: Int[Tensor, " batch"]) -> Float[Tensor, "batch classes"]:
        batch = torch.stack([states[row] for row in rows.tolist()]).float()
        return head((upper_features(layers, batch, pooling) - center) / scale)

    rates[layers.train()] = options.encoder_rate
    plan = _plan([len(state) for state in states], options.epochs, options.batch_size)
    _descend(logits, labels, rates, plan, options.warmup)


def _plan(lengths: list[int], epochs: int, batch_size: int) -> list[list[Int[Tensor, " batch"]]]:
    """Batches of every epoch."""
    generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
    return [list(equal_lengths(lengths, batch_size, generator=generator)) for _ in range(epochs)]


def _descend(
    logits: Callable[[Int[Tensor, " batch"]], Float[Tensor, "batch classes"]],
    labels: Int[Tensor, " rows"],
    rates: Mapping[nn.Module, float],
    plan: list[list[Int[Tensor, " batch"]]],
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
            for group in groups:
                nn.utils.clip_grad_norm_(group["params"], _CLIP)
            optimizer.step()
            schedule.step()
            total += float(loss) * len(rows)
        logger.info("epoch %d of %d: loss %.4f", epoch, len(plan), total / len(labels))


def _rate_factor(step: int, steps: int, warmup: float) -> float:
    rise = round(warmup * steps)
    return min(warm_up(step, rise), (steps - step) / max(1, steps - rise))


@torch.no_grad()
def _all_features(
    layers: nn.ModuleList, states: list[Float[Tensor, "_ features"]], pooling: str
) -> Float[Tensor, "rows features"]:
    """Features of all texts from their states below the last layers."""
    features = torch.empty(len(states), states[0].shape[-1])
    for rows in equal_lengths([len(state) for state in states], _BATCH):
        batch = torch.stack([states[row] for row in rows.tolist()]).float()
        features[rows] = upper_features(layers, batch, pooling)
    return features
