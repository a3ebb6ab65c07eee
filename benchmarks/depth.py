"""How does the time of a deep Gaussian process grow with its number of layers?

The paper's depth figure: (B, D, S) = (64, 128, 10), M = 129 and up to six layers, each from D
features to D outputs. Every layer after the first sees S times B rows.
"""

from collections.abc import Callable, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks import figures, workloads
from benchmarks.baselines import (
    DenseLocal,
    Drawn,
    Moments,
    current_weights,
    dense_moments,
)
from benchmarks.cpu_levels import PREDICTION, STYLES, TRAINING
from benchmarks.features import LaplaceFeatures
from benchmarks.harness import Alternative, Settings, compare
from benchmarks.results import Case, Cell, Result, distinct, make_cell, median, ratio, select
from benchmarks.tables import Table, format_ratio, format_seconds
from sikagp import SIKALayer
from sikagp.mixtures import GaussianMixture
from sikagp.models import DeepGP

Layer = Callable[[Tensor], Moments]


def cases(settings: Settings) -> list[Case]:
    """One to six layers, prediction and training."""
    size = {"B": 16, "D": 32, "S": 4} if settings.quick else {"B": 64, "D": 128, "S": 10}
    depths = (1, 3) if settings.quick else range(1, 7)
    return [
        {"work": work, "layers": layers, "L": 7} | size
        for work in (PREDICTION, TRAINING)
        for layers in depths
    ]


def make_model(case: Case, settings: Settings) -> DeepGP:
    """Return a deep model of equally wide layers, without mean functions."""
    sizes = [case["D"]] * (case["layers"] + 1)
    options = {"level": case["L"], "mean_function": "none", "num_samples": case["S"]}
    return DeepGP(sizes, **options).to(settings.device)


def local_draws(layers: Sequence[Layer], x: Tensor, S: int) -> Moments:
    """Mean and variance of the last layer, fed with S draws from one layer to the next."""
    mean, variance = layers[0](x)
    for layer in layers[1:]:
        noise = torch.randn(S, *mean.shape[-2:], device=x.device)
        hidden = torch.addcmul(mean, variance.sqrt(), noise)
        mean, variance = (part.view(hidden.shape) for part in layer(hidden.flatten(0, 1)))
    return mean, variance


def chain(layers: Sequence[Callable[[Tensor], Tensor]], x: Tensor) -> Tensor:
    """Pass draws of one layer on to the next."""
    for layer in layers:
        x = layer(x)
    return x


def predictions(model: DeepGP, x: Tensor, S: int) -> dict[str, Alternative]:
    """The deep model by our plans and by the baselines."""
    own, sparse = (with_plans(model, plan).eval() for plan in ("auto", "sparse"))
    local = [DenseLocal(layer) for layer in model.layers]
    calls: dict[str, Callable[[], object]] = {
        workloads.CACHED: lambda: own(x),
        workloads.SPARSE: lambda: sparse(x),
        workloads.LOCAL: lambda: local_draws(local, x, S),
    }
    for name, draw in workloads.DRAWS.items():
        layers = [Drawn(layer, S, draw) for layer in model.layers]
        calls[name] = lambda layers=layers: chain(layers, x)
    costs = workloads.costs(model.layers[0], len(x), S)
    nothing = workloads.Cost(0, 0, 0)
    found = {}
    for name, run in calls.items():
        cost = costs.get(name, nothing)
        num_bytes = cost.fixed * (S if name == workloads.LOCAL else 1) + cost.per_sample
        draws = cost.draws * len(model.layers)
        found[name] = Alternative(workloads.without_gradients(run), num_bytes, draws)
    return found


def training_steps(model: DeepGP, x: Tensor, S: int) -> dict[str, Alternative]:
    """Gradients of the mean and variance of the last layer, by our plans and by dense products."""
    x = x.detach().requires_grad_()
    steps = {}
    for name in (workloads.TABLE, workloads.SPARSE):
        twin = with_plans(model, name).train()
        steps[name] = Alternative(
            workloads.gradients(lambda twin=twin: _moments(twin(x)), [x, *twin.parameters()])
        )
    layers = [differentiable(layer) for layer in model.layers]
    weights = [p for layer in model.layers for p in (layer.weight_mean, layer.raw_weight_scale)]
    cost = workloads.costs(model.layers[0], len(x), S)[workloads.LOCAL]
    num_bytes = 2 * cost.fixed * (1 + S * (len(layers) - 1))
    step = workloads.gradients(lambda: local_draws(layers, x, S), [x, *weights])
    return steps | {workloads.LOCAL: Alternative(step, num_bytes)}


def with_plans(model: DeepGP, plan: str) -> DeepGP:
    """Copy a model, to be evaluated by another plan."""
    twin = DeepGP.from_config(model.get_config()).to(next(model.parameters()).device)
    twin.load_state_dict(model.state_dict())
    for layer in twin.layers:
        layer.plan = plan
    return twin


def differentiable(layer: SIKALayer) -> Layer:
    """Dense moments as a training step computes them."""
    features = LaplaceFeatures(layer)
    return lambda x: dense_moments(features.dense(x), current_weights(layer))


def _moments(mixture: GaussianMixture) -> Moments:
    return mixture.components.mean, mixture.components.variance


def measure(case: Case, settings: Settings) -> Cell:
    """Time one model."""
    model = make_model(case, settings)
    x = 4 * workloads.make_rows(case["B"], case["D"], settings) - 2
    prepare = predictions if case["work"] == PREDICTION else training_steps
    comparison = compare(prepare(model, x, case["S"]), settings)
    return make_cell(case, comparison, baseline=workloads.LOCAL)


def tables(result: Result) -> list[Table]:
    """Time against depth, one table per kind of work."""
    found = []
    for work in distinct(result, "work"):
        cells = list(select(result, work=work))
        names = sorted(cells[0]["alternatives"], key=list(STYLES).index)
        own = workloads.CACHED if work == PREDICTION else workloads.TABLE
        rows = [
            [str(cell["case"]["layers"])]
            + [format_seconds(median(cell, name)) for name in names]
            + [format_ratio(1 / ratio(cell, own))]
            for cell in cells
        ]
        header = ["layers", *names, f"{own} against {workloads.LOCAL}"]
        found.append(Table(f"Time of one {work}", header, rows))
    return found


def draw(result: Result) -> Figure:
    """Time against depth."""
    works = distinct(result, "work")
    figure, panels = figures.grid(1, len(works), size=(4.0, 3.2))
    for ax, work in zip(panels[0], works, strict=True):
        cells = list(select(result, work=work))
        figures.lines(ax, cells, "layers", STYLES, log_x=False)
        ax.set(title=work, xlabel="layers", ylabel="seconds")
    figures.legend(figure, panels)
    return figure
