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
    pool = "cls" if theirs.cls_token is not None else "mean"
    # What it is made of first: the parts of another kind need not have what is asked of these.
    for what, found, expected in (
        ("patches by", lambda: type(patch).__name__, "PatchEmbed"),
        ("blocks of kind", lambda: type(block).__name__, "Block"),
        ("attention of kind", lambda: type(block.attn).__name__, "Attention"),
        ("MLPs of kind", lambda: type(block.mlp).__name__, "Mlp"),
        ("norms of kind", lambda: type(block.norm1).__name__, "LayerNorm"),
        ("LayerNorm with eps", lambda: block.norm1.eps, 1e-6),
        ("an activation", lambda: type(block.mlp.act).__name__, "GELU"),
        ("a GELU approximated by", lambda: getattr(block.mlp.act, "approximate", "none"), "none"),
        ("pooling", lambda: theirs.global_pool, "token" if pool == "cls" else "avg"),
        ("images", lambda: "square" if len(set(patch.img_size)) == 1 else patch.img_size, "square"),
        ("patches", lambda: "square" if len(set(patch.patch_size)) == 1 else patch.patch_size, "square"),
    ):
        if found() != expected:
            raise ValueError(
                f"This {type(theirs).__name__} has {what} {found()}, ours {expected}; name another tag."
            )
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
