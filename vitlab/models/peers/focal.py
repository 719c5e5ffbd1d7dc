"""The published Focal Transformer read as ours: the arguments it is built from, and its weights by our names.

No library holds a Focal Transformer, so there is no peer module to read but the authors' own. One layout is known,
theirs: it keeps the pooling in the block and not in its attention, as the first of a list of levels, lists the
coarse biases likewise, and stores masks and indices, which we compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitlab.models.focal import FocalConfig

_ABSENT = {  # arguments of the published class with the one value ours knows
    "ape": False,
    "patch_norm": True,
    "use_shift": False,
    "use_conv_embed": False,
    "use_layerscale": False,
    "use_pre_norm": False,
    "focal_pool": "fc",
    "expand_layer": "all",
    "qk_scale": None,
}
_STORED = ("relative_position_index", "valid_ind_rolled", "attn_mask")


def config_of(theirs: Any) -> FocalConfig:
    """Read the configuration off the arguments that the published `FocalTransformer` is built from, a mapping.

    What is left out stands at that class's own default, but for `focal_levels`, which must be named: its default
    of 1 has no coarse keys at all.

    Raises:
        ValueError: it is no such mapping, or asks for what ours lacks, or for a size ours refuses.
    """
    if not isinstance(theirs, Mapping):
        raise ValueError(
            f"Ours reads the mapping of arguments of a FocalTransformer, got {type(theirs).__name__}; pass that."
        )
    for name, ours in _ABSENT.items():
        if theirs.get(name, ours) != ours:
            raise ValueError(f"The peer has {name}={theirs[name]!r}, ours {ours!r} only; build it so.")
    depths = tuple(theirs.get("depths", (2, 2, 6, 2)))
    stages = range(len(depths))
    levels = list(theirs.get("focal_levels", [1] * len(depths)))
    if levels != [2 for _ in stages]:
        raise ValueError(f"Ours has two levels a stage, fine and coarse, the peer {levels}; build it with 2 each.")
    for name in ("focal_stages", "expand_stages"):
        if not set(stages) <= set(theirs.get(name, stages)):
            raise ValueError(f"Ours is focal in all {len(depths)} stages, the peer has {name}={theirs[name]}.")
    return FocalConfig(
        image_size=theirs.get("img_size", 224),
        patch_size=theirs.get("patch_size", 4),
        channels=theirs.get("in_chans", 3),
        classes=theirs.get("num_classes", 1000),
        window=theirs.get("window_size", 7),
        dims=tuple(theirs.get("embed_dim", 96) * 2**stage for stage in stages),
        depths=depths,
        heads=tuple(theirs.get("num_heads", (3, 6, 12, 24))),
        expand=tuple(theirs.get("expand_sizes", (3, 3, 3, 3))),
        focal_window=tuple(theirs.get("focal_windows", (7, 5, 3, 1))),
        mlp_ratio=theirs.get("mlp_ratio", 4.0),
        qkv_bias=theirs.get("qkv_bias", True),
        dropout=theirs.get("drop_rate", 0.0),
        attention_dropout=theirs.get("attn_drop_rate", 0.0),
        drop_path=theirs.get("drop_path_rate", 0.1),
    )


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a published checkpoint under our names, without the masks and indices it stores."""
    return {
        name.replace(".pool_layers.0.", ".attn.pool.").replace("_to_windows.0", "_to_windows"): weight
        for name, weight in state.items()
        if not any(part.startswith(_STORED) for part in name.split("."))
    }
