"""A transformers PVT read as ours, and its weights by our names; the published checkpoints too.

Two layouts are known. transformers (`PvtForImageClassification`) has keys and values as two linear maps, where
ours and the published code have one, the keys' rows first. The published code counts stages from 1 in its names
(`block1.0.attn.q`, `pos_embed1`) and has ours otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitlab.models.pvt import PVTConfig

# transformers' words for ours, replaced in this order
WORDS = (
    ("pvt.encoder.", ""),
    (r"patch_embeddings\.\d+\.cls_token", "cls_token"),
    (r"patch_embeddings\.(\d+)\.position_embeddings", r"stages.\1.pos_embed"),
    (r"patch_embeddings\.(\d+)\.projection", r"stages.\1.patch_embed.proj"),
    (r"patch_embeddings\.(\d+)\.layer_norm", r"stages.\1.patch_embed.norm"),
    (r"^block\.(\d+)\.(\d+)", r"stages.\1.blocks.\2"),
    (r"layer_norm_(\d)", r"norm\1"),
    (r"attention\.self\.query", "attn.q"),
    (r"attention\.self\.key", "attn.kv"),
    (r"attention\.self\.sequence_reduction", "attn.sr"),
    (r"attention\.self\.layer_norm", "attn.norm"),
    (r"attention\.output\.dense", "attn.proj"),
    (r"mlp\.dense(\d)", r"mlp.fc\1"),
    ("^layer_norm", "norm"),
    ("^classifier", "head"),
)
# and the published ones
PUBLISHED = (
    (r"^block(\d+)\.", lambda m: f"stages.{int(m[1]) - 1}.blocks."),
    (r"^patch_embed(\d+)\.", lambda m: f"stages.{int(m[1]) - 1}.patch_embed."),
    (r"^pos_embed(\d+)$", lambda m: f"stages.{int(m[1]) - 1}.pos_embed"),
)


def config_of(theirs: Any) -> PVTConfig:
    """Read the configuration off a transformers `PvtForImageClassification`.

    Raises:
        ValueError: it has a feature ours lacks, or a size ours refuses.
    """
    if type(theirs).__name__ != "PvtForImageClassification":
        raise ValueError(
            f"Ours reads a transformers PvtForImageClassification, got {type(theirs).__name__}; pass one of those."
        )
    c, encoder = theirs.config, theirs.pvt.encoder
    if not isinstance(c.image_size, int):
        raise ValueError(f"Ours takes square images, the peer {tuple(c.image_size)}; build it for square ones.")
    if tuple(c.patch_sizes) != tuple(c.strides):
        raise ValueError(
            f"Ours has patches that neither overlap nor leave gaps, the peer sizes {tuple(c.patch_sizes)} and "
            f"strides {tuple(c.strides)}; build it with equal ones."
        )
    if c.hidden_act != "gelu":
        raise ValueError(f"Ours has GELU in its MLPs, the peer {c.hidden_act}; build it with gelu.")
    if encoder.layer_norm.eps != 1e-6:
        raise ValueError(f"The peer normalises with eps {encoder.layer_norm.eps}, ours with 1e-6; name another.")
    reductions = [block.attention.self for stage in encoder.block for block in stage]
    norms = [embed.layer_norm for embed in encoder.patch_embeddings]
    norms += [reduction.layer_norm for reduction in reductions if hasattr(reduction, "layer_norm")]
    if len({norm.eps for norm in norms}) > 1:
        raise ValueError("The peer's patch and reduction norms differ in eps, ours share one; set them alike.")
    return PVTConfig(
        image_size=c.image_size,
        patch_sizes=tuple(c.patch_sizes),
        channels=c.num_channels,
        classes=c.num_labels,
        dims=tuple(c.hidden_sizes),
        depths=tuple(c.depths),
        heads=tuple(c.num_attention_heads),
        sr_ratios=tuple(c.sequence_reduction_ratios),
        mlp_ratios=tuple(c.mlp_ratios),
        qkv_bias=c.qkv_bias,
        dropout=c.hidden_dropout_prob,
        attention_dropout=c.attention_probs_dropout_prob,
        drop_path=c.drop_path_rate,
        patch_eps=norms[0].eps,
    )


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return transformers' or the published weights under our names."""
    ours: dict[str, Tensor] = {}
    words: Any = WORDS if any(name.startswith("pvt.encoder.") for name in state) else PUBLISHED
    for theirs, weight in state.items():
        name = theirs
        for pattern, word in words:
            name = re.sub(pattern, word, name)
        if ".self.value." in theirs:
            continue  # joined to its keys, below
        if ".self.key." in theirs:
            weight = torch.cat([weight, state[theirs.replace(".self.key.", ".self.value.")]])
        ours[name] = weight
    return ours
