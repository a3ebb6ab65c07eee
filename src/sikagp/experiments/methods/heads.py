"""One function per torch model: from the features it gets to a module that gives marginals."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.domains import Domain
from sikagp.experiments.methods.bayesian import BayesianLinear
from sikagp.experiments.methods.composition import FlipoutDeepGP, Stack
from sikagp.experiments.methods.dense import DenseLayer, DrawnDenseLayer
from sikagp.experiments.methods.gpytorch_heads import GPyTorchDeepGP, GPyTorchHead
from sikagp.experiments.methods.gpytorch_models import SVGP, AdditiveKISSGP, SVDKLHead
from sikagp.experiments.methods.networks import DropoutNetwork, Network
from sikagp.layers import SIKALayer
from sikagp.models import DeepGP

SAMPLES = (10, 20)


class Inputs(NamedTuple):
    """What a head gets: the number of its features, their range, and rows of them if known."""

    size: int
    domain: Domain
    rows: Float[Tensor, "rows features"] | None

    def points(self, count: int) -> Float[Tensor, "count features"]:
        """Pick rows for inducing points to start from, or draw standardised ones."""
        if self.rows is None:
            return torch.randn(count, self.size)
        chosen = torch.randperm(len(self.rows))[:count]
        missing = count - len(chosen)
        extra = self.rows[torch.randint(len(self.rows), (missing,))]
        return torch.cat([self.rows[chosen], extra + 0.1 * torch.randn_like(extra)])


def deep_sika(
    inputs: Inputs,
    out_features: int,
    *,
    hidden: Sequence[int] = (64, 64),
    num_samples: Sequence[int] = SAMPLES,
    learn_lengthscale: bool = True,
    **options: Any,
) -> DeepGP:
    """Stacked SIKA layers."""
    sizes = (inputs.size, *hidden, out_features)
    model = DeepGP(sizes, domain=inputs.domain, num_samples=_pair(num_samples), **options)
    return _fix_lengthscales(model, learn_lengthscale)


def sika(
    inputs: Inputs, out_features: int, *, learn_lengthscale: bool = True, **options: Any
) -> SIKALayer:
    """One additive SIKA layer."""
    layer = SIKALayer(inputs.size, out_features, domain=inputs.domain, **options)
    return _fix_lengthscales(layer, learn_lengthscale)


def paper_sika(
    inputs: Inputs,
    out_features: int,
    *,
    hidden: Sequence[int] = (64, 64),
    num_samples: Sequence[int] = SAMPLES,
    lengthscale: float = 1.0,
) -> FlipoutDeepGP:
    """The paper's variant: level 7, fixed lengthscale, no residual, no mean, trained by flipout."""
    model = FlipoutDeepGP(
        (inputs.size, *hidden, out_features),
        level=7,
        domain=inputs.domain,
        lengthscale=lengthscale,
        residual="none",
        mean_function="none",
        num_samples=_pair(num_samples),
    )
    return _fix_lengthscales(model, False)


def dense_dak(
    inputs: Inputs, out_features: int, *, num_draws: int | None = None, **options: Any
) -> DenseLayer:
    """One additive layer with a dense basis; with ``num_draws``, trained as published."""
    if num_draws is None:
        return DenseLayer(inputs.size, out_features, domain=inputs.domain, **options)
    sizes = inputs.size, out_features
    return DrawnDenseLayer(*sizes, domain=inputs.domain, num_draws=num_draws, **options)


def dense_dgp(
    inputs: Inputs,
    out_features: int,
    *,
    hidden: Sequence[int] = (64, 64),
    num_samples: Sequence[int] = SAMPLES,
    mean_function: str = "learned",
    hidden_domain: Sequence[float] = (-3.0, 3.0),
    **options: Any,
) -> Stack:
    """Stacked layers with dense bases."""
    sizes = (inputs.size, *hidden, out_features)
    domains = [inputs.domain, *(Domain(*hidden_domain) for _ in hidden)]
    layers = [
        DenseLayer(size, sizes[i + 1], domain=domains[i], **options)
        for i, size in enumerate(sizes[:-1])
    ]
    return Stack(layers, mean_function=mean_function, num_samples=_pair(num_samples))


def bnn(
    inputs: Inputs,
    out_features: int,
    *,
    hidden: Sequence[int] = (64, 64),
    num_samples: Sequence[int] = SAMPLES,
    activation: str = "relu",
) -> Stack:
    """Dense mean-field Bayesian network."""
    sizes = (inputs.size, *hidden, out_features)
    layers = [
        BayesianLinear(size, sizes[i + 1], activation=activation if i else "identity")
        for i, size in enumerate(sizes[:-1])
    ]
    return Stack(layers, mean_function="none", num_samples=_pair(num_samples))


def svgp(
    inputs: Inputs, out_features: int, *, num_points: int = 256, kernel: str = "matern52"
) -> GPyTorchHead:
    """Sparse variational GP with inducing points that start at rows."""
    points = inputs.points(num_points)
    model = SVGP(inputs.size, out_features, num_points, kernel=kernel, points=points)
    return GPyTorchHead(model, inputs.size)


def kiss_gp(
    inputs: Inputs,
    out_features: int,
    *,
    num_points: int = 128,
    shared_kernel: bool = False,
    **options: Any,
) -> GPyTorchHead:
    """Additive KISS-GP, one output."""
    if out_features != 1:
        raise ValueError(f"kiss-gp has one output, got {out_features}; svdkl mixes several")
    model = AdditiveKISSGP(inputs.size, num_points, shared_kernel=shared_kernel, **options)
    return GPyTorchHead(model, inputs.size, inputs.domain)


def svdkl(
    inputs: Inputs, out_features: int, *, num_points: int = 128, **options: Any
) -> GPyTorchHead:
    """One KISS-GP per feature, to be mixed into classes by the likelihood."""
    del out_features  # the likelihood's business
    return GPyTorchHead(SVDKLHead(inputs.size, num_points, **options), inputs.size, inputs.domain)


def gpytorch_dgp(
    inputs: Inputs,
    out_features: int,
    *,
    hidden: Sequence[int] = (8,),
    num_points: int = 128,
    kernel: str = "rbf",
    num_samples: Sequence[int] = SAMPLES,
) -> GPyTorchDeepGP:
    """GPyTorch's deep GP."""
    sizes = (inputs.size, *hidden, out_features)
    points = inputs.points(num_points)
    return GPyTorchDeepGP(points, sizes, kernel=kernel, num_samples=_pair(num_samples))


def network(
    inputs: Inputs, out_features: int, *, hidden: Sequence[int] = (64, 64), **options: Any
) -> Network:
    """Deterministic network."""
    return Network((inputs.size, *hidden, out_features), **options)


def mc_dropout(
    inputs: Inputs, out_features: int, *, hidden: Sequence[int] = (64, 64), **options: Any
) -> DropoutNetwork:
    """Network with dropout in prediction."""
    return DropoutNetwork((inputs.size, *hidden, out_features), **options)


def _pair(num_samples: Sequence[int]) -> tuple[int, int]:
    """Draws in training and in evaluation; files know lists only."""
    train, evaluation = num_samples
    return train, evaluation


def _fix_lengthscales(model: Any, learned: bool) -> Any:
    for layer in model.modules():
        if isinstance(layer, SIKALayer) and layer.log_lengthscale is not None:
            layer.log_lengthscale.requires_grad_(learned)
    return model


HEADS: dict[str, Callable[..., nn.Module]] = {
    "deep-sika": deep_sika,
    "sika": sika,
    "paper-sika": paper_sika,
    "dense-dgp": dense_dgp,
    "dense-dak": dense_dak,
    "bnn": bnn,
    "svgp": svgp,
    "kiss-gp": kiss_gp,
    "svdkl": svdkl,
    "gpytorch-dgp": gpytorch_dgp,
    "network": network,
    "mc-dropout": mc_dropout,
}
# These have no noise of their own worth trusting; it is taken from held-out rows.
WITHOUT_NOISE = ("network", "mc-dropout")
