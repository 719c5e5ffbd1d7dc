"""A plain convolutional network: the contrast to the ViT, of the same size and the same total stride.

Convolution, batch normalisation, ReLU, and again; where a stage begins, the map is halved and the width doubled;
at the end the map is averaged. Everything it has and a ViT lacks is in `nn.Conv2d`: a unit sees its neighbours
only, and the same weights look everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from vitlab.models.layers import check_images


class ConvBlock(nn.Sequential):
    """3 x 3 convolution, batch normalisation, ReLU; `stride` 2 halves the map."""

    def __init__(self, inputs: int, outputs: int, stride: int, padding: Literal["zeros", "circular"]) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, padding_mode=padding, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )


@dataclass(frozen=True)
class ConvNetConfig:
    """Widths of the stages, convolutions in each, and what the convolution sees beyond the border.

    The default has 7 convolutions, a total stride of 4 and 0.68 M parameters: the size of
    `ViTConfig(image_size=32, patch_size=4, dim=96, depth=6, heads=3)`.
    """

    channels: int = 3
    classes: int = 100
    widths: tuple[int, ...] = (48, 96, 192)
    convolutions: int = 2
    padding: Literal["zeros", "circular"] = "zeros"

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1 or self.convolutions < 1:
            raise ValueError(f"A ConvNet has stages of positive width, got {self}; name at least one of each.")
        if self.padding not in ("zeros", "circular"):
            raise ValueError(f'padding is "zeros" or "circular", got {self.padding!r}; name one of the two.')

    @property
    def stride(self) -> int:
        """Input pixels between neighbouring units of the last map."""
        return 2 ** (len(self.widths) - 1)


class ConvNet(nn.Module):
    """Images in, class scores out; any image side from `config.stride` on.

    Raises:
        ValueError: images that are not a float batch `(batch, channels, height, width)`.
    """

    def __init__(self, config: ConvNetConfig) -> None:
        super().__init__()
        c = self.config = config
        self.stem = ConvBlock(c.channels, c.widths[0], 1, c.padding)
        blocks = []
        width = c.widths[0]
        for stage, wide in enumerate(c.widths):
            for i in range(c.convolutions):
                blocks.append(ConvBlock(width, wide, 2 if stage and not i else 1, c.padding))
                width = wide
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, c.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # He et al. 2015, arXiv 1502.01852: keeps variance through ReLU
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images to the last feature map `(batch, width, height / stride, width / stride)`."""
        check_images(images, None, self.config.channels)
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, height, width)` to class scores `(batch, classes)`."""
        return self.head(self.forward_features(images).mean(dim=(2, 3)))
