"""One SIKA layer on a noisy function seen on two stretches of the line, and its pictures.

``basis.png`` shows the basis functions of a grid of level 3, ``fit.png`` the fit with its
uncertainty among the data, in the gap between them, and beyond them. The demo draws both.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from gpytorch.likelihoods import MultitaskGaussianLikelihood
from torch import Tensor

from sikagp import Domain, SIKALayer
from sikagp.experiments.figures import basis

Intervals = tuple[tuple[float, float], ...]

NOISE = 0.15
DATA: Intervals = ((-3.0, 0.3), (1.5, 3.0))
HELD_OUT: dict[str, Intervals] = {
    "among the data": DATA,
    "in the gap": ((0.3, 1.5),),
    "beyond the data": ((-5.5, -3.0), (3.0, 5.5)),
}
TWO_SIDED_95 = 1.96
BLUE, PALE, FAINT, ORANGE, INK = "#1b5e9e", "#a9cbe8", "#dfebf5", "#d9660b", "#262626"
STYLE = {
    "font.size": 9,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "mathtext.fontset": "cm",
    "savefig.dpi": 140,
    "savefig.bbox": "tight",
}


def truth(x: Tensor) -> Tensor:
    return torch.sin(2 * x) + 0.3 * torch.cos(3.4 * x + 0.5)


def observe(intervals: Intervals, count: int) -> tuple[Tensor, Tensor]:
    """Draw points uniformly from the intervals, and the truth there with noise."""
    low, high = torch.tensor(intervals).unbind(-1)
    which = torch.multinomial(high - low, count, replacement=True)
    x = torch.lerp(low[which], high[which], torch.rand(count)).unsqueeze(-1)
    return x, truth(x) + NOISE * torch.randn_like(x)


def fit(x: Tensor, y: Tensor, steps: int) -> tuple[SIKALayer, MultitaskGaussianLikelihood]:
    """Maximise the evidence lower bound (ELBO) over the layer and the noise of the likelihood."""
    layer = SIKALayer(1, 1, level=6, domain=Domain.fit(x, margin=0.02))
    likelihood = MultitaskGaussianLikelihood(num_tasks=1, has_task_noise=False)
    optimizer = torch.optim.Adam([*layer.parameters(), *likelihood.parameters()], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        expected = likelihood.expected_log_prob(y, layer(x).to_gpytorch()).sum()
        elbo = expected - layer.kl_divergence()
        elbo.neg().backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 5) == 0:
            print(f"  step {step:4d}   ELBO {elbo.item():8.2f}")
    return layer.eval(), likelihood.eval()


@torch.no_grad()
def bands(
    layer: SIKALayer, likelihood: MultitaskGaussianLikelihood, x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean of f, and half the width of the 95% bands of f and of y."""
    q = layer(x)
    noisy = likelihood(q.to_gpytorch())
    return q.mean, TWO_SIDED_95 * q.stddev, TWO_SIDED_95 * noisy.stddev


def score(layer: SIKALayer, likelihood: MultitaskGaussianLikelihood, count: int = 2000) -> None:
    """Print the error of the mean and how often the 95% band holds a held-out y."""
    print(f"{count} held-out points each    RMSE   95% coverage")
    for name, intervals in HELD_OUT.items():
        x, y = observe(intervals, count)
        mean, _, reach = bands(layer, likelihood, x)
        error = y - mean
        rmse, coverage = error.square().mean().sqrt(), (error.abs() <= reach).float().mean()
        print(f"  {name:24s} {rmse.item():6.3f}   {coverage.item():12.3f}")


def draw_basis(path: Path) -> None:
    """Plot every psi of a grid of level 3, one panel per level."""
    figure, _ = basis.draw(level=3)
    figure.savefig(path)


def draw_fit(
    path: Path,
    layer: SIKALayer,
    likelihood: MultitaskGaussianLikelihood,
    data: tuple[Tensor, Tensor],
) -> None:
    """Plot the truth, the data, the bands, and a few functions drawn from the layer."""
    x = torch.linspace(-5.5, 5.5, 1101)
    parts = bands(layer, likelihood, x.unsqueeze(-1))
    mean, reach_f, reach_y = (part.squeeze(-1) for part in parts)
    # Draws carry no residual, so they say nothing about f beyond the grid.
    on_grid = x[(x >= layer.domain.low) & (x <= layer.domain.high)]
    with torch.no_grad():
        draws = layer.paths(4)(on_grid.unsqueeze(-1)).squeeze(-1)
    figure, axis = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    axis.fill_between(x, mean - reach_y, mean + reach_y, color=FAINT, lw=0, label="95% of $y$")
    axis.fill_between(x, mean - reach_f, mean + reach_f, color=PALE, lw=0, label="95% of $f$")
    axis.plot(x, mean, color=BLUE, lw=1.8, label="mean")
    axis.plot(on_grid, draws[0], color=BLUE, lw=0.6, alpha=0.7, label="draws")
    axis.plot(on_grid, draws[1:].T, color=BLUE, lw=0.6, alpha=0.7)
    axis.plot(x, truth(x), color=ORANGE, lw=1.5, ls="--", label="truth")
    axis.plot(*data, ".", color=INK, ms=4, label="data")
    axis.plot(on_grid[[0, -1]], [-2, -2], color=INK, lw=3, solid_capstyle="butt", label="grid")
    axis.set(xlabel="$x$", ylabel="$y$", xlim=(-5.5, 5.5))
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=7)
    figure.savefig(path)
    plt.close(figure)
