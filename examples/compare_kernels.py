"""Which kernel suits which function? Missing prior variance, fits, and speed, kernel by kernel.

    python examples/compare_kernels.py --markdown kernels.md --figure kernels.png
    python examples/compare_kernels.py --quick

Kernels get equal numbers of weights: a grid of Laplace's level L has ``2**L + 1`` nodes with one
weight each, Matérn-3/2 half as many nodes with two, Matérn-5/2 a quarter with three. UCI sets are
read from ``$SIKAGP_DATA/uci`` (or ``../shared/data``) and left out if absent.
"""

import argparse
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor, nn

from sikagp import Domain, SIKALayer
from sikagp.grid import DyadicGrid
from sikagp.kernels import get_kernel
from sikagp.table import two_point
from sikagp.tree import grid_prior

# Levels below Laplace's that give (nearly) its number of weights.
KERNELS = {"laplace": 0, "matern32": 1, "matern52": 2}
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "step": lambda x: (x > 0.4).double() - (x > 0.75).double(),
    "sawtooth": lambda x: 2 * (3 * x % 1) - 1,
    "sine": lambda x: torch.sin(4 * math.pi * x),
    "Doppler": lambda x: 2 * (x * (1 - x)).sqrt() * torch.sin(2.1 * math.pi / (x + 0.05)),
}
NOISE = 0.2
UCI = ("gas", "parkinsons", "kin40k", "protein")
DATA = Path(os.environ.get("SIKAGP_DATA", Path(__file__).parents[2] / "shared" / "data")) / "uci"


def missing_variance(kernel: str, level: int, theta: float = 5.0) -> float:
    """Largest prior variance that a grid cannot express, over a fine set of points."""
    rate = torch.tensor([theta], dtype=torch.float64)
    prior = grid_prior(get_kernel(kernel), DyadicGrid(level), rate)
    points = torch.linspace(0, 1, 16 * 2**level + 1, dtype=torch.float64).unsqueeze(-1)
    return two_point(points, prior)[1].inside.max().item()


class Fit:
    """One additive layer with Gaussian noise, trained by Adam on minibatches."""

    def __init__(self, x: Tensor, y: Tensor, kernel: str, level: int, lengthscale: float) -> None:
        options = {"level": level, "kernel": kernel, "lengthscale": lengthscale}
        self.layer = SIKALayer(x.shape[1], 1, domain=Domain.fit(x, margin=0.02), **options)
        self.log_noise = nn.Parameter(torch.tensor(-2.0))
        self.x, self.y = x, y

    def train(self, steps: int, batch: int) -> float:
        """Maximise the ELBO; returns seconds per step."""
        optimiser = torch.optim.Adam([*self.layer.parameters(), self.log_noise], lr=0.02)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        start = time.perf_counter()
        for _ in range(steps):
            rows = torch.randint(len(self.x), (min(batch, len(self.x)),))
            q, y = self.layer(self.x[rows]), self.y[rows].unsqueeze(-1)
            misfit = ((y - q.mean).square() + q.variance) / self.log_noise.exp()
            loss = 0.5 * (misfit + self.log_noise).mean()
            optimiser.zero_grad()
            (loss + self.layer.kl_divergence() / len(self.x)).backward()
            optimiser.step()
            schedule.step()
        return (time.perf_counter() - start) / steps

    @torch.no_grad()
    def score(self, x: Tensor, y: Tensor) -> tuple[float, float]:
        """RMSE and negative mean log density on rows that were held out."""
        q = self.layer.eval()(x)
        error, variance = y - q.mean[:, 0], q.variance[:, 0] + self.log_noise.exp()
        density = -0.5 * (error.square() / variance + (2 * math.pi * variance).log())
        return error.square().mean().sqrt().item(), -density.mean().item()


def fit_function(name: str, kernel: str, seed: int, *, steps: int, level: int = 7) -> list[float]:
    """RMSE against the true function, NLPD of noisy rows, milliseconds per training step."""
    torch.manual_seed(seed)
    x = torch.rand(400, 1, dtype=torch.float64)
    y = FUNCTIONS[name](x[:, 0]) + NOISE * torch.randn(len(x), dtype=torch.float64)
    fit = Fit(x.float(), y.float(), kernel, level - KERNELS[kernel], 0.2)
    seconds = fit.train(steps, 400)
    grid = torch.linspace(0.001, 0.999, 1000, dtype=torch.float64)
    truth = FUNCTIONS[name](grid)
    noisy = truth + NOISE * torch.randn(len(grid), dtype=torch.float64)
    rmse, _ = fit.score(grid.float().unsqueeze(-1), truth.float())
    _, nlpd = fit.score(grid.float().unsqueeze(-1), noisy.float())
    return [rmse, nlpd, 1e3 * seconds]


def load_uci(name: str, split: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Standardised rows for training and testing: x, y, x_test, y_test."""
    rows = np.loadtxt(DATA / name / "data.csv.gz", delimiter=",")
    test = np.loadtxt(DATA / name / "test_mask.csv.gz", delimiter=",")[:, split].astype(bool)
    mean, deviation = rows[~test].mean(0), rows[~test].std(0)
    rows = torch.tensor((rows - mean) / np.where(deviation > 0, deviation, 1), dtype=torch.float32)
    test = torch.tensor(test)
    return rows[~test, :-1], rows[~test, -1], rows[test, :-1], rows[test, -1]


def fit_uci(name: str, kernel: str, split: int, *, steps: int, level: int = 5) -> list[float]:
    """RMSE and NLPD in units of the target's deviation, milliseconds per training step."""
    torch.manual_seed(split)
    x, y, x_test, y_test = load_uci(name, split)
    fit = Fit(x, y, kernel, level - KERNELS[kernel], 2.0)
    seconds = fit.train(steps, 512)
    return [*fit.score(x_test, y_test), 1e3 * seconds]


def table(
    measure: Callable[..., list[float]], tasks: list[str], seeds: int, **options: int
) -> list[str]:
    """Markdown rows: mean and standard error over seeds of what ``measure`` returns."""
    lines = ["| task | kernel | RMSE | NLPD | training step |", "|---|---|---|---|---|"]
    for task in tasks:
        for kernel in KERNELS:
            found = np.array([measure(task, kernel, seed, **options) for seed in range(seeds)])
            mean, error = found.mean(0), found.std(0) / math.sqrt(seeds)
            line = f"| {task} | {kernel} | {mean[0]:.3f} ± {error[0]:.3f} "
            lines.append(line + f"| {mean[1]:.3f} ± {error[1]:.3f} | {mean[2]:.1f} ms |")
            print(lines[-1], flush=True)
    return lines


def variance_table(levels: range) -> list[str]:
    """Markdown rows: worst missing prior variance, kernel by kernel and level by level."""
    lines = ["| kernel | " + " | ".join(f"L={level}" for level in levels) + " |"]
    lines.append("|---|" + "---|" * len(levels))
    for kernel in KERNELS:
        values = (f"{missing_variance(kernel, level):.2g}" for level in levels)
        lines.append(f"| {kernel} | " + " | ".join(values) + " |")
    return lines


def draw(path: Path, steps: int) -> None:
    """Fits of every function by every kernel."""
    figure, axes = plt.subplots(len(FUNCTIONS), len(KERNELS), figsize=(10, 9), sharex=True)
    grid = torch.linspace(0, 1, 500).unsqueeze(-1)
    for row, (name, function) in zip(axes, FUNCTIONS.items(), strict=True):
        for ax, kernel in zip(row, KERNELS, strict=True):
            torch.manual_seed(0)
            x = torch.rand(400, 1)
            y = function(x[:, 0]).float() + NOISE * torch.randn(len(x))
            fit = Fit(x, y, kernel, 7 - KERNELS[kernel], 0.2)
            fit.train(steps, 400)
            with torch.no_grad():
                q = fit.layer.eval()(grid)
            mean, band = q.mean[:, 0], 2 * q.stddev[:, 0]
            ax.plot(x, y, ".", color="0.75", markersize=2)
            ax.plot(grid, function(grid[:, 0]), color="black", linewidth=0.8)
            ax.plot(grid, mean, color="#0072B2", linewidth=1.2)
            ax.fill_between(grid[:, 0], mean - band, mean + band, color="#0072B2", alpha=0.25)
            ax.set_title(f"{name}, {kernel}", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> None:
    """Print the tables, and write them and the figure if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, few steps, small sets")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000, help="training steps of every fit")
    parser.add_argument("--markdown", type=Path, help="where to write the tables")
    parser.add_argument("--figure", type=Path, help="where to write the figure")
    options = parser.parse_args()
    seeds, steps = (1, 30) if options.quick else (options.seeds, options.steps)
    names = [name for name in UCI[: 1 if options.quick else None] if (DATA / name).is_dir()]
    sections = {"Worst missing prior variance, theta = 5": variance_table(range(1, 11))}
    print("\n".join(sections["Worst missing prior variance, theta = 5"]))
    sections["Functions of one variable"] = table(fit_function, [*FUNCTIONS], seeds, steps=steps)
    sections["UCI, one additive layer"] = table(fit_uci, names, seeds, steps=steps)
    if options.figure:
        draw(options.figure, steps)
    if options.markdown:
        text = (f"### {title}\n\n" + "\n".join(rows) for title, rows in sections.items())
        options.markdown.write_text("\n\n".join(text) + "\n")


if __name__ == "__main__":
    main()
