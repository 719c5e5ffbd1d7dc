r"""DINO's network: a ViT that takes crops of any size, and the head that gives each image a place among K outputs.

The backbone is the plain ViT; only its positions are resized to the grid of a smaller crop. The head makes the
class token smaller through an MLP, puts it on the unit sphere, and compares it with K directions, also of
length one: an output is a cosine. Student and teacher are two copies of this network; what makes one follow the
other is the objective, `vitlab.train.dino`.

Source: Caron et al. 2021, arXiv 2104.14294.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.layers import check_images, init_transformer
from vitlab.models.vit import ViT, ViTConfig


def resize_positions(positions: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Resize position embeddings `(1, prefix + patches, dim)` from one grid (rows, columns) to another.

    Bicubic with antialiasing, as timm does. The released code of DINO interpolates without antialiasing and
    enlarges the scale by 0.1 of a patch; on small crops the two differ.
    """
    if old == new:
        return positions
    prefix = positions.shape[1] - old[0] * old[1]
    dim = positions.shape[2]
    grid = positions[:, prefix:].reshape(1, *old, dim).permute(0, 3, 1, 2)  # (1, dim, rows, columns)
    grid = F.interpolate(grid.float(), size=new, mode="bicubic", antialias=True).to(positions.dtype)
    return torch.cat([positions[:, :prefix], grid.flatten(2).transpose(1, 2)], dim=1)


class CropViT(ViT):
    """A ViT that also takes images of other sizes than its own: whole patches, on a grid of any size."""

    def embed(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, height, width)` to the first residual stream `(batch, tokens, dim)`."""
        c = self.config
        check_images(images, None, c.channels)
        rows, columns = (side // c.patch_size for side in images.shape[2:])
        if min(rows, columns) < 1 or (rows * c.patch_size, columns * c.patch_size) != tuple(images.shape[2:]):
            raise ValueError(
                f"Crops are made of whole patches of {c.patch_size} px, got {tuple(images.shape[2:])}; "
                "choose sides that are multiples of it."
            )
        x = self.patch_embed(images)  # (batch, patches, dim)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)  # (batch, 1 + patches, dim)
        if self.pos_embed is not None:
            x = x + resize_positions(self.pos_embed, c.grid, (rows, columns))
        return self.pos_drop(x)


@dataclass(frozen=True)
class HeadConfig:
    """The sizes of a head; the defaults are the paper's.

    outputs     K, directions that an image is compared with
    bottleneck  width of the unit sphere on which they are compared
    hidden      width of the MLP
    layers      linear layers of the MLP; 0 leaves it out, and the sphere is as wide as the features
    """

    outputs: int = 65_536
    bottleneck: int = 256
    hidden: int = 2048
    layers: int = 3

    def __post_init__(self) -> None:
        if self.outputs < 2 or min(self.bottleneck, self.hidden) < 1 or self.layers < 0:
            raise ValueError(f"A head has two outputs or more and positive widths, got {self}; change them.")


class DINOHead(nn.Module):
    """Features in, K cosines out."""

    def __init__(self, dim: int, config: HeadConfig) -> None:
        super().__init__()
        c = config
        widths = [dim, *[c.hidden] * (c.layers - 1), c.bottleneck] if c.layers else [dim]
        layers: list[nn.Module] = []
        for wide, narrow in itertools.pairwise(widths):
            layers += [nn.Linear(wide, narrow), nn.GELU()]
        self.mlp = nn.Sequential(*layers[:-1])  # no GELU after the last
        # Weight normalisation with its gain fixed at one: only the directions are learned, and no output can win
        # by being long.
        self.last_layer = nn.Linear(widths[-1], c.outputs, bias=False)
        self.apply(init_transformer)
        nn.init.kaiming_uniform_(self.last_layer.weight, a=5**0.5)  # torch's own, which only sets the directions

    def forward(self, features: Tensor) -> Tensor:
        """Map features `(batch, dim)` to cosines `(batch, outputs)`."""
        z = F.normalize(self.mlp(features), dim=-1)
        return F.linear(z, F.normalize(self.last_layer.weight, dim=-1))


@dataclass(frozen=True)
class DINOConfig:
    """A backbone and a head."""

    vit: ViTConfig = field(default_factory=lambda: ViTConfig.small(classes=0))
    head: HeadConfig = field(default_factory=HeadConfig)

    def __post_init__(self) -> None:
        if self.vit.classes:
            raise ValueError(
                f"DINO's backbone has no classes of its own, got {self.vit.classes}; set classes=0 in `vit`."
            )

    @classmethod
    def small(cls, head: HeadConfig | None = None, **overrides: Any) -> DINOConfig:
        """DINO ViT-S/16, 21 M parameters and the head. Source: Caron et al. 2021, arXiv 2104.14294, table 1."""
        return cls(replace(ViTConfig.small(classes=0), **overrides), head or HeadConfig())


class DINO(nn.Module):
    """Views of images in, K cosines for each view of each image out.

    Raises:
        ValueError: no views, or views of different numbers of images.
    """

    def __init__(self, config: DINOConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = CropViT(config.vit)
        self.head = DINOHead(config.vit.dim, config.head)

    def features(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, height, width)` to the normalised class token `(batch, dim)`."""
        return self.backbone(images)

    def forward(self, views: Tensor | Sequence[Tensor]) -> Tensor:
        """Map views, each `(batch, channels, height, width)`, to cosines `(views, batch, outputs)`."""
        views = [views] if isinstance(views, Tensor) else list(views)
        if not views or len({len(view) for view in views}) != 1:
            raise ValueError(
                f"DINO takes views of the same images, got {[len(view) for view in views]} images in the views; "
                "give every view the whole batch."
            )
        # Neighbouring views of one size go through the backbone together: fewer, larger products.
        groups = [list(group) for _, group in itertools.groupby(views, key=lambda view: view.shape)]
        features = torch.cat([self.features(torch.cat(group)) for group in groups])
        return self.head(features).unflatten(0, (len(views), -1))
