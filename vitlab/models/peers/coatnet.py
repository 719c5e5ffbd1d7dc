"""timm's CoAtNets (`MaxxVit` whose stages are all MBConv or all attention) read as ours.

Known: the paper's sizes (`coatnet_0_224` to `coatnet_4_224`), and those `rw` models that need no other parts, such
as `coatnet_0_rw_224`. Refused: relative positions by an MLP (`rmlp`), BatchNorm in attention blocks (`bn`),
LayerScale (`coatnet_3_rw_224`), stages of two kinds (`cc`), ConvNeXt blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from vitlab.models.coatnet import CoAtNetConfig

LETTERS = {"MbConvBlock": "C", "TransformerBlock2d": "T"}
NORMS = {"BatchNormAct2d": 1e-5, "LayerNorm2d": 1e-6}  # with the eps that ours have


def config_of(theirs: Any) -> CoAtNetConfig:
    """Read the configuration off a timm CoAtNet; loading its weights finds whatever differs in shape.

    Raises:
        ValueError: a feature that ours lacks; it is named.
    """
    _refuse_what_ours_lacks(theirs)
    stages = "".join(LETTERS[type(stage.blocks[0]).__name__] for stage in theirs.stages)
    config: dict[str, Any] = {
        "image_size": theirs.img_size[0],
        "channels": theirs.in_chans,
        "classes": theirs.num_classes,
        "stages": stages,
        "depths": tuple(len(stage.blocks) for stage in theirs.stages),
        "dims": tuple(_last_layer(stage.blocks[0]).out_channels for stage in theirs.stages),
        "stem_dims": (theirs.stem.conv1.out_channels, theirs.stem.conv2.out_channels),
        "stem_stride": theirs.stem.conv1.stride[0],
        "conv_act": type(theirs.stem.norm1.act).__name__.lower(),
        "hidden_head": hasattr(theirs.head, "pre_logits"),
    }
    if "T" in stages:
        block = theirs.stages[stages.index("T")].blocks[0]
        expand, dim = block.shortcut.expand, block.mlp.fc2.out_channels
        config |= {
            "head_dim": block.attn.dim_head,
            "mlp_ratio": block.mlp.fc1.out_channels / dim,
            "relative_bias": block.attn.rel_pos is not None,
            "dropout": block.attn.proj_drop.p,
            "attention_dropout": block.attn.attn_drop.p,
            "wide_attention": block.attn.proj.in_channels == dim,
            "shortcut_bias": isinstance(expand, nn.Identity) or expand.bias is not None,
        }
    if "C" in stages:
        block = theirs.stages[stages.index("C")].blocks[0]
        inputs, hidden = block.conv1_1x1.in_channels, block.conv1_1x1.out_channels
        outputs, se = block.conv3_1x1.out_channels, block.se or block.se_early
        # Where the block does not widen, hidden tells nothing, but a squeeze made from the output is narrower.
        from_input = hidden != 4 * outputs or (inputs == outputs and se.fc1.out_channels >= hidden // 4)
        config |= {
            "expand_input": from_input,
            "expansion": hidden / (inputs if from_input else outputs),
            "squeeze_ratio": se.fc1.out_channels / (hidden if from_input else outputs),
            "pre_act": not isinstance(block.pre_norm.act, nn.Identity),
            "pool_first": not isinstance(block.down, nn.Identity),
            "squeeze_early": block.se is None,
            "squeeze_act": type(se.act).__name__.lower(),
            "conv_bias": block.conv3_1x1.bias is not None,
        }
    return CoAtNetConfig(**config)


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return timm's weights under our names, its 1 x 1 convolutions in attention blocks as linear layers."""
    ours = {}
    for name, weight in state.items():
        new = name.replace("norm1.norm.", "norm1.").replace("se_early.", "se.")
        for old, prefix in (
            ("head.norm.", "norm."),
            ("head.pre_logits.fc.", "pre_logits.0."),
            ("head.fc.", "head."),
        ):
            new = new.replace(old, prefix)
        linear = new.endswith(("qkv.weight", "proj.weight", "fc1.weight", "fc2.weight")) and ".se." not in new
        ours[new] = weight.flatten(1) if linear else weight  # (outputs, inputs, 1, 1) to (outputs, inputs)
    return ours


def _last_layer(block: Any) -> Any:
    """The layer whose outputs join the residual stream."""
    return block.conv3_1x1 if hasattr(block, "conv3_1x1") else block.mlp.fc2


def _refuse_what_ours_lacks(theirs: Any) -> None:
    """Raise one sentence that names the first feature of a timm model that ours has no field for."""
    if type(theirs).__name__ != "MaxxVit":
        raise ValueError(f"A CoAtNet of timm is a MaxxVit, got {type(theirs).__name__}; name a tag coatnet_...")
    found: list[str] = []
    for stage in theirs.stages:
        kinds = sorted({type(block).__name__ for block in stage.blocks})
        if len(kinds) > 1 or kinds[0] not in LETTERS:
            found.append(f"a stage of {' and '.join(kinds)}")
    for name, module in theirs.named_modules():
        kind = type(module).__name__
        if kind in ("RelPosMlp", "RelPosBiasTf", "LayerScale2d", "Conv2dSame", "MaxPool2d", "LayerNormAct2d"):
            found.append(f"{kind} at {name}")
        elif isinstance(module, nn.AvgPool2d) and module.kernel_size not in (2, (2, 2)):
            found.append(f"pooling over {module.kernel_size} at {name}")
        elif kind == "BatchNorm2d" or (kind in NORMS and module.eps != NORMS[kind]):
            found.append(f"{kind} with eps {module.eps} at {name}")
        elif kind == "MbConvBlock":
            conv1: Any = module.conv1_1x1
            if conv1.stride != (1, 1):
                found.append(f"a stride in {name}.conv1_1x1")
    if theirs.global_pool != "avg":
        found.append(f"pooling by {theirs.global_pool!r} in the head")
    if found:
        raise ValueError(f"Our CoAtNet lacks {found[0]}; name another tag, for example coatnet_0_rw_224.sw_in1k.")
