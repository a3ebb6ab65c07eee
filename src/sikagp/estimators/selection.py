"""Which features and pairs of features a trained model needs, and what these can do alone."""

from typing import Any

import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from sikagp._typing import Float
from sikagp.basis import dense_features
from sikagp.estimators.evidence import Observed, learn_exactly, thinned
from sikagp.layers import SIKALayer
from sikagp.models.architecture import with_pairs
from sikagp.models.predictor import Predictor

# Share of the variance of all effects that the terms kept make, and how many pairs may do so.
ENOUGH = 0.99
MOST_PAIRS = 5


@torch.no_grad()
def effect_shares(
    layer: SIKALayer, x: Float[Tensor, "rows features"], weight: Float[Tensor, " rows"]
) -> Float[Tensor, " features"]:
    """Variance of each learned effect over weighted rows, as shares of one.

    Of several targets that one counts for which the effect matters most.
    """
    phi = dense_features(layer.features(x), layer.weight_mean.shape[1])
    effects = torch.einsum("nfw,fwo->nfo", phi, layer.weight_mean)
    effects = effects * layer.variance.sqrt().unsqueeze(-1)
    share = weight / weight.sum()
    center = torch.einsum("n,nfo->fo", share, effects)
    variance = torch.einsum("n,nfo->fo", share, (effects - center).square())
    most = (variance / variance.sum(0)).amax(1)
    return most / most.sum()


def needed_terms(shares: Float[Tensor, " terms"], num_features: int) -> list[int]:
    """The fewest features and pairs with enough of the variance, in the order of `with_pairs`.

    A pair counts with its sum and its difference, and brings both of its features.
    """
    i, j = torch.triu_indices(num_features, num_features, 1)
    single, plus, minus = shares.split([num_features, len(i), len(i)])
    share, order = torch.cat([single, plus + minus]).sort(descending=True, stable=True)
    strongest = order[share.cumsum(0) - share < ENOUGH]
    pair = strongest[strongest >= num_features].sort().values
    partners = torch.cat([i[pair - num_features], j[pair - num_features]])
    features = torch.cat([strongest[strongest < num_features], partners]).unique()
    return torch.cat([features, pair, pair + len(i)]).tolist()


def relearn_pairs(member: Predictor, data: Observed) -> bool:
    """Drop what a model over pairs does not need, and infer the rest by the evidence.

    Models that need many pairs or know none, or have other than Gaussian noise, are left alone.
    Returns whether this one was learned anew.
    """
    model: Any = member.model
    if not model.pairs or not isinstance(member.likelihood, GaussianLikelihood):
        return False
    layer, d = model.layers[0], model.in_features
    data = data._replace(x=with_pairs(data.x, d))
    few = thinned(data)
    shares = effect_shares(layer, few.x, few.weight)
    kept = needed_terms(shares, d)
    if not kept or sum(term >= d for term in kept) > 2 * MOST_PAIRS:
        return False
    learn_exactly(layer, member.likelihood, data, kept)
    return True
