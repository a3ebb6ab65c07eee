"""One function that trains a model, a thin layer over Lightning's Trainer."""

import contextlib
import dataclasses
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from gpytorch.likelihoods import Likelihood
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from torch import nn

from sikagp.precision import fastest_precision
from sikagp.training.callbacks import BestParameters, History, TrainableSchedule
from sikagp.training.checkpoints import CHECKPOINT, AtomicCheckpointIO, keep_last
from sikagp.training.configuration import TrainingConfig
from sikagp.training.data import Rows, RowsModule
from sikagp.training.module import VariationalModule
from sikagp.training.refinement import RefinementSchedule

# What Lightning says that does not concern the user: tensors need no workers, overwriting is
# intended, frozen modules are in evaluation mode, and how it calls torch is its own affair.
_IRRELEVANT = (
    r".*isinstance\(treespec, LeafSpec\).*",
    ".*does not have many workers.*",
    ".*Checkpoint directory .* exists and is not empty.*",
    r"Found \d+ module\(s\) in eval mode.*",
)


@dataclasses.dataclass(frozen=True)
class FitResult:
    """What a run leaves behind, besides the trained model.

    Attributes:
        history: logged numbers, one entry per epoch.
        best_epoch: epoch whose parameters were kept, if rows were held out.
        best_score: negative log predictive density per held-out row in that epoch.
        stopped_early: whether training ended before its last epoch.
    """

    history: list[dict[str, float]]
    best_epoch: int | None
    best_score: float | None
    stopped_early: bool


def fit(
    model: nn.Module,
    likelihood: Likelihood,
    data: Rows,
    config: TrainingConfig | None = None,
    *,
    validation_data: Rows | None = None,
    folder: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
    trainer_options: Mapping[str, Any] | None = None,
) -> FitResult:
    """Train model and likelihood in place, and leave them in evaluation mode.

    Args:
        model: a SIKA layer or model.
        likelihood: any likelihood of GPyTorch that fits the model's outputs.
        data: tensors (x, y) or (x, y, weight), or a dataset of such rows.
        config: options of the run.
        validation_data: held-out rows; otherwise ``config.validation`` splits them off.
        folder: where a checkpoint is kept after every epoch. If it holds one of a run with the
            same options, that run is resumed, and ends as if it had never stopped.
        callbacks: further callbacks of Lightning.
        trainer_options: further options of Lightning's Trainer, such as ``devices``,
            ``num_nodes``, ``strategy``, ``logger`` or ``enable_progress_bar``.
    """
    config = config or TrainingConfig()
    rows = RowsModule(data, validation_data, config)
    module = VariationalModule(model, likelihood, rows.num_rows, config).train()
    best, history = BestParameters(), History()
    watchers = _watchers(config, best, history, held_out=rows.validation is not None)
    resume = None
    if folder is not None:
        watchers.append(keep_last(Path(folder)))
        resume = _existing(Path(folder) / CHECKPOINT)
    with _good_manners():
        trainer = Trainer(
            callbacks=[*watchers, *callbacks], **_options(config, rows, folder, trainer_options)
        )
        trainer.fit(module, datamodule=rows, ckpt_path=resume, weights_only=True)
    best.restore(module)
    module.eval()
    return FitResult(
        history=history.epochs,
        best_epoch=best.epoch,
        best_score=best.score if best.epoch is not None else None,
        stopped_early=trainer.current_epoch < config.epochs,
    )


def _existing(path: Path) -> str | None:
    return str(path) if path.exists() else None


def _watchers(
    config: TrainingConfig, best: BestParameters, history: History, *, held_out: bool
) -> list[Callback]:
    watchers: list[Callback] = [history]
    if config.trainable:
        watchers.append(TrainableSchedule(config.trainable))
    if config.levels:
        watchers.append(RefinementSchedule(config.levels))
    if held_out:
        watchers.append(best)
        if config.patience is not None:
            watchers.append(EarlyStopping("val_loss", patience=config.patience))
    elif config.patience is not None:
        raise ValueError("patience needs held-out rows: set validation or pass validation_data")
    return watchers


def _options(
    config: TrainingConfig,
    rows: RowsModule,
    folder: str | os.PathLike[str] | None,
    trainer_options: Mapping[str, Any] | None,
) -> dict[str, Any]:
    given = dict(trainer_options or {})
    precision = config.precision
    if precision == "auto":
        precision = fastest_precision(str(given.get("accelerator", "auto")))
    options: dict[str, Any] = {
        "max_epochs": config.epochs,
        "gradient_clip_val": config.gradient_clip,
        "precision": precision,
        "logger": False,
        "enable_checkpointing": folder is not None,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 1,
        "use_distributed_sampler": False,
        "default_root_dir": folder,
        "plugins": [AtomicCheckpointIO()],
    }
    if rows.validation is None:
        options["limit_val_batches"] = 0
    return options | given


@contextlib.contextmanager
def _good_manners() -> Iterator[None]:
    """Leave the caller's random state alone, and pass on nothing but Lightning's warnings."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        for message in _IRRELEVANT:
            warnings.filterwarnings("ignore", message)
        logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            logger.setLevel(level)
