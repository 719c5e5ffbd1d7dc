"""The second Pyramid Vision Transformer, read top to bottom: MLP, attention, block, stage, configuration, model.

Three things differ from `pvt.py`. Patches overlap, so that neighbours share pixels. A depthwise convolution inside
the MLP lets each token see the tokens around it, and its zeros beyond the border are all that the model is told of
positions: it has no position embedding and no class token, and takes images of any size. And the linear variant
shrinks keys and values to 7 x 7 whatever the image, so that the cost of attention grows with the pixels, not with
their square.

Module and parameter names are timm's, so that a checkpoint of either loads into the other.

Source: Wang et al. 2022, arXiv 2106.13797.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.layers import attention_weights, check_images, drop_path, drop_path_rates, init_transformer

Grid = tuple[int, int]


def as_map(tokens: Tensor, grid: Grid) -> Tensor:
    """Fold tokens `(batch, rows * columns, dim)` into a map `(batch, dim, rows, columns)`; no value is copied."""
    batch, _, dim = tokens.shape
    x = tokens.reshape(batch, *grid, dim)  # (batch, rows, columns, dim)
    return x.permute(0, 3, 1, 2)  # convolutions know this order in memory, channels last, also for one image


def as_tokens(x: Tensor) -> Tensor:
    """Unfold a map `(batch, dim, rows, columns)` into tokens `(batch, rows * columns, dim)`, row by row."""
    return x.flatten(2).transpose(1, 2)  # (batch, rows * columns, dim)


class OverlapPatchEmbed(nn.Module):
    """Shrink a map with windows that overlap, then normalise: stride S, kernel 2S - 1, S - 1 zeros on each side.

    A side of n becomes ceil(n / S), so no size is refused. Source: arXiv 2106.13797, section 3.3.
    """

    def __init__(self, stride: int, channels: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, kernel_size=2 * stride - 1, stride=stride, padding=stride - 1)
        self.norm = nn.LayerNorm(dim, eps=1e-5)  # blocks have 1e-6: the published code mixes the two

    def forward(self, x: Tensor) -> Tensor:
        """Map `(batch, channels, height, width)` to `(batch, rows, columns, dim)`."""
        return self.norm(self.proj(x).permute(0, 2, 3, 1))


class ConvMLP(nn.Module):
    """The MLP with a 3 x 3 depthwise convolution before its GELU: tokens think, and glance at their neighbours.

    Its padding is how positions get in: a token at the border sees zeros, and blocks carry the news inwards. The
    linear variant has a ReLU before the convolution. Source: arXiv 2106.13797, section 3.4.
    """

    def __init__(self, dim: int, hidden: int, dropout: float, relu: bool) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.relu = nn.ReLU() if relu else nn.Identity()
        self.dwconv = nn.Conv2d(hidden, hidden, kernel_size=3, padding=1, groups=hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """Map tokens `(batch, rows * columns, dim)` to tokens of the same shape."""
        x = as_map(self.relu(self.fc1(x)), grid)  # (batch, hidden, rows, columns)
        x = as_tokens(self.dwconv(x))  # (batch, rows * columns, hidden)
        return self.drop(self.fc2(self.drop(self.act(x))))


class Attention(nn.Module):
    """Spatial-reduction attention, as in `pvt.py`; or linear: an average pool of fixed size does the shrinking.

    With `fused_attn` the weights are never stored (torch's scaled_dot_product_attention); without it they pass
    through `attn_drop`, where they can be read: `(batch, heads, tokens, keys)`, keys being `rows // R * columns //
    R` or, in the linear variant, `pool * pool`.

    Source: arXiv 2106.13797, section 3.2.
    """

    def __init__(self, config: PVTv2Config, stage: int) -> None:
        super().__init__()
        c, dim, ratio = config, config.dims[stage], config.sr_ratios[stage]
        self.num_heads = c.heads[stage]
        self.fused_attn = True
        self.q = nn.Linear(dim, dim, bias=c.qkv_bias)
        self.kv = nn.Linear(dim, 2 * dim, bias=c.qkv_bias)  # rows: all of k, all of v; heads in order
        self.linear = c.linear
        self.reduces = c.linear or ratio > 1
        if c.linear:
            self.pool = nn.AdaptiveAvgPool2d(c.pool)  # on a smaller map it repeats tokens
            self.sr = nn.Conv2d(dim, dim, kernel_size=1)
            self.act = nn.GELU()
        elif ratio > 1:
            self.sr = nn.Conv2d(dim, dim, kernel_size=ratio, stride=ratio)  # rows and columns over are not seen
        if self.reduces:
            self.norm = nn.LayerNorm(dim, eps=1e-5)
        self.attn_drop = nn.Dropout(c.attention_dropout)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(c.dropout)

    def reduce(self, x: Tensor, grid: Grid) -> Tensor:
        """Map tokens `(batch, rows * columns, dim)` to what answers for them, `(batch, keys, dim)`."""
        if not self.reduces:
            return x
        if not self.linear:
            return self.norm(as_tokens(self.sr(as_map(x, grid))))
        return self.act(self.norm(as_tokens(self.sr(self.pool(as_map(x, grid))))))

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """Map tokens `(batch, rows * columns, dim)` to what each gathered from the whole image, same shape."""
        batch, tokens, dim = x.shape
        heads, head_dim = self.num_heads, dim // self.num_heads
        q = self.q(x).reshape(batch, tokens, heads, head_dim).transpose(1, 2)  # (batch, heads, tokens, head_dim)
        kv = self.kv(self.reduce(x, grid)).reshape(batch, -1, 2, heads, head_dim)
        k, v = kv.permute(2, 0, 3, 1, 4).unbind(0)  # each (batch, heads, keys, head_dim)
        if self.fused_attn:
            p = self.attn_drop.p if self.training else 0.0
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
        else:
            x = self.attn_drop(attention_weights(q, k)) @ v
        x = x.transpose(1, 2).reshape(batch, tokens, dim)  # heads side by side again
        return self.proj_drop(self.proj(x))


class Block(nn.Module):
    """One layer: tokens exchange, then each thinks; the grid goes along, for images may have any size."""

    def __init__(self, config: PVTv2Config, stage: int, drop_path_rate: float) -> None:
        super().__init__()
        c, dim = config, config.dims[stage]
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(c, stage)
        self.drop_path1 = drop_path(drop_path_rate)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = ConvMLP(dim, int(dim * c.mlp_ratios[stage]), c.dropout, relu=c.linear)
        self.drop_path2 = drop_path(drop_path_rate)

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """Map the residual stream `(batch, rows * columns, dim)` to itself plus two changes."""
        x = x + self.drop_path1(self.attn(self.norm1(x), grid))
        return x + self.drop_path2(self.mlp(self.norm2(x), grid))


class Stage(nn.Module):
    """One level of the pyramid: a coarser map (the model's `patch_embed` makes the first), blocks, a norm."""

    def __init__(self, config: PVTv2Config, stage: int, rates: list[float]) -> None:
        super().__init__()
        c, dim = config, config.dims[stage]
        self.downsample = OverlapPatchEmbed(c.strides[stage], c.dims[stage - 1], dim) if stage else nn.Identity()
        self.blocks = nn.ModuleList(Block(c, stage, rate) for rate in rates)
        self.norm = nn.LayerNorm(dim, eps=1e-6)  # every stage has one, unlike the first version's

    def forward(self, x: Tensor) -> Tensor:
        """Map `(batch, channels, height, width)`, or the first stage's `(batch, rows, columns, dim)`, to a map.

        The map is `(batch, dim, rows, columns)`.
        """
        x = self.downsample(x)  # (batch, rows, columns, dim)
        grid = (x.shape[1], x.shape[2])
        x = x.flatten(1, 2)  # (batch, rows * columns, dim)
        for block in self.blocks:
            x = block(x, grid)
        return as_map(self.norm(x), grid)


@dataclass(frozen=True)
class PVTv2Config:
    """The sizes of a PVT v2; what is a tuple has one entry a stage.

    `PVTv2Config(image_size=32, strides=(2, 2, 2), dims=(32, 64, 128), depths=(2, 2, 2), heads=(1, 2, 4),
    sr_ratios=(4, 2, 1), mlp_ratios=(4, 4, 4))` suits small images.

    `linear=True` pools keys and values to `pool` x `pool` in every stage; `sr_ratios` then say nothing. The image
    size is the one meant, and no weight depends on it: the model takes any, square or not, odd or even, whose
    sides are at least `smallest_side`.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("b0", "b2", "b2_linear")

    image_size: int = 224
    strides: tuple[int, ...] = (4, 2, 2, 2)
    channels: int = 3
    classes: int = 1000
    dims: tuple[int, ...] = (32, 64, 160, 256)
    depths: tuple[int, ...] = (2, 2, 2, 2)
    heads: tuple[int, ...] = (1, 2, 5, 8)
    sr_ratios: tuple[int, ...] = (8, 4, 2, 1)
    mlp_ratios: tuple[float, ...] = (8, 8, 4, 4)
    linear: bool = False
    pool: int = 7
    qkv_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0

    def __post_init__(self) -> None:
        tuples = (self.strides, self.dims, self.depths, self.heads, self.sr_ratios, self.mlp_ratios)
        if not self.dims or len({len(values) for values in tuples}) > 1:
            raise ValueError(
                "strides, dims, depths, heads, sr_ratios and mlp_ratios have one entry a stage, got "
                f"{', '.join(str(len(values)) for values in tuples)} entries; give as many of each."
            )
        sizes = (self.image_size, self.channels, self.pool, *(value for values in tuples for value in values))
        if min(sizes) <= 0 or self.classes < 0:
            raise ValueError(f"Every size of a PVT v2 is at least 1, got {self}; name positive sizes.")
        for dim, heads in zip(self.dims, self.heads, strict=True):
            if dim % heads:
                raise ValueError(
                    f"The width must be a multiple of the number of heads, got {dim} and {heads}; "
                    "change one of them."
                )
        self.check_sides(self.image_size, self.image_size)

    @property
    def smallest_side(self) -> int:
        """The least image side, in pixels: every reduction finds at least one whole window in its grid."""
        if self.linear:
            return 1
        pixels = (prod(self.strides[: stage + 1]) for stage in range(len(self.strides)))
        return max((ratio - 1) * step + 1 for ratio, step in zip(self.sr_ratios, pixels, strict=True))

    def check_sides(self, height: int, width: int) -> None:
        """Raise ValueError, one sentence, for an image that leaves a stage fewer tokens than it reduces to one."""
        if min(height, width) < self.smallest_side:
            raise ValueError(
                f"Images of this PVT v2 have sides of at least {self.smallest_side}, got {height} x {width}; "
                "enlarge them, or choose smaller strides or sr_ratios."
            )

    @classmethod
    def b0(cls, **overrides: Any) -> PVTv2Config:
        """PVT v2-B0, 32 wide at first, 3.7 M parameters (3.4 in print, for it leaves the classifier out).

        Source: arXiv 2106.13797, section 3.5 and table 1.
        """
        return replace(cls(), **overrides)

    @classmethod
    def b2(cls, **overrides: Any) -> PVTv2Config:
        """PVT v2-B2, 64 wide at first, 25.4 M parameters. Source: as for `b0`."""
        return replace(cls(dims=(64, 128, 320, 512), depths=(3, 4, 6, 3)), **overrides)

    @classmethod
    def b2_linear(cls, **overrides: Any) -> PVTv2Config:
        """PVT v2-B2-Li, B2 with linear attention, 22.6 M parameters. Source: as for `b0`."""
        return replace(cls.b2(linear=True), **overrides)


class PVTv2(nn.Module):
    """Images in, class scores out; any sides from `config.smallest_side` on.

    Raises:
        ValueError: images too small, or not a float batch `(batch, channels, height, width)`.
    """

    def __init__(self, config: PVTv2Config) -> None:
        super().__init__()
        c = self.config = config
        self.patch_embed = OverlapPatchEmbed(c.strides[0], c.channels, c.dims[0])
        rates = iter(drop_path_rates(c.drop_path, sum(c.depths)))
        self.stages = nn.ModuleList(
            Stage(c, stage, [next(rates) for _ in range(depth)]) for stage, depth in enumerate(c.depths)
        )
        self.head = nn.Linear(c.dims[-1], c.classes) if c.classes else nn.Identity()

        # As the published code: linear maps as in a ViT; convolutions as for ReLU networks, not as version 1.
        self.apply(init_transformer)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.out_channels // module.groups * prod(module.kernel_size)
                nn.init.normal_(module.weight, std=(2.0 / fan_out) ** 0.5)
                nn.init.zeros_(module.bias)

    @property
    def blocks(self) -> nn.ModuleList:
        """All blocks in order of depth, whatever their stage."""
        return nn.ModuleList(block for stage in self.stages for block in stage.blocks)

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images to the last stage's map, `(batch, dim, rows, columns)`, each token normalised."""
        check_images(images, None, self.config.channels)
        self.config.check_sides(*images.shape[2:])
        x = self.patch_embed(images)  # (batch, rows, columns, dim)
        for stage in self.stages:
            x = stage(x)  # (batch, dim, rows, columns)
        return x

    def forward_head(self, x: Tensor) -> Tensor:
        """Map `(batch, dim, rows, columns)` to class scores `(batch, classes)`, read off the mean token."""
        return self.head(x.mean(dim=(2, 3)))

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, height, width)` to class scores `(batch, classes)`."""
        return self.forward_head(self.forward_features(images))
