"""Fine-tuning the last layers of an encoder, with a softmax on its features.

All heads that are compared then see the same features. The states that reach the first trained
layer never change, so they are computed once; and an encoder that was fine-tuned with the same
options is taken from the folder.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from transformers import PreTrainedModel

from sikagp._typing import Float, Int
from sikagp.experiments.files import locked, write_whole
from sikagp.experiments.text.features import fingerprint
from sikagp.integrations.transformers.features import Tokens, equal_lengths, stack
from sikagp.integrations.transformers.modeling import encoder_layers
from sikagp.integrations.transformers.pooling import pool
from sikagp.objectives import warm_up

_BATCH = 128
_WEIGHT_DECAY = 0.01
_CLIP = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning:
    """Options of fine-tuning.

    Attributes:
        layers: how many of the encoder's last layers are trained.
        epochs: passes over the training texts; the learning rates fall linearly to 0.
        encoder_rate: peak learning rate of the layers.
        head_rate: peak learning rate of the softmax.
        batch_size: texts per step.
        warmup: share of all steps over which the learning rates rise.
    """

    layers: int = 2
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
    content = json.dumps([*values, dataclasses.asdict(options)])
    path = Path(folder) / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.safetensors"
    trained = nn.ModuleList(encoder_layers(encoder)[-options.layers :])
    with locked(path.with_suffix(".lock")):
        if not path.is_file():
            states = lower_states(encoder, tokens, options.layers)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                _train(trained, states, labels, options, pooling)
            write_whole(path, save(trained.state_dict()))
    trained.load_state_dict(load_file(path))
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
    head = nn.Linear(states[0].shape[-1], int(labels.max()) + 1)
    groups = [
        {"params": layers.parameters(), "lr": options.encoder_rate},
        {"params": head.parameters(), "lr": options.head_rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=_WEIGHT_DECAY)
    lengths = [len(state) for state in states]
    generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
    plan = [
        rows
        for _ in range(options.epochs)
        for rows in equal_lengths(lengths, options.batch_size, generator=generator)
    ]
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _rate_factor(step, len(plan), options.warmup)
    )
    # One scale for all features: some of an encoder's never vary.
    center, scale = _statistics(layers.eval(), states, pooling)
    layers.train()
    parameters = [*layers.parameters(), *head.parameters()]
    for rows in plan:
        batch = torch.stack([states[row] for row in rows.tolist()]).float()
        logits = head((upper_features(layers, batch, pooling) - center) / scale)
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, labels[rows]).backward()
        nn.utils.clip_grad_norm_(parameters, _CLIP)
        optimizer.step()
        schedule.step()


def _rate_factor(step: int, steps: int, warmup: float) -> float:
    rise = round(warmup * steps)
    return min(warm_up(step, rise), (steps - step) / max(1, steps - rise))


@torch.no_grad()
def _statistics(
    layers: nn.ModuleList, states: list[Float[Tensor, "_ features"]], pooling: str
) -> tuple[Float[Tensor, " features"], Float[Tensor, ""]]:
    """Mean of each feature and their average deviation, over some of the texts."""
    some = states[:: max(1, len(states) // 1000)]
    features = [upper_features(layers, state.unsqueeze(0).float(), pooling) for state in some]
    rows = torch.cat(features)
    return rows.mean(0), rows.std(0).mean()
