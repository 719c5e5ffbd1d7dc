"""CvT of transformers: `CvtForImageClassification`, and the checkpoints `microsoft/cvt-*` made for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitlab.models.cvt import CvTConfig

# Theirs to ours, applied in this order.
NAMES = (
    (r"^cvt\.encoder\.", ""),
    (r"^stages\.\d+\.cls_token$", "cls_token"),
    (r"\.embedding\.convolution_embeddings\.projection\.", ".patch_embed.proj."),
    (r"\.embedding\.convolution_embeddings\.normalization\.", ".patch_embed.norm."),
    (r"\.layers\.", ".blocks."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.attention\.attention\.", ".attn."),
    (r"\.convolution_projection_([qkv])[a-z]*\.convolution_projection\.", r".conv_proj_\1."),
    (r"(conv_proj_[qkv])\.convolution\.", r"\1.conv."),
    (r"(conv_proj_[qkv])\.normalization\.", r"\1.bn."),
    (r"\.projection_([qkv])[a-z]*\.", r".proj_\1."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"^layernorm\.", "norm."),
    (r"^classifier\.", "head."),
)


def config_of(theirs: Any) -> CvTConfig:
    """Read the configuration off a `CvtForImageClassification`; `image_size` stays 224, for theirs has none.

    Raises:
        ValueError: it has something that ours lacks.
    """
    t = theirs.config

    def same(name: str, expected: Any = None) -> Any:
        """The one value that all stages share, and that is `expected` where that is given."""
        values = list(getattr(t, name))
        wanted = values[0] if expected is None else expected
        if any(value != wanted for value in values):
            raise ValueError(f"{name} should be {wanted} in every stage, got {values}; ours has no other.")
        return values[0]

    stages = len(t.depth)
    kernel = same("kernel_qkv")
    same("qkv_projection_method", "dw_bn")
    same("stride_q", 1)
    same("padding_q", kernel // 2)
    same("padding_kv", kernel // 2)
    if any(t.cls_token[:-1]):
        raise ValueError(
            f"Only the last stage may have a class token, got {list(t.cls_token)}; ours has no other."
        )
    if any(t.drop_path_rate[:-1]):
        raise ValueError(f"Only the last stage may drop paths, got {list(t.drop_path_rate)}; ours has no other.")
    return CvTConfig(
        channels=t.num_channels,
        classes=theirs.num_labels,
        dims=tuple(t.embed_dim),
        depths=tuple(t.depth),
        heads=tuple(t.num_heads)[:stages],
        kernels=tuple(t.patch_sizes)[:stages],
        strides=tuple(t.patch_stride)[:stages],
        paddings=tuple(t.patch_padding)[:stages],
        mlp_ratio=same("mlp_ratio"),
        qkv_bias=same("qkv_bias"),
        projection_kernel=kernel,
        kv_stride=same("stride_kv"),
        pool="cls" if t.cls_token[-1] else "mean",
        dropout=same("drop_rate"),
        attention_dropout=same("attention_drop_rate"),
        drop_path=t.drop_path_rate[-1],
    )


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a `CvtForImageClassification` under our names; a name it does not know stays as it is."""
    ours = {}
    for name, weight in state.items():
        for pattern, by in NAMES:
            name = re.sub(pattern, by, name)
        ours[name] = weight
    return ours
