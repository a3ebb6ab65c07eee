"""Deep kernels: a SIKA layer on the features of any neural network."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm as constrain_spectral_norm

from sikagp._typing import Float
from sikagp.domains import RunningDomain
from sikagp.layers import SIKALayer
from sikagp.models.architecture import (
    GivenTrend,
    Trend,
    build_layer,
    describe_layer,
    only_backbone,
)
from sikagp.precision import at_least_float32, full_precision
from sikagp.serialization import Pretrained
from sikagp.validation import check_choice, check_count
from sikagp.variational import GaussianMarginals

NORMALISATIONS = ("batch", "running", "none")
_CONSTRAINED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class DeepKernel(Pretrained):
    """Backbone, optional linear embedding, normalisation, SIKA layer.

    Args:
        backbone: any module that returns features of shape (*batch, num_features).
        num_features: number of features that the backbone returns.
        out_features: number of outputs.
        embedding: number of base GP channels that a linear layer compresses the features to.
        normalisation: how features are standardised before they reach the grid. ``"batch"``
            uses statistics of the batch in training and running ones in evaluation;
            ``"running"`` the latter in training too; ``"none"`` leaves features as they are. No
            prediction depends on the other rows of its batch.
        reach: half width of the grid, in standard deviations of a feature.
        spectral_norm: whether to hold the spectral norm of all linear and convolution layers of
            backbone and embedding at 1, which keeps distinct inputs from collapsing.
        trend: whether to add a learned linear function of the standardised features, which has no
            prior. The model can then do what a network with a linear last layer does, and the
            layer learns what is missing. Or a linear layer to add as it is, such as the own last
            layer of a trained network: it takes the features as the backbone gives them, and is
            never changed, so that the layer learns around what the network says already.
        layer_options: options of the :class:`SIKALayer`; its lengthscale counts in standard
            deviations of a feature, and a ``domain`` replaces the one from ``reach``.

    Shape:
        Whatever the backbone takes, to output marginals (*batch, out_features).

    >>> model = DeepKernel(nn.Sequential(nn.Linear(4, 32), nn.ReLU()), 32, 3, embedding=8)
    >>> model(torch.randn(5, 4)).mean.shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        out_features: int,
        *,
        embedding: int | None = None,
        normalisation: str = "batch",
        reach: float = 3.0,
        spectral_norm: bool = False,
        trend: bool | nn.Linear = False,
        **layer_options: Any,
    ) -> None:
        super().__init__()
        channels = num_features if embedding is None else embedding
        layer_options.setdefault("domain", (-reach, reach))
        layer = SIKALayer(channels, out_features, **layer_options)
        self._assemble(
            backbone, num_features, layer, embedding, normalisation, spectral_norm, trend=trend
        )

    def _assemble(
        self,
        backbone: nn.Module,
        num_features: int,
        layer: Any,
        embedding: int | None,
        normalisation: str,
        spectral_norm: bool,
        *,
        trend: bool | nn.Linear = False,
    ) -> None:
        """Put the parts together; subclasses may bring another layer that gives marginals."""
        self.backbone = backbone
        self.num_features = check_count("num_features", num_features)
        self.normalisation = check_choice("normalisation", normalisation, NORMALISATIONS)
        self.spectral_norm = spectral_norm
        self.embedding = nn.Linear(num_features, embedding) if embedding else None
        self.standardise = _standardise(normalisation, layer.in_features)
        self.layer = layer
        self.trend = _trend(trend, num_features, layer)
        self._trainable: str | int | tuple[str, ...] = "all"
        for part in (self.backbone, self.embedding):
            if spectral_norm and part is not None:
                _constrain(part)

    @property
    def out_features(self) -> int:
        """Number of outputs."""
        return self.layer.out_features

    def forward(self, *args: Any, **kwargs: Any) -> GaussianMarginals:
        """Marginals of f at the features of each row; arguments go to the backbone."""
        return self._output(*args, **kwargs)

    def _output(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer gives, and the trend."""
        raw = self._raw_features(*args, **kwargs)
        features = self._standardised(raw)
        with full_precision(raw.device):
            marginals = self.layer(features)
            if self.trend is None:
                return marginals
            given = isinstance(self.trend, GivenTrend)
            return marginals.shifted(self.trend(raw if given else features))

    def features(self, *args: Any, **kwargs: Any) -> Float[Tensor, "*batch channels"]:
        """Standardised features, as the SIKA layer sees them.

        Mixed precision is for the backbone: embedding and standardisation are computed in full.
        """
        return self._standardised(self._raw_features(*args, **kwargs))

    def _raw_features(self, *args: Any, **kwargs: Any) -> Float[Tensor, "*batch num_features"]:
        features = self.backbone(*args, **kwargs)
        if not isinstance(features, Tensor) or features.shape[-1:] != (self.num_features,):
            came = tuple(features.shape) if isinstance(features, Tensor) else type(features)
            raise ValueError(
                f"the backbone must return a tensor of shape (*batch, {self.num_features}), "
                f"got {came}"
            )
        if torch.is_autocast_enabled(features.device.type):
            return at_least_float32(features)
        return features

    def _standardised(
        self, features: Float[Tensor, "*batch num_features"]
    ) -> Float[Tensor, "*batch channels"]:
        with full_precision(features.device):
            if self.embedding is not None:
                features = self.embedding(features)
            return self.standardise(features)

    def kl_divergence(self) -> Float[Tensor, ""]:
        """KL(q || prior) of the SIKA layer; the backbone is not Bayesian."""
        return self.layer.kl_divergence()

    def set_trainable(self, part: str | int | Sequence[str]) -> None:
        """Choose which part of the backbone is trained; embedding and layer always are.

        ``"all"`` and ``"none"`` speak for themselves, a number n is the last n blocks (children,
        with sequences and module lists taken apart), and names are submodules such as
        ``["transformer.layer.5"]``. Frozen modules stay in evaluation mode.
        """
        self._trainable = part if isinstance(part, str | int) else tuple(part)
        chosen = self._trainable_modules()
        for parameter in self.backbone.parameters():
            parameter.requires_grad_(False)
        for module in chosen:
            module.requires_grad_(True)
        self.train(self.training)

    def _trainable_modules(self) -> list[nn.Module]:
        if self._trainable == "all":
            return [self.backbone]
        if self._trainable == "none":
            return []
        if isinstance(self._trainable, int):
            blocks = _blocks(self.backbone)
            if not 0 <= self._trainable <= len(blocks):
                raise ValueError(
                    f"the backbone has {len(blocks)} blocks, cannot train {self._trainable}"
                )
            return blocks[len(blocks) - self._trainable :]
        if isinstance(self._trainable, str):
            raise ValueError(f"expected 'all', 'none', a number or names, got {self._trainable!r}")
        return [self.backbone.get_submodule(name) for name in self._trainable]

    def train(self, mode: bool = True) -> "DeepKernel":
        """Switch between training and evaluation mode, where frozen modules always are."""
        super().train(mode)
        if mode and self._trainable != "all":
            self.backbone.eval()
            for module in self._trainable_modules():
                module.train()
        return self

    def get_config(self) -> dict[str, Any]:
        """Return everything but the backbone as JSON values."""
        return {
            "num_features": self.num_features,
            "layer": describe_layer(self.layer),
            "embedding": self.embedding.out_features if self.embedding is not None else None,
            "normalisation": self.normalisation,
            "spectral_norm": self.spectral_norm,
            "trend": "given" if isinstance(self.trend, GivenTrend) else self.trend is not None,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], **modules: nn.Module) -> "DeepKernel":
        """Build the architecture around a backbone, which must be given."""
        backbone = only_backbone(cls, modules)
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        options = {**config, "layer": build_layer(config["layer"])}
        if config.get("trend") == "given":
            options["trend"] = nn.Linear(config["num_features"], options["layer"].out_features)
        model._assemble(backbone, **options)
        return model


class RunningStandardisation(RunningDomain):
    """Subtract the running mean and divide by the running standard deviation, also in training.

    Shape:
        Input and output (*batch, num_features).
    """

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features, reach=1.0)

    def forward(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch features"]:
        """Map mean +- one standard deviation to +-1."""
        return 2 * super().forward(x) - 1


class BatchStandardisation(nn.BatchNorm1d):
    """Subtract the mean and divide by the deviation of the batch; running ones in evaluation.

    A single row has no deviation, so in training it is standardised as in evaluation.

    Shape:
        Input and output (*batch, num_features).
    """

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features, affine=False)

    def forward(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch features"]:
        """Standardise each feature over all rows."""
        rows = x.reshape(-1, x.shape[-1])
        if self.training and len(rows) > 1:
            return super().forward(rows).view_as(x)
        return F.batch_norm(rows, self.running_mean, self.running_var, eps=self.eps).view_as(x)


def _standardise(normalisation: str, num_features: int) -> nn.Module:
    if normalisation == "running":
        return RunningStandardisation(num_features)
    if normalisation == "batch":
        return BatchStandardisation(num_features)
    return nn.Identity()


def _trend(trend: bool | nn.Linear, num_features: int, layer: Any) -> Trend | GivenTrend | None:
    if not isinstance(trend, bool | nn.Linear):
        raise TypeError(f"trend must be True, False or a linear layer, got {type(trend).__name__}")
    if isinstance(trend, bool):
        return Trend(layer.in_features, layer.out_features) if trend else None
    sizes, expected = (trend.in_features, trend.out_features), (num_features, layer.out_features)
    if sizes != expected:
        raise ValueError(
            f"a given trend must go from {expected[0]} features of the backbone to {expected[1]} "
            f"outputs, got a layer from {sizes[0]} to {sizes[1]}"
        )
    return GivenTrend(trend)


def _constrain(module: nn.Module) -> None:
    for part in list(module.modules()):
        if isinstance(part, _CONSTRAINED) and not nn.utils.parametrize.is_parametrized(part):
            constrain_spectral_norm(part)


def _blocks(module: nn.Module) -> list[nn.Module]:
    """Children of a module, with sequences and lists of modules taken apart."""
    blocks: list[nn.Module] = []
    for child in module.children():
        nested = isinstance(child, nn.Sequential | nn.ModuleList)
        blocks += _blocks(child) if nested else [child]
    return blocks
