"""Does the band widen where there are no data, and does it cover the truth?

    python examples/one_dimensional.py --out build/one_dimensional.png

draws the paper's figure of eight panels: a function from a GP with kernel exp(-(x - x')^2), seen
with noise on [-3, 3] and tested on [-5, 5]. Above, a deep GP with two hidden layers of ten
features; below, a deep kernel on an MLP 1-100-50-10; level 6; 1, 10, 20 and 50 samples per step.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor, nn

from sikagp.layers import SIKALayer
from sikagp.likelihoods import build_likelihood
from sikagp.mixtures import GaussianMixture
from sikagp.models import DeepGP, DeepKernel
from sikagp.models.predictor import Predictor
from sikagp.plots import plot_fit
from sikagp.training import TrainingConfig, fit
from sikagp.variational import GaussianMarginals

SAMPLES = (1, 10, 20, 50)
NOISE = 0.1
TWO_SIDED_95 = 1.96


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
    kernel = DeepKernel(backbone, 10, 1, level=6, reach=2.0, residual="outside")
    return Sampled(kernel, samples)


def fix_prior(model: nn.Module) -> None:
    """Keep the prior variance of f at 1, that of the truth: a band far from data shows it."""
    last = [layer for layer in model.modules() if isinstance(layer, SIKALayer)][-1]
    last.log_variance.requires_grad_(False)


def train(model: nn.Module, data: tuple[Tensor, Tensor], epochs: int) -> GaussianLikelihood:
    likelihood = build_likelihood("gaussian", 1)
    passes = 20  # one epoch of Lightning makes several passes over these few rows
    rows = [part.repeat(passes, 1) for part in data]
    config = TrainingConfig(
        epochs=epochs, batch_size=len(data[0]), kl_weight=passes, learning_rate=1e-2
    )
    fit(model, likelihood, rows, config, trainer_options={"enable_progress_bar": False})
    return likelihood


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/one_dimensional.png"))
    parser.add_argument("--epochs", type=int, default=20, help="rounds of 20 passes")
    parser.add_argument("--samples", type=int, nargs="+", default=list(SAMPLES))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    x, f = draw_truth(401, options.seed)
    data = observe(x, f, 200, options.seed)
    size = (3.2 * len(options.samples), 5.2)
    figure, axes = plt.subplots(
        2,
        len(options.samples),
        figsize=size,
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    print("model  samples   coverage of f inside   outside   deviation inside   outside")
    for row, name in enumerate(("DGP", "DKL")):
        for column, samples in enumerate(options.samples):
            torch.manual_seed(options.seed)
            model = (deep_gp if name == "DGP" else deep_kernel)(samples)
            fix_prior(model)
            likelihood = train(model, data, options.epochs)
            draw_panel(axes[row, column], Predictor(model, likelihood), (x, f), data)
            axes[row, column].set_title(f"{name}, S = {samples}")
            report(name, samples, model, x, f)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(options.out, dpi=120)
    print(f"Figure: {options.out}")


@torch.no_grad()
def draw_panel(
    ax: plt.Axes, predictor: Predictor, truth: tuple[Tensor, Tensor], data: tuple[Tensor, Tensor]
) -> None:
    """Truth, data, and the predictive band of y."""
    x, f = truth
    q = predictor.eval()(x[:, None].float())
    plot_fit(x, q.mean[:, 0], q.variance[:, 0], data=(data[0], data[1]), truth=f, ax=ax)
    ax.get_legend().remove()


@torch.no_grad()
def report(name: str, samples: int, model: nn.Module, x: Tensor, f: Tensor) -> None:
    """Print how often the band of f covers the truth, and how wide it is."""
    q = model.eval()(x[:, None].float())
    mean, stddev = q.mean[:, 0], q.stddev[:, 0]
    covered = ((f - mean).abs() <= TWO_SIDED_95 * (stddev**2 + NOISE**2).sqrt()).float()
    inside = x.abs() <= 3
    numbers = [covered[inside].mean(), covered[~inside].mean()]
    numbers += [stddev[inside].mean(), stddev[~inside].mean()]
    print(f"{name:5}  {samples:7d}   " + "   ".join(f"{float(number):9.3f}" for number in numbers))


if __name__ == "__main__":
    main()
