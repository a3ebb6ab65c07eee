"""A model together with its likelihood: from inputs to predictions of y, and to one folder."""

from typing import Any

import torch
from gpytorch import likelihoods
from torch import nn
from torch.distributions import Distribution

from sikagp.likelihoods import HeteroscedasticGaussianLikelihood, LogisticLikelihood
from sikagp.mixtures import GaussianMixture
from sikagp.models.deep_gp import DeepGP
from sikagp.models.deep_kernel import DeepKernel
from sikagp.models.temperature import DeepTemperature
from sikagp.predictions import predictive
from sikagp.serialization import Pretrained

MODELS: dict[str, type[Pretrained]] = {
    "DeepGP": DeepGP,
    "DeepKernel": DeepKernel,
    "DeepTemperature": DeepTemperature,
}
_PLAIN: dict[str, type[likelihoods.Likelihood]] = {
    "BernoulliLikelihood": likelihoods.BernoulliLikelihood,
    "LogisticLikelihood": LogisticLikelihood,
    "PoissonLikelihood": likelihoods.PoissonLikelihood,
    "HeteroscedasticGaussianLikelihood": HeteroscedasticGaussianLikelihood,
}
_BATCHED: dict[str, type[likelihoods.Likelihood]] = {
    "GaussianLikelihood": likelihoods.GaussianLikelihood,
    "StudentTLikelihood": likelihoods.StudentTLikelihood,
}


class Predictor(Pretrained):
    """Predicts y: calling it is ``predictive(likelihood, model(x))``.

    It can be saved and loaded like a model, so that noise and other parameters of the likelihood
    travel along.

    >>> from sikagp.likelihoods import build_likelihood
    >>> predictor = Predictor(DeepGP((3, 1), level=2), build_likelihood("gaussian", 1))
    >>> predictor(torch.randn(5, 3)).mean.shape
    torch.Size([5, 1])
    """

    def __init__(self, model: Pretrained, likelihood: likelihoods.Likelihood) -> None:
        super().__init__()
        self.model = model
        self.likelihood = likelihood

    def forward(self, *args: Any, **kwargs: Any) -> GaussianMixture | Distribution:
        """Distribution of y; arguments go to the model."""
        return predictive(self.likelihood, self.model(*args, **kwargs))

    def get_config(self) -> dict[str, Any]:
        """Return model and likelihood as JSON values."""
        name = type(self.model).__name__
        if MODELS.get(name) is not type(self.model):
            raise ValueError(f"a predictor with a {name} cannot be saved")
        return {
            "model": {"class": name, "config": self.model.get_config()},
            "likelihood": _describe(self.likelihood),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], **modules: nn.Module) -> "Predictor":
        """Build model and likelihood with fresh parameters."""
        model = config["model"]
        return cls(
            MODELS[model["class"]].from_config(model["config"], **modules),
            _build(config["likelihood"]),
        )


def _describe(likelihood: likelihoods.Likelihood) -> dict[str, Any]:
    name = type(likelihood).__name__
    if _PLAIN.get(name) is type(likelihood):
        return {"class": name}
    if _BATCHED.get(name) is type(likelihood):
        return {"class": name, "batch_shape": list(likelihood.noise.shape[:-1])}
    if type(likelihood) is likelihoods.SoftmaxLikelihood:
        mixing = likelihood.mixing_weights is not None
        sizes = {"num_features": likelihood.num_features, "num_classes": likelihood.num_classes}
        return {"class": name, **sizes, "mixing_weights": mixing}
    raise ValueError(f"a predictor with a {name} cannot be saved")


def _build(content: dict[str, Any]) -> likelihoods.Likelihood:
    options = dict(content)
    name = options.pop("class")
    if name in _PLAIN:
        return _PLAIN[name]()
    if name in _BATCHED:
        return _BATCHED[name](batch_shape=torch.Size(options["batch_shape"]))
    return likelihoods.SoftmaxLikelihood(**options)
