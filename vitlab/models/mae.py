r"""The masked autoencoder: an encoder that sees a quarter of the patches, and a decoder that paints the others.

The encoder is the plain ViT, run on the visible patches alone: what is hidden never enters it, so three quarters
of its work fall away. A smaller transformer, thrown away after training, gets what the encoder made of them, the
same learned mask token at every other place, and positions; it predicts the pixels of every patch. What it is
scored on is the objective, `vitlab.train.reconstruction`.

Positions are fixed waves. The other weights begin as in this course's other ViTs, from a normal of width 0.02,
where the paper has Xavier's uniform: from one seed a supervised network, DINO's and this encoder have the same
blocks. The class token, whose position is zero here, is drawn as wide as its position is there.

Parts are named as in the released code, the encoder's as in timm.

Source: He et al. 2021, arXiv 2111.06377.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.models.layers import check_images, init_transformer
from vitlab.models.vit import Block, ViT, ViTConfig


def patchify(images: Tensor, patch_size: int) -> Tensor:
    """Cut images `(batch, channels, height, width)` into patches `(batch, patches, patch_size**2 * channels)`.

    Patches row by row; in a patch its rows, their columns, their channels.

    Raises ValueError for images that are not made of whole patches.
    """
    if images.ndim != 4 or patch_size < 1 or any(side % patch_size for side in images.shape[2:]):
        raise ValueError(
            f"Patches of {patch_size} px are cut from images (batch, channels, height, width) with sides that are "
            f"multiples of it, got {tuple(images.shape)}; resize the images or choose another patch."
        )
    x = images.unflatten(3, (-1, patch_size)).unflatten(2, (-1, patch_size))  # (batch, c, rows, p, columns, p)
    return x.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def unpatchify(patches: Tensor, patch_size: int, grid: tuple[int, int]) -> Tensor:
    """Put patches `(batch, rows * columns, patch_size**2 * channels)` of a grid (rows, columns) together again.

    Returns images `(batch, channels, rows * patch_size, columns * patch_size)`: the inverse of `patchify`.

    Raises ValueError for patches of another number or size.
    """
    rows, columns = grid
    if patches.ndim != 3 or patches.shape[1] != rows * columns or patches.shape[2] % patch_size**2:
        raise ValueError(
            f"A grid of {rows} x {columns} has patches (batch, {rows * columns}, {patch_size**2} * channels), got "
            f"{tuple(patches.shape)}; name the grid and the patch size they were cut with."
        )
    x = patches.unflatten(2, (patch_size, patch_size, -1)).unflatten(1, grid)  # (batch, rows, columns, p, p, c)
    return x.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


def wave_positions(grid: tuple[int, int], dim: int, prefix: int = 0) -> Tensor:
    r"""Return fixed positions `(1, prefix + rows * columns, dim)`; those of the prefix tokens are zero.

    The first half says in which column a patch is, the second in which row; each half is
    :math:`\sin(\omega_k x), \cos(\omega_k x)` with :math:`\omega_k = 10000^{-k / (dim / 4)}`, all sines first.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.5, in two dimensions.
    """
    if dim % 4:
        raise ValueError(
            f"Waves come in sines and cosines of two axes, so a width is a multiple of 4, got {dim}; change it."
        )
    k = torch.arange(dim // 4, dtype=torch.float64)
    omega = 10_000.0 ** (-k / (dim // 4))

    def waves(places: Tensor) -> Tensor:
        angles = places.flatten()[:, None] * omega  # (patches, dim / 4)
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    row, column = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in grid), indexing="ij")
    positions = torch.cat([waves(column), waves(row)], dim=1)  # (patches, dim)
    return torch.cat([positions.new_zeros(prefix, dim), positions])[None].float()


@dataclass(frozen=True)
class MAEConfig:
    """An encoder, a decoder, and how much is hidden; the defaults are the paper's.

    vit            the encoder, without classes of its own
    decoder_dim, decoder_depth, decoder_heads  sizes of the decoder
    mask_ratio     share of the patches that is hidden; what is seen is rounded down to whole patches
    """

    vit: ViTConfig = field(default_factory=lambda: ViTConfig.base(classes=0))
    decoder_dim: int = 512
    decoder_depth: int = 8
    decoder_heads: int = 16
    mask_ratio: float = 0.75

    def __post_init__(self) -> None:
        if self.vit.classes or not self.vit.positions:
            raise ValueError(
                f"A masked autoencoder's encoder has positions and no classes of its own, got {self.vit}; set "
                "classes=0 and positions=True in its ViTConfig."
            )
        if self.vit.dim % 4 or self.decoder_dim % 4:
            raise ValueError(
                "Waves come in sines and cosines of two axes, so both widths are multiples of 4, got "
                f"{self.vit.dim} and {self.decoder_dim}; change them."
            )
        if not 0 <= self.mask_ratio <= 1 or not 1 <= self.visible < self.patches:
            raise ValueError(
                f"A mask hides a patch or more and leaves one or more, got a mask_ratio of {self.mask_ratio} for "
                f"{self.patches} patches; change it."
            )
        _ = self.decoder  # its sizes are checked as any ViT's are

    @property
    def patches(self) -> int:
        """How many patches an image has."""
        return self.vit.grid[0] * self.vit.grid[1]

    @property
    def visible(self) -> int:
        """How many patches of an image the encoder sees."""
        return int(self.patches * (1 - self.mask_ratio) + 1e-6)  # 1 - 0.9 is a little less than a tenth

    @property
    def decoder(self) -> ViTConfig:
        """The decoder's blocks; it drops nothing."""
        v = self.vit
        return ViTConfig(
            image_size=v.image_size,
            patch_size=v.patch_size,
            channels=v.channels,
            classes=0,
            dim=self.decoder_dim,
            depth=self.decoder_depth,
            heads=self.decoder_heads,
            mlp_ratio=v.mlp_ratio,
            qkv_bias=v.qkv_bias,
        )

    @classmethod
    def base(cls, **overrides: Any) -> MAEConfig:
        """MAE ViT-B/16, of which 86 M parameters are the encoder. Source: He et al. 2021, arXiv 2111.06377."""
        return replace(cls(), **overrides)

    @classmethod
    def large(cls, **overrides: Any) -> MAEConfig:
        """MAE ViT-L/16, of which 303 M parameters are the encoder. Source: He et al. 2021, arXiv 2111.06377."""
        return replace(cls(ViTConfig(dim=1024, depth=24, heads=16, classes=0)), **overrides)


class MAE(nn.Module):
    """Images in; a prediction of every patch's pixels, and which patches were hidden, out.

    `backbone` is the encoder, a ViT like any other on whole images.

    Raises:
        ValueError: images of another shape or type than the configuration says, or noise of another shape.
    """

    def __init__(self, config: MAEConfig) -> None:
        super().__init__()
        c = self.config = config
        vit, decoder = c.vit, c.decoder
        self.backbone = ViT(vit)
        assert self.backbone.pos_embed is not None
        prefix = self.backbone.pos_embed.shape[1] - c.patches  # one class token, or none
        self.backbone.pos_embed.requires_grad_(False).copy_(wave_positions(vit.grid, vit.dim, prefix))
        if self.backbone.cls_token is not None:
            nn.init.normal_(self.backbone.cls_token, std=0.02)

        self.decoder_embed = nn.Linear(vit.dim, decoder.dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, decoder.dim))
        self.decoder_pos_embed = nn.Parameter(wave_positions(vit.grid, decoder.dim, prefix), requires_grad=False)
        self.decoder_blocks = nn.ModuleList(Block(decoder, 0.0) for _ in range(decoder.depth))
        self.decoder_norm = nn.LayerNorm(decoder.dim, eps=1e-6)
        self.decoder_pred = nn.Linear(decoder.dim, vit.patch_size**2 * vit.channels)
        for part in (self.decoder_embed, self.decoder_blocks, self.decoder_pred):
            part.apply(init_transformer)
        nn.init.normal_(self.mask_token, std=0.02)

    def features(self, images: Tensor) -> Tensor:
        """Map whole images `(batch, channels, side, side)` to the normalised class token `(batch, dim)`.

        An encoder without one, `pool="mean"`, gives the mean of its normalised patches.
        """
        return self.backbone(images)

    def choose(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return which patches are seen, `(batch, visible)`: those of the lowest noise `(batch, patches)`."""
        size = (len(images), self.config.patches)
        if noise is None:
            noise = torch.rand(size, device=images.device)
        if tuple(noise.shape) != size:
            raise ValueError(f"Noise is one number a patch, {size}, got {tuple(noise.shape)}; draw it anew.")
        return noise.to(images.device).argsort(dim=1, stable=True)[:, : self.config.visible]

    def encode(self, images: Tensor, seen: Tensor) -> Tensor:
        """Map images and the patches seen, `(batch, visible)`, to tokens `(batch, prefix + visible, dim)`.

        They are normalised, and in the order of `seen` after the class token, if there is one.
        """
        x = self.backbone.embed(images)  # (batch, prefix + patches, dim), with their positions
        prefix = x.shape[1] - self.config.patches
        patches = x[:, prefix:].gather(1, seen[:, :, None].expand(-1, -1, x.shape[2]))
        x = torch.cat([x[:, :prefix], patches], dim=1)
        for block in self.backbone.blocks:
            x = block(x)
        return self.backbone.norm(x)

    def decode(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """Map the encoder's tokens to a prediction of every patch `(batch, patches, patch_size**2 * channels)`."""
        x = self.decoder_embed(tokens)
        prefix = x.shape[1] - seen.shape[1]
        # A mask token at every place, then what the encoder said at the places it saw.
        everywhere = self.mask_token.to(x.dtype).expand(len(x), self.config.patches, -1)
        patches = everywhere.scatter(1, seen[:, :, None].expand(-1, -1, x.shape[2]), x[:, prefix:])
        x = torch.cat([x[:, :prefix], patches], dim=1) + self.decoder_pos_embed
        for block in self.decoder_blocks:
            x = block(x)
        return self.decoder_pred(self.decoder_norm(x))[:, prefix:]

    def forward(self, images: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Hide patches of images, and predict all.

        Args:
            images: `(batch, channels, side, side)`.
            noise: `(batch, patches)`; the patches of the lowest are seen. None draws it.

        Returns:
            Prediction `(batch, patches, patch_size**2 * channels)`, and mask `(batch, patches)`, 1 where hidden.
        """
        side = self.config.vit.image_size
        check_images(images, (side, side), self.config.vit.channels)
        seen = self.choose(images, noise)
        mask = torch.ones(len(images), self.config.patches, device=images.device).scatter(1, seen, 0.0)
        return self.decode(self.encode(images, seen), seen), mask
