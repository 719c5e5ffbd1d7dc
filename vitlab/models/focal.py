"""The Focal Transformer, read top to bottom: keys, attention, block, stage, configuration, model.

Against Swin one thing changes: what a token attends. Every token of a window sees the same keys: the fine tokens
of the window and of a ring around it, and, further out, whole windows pooled to one token each. Near things are
seen sharply and far things in outline, so windows exchange in every block and none needs to be shifted.

For the published Focal-T a window is 7 x 7 tokens, the ring is 3 wide, so that the fine region is 13 x 13, and the
coarse keys are the 7 x 7, 5 x 5, 3 x 3 or 1 pooled windows (stages 1 to 4) about the window, its own among them.

Module and parameter names are the published code's, but for the pooling and the table of coarse biases.

Longer than its siblings, some 420 lines: a chapter draws from the functions that list a query's keys, and five
sizes a stage are checked against one another.

Source: Yang et al. 2021, arXiv 2107.00641.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.layers import MLP, check_images, drop_path, drop_path_rates, init_transformer


def ring(window: int, expand: int, repeat_keys: bool = True) -> list[tuple[int, int]]:
    """Return the tokens around a window, `(row, column)` from its first token, in the order of their biases.

    The published code finds them by moving the map diagonally by `expand`, four times, and keeping of each moved
    window the part that lies outside the window itself. Each of the four parts is an L as long as the window.
    Where `expand` is less than half the window, the arms of two neighbouring L's overlap and their tokens are
    listed twice: with 7 and 3, 132 tokens of which 120 differ. Without `repeat_keys` every token comes once, row
    by row.
    """
    e, side = expand, range(window)
    moves = [(e, e), (e, -e), (-e, e), (-e, -e)]  # below right first: the map itself moves to the top left
    found = [(r + dr, c + dc) for dr, dc in moves for r in side for c in side]
    found = [(r, c) for r, c in found if r not in side or c not in side]
    return found if repeat_keys else sorted(set(found))


@dataclass(frozen=True)
class FocalKeys:
    """What one query attends, in the order of the attention weights' last axis: `fine`, then `pooled`.

    `fine` are positions on the stage's map, row by row from the region's top left corner; `counts` says how often
    the softmax counts each of them (see `ring`), and `wrapped` which lie beyond the border, so that the other side
    of the image stands in for them. `pooled` are rows and columns of windows; those not on the map are masked.
    """

    fine: tuple[tuple[int, int], ...]
    counts: tuple[int, ...]
    wrapped: tuple[bool, ...]
    pooled: tuple[tuple[int, int], ...]
    on_map: tuple[bool, ...]


def focal_keys(config: FocalConfig, stage: int, query: tuple[int, int]) -> FocalKeys:
    """List the keys of the token at `query` = (row, column) on the map of `stage`, both counted from 0.

    All tokens of a window have the same keys; what differs between them is the bias alone.

    Raises:
        ValueError: no such stage, or a query outside its map.
    """
    if not 0 <= stage < len(config.dims):
        raise ValueError(f"Stages run from 0 to {len(config.dims) - 1}, got {stage}; choose one of them.")
    side, window, e = config.geometry(stage)
    if not (0 <= query[0] < side and 0 <= query[1] < side):
        raise ValueError(f"Stage {stage} is {side} x {side} tokens, got the query {query}; choose one inside.")
    i, j = query[0] // window, query[1] // window
    span, reach = range(-e, window + e), config.focal_window[stage] // 2
    region = [(r, c) for r in span for c in span]
    seen = [(r, c) for r in range(window) for c in range(window)] + ring(window, e, config.repeat_keys)
    at = [(i * window + r, j * window + c) for r, c in region]
    pooled = [(i + r, j + c) for r in range(-reach, reach + 1) for c in range(-reach, reach + 1)]
    windows = range(side // window)
    return FocalKeys(
        fine=tuple((r % side, c % side) for r, c in at),
        counts=tuple(seen.count(place) for place in region),
        wrapped=tuple(not (0 <= r < side and 0 <= c < side) for r, c in at),
        pooled=tuple(pooled),
        on_map=tuple(r in windows and c in windows for r, c in pooled),
    )


def bias_index(queries: int, keys: int) -> Tensor:
    """Return which entry of a bias table belongs to a query and a key, `(queries * queries, keys * keys)`.

    The table has one entry for every offset between a place on a `queries` x `queries` grid and one on a `keys` x
    `keys` grid. For the window itself both are tokens. For the coarse keys one is a token and the other a window,
    and the published code subtracts them all the same: the offset then is a label, not a distance.
    """
    offset = torch.arange(queries)[:, None] - torch.arange(keys) + keys - 1  # (queries, keys), from 0
    rows = offset[:, None, :, None] * (queries + keys - 1)  # (queries, 1, keys, 1)
    return (rows + offset[None, :, None, :]).reshape(queries * queries, keys * keys)


class FocalAttention(nn.Module):
    """Every token of a window attends the window, the ring about it, and the pooled windows around.

    A key that is listed twice (see `ring`) with biases b and c weighs exp(s + b) + exp(s + c): it is one key with
    the bias log(exp b + exp c), and that is how it is computed here, so that no key is copied. As the biases begin
    near zero, such a key begins with twice the weight. With `repeat_keys=False` each key counts once, as in the
    paper's equation.

    The ring wraps round: at the map's border the tokens of the other side stand in, with no mask (the published
    code rolls the map). Pooled windows outside the map are zeros, masked with -100, not minus infinity.

    Source: arXiv 2107.00641, section 3.2.
    """

    outside: Tensor
    window_index: Tensor
    pooled_index: Tensor
    once: Tensor
    again: Tensor

    def __init__(self, config: FocalConfig, stage: int) -> None:
        super().__init__()
        c, dim, heads = config, config.dims[stage], config.heads[stage]
        side, window, expand = c.geometry(stage)
        self.num_heads, self.window, self.expand, self.focal_window = heads, window, expand, c.focal_window[stage]
        self.windows, tokens = side // window, window * window
        self.fused_attn = True
        self.pool = nn.Linear(tokens, 1)  # one weight for each place in the window, the same for every channel
        self.qkv = nn.Linear(dim, 3 * dim, bias=c.qkv_bias)  # rows: all of q, all of k, all of v; heads in order
        self.attn_drop = nn.Dropout(c.attention_dropout)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(c.dropout)

        # Three tables: by offset in the window, by pair of places in the ring, by "offset" to a pooled window.
        around = ring(window, expand, c.repeat_keys)
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        if expand:
            self.relative_position_bias_table_to_neighbors = nn.Parameter(
                torch.zeros(1, heads, tokens, len(around))
            )
        offsets = (window + self.focal_window - 1) ** 2
        self.relative_position_bias_table_to_windows = nn.Parameter(torch.zeros(heads, offsets))

        # For each place of the fine region: where its bias stands in [window, ring, nothing], and its second bias.
        listed = [(r, s) for r in range(window) for s in range(window)] + around
        span = range(-expand, window + expand)
        places = [[i for i, at in enumerate(listed) if at == (r, s)] for r in span for s in span]
        self.repeats = any(len(p) > 1 for p in places)
        self.register_buffer("once", torch.tensor([p[0] for p in places]), persistent=False)
        second = torch.tensor([p[1] if len(p) > 1 else len(listed) for p in places])
        self.register_buffer("again", second, persistent=False)
        self.register_buffer("window_index", bias_index(window, window), persistent=False)
        self.register_buffer("pooled_index", bias_index(window, self.focal_window), persistent=False)
        reach = self.focal_window // 2
        off_map = F.pad(torch.zeros(1, 1, self.windows, self.windows), [reach] * 4, value=-100.0)
        off_map = F.unfold(off_map, self.focal_window)[0].T  # (windows, pooled keys)
        self.register_buffer("outside", off_map[:, None, None], persistent=False)

    def bias(self) -> Tensor:
        """Return what is added to the logits, `(windows, heads, window * window, keys)`."""
        fine = self.relative_position_bias_table[self.window_index].permute(2, 0, 1)  # (heads, tokens, tokens)
        if self.expand:
            nothing = fine.new_full((*fine.shape[:2], 1), float("-inf"))
            listed = torch.cat([fine, self.relative_position_bias_table_to_neighbors[0], nothing], dim=-1)
            fine = listed[..., self.once]  # (heads, tokens, fine keys)
            if self.repeats:
                fine = torch.logaddexp(fine, listed[..., self.again])
        pooled = self.relative_position_bias_table_to_windows[:, self.pooled_index] + self.outside
        return torch.cat([fine.expand(len(pooled), -1, -1, -1), pooled], dim=-1)

    def surround(self, x: Tensor) -> Tensor:
        """Give each window `expand` rows and columns of the windows about it, round the border.

        Maps `(..., windows, windows, heads, window, window, dim)` to the same with `window + 2 * expand` twice.
        """
        e = self.expand
        if not e:
            return x
        x = torch.cat([x[..., -e:, :, :].roll(1, -6), x, x[..., :e, :, :].roll(-1, -6)], dim=-3)  # rows
        return torch.cat([x[..., -e:, :].roll(1, -5), x, x[..., :e, :].roll(-1, -5)], dim=-2)  # columns

    def around(self, x: Tensor) -> Tensor:
        """Give each window the pooled windows about it, zeros off the map.

        Maps `(..., windows, windows, heads, dim)` to `(..., windows, windows, heads, pooled keys, dim)`.
        """
        f = self.focal_window
        x = F.pad(x, [0, 0, 0, 0] + [f // 2] * 4)
        x = x.unfold(-4, f, 1).unfold(-4, f, 1)  # (..., windows, windows, heads, dim, f, f): rows, then columns
        return x.flatten(-2).transpose(-1, -2)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `(batch, rows * columns, dim)` to what each gathered from its keys, same shape."""
        batch, _, dim = x.shape
        n, w, heads = self.windows, self.window, self.num_heads
        x = x.reshape(batch, n, w, n, w, dim).transpose(2, 3).reshape(batch, n, n, w * w, dim)  # by windows

        qkv = self.qkv(x).reshape(batch, n, n, w, w, 3, heads, dim // heads)
        qkv = qkv.permute(5, 0, 1, 2, 6, 3, 4, 7)  # (3, batch, n, n, heads, w, w, head_dim)
        fine = self.surround(qkv[1:]).flatten(-3, -2)  # (2, batch, n, n, heads, fine keys, head_dim)

        pooled = (self.pool.weight @ x + self.pool.bias)[..., 0, :]  # (batch, n, n, dim): a window, one token
        bias = None if self.qkv.bias is None else self.qkv.bias[dim:]
        coarse = F.linear(pooled, self.qkv.weight[dim:], bias)  # the same keys and values as for fine tokens
        coarse = coarse.reshape(batch, n, n, 2, heads, dim // heads).permute(3, 0, 1, 2, 4, 5)
        kv = torch.cat([fine, self.around(coarse)], dim=-2)  # (2, batch, n, n, heads, keys, head_dim)

        q = qkv[0].reshape(batch, -1, w * w, dim // heads)  # (batch, n * n * heads, queries, head_dim)
        k, v = kv.flatten(2, 4).unbind(0)  # each (batch, n * n * heads, keys, head_dim)
        logit_bias = self.bias().flatten(0, 1)[None]  # (1, n * n * heads, queries, keys): the same for all images
        if self.fused_attn:
            p = self.attn_drop.p if self.training else 0.0
            x = F.scaled_dot_product_attention(q, k, v, attn_mask=logit_bias, dropout_p=p)
        else:
            weights = ((q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1) + logit_bias).softmax(dim=-1)
            weights = self.attn_drop(weights.reshape(batch * n * n, heads, w * w, -1))  # as Swin's: a window a row
            x = weights.reshape(batch, n * n * heads, w * w, -1) @ v
        x = x.reshape(batch, n, n, heads, w, w, dim // heads).permute(0, 1, 4, 2, 5, 3, 6)
        return self.proj_drop(self.proj(x.reshape(batch, n * n * w * w, dim)))  # row by row again, heads joined


class Block(nn.Module):
    """One layer: tokens exchange, then each token thinks; both as a change added to the residual stream."""

    def __init__(self, config: FocalConfig, stage: int, drop_path_rate: float) -> None:
        super().__init__()
        c, dim = config, config.dims[stage]
        self.norm1 = nn.LayerNorm(dim)
        self.attn = FocalAttention(c, stage)
        self.drop_path1 = drop_path(drop_path_rate)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, int(dim * c.mlp_ratio), c.dropout)
        self.drop_path2 = drop_path(drop_path_rate)

    def forward(self, x: Tensor) -> Tensor:
        """Map the residual stream `(batch, tokens, dim)` to itself plus two changes."""
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class PatchEmbed(nn.Module):
    """Cut a map into squares, each to a normalised token: images into patches, later 2 x 2 tokens into one."""

    def __init__(self, patch_size: int, channels: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(batch, channels, height, width)` to tokens `(batch, patches, dim)`, row by row."""
        return self.norm(self.proj(x).flatten(2).transpose(1, 2))


class Stage(nn.Module):
    """Blocks at one width and one map, and then, but for the last stage, a map half as wide and twice as deep."""

    def __init__(self, config: FocalConfig, stage: int, rates: list[float]) -> None:
        super().__init__()
        c = config
        self.side, _, _ = c.geometry(stage)
        self.blocks = nn.ModuleList(Block(c, stage, rate) for rate in rates)
        last = stage + 1 == len(c.dims)
        self.downsample = None if last else PatchEmbed(2, c.dims[stage], c.dims[stage + 1])

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to `(batch, tokens / 4, next dim)`, or, last, to their own shape."""
        for block in self.blocks:
            x = block(x)
        if self.downsample is None:
            return x
        x = x.transpose(1, 2).unflatten(2, (self.side, self.side))  # (batch, dim, rows, columns)
        return self.downsample(x)


@dataclass(frozen=True)
class FocalConfig:
    """The sizes of a Focal Transformer; `dims`, `depths`, `heads`, `expand`, `focal_window` have an entry a stage.

    `FocalConfig(image_size=32, patch_size=2, window=4, dims=(32, 64, 128), depths=(2, 2, 2), heads=(1, 2, 4),
    expand=(2, 2, 2), focal_window=(5, 3, 1))` suits small images. `expand` is the width of the ring in tokens, at
    most half the window; `focal_window` how many pooled windows a window attends along each axis, its own in the
    middle. Where the map is no larger than a window, the window is the map and there is no ring.
    `repeat_keys=False` counts every token of the ring once (see `ring`); its table of biases is then smaller.
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
    expand: tuple[int, ...] = (3, 3, 3, 3)
    focal_window: tuple[int, ...] = (7, 5, 3, 1)
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    repeat_keys: bool = True

    def __post_init__(self) -> None:
        per_stage = (self.dims, self.depths, self.heads, self.expand, self.focal_window)
        if not self.dims or len({len(sizes) for sizes in per_stage}) > 1:
            raise ValueError(
                "dims, depths, heads, expand and focal_window have one entry a stage, got "
                f"{', '.join(str(len(sizes)) for sizes in per_stage)} entries; give as many of each."
            )
        sizes = (self.image_size, self.patch_size, self.channels, self.window, self.mlp_ratio, *self.dims)
        if min(*sizes, *self.depths, *self.heads, *self.focal_window) <= 0 or self.classes < 0:
            raise ValueError(f"Every size of a Focal Transformer is at least 1, got {self}; name positive sizes.")
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
        for expand, focal_window in zip(self.expand, self.focal_window, strict=True):
            if not 0 <= 2 * expand <= self.window:
                raise ValueError(
                    f"The ring is at most half a window wide, got {expand} for a window of {self.window}; beyond "
                    "that the published code leaves gaps, so choose a smaller expand or a larger window."
                )
            if focal_window % 2 == 0:
                raise ValueError(
                    f"The pooled windows have the query's own in the middle, got {focal_window} of them along an "
                    "axis; choose an odd focal_window."
                )
        for stage in range(len(self.dims)):
            side = self.image_size // self.patch_size // 2**stage
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

    def geometry(self, stage: int) -> tuple[int, int, int]:
        """Return, in tokens, the side of a stage's map, of its windows, and the width of the ring (0: none)."""
        side = self.image_size // self.patch_size // 2**stage
        return side, min(side, self.window), self.expand[stage] if side > self.window else 0

    @classmethod
    def tiny(cls, **overrides: Any) -> FocalConfig:
        """Focal-T, 96 wide at first, 28.9 M parameters. Source: arXiv 2107.00641; counted by its authors' code."""
        return replace(cls(), **overrides)

    @classmethod
    def small(cls, **overrides: Any) -> FocalConfig:
        """Focal-S, Focal-T with a third stage thrice as deep, 51.1 M parameters. Source: arXiv 2107.00641."""
        return replace(cls(depths=(2, 2, 18, 2)), **overrides)

    @classmethod
    def base(cls, **overrides: Any) -> FocalConfig:
        """Focal-B, Focal-S a third wider, 89.8 M parameters. Source: arXiv 2107.00641."""
        dims, heads = (128, 256, 512, 1024), (4, 8, 16, 32)
        return replace(cls(dims=dims, depths=(2, 2, 18, 2), heads=heads), **overrides)


class Focal(nn.Module):
    """Images in, class scores out.

    Raises:
        ValueError: images of another shape or type than the configuration says.
    """

    def __init__(self, config: FocalConfig) -> None:
        super().__init__()
        c = self.config = config
        self.patch_embed = PatchEmbed(c.patch_size, c.channels, c.dims[0])
        self.pos_drop = nn.Dropout(c.dropout)
        rates = iter(drop_path_rates(c.drop_path, sum(c.depths)))  # rising through all stages
        self.layers = nn.ModuleList(
            Stage(c, stage, [next(rates) for _ in range(depth)]) for stage, depth in enumerate(c.depths)
        )
        self.norm = nn.LayerNorm(c.dims[-1])
        self.head = nn.Linear(c.dims[-1], c.classes) if c.classes else nn.Identity()

        # As the published code, the convolutions as torch does. That code first sets the pooling to the mean, and
        # its sweep over all linear layers then draws it anew; we keep the mean, which is what a window looks like.
        self.apply(init_transformer)
        for block in self.blocks:
            nn.init.constant_(block.attn.pool.weight, 1 / block.attn.pool.in_features)
            for table in block.attn.parameters(recurse=False):
                nn.init.trunc_normal_(table, std=0.02)

    @property
    def blocks(self) -> nn.ModuleList:
        """All blocks in order of depth, whatever their stage."""
        return nn.ModuleList(block for stage in self.layers for block in stage.blocks)

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images to the normalised tokens of the last block, `(batch, tokens, dim)`."""
        side = self.config.image_size
        check_images(images, (side, side), self.config.channels)
        x = self.pos_drop(self.patch_embed(images))  # (batch, patches, dim); no positions but the biases
        for stage in self.layers:
            x = stage(x)
        return self.norm(x)

    def forward_head(self, tokens: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to class scores `(batch, classes)`: their mean, then a linear map."""
        return self.head(tokens.mean(dim=1))

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, side, side)` to class scores `(batch, classes)`."""
        return self.forward_head(self.forward_features(images))
