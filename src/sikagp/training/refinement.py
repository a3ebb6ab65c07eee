"""Coarse to fine: grids that get finer while training goes on.

A refined layer keeps its mean function, and the optimizer keeps what it knows about the coarse
weights: in dyadic order they come first. New weights start at their prior where the layer counts
the variance between nodes anyway (``residual="full"``), which leaves the KL divergence as it was.
Elsewhere that variance would come as sudden noise, so they start with a small deviation.
"""

from collections.abc import Mapping

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.additive import INITIAL_SCALE
from sikagp.layers import SIKALayer
from sikagp.training.callbacks import BestParameters


def refine(model: nn.Module, level: int, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Move all layers below a level up to it, and hand the new parameters to the optimizer."""
    for layer in model.modules():
        if isinstance(layer, SIKALayer) and layer.level < level:
            before = dict(layer.named_parameters(recurse=False))
            layer.refine(level)
            if layer.residual != "full":
                _calm(layer, before["weight_mean"].shape[1])
            if optimizer is not None:
                for name, parameter in layer.named_parameters(recurse=False):
                    _replace(optimizer, before[name], parameter)


def _calm(layer: SIKALayer, num_coarse: int) -> None:
    """Give the weights after the coarse ones a small deviation."""
    scale = layer.weight_scale.detach().clone()
    scale[:, num_coarse:] = INITIAL_SCALE
    coarse = layer.raw_weight_scale.detach()[:, :num_coarse].clone()
    layer.weight_scale = scale
    with torch.no_grad():
        layer.raw_weight_scale[:, :num_coarse] = coarse  # to the last bit


def _replace(optimizer: torch.optim.Optimizer, old: nn.Parameter, new: nn.Parameter) -> None:
    """Train ``new`` in the place of ``old``, with the state of the weights that both have."""
    if old is new:
        return
    for group in optimizer.param_groups:
        group["params"] = [new if parameter is old else parameter for parameter in group["params"]]
    state = optimizer.state.pop(old, None)
    if state is not None:
        optimizer.state[new] = {
            key: _extend(value, new) if value is not None and _like(value, old) else value
            for key, value in state.items()
        }


def _like(value: object, parameter: Float[Tensor, "..."]) -> bool:
    return isinstance(value, Tensor) and value.shape == parameter.shape


def _extend(
    value: Float[Tensor, "features coarse outputs"],
    parameter: Float[Tensor, "features fine outputs"],
) -> Float[Tensor, "features fine outputs"]:
    extended = value.new_zeros(parameter.shape)
    extended[:, : value.shape[1]] = value
    return extended


class RefinementSchedule(Callback):
    """Refines all layers to given levels at given epochs, such as ``{5: 4, 10: 5}``.

    Parameters that were best on held-out rows are forgotten at each step, for they belong to
    another grid. Several processes would not notice the new parameters, so there may be only one.
    """

    def __init__(self, levels: Mapping[int, int]) -> None:
        self.levels = dict(sorted(levels.items()))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse several processes."""
        if trainer.world_size > 1:
            raise ValueError(
                f"a schedule of levels works in one process, got {trainer.world_size}; "
                "train with devices=1, or with the finest level from the start"
            )

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Apply the entry of this epoch."""
        level = self.levels.get(trainer.current_epoch)
        if level is None:
            return
        refine(pl_module, level, trainer.optimizers[0])
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, BestParameters):
                callback.forget()


def match_levels(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Refine layers to the size of their weights in a checkpoint."""
    for name, layer in module.named_modules():
        weight = state.get(f"{name}.weight_mean")
        if isinstance(layer, SIKALayer) and weight is not None:
            nodes = weight.shape[1] // layer.kernel.state_size
            layer.refine((nodes - 1).bit_length() - 1)
