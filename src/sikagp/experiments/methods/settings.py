"""What all methods that train by gradient can be told."""

import dataclasses
from collections.abc import Callable

from torch import nn

REGRESSION_LIKELIHOODS = ("gaussian", "heteroscedastic")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What all trained methods can be told, besides the options of their heads.

    Attributes:
        backbone: makes the module that turns inputs into ``in_features`` features; None takes the
            inputs as they are.
        embedding: number of channels that a linear layer compresses the features to.
        normalisation: ``"batch"``, ``"running"`` or ``"none"``; by default the first for a
            backbone or an embedding, and none for tables, whose range is known.
        reach: half width of grids on normalised features, in standard deviations.
        margin: by how much grids on tables exceed the range of the rows, as a share of it.
        spectral_norm: whether to hold spectral norms of the backbone at 1.
        own_layer: last layer of a trained network, which is added to the head as it is.
        initial_scale: deviation that all Bayesian weights start with, instead of a small one; 1 is
            the prior's, where the KL divergence is near zero.
        likelihood: ``"gaussian"`` or ``"heteroscedastic"``; classes always have a softmax.
        train_samples: draws of f per row in training, for the softmax.
        test_samples: draws of f per row in prediction, for the softmax.
        device: ``"cpu"`` or ``"cuda"``.
    """

    backbone: Callable[[], nn.Module] | None = None
    embedding: int | None = None
    normalisation: str | None = None
    reach: float = 3.0
    margin: float = 0.1
    spectral_norm: bool = False
    own_layer: nn.Linear | None = None
    initial_scale: float | None = None
    likelihood: str = "gaussian"
    train_samples: int = 20
    test_samples: int = 100
    device: str = "cpu"

    @property
    def plain(self) -> bool:
        """Whether the head sees the inputs themselves."""
        return self.backbone is None and self.embedding is None and not self.normalises

    @property
    def normalises(self) -> bool:
        """Whether features are standardised by statistics of the training rows."""
        if self.normalisation is None:
            return self.backbone is not None or self.embedding is not None
        return self.normalisation != "none"
