"""The Vision Transformer, read top to bottom: attention, block, configuration, model.

An image is cut into patches, each patch becomes a token, a class token joins them, positions are added, and from
then on every block does the same two things at the same width: tokens exchange (attention), tokens think (MLP).
Nothing after the patch embedding knows that the tokens came from a grid.

Module and parameter names are timm's, so that a checkpoint of either loads into the other.

Source: Dosovitskiy et al. 2021, arXiv 2010.11929.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.layers import (
    MLP,
    attention_weights,
    check_images,
    drop_path,
    drop_path_rates,
    init_transformer,
)


class PatchEmbed(nn.Module):
    """Cut the image into squares and map each to a token: a convolution whose stride is its kernel.

    This is the one place where a plain ViT has locality and weight sharing built in.
    """

    def __init__(self, patch_size: int, channels: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, height, width)` to tokens `(batch, patches, dim)`, row by row."""
        x = self.proj(images)  # (batch, dim, rows, columns)
        return x.flatten(2).transpose(1, 2)  # (batch, rows * columns, dim)


class Attention(nn.Module):
    """Multi-head self-attention over all tokens, every token to every token.

    With `fused_attn` the weights are never stored (torch's scaled_dot_product_attention); without it they pass
    through `attn_drop`, where they can be read.
    """

    def __init__(self, dim: int, heads: int, qkv_bias: bool, attention_dropout: float, dropout: float) -> None:
        super().__init__()
        self.num_heads = heads
        self.fused_attn = True
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)  # rows: all of q, all of k, all of v; heads in order
        self.attn_drop = nn.Dropout(attention_dropout)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to what each gathered from all of them, same shape."""
        batch, tokens, dim = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, dim // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (batch, heads, tokens, head_dim)
        if self.fused_attn:
            p = self.attn_drop.p if self.training else 0.0
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
        else:
            x = self.attn_drop(attention_weights(q, k)) @ v
        x = x.transpose(1, 2).reshape(batch, tokens, dim)  # heads side by side again
        return self.proj_drop(self.proj(x))


class Block(nn.Module):
    """One layer: tokens exchange, then each token thinks; both as a change added to the residual stream."""

    def __init__(self, config: ViTConfig, drop_path_rate: float) -> None:
        super().__init__()
        c = config
        self.norm1 = nn.LayerNorm(c.dim, eps=1e-6)
        self.attn = Attention(c.dim, c.heads, c.qkv_bias, c.attention_dropout, c.dropout)
        self.drop_path1 = drop_path(drop_path_rate)
        self.norm2 = nn.LayerNorm(c.dim, eps=1e-6)
        self.mlp = MLP(c.dim, int(c.dim * c.mlp_ratio), c.dropout)
        self.drop_path2 = drop_path(drop_path_rate)

    def forward(self, x: Tensor) -> Tensor:
        """Map the residual stream `(batch, tokens, dim)` to itself plus two changes."""
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


@dataclass(frozen=True)
class ViTConfig:
    """The sizes of a ViT. `ViTConfig.small(image_size=32, patch_size=4)` names a size and changes parts of it.

    `pool="cls"` adds a class token and reads it; `pool="mean"` has none and averages the patches.
    `positions=False` leaves the position embedding out: the model then sees a bag of patches.
    """

    image_size: int = 224
    patch_size: int = 16
    channels: int = 3
    classes: int = 1000
    dim: int = 768
    depth: int = 12
    heads: int = 12
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    pool: Literal["cls", "mean"] = "cls"
    positions: bool = True

    def __post_init__(self) -> None:
        if min(self.image_size, self.patch_size, self.dim, self.depth, self.heads, self.channels) < 1:
            raise ValueError(f"Every size of a ViT is at least 1, got {self}; name positive sizes.")
        if self.image_size % self.patch_size:
            raise ValueError(
                f"The image side must be a multiple of the patch side, got {self.image_size} and "
                f"{self.patch_size}; resize the images or choose another patch."
            )
        if self.dim % self.heads:
            raise ValueError(
                f"The width must be a multiple of the number of heads, got {self.dim} and {self.heads}; "
                "change one of them."
            )
        if self.pool not in ("cls", "mean"):
            raise ValueError(f'pool is "cls" or "mean", got {self.pool!r}; name one of the two.')

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        side = self.image_size // self.patch_size
        return side, side

    @classmethod
    def tiny(cls, **overrides: Any) -> ViTConfig:
        """ViT-Ti (DeiT-Ti), 192 wide, 5.7 M parameters. Source: Touvron et al. 2021, arXiv 2012.12877, table 1."""
        return replace(cls(dim=192, heads=3), **overrides)

    @classmethod
    def small(cls, **overrides: Any) -> ViTConfig:
        """ViT-S (DeiT-S), 384 wide, 22 M parameters. Source: Touvron et al. 2021, arXiv 2012.12877, table 1."""
        return replace(cls(dim=384, heads=6), **overrides)

    @classmethod
    def base(cls, **overrides: Any) -> ViTConfig:
        """ViT-B, 768 wide, 86 M parameters. Source: Dosovitskiy et al. 2021, arXiv 2010.11929, table 1."""
        return replace(cls(), **overrides)


class ViT(nn.Module):
    """Images in, class scores out.

    Raises:
        ValueError: images of another shape or type than the configuration says.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        c = self.config = config
        prefix = 1 if c.pool == "cls" else 0
        patches = c.grid[0] * c.grid[1]
        self.patch_embed = PatchEmbed(c.patch_size, c.channels, c.dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, c.dim)) if prefix else None
        self.pos_embed = nn.Parameter(torch.zeros(1, prefix + patches, c.dim)) if c.positions else None
        self.pos_drop = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(Block(c, rate) for rate in drop_path_rates(c.drop_path, c.depth))
        self.norm = nn.LayerNorm(c.dim, eps=1e-6)
        self.head = nn.Linear(c.dim, c.classes) if c.classes else nn.Identity()

        self.apply(init_transformer)
        if self.pos_embed is not None:
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
        if self.cls_token is not None:
            nn.init.normal_(self.cls_token, std=1e-6)

    def embed(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, side, side)` to the first residual stream `(batch, tokens, dim)`."""
        side = self.config.image_size
        check_images(images, (side, side), self.config.channels)
        x = self.patch_embed(images)  # (batch, patches, dim)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)  # (batch, 1 + patches, dim)
        if self.pos_embed is not None:
            x = x + self.pos_embed
        return self.pos_drop(x)

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images to the normalised tokens of the last block, `(batch, tokens, dim)`, the class token first."""
        x = self.embed(images)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward_head(self, tokens: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to class scores `(batch, classes)`."""
        return self.head(tokens[:, 0] if self.config.pool == "cls" else tokens.mean(dim=1))

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, side, side)` to class scores `(batch, classes)`."""
        return self.forward_head(self.forward_features(images))
