"""timm's `MultiScaleVit` and torchvision's `MViT` on images, read as ours.

Known: timm's `mvitv2_*` without class token; torchvision's video class with one frame (`temporal_size=1`, and 1
for the patch's kernel along time), as version 1 or 2. Refused: a pooled query added to the class token, which timm
does (`mvitv2_*_cls`) and the published code does not; several frames; pooling before the projections
(`pool_first`) or with other kernels in each head; queries pooled by another stride than 2 where stages begin;
images that are not square; norms with another eps than 1e-6. Dropout and drop path are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.models.mvit import MViTConfig


def config_of(theirs: Any) -> MViTConfig:
    """Read the configuration off a peer; loading its weights finds whatever differs in shape.

    Raises:
        ValueError: a feature that ours lacks; it is named.
    """
    kind = type(theirs).__name__
    for name, module in theirs.named_modules():
        if isinstance(module, nn.LayerNorm) and module.eps != 1e-6:
            raise _lack(f"eps {module.eps} in {name}")
    if kind == "MultiScaleVit":
        return _of_timm(theirs)
    if kind == "MViT" and hasattr(theirs, "conv_proj"):
        return _of_torchvision(theirs)
    raise ValueError(f"An MViT is timm's MultiScaleVit or torchvision's MViT, got {kind}; build one of the two.")


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a peer's weights under our names: timm's stages in one list, torchvision's kernels without time."""
    return _from_torchvision(state) if "conv_proj.weight" in state else _from_timm(state)


def _of_timm(theirs: Any) -> MViTConfig:
    stages = [stage.blocks for stage in theirs.stages]
    first = stages[0][0]
    attn, patches = first.attn, theirs.patch_embed.proj
    if type(attn).__name__ != "MultiScaleAttention" or attn.unshared:
        raise _lack("pooling before the projections, or with weights for each head")
    if theirs.cls_token is not None and attn.residual_pooling:
        raise _lack("a pooled query added to the class token")
    if theirs.global_pool != ("avg" if theirs.cls_token is None else "token"):
        raise _lack(f"pooling by {theirs.global_pool!r} in the head")
    strides = [stage[0].shortcut_pool_attn for stage in stages]
    _check_halving([1 if pool is None else pool.stride[0] for pool in strides])
    if attn.rel_pos_type == "spatial":
        side = (attn.rel_pos_h.shape[0] + 1) // 2  # the first block's queries are the patches
    elif theirs.pos_embed is not None:
        side = round((theirs.pos_embed.shape[1] - theirs.num_prefix_tokens) ** 0.5)
    else:
        raise _lack("no positions, from which the image size is read")
    pools = [stage[-1].attn.pool_k for stage in stages]
    kernels = {pool.kernel_size for pool in pools if pool is not None}
    return MViTConfig(
        image_size=side * patches.stride[0],
        patch_kernel=patches.kernel_size[0],
        patch_stride=patches.stride[0],
        channels=patches.in_channels,
        classes=theirs.num_classes,
        dims=tuple(stage[0].attn.dim_out for stage in stages),
        depths=tuple(len(stage) for stage in stages),
        heads=tuple(stage[0].attn.num_heads for stage in stages),
        kv_strides=tuple(1 if pool is None else pool.stride[0] for pool in pools),
        pool=attn.mode,
        pool_kernel=kernels.pop()[0] if kernels else 1,
        mlp_ratio=first.mlp.fc1.out_features / attn.dim_out,
        class_token=theirs.cls_token is not None,
        absolute_positions=theirs.pos_embed is not None,
        relative_positions=attn.rel_pos_type == "spatial",
        residual_pooling=attn.residual_pooling,
        pool_every_query=stages[-1][-1].attn.pool_q is not None,
        widen_in="attention" if theirs.expand_attn else "mlp",
    )


def _of_torchvision(theirs: Any) -> MViTConfig:
    blocks, patches, positions = theirs.blocks, theirs.conv_proj, theirs.pos_encoding
    if positions.temporal_size != 1 or patches.kernel_size[0] != 1:
        raise _lack("several frames")
    if positions.spatial_size[0] != positions.spatial_size[1] or patches.stride[1] != patches.stride[2]:
        raise _lack("images that are not square")
    attn = blocks[0].attn
    if attn.residual_pool and attn.residual_with_cls_embed:
        raise _lack("a pooled query added to the class token")
    starts = [i for i, block in enumerate(blocks) if i == 0 or block.pool_skip is not None]
    skips = [blocks[i].pool_skip for i in starts]
    _check_halving([1 if skip is None else skip.pool.stride[1] for skip in skips])
    ends = [*starts[1:], len(blocks)]
    pools = [blocks[end - 1].attn.pool_k for end in ends]
    kernels = {pool.pool.kernel_size for pool in pools if pool is not None}
    return MViTConfig(
        image_size=positions.spatial_size[0] * patches.stride[1],
        patch_kernel=patches.kernel_size[1],
        patch_stride=patches.stride[1],
        channels=patches.in_channels,
        classes=theirs.head[1].out_features,
        dims=tuple(blocks[i].attn.output_dim for i in starts),
        depths=tuple(end - start for start, end in zip(starts, ends, strict=True)),
        heads=tuple(blocks[i].attn.num_heads for i in starts),
        kv_strides=tuple(1 if pool is None else pool.pool.stride[1] for pool in pools),
        pool_kernel=kernels.pop()[1] if kernels else 1,
        class_token=True,
        absolute_positions=positions.spatial_pos is not None,
        relative_positions=attn.rel_pos_h is not None,
        residual_pooling=attn.residual_pool,
        pool_every_query=blocks[-1].attn.pool_q is not None,
        widen_in="attention" if blocks[0].proj_after_attn else "mlp",
    )


def _from_timm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    block = re.compile(r"stages\.(\d+)\.blocks\.(\d+)\.")
    places = sorted({(int(found[1]), int(found[2])) for name in state if (found := block.match(name))})
    ours = {}
    for name, weight in state.items():
        if found := block.match(name):
            name = f"blocks.{places.index((int(found[1]), int(found[2])))}.{name[found.end() :]}"
        name = re.sub(r"\.pool_([qkv])\.", r".pool_\1.pool.", name)
        name = re.sub(r"\.norm_([qkv])\.", r".pool_\1.norm.", name)
        ours[name.replace("head.fc.", "head.")] = weight
    return ours


def _from_torchvision(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    ours = {"cls_token": state["pos_encoding.class_token"][None, None]}
    if "pos_encoding.spatial_pos" in state:  # with one frame the temporal position is one vector for all patches
        patches = state["pos_encoding.temporal_pos"] + state["pos_encoding.spatial_pos"]
        ours["pos_embed"] = torch.cat([state["pos_encoding.class_pos"][None], patches])[None]
    for name, weight in state.items():
        if name.startswith("pos_encoding.") or name.endswith("rel_pos_t"):
            continue
        if name.endswith("rel_pos_h"):  # likewise: every pair of patches is 0 frames apart
            weight = weight + state[name.replace("rel_pos_h", "rel_pos_t")]
        if weight.ndim == 5:
            weight = weight.squeeze(2)  # (outputs, inputs, 1, rows, columns), a kernel over one frame
        for theirs, our in (
            ("conv_proj", "patch_embed.proj"),
            ("attn.project.0", "attn.proj"),
            ("norm_act.0", "norm"),
            ("mlp.0", "mlp.fc1"),
            ("mlp.3", "mlp.fc2"),
            ("head.1", "head"),
        ):
            name = name.replace(theirs, our)
        if ".project." in name:
            block = name.partition(".project.")[0]
            before = state[f"{block}.norm2.weight"].shape == state[f"{block}.project.bias"].shape
            name = name.replace("project", "shortcut_proj_attn" if before else "shortcut_proj_mlp")
        ours[name] = weight
    return ours


def _check_halving(strides: list[int]) -> None:
    if strides != [1] + [2] * (len(strides) - 1):
        raise _lack(f"queries pooled by {strides} where stages begin, not halved")


def _lack(what: str) -> ValueError:
    return ValueError(f"Our MViT has no such feature: {what}; build the peer without it.")
