"""Optimizers and learning-rate schedules, as a configuration names them."""

import math
from collections.abc import Iterable
from typing import Any

import gpytorch
import torch
from gpytorch.likelihoods import Likelihood
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from sikagp.training.configuration import TrainingConfig

_OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "adadelta": torch.optim.Adadelta,
}


def build_optimizer(
    model: nn.Module, likelihood: Likelihood, config: TrainingConfig
) -> torch.optim.Optimizer:
    """Make the optimizer, one group for each learning rate and weight decay."""
    layers = [module for module in model.modules() if _has_prior(module)]
    bayesian = {id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        decay = 0.0 if id(parameter) in bayesian else config.weight_decay
        groups.setdefault((_rate(name, config), decay), []).append(parameter)
    noise_rate = config.likelihood_rate * config.learning_rate
    for parameter in likelihood.parameters():
        groups.setdefault((noise_rate, 0.0), []).append(parameter)
    _check_prefixes([name for name, _ in model.named_parameters()], config)
    return _OPTIMIZERS[config.optimizer](
        [
            {"params": parameters, "lr": rate, "weight_decay": decay}
            for (rate, decay), parameters in groups.items()
        ],
        **{**_fused(config.optimizer, groups.values()), **config.optimizer_options},
    )


def _fused(name: str, groups: Iterable[list[nn.Parameter]]) -> dict[str, bool]:
    """Options by which all of an update is one pass over the weights.

    Only on the CPU: elsewhere torch has fast updates anyway, and a fused one undoes the scaling of
    gradients itself, so that they cannot be clipped in half precision.
    """
    fits = all(p.device.type == "cpu" for parameters in groups for p in parameters)
    return {"fused": True} if fits and name in ("adam", "adamw") else {}


def _has_prior(module: nn.Module) -> bool:
    """Whether a module's own parameters are those of a posterior or of its prior."""
    return hasattr(module, "kl_divergence") or isinstance(module, gpytorch.Module)


def _rate(name: str, config: TrainingConfig) -> float:
    matches = [prefix for prefix in config.learning_rates if name.startswith(prefix)]
    return config.learning_rates[max(matches, key=len)] if matches else config.learning_rate


def _check_prefixes(names: list[str], config: TrainingConfig) -> None:
    for prefix in config.learning_rates:
        if not any(name.startswith(prefix) for name in names):
            raise ValueError(f"no parameter has a name that starts with {prefix!r}")


def build_schedule(
    optimizer: torch.optim.Optimizer, config: TrainingConfig, steps: int, steps_per_epoch: int
) -> LRScheduler:
    """Make a schedule that is advanced after every step."""
    if config.schedule == "one_cycle":
        rates = [group["lr"] for group in optimizer.param_groups]
        options: dict[str, Any] = {"pct_start": config.warmup or 0.3}
        return OneCycleLR(optimizer, rates, total_steps=steps, cycle_momentum=False, **options)

    def factor(step: int) -> float:
        return rate_factor(step, config, steps, steps_per_epoch)

    return LambdaLR(optimizer, factor)


def rate_factor(step: int, config: TrainingConfig, steps: int, steps_per_epoch: int) -> float:
    """Learning rate of a step over the peak rate: warm-up first, then the named schedule."""
    rise = round(config.warmup * steps)
    if step < rise:
        return (step + 1) / (rise + 1)
    progress = (step - rise) / max(1, steps - rise)
    if config.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    if config.schedule == "linear":
        return 1 - progress
    if config.schedule == "step":
        return config.step_factor ** (step // steps_per_epoch // config.step_epochs)
    return 1.0
