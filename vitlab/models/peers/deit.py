"""timm's VisionTransformerDistilled read as our DeiT; all names are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitlab.models.deit import DeiTConfig
from vitlab.models.peers.vit import sizes_of


def config_of(theirs: Any) -> DeiTConfig:
    """Read the configuration off a timm DeiT, with its distillation token or without one.

    Raises:
        ValueError: the peer computes what ours does not, and no weight would tell.
    """
    return DeiTConfig(**sizes_of(theirs), distilled=hasattr(theirs, "dist_token"))


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return timm's weights under our names, which are timm's."""
    return dict(state)
