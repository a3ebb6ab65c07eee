"""What share of a training step does the expected log likelihood take?

A step is the forward and backward pass of a layer under the ELBO, KL divergence included; the
expectation is the same for given marginals, with gradients of their mean and variance. GPyTorch's
own way to the same expectation stands beside it.
"""

from collections.abc import Callable

import torch
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks import figures, workloads
from benchmarks.harness import Settings, compare
from benchmarks.results import Case, Cell, Result, make_cell, median, ratio
from benchmarks.tables import Table, format_seconds, format_share
from sikagp.integrations.gpytorch import outputs_as_batch, to_gpytorch
from sikagp.likelihoods import build_likelihood, expected_log_prob, num_outputs
from sikagp.objectives import VariationalELBO
from sikagp.variational import GaussianMarginals

STEP, OURS, GPYTORCH = "training step", "expectation", "expectation, GPyTorch"
NAMES = ("gaussian", "heteroscedastic", "student_t", "bernoulli", "logistic", "poisson", "softmax")
CLASSES, NUM_DATA = 10, 10_000
ONE_OUTPUT = ("gaussian", "student_t", "bernoulli", "logistic", "poisson")


def cases(settings: Settings) -> list[Case]:
    """One per likelihood."""
    return [{"likelihood": name, "B": 512, "D": 64, "L": 7} for name in NAMES]


def measure(case: Case, settings: Settings) -> Cell:
    """Time a step and the expectation in it."""
    name, rows = case["likelihood"], case["B"]
    targets = CLASSES if name == "softmax" else 1
    likelihood = build_likelihood(name, targets).to(settings.device)
    layer = workloads.make_layer(case["D"], num_outputs(name, targets), case["L"], settings)
    x, y = workloads.make_rows(rows, case["D"], settings), make_targets(name, rows, settings)
    elbo = VariationalELBO(likelihood, layer, NUM_DATA)
    parameters = list(elbo.parameters())
    with torch.no_grad():
        found = layer(x)
    leaves = [found.mean.clone().requires_grad_(), found.variance.clone().requires_grad_()]
    inputs = leaves + list(likelihood.parameters())

    def expectation(way: Callable[[GaussianMarginals], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(way(GaussianMarginals(*leaves)).mean(), inputs)

    def theirs(marginals: GaussianMarginals) -> Tensor:
        if name in ONE_OUTPUT:
            return likelihood.expected_log_prob(y.unsqueeze(0), outputs_as_batch(marginals))
        given = marginals if name == "heteroscedastic" else to_gpytorch(marginals)
        return likelihood.expected_log_prob(y, given)

    calls = {
        STEP: lambda: torch.autograd.grad(-elbo(layer(x), y), parameters),
        OURS: expectation(lambda marginals: expected_log_prob(likelihood, marginals, y)),
        GPYTORCH: expectation(theirs),
    }
    return make_cell(case, compare(calls, settings, limited=False), baseline=STEP)


def make_targets(name: str, rows: int, settings: Settings) -> Tensor:
    """Targets of the kind that a likelihood describes."""
    if name == "softmax":
        return torch.randint(CLASSES, (rows,), device=settings.device)
    y = torch.randn(rows, device=settings.device)
    if name in ("bernoulli", "logistic"):
        return (y > 0).to(y.dtype)
    if name == "poisson":
        return y.abs().floor()
    return y.unsqueeze(-1) if name == "heteroscedastic" else y


def tables(result: Result) -> list[Table]:
    """Seconds and shares of a step."""
    rows = [
        [cell["case"]["likelihood"]]
        + [format_seconds(median(cell, name)) for name in (STEP, OURS, GPYTORCH)]
        + [format_share(ratio(cell, name)) for name in (OURS, GPYTORCH)]
        for cell in result["cells"]
    ]
    header = ["likelihood", STEP, OURS, GPYTORCH, "share of the step", "share, GPyTorch"]
    return [Table("Expected log likelihood, B = 512, D = 64, L = 7", header, rows)]


def draw(result: Result) -> Figure:
    """Shares of a step, ours and GPyTorch's."""
    figure, ((ax,),) = figures.grid(1, 1, size=(6.5, 3.6))
    names, values, colours = [], [], []
    for cell in result["cells"]:
        for name, colour in ((OURS, figures.BLUE), (GPYTORCH, figures.GREY)):
            names.append(f"{cell['case']['likelihood']}, {name}")
            values.append(ratio(cell, name))
            colours.append(colour)
    figures.dots(ax, names, values, list(map(format_share, values)), colours)
    ax.set(xlabel="share of a training step")
    return figure
