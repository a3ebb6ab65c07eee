"""A function of one input, seen on [-3, 3] and predicted on [-5, 5] (the paper's Figure 8).

The truth is drawn from a GP with kernel exp(-(x - x')^2). Above, a deep GP with two hidden layers
of ten features; below, a deep kernel on an MLP 1-100-50-10; level 6; each with 1, 10, 20 and 50
samples per training step.
"""

from collections.abc import Mapping, Sequence

import torch
from gpytorch.likelihoods import Likelihood
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.experiments.figures.style import panels
from sikagp.layers import SIKALayer
from sikagp.likelihoods import build_likelihood
from sikagp.mixtures import GaussianMixture
from sikagp.models import DeepGP, DeepKernel
from sikagp.plots import plot_fit
from sikagp.predictions import predictive
from sikagp.training import TrainingConfig, fit
from sikagp.variational import GaussianMarginals

SAMPLES = (1, 10, 20, 50)
NOISE = 0.1
EVALUATION_SAMPLES = 50
_TWO_SIDED_95 = 1.96
# One epoch of Lightning makes several passes over these few rows.
_PASSES = 20

Curve = tuple[Float[Tensor, " points"], Float[Tensor, " points"]]


def draw_truth(points: int, seed: int) -> Curve:
    """Return a function from the GP on a fine grid of [-5, 5], in float64."""
    x = torch.linspace(-5, 5, points, dtype=torch.float64)
    kernel = torch.exp(-((x[:, None] - x) ** 2)) + 1e-8 * torch.eye(points, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(points, generator=generator, dtype=torch.float64)
    return x, torch.linalg.cholesky(kernel) @ noise


def observe(
    truth: Curve, count: int, seed: int
) -> tuple[Float[Tensor, "rows 1"], Float[Tensor, "rows 1"]]:
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
        return GaussianMixture(GaussianMarginals(draws, torch.zeros_like(draws)))

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
    kernel = DeepKernel(backbone, 10, 1, level=6, reach=2.0, residual="outside")
    return Sampled(kernel, samples)


MODELS = {"DGP": deep_gp, "DKL": deep_kernel}


def train(model: nn.Module, data: tuple[Tensor, Tensor], *, epochs: int, seed: int) -> Likelihood:
    """Fit model and noise; the prior variance of f stays at 1, that of the truth."""
    last = [layer for layer in model.modules() if isinstance(layer, SIKALayer)][-1]
    last.log_variance.requires_grad_(False)
    likelihood = build_likelihood("gaussian", 1)
    rows = [part.repeat(_PASSES, 1) for part in data]
    config = TrainingConfig(
        epochs=epochs, batch_size=len(data[0]), kl_weight=_PASSES, learning_rate=1e-2, seed=seed
    )
    fit(model, likelihood, rows, config, trainer_options={"enable_progress_bar": False})
    return likelihood


@torch.no_grad()
def score(model: nn.Module, truth: Curve) -> dict[str, float]:
    """How often the band covers the truth among the data and outside, and how wide it is."""
    x, f = truth
    q = model.eval()(x[:, None].float())
    mean, stddev = q.mean[:, 0], q.stddev[:, 0]
    covered = ((f - mean).abs() <= _TWO_SIDED_95 * (stddev**2 + NOISE**2).sqrt()).float()
    inside = x.abs() <= 3
    return {
        "coverage inside": float(covered[inside].mean()),
        "coverage outside": float(covered[~inside].mean()),
        "deviation inside": float(stddev[inside].mean()),
        "deviation outside": float(stddev[~inside].mean()),
    }


def draw(
    *, samples: Sequence[int] = SAMPLES, epochs: int = 20, seed: int = 0
) -> tuple[Figure, Mapping[str, Mapping[str, float]]]:
    """Train all models; returns the figure and the scores of every panel."""
    truth = draw_truth(401, seed)
    data = observe(truth, 200, seed)
    size = (3.2 * len(samples), 5.2)
    figure, axes = panels(2, len(samples), size, sharex=True, sharey=True)
    scores = {}
    for row, (name, build) in enumerate(MODELS.items()):
        for column, count in enumerate(samples):
            torch.manual_seed(seed)
            model = build(count)
            likelihood = train(model, data, epochs=epochs, seed=seed)
            title = f"{name}, S = {count}"
            _draw_panel(axes[row][column], model, likelihood, truth, data)
            axes[row][column].set_title(title)
            scores[title] = score(model, truth)
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False)
    return figure, scores


@torch.no_grad()
def _draw_panel(
    ax: Axes, model: nn.Module, likelihood: Likelihood, truth: Curve, data: tuple[Tensor, Tensor]
) -> None:
    """Truth, data, and the predictive band of y."""
    x, f = truth
    q = predictive(likelihood, model.eval()(x[:, None].float()))
    plot_fit(x, q.mean[:, 0], q.variance[:, 0], data=data, truth=f, ax=ax)
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()
