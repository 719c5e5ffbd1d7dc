"""A timm PVT v2 read as ours, and its weights by our names; the published checkpoints too.

Two layouts are known. timm's (`PyramidVisionTransformerV2`) is ours. The published code counts stages from 1 in
its names (`block1.0.attn.q`, `patch_embed2`, `norm1`), and its depthwise convolution is a module within a module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitlab.models.pvt_v2 import PVTv2Config


def config_of(theirs: Any, image_size: int = 224) -> PVTv2Config:
    """Read the configuration off a timm `PyramidVisionTransformerV2`, which does not say its image size.

    Raises:
        ValueError: it has a feature ours lacks, or a size ours refuses.
    """
    if type(theirs).__name__ != "PyramidVisionTransformerV2":
        raise ValueError(
            f"Ours reads a timm PyramidVisionTransformerV2, got {type(theirs).__name__}; pass one of those."
        )
    if theirs.global_pool != "avg":
        raise ValueError(f"Ours averages all tokens, the peer pools {theirs.global_pool!r}; build it with avg.")
    if theirs.head_drop.p:
        raise ValueError(f"The peer drops {theirs.head_drop.p} before its head, ours nothing; build it without.")
    firsts = [stage.blocks[0] for stage in theirs.stages]
    last, attention = theirs.stages[-1].blocks[-1], firsts[0].attn
    if firsts[0].norm1.eps != 1e-6:
        raise ValueError(f"The peer normalises with eps {firsts[0].norm1.eps}, ours with 1e-6; name another.")
    embeds = [theirs.patch_embed, *(stage.downsample for stage in theirs.stages[1:])]
    for embed in embeds:
        stride, kernel = embed.proj.stride[0], embed.proj.kernel_size[0]
        if kernel != 2 * stride - 1:
            raise ValueError(
                f"Ours has kernels of twice the stride less one, the peer {kernel} for a stride of {stride}; "
                "build it so."
            )
    linear = attention.pool is not None
    return PVTv2Config(
        image_size=image_size,
        strides=tuple(embed.proj.stride[0] for embed in embeds),
        channels=theirs.in_chans,
        classes=theirs.num_classes,
        dims=tuple(block.attn.dim for block in firsts),
        depths=tuple(len(stage.blocks) for stage in theirs.stages),
        heads=tuple(block.attn.num_heads for block in firsts),
        sr_ratios=tuple(block.attn.sr.stride[0] if block.attn.sr is not None else 1 for block in firsts),
        mlp_ratios=tuple(block.mlp.fc1.out_features / block.attn.dim for block in firsts),
        linear=linear,
        pool=attention.pool.output_size if linear else 7,
        qkv_bias=attention.q.bias is not None,
        dropout=attention.proj_drop.p,
        attention_dropout=attention.attn_drop.p,
        drop_path=getattr(last.drop_path1, "drop_prob", 0.0),
    )


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return timm's weights, which have our names, or the published ones under them."""
    if "patch_embed1.proj.weight" not in state:
        return dict(state)
    ours = {}
    for theirs, weight in state.items():
        name = theirs.replace("dwconv.dwconv.", "dwconv.").replace("patch_embed1.", "patch_embed.")
        name = re.sub(r"^patch_embed(\d+)\.", lambda m: f"stages.{int(m[1]) - 1}.downsample.", name)
        name = re.sub(r"^block(\d+)\.", lambda m: f"stages.{int(m[1]) - 1}.blocks.", name)
        ours[re.sub(r"^norm(\d+)\.", lambda m: f"stages.{int(m[1]) - 1}.norm.", name)] = weight
    return ours
