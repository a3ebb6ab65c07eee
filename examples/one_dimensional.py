"""Does the band widen where there are no data, and does it cover the truth?

    python examples/one_dimensional.py --out build/one_dimensional.png

draws the paper's figure of eight panels: a function from a GP with kernel exp(-(x - x')^2), seen
with noise on [-3, 3] and tested on [-5, 5]. Above, a deep GP with two hidden layers of ten
features; below, a deep kernel on an MLP 1-100-50-10; level 6; 1, 10, 20 and 50 samples per step.
``--functions 5`` prints scores averaged over five such functions instead.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from sikagp.layers import SIKALayer
from sikagp.likelihoods import build_likelihood
from sikagp.mixtures import GaussianMixture
from sikagp.models import DeepGP, DeepKernel
from sikagp.models.predictor import Predictor
from sikagp.plots import plot_fit
from sikagp.training import TrainingConfig, fit
from sikagp.training.configuration import OBJECTIVES
from sikagp.variational import GaussianMarginals

SAMPLES = (1, 10, 20, 50)
NOISE = 0.1
TWO_SIDED_95 = 1.96
# One epoch of Lightning makes several passes over these few rows.
PASSES = 20
Options = argparse.Namespace


def draw_truth(points: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return a function from the GP on a fine grid of [-5, 5], in float64."""
    x = torch.linspace(-5, 5, points, dtype=torch.float64)
    kernel = torch.exp(-((x[:, None] - x) ** 2)) + 1e-8 * torch.eye(points, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(points, generator=generator, dtype=torch.float64)
    return x, torch.linalg.cholesky(kernel) @ noise


def observe(x: Tensor, f: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pick rows inside [-3, 3] and add noise, shapes (count, 1) and (count, 1)."""
    generator = torch.Generator().manual_seed(seed)
    inside = torch.nonzero(x.abs() <= 3).squeeze(-1)
    rows = inside[torch.randint(len(inside), (count,), generator=generator)]
    y = f[rows] + NOISE * torch.randn(count, generator=generator, dtype=f.dtype)
    return x[rows, None].float(), y[:, None].float()


def deep_gp(samples: int) -> DeepGP:
    """Two hidden layers of ten features; the first grid covers the data only."""
    return DeepGP(
        (1, 10, 10, 1),
        level=6,
        domain=(-3.0, 3.0),
        mean_function="fixed",
        num_samples=(samples, 50),
    )


class Sampled(nn.Module):
    """A deep kernel trained on draws of f, as in the paper, though its marginals are exact."""

    def __init__(self, kernel: DeepKernel, samples: int) -> None:
        super().__init__()
        self.kernel, self.samples = kernel, samples

    def forward(self, x: Tensor) -> GaussianMarginals | GaussianMixture:
        q = self.kernel(x)
        if not self.training:
            return q
        draws = q.rsample((self.samples,))
        return GaussianMixture(GaussianMarginals(draws, torch.zeros_like(draws)))

    def kl_divergence(self) -> Tensor:
        return self.kernel.kl_divergence()


def deep_kernel(samples: int) -> Sampled:
    """MLP 1-100-50-10 under a SIKA layer; its features grow beyond the grid with x."""
    backbone = nn.Sequential(
        *(nn.Linear(1, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10))
    )
    kernel = DeepKernel(backbone, 10, 1, level=6, reach=1.8, lengthscale=0.7, residual="outside")
    return Sampled(kernel, samples)


def fix_prior(model: nn.Module) -> None:
    """Keep prior variances and lengthscales: far from data the band shows nothing else.

    Learned from one function on [-3, 3] they would fit that function, and not its neighbourhood.
    """
    for layer in model.modules():
        if isinstance(layer, SIKALayer):
            layer.log_variance.requires_grad_(False)
            layer.log_lengthscale.requires_grad_(False)


MODELS = {"DGP": deep_gp, "DKL": deep_kernel}


def train(name: str, samples: int, data: tuple[Tensor, Tensor], options: Options) -> Predictor:
    """Fit one of the models to the data."""
    torch.manual_seed(options.seed)
    model, likelihood = MODELS[name](samples), build_likelihood("gaussian", 1)
    fix_prior(model)
    rows = [part.repeat(PASSES, 1) for part in data]
    config = TrainingConfig(
        epochs=options.epochs,
        batch_size=len(data[0]),
        objective=options.objective,
        # Repeated rows count as more data, which the weight of the KL divergence makes up for.
        kl_weight=PASSES,
        learning_rate=2e-2,
        seed=options.seed,
    )
    fit(model, likelihood, rows, config, trainer_options={"enable_progress_bar": False})
    return Predictor(model, likelihood).eval()


@torch.no_grad()
def measure(predictor: Predictor, x: Tensor, f: Tensor) -> dict[str, float]:
    """Share of the truth inside the 95% band, and the band's deviation, near and far from data."""
    q = predictor(x[:, None].float())
    covered = ((f - q.mean[:, 0]).abs() <= TWO_SIDED_95 * q.stddev[:, 0]).float()
    inside = x.abs() <= 3
    return {
        "covered inside": float(covered[inside].mean()),
        "outside": float(covered[~inside].mean()),
        "deviation inside": float(q.stddev[inside].mean()),
        "outside ": float(q.stddev[~inside].mean()),
    }


@torch.no_grad()
def draw_panel(
    ax: plt.Axes, predictor: Predictor, truth: tuple[Tensor, Tensor], data: tuple[Tensor, Tensor]
) -> None:
    """Truth, data, and the predictive band of y."""
    x, f = truth
    q = predictor(x[:, None].float())
    plot_fit(x, q.mean[:, 0], q.variance[:, 0], data=(data[0], data[1]), truth=f, ax=ax)
    ax.get_legend().remove()


def draw(options: Options) -> None:
    """Fit all models to one function and draw a panel for each."""
    x, f = draw_truth(401, options.seed)
    data = observe(x, f, 200, options.seed)
    figure, axes = plt.subplots(
        len(MODELS),
        len(options.samples),
        figsize=(3.2 * len(options.samples), 5.2),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for row, name in zip(axes, MODELS, strict=True):
        for ax, samples in zip(row, options.samples, strict=True):
            predictor = train(name, samples, data, options)
            draw_panel(ax, predictor, (x, f), data)
            ax.set_title(f"{name}, S = {samples}")
            say(name, samples, measure(predictor, x, f))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(options.out, dpi=120)
    print(f"Figure: {options.out}")


def average(options: Options) -> None:
    """Fit all models to several functions and print what they have in common."""
    for name in MODELS:
        for samples in options.samples:
            scores = []
            for seed in range(options.seed, options.seed + options.functions):
                x, f = draw_truth(401, seed)
                predictor = train(name, samples, observe(x, f, 200, seed), options)
                scores.append(measure(predictor, x, f))
            mean = {key: sum(row[key] for row in scores) / len(scores) for key in scores[0]}
            say(name, samples, mean)


def say(name: str, samples: int, scores: dict[str, float]) -> None:
    numbers = "   ".join(f"{key} {value:.3f}" for key, value in scores.items())
    print(f"{name}  S = {samples:2d}   {numbers}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/one_dimensional.png"))
    parser.add_argument("--epochs", type=int, default=20, help=f"rounds of {PASSES} passes")
    parser.add_argument("--samples", type=int, nargs="+", default=list(SAMPLES))
    parser.add_argument("--objective", choices=OBJECTIVES, default="predictive")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--functions", type=int, help="average scores over so many functions instead of drawing"
    )
    options = parser.parse_args()
    if options.functions:
        average(options)
    else:
        draw(options)


if __name__ == "__main__":
    main()
