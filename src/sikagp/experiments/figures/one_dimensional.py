"""A function of one input, seen on [-3, 3] and predicted on [-5, 5] (the paper's Figure D.1).

The truth is drawn from a GP with kernel exp(-(x - x')^2). Above, a deep GP with two hidden layers
of ten features; below, a deep kernel on an MLP 1-100-50-10; level 6; each with 1, 10, 20 and 50
samples per training step.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.experiments.figures.style import panels
from sikagp.layers import SIKALayer
from sikagp.likelihoods import build_likelihood
from sikagp.mixtures import GaussianMixture, mixture_of_draws
from sikagp.models import DeepGP, DeepKernel
from sikagp.models.predictor import Predictor
from sikagp.plots import plot_fit
from sikagp.training import TrainingConfig, fit
from sikagp.variational import GaussianMarginals

SAMPLES = (1, 10, 20, 50)
NOISE = 0.1
EVALUATION_SAMPLES = 50
_TWO_SIDED_95 = 1.96
# A factorised posterior of thousands of weights cannot get narrow on 200 rows at full weight.
_KL_WEIGHT = 0.02
# One epoch of Lightning makes several passes over these few rows.
_PASSES = 20

Curve = tuple[Float[Tensor, " points"], Float[Tensor, " points"]]
Rows = tuple[Float[Tensor, "rows 1"], Float[Tensor, "rows 1"]]


def draw_truth(points: int, seed: int) -> Curve:
    """Return a function from the GP on a fine grid of [-5, 5], in float64."""
    x = torch.linspace(-5, 5, points, dtype=torch.float64)
    kernel = torch.exp(-((x[:, None] - x) ** 2)) + 1e-8 * torch.eye(points, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(points, generator=generator, dtype=torch.float64)
    return x, torch.linalg.cholesky(kernel) @ noise


def observe(truth: Curve, count: int, seed: int) -> Rows:
    """Pick points inside [-3, 3] and add noise."""
    x, f = truth
    generator = torch.Generator().manual_seed(seed)
    inside = torch.nonzero(x.abs() <= 3).squeeze(-1)
    rows = inside[torch.randint(len(inside), (count,), generator=generator)]
    y = f[rows] + NOISE * torch.randn(count, generator=generator, dtype=f.dtype)
    return x[rows, None].float(), y[:, None].float()


class Sampled(nn.Module):
    """A deep kernel trained on draws of f, as in the paper, though its marginals are exact."""

    def __init__(self, kernel: DeepKernel, samples: int) -> None:
        super().__init__()
        self.kernel, self.samples = kernel, samples

    def forward(self, x: Float[Tensor, "rows 1"]) -> GaussianMarginals | GaussianMixture:
        """Draws in training mode, marginals otherwise."""
        q = self.kernel(x)
        if not self.training:
            return q
        draws = q.rsample((self.samples,))
        return mixture_of_draws(draws)

    def kl_divergence(self) -> Float[Tensor, ""]:
        """KL divergence of the last layer."""
        return self.kernel.kl_divergence()


def deep_gp(samples: int) -> DeepGP:
    """Two hidden layers of ten features; the first grid covers the data only."""
    return DeepGP(
        (1, 10, 10, 1),
        level=6,
        domain=(-3.0, 3.0),
        mean_function="fixed",
        num_samples=(samples, EVALUATION_SAMPLES),
    )


def deep_kernel(samples: int) -> Sampled:
    """MLP 1-100-50-10 under a SIKA layer; its features grow beyond the grid with x."""
    backbone = nn.Sequential(
        *(nn.Linear(1, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10))
    )
    kernel = DeepKernel(
        backbone,
        10,
        1,
        level=6,
        reach=1.8,
        normalisation="running",
        lengthscale=0.7,
        residual="outside",
    )
    return Sampled(kernel, samples)


MODELS: dict[str, Callable[[int], DeepGP | Sampled]] = {"DGP": deep_gp, "DKL": deep_kernel}


def fix_prior(model: nn.Module) -> None:
    """Keep prior variances and lengthscales: far from data the band shows nothing else.

    Learned from one function on [-3, 3] they would fit that function, and not its neighbourhood.
    """
    for layer in model.modules():
        if isinstance(layer, SIKALayer):
            for name, parameter in layer.named_parameters():
                parameter.requires_grad_(name not in ("log_variance", "log_lengthscale"))


def train(
    name: str, samples: int, data: Rows, *, epochs: int, objective: str, seed: int
) -> Predictor:
    """Fit one of the models to the data."""
    torch.manual_seed(seed)
    model, likelihood = MODELS[name](samples), build_likelihood("gaussian", 1)
    fix_prior(model)
    config = TrainingConfig(
        epochs=epochs,
        batch_size=len(data[0]),
        objective=objective,
        # Repeated rows count as more data, which the weight of the KL divergence makes up for.
        kl_weight=_KL_WEIGHT * _PASSES,
        learning_rate=2e-2,
        seed=seed,
    )
    rows = [part.repeat(_PASSES, 1) for part in data]
    fit(model, likelihood, rows, config, trainer_options={"enable_progress_bar": False})
    trained = model.kernel if isinstance(model, Sampled) else model
    return Predictor(trained, likelihood).eval()


@torch.no_grad()
def score(predictor: Predictor, truth: Curve) -> dict[str, float]:
    """How often the band covers the truth among the data and outside, and how wide it is."""
    x, f = truth
    q = predictor(x[:, None].float())
    covered = ((f - q.mean[:, 0]).abs() <= _TWO_SIDED_95 * q.stddev[:, 0]).float()
    inside = x.abs() <= 3
    return {
        "coverage inside": float(covered[inside].mean()),
        "coverage outside": float(covered[~inside].mean()),
        "deviation inside": float(q.stddev[inside].mean()),
        "deviation outside": float(q.stddev[~inside].mean()),
    }


def draw(
    *,
    samples: Sequence[int] = SAMPLES,
    epochs: int = 20,
    objective: str = "predictive",
    seed: int = 0,
) -> tuple[Figure, Mapping[str, Mapping[str, float]]]:
    """Train all models; returns the figure and the scores of every panel."""
    truth = draw_truth(401, seed)
    data = observe(truth, 200, seed)
    size = (3.2 * len(samples), 5.2)
    figure, axes = panels(len(MODELS), len(samples), size, sharex=True, sharey=True)
    scores = {}
    for row, name in enumerate(MODELS):
        for column, count in enumerate(samples):
            predictor = train(name, count, data, epochs=epochs, objective=objective, seed=seed)
            title = f"{name}, S = {count}"
            _draw_panel(axes[row][column], predictor, truth, data)
            axes[row][column].set_title(title)
            scores[title] = score(predictor, truth)
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False)
    return figure, scores


def average(
    functions: int,
    *,
    samples: Sequence[int] = SAMPLES,
    epochs: int = 20,
    objective: str = "predictive",
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Scores of every panel, averaged over several functions."""
    options: dict[str, Any] = {"epochs": epochs, "objective": objective}
    averages = {}
    for name in MODELS:
        for count in samples:
            rows = []
            for number in range(seed, seed + functions):
                truth = draw_truth(401, number)
                data = observe(truth, 200, number)
                rows.append(score(train(name, count, data, seed=number, **options), truth))
            averages[f"{name}, S = {count}"] = {
                key: sum(row[key] for row in rows) / functions for key in rows[0]
            }
    return averages


@torch.no_grad()
def _draw_panel(ax: Axes, predictor: Predictor, truth: Curve, data: Rows) -> None:
    """Truth, data, and the predictive band of y."""
    x, f = truth
    q = predictor(x[:, None].float())
    plot_fit(x, q.mean[:, 0], q.variance[:, 0], data=data, truth=f, ax=ax)
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()
