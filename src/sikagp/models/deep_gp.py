"""Deep Gaussian processes: stacked SIKA layers with doubly stochastic inference."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.domains import Bound, Domain
from sikagp.draws import Paths
from sikagp.kernels import MarkovKernel
from sikagp.layers import SIKALayer
from sikagp.mixtures import GaussianMixture, antithetic_noise, as_mixture
from sikagp.models.architecture import (
    LinearMean,
    Trend,
    build_layer,
    describe_layer,
    with_pairs,
)
from sikagp.serialization import Pretrained
from sikagp.validation import check_choice, check_count
from sikagp.variational import GaussianMarginals

MEAN_FUNCTIONS = ("fixed", "learned", "none")


class DeepGP(Pretrained):
    r"""Layers of SIKA Gaussian processes, each fed with draws of the one below.

    .. math:: h^{(0)} = x, \qquad h^{(l)} = h^{(l-1)} W_l + f_l(h^{(l-1)}), \qquad
              y \sim p(y \mid f_L(h^{(L-1)}))

    The first layer is evaluated once for all samples. In training mode every row gets its own
    draws. In evaluation mode all rows share the same standard normals, fixed once for all and
    antithetic, so that predictions are repeatable and do not depend on the other rows; pass a
    ``generator`` to draw them independently.

    Args:
        sizes: numbers of features from input to output, such as ``(8, 64, 64, 1)``.
        level: dyadic level of the grids, one number or one per layer.
        kernel: kernel of all layers.
        domain: interval of the first layer's grid, in units of the input.
        hidden_domain: interval of the other layers' grids; hidden units have a prior variance of
            about one.
        mean_function: linear mean W of hidden layers: ``"fixed"`` (identity, or random projection
            where the size changes), ``"learned"`` (started there, no prior) or ``"none"``.
        trend: whether to add a learned linear function of the input, which has no prior: the
            model then goes on beyond the grid as a line, not to the prior mean.
        pairs: whether the first layer is also additive over sums and differences of any two
            features (divided by the square root of 2), so that it knows their interactions
            without a hidden layer. A ``domain`` per feature has these after the features.
        num_samples: draws in training mode and, as a pair, in evaluation mode.
        layer_options: further options of all layers; ``residual`` is ``"outside"`` by default.

    Shape:
        Input (*batch, sizes[0]), output a mixture of shape (*batch, sizes[-1]).

    >>> model = DeepGP((3, 16, 1), domain=(-2.0, 2.0))
    >>> model(torch.randn(5, 3)).mean.shape
    torch.Size([5, 1])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        level: int | Sequence[int] = 5,
        kernel: str | MarkovKernel = "laplace",
        domain: Domain | tuple[Bound, Bound] = (-3.0, 3.0),
        hidden_domain: tuple[float, float] = (-3.0, 3.0),
        mean_function: str = "learned",
        trend: bool = False,
        pairs: bool = False,
        num_samples: int | tuple[int, int] = (10, 20),
        **layer_options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(sizes, Sequence) or len(sizes) < 2:
            raise ValueError(f"sizes must name at least input and output, got {sizes}")
        sizes = [check_count("every number in sizes", size) for size in sizes]
        levels = list(level) if isinstance(level, Sequence) else [level] * (len(sizes) - 1)
        if len(levels) != len(sizes) - 1:
            raise ValueError(f"{len(sizes) - 1} layers need as many levels, got {len(levels)}")
        options = {"kernel": kernel, "residual": "outside", **layer_options}
        layers = [
            SIKALayer(
                size**2 if pairs and not i else size,
                sizes[i + 1],
                level=levels[i],
                domain=hidden_domain if i else domain,
                **(options | {"check_finite": False} if i else options),
            )
            for i, size in enumerate(sizes[:-1])
        ]
        self._assemble(layers, mean_function, num_samples, trend=trend, pairs=pairs)

    def _assemble(
        self,
        layers: list[Any],
        mean_function: str,
        num_samples: int | tuple[int, int],
        *,
        trend: bool = False,
        pairs: bool = False,
    ) -> None:
        """Stack layers that give marginals; subclasses may bring other kinds than SIKA's."""
        self.layers, self.pairs = nn.ModuleList(layers), pairs
        self.mean_function = check_choice("mean_function", mean_function, MEAN_FUNCTIONS)
        pair = num_samples if isinstance(num_samples, Sequence) else (num_samples, num_samples)
        if len(pair) != 2:
            raise ValueError(f"num_samples must be one number or a pair, got {num_samples}")
        self.num_samples = tuple(check_count("num_samples", number) for number in pair)
        self.means = nn.ModuleList()
        for i, layer in enumerate(layers[:-1]):
            noise = antithetic_noise(self.num_samples[1], layer.out_features, seed=i)
            self.register_buffer(f"noise{i}", noise.to(layer.weight_mean), persistent=False)
            if mean_function != "none":
                mean = LinearMean(
                    layer.in_features, layer.out_features, learned=mean_function == "learned"
                )
                self.means.append(mean.to(layer.weight_mean))
        self.trend = None
        if trend:
            self.trend = Trend(self.in_features, self.out_features).to(layers[0].weight_mean)

    @property
    def in_features(self) -> int:
        """Number of input features."""
        terms: int = self.layers[0].in_features  # type: ignore[assignment]
        return math.isqrt(terms) if self.pairs else terms

    @property
    def out_features(self) -> int:
        """Number of outputs."""
        return self.layers[-1].out_features  # type: ignore[return-value]

    def extra_repr(self) -> str:
        """Describe the model's choices."""
        return (
            f"mean_function={self.mean_function!r}, num_samples={self.num_samples}, "
            f"pairs={self.pairs}"
        )

    def forward(
        self,
        x: Float[Tensor, "*batch in_features"],
        num_samples: int | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> GaussianMixture:
        """Mixture over draws of the hidden layers, shape (*batch, out_features)."""
        if num_samples is None:
            num_samples = self.num_samples[0 if self.training else 1]
        marginals = self._layer(0, self._terms(x))
        for i in range(1, len(self.layers)):
            noise = self._noise(i - 1, (num_samples, *x.shape[:-1]), marginals.mean, generator)
            hidden = torch.addcmul(marginals.mean, marginals.stddev, noise)
            marginals = self._layer(i, hidden)
        if self.trend is not None:
            marginals = marginals.shifted(self.trend(x))
        return as_mixture(marginals) if len(self.layers) == 1 else GaussianMixture(marginals)

    def kl_divergence(self) -> Float[Tensor, ""]:
        """KL(q || prior), summed over all layers."""
        return torch.stack([layer.kl_divergence() for layer in self.layers]).sum()  # type: ignore[operator]

    def paths(self, num_paths: int, *, generator: torch.Generator | None = None) -> "DeepPaths":
        """Draw functions from (*batch, in_features) to (num_paths, *batch, out_features)."""
        paths = [layer.paths(num_paths, generator=generator) for layer in self.layers]  # type: ignore[operator]
        pairs_of = self.in_features if self.pairs else None
        return DeepPaths(paths, self.means, self.trend, pairs_of=pairs_of)

    def get_config(self) -> dict[str, Any]:
        """Return the architecture as JSON values."""
        return {
            "layers": [describe_layer(layer) for layer in self.layers],  # type: ignore[arg-type]
            "mean_function": self.mean_function,
            "trend": self.trend is not None,
            "pairs": self.pairs,
            "num_samples": list(self.num_samples),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], **modules: nn.Module) -> "DeepGP":
        """Build the architecture with fresh weights."""
        if modules:
            raise TypeError(f"a {cls.__name__} takes no modules, got {', '.join(modules)}")
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        layers = [build_layer(layer) for layer in config["layers"]]
        mean_function, num_samples = config["mean_function"], tuple(config["num_samples"])
        extras = {"trend": config["trend"], "pairs": config.get("pairs", False)}
        model._assemble(layers, mean_function, num_samples, **extras)
        return model

    def _terms(self, x: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch terms"]:
        """What the first layer is additive over."""
        return with_pairs(x, self.in_features) if self.pairs else x

    def _layer(self, index: int, x: Float[Tensor, "*batch features"]) -> GaussianMarginals:
        """Marginals of layer ``index``, its mean function included."""
        marginals = self.layers[index](x)
        if index < len(self.means):
            return marginals.shifted(self.means[index](x))
        return marginals

    def _noise(
        self,
        index: int,
        shape: tuple[int, ...],
        like: Float[Tensor, "*batch width"],
        generator: torch.Generator | None,
    ) -> Float[Tensor, "samples *_ width"]:
        """Standard normals for hidden layer ``index``: per row, or shared by all rows."""
        width = like.shape[-1]
        if self.training or generator is not None:
            return torch.randn(
                (*shape, width), generator=generator, dtype=like.dtype, device=like.device
            )
        noise = self.get_buffer(f"noise{index}")
        if len(noise) != shape[0]:
            noise = antithetic_noise(shape[0], width, seed=index)
        return noise.to(like).view(shape[0], *[1] * (len(shape) - 1), width)


class DeepPaths:
    """Functions drawn from a deep model; evaluated twice at the same points they agree.

    Like those of a single layer they carry no residual, and later changes of the model do not
    reach them.
    """

    def __init__(
        self,
        paths: list[Paths],
        means: nn.ModuleList,
        trend: Trend | None,
        *,
        pairs_of: int | None = None,
    ) -> None:
        self.paths, self.pairs_of = paths, pairs_of
        self.means, self.trend = copy.deepcopy(means), copy.deepcopy(trend)

    def __len__(self) -> int:
        return len(self.paths[0])

    def __call__(
        self, x: Float[Tensor, "*batch features"]
    ) -> Float[Tensor, "paths *batch outputs"]:
        """Evaluate every path at the same points."""
        inputs = x if self.pairs_of is None else with_pairs(x, self.pairs_of)
        values = self.paths[0](inputs)
        for i, paths in enumerate(self.paths):
            if i:
                inputs, values = values, paths.each(values)
            if i < len(self.means):
                values = values + self.means[i](inputs)
        return values if self.trend is None else values + self.trend(x)
