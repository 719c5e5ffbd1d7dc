"""CoAtNet, read top to bottom: relative attention, its block, the convolution block, stages, configuration, model.

A depthwise convolution and self-attention do the same in two ways: each replaces what stands at position i by a
weighted sum of what stands at positions j. The convolution's weights w[i - j] are learnt numbers: static, the same
for every image and every place, and zero beyond a small window. Attention's weights depend on the image and reach
everywhere, but know nothing of places. CoAtNet adds the two inside one softmax (`relative_attention_weights`), and
stacks: convolutions early, where maps are large and neighbours matter, relative attention late. Which stages
attend is the string `stages`, "CCTT" in the paper.

Module and parameter names are timm's, except in the head and where an attention stage works on tokens with linear
layers, timm's on maps with 1 x 1 convolutions; `vitlab.models.peers.coatnet` renames. Maps are channels last in
memory, so that maps `(batch, dim, rows, columns)` and their tokens `(batch, rows * columns, dim)` are one memory.

Longer than its siblings, some 460 lines: two kinds of block, and ten fields for the details in which the
checkpoints that exist differ from the paper.

Source: Dai et al. 2021, arXiv 2106.04803.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.layers import MLP, check_images, drop_path, drop_path_rates

ACTIVATIONS = {"gelu": nn.GELU, "silu": nn.SiLU, "relu": nn.ReLU}  # GELU is the exact one, not the tanh formula


def to_tokens(maps: Tensor) -> Tensor:
    """View maps `(batch, dim, rows, columns)` as tokens `(batch, rows * columns, dim)`, row by row."""
    return maps.flatten(2).transpose(1, 2)


def to_maps(tokens: Tensor, side: int) -> Tensor:
    """View tokens `(batch, side * side, dim)` as maps `(batch, dim, side, side)`, channels last in memory."""
    return tokens.transpose(1, 2).unflatten(2, (side, side))


def relative_attention_weights(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    r"""Return what each query attends to, :math:`\mathrm{softmax}_j(q_i^\top k_j / \sqrt{d} + w_{i-j})`.

    The first term depends on the image, the second only on where j lies seen from i. Added inside the exponential
    they multiply: attention is seen through a window :math:`\exp(w_{i-j})` that the layer learns once, and lays
    around every position alike. Where q is 0 only the window is left: a convolution as large as the map, its
    weights positive and made to sum to 1 over the cells that exist.

    Args:
        q: queries, `(batch, heads, tokens, head_dim)`.
        k: keys, the same shape.
        bias: the static term, `(heads, tokens, tokens)`; None leaves it out.

    Returns:
        Weights `(batch, heads, tokens, tokens)`; each row is non-negative and sums to 1.

    Source: Dai et al. 2021, arXiv 2106.04803, equation 3, the variant normalised after adding (y^pre).
    """
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    return (logits if bias is None else logits + bias).softmax(dim=-1)


class RelativeBias(nn.Module):
    """The static term w[i - j] of each head: one learnt number for each offset between two cells of the map.

    An offset has 2 side - 1 values along each axis, so the table has (2 side - 1)^2 rows, counted row by row, and
    holds the offset i - j, query minus key, at row index i - j + side - 1. A table belongs to one size of map.
    """

    def __init__(self, side: int, heads: int) -> None:
        super().__init__()
        self.side = side
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * side - 1) ** 2, heads))

    def forward(self) -> Tensor:
        """Spread the table over all pairs of cells: `(heads, tokens, tokens)`, queries before keys."""
        side, span = self.side, 2 * self.side - 1
        table = self.relative_position_bias_table.T.unflatten(1, (span, span))  # (heads, span, span)
        # Windows starting at every cell hold table[a + c, b + d] at [a, b, c, d]; c and d read backwards, from
        # side - 1 down, make that table[a - c + side - 1, b - d + side - 1]: query (a, b), key (c, d).
        windows = table.unfold(1, side, 1).unfold(2, side, 1)  # (heads, side, side, side, side)
        return windows.flip(3, 4).reshape(-1, side * side, side * side)


class Attention(nn.Module):
    """Multi-head relative attention over all cells of the map.

    With `fused_attn` the weights are never stored (torch's scaled_dot_product_attention); without it they pass
    through `attn_drop`, where they can be read.
    """

    def __init__(self, config: CoAtNetConfig, inputs: int, outputs: int, side: int) -> None:
        super().__init__()
        c = config
        width = outputs if c.wide_attention else inputs
        self.num_heads = width // c.head_dim
        self.fused_attn = True
        self.qkv = nn.Linear(inputs, 3 * width)  # rows: head by head, and in each head its q, its k, its v
        self.rel_pos = RelativeBias(side, self.num_heads) if c.relative_bias else None
        self.attn_drop = nn.Dropout(c.attention_dropout)
        self.proj = nn.Linear(width, outputs)
        self.proj_drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, inputs)` to what each gathered from all, `(batch, tokens, outputs)`."""
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, self.num_heads, 3, -1)
        q, k, v = qkv.permute(3, 0, 2, 1, 4).unbind(0)  # each (batch, heads, tokens, head_dim)
        bias = None if self.rel_pos is None else self.rel_pos()  # (heads, tokens, tokens)
        if self.fused_attn:
            p = self.attn_drop.p if self.training else 0.0
            x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p)
        else:
            x = self.attn_drop(relative_attention_weights(q, k, bias)) @ v
        x = x.transpose(1, 2).reshape(batch, tokens, -1)  # heads side by side again
        return self.proj_drop(self.proj(x))


class Shortcut(nn.Module):
    """The residual stream where it changes size: average over 2 x 2 cells, then widen, Proj(Pool(x))."""

    def __init__(self, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(2)
        self.expand = nn.Conv2d(inputs, outputs, 1, bias=bias) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map maps `(batch, inputs, side, side)` to `(batch, outputs, side / 2, side / 2)`."""
        return self.expand(self.pool(x))


class Block(nn.Module):
    """One attention layer: tokens exchange, then each token thinks; the first of a stage also halves the map.

    Halving is x = Proj(Pool(x)) + Attention(Pool(Norm(x))), arXiv 2106.04803, equation 4. The paper pools by the
    maximum; timm, and we with it, by the mean.
    """

    def __init__(
        self, config: CoAtNetConfig, inputs: int, outputs: int, side: int, first: bool, rate: float
    ) -> None:
        super().__init__()
        c = config
        self.side, self.first = side, first
        self.shortcut = Shortcut(inputs, outputs, c.shortcut_bias) if first else nn.Identity()
        self.norm1 = nn.LayerNorm(inputs, eps=1e-6)
        self.attn = Attention(c, inputs, outputs, side)
        self.drop_path1 = drop_path(rate)
        self.norm2 = nn.LayerNorm(outputs, eps=1e-6)
        self.mlp = MLP(outputs, int(outputs * c.mlp_ratio), c.dropout)
        self.drop_path2 = drop_path(rate)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, inputs)` to `(batch, tokens, outputs)`, a quarter of the tokens if first."""
        y = self.norm1(x)
        if self.first:
            x = to_tokens(self.shortcut(to_maps(x, 2 * self.side)))  # (batch, tokens, outputs)
            y = to_tokens(F.avg_pool2d(to_maps(y, 2 * self.side), 2))  # (batch, tokens, inputs)
        x = x + self.drop_path1(self.attn(y))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class SqueezeExcite(nn.Module):
    """Weigh an image's channels by a gate computed from their means: the one thing here that sees the whole map.

    Source: Hu et al. 2018, arXiv 1709.01507, equations 2 to 4.
    """

    def __init__(self, dim: int, hidden: int, act: str) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(dim, hidden, 1)
        self.act = ACTIVATIONS[act]()
        self.fc2 = nn.Conv2d(hidden, dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map maps `(batch, dim, rows, columns)` to themselves times a gate `(batch, dim, 1, 1)`."""
        return x * self.fc2(self.act(self.fc1(x.mean(dim=(2, 3), keepdim=True)))).sigmoid()


class MBConv(nn.Module):
    """One convolution layer: widen, look at 3 x 3 neighbours channel by channel, weigh the channels, narrow.

    The first of a stage halves the map, x = Proj(Pool(x)) + Conv(DepthConv(Conv(Norm(x)))), arXiv 2106.04803,
    equation 5. There the first convolution has the stride, and leaves three cells of four unseen; with timm, ours
    is in the depthwise one (the paper's table 9: 0.4 points better at size 0) or a pooling before (`pool_first`).

    Source: Sandler et al. 2018, arXiv 1801.04381, figure 3; with squeeze and excitation.
    """

    def __init__(self, config: CoAtNetConfig, inputs: int, outputs: int, first: bool, rate: float) -> None:
        super().__init__()
        c = config
        hidden = max(1, int((inputs if c.expand_input else outputs) * c.expansion))
        squeezed = max(1, int((hidden if c.expand_input else outputs) * c.squeeze_ratio))
        stride = 2 if first and not c.pool_first else 1
        self.shortcut = Shortcut(inputs, outputs, c.conv_bias) if first else nn.Identity()
        self.pre_norm = nn.BatchNorm2d(inputs)
        self.pre_act = ACTIVATIONS[c.conv_act]() if c.pre_act else nn.Identity()
        self.down = nn.AvgPool2d(2) if first and c.pool_first else nn.Identity()
        self.conv1_1x1 = nn.Conv2d(inputs, hidden, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(hidden)
        self.conv2_kxk = nn.Conv2d(hidden, hidden, 3, stride=stride, padding=1, groups=hidden, bias=False)
        self.norm2 = nn.BatchNorm2d(hidden)
        self.act = ACTIVATIONS[c.conv_act]()
        self.squeeze_early = c.squeeze_early
        self.se = SqueezeExcite(hidden, squeezed, c.squeeze_act)
        self.conv3_1x1 = nn.Conv2d(hidden, outputs, 1, bias=c.conv_bias)
        self.drop_path = drop_path(rate)

    def forward(self, x: Tensor) -> Tensor:
        """Map maps `(batch, inputs, side, side)` to `(batch, outputs, side, side)`, half the side if first."""
        y = self.down(self.pre_act(self.pre_norm(x)))
        y = self.conv2_kxk(self.act(self.norm1(self.conv1_1x1(y))))  # (batch, hidden, side, side)
        y = self.act(self.norm2(self.se(y))) if self.squeeze_early else self.se(self.act(self.norm2(y)))
        return self.shortcut(x) + self.drop_path(self.conv3_1x1(y))


class Stage(nn.Module):
    """Blocks of one kind at one size of map; the first of them halves the map and sets the width."""

    def __init__(self, config: CoAtNetConfig, stage: int, rates: Iterator[float]) -> None:
        super().__init__()
        c = config
        self.attends, self.side = c.stages[stage] == "T", c.sides[stage]
        outputs = c.dims[stage]
        blocks: list[nn.Module] = []
        for i in range(c.depths[stage]):
            inputs = outputs if i else (c.dims[stage - 1] if stage else c.stem_dims[1])
            if self.attends:
                blocks.append(Block(c, inputs, outputs, self.side, not i, next(rates)))
            else:
                blocks.append(MBConv(c, inputs, outputs, not i, next(rates)))
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Map maps `(batch, inputs, 2 side, 2 side)` to `(batch, outputs, side, side)`."""
        return to_maps(self.blocks(to_tokens(x)), self.side) if self.attends else self.blocks(x)


class Stem(nn.Module):
    """Stage 0: two 3 x 3 convolutions, the first with the stride; the only place that sees pixels."""

    def __init__(self, config: CoAtNetConfig) -> None:
        super().__init__()
        c = config
        self.conv1 = nn.Conv2d(c.channels, c.stem_dims[0], 3, stride=c.stem_stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(c.stem_dims[0])
        self.act = ACTIVATIONS[c.conv_act]()
        self.conv2 = nn.Conv2d(c.stem_dims[0], c.stem_dims[1], 3, padding=1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, side, side)` to maps `(batch, dim, side / stride, side / stride)`."""
        return self.conv2(self.act(self.norm1(self.conv1(images))))


@dataclass(frozen=True)
class CoAtNetConfig:
    """The sizes of a CoAtNet. `CoAtNetConfig.coatnet_0(stages="CTTT")` names a size and changes parts of it.

    `stages` has one letter for each stage after the stem, C for convolution (MBConv) and T for attention; `depths`
    and `dims` have one number for each. The stem halves the map (`stem_stride` 1 keeps it, for small images), then
    every stage does. `relative_bias=False` leaves out the static term: the attention no longer knows places.

    The fields from `conv_act` on are details that the checkpoints which timm trained first, `rw` in their names,
    have otherwise than the paper; `coatnet_0_rw` sets them all.

    | field | by default | otherwise |
    |---|---|---|
    | `conv_act` | "gelu" in stem and MBConv | "silu" |
    | `pre_act` | MBConv's first normalisation has no activation | it has the same |
    | `expand_input` | MBConv's hidden and squeeze widths: shares of its output's | of its input's, the hidden |
    | `pool_first` | the depthwise convolution has the stride | averages over 2 x 2 cells go before all |
    | `squeeze_early` | squeeze and excitation after the second normalisation | before it |
    | `squeeze_act` | "silu" | "relu" |
    | `conv_bias` | MBConv's last convolution and its shortcut have a bias | none |
    | `wide_attention` | a stage's first attention has the output's width | the input's, `proj` widens |
    | `shortcut_bias` | the shortcut of an attention stage has a bias | none |
    | `hidden_head` | average, norm, a tanh layer (timm's, not the paper's), scores | norm, average, scores |
    """

    SIZES: ClassVar[tuple[str, ...]] = (
        "coatnet_0",
        "coatnet_0_rw",
        "coatnet_1",
        "coatnet_2",
        "coatnet_3",
        "coatnet_4",
    )

    image_size: int = 224
    channels: int = 3
    classes: int = 1000
    stages: str = "CCTT"
    depths: tuple[int, ...] = (2, 3, 5, 2)
    dims: tuple[int, ...] = (96, 192, 384, 768)
    stem_dims: tuple[int, int] = (64, 64)
    stem_stride: int = 2
    head_dim: int = 32
    mlp_ratio: float = 4.0
    expansion: float = 4.0
    squeeze_ratio: float = 0.25
    relative_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    conv_act: str = "gelu"
    pre_act: bool = False
    expand_input: bool = False
    pool_first: bool = False
    squeeze_early: bool = False
    squeeze_act: str = "silu"
    conv_bias: bool = True
    wide_attention: bool = True
    shortcut_bias: bool = True
    hidden_head: bool = True

    def __post_init__(self) -> None:
        if not self.stages or set(self.stages) - {"C", "T"}:
            raise ValueError(
                f'stages has a letter C or T for each stage, got {self.stages!r}; write "CCTT" for one.'
            )
        if not len(self.stages) == len(self.depths) == len(self.dims) or len(self.stem_dims) != 2:
            raise ValueError(
                f"{self.stages} takes {len(self.stages)} depths and dims, and two stem_dims, got {self.depths}, "
                f"{self.dims} and {self.stem_dims}; name one for each."
            )
        sizes = (self.image_size, self.channels, self.head_dim, *self.depths, *self.dims, *self.stem_dims)
        if min(sizes) < 1 or self.classes < 0 or min(self.mlp_ratio, self.expansion, self.squeeze_ratio) <= 0:
            raise ValueError(f"Every size of a CoAtNet is positive, got {self}; name positive sizes.")
        if self.stem_stride not in (1, 2):
            raise ValueError(f"stem_stride is 1 or 2, got {self.stem_stride}; name one of the two.")
        if self.image_size % self.stride:
            raise ValueError(
                f"The image side must be a multiple of the total stride, got {self.image_size} and {self.stride}; "
                "resize the images, or name fewer stages or stem_stride=1."
            )
        for i, (kind, dim) in enumerate(zip(self.stages, self.dims, strict=True)):
            inputs = self.dims[i - 1] if i else self.stem_dims[1]
            if kind == "T" and (dim % self.head_dim or (not self.wide_attention and inputs % self.head_dim)):
                raise ValueError(
                    f"The width of an attention stage must be a multiple of head_dim, got {inputs} to {dim} and "
                    f"{self.head_dim}; change one of them."
                )
        if not {self.conv_act, self.squeeze_act} <= ACTIVATIONS.keys():
            raise ValueError(
                f"An activation is one of {', '.join(ACTIVATIONS)}, got conv_act={self.conv_act!r} and "
                f"squeeze_act={self.squeeze_act!r}; name one of them."
            )

    @property
    def stride(self) -> int:
        """Input pixels between neighbouring cells of the last map: each stage halves the map."""
        return self.stem_stride * 2 ** len(self.stages)

    @property
    def sides(self) -> tuple[int, ...]:
        """Rows, and columns, of the map that each stage leaves."""
        return tuple(self.image_size // (self.stem_stride * 2 ** (i + 1)) for i in range(len(self.stages)))

    @classmethod
    def coatnet_0(cls, **overrides: Any) -> CoAtNetConfig:
        """CoAtNet-0, 25 M parameters. Source: Dai et al. 2021, arXiv 2106.04803, table 3."""
        return replace(cls(), **overrides)

    @classmethod
    def coatnet_1(cls, **overrides: Any) -> CoAtNetConfig:
        """CoAtNet-1, deeper, 42 M parameters. Source: Dai et al. 2021, arXiv 2106.04803, table 3."""
        return replace(cls(depths=(2, 6, 14, 2)), **overrides)

    @classmethod
    def coatnet_2(cls, **overrides: Any) -> CoAtNetConfig:
        """CoAtNet-2, wider, 75 M parameters. Source: Dai et al. 2021, arXiv 2106.04803, table 3."""
        dims = (128, 256, 512, 1024)
        return replace(cls(depths=(2, 6, 14, 2), dims=dims, stem_dims=(128, 128)), **overrides)

    @classmethod
    def coatnet_3(cls, **overrides: Any) -> CoAtNetConfig:
        """CoAtNet-3, wider again, 168 M parameters. Source: Dai et al. 2021, arXiv 2106.04803, table 3."""
        dims = (192, 384, 768, 1536)
        return replace(cls(depths=(2, 6, 14, 2), dims=dims, stem_dims=(192, 192)), **overrides)

    @classmethod
    def coatnet_4(cls, **overrides: Any) -> CoAtNetConfig:
        """CoAtNet-4, deeper again, 275 M parameters. Source: Dai et al. 2021, arXiv 2106.04803, table 3."""
        dims = (192, 384, 768, 1536)
        return replace(cls(depths=(2, 12, 28, 2), dims=dims, stem_dims=(192, 192)), **overrides)

    @classmethod
    def coatnet_0_rw(cls, **overrides: Any) -> CoAtNetConfig:
        """timm's `coatnet_0_rw_224`, 27 M parameters: two more attention blocks, every detail otherwise."""
        rw = cls(depths=(2, 3, 7, 2), stem_dims=(32, 64), wide_attention=False, shortcut_bias=False)
        rw = replace(rw, conv_act="silu", pre_act=True, expand_input=True, pool_first=True, conv_bias=False)
        rw = replace(rw, squeeze_early=True, squeeze_act="relu", hidden_head=False)
        return replace(rw, **overrides)


class CoAtNet(nn.Module):
    """Images in, class scores out.

    Raises:
        ValueError: images of another shape or type than the configuration says.
    """

    def __init__(self, config: CoAtNetConfig) -> None:
        super().__init__()
        c = self.config = config
        rates = iter(drop_path_rates(c.drop_path, sum(c.depths)))
        self.stem = Stem(c)
        self.stages = nn.Sequential(*(Stage(c, i, rates) for i in range(len(c.stages))))
        dim = c.dims[-1]
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pre_logits = nn.Sequential(nn.Linear(dim, dim), nn.Tanh()) if c.hidden_head else nn.Identity()
        self.head = nn.Linear(dim, c.classes) if c.classes else nn.Identity()
        _init(self)

    @property
    def blocks(self) -> nn.ModuleList:
        """All attention blocks in order of depth, whatever their stage; a new list over the same modules."""
        return nn.ModuleList(block for block in self.modules() if isinstance(block, Block))

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, side, side)` to the last stage's maps `(batch, dim, rows, columns)`."""
        side = self.config.image_size
        check_images(images, (side, side), self.config.channels)
        x = self.stem(images.contiguous(memory_format=torch.channels_last))
        return self.stages(x)

    def forward_head(self, maps: Tensor) -> Tensor:
        """Map maps `(batch, dim, rows, columns)` to class scores `(batch, classes)`."""
        x = to_tokens(maps)  # (batch, tokens, dim)
        x = self.norm(x.mean(dim=1)) if self.config.hidden_head else self.norm(x).mean(dim=1)  # (batch, dim)
        return self.head(self.pre_logits(x))

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, side, side)` to class scores `(batch, classes)`."""
        return self.forward_head(self.forward_features(images))


def _init(model: CoAtNet) -> None:
    """Initialise as timm does (`vit_eff`): attention blocks like a ViT in JAX, the rest like EfficientNet.

    Head and norms keep torch's.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            # Variance 2 / fan_out keeps the gradients' variance; a depthwise kernel feeds one channel only.
            k, _ = module.kernel_size
            nn.init.normal_(module.weight, std=(2 * module.groups / (k * k * module.out_channels)) ** 0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for block in model.blocks:
        for name, module in block.named_modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.normal_(module.bias, std=1e-6 if name.startswith("mlp") else 0.0)
            elif isinstance(module, RelativeBias):
                nn.init.trunc_normal_(module.relative_position_bias_table, std=0.02)
