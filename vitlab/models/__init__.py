"""Architectures, one a file, each read top to bottom; `layers` holds the little they share.

They can be named as well: `create("swin", "tiny", image_size=32, ...)`. Nothing is loaded before it is asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

_NAMES = ("vit", "deit", "swin", "pvt", "pvt_v2", "cvt", "coatnet", "mvit", "focal")


def names() -> tuple[str, ...]:
    """Return the architectures that come in named sizes, in the order of the course."""
    return _NAMES


def sizes(name: str) -> tuple[str, ...]:
    """Return the named sizes of an architecture, as its configuration lists them.

    Raises:
        ValueError: no architecture has this name; the nearest is named.
    """
    return _sizes(classes(name)[1])


def create(name: str, size: str, **overrides: Any) -> nn.Module:
    """Build a network of a named size, parts of it changed: `create("vit", "tiny", image_size=32, patch_size=4)`.

    A measurement that needs one architecture better imports that one: whatever goes through `create` counts every
    architecture to its code, and its record grows stale when any of them changes.

    Args:
        name: one of `names()`.
        size: one of `sizes(name)`.
        overrides: fields of the architecture's configuration.

    Raises:
        ValueError: an unknown name, size or field (the nearest is named), or sizes that do not fit together.
    """
    model, config = classes(name)
    _known(size, _sizes(config), f"size of {name}")
    for field in overrides:
        _known(field, config.__dataclass_fields__, f"field of {config.__name__}")
    return model(getattr(config, size)(**overrides))


def classes(name: str) -> tuple[Any, Any]:
    """Return the model and the configuration class of an architecture: `ViT, ViTConfig` for "vit".

    Raises:
        ValueError: no architecture has this name; the nearest is named.
    """
    # Each by an import of its own, not by a name put together at run time: the digest of a record follows these.
    _known(name, _NAMES, "architecture")
    match name:
        case "vit":
            from vitlab.models.vit import ViT, ViTConfig

            return ViT, ViTConfig
        case "deit":
            from vitlab.models.deit import DeiT, DeiTConfig

            return DeiT, DeiTConfig
        case "swin":
            from vitlab.models.swin import Swin, SwinConfig

            return Swin, SwinConfig
        case "pvt":
            from vitlab.models.pvt import PVT, PVTConfig

            return PVT, PVTConfig
        case "pvt_v2":
            from vitlab.models.pvt_v2 import PVTv2, PVTv2Config

            return PVTv2, PVTv2Config
        case "cvt":
            from vitlab.models.cvt import CvT, CvTConfig

            return CvT, CvTConfig
        case "coatnet":
            from vitlab.models.coatnet import CoAtNet, CoAtNetConfig

            return CoAtNet, CoAtNetConfig
        case "mvit":
            from vitlab.models.mvit import MViT, MViTConfig

            return MViT, MViTConfig
        case _:
            from vitlab.models.focal import Focal, FocalConfig

            return Focal, FocalConfig


def _sizes(config: Any) -> tuple[str, ...]:
    return getattr(config, "SIZES", ("tiny", "small", "base"))  # ViTConfig, the oldest, does not list them


def _known(name: str, known: Iterable[str], what: str) -> None:
    """Raise one sentence, with the nearest match, unless `name` is known."""
    listed = tuple(known)
    if name not in listed:
        near = difflib.get_close_matches(str(name), listed, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(listed)}."
        raise ValueError(f"There is no {what} named {name!r}; {hint}")
