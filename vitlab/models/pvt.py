"""The Pyramid Vision Transformer, read top to bottom: attention, block, stage, configuration, model.

A ViT keeps one coarse grid of tokens from the first block to the last. This one begins with a fine grid and, stage
by stage, merges patches of tokens into fewer and wider ones, as a convolutional network does. Attention over a
fine grid would be too dear, so its keys and values come from a shrunk copy of the grid: every query still sees the
whole image, only less sharply. Inside a stage nothing else knows that the tokens came from a grid.

The sibling `pvt_v2.py` gives the idea what it still lacks: overlapping patches, and convolutions for positions.

Source: Wang et al. 2021, arXiv 2102.12122.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

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


def as_map(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """Fold tokens `(batch, rows * columns, dim)` into a map `(batch, dim, rows, columns)`; no value is copied."""
    batch, _, dim = tokens.shape
    x = tokens.reshape(batch, *grid, dim)  # (batch, rows, columns, dim)
    return x.permute(0, 3, 1, 2)  # convolutions know this order in memory, channels last, also for one image


def as_tokens(x: Tensor) -> Tensor:
    """Unfold a map `(batch, dim, rows, columns)` into tokens `(batch, rows * columns, dim)`, row by row."""
    return x.flatten(2).transpose(1, 2)  # (batch, rows * columns, dim)


class PatchEmbed(nn.Module):
    """Cut a map into squares, make each a token and normalise it: the one step that shrinks the grid.

    Source: arXiv 2102.12122, section 3.2.
    """

    def __init__(self, patch_size: int, channels: int, dim: int, eps: float) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size)
        self.norm = nn.LayerNorm(dim, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(batch, channels, height, width)` to tokens `(batch, rows * columns, dim)`, row by row."""
        return self.norm(as_tokens(self.proj(x)))


class Attention(nn.Module):
    r"""Spatial-reduction attention: every token asks, but only one in :math:`R^2` positions answers.

    .. math:: \mathrm{SR}(x) = \mathrm{Norm}(\mathrm{Reshape}(x, R) W^S), \qquad
              \mathrm{head}_j = \mathrm{Attention}(x W_j^Q, \mathrm{SR}(x) W_j^K, \mathrm{SR}(x) W_j^V)

    Reshape lays each square of R x R tokens end to end; with the linear map after it that is a convolution whose
    stride is its kernel. Keys and values fall from N to N / R^2, and the cost of attention with them. R = 1 is the
    attention of `vit.py`, where a class token may take part; a reduction has no place for one.

    With `fused_attn` the weights are never stored (torch's scaled_dot_product_attention); without it they pass
    through `attn_drop`, where they can be read: `(batch, heads, tokens, tokens / R^2)`.

    Source: arXiv 2102.12122, section 3.3, equations 1 to 4.
    """

    def __init__(self, config: PVTConfig, stage: int) -> None:
        super().__init__()
        c, dim = config, config.dims[stage]
        self.num_heads = c.heads[stage]
        self.fused_attn = True
        self.grid = c.grids[stage]
        self.sr_ratio = c.sr_ratios[stage]
        self.q = nn.Linear(dim, dim, bias=c.qkv_bias)
        self.kv = nn.Linear(dim, 2 * dim, bias=c.qkv_bias)  # rows: all of k, all of v; heads in order
        if self.sr_ratio > 1:
            self.sr = nn.Conv2d(dim, dim, kernel_size=self.sr_ratio, stride=self.sr_ratio)
            self.norm = nn.LayerNorm(dim, eps=c.patch_eps)
        self.attn_drop = nn.Dropout(c.attention_dropout)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(c.dropout)

    def reduce(self, x: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to what answers for them, `(batch, tokens / R^2, dim)`."""
        if self.sr_ratio == 1:
            return x
        return self.norm(as_tokens(self.sr(as_map(x, self.grid))))

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to what each gathered from the whole image, same shape."""
        batch, tokens, dim = x.shape
        heads, head_dim = self.num_heads, dim // self.num_heads
        q = self.q(x).reshape(batch, tokens, heads, head_dim).transpose(1, 2)  # (batch, heads, tokens, head_dim)
        kv = self.kv(self.reduce(x)).reshape(batch, -1, 2, heads, head_dim)
        k, v = kv.permute(2, 0, 3, 1, 4).unbind(0)  # each (batch, heads, tokens / R^2, head_dim)
        if self.fused_attn:
            p = self.attn_drop.p if self.training else 0.0
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
        else:
            x = self.attn_drop(attention_weights(q, k)) @ v
        x = x.transpose(1, 2).reshape(batch, tokens, dim)  # heads side by side again
        return self.proj_drop(self.proj(x))


class Block(nn.Module):
    """One layer: tokens exchange, then each token thinks; both as a change added to the residual stream."""

    def __init__(self, config: PVTConfig, stage: int, drop_path_rate: float) -> None:
        super().__init__()
        c, dim = config, config.dims[stage]
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(c, stage)
        self.drop_path1 = drop_path(drop_path_rate)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = MLP(dim, int(dim * c.mlp_ratios[stage]), c.dropout)
        self.drop_path2 = drop_path(drop_path_rate)

    def forward(self, x: Tensor) -> Tensor:
        """Map the residual stream `(batch, tokens, dim)` to itself plus two changes."""
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class Stage(nn.Module):
    """One level of the pyramid: a coarser grid, positions of its own, and blocks of one width.

    Only the last stage has a class token, so its positions are one more: the class token's comes first.
    """

    def __init__(self, config: PVTConfig, stage: int, rates: list[float]) -> None:
        super().__init__()
        c = config
        last = stage == len(c.dims) - 1
        rows, columns = self.grid = c.grids[stage]
        before = c.dims[stage - 1] if stage else c.channels
        self.patch_embed = PatchEmbed(c.patch_sizes[stage], before, c.dims[stage], c.patch_eps)
        self.pos_embed = nn.Parameter(torch.zeros(1, int(last) + rows * columns, c.dims[stage]))
        self.pos_drop = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(Block(c, stage, rate) for rate in rates)

    def forward(self, x: Tensor, cls_token: Tensor | None = None) -> Tensor:
        """Map `(batch, channels, height, width)` to tokens `(batch, tokens, dim)`, the class token first."""
        x = self.patch_embed(x)  # (batch, rows * columns, dim)
        if cls_token is not None:
            x = torch.cat([cls_token.expand(x.shape[0], -1, -1), x], dim=1)  # (batch, 1 + rows * columns, dim)
        x = self.pos_drop(x + self.pos_embed)
        for block in self.blocks:
            x = block(x)
        return x


@dataclass(frozen=True)
class PVTConfig:
    """The sizes of a PVT; what is a tuple has one entry a stage.

    `PVTConfig(image_size=32, patch_sizes=(2, 2, 2), dims=(32, 64, 128), depths=(2, 2, 2), heads=(1, 2, 4),
    sr_ratios=(4, 2, 1), mlp_ratios=(4, 4, 4))` suits small images (grids of 16, 8 and 4, each answered by 4 x 4).

    `sr_ratios` are the R of spatial reduction, 1 in the last stage. Positions are absolute, so the image size is
    fixed. `patch_eps` is what the norms after patch embedding and reduction add to the variance: 1e-5 in the
    published code, though its blocks add 1e-6, and transformers adds 1e-6 everywhere.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("tiny", "small", "medium", "large")

    image_size: int = 224
    patch_sizes: tuple[int, ...] = (4, 2, 2, 2)
    channels: int = 3
    classes: int = 1000
    dims: tuple[int, ...] = (64, 128, 320, 512)
    depths: tuple[int, ...] = (2, 2, 2, 2)
    heads: tuple[int, ...] = (1, 2, 5, 8)
    sr_ratios: tuple[int, ...] = (8, 4, 2, 1)
    mlp_ratios: tuple[float, ...] = (8, 8, 4, 4)
    qkv_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    patch_eps: float = 1e-5

    def __post_init__(self) -> None:
        tuples = (self.patch_sizes, self.dims, self.depths, self.heads, self.sr_ratios, self.mlp_ratios)
        if not self.dims or len({len(values) for values in tuples}) > 1:
            raise ValueError(
                "patch_sizes, dims, depths, heads, sr_ratios and mlp_ratios have one entry a stage, got "
                f"{', '.join(str(len(values)) for values in tuples)} entries; give as many of each."
            )
        sizes = (self.image_size, self.channels, *(value for values in tuples for value in values))
        if min(sizes) <= 0 or self.classes < 0:
            raise ValueError(f"Every size of a PVT is at least 1, got {self}; name positive sizes.")
        side = self.image_size
        for stage, (patch, ratio) in enumerate(zip(self.patch_sizes, self.sr_ratios, strict=True), start=1):
            if side % patch:
                raise ValueError(
                    f"The patches of stage {stage} must tile its map, got a side of {side} and patches of "
                    f"{patch}; change the image size or patch_sizes."
                )
            side //= patch
            if side % ratio:
                raise ValueError(
                    f"The reduction of stage {stage} must tile its grid, got a side of {side} and a ratio of "
                    f"{ratio}; change the image size or sr_ratios."
                )
        if self.sr_ratios[-1] != 1:
            raise ValueError(
                f"The last stage has a class token, which no reduction can place, got a ratio of "
                f"{self.sr_ratios[-1]}; let sr_ratios end with 1."
            )
        for dim, heads in zip(self.dims, self.heads, strict=True):
            if dim % heads:
                raise ValueError(
                    f"The width must be a multiple of the number of heads, got {dim} and {heads}; "
                    "change one of them."
                )

    @property
    def grids(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of tokens in each stage."""
        sides, side = [], self.image_size
        for patch in self.patch_sizes:
            side //= patch
            sides.append((side, side))
        return tuple(sides)

    @classmethod
    def tiny(cls, **overrides: Any) -> PVTConfig:
        """PVT-Tiny, 2 blocks a stage, 13.2 M parameters. Source: arXiv 2102.12122, tables 1 and 2."""
        return replace(cls(), **overrides)

    @classmethod
    def small(cls, **overrides: Any) -> PVTConfig:
        """PVT-Small, 16 blocks, 24.5 M parameters. Source: arXiv 2102.12122, tables 1 and 2."""
        return replace(cls(depths=(3, 4, 6, 3)), **overrides)

    @classmethod
    def medium(cls, **overrides: Any) -> PVTConfig:
        """PVT-Medium, 28 blocks, 44.2 M parameters. Source: arXiv 2102.12122, tables 1 and 2."""
        return replace(cls(depths=(3, 4, 18, 3)), **overrides)

    @classmethod
    def large(cls, **overrides: Any) -> PVTConfig:
        """PVT-Large, 41 blocks, 61.4 M parameters. Source: arXiv 2102.12122, tables 1 and 2."""
        return replace(cls(depths=(3, 8, 27, 3)), **overrides)


class PVT(nn.Module):
    """Images in, class scores out.

    Raises:
        ValueError: images of another shape or type than the configuration says.
    """

    def __init__(self, config: PVTConfig) -> None:
        super().__init__()
        c = self.config = config
        rates = iter(drop_path_rates(c.drop_path, sum(c.depths)))
        self.stages = nn.ModuleList(
            Stage(c, stage, [next(rates) for _ in range(depth)]) for stage, depth in enumerate(c.depths)
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, c.dims[-1]))  # joins in the last stage only
        self.norm = nn.LayerNorm(c.dims[-1], eps=1e-6)  # the other stages end without one
        self.head = nn.Linear(c.dims[-1], c.classes) if c.classes else nn.Identity()

        # As the published code: linear maps as in a ViT, convolutions as torch leaves them.
        self.apply(init_transformer)
        for stage in self.stages:
            nn.init.trunc_normal_(stage.pos_embed, std=0.02)
        nn.init.trunc_normal_(self.cls_token, std=0.02)

    @property
    def blocks(self) -> nn.ModuleList:
        """All blocks in order of depth, whatever their stage."""
        return nn.ModuleList(block for stage in self.stages for block in stage.blocks)

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images to the normalised tokens of the last stage, `(batch, tokens, dim)`, the class token first."""
        side = self.config.image_size
        check_images(images, (side, side), self.config.channels)
        x = images
        for stage in self.stages[:-1]:
            x = as_map(stage(x), stage.grid)  # (batch, dim, rows, columns)
        return self.norm(self.stages[-1](x, self.cls_token))

    def forward_head(self, tokens: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to class scores `(batch, classes)`, read off the class token."""
        return self.head(tokens[:, 0])

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, side, side)` to class scores `(batch, classes)`."""
        return self.forward_head(self.forward_features(images))
