"""A timm Swin read as ours, and its weights by our names; the published checkpoints too.

Two layouts are known. timm merges tokens at the beginning of a stage, as we do, and calls the classifier
`head.fc`. The published code merges at the end of the stage before, so that its `layers.i.downsample` is our
`layers.(i + 1).downsample`, and it stores the masks and the index of the bias, which we compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitlab.models.swin import SwinConfig


def config_of(theirs: Any) -> SwinConfig:
    """Read the configuration off a timm `SwinTransformer`.

    Raises:
        ValueError: it has a feature ours lacks, or a size ours refuses.
    """
    if type(theirs).__name__ != "SwinTransformer" or not hasattr(theirs, "layers"):
        raise ValueError(f"Ours reads a timm SwinTransformer, got {type(theirs).__name__}; pass one of those.")
    stages = [stage.blocks for stage in theirs.layers]
    block, last = stages[0][0], stages[-1][-1]
    height, width = theirs.patch_embed.img_size
    if height != width:
        raise ValueError(f"Ours takes square images, the peer {height} x {width}; build it for square ones.")
    if theirs.norm.eps != 1e-5:
        raise ValueError(f"The peer normalises with eps {theirs.norm.eps}, ours with 1e-5; name another.")
    if theirs.head.drop.p:
        raise ValueError(f"The peer drops {theirs.head.drop.p} before its head, ours nothing; build it without.")
    if theirs.global_pool != "avg":
        raise ValueError(f"The peer pools by {theirs.global_pool!r}, ours averages; build it with 'avg'.")
    if block.attn.qkv.out_features != 3 * block.attn.qkv.in_features:
        raise ValueError("The peer's heads are not as wide as dim / heads; build it without head_dim.")
    config = SwinConfig(
        image_size=height,
        patch_size=theirs.patch_embed.patch_size[0],
        channels=theirs.in_chans,
        classes=theirs.num_classes,
        window=max(blocks[0].window_size[0] for blocks in stages),  # small maps have small windows
        dims=tuple(blocks[0].norm1.normalized_shape[0] for blocks in stages),
        depths=tuple(len(blocks) for blocks in stages),
        heads=tuple(blocks[0].attn.num_heads for blocks in stages),
        mlp_ratio=block.mlp.fc1.out_features / block.mlp.fc1.in_features,
        qkv_bias=block.attn.qkv.bias is not None,
        dropout=block.attn.proj_drop.p,
        attention_dropout=block.attn.attn_drop.p,
        drop_path=round(getattr(last.drop_path1, "drop_prob", 0.0), 6),  # timm's rates pass through float32
    )
    for i, (side, blocks) in enumerate(zip(config.sides, stages, strict=True)):
        window = min(side, config.window)
        shift = window // 2 if window < side else 0
        for j, b in enumerate(blocks):
            ours, peer = (window, window, *(shift * (j % 2),) * 2), (*b.window_size, *b.shift_size)
            if ours != peer:
                raise ValueError(
                    f"The peer's stage {i + 1} has windows of {peer[0]} x {peer[1]} shifted by {peer[2]} and "
                    f"{peer[3]}, ours would have {window} x {window} shifted by {ours[2]}; give it one window."
                )
    return config


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return timm's or the published weights under our names."""
    published = any(name.startswith("layers.0.downsample.") for name in state)
    ours = {}
    for name, weight in state.items():
        part = name.split(".")
        if part[-1] in ("relative_position_index", "attn_mask"):
            continue  # computed from the sizes
        if published and part[0] == "layers" and part[2] == "downsample":
            part[1] = str(int(part[1]) + 1)
        ours[".".join(part).replace("head.fc.", "head.")] = weight
    return ours
