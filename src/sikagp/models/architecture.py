"""Parts that models share: pairs, mean functions, trends, layers as JSON values, their parts."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.layers import SIKALayer
from sikagp.precision import at_least_float32
from sikagp.serialization import decode_domain, encode_domain, encode_kernel
from sikagp.validation import check_input


def with_pairs(x: Float[Tensor, "*batch d"], num_features: int) -> Float[Tensor, "*batch d*d"]:
    """Append sums and differences of any two features, scaled to keep unit variances."""
    check_input(x, num_features)
    x, d = at_least_float32(x), num_features
    i, j = torch.triu_indices(d, d, 1, device=x.device)
    first, second = x[..., i] / math.sqrt(2), x[..., j] / math.sqrt(2)
    return torch.cat([x, first + second, first - second], -1)


class LinearMean(nn.Module):
    """Mean function ``x W`` of a hidden layer: the identity, or a random projection.

    W is the identity if input and output have the same size, and otherwise has random columns of
    length 1, so that standardised inputs give standardised outputs.

    Shape:
        Input (*batch, in_features), output (*batch, out_features).
    """

    weight: Tensor

    def __init__(self, in_features: int, out_features: int, *, learned: bool) -> None:
        super().__init__()
        if in_features == out_features:
            weight = torch.eye(in_features)
        else:
            weight = F.normalize(torch.randn(in_features, out_features), dim=0)
        if learned:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch outputs"]:
        """Return ``x W`` in the type of W."""
        return x.to(self.weight.dtype) @ self.weight


class Trend(nn.Linear):
    """A linear function of the features that models may add to their mean; it starts at zero.

    It has no prior and no bias, for layers have one.

    Shape:
        Input (*batch, in_features), output (*batch, out_features).
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        nn.init.zeros_(self.weight)

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch outputs"]:
        """Evaluate it in the type of its weights."""
        return super().forward(x.to(self.weight.dtype))


class GivenTrend(nn.Module):
    """A linear layer that models add to their mean and never change.

    Args:
        layer: the layer to copy, such as the last one of a trained network.

    Shape:
        Input (*batch, in_features), output (*batch, out_features).
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach().clone()
        zeros = weight.new_zeros(len(weight))
        self.register_buffer("weight", weight)
        self.register_buffer("bias", zeros if layer.bias is None else zeros + layer.bias.detach())

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch outputs"]:
        """Evaluate it in the type of its weights."""
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


def describe_layer(layer: SIKALayer) -> dict[str, Any]:
    """Return the arguments of a layer as JSON values; its numbers stand with the weights."""
    return {
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "level": layer.level,
        "kernel": encode_kernel(layer.kernel),
        "domain": encode_domain(layer.domain),
        "residual": layer.residual,
        "bias": layer.bias_mean is not None,
        "plan": layer.plan,
        "check_finite": layer.check_finite,
    }


def build_layer(content: dict[str, Any]) -> SIKALayer:
    """Build the layer that :func:`describe_layer` described, with fresh weights."""
    return SIKALayer(**{**content, "domain": decode_domain(content["domain"])})


def only_backbone(model: type, modules: dict[str, nn.Module]) -> nn.Module:
    """The backbone that a saved model is loaded around, if it was given and nothing else."""
    if set(modules) != {"backbone"}:
        raise ValueError(
            f"a {model.__name__} is loaded around a backbone of the same architecture: pass it "
            "(and nothing else) as from_pretrained(folder, backbone=...)"
        )
    return modules["backbone"]


@torch.no_grad()
def part_of(layer: SIKALayer, features: list[int], *, bias: bool) -> SIKALayer:
    """Copy the effects of some features, perhaps with the bias, into a layer of their own."""
    part = SIKALayer(
        len(features),
        layer.out_features,
        level=layer.level,
        kernel=layer.kernel,
        residual=layer.residual,
        domain=layer.domain.select(features),
        bias=bias,
        dtype=layer.weight_mean.dtype,
    )
    for name, parameter in part.named_parameters():
        values = getattr(layer, name)
        parameter.copy_(values if "bias" in name else values[features])
    return part.eval()
