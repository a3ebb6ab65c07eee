"""The paper's network for MNIST."""

import torch
from torch import Tensor, nn

from sikagp._typing import Float


class DigitsCNN(nn.Sequential):
    """Two convolutions, pooling, dropout and one linear layer, with rectifiers between.

    Shape:
        Input (rows, 1, 28, 28), output (rows, 128).
    """

    num_features = 128

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),  # after pooling it gives the same, for a quarter of the numbers
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.Linear(9216, self.num_features),
            nn.ReLU(),
            nn.Dropout(0.5),
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, input: Float[Tensor, "rows 1 28 28"]) -> Float[Tensor, "rows 128"]:
        """Features of every picture."""
        return super().forward(input.contiguous(memory_format=torch.channels_last))
