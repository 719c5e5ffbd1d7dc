"""The convolutional vision transformer, read top to bottom: embedding, projection, attention, block, model.

A ViT with convolutions where it has linear maps. Overlapping convolutions make the tokens, three times, each time
fewer and wider; and before a token becomes query, key or value it looks at its 3 x 3 neighbours. The convolutions,
the paper finds, make the position embedding unnecessary: there is none, and any image size will do.

Module names are the published code's (`stages.0` for its `stage0`; the class token belongs to the model).

Some 340 lines: the controls that take convolutions, zeros and positions away again stand beside what they remove.

Source: Wu et al. 2021, arXiv 2103.15808.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.layers import MLP, check_images, drop_path, drop_path_rates, init_transformer


class ConvEmbed(nn.Module):
    """Convolutional token embedding: windows that overlap, for the kernel is above the stride, then a layer norm.

    A ViT's patches do not overlap: an edge that runs between two of them is seen whole by neither.
    Source: arXiv 2103.15808, section 3.1.
    """

    def __init__(self, config: CvTConfig, stage: int) -> None:
        super().__init__()
        c = config
        self.proj = nn.Conv2d(
            c.dims[stage - 1] if stage else c.channels,
            c.dims[stage],
            c.kernels[stage],
            stride=c.strides[stage],
            padding=c.paddings[stage],
            padding_mode=c.padding,
        )
        self.norm = nn.LayerNorm(c.dims[stage], eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        """Map a map `(batch, channels, height, width)` to tokens on their grid, `(batch, rows, columns, dim)`."""
        return self.norm(self.proj(x).permute(0, 2, 3, 1))  # (batch, rows, columns, dim)


class ConvProjection(nn.Module):
    """What makes queries, keys or values local: every channel alone looks at its neighbours, then is normalised.

    With the linear map that follows in `Attention` this is a depthwise separable convolution. No bias: the batch
    norm after it would subtract it again.
    Source: arXiv 2103.15808, section 3.2, equation 2.
    """

    def __init__(self, dim: int, kernel: int, stride: int, padding: Literal["zeros", "circular"]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(dim, dim, kernel, stride, kernel // 2, groups=dim, bias=False, padding_mode=padding)
        self.bn = nn.BatchNorm2d(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(batch, dim, rows, columns)` to `(batch, dim, rows / stride, columns / stride)`, rounded up."""
        return self.bn(self.conv(x))


class Attention(nn.Module):
    """Multi-head attention from every token to every `kv_stride`-th: a quarter of the keys at stride 2.

    A key has gathered its neighbours before the others are left out, so the paper finds little lost (section 3.2).
    The class token has no neighbours: it skips the convolutions, and joins before the linear maps.

    The logits are divided by the root of the whole width, not of a head's. With 6 heads they are 2.4 times smaller
    than a ViT's, and attention starts flatter; weights trained with the published code need the same.

    With `fused_attn` the weights are never stored (torch's scaled_dot_product_attention); without it they pass
    through `attn_drop`, where they can be read.
    """

    def __init__(self, config: CvTConfig, stage: int) -> None:
        super().__init__()
        c, dim = config, config.dims[stage]

        def local(stride: int) -> nn.Module:
            if c.projection == "linear":
                return nn.AvgPool2d(1, stride)  # the mean of one: every stride-th token as it is
            return ConvProjection(dim, c.projection_kernel, stride, c.padding)

        self.num_heads = c.heads[stage]
        self.scale = dim**-0.5
        self.fused_attn = True
        self.conv_proj_q, self.conv_proj_k, self.conv_proj_v = local(1), local(c.kv_stride), local(c.kv_stride)
        self.proj_q, self.proj_k, self.proj_v = (nn.Linear(dim, dim, bias=c.qkv_bias) for _ in range(3))
        self.attn_drop = nn.Dropout(c.attention_dropout)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to what each gathered, same shape.

        `grid` is `(rows, columns)` of the tokens; one more token than it holds is a class token, and comes first.
        """
        patches = grid[0] * grid[1]
        cls, x = x.split([x.shape[1] - patches, patches], dim=1)
        image = x.transpose(1, 2).unflatten(2, grid)  # (batch, dim, rows, columns), and still no copy

        def project(local: nn.Module, linear: nn.Module) -> Tensor:
            y = local(image).flatten(2).transpose(1, 2)  # (batch, rows * columns, dim), fewer for keys and values
            y = torch.cat([cls, y], dim=1) if cls.shape[1] else y
            return linear(y).unflatten(2, (self.num_heads, -1)).transpose(1, 2)  # (batch, heads, tokens, head_dim)

        k = project(self.conv_proj_k, self.proj_k)
        q = project(self.conv_proj_q, self.proj_q)
        v = project(self.conv_proj_v, self.proj_v)
        if self.fused_attn:
            p = self.attn_drop.p if self.training else 0.0
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=p, scale=self.scale)
        else:
            x = self.attn_drop((q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1)) @ v
        x = x.transpose(1, 2).flatten(2)  # (batch, tokens, dim): heads side by side again
        return self.proj_drop(self.proj(x))


class QuickGELU(nn.Module):
    """`x * sigmoid(1.702 x)`, an approximation of GELU. Source: Hendrycks and Gimpel 2016, arXiv 1606.08415."""

    def forward(self, x: Tensor) -> Tensor:
        """Map `(...)` to the same shape."""
        return x * torch.sigmoid(1.702 * x)


class Block(nn.Module):
    """One layer: tokens exchange, then each token thinks; both as a change added to the residual stream."""

    def __init__(self, config: CvTConfig, stage: int, drop_path_rate: float) -> None:
        super().__init__()
        c, dim = config, config.dims[stage]
        self.norm1 = nn.LayerNorm(dim, eps=1e-5)
        self.attn = Attention(c, stage)
        self.drop_path1 = drop_path(drop_path_rate)
        self.norm2 = nn.LayerNorm(dim, eps=1e-5)
        self.mlp = MLP(dim, int(dim * c.mlp_ratio), c.dropout)
        if c.activation == "quick_gelu":
            self.mlp.act = QuickGELU()
        self.drop_path2 = drop_path(drop_path_rate)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Map the residual stream `(batch, tokens, dim)`, its patches on `grid`, to itself plus two changes."""
        x = x + self.drop_path1(self.attn(self.norm1(x), grid))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class Stage(nn.Module):
    """An embedding and the blocks that work at its width; `CvT.forward_features` runs them."""

    def __init__(self, config: CvTConfig, stage: int) -> None:
        super().__init__()
        c = config
        last = stage == len(c.dims) - 1
        rows, columns = c.grids(c.image_size, c.image_size)[stage]
        self.patch_embed = ConvEmbed(c, stage)
        self.pos_embed = nn.Parameter(torch.zeros(1, rows, columns, c.dims[stage])) if c.positions else None
        # Only the last stage drops paths, as in the published configurations (0, 0, 0.1).
        rates = drop_path_rates(c.drop_path if last else 0.0, c.depths[stage])
        self.blocks = nn.ModuleList(Block(c, stage, rate) for rate in rates)


@dataclass(frozen=True)
class CvTConfig:
    """The sizes of a CvT; one number a stage where there is a tuple. The class token joins in the last stage.

    `kernels`, `strides` and `paddings` are those of the token embeddings; `projection_kernel` is the side of the
    convolutions inside attention, `kv_stride` the stride of those that make keys and values.

    Controls. `projection="linear"` removes the convolutions inside attention and keeps the stride: what is left is
    a ViT's attention over every `kv_stride`-th token. `positions=True` adds a learned position to each token after
    every embedding, and fixes the image size. `padding="circular"` joins opposite borders: where every stride
    divides its map, rolling an image by the product of `strides` and `kv_stride` then changes no score, and what
    zeros at the border tell a token about its place can be measured. `pool="mean"` averages the patches instead of
    adding a class token.

    The published code uses `activation="quick_gelu"`; "gelu" is what transformers and this course's other models
    have, so that a comparison between them changes one thing.

    For 32 px, 0.8 M parameters on grids of 16, 8 and 4:
    `CvTConfig(image_size=32, dims=(32, 64, 128), depths=(1, 1, 3), heads=(1, 2, 4), kernels=(3, 3, 3),
    strides=(2, 2, 2), paddings=(1, 1, 1))`.
    """

    image_size: int = 224
    channels: int = 3
    classes: int = 1000
    dims: tuple[int, ...] = (64, 192, 384)
    depths: tuple[int, ...] = (1, 2, 10)
    heads: tuple[int, ...] = (1, 3, 6)
    kernels: tuple[int, ...] = (7, 3, 3)
    strides: tuple[int, ...] = (4, 2, 2)
    paddings: tuple[int, ...] = (2, 1, 1)
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    projection: Literal["conv", "linear"] = "conv"
    projection_kernel: int = 3
    kv_stride: int = 2
    activation: Literal["gelu", "quick_gelu"] = "gelu"
    padding: Literal["zeros", "circular"] = "zeros"
    positions: bool = False
    pool: Literal["cls", "mean"] = "cls"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0

    SIZES: ClassVar[tuple[str, ...]] = ("cvt_13", "cvt_21", "cvt_w24")

    def __post_init__(self) -> None:
        for name in ("dims", "depths", "heads", "kernels", "strides", "paddings"):
            sizes = getattr(self, name)
            if not sizes or len(sizes) != len(self.dims):
                raise ValueError(
                    f"A CvT has one number a stage, got dims {self.dims}, {name} {sizes}; give as many of each."
                )
            if min(sizes) < (name != "paddings"):
                raise ValueError(f"Every size of a CvT is at least 1, got {name} {sizes}; name positive sizes.")
        least = min(self.image_size, self.channels, self.kv_stride, self.projection_kernel, self.classes + 1)
        if least < 1 or int(min(self.dims) * self.mlp_ratio) < 1:
            raise ValueError(f"Every size of a CvT is at least 1, got {self}; name positive sizes.")
        if any(dim % heads for dim, heads in zip(self.dims, self.heads, strict=True)):
            raise ValueError(
                f"Each width must be a multiple of its number of heads, got {self.dims} and {self.heads}; "
                "change one of them."
            )
        if self.projection_kernel % 2 == 0:
            raise ValueError(f"projection_kernel is odd, got {self.projection_kernel}; choose one with a centre.")
        for name, one, other in (
            ("projection", "conv", "linear"),
            ("activation", "gelu", "quick_gelu"),
            ("padding", "zeros", "circular"),
            ("pool", "cls", "mean"),
        ):
            if getattr(self, name) not in (one, other):
                raise ValueError(
                    f'{name} is "{one}" or "{other}", got {getattr(self, name)!r}; name one of the two.'
                )
        self.grids(self.image_size, self.image_size)

    def grids(self, height: int, width: int) -> list[tuple[int, int]]:
        """Rows and columns of tokens after each embedding of an image `height` x `width`.

        Raises:
            ValueError: the image is too small for the kernels.

        Source: arXiv 2103.15808, equation 1, where s - o is what is called the stride here.
        """
        grids, sides = [], (height, width)
        for kernel, stride, padding in zip(self.kernels, self.strides, self.paddings, strict=True):
            rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side in sides)
            # A map shorter than its own padding cannot be closed to a circle: torch refuses to wind it twice.
            twice = padding > min(sides) or self.projection_kernel // 2 > min(rows, columns)
            if min(rows, columns) < 1 or (self.padding == "circular" and twice):
                raise ValueError(
                    f"An image of {height} x {width} is too small for kernels {self.kernels} at strides "
                    f"{self.strides}; take larger images, or smaller kernels and strides."
                )
            sides = rows, columns
            grids.append(sides)
        return grids

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches in the last stage, for images of `image_size`."""
        return self.grids(self.image_size, self.image_size)[-1]

    @classmethod
    def cvt_13(cls, **overrides: Any) -> CvTConfig:
        """CvT-13, 20.0 M parameters. Source: arXiv 2103.15808, table 2."""
        return replace(cls(), **overrides)

    @classmethod
    def cvt_21(cls, **overrides: Any) -> CvTConfig:
        """CvT-21, 31.6 M parameters. Source: arXiv 2103.15808, table 2."""
        return replace(cls(depths=(1, 4, 16)), **overrides)

    @classmethod
    def cvt_w24(cls, **overrides: Any) -> CvTConfig:
        """CvT-W24, the wide one for 384 px, 277 M parameters. Source: arXiv 2103.15808, table 2."""
        sizes = cls(image_size=384, dims=(192, 768, 1024), depths=(2, 2, 20), heads=(3, 12, 16))
        return replace(sizes, **overrides)


class CvT(nn.Module):
    """Images in, class scores out; any image size that leaves a token, unless the model has positions.

    Raises:
        ValueError: images of another shape or type than the configuration says.
    """

    def __init__(self, config: CvTConfig) -> None:
        super().__init__()
        c = self.config = config
        self.stages = nn.ModuleList(Stage(c, i) for i in range(len(c.dims)))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, c.dims[-1])) if c.pool == "cls" else None
        self.pos_drop = nn.Dropout(c.dropout)
        self.norm = nn.LayerNorm(c.dims[-1], eps=1e-5)
        self.head = nn.Linear(c.dims[-1], c.classes) if c.classes else nn.Identity()

        # As the published code: linear maps at 0.02, convolutions as torch makes them (transformers: 0.02 too).
        self.apply(init_transformer)
        for added in (self.cls_token, *(stage.pos_embed for stage in self.stages)):
            if added is not None:
                nn.init.trunc_normal_(added, std=0.02)

    @property
    def blocks(self) -> nn.ModuleList:
        """Every block of every stage, in order of depth."""
        return nn.ModuleList(block for stage in self.stages for block in stage.blocks)

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images to the normalised tokens of the last stage, `(batch, tokens, dim)`, the class token first."""
        c = self.config
        check_images(images, (c.image_size, c.image_size) if c.positions else None, c.channels)
        x = images
        for stage, grid in zip(self.stages, c.grids(*images.shape[2:]), strict=True):
            last = stage is self.stages[-1]
            x = stage.patch_embed(x)  # (batch, rows, columns, dim)
            if stage.pos_embed is not None:
                x = x + stage.pos_embed
            x = x.flatten(1, 2)  # (batch, rows * columns, dim)
            if last and self.cls_token is not None:
                x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)  # (batch, 1 + patches, dim)
            x = self.pos_drop(x)
            for block in stage.blocks:
                x = block(x, grid)
            x = x if last else x.transpose(1, 2).unflatten(2, grid)  # (batch, dim, rows, columns)
        return self.norm(x)

    def forward_head(self, tokens: Tensor) -> Tensor:
        """Map tokens `(batch, tokens, dim)` to class scores `(batch, classes)`."""
        return self.head(tokens[:, 0] if self.config.pool == "cls" else tokens.mean(dim=1))

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, height, width)` to class scores `(batch, classes)`."""
        return self.forward_head(self.forward_features(images))
