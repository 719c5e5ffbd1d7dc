"""A ViT whose patches are made by a small convolutional network: the least convolution that changes a ViT.

A plain ViT cuts the image with one convolution whose stride is its kernel. Here a few overlapping 3 x 3
convolutions of stride 2 come to the same grid of tokens; everything after is the ViT, unchanged.

Source: Xiao et al. 2021, arXiv 2106.14881.
"""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from vitlab.models.convnet import ConvBlock
from vitlab.models.vit import ViT, ViTConfig


class ConvStem(nn.Module):
    """Halve the map until a unit stands for a patch, doubling the width; then map each unit to a token.

    For patches of 4 pixels: 3 x 3 convolutions to `dim / 2` and `dim` channels, then 1 x 1 to `dim`.
    """

    def __init__(self, patch_size: int, channels: int, dim: int) -> None:
        super().__init__()
        halvings = patch_size.bit_length() - 1
        if patch_size != 2**halvings or halvings < 1 or dim % 2 ** (halvings - 1):
            raise ValueError(
                "A convolutional stem halves the map, so the patch side is 2, 4, 8 or 16 and the width divides by "
                f"half of it, got {patch_size} and {dim}; choose others."
            )
        widths = [channels, *(dim >> i for i in reversed(range(halvings)))]
        self.blocks = nn.Sequential(*(ConvBlock(a, b, 2, "zeros") for a, b in itertools.pairwise(widths)))
        self.proj = nn.Conv2d(dim, dim, kernel_size=1)

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, height, width)` to tokens `(batch, patches, dim)`, row by row."""
        x = self.proj(self.blocks(images))  # (batch, dim, rows, columns)
        return x.flatten(2).transpose(1, 2)  # (batch, rows * columns, dim)


class ConvStemViT(ViT):
    """Images in, class scores out; a `ViTConfig` says the sizes, a stem takes the place of the patch embedding.

    Raises:
        ValueError: images of another shape or type than the configuration says, or a patch that is no power of 2.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.patch_embed = ConvStem(config.patch_size, config.channels, config.dim)
        for module in self.patch_embed.modules():
            if isinstance(module, nn.Conv2d):  # He et al. 2015, arXiv 1502.01852: keeps variance through ReLU
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
