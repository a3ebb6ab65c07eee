"""What a training run can be told, in one place."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sikagp.validation import check_choice, check_count, check_number

OPTIMIZERS = ("adam", "adamw", "sgd", "adadelta")
SCHEDULES = ("constant", "step", "cosine", "linear", "one_cycle")
OBJECTIVES = ("elbo", "predictive")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Options of a training run; all of them are plain values, so a run can be read from a file.

    Attributes:
        epochs: passes over the training rows.
        batch_size: rows per step, over all processes together.
        objective: ``"elbo"`` or ``"predictive"`` (predictive log likelihood).
        kl_weight: factor of the KL divergence; 1 is the ELBO.
        kl_warmup: fraction of all steps over which that factor rises from 0.
        optimizer: ``"adam"``, ``"adamw"``, ``"sgd"`` or ``"adadelta"``.
        optimizer_options: further arguments of the optimizer, such as ``{"momentum": 0.9}``.
        learning_rate: peak learning rate.
        learning_rates: other rates for parameters of the model whose names start with a prefix,
            such as ``{"backbone": 2e-5}``.
        likelihood_rate: learning rate of the likelihood's few parameters, such as the noise, as a
            multiple of ``learning_rate``.
        weight_decay: for deterministic parameters only; Bayesian ones have a prior.
        schedule: ``"constant"``, ``"step"``, ``"cosine"`` (to 0), ``"linear"`` (to 0) or
            ``"one_cycle"``.
        step_epochs: epochs between two drops of the ``"step"`` schedule.
        step_factor: factor of each drop.
        warmup: fraction of all steps over which the learning rate rises linearly from 0.
        gradient_clip: largest norm of the gradient.
        validation: fraction of the rows that is held out when no validation data are given.
        patience: epochs without progress on held-out rows before training stops; None never does.
            The best parameters seen are kept whenever there are held-out rows.
        trainable: from which epoch which part of a backbone is trained, such as
            ``{0: "none", 2: 2}``; see :meth:`sikagp.models.DeepKernel.set_trainable`.
        levels: from which epoch all grids have at least which level, such as ``{5: 4, 10: 5}``;
            coarse to fine, in one process only.
        precision: of the computation, as Lightning names it; ``"bf16-mixed"`` computes a network in
            half precision where that is safe, and SIKA layers in full. ``"auto"`` is that on a
            device with instructions for it, and ``"32-true"`` elsewhere.
        num_workers: processes that load data; tensors need none.
        seed: of the split, of the order of rows and of all draws.
    """

    epochs: int = 100
    batch_size: int = 512
    objective: str = "elbo"
    kl_weight: float = 1.0
    kl_warmup: float = 0.15
    optimizer: str = "adam"
    optimizer_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    learning_rate: float = 5e-3
    learning_rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    likelihood_rate: float = 10.0
    weight_decay: float = 0.0
    schedule: str = "one_cycle"
    step_epochs: int = 1
    step_factor: float = 0.7
    warmup: float = 0.0
    gradient_clip: float | None = None
    validation: float = 0.0
    patience: int | None = None
    trainable: Mapping[int, str | int | Sequence[str]] = dataclasses.field(default_factory=dict)
    levels: Mapping[int, int] = dataclasses.field(default_factory=dict)
    precision: str = "32-true"
    num_workers: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "step_epochs"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        check_count("num_workers", self.num_workers, least=0)
        if self.patience is not None:
            check_count("patience", self.patience, least=0)
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)
        for name in ("kl_warmup", "warmup", "validation"):
            if not 0 <= check_number(name, getattr(self, name)) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        for name in ("kl_weight", "likelihood_rate", "weight_decay"):
            if check_number(name, getattr(self, name)) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if check_number("learning_rate", self.learning_rate) <= 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
