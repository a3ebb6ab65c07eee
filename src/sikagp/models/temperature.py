"""A trained network with a temperature for every input, which leaves its decisions alone."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from sikagp._typing import Float, Int
from sikagp.calibration import fit_factor
from sikagp.mixtures import GaussianMixture, binned_exp, mixture_of_draws
from sikagp.models.architecture import GivenTrend, only_backbone
from sikagp.models.deep_kernel import DeepKernel
from sikagp.precision import full_precision
from sikagp.serialization import Pretrained

_PRIOR_VARIANCE = 0.1  # a logarithm of the temperature deviates by a third
_ROWS = 256


class DeepTemperature(Pretrained):
    r"""Backbone and last layer of a trained classifier, with a SIKA layer for its confidence.

    .. math:: p(y \mid x) = E_g[\mathrm{softmax}(e^{g(x)} z(x))],

    where z are the network's own logits and g is a Gaussian process of its features. The factor
    is positive, so the classes of every row keep their order: what the network decides, and its
    accuracy, stay as they are. Only its confidence is learned, by the ELBO with a softmax
    likelihood, on rows that the network has not been trained on; distorted copies of them teach
    it how unfamiliar inputs look. :meth:`calibrate` then sets its level by rows as they are.

    Args:
        backbone: any module that returns features of shape (*batch, num_features). It is frozen,
            and stays in evaluation mode.
        last: the trained last layer, from features to logits.
        normalisation: how features are standardised, as in :class:`DeepKernel`.
        reach: half width of the grid, in standard deviations of a feature.
        layer_options: options of the :class:`SIKALayer`.

    Shape:
        Whatever the backbone takes, to a mixture over the factor of logits (*batch, classes).

    >>> network = nn.Sequential(nn.Linear(4, 32), nn.ReLU()), nn.Linear(32, 3)
    >>> model = DeepTemperature(*network, level=4)
    >>> model(torch.randn(5, 4)).mean.shape
    torch.Size([5, 3])
    """

    log_factor: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        last: nn.Linear,
        *,
        normalisation: str = "batch",
        reach: float = 3.0,
        **layer_options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(last, nn.Linear):
            raise TypeError(f"last must be a linear layer, got {type(last).__name__}")
        kernel = DeepKernel(
            nn.Identity(),
            last.in_features,
            1,
            normalisation=normalisation,
            reach=reach,
            **layer_options,
        )
        kernel.layer.variance = _PRIOR_VARIANCE / last.in_features
        kernel.layer.weight_scale = 1.0  # where the KL divergence is near zero, for few rows
        self._assemble(backbone, kernel, last)

    def _assemble(self, backbone: nn.Module, kernel: DeepKernel, last: nn.Linear) -> None:
        self.backbone = backbone.requires_grad_(False).eval()
        self.kernel = kernel
        self.last = GivenTrend(last)
        self.register_buffer("log_factor", torch.zeros(()))

    @property
    def out_features(self) -> int:
        """Number of classes."""
        return len(self.last.weight)

    def forward(self, *args: Any, **kwargs: Any) -> GaussianMixture:
        """Mixture of logits, one component per factor; arguments go to the backbone."""
        features = self.backbone(*args, **kwargs)
        g = self.kernel(features)
        with full_precision(features.device):
            shift = self.log_factor.expand_as(g.mean)
            logits = binned_exp(g.shifted(shift)) * self.last(features)
        return mixture_of_draws(logits)

    def kl_divergence(self) -> Float[Tensor, ""]:
        """KL(q || prior) of the SIKA layer."""
        return self.kernel.kl_divergence()

    @torch.no_grad()
    def calibrate(self, x: Float[Tensor, "rows *shape"], target: Int[Tensor, " rows"]) -> None:
        """Multiply all logits by the factor that fits new rows best; call it after training."""
        training = self.training
        self.eval()
        try:
            logits = torch.cat([self(part).components.mean for part in x.split(_ROWS)], dim=1)
        finally:
            self.train(training)
        self.log_factor += math.log(fit_factor(logits, target))

    def train(self, mode: bool = True) -> "DeepTemperature":
        """Switch between training and evaluation mode, where the backbone always is."""
        super().train(mode)
        self.backbone.eval()
        return self

    def get_config(self) -> dict[str, Any]:
        """Return everything but the backbone as JSON values."""
        return {"kernel": self.kernel.get_config(), "out_features": self.out_features}

    @classmethod
    def from_config(cls, config: dict[str, Any], **modules: nn.Module) -> "DeepTemperature":
        """Build the architecture around a backbone, which must be given."""
        kernel = DeepKernel.from_config(config["kernel"], backbone=nn.Identity())
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        last = nn.Linear(kernel.num_features, config["out_features"])
        model._assemble(only_backbone(cls, modules), kernel, last)
        return model
