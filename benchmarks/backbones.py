"""Networks below a head: ResNet-18 for 32 x 32 images, the paper's CNN, DistilBERT's layers."""

from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two convolutions and a shortcut around them."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Images (rows, channels, height, width) to the same with more channels."""
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def resnet18(num_features: int = 128) -> nn.Sequential:
    """ResNet-18 with a 3 x 3 stem, followed by a linear embedding; input (rows, 3, 32, 32)."""
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    blocks = []
    channels = 64
    for stage, width in enumerate((64, 128, 256, 512)):
        blocks += [ResidualBlock(channels, width, 2 if stage else 1)]
        blocks += [ResidualBlock(width, width, 1)]
        channels = width
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_features)]
    return nn.Sequential(*stem, *blocks, *pool)


def mnist_cnn(num_features: int = 64) -> nn.Sequential:
    """Convolutional network of the paper's MNIST experiment; input (rows, 1, 28, 28)."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, num_features),
    )


class FirstToken(nn.Module):
    """Takes what a transformer says about the first token."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, tokens, features) to (rows, features)."""
        return x[:, 0]


def transformer(num_features: int = 256) -> nn.Sequential:
    """Six layers of DistilBERT's size and a linear embedding; input (rows, tokens, 768)."""
    layers = [
        nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
        for _ in range(6)
    ]
    return nn.Sequential(*layers, FirstToken(), nn.Linear(768, num_features))
