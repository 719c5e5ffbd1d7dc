"""The Swin Transformer, read top to bottom: windows, shift, bias, attention, block, merging, configuration, model.

Against the ViT three things change. Tokens exchange inside windows only, so that the cost grows with the image and
not with its square; every second block moves the windows by half their side, so that what one block kept apart the
next one joins; and between stages 2 x 2 tokens merge into one, so that the map shrinks and the width grows as in a
convolutional network. Positions enter as a bias that depends on the offset between query and key alone.

Module and parameter names are timm's, but for the head.

Longer than its siblings, some 380 lines: what a chapter draws (windows, mask, index) is written as functions of
its own, and sizes that do not tile are refused one by one.

Source: Liu et al. 2021, arXiv 2103.14030.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.layers import MLP, check_images, drop_path, drop_path_rates, init_transformer


def window_partition(x: Tensor, window: int) -> Tensor:
    """Cut a map into square windows that do not overlap, and each window into its tokens, row by row.

    Args:
        x: a map `(batch, rows, columns, dim)`.
        window: the side of a window in tokens; it divides rows and columns.

    Returns:
        `(batch * windows, window * window, dim)`: the windows of the first image row by row, then the second's.
    """
    batch, rows, columns, dim = x.shape
    x = x.reshape(batch, rows // window, window, columns // window, window, dim)
    return x.transpose(2, 3).reshape(-1, window * window, dim)  # the two within-window axes side by side


def window_reverse(windows: Tensor, window: int, rows: int, columns: int) -> Tensor:
    """Undo `window_partition`: `(batch * windows, window * window, dim)` back to `(batch, rows, columns, dim)`."""
    dim = windows.shape[-1]
    x = windows.reshape(-1, rows // window, columns // window, window, window, dim)
    return x.transpose(2, 3).reshape(-1, rows, columns, dim)


def shift_mask(rows: int, columns: int, window: int, shift: int) -> Tensor:
    """What keeps tokens apart that only the cyclic shift brought into one window.

    Rolling the map up and left by `shift` moves its first rows behind its last ones, and its first columns
    likewise. The last windows then hold tokens from opposite borders of the image, which must not meet.

    Returns:
        `(windows, n, n)` with n = window * window, added to the attention logits: 0 where both tokens of a pair
        wrapped round alike, -100 where not. The published code has -100 and not minus infinity: such a weight is
        about e^-100, zero for every practical purpose, and never part of 0/0.

    Source: arXiv 2103.14030, figure 4.
    """
    wrapped_row = torch.arange(rows) >= rows - shift
    wrapped_column = torch.arange(columns) >= columns - shift
    region = 2 * wrapped_row[:, None] + wrapped_column  # (rows, columns): four origins, 0 to 3
    region = window_partition(region[None, :, :, None], window).squeeze(-1)  # (windows, n)
    return torch.where(region[:, :, None] == region[:, None, :], 0.0, -100.0)


def relative_position_index(window: int) -> Tensor:
    """Which entry of the bias table a pair of tokens reads: one for each offset between query and key.

    Returns:
        `(n, n)` with n = window * window, query by key: (row offset + window - 1) * (2 * window - 1) +
        (column offset + window - 1), offsets being query minus key; from 0 to (2 * window - 1) ** 2 - 1.

    Source: arXiv 2103.14030, section 3.2.
    """
    row, column = torch.arange(window * window) // window, torch.arange(window * window) % window
    down = row[:, None] - row + window - 1  # (n, n), from 0 to 2 * window - 2
    right = column[:, None] - column + window - 1
    return down * (2 * window - 1) + right


def biased_attention_weights(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    r"""Return how much each query attends to each key, :math:`\mathrm{softmax}(QK^\top / \sqrt{d} + B)`.

    Args:
        q: queries, `(batch, heads, queries, head_dim)`.
        k: keys, `(batch, heads, keys, head_dim)`.
        bias: what is added to the logits, anything that broadcasts to `(batch, heads, queries, keys)`, or None.

    Returns:
        Weights `(batch, heads, queries, keys)`; each row is non-negative and sums to 1.

    Source: arXiv 2103.14030, equation 4.
    """
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    return (logits if bias is None else logits + bias).softmax(dim=-1)


class WindowAttention(nn.Module):
    """Multi-head self-attention inside each window, every token to every token of its own window.

    With `fused_attn` the weights are never stored (torch's scaled_dot_product_attention); without it they pass
    through `attn_drop`, where they can be read, as `(batch * windows, heads, n, n)`. A gradient on a CPU takes the
    second way in any case: torch's fused kernel for CPUs has none for a bias, and what it falls back on is slower.
    """

    relative_position_index: Tensor

    def __init__(self, config: SwinConfig, dim: int, heads: int, window: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.fused_attn = True
        if config.relative_bias:
            self.relative_position_bias_table = nn.Parameter(torch.empty((2 * window - 1) ** 2, heads))
            nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
            self.register_buffer("relative_position_index", relative_position_index(window), persistent=False)
        else:
            self.register_parameter("relative_position_bias_table", None)
        self.qkv = nn.Linear(dim, 3 * dim, bias=config.qkv_bias)  # rows: all of q, of k, of v; heads in order
        self.attn_drop = nn.Dropout(config.attention_dropout)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(config.dropout)

    def relative_bias(self) -> Tensor | None:
        """The bias of every query and key in a window, `(1, heads, n, n)`, or None where the model has none."""
        if self.relative_position_bias_table is None:
            return None
        n = self.relative_position_index.shape[0]
        bias = self.relative_position_bias_table[self.relative_position_index.flatten()]  # (n * n, heads)
        return bias.reshape(n, n, -1).permute(2, 0, 1)[None]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map windows `(batch * windows, n, dim)` to what each token gathered from its window, same shape.

        `mask` is that of `shift_mask`, `(windows, n, n)`, or None where the windows lie unshifted.
        """
        windows, n, dim = x.shape
        qkv = self.qkv(x).reshape(windows, n, 3, self.num_heads, dim // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (batch * windows, heads, n, head_dim)
        bias = self.relative_bias()
        if mask is not None:
            mask = mask.repeat(windows // mask.shape[0], 1, 1)[:, None]  # (batch * windows, 1, n, n)
            bias = mask if bias is None else bias + mask
        if self.fused_attn and not (x.device.type == "cpu" and torch.is_grad_enabled()):
            p = self.attn_drop.p if self.training else 0.0
            x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p)
        else:
            x = self.attn_drop(biased_attention_weights(q, k, bias)) @ v
        x = x.transpose(1, 2).reshape(windows, n, dim)  # heads side by side again
        return self.proj_drop(self.proj(x))


class Block(nn.Module):
    """One layer: tokens exchange inside windows, plain or shifted, then each token thinks.

    A map no larger than the window is one window itself, and there is nothing to shift.
    Source: arXiv 2103.14030, equation 3 (a plain and a shifted block in turn).
    """

    mask: Tensor | None

    def __init__(self, config: SwinConfig, stage: int, shifted: bool, drop_path_rate: float) -> None:
        super().__init__()
        c, dim = config, config.dims[stage]
        self.side = c.sides[stage]
        self.window = min(c.window, self.side)
        self.shift = self.window // 2 if shifted and self.window < self.side else 0
        mask = shift_mask(self.side, self.side, self.window, self.shift) if self.shift else None
        self.register_buffer("mask", mask, persistent=False)
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(c, dim, c.heads[stage], self.window)
        self.drop_path1 = drop_path(drop_path_rate)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, int(dim * c.mlp_ratio), c.dropout)
        self.drop_path2 = drop_path(drop_path_rate)

    def exchange(self, x: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to what each gathered from its window, same shape."""
        batch, tokens, dim = x.shape
        x = x.reshape(batch, self.side, self.side, dim)
        if self.shift:  # up and left, round the border: as many windows as before, and all of the same size
            x = torch.roll(x, (-self.shift, -self.shift), dims=(1, 2))
        x = self.attn(window_partition(x, self.window), self.mask)
        x = window_reverse(x, self.window, self.side, self.side)
        if self.shift:
            x = torch.roll(x, (self.shift, self.shift), dims=(1, 2))
        return x.reshape(batch, tokens, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map the residual stream `(batch, tokens, dim)` to itself plus two changes."""
        x = x + self.drop_path1(self.exchange(self.norm1(x)))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class PatchMerging(nn.Module):
    """Merge 2 x 2 neighbouring tokens into one: lay them side by side, normalise, and map to the new width.

    The four come column by column, (0, 0), (1, 0), (0, 1), (1, 1) in (row, column): an accident of the published
    code that every checkpoint depends on.
    Source: arXiv 2103.14030, section 3.1.
    """

    def __init__(self, side: int, dim: int, out: int) -> None:
        super().__init__()
        self.side = side
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `(batch, side * side, dim)` to tokens `(batch, side * side / 4, out)`."""
        half, dim = self.side // 2, x.shape[-1]
        x = x.reshape(-1, half, 2, half, 2, dim)
        x = x.permute(0, 1, 3, 4, 2, 5).reshape(-1, half * half, 4 * dim)  # the column varies slower than the row
        return self.reduction(self.norm(x))


class PatchEmbed(nn.Module):
    """Cut the image into squares, map each to a token, and normalise it (the ViT does not)."""

    def __init__(self, patch_size: int, channels: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size)
        self.norm = nn.LayerNorm(dim)

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, height, width)` to tokens `(batch, patches, dim)`, row by row."""
        x = self.proj(images)  # (batch, dim, rows, columns)
        return self.norm(x.flatten(2).transpose(1, 2))  # (batch, rows * columns, dim)


class Stage(nn.Module):
    """Blocks at one resolution and width, after the merging that leads to it; the first stage has none before it.

    The published code puts the merging at the end of the stage before; timm, and this file, where it belongs.
    """

    def __init__(self, config: SwinConfig, stage: int, rates: list[float]) -> None:
        super().__init__()
        c, before = config, stage - 1
        merging = PatchMerging(c.sides[before], c.dims[before], c.dims[stage]) if stage else nn.Identity()
        self.downsample = merging
        self.blocks = nn.ModuleList(Block(c, stage, c.shift and i % 2 == 1, rate) for i, rate in enumerate(rates))

    def forward(self, x: Tensor) -> Tensor:
        """Map the stage before's tokens `(batch, tokens, dim)` to this one's."""
        x = self.downsample(x)
        for block in self.blocks:
            x = block(x)
        return x


@dataclass(frozen=True)
class SwinConfig:
    """The sizes of a Swin; `dims`, `depths` and `heads` have one entry a stage.

    `SwinConfig(image_size=32, patch_size=2, window=4, dims=(32, 64, 128), depths=(2, 2, 2), heads=(1, 2, 4))` is
    for small images, and has 0.58 M parameters at 100 classes. `shift=False` leaves every window where it is, so
    that windows never exchange but by merging; `relative_bias=False` leaves the position bias out: two controls of
    the paper's table 4.

    Windows must tile the map of every stage. Where they do not, implementations differ: the published one raises,
    as this one does; timm rolls the map and then pads it; torchvision pads it and then rolls.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("tiny", "small", "base")

    image_size: int = 224
    patch_size: int = 4
    channels: int = 3
    classes: int = 1000
    window: int = 7
    dims: tuple[int, ...] = (96, 192, 384, 768)
    depths: tuple[int, ...] = (2, 2, 6, 2)
    heads: tuple[int, ...] = (3, 6, 12, 24)
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    shift: bool = True
    relative_bias: bool = True

    def __post_init__(self) -> None:
        if not 0 < len(self.dims) == len(self.depths) == len(self.heads):
            raise ValueError(
                f"dims, depths and heads have one entry a stage, got {len(self.dims)}, {len(self.depths)} and "
                f"{len(self.heads)} entries; give as many of each."
            )
        sizes = (self.image_size, self.patch_size, self.channels, self.window, self.mlp_ratio)
        if min(*sizes, *self.dims, *self.depths, *self.heads) <= 0 or self.classes < 0:
            raise ValueError(f"Every size of a Swin is at least 1, got {self}; name positive sizes.")
        if self.image_size % self.patch_size:
            raise ValueError(
                f"The image side must be a multiple of the patch side, got {self.image_size} and "
                f"{self.patch_size}; resize the images or choose another patch."
            )
        for dim, heads in zip(self.dims, self.heads, strict=True):
            if dim % heads:
                raise ValueError(
                    f"The width must be a multiple of the number of heads, got {dim} and {heads}; "
                    "change one of them."
                )
        for stage, side in enumerate(self.sides):
            if side > self.window and side % self.window:
                raise ValueError(
                    f"Windows must tile the map, got {side} x {side} tokens in stage {stage + 1} and windows of "
                    f"{self.window} x {self.window}; change the window, the patch or the image size."
                )
            if side % 2 and stage + 1 < len(self.dims):
                raise ValueError(
                    f"Merging takes 2 x 2 tokens, got an odd map of {side} x {side} after stage {stage + 1}; "
                    "change the patch or the image size, or have fewer stages."
                )

    @property
    def sides(self) -> tuple[int, ...]:
        """The side of each stage's map in tokens."""
        return tuple(self.image_size // self.patch_size // 2**stage for stage in range(len(self.dims)))

    @classmethod
    def tiny(cls, **overrides: Any) -> SwinConfig:
        """Swin-T, 96 wide at first, 28.3 M parameters. Source: arXiv 2103.14030, section 3.3 and table 1."""
        return replace(cls(), **overrides)

    @classmethod
    def small(cls, **overrides: Any) -> SwinConfig:
        """Swin-S, Swin-T with a third stage thrice as deep, 49.6 M parameters. Source: as for `tiny`."""
        return replace(cls(depths=(2, 2, 18, 2)), **overrides)

    @classmethod
    def base(cls, **overrides: Any) -> SwinConfig:
        """Swin-B, Swin-S a third wider, 87.8 M parameters. Source: as for `tiny`."""
        dims, heads = (128, 256, 512, 1024), (4, 8, 16, 32)
        return replace(cls(dims=dims, depths=(2, 2, 18, 2), heads=heads), **overrides)


class Swin(nn.Module):
    """Images in, class scores out.

    Raises:
        ValueError: images of another shape or type than the configuration says.
    """

    def __init__(self, config: SwinConfig) -> None:
        super().__init__()
        c = self.config = config
        self.patch_embed = PatchEmbed(c.patch_size, c.channels, c.dims[0])
        rates = iter(drop_path_rates(c.drop_path, sum(c.depths)))  # rising through all stages
        self.layers = nn.ModuleList(
            Stage(c, stage, [next(rates) for _ in range(depth)]) for stage, depth in enumerate(c.depths)
        )
        self.norm = nn.LayerNorm(c.dims[-1])
        self.head = nn.Linear(c.dims[-1], c.classes) if c.classes else nn.Identity()
        self.apply(init_transformer)  # as the published code, which leaves the convolution to torch

    @property
    def blocks(self) -> nn.ModuleList:
        """All blocks in order of depth, whatever their stage."""
        return nn.ModuleList(block for stage in self.layers for block in stage.blocks)

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images to the normalised tokens of the last block, `(batch, tokens, dim)`."""
        side = self.config.image_size
        check_images(images, (side, side), self.config.channels)
        x = self.patch_embed(images)  # (batch, patches, dim)
        for stage in self.layers:
            x = stage(x)
        return self.norm(x)

    def forward_head(self, tokens: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to class scores `(batch, classes)`: average, then one linear map."""
        return self.head(tokens.mean(dim=1))

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, side, side)` to class scores `(batch, classes)`."""
        return self.forward_head(self.forward_features(images))
