"""timm's VisionTransformer read as ours; all names are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitlab.models.vit import ViTConfig


def config_of(theirs: Any) -> ViTConfig:
    """Read the configuration off a timm ViT; a part with weights of its own is found, and refused, on loading.

    Raises:
        ValueError: the peer computes what ours does not, and no weight would tell.
    """
    return ViTConfig(**sizes_of(theirs))


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return timm's weights under our names, which are timm's."""
    return dict(state)


def sizes_of(theirs: Any) -> dict[str, Any]:
    """Read what a ViT and a DeiT have in common, refusing what neither has."""
    block, patch = theirs.blocks[0], theirs.patch_embed
    kind = type(theirs).__name__
    gelu = type(block.mlp.act).__name__ == "GELU" and block.mlp.act.approximate == "none"
    pool = "cls" if theirs.cls_token is not None else "mean"
    for what, found, expected in (
        ("blocks of kind", type(block).__name__, "Block"),
        ("attention of kind", type(block.attn).__name__, "Attention"),
        ("LayerNorm with eps", getattr(block.norm1, "eps", None), 1e-6),
        ("an activation", "GELU" if gelu else repr(block.mlp.act), "GELU"),
        ("pooling", theirs.global_pool, "token" if pool == "cls" else "avg"),
        ("images", "square" if len(set(patch.img_size)) == 1 else patch.img_size, "square"),
        ("patches", "square" if len(set(patch.patch_size)) == 1 else patch.patch_size, "square"),
    ):
        if found != expected:
            raise ValueError(f"This {kind} has {what} {found}, ours {expected}; name another tag.")
    return {
        "image_size": patch.img_size[0],
        "patch_size": patch.patch_size[0],
        "channels": patch.proj.in_channels,
        "classes": theirs.num_classes,
        "dim": theirs.embed_dim,
        "depth": len(theirs.blocks),
        "heads": block.attn.num_heads,
        "mlp_ratio": block.mlp.fc1.out_features / theirs.embed_dim,
        "qkv_bias": block.attn.qkv.bias is not None,
        "pool": pool,
        "positions": theirs.pos_embed is not None,
    }
