"""Mean-field Bayesian linear layers: the dense Bayesian network, and the base of dense bases."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.additive import INITIAL_SCALE
from sikagp.draws import normal_draws
from sikagp.ops.divergence import standard_normal_kl
from sikagp.validation import check_choice
from sikagp.variational import GaussianMarginals, PositiveParameter, inverse_softplus

ACTIVATIONS = {"identity": nn.Identity, "relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


class MeanFieldLinear(nn.Module):
    r"""Gaussian weights and bias, all independent and with prior N(0, 1).

    .. math:: f_o = b_o + \phi \cdot w_o, \qquad
              \mathrm{Var} f_o = \mathrm{Var} b_o + \phi^2 \cdot \sigma_o^2

    Shape:
        Features (*batch, num_weights), marginals (*batch, out_features).
    """

    weight_scale = PositiveParameter("raw_weight_scale", F.softplus, inverse_softplus)
    bias_scale = PositiveParameter("raw_bias_scale", F.softplus, inverse_softplus)

    def __init__(self, num_weights: int, out_features: int, *, spread: float) -> None:
        super().__init__()
        self.out_features = out_features
        self.weight_mean = nn.Parameter(spread * torch.randn(num_weights, out_features))
        self.raw_weight_scale = nn.Parameter(torch.empty(num_weights, out_features))
        self.bias_mean = nn.Parameter(torch.zeros(out_features))
        self.raw_bias_scale = nn.Parameter(torch.empty(out_features))
        self.weight_scale = self.bias_scale = INITIAL_SCALE

    def marginals(self, phi: Float[Tensor, "*batch weights"]) -> GaussianMarginals:
        """Exact marginals of f, by local reparameterisation."""
        variance = phi.square() @ self.weight_scale.square() + self.bias_scale.square()
        return GaussianMarginals(phi @ self.weight_mean + self.bias_mean, variance)

    def drawn(
        self, phi: Float[Tensor, "*batch weights"], num_draws: int
    ) -> Float[Tensor, "draws *batch outputs"]:
        """Values of f for sets of weights that were drawn, each for all rows."""
        weight = normal_draws(self.weight_mean, self.weight_scale, num_draws, None)
        bias = normal_draws(self.bias_mean, self.bias_scale, num_draws, None)
        values = torch.tensordot(phi, weight, dims=[[-1], [1]]) + bias
        return values.movedim(-2, 0)

    def kl_divergence(self) -> Float[Tensor, ""]:
        """KL(q || prior), summed over weights and biases."""
        weights = standard_normal_kl(self.weight_mean, self.weight_scale)
        return weights + standard_normal_kl(self.bias_mean, self.bias_scale)


class BayesianLinear(MeanFieldLinear):
    """Dense Bayesian layer on activated inputs, with prior variance 1 for inputs of variance 1.

    Shape:
        Input (*batch, in_features), marginals (*batch, out_features).
    """

    def __init__(self, in_features: int, out_features: int, *, activation: str) -> None:
        super().__init__(in_features, out_features, spread=1.0)
        self.in_features = in_features
        self.activation = ACTIVATIONS[check_choice("activation", activation, ACTIVATIONS)]()
        # Half of the units of a rectifier are silent.
        gain = 1.0 if activation in ("identity", "tanh") else 2.0
        self.scale = math.sqrt(gain / in_features)

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> GaussianMarginals:
        """Marginals of the outputs."""
        return self.marginals(self.scale * self.activation(x))
