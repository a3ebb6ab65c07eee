"""The Lightning module: objective, optimizer, and draws that depend on the step alone."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.likelihoods import Likelihood
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.objectives import PredictiveLogLikelihood, VariationalELBO, warm_up
from sikagp.predictions import log_density, predictive
from sikagp.training.configuration import TrainingConfig
from sikagp.training.optimization import build_optimizer, build_schedule
from sikagp.training.refinement import match_levels

_OBJECTIVES = {"elbo": VariationalELBO, "predictive": PredictiveLogLikelihood}


class VariationalModule(LightningModule):
    """Trains a model and a likelihood together.

    A batch is (x, y) or (x, y, weight); x goes to the model, by name if it is a mapping. Before
    every step the random state is set from the seed, the step and the process, so a resumed run
    repeats the draws of an uninterrupted one.

    Logged are ``loss`` (negative objective per row) and, on held-out rows, ``val_loss``, the
    negative log predictive density per row.
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        num_rows: int,
        config: TrainingConfig | None = None,
    ) -> None:
        super().__init__()
        self.config = config or TrainingConfig()
        self.model = model
        self.likelihood = likelihood
        objective = _OBJECTIVES[self.config.objective](likelihood, model, num_rows)
        # Not a submodule: it holds the model and the likelihood a second time.
        self._objective = (objective,)
        self._losses: list[Tensor] = []
        self._rows = 0

    @property
    def objective(self) -> VariationalELBO | PredictiveLogLikelihood:
        """The objective, with the current weight of the KL divergence."""
        return self._objective[0]

    def forward(self, x: Any) -> Any:
        """Distribution of f."""
        return self.model(**x) if isinstance(x, Mapping) else self.model(x)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Fix the draws of this step and the weight of the KL divergence."""
        step, config = self.trainer.global_step, self.config
        _seed(_mix(config.seed, step, self.global_rank))
        rise = round(config.kl_warmup * self._num_steps())
        self.objective.beta = config.kl_weight * warm_up(step, rise)

    def training_step(self, batch: Any, batch_idx: int) -> Float[Tensor, ""]:
        """Negative objective per row."""
        x, y, *weight = batch
        loss = -self.objective(self(x), y, *weight)
        self._losses.append(loss.detach() * len(y))
        self._rows += len(y)
        if self.trainer.is_last_batch:
            # Lightning can average by itself, but asking it at every step costs as much as a step.
            average = torch.stack(self._losses).sum() / self._rows
            self.log("loss", average, on_step=False, on_epoch=True, prog_bar=True, sync_dist=True)
        return loss

    def on_train_epoch_start(self) -> None:
        """Forget the losses of the last epoch."""
        self._losses.clear()
        self._rows = 0

    def on_train_epoch_end(self) -> None:
        """Stop with an error rather than go on with parameters that are not numbers."""
        loss = self.trainer.callback_metrics.get("loss")
        if loss is not None and not bool(torch.isfinite(loss)):
            raise ValueError(
                f"training diverged in epoch {self.current_epoch}: the loss is {float(loss)}; "
                "lower the learning rate or clip the gradient"
            )

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Score held-out rows by their predictive density."""
        x, y = batch[:2]
        output = self(x)
        density = log_density(predictive(self.likelihood, output), y)
        self.log("val_loss", -density.mean(), prog_bar=True, batch_size=len(y), sync_dist=True)

    def configure_optimizers(self) -> Any:
        """Make optimizer and schedule."""
        optimizer = build_optimizer(self.model, self.likelihood, self.config)
        steps = self._num_steps()
        schedule = build_schedule(
            optimizer, self.config, steps, max(1, steps // self.config.epochs)
        )
        scheduler = {"scheduler": schedule, "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Remember what a resumed run must share."""
        checkpoint["run"] = self._describe()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse to resume a run with other options, or on another number of rows."""
        saved, own = checkpoint.get("run", {}), self._describe()
        differing = [key for key in own if saved.get(key) != own[key]]
        if differing:
            raise ValueError(
                "the checkpoint belongs to a run with other options: "
                f"{', '.join(differing)} changed; resume with the same, or start afresh"
            )
        match_levels(self, checkpoint["state_dict"])

    def _describe(self) -> dict[str, Any]:
        """Options of the run, as values that ``weights_only`` loading allows."""
        options = {
            key: dict(value) if isinstance(value, Mapping) else value
            for key, value in dataclasses.asdict(self.config).items()
        }
        return {**options, "num_rows": self.objective.num_data}

    def _num_steps(self) -> int:
        return max(1, int(self.trainer.estimated_stepping_batches))


def _seed(value: int) -> None:
    """``torch.manual_seed`` without the stack trace it takes where CUDA is never used."""
    if torch.cuda.is_available() or torch.mps.is_available():
        torch.manual_seed(value)
    else:
        torch.default_generator.manual_seed(value)


def _mix(seed: int, step: int, rank: int) -> int:
    """One number from three, so that neighbouring steps, seeds and processes are unrelated."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step) * 4_099 + rank)
    return int(torch.randint(2**62, (), generator=generator))
