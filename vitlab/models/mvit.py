"""MViT, versions 1 and 2, read top to bottom: pooling, attention, block, configuration, model.

Attention gets a stride. Before tokens compare, queries, keys and values are pooled over the grid, each by its own
small convolution. Pooled keys and values make attention cheap: 14 x 14 keys instead of 56 x 56, at every depth.
Pooled queries make the network a pyramid: a block returns one token for each query, so a stride of 2 on the
queries, in the first block of a stage, halves the grid, and the width doubles. The skip connection is pooled too.

Version 2 keeps all this and changes five things, each of them fields of the configuration that can be tried alone.
One file of some 400 lines shows both, for they are one network; apart, each would repeat the other.

| field | version 1 | version 2 |
|---|---|---|
| `class_token`, `absolute_positions` | both | neither: patches are averaged |
| `relative_positions` | no | two tables in each block, for rows and for columns |
| `residual_pooling` | no | the pooled queries are added to what attention returns |
| `pool_every_query` | only where the grid is halved | in every block, elsewhere with stride 1 |
| `widen_in` | the last MLP before a halving | the attention of the halving block itself |

Video is the same network with one more axis: images become (batch, channels, frames, height, width), patches cubes
of 3 x 7 x 7 with stride 2 x 4 x 4, and every pooling kernel 3 x 3 x 3, so that it mixes time and space at once.
Strides stay 1 along time: 1 x 2 x 2 for queries, at first 1 x 8 x 8 for keys. Positions gain a part for time.
This file has the image models, which the authors got from the video models by removing that axis.

Module and parameter names are timm's, with two differences: blocks are numbered through all stages (`blocks.5`),
and a pooling keeps its norm with it (`pool_q.norm` is timm's `norm_q`); `vitlab.models.peers.mvit` renames.

Sources: Fan et al. 2021, arXiv 2104.11227 (version 1); Li et al. 2022, arXiv 2112.01526 (version 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.layers import MLP, check_images, drop_path, drop_path_rates, init_transformer


class PatchEmbed(nn.Module):
    """Map overlapping squares of the image to tokens: a convolution whose kernel is wider than its stride."""

    def __init__(self, kernel: int, stride: int, channels: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, kernel, stride=stride, padding=kernel // 2)

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, side, side)` to tokens `(batch, patches, dim)`, row by row."""
        x = self.proj(images)  # (batch, dim, rows, columns)
        return x.flatten(2).transpose(1, 2)  # (batch, rows * columns, dim)


class Pooling(nn.Module):
    """Pool tokens over their grid, each head alone, all heads with the same weights; a class token passes by.

    `op` is "conv", one learnt kernel for each channel and then LayerNorm, or "max" or "avg", which learn nothing.
    The norm covers the class token too, which was not pooled. Padding makes the stride divide the side exactly.

    Source: Fan et al. 2021, arXiv 2104.11227, section 3.1; "conv" against the others in table 15.
    """

    def __init__(self, op: str, dim: int, side: int, kernel: int, stride: int, prefix: int) -> None:
        super().__init__()
        self.side, self.prefix = side, prefix
        padding = (kernel - 1) // 2
        self.pool: nn.Module
        if op == "conv":
            self.pool = nn.Conv2d(dim, dim, kernel, stride=stride, padding=padding, groups=dim, bias=False)
        else:
            self.pool = (nn.MaxPool2d if op == "max" else nn.AvgPool2d)(kernel, stride, padding)
        self.norm = nn.LayerNorm(dim, eps=1e-6) if op == "conv" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map `(batch, heads, prefix + side * side, dim)` to the same with `side / stride` for `side`."""
        batch, heads, _, dim = x.shape
        cls, x = x[:, :, : self.prefix], x[:, :, self.prefix :]
        # Tokens row by row are a map with channels last in memory: seen as (batch * heads, dim, rows, columns) it
        # needs no copy into another order, neither before pooling nor after.
        x = x.reshape(batch * heads, self.side, self.side, dim).permute(0, 3, 1, 2)
        x = self.pool(x).permute(0, 2, 3, 1).reshape(batch, heads, -1, dim)  # (batch, heads, patches, dim)
        return self.norm(torch.cat([cls, x], dim=2) if self.prefix else x)


def relative_index(queries: int, keys: int) -> Tensor:
    """Say which row of a table of relative positions belongs to each pair along one axis: `(queries, keys)`.

    Pooling may have put queries and keys on different scales; both are counted on the finer one. Row 0 is for the
    key farthest after its query, the last row for the one farthest before it: 2 max(queries, keys) - 1 rows are
    enough. Where one number does not divide the other, distances are rounded down, as published.

    Source: Li et al. 2022, arXiv 2112.01526, section 4.1 with footnote 3.
    """
    query_step, key_step = max(keys / queries, 1.0), max(queries / keys, 1.0)
    q = torch.arange(queries)[:, None] * query_step
    k = torch.arange(keys)[None, :] * key_step
    return (q - k + (keys - 1) * key_step).long()


def relative_logits(q: Tensor, rows: Tensor, columns: Tensor, index: Tensor, onto: Tensor | None = None) -> Tensor:
    r"""Return :math:`q_i \cdot (R^h_{h(i),h(j)} + R^w_{w(i),w(j)})` for all pairs of patches, added to `onto`.

    A distance in the plane is taken apart into rows and columns, so that a side of n needs 2 (2n - 1) vectors
    instead of (2n - 1)^2. The paper divides this term by sqrt(d) as it does q k; the published code does not, nor
    do timm and we: this q is unscaled.

    Args:
        q: queries, pooled and not scaled, `(batch, heads, side * side, head_dim)`.
        rows: a vector for each distance in rows, `(2 max(side, span) - 1, head_dim)`.
        columns: the same for columns.
        index: which vector belongs to a pair, `(side, span)`, see `relative_index`.
        onto: the other logits, `(batch, heads, side * side, span * span)`; None for zero.

    Returns:
        Logits `(batch, heads, side * side, span * span)`, queries before keys.

    Source: Li et al. 2022, arXiv 2112.01526, equations 3 and 4.
    """
    side, span = index.shape
    q = q.unflatten(2, (side, side))
    vertical = torch.einsum("bhrcd,rkd->bhrck", q, rows[index])[..., None]  # (batch, heads, side, side, span, 1)
    horizontal = torch.einsum("bhrcd,ckd->bhrck", q, columns[index])[..., None, :]  # (..., side, side, 1, span)
    if onto is not None:
        vertical = onto.unflatten(3, (span, span)).unflatten(2, (side, side)) + vertical
    return (vertical + horizontal).flatten(4).flatten(2, 3)


class Attention(nn.Module):
    """Pooling attention: queries, keys and values are pooled first, then every query looks at every key.

    With `fused_attn` the weights are never stored (torch's scaled_dot_product_attention); without it they pass
    through `attn_drop`, where they can be read: `(batch, heads, queries, keys)`, no longer a square.

    Source: Fan et al. 2021, arXiv 2104.11227, section 3.1; Li et al. 2022, arXiv 2112.01526, equations 1 to 5.
    """

    def __init__(self, config: MViTConfig, plan: BlockPlan) -> None:
        super().__init__()
        c, p = config, plan
        head_dim = p.width // p.heads
        self.num_heads, self.prefix = p.heads, int(c.class_token)
        self.residual_pooling = c.residual_pooling
        self.fused_attn = True
        self.qkv = nn.Linear(p.dim, 3 * p.width)  # rows: all of q, all of k, all of v; heads in order

        def pooling(stride: int) -> nn.Module:
            kernel = c.pool_kernel or (stride + 1 if stride > 1 else 1)
            if kernel == stride == 1:
                return nn.Identity()
            return Pooling(c.pool, head_dim, p.side, kernel, stride, self.prefix)

        self.pool_q = pooling(p.q_stride) if c.pool_every_query or p.q_stride > 1 else nn.Identity()
        self.pool_k, self.pool_v = pooling(p.kv_stride), pooling(p.kv_stride)
        self.rel_pos_h = self.rel_pos_w = None
        if c.relative_positions:
            span = 2 * max(p.queries, p.keys) - 1
            self.rel_pos_h = nn.Parameter(torch.zeros(span, head_dim))
            self.rel_pos_w = nn.Parameter(torch.zeros(span, head_dim))
            self.index: Tensor
            self.register_buffer("index", relative_index(p.queries, p.keys), persistent=False)
        self.attn_drop = nn.Dropout(c.attention_dropout)
        self.proj = nn.Linear(p.width, p.width)
        self.proj_drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to what each query gathered, `(batch, queries, width)`."""
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (batch, heads, tokens, head_dim)
        q, k, v = self.pool_q(q), self.pool_k(k), self.pool_v(v)  # (batch, heads, queries or keys, head_dim)
        if self.fused_attn:
            p = self.attn_drop.p if self.training else 0.0
            x = F.scaled_dot_product_attention(q, k, v, attn_mask=self.add_positions(q), dropout_p=p)
        else:
            logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)  # (batch, heads, queries, keys)
            self.add_positions(q, logits)
            x = self.attn_drop(logits.softmax(dim=-1)) @ v
        if self.residual_pooling:
            x = x + (F.pad(q[:, :, 1:], (0, 0, 1, 0)) if self.prefix else q)  # nothing is added to the class token
        x = x.transpose(1, 2).flatten(2)  # (batch, queries, width), heads side by side again
        return self.proj_drop(self.proj(x))

    def add_positions(self, q: Tensor, logits: Tensor | None = None) -> Tensor | None:
        """Add the relative positions to `logits` in place, or return them alone; a class token has none."""
        if self.rel_pos_h is None or self.rel_pos_w is None:
            return logits
        p = self.prefix
        if logits is None:
            alone = relative_logits(q[:, :, p:], self.rel_pos_h, self.rel_pos_w, self.index)
            return F.pad(alone, (p, 0, p, 0)) if p else alone
        patches = logits[:, :, p:, p:]
        patches.copy_(relative_logits(q[:, :, p:], self.rel_pos_h, self.rel_pos_w, self.index, patches))
        return logits


class Block(nn.Module):
    """One layer: tokens exchange, then each token thinks; where a stage begins, the grid is halved on the way.

    The skip connection must follow: it is pooled by the maximum, kernel 3 and stride 2, whatever attention pools
    by, and where the width changes it passes a linear layer. That layer reads the normed tokens, all other skips
    the residual stream itself: so says the paper in section 3.2, and so does the published code of both versions.

    Source: Fan et al. 2021, arXiv 2104.11227, figure 3 and section 3.2.
    """

    def __init__(self, config: MViTConfig, plan: BlockPlan, drop_path_rate: float) -> None:
        super().__init__()
        c, p = config, plan
        self.norm1 = nn.LayerNorm(p.dim, eps=1e-6)
        self.attn = Attention(c, p)
        self.shortcut_proj_attn = nn.Linear(p.dim, p.width) if p.dim != p.width else None
        prefix, stride = int(c.class_token), p.q_stride
        self.shortcut_pool_attn = (
            Pooling("max", p.width, p.side, stride + 1, stride, prefix) if stride > 1 else None
        )
        self.drop_path1 = drop_path(drop_path_rate)
        self.norm2 = nn.LayerNorm(p.width, eps=1e-6)
        self.mlp = MLP(p.width, int(p.width * c.mlp_ratio), c.dropout)
        self.shortcut_proj_mlp = None
        if p.width != p.dim_out:  # version 1 widens here: the MLP's second layer is the next stage's first
            self.mlp.fc2 = nn.Linear(self.mlp.fc1.out_features, p.dim_out)
            self.shortcut_proj_mlp = nn.Linear(p.width, p.dim_out)
        self.drop_path2 = drop_path(drop_path_rate)

    def forward(self, x: Tensor) -> Tensor:
        """Map the residual stream `(batch, tokens, dim)` to `(batch, queries, dim_out)`."""
        y = self.norm1(x)
        x = x if self.shortcut_proj_attn is None else self.shortcut_proj_attn(y)  # (batch, tokens, width)
        if self.shortcut_pool_attn is not None:
            x = self.shortcut_pool_attn(x[:, None])[:, 0]  # as one head: (batch, queries, width)
        x = x + self.drop_path1(self.attn(y))
        y = self.norm2(x)
        x = x if self.shortcut_proj_mlp is None else self.shortcut_proj_mlp(y)  # (batch, queries, dim_out)
        return x + self.drop_path2(self.mlp(y))


@dataclass(frozen=True)
class BlockPlan:
    """What one block does to the sizes of its input; `MViTConfig.plan` lists them, the paper's table 3b in full.

    `dim` enters, attention and MLP work at `width`, `dim_out` leaves; `side` is the side of the grid that enters.
    """

    dim: int
    width: int
    dim_out: int
    heads: int
    side: int
    q_stride: int
    kv_stride: int

    @property
    def queries(self) -> int:
        """The side of the grid of queries, and of the tokens that leave."""
        return self.side // self.q_stride

    @property
    def keys(self) -> int:
        """The side of the grid of keys and values."""
        return self.side // self.kv_stride


@dataclass(frozen=True)
class MViTConfig:
    """The sizes of an MViT. `MViTConfig.v2_tiny(image_size=64)` names a size and changes parts of it.

    `dims`, `depths`, `heads` and `kv_strides` have one number for each stage; the grid is halved between stages.
    The paper's strides of keys and values adapt: halved with the grid, down to 1. The first block of a stage gets
    the larger grid of the stage before, so its keys have twice the side.

    `pool` is "conv", "max" or "avg". `pool_kernel=None` makes every kernel one wider than its stride and pools
    nothing at stride 1, what table 15 of version 1 found best for "max". The last six fields are what version 2
    changed, see the table at the top of this file. For 32 px:
    `MViTConfig(image_size=32, patch_kernel=3, patch_stride=2, dims=(32, 64, 128), depths=(1, 2, 2),
    heads=(1, 2, 4), kv_strides=(4, 2, 1))`.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("v2_tiny", "v2_small", "b_16", "v2_base")

    image_size: int = 224
    patch_kernel: int = 7
    patch_stride: int = 4
    channels: int = 3
    classes: int = 1000
    dims: tuple[int, ...] = (96, 192, 384, 768)
    depths: tuple[int, ...] = (1, 2, 5, 2)
    heads: tuple[int, ...] = (1, 2, 4, 8)
    kv_strides: tuple[int, ...] = (4, 2, 1, 1)
    pool: Literal["conv", "max", "avg"] = "conv"
    pool_kernel: int | None = 3
    mlp_ratio: float = 4.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    class_token: bool = False
    absolute_positions: bool = False
    relative_positions: bool = True
    residual_pooling: bool = True
    pool_every_query: bool = True
    widen_in: Literal["attention", "mlp"] = "attention"

    def __post_init__(self) -> None:
        stages = (self.dims, self.depths, self.heads, self.kv_strides)
        if not self.dims or len({len(numbers) for numbers in stages}) > 1:
            raise ValueError(
                "dims, depths, heads and kv_strides have one number for each stage, got "
                f"{', '.join(str(len(numbers)) for numbers in stages)}; give all the same length."
            )
        sizes = (self.image_size, self.patch_kernel, self.patch_stride, self.channels, *sum(stages, ()))
        if min(sizes) < 1 or self.classes < 0 or int(min(self.dims) * self.mlp_ratio) < 1:
            raise ValueError(f"Every size of an MViT is at least 1, got {self}; name positive sizes.")
        if self.pool not in ("conv", "max", "avg"):
            raise ValueError(f'pool is "conv", "max" or "avg", got {self.pool!r}; name one of the three.')
        if self.widen_in not in ("attention", "mlp"):
            raise ValueError(f'widen_in is "attention" or "mlp", got {self.widen_in!r}; name one of the two.')
        for name, kernel in (("patch_kernel", self.patch_kernel), ("pool_kernel", self.pool_kernel)):
            if kernel is not None and (kernel < 1 or kernel % 2 == 0):
                raise ValueError(f"{name} is odd, so that it has a centre, got {kernel}; name an odd number.")
        total = self.patch_stride * 2 ** (len(self.dims) - 1)
        if self.image_size % total:
            raise ValueError(
                f"The image side must be a multiple of the total stride, got {self.image_size} and {total}; "
                "resize the images, or choose another patch_stride or number of stages."
            )
        for i, (dim, heads, stride) in enumerate(zip(self.dims, self.heads, self.kv_strides, strict=True)):
            side = self.grid[0] // 2**i
            if dim % heads:
                raise ValueError(
                    f"The width of a stage must be a multiple of its heads, got {dim} and {heads}; change one."
                )
            if side % stride:
                raise ValueError(
                    f"The grid's side in stage {i} must be a multiple of kv_strides[{i}], got {side} and "
                    f"{stride}; choose a stride that divides it."
                )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches, before the first stage."""
        side = self.image_size // self.patch_stride
        return side, side

    @property
    def plan(self) -> tuple[BlockPlan, ...]:
        """What each block does, in order of depth."""
        plans: list[BlockPlan] = []
        side = self.grid[0]
        for stage, (width, depth) in enumerate(zip(self.dims, self.depths, strict=True)):
            for i in range(depth):
                first, last = i == 0 and stage > 0, i == depth - 1 and stage < len(self.dims) - 1
                plans.append(
                    BlockPlan(
                        dim=self.dims[stage - 1] if first and self.widen_in == "attention" else width,
                        width=width,
                        dim_out=self.dims[stage + 1] if last and self.widen_in == "mlp" else width,
                        heads=self.heads[stage],
                        side=side,
                        q_stride=2 if first else 1,
                        kv_stride=self.kv_strides[stage],
                    )
                )
                side = plans[-1].queries
        return tuple(plans)

    @classmethod
    def b_16(cls, **overrides: Any) -> MViTConfig:
        """MViT-B-16, version 1: 37.0 M parameters, 7.8 GFLOPs. Source: arXiv 2104.11227, tables 3b and 17.

        Table 3b is the video model, whose keys begin at stride 8; those of the published image model begin at 4,
        and only that costs what table 17 prints.
        """
        version_1 = cls(
            depths=(1, 2, 11, 2),
            class_token=True,
            absolute_positions=True,
            relative_positions=False,
            residual_pooling=False,
            pool_every_query=False,
            widen_in="mlp",
        )
        return replace(version_1, **overrides)

    @classmethod
    def v2_tiny(cls, **overrides: Any) -> MViTConfig:
        """MViTv2-T, 24 M parameters, 4.7 GFLOPs. Source: Li et al. 2022, arXiv 2112.01526, table 1."""
        return replace(cls(), **overrides)

    @classmethod
    def v2_small(cls, **overrides: Any) -> MViTConfig:
        """MViTv2-S, 35 M parameters, 7.0 GFLOPs. Source: Li et al. 2022, arXiv 2112.01526, table 1."""
        return replace(cls(depths=(1, 2, 11, 2)), **overrides)

    @classmethod
    def v2_base(cls, **overrides: Any) -> MViTConfig:
        """MViTv2-B, 51.5 M parameters (the paper: 52), 10.2 GFLOPs. Source: arXiv 2112.01526, table 1."""
        return replace(cls(depths=(2, 3, 16, 3)), **overrides)


class MViT(nn.Module):
    """Images in, class scores out.

    Raises:
        ValueError: images of another shape or type than the configuration says.
    """

    def __init__(self, config: MViTConfig) -> None:
        super().__init__()
        c = self.config = config
        prefix, dim = int(c.class_token), c.dims[0]
        patches = c.grid[0] * c.grid[1]
        self.patch_embed = PatchEmbed(c.patch_kernel, c.patch_stride, c.channels, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if prefix else None
        self.pos_embed = nn.Parameter(torch.zeros(1, prefix + patches, dim)) if c.absolute_positions else None
        self.pos_drop = nn.Dropout(c.dropout)
        rates = drop_path_rates(c.drop_path, sum(c.depths))
        self.blocks = nn.ModuleList(Block(c, plan, rate) for plan, rate in zip(c.plan, rates, strict=True))
        self.norm = nn.LayerNorm(c.dims[-1], eps=1e-6)
        self.head = nn.Linear(c.dims[-1], c.classes) if c.classes else nn.Identity()

        self.apply(init_transformer)  # as published; convolutions keep torch's own initialisation
        for name, parameter in self.named_parameters():
            if name.endswith(("cls_token", "pos_embed", "rel_pos_h", "rel_pos_w")):
                nn.init.trunc_normal_(parameter, std=0.02)

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
        """Map images to the normalised tokens of the last block, `(batch, tokens, dim)`, a class token first."""
        x = self.embed(images)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward_head(self, tokens: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to class scores `(batch, classes)`: of the class token or the mean."""
        return self.head(tokens[:, 0] if self.config.class_token else tokens.mean(dim=1))

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, side, side)` to class scores `(batch, classes)`."""
        return self.forward_head(self.forward_features(images))
