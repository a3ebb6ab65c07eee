"""What to train and for how long: defaults that follow from the number of rows."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sikagp.domains import Domain
from sikagp.kernels import MarkovKernel, get_kernel
from sikagp.models import DeepGP
from sikagp.models.architecture import with_pairs
from sikagp.training import TrainingConfig
from sikagp.validation import check_choice, check_count, check_number

# Units of hidden layers, or ``PAIRS``: a layer over features and pairs of them.
Hidden = tuple[int, ...] | str
PAIRS = "pairs"
# Numbers of rows from which models become wider and deeper.
SMALL, LARGE = 500, 5_000
MANY = (64, 64)
DOMAINS = ("range", "quantiles")
# Lightning's work per epoch costs as much as several steps, so an epoch should have this many.
STEPS_PER_EPOCH = 25
EVALUATION_SAMPLES = 20
CLASSIFICATION_KL_WEIGHT = 0.3
# Precision of the Gaussian prior that linear coefficients of a classifier have.
TREND_PRECISION = 2.0
# How much less log density of held-out rows, in nats, a brief training may leave a model with.
CLOSE = 10.0
# Initial lengthscales in deviations of a feature: effects start smooth where rows are not many.
ADDITIVE_LENGTHSCALE, DEEP_LENGTHSCALE = 10.0, 3.0


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How often the rows are seen: ``epochs`` times ``passes`` passes in batches."""

    epochs: int
    passes: int
    batch_size: int
    learning_rate: float


def over_pairs(hidden: Any) -> bool:
    """Whether a model over pairs of features was asked for; arrays do not compare with texts."""
    return isinstance(hidden, str) and hidden == PAIRS


def hidden_sizes(
    hidden: Any, rows: int, few: Sequence[Hidden], medium: Sequence[Hidden]
) -> list[Hidden]:
    """Architectures to try; ``"auto"`` goes by the number of rows: few, a medium one, or many."""
    if isinstance(hidden, str):
        if over_pairs(hidden):
            return [PAIRS]
        if hidden != "auto":
            raise ValueError(f"hidden must be 'auto', 'pairs' or numbers of units, got {hidden!r}")
        return list(few if rows < SMALL else medium if rows < LARGE else [MANY])
    sizes = tuple(hidden) if isinstance(hidden, Sequence | np.ndarray) else (hidden,)
    return [tuple(check_count("each number of units in hidden", size) for size in sizes)]


def grid_level(level: Any, rows: int, *, classification: bool) -> int:
    """Resolve ``"auto"``: coarse grids where there are many weights to learn."""
    if level == "auto":
        return 3 if classification or rows >= LARGE else 4
    return check_count("level", level)


def plan_schedule(
    rows: int, max_epochs: Any, batch_size: Any, learning_rate: Any, *, classification: bool
) -> Schedule:
    """Resolve ``"auto"``: a number of steps rather than of passes, unless rows are many."""
    if batch_size == "auto":
        batch_size = 256 if rows < LARGE else 512
    size = min(check_count("batch_size", batch_size), rows)
    steps_per_pass = -(-rows // size)
    if max_epochs == "auto":
        steps = 300 if rows < SMALL else 600 if classification else 1200
        max_epochs = max(30, steps // steps_per_pass)
    total = check_count("max_epochs", max_epochs)
    passes = min(total, -(-STEPS_PER_EPOCH // steps_per_pass))
    rate = (0.02 if rows < LARGE else 0.01) if learning_rate == "auto" else learning_rate
    return Schedule(-(-total // passes), passes, size, rate)


def brief(plan: Schedule) -> Schedule:
    """A quarter of the epochs, enough to see which architectures fall behind."""
    return dataclasses.replace(plan, epochs=-(-plan.epochs // 4))


def close(choices: Sequence[Hidden], scores: Sequence[float]) -> list[Hidden]:
    """Architectures that more training may still put first, by log densities of held-out rows."""
    least = max(scores) - CLOSE
    return [hidden for hidden, score in zip(choices, scores, strict=True) if score >= least]


def prior_weight(kl_weight: Any, *, classification: bool) -> float:
    """Resolve ``"auto"``: 1, the evidence lower bound; less for classes.

    A label says so little that the bound leaves probabilities too close to even.
    """
    if kl_weight == "auto":
        return CLASSIFICATION_KL_WEIGHT if classification else 1.0
    if check_number("kl_weight", kl_weight) < 0:
        raise ValueError(f"kl_weight must not be negative, got {kl_weight}")
    return float(kl_weight)


def weight_decay(rows: float, *, classification: bool) -> float:
    """Decay, per row, that is the prior of a classifier's linear coefficients; others have none.

    Without one, classes that a plane can separate would make them grow as long as they are trained.
    """
    return TREND_PRECISION / rows if classification else 0.0


def accelerator(device: Any) -> str:
    """Lightning's name of a device; one that this machine lacks is refused."""
    name = str(device)
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if not {"cuda": cuda, "mps": mps, "gpu": cuda or mps}.get(name, True):
        raise ValueError(f"device {name!r} is not there: torch finds none on this machine")
    return {"cuda": "gpu"}.get(name, name)


def build_model(
    x: Tensor,
    hidden: Hidden,
    out_features: int,
    *,
    level: int,
    kernel: str | MarkovKernel,
    domain: str,
    num_samples: int,
    classification: bool,
) -> DeepGP:
    """Make a model whose first grid covers the rows x of shape (rows, features).

    Its nodes are spread evenly over the range of the rows, or follow their quantiles. The kernel
    ``"auto"`` is smooth in regressors with hidden layers or pairs, unless rows are many.

    A regressor's hidden units, if as many as features, are those features plus a Gaussian process.
    Otherwise a learned linear mean starts with the features, and random directions for the rest.
    Classifiers add a linear trend, so that rows far from all others are not called undecided.
    """
    even = check_choice("domain", domain, DOMAINS) == "range"
    options: dict[str, Any] = {}
    sizes: Any = () if hidden == PAIRS else hidden
    terms = with_pairs(x, x.shape[1]) if hidden == PAIRS else x
    smooth = bool(hidden) and len(x) < LARGE and not classification
    if kernel == "auto":
        kernel = "matern52" if smooth else "laplace"
    if (smooth or not sizes) and get_kernel(kernel).stationary:
        options["lengthscale"] = DEEP_LENGTHSCALE if sizes else ADDITIVE_LENGTHSCALE
    as_many = not classification and set(sizes) == {x.shape[1]}
    model = DeepGP(
        (x.shape[1], *sizes, out_features),
        level=level,
        kernel=kernel,
        domain=Domain.fit(terms) if even else Domain.quantiles(terms, level=level),
        mean_function="fixed" if as_many else "learned",
        trend=classification,
        pairs=hidden == PAIRS,
        num_samples=(num_samples, EVALUATION_SAMPLES),
        **options,
    )
    if sizes and not as_many:
        with torch.no_grad():
            weight = model.means[0].weight
            torch.nn.init.eye_(weight[:, : len(weight)])  # type: ignore[arg-type, index]
    return model


def training_config(plan: Schedule, seed: int, **options: Any) -> TrainingConfig:
    """Options of a run in which each epoch makes several passes.

    Repeated rows count as more data, which the weight of the KL divergence makes up for.
    """
    kl_weight = options.pop("kl_weight") * plan.passes
    return TrainingConfig(
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        kl_weight=kl_weight,
        learning_rate=plan.learning_rate,
        seed=seed,
        **options,
    )
