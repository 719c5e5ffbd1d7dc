"""Weights made elsewhere: load a timm ViT into ours, with the preprocessing it was trained with.

A checkpoint whose layout differs is refused, naming the first difference, before a single weight is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.models.vit import ViT, ViTConfig


@dataclass(frozen=True)
class Preprocessing:
    """What a network was trained to see: timm's own evaluation transform, for a whole batch."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    transform: Callable[[Any], Tensor]

    def __call__(self, images: np.ndarray) -> Tensor:
        """Resize, crop the centre and normalise: uint8 `(batch, height, width, 3)` to `(batch, 3, size, size)`.

        Raises:
            ValueError: images of another shape or type.
        """
        from PIL import Image

        if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
            raise ValueError(
                f"Preprocessing takes uint8 images (batch, height, width, 3), got {images.dtype} "
                f"{images.shape}; convert them first."
            )
        return torch.stack([self.transform(Image.fromarray(image)) for image in images])


def load(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy the weights `state` into `model`, all of them or none.

    Raises:
        ValueError: a name is missing, unknown or of another shape, or a weight is not finite; the first is named.
    """
    own = model.state_dict()
    for name, weight in own.items():
        if name not in state:
            raise ValueError(f"The checkpoint lacks {name} {tuple(weight.shape)}; load one of the same layout.")
        shape = tuple(getattr(state[name], "shape", ()))
        if shape != tuple(weight.shape):
            raise ValueError(
                f"{name} should be {tuple(weight.shape)}, the checkpoint has {shape}; "
                "build the model with the checkpoint's sizes."
            )
        if not isinstance(state[name], Tensor) or state[name].is_floating_point() != weight.is_floating_point():
            raise ValueError(
                f"{name} should be {weight.dtype}, the checkpoint has another kind; load another file."
            )
        if not torch.isfinite(state[name].to(weight.dtype)).all():
            raise ValueError(
                f"{name} holds values that are not finite; the checkpoint is damaged, fetch it again."
            )
    unknown = next((name for name in state if name not in own), None)
    if unknown is not None:
        raise ValueError(
            f"The checkpoint has {unknown} {tuple(getattr(state[unknown], 'shape', ()))}, which the model lacks; "
            "load one of the same layout."
        )
    model.load_state_dict(dict(state))


def from_timm(tag: str, *, pretrained: bool = True, file: str | Path | None = None) -> tuple[ViT, Preprocessing]:
    """Build the ViT that a timm tag names, with its weights, and say how its images are prepared.

    Args:
        tag: the full name, training included: `vit_small_patch16_224.augreg_in1k`, not `vit_small_patch16_224`.
        pretrained: fetch the weights; without it the model is as timm initialises it.
        file: a local checkpoint of that layout, used instead of fetching.

    Returns:
        The model in evaluation mode, and its preprocessing.

    Raises:
        ValueError: a tag without its training, unknown to timm, or not a plain ViT.
        RuntimeError: the weights could not be fetched or read.
    """
    import timm

    architecture, dot, training = tag.partition(".")
    if pretrained and file is None and not (dot and training):
        known = timm.list_pretrained(f"{architecture}.*")[:3]
        raise ValueError(
            f"A tag names its training too, got {tag!r}; "
            + (f"for example {', '.join(known)}." if known else "timm.list_pretrained() lists them.")
        )
    if not timm.is_model(tag):
        raise ValueError(f"timm knows no model {tag!r}; timm.list_models('vit*') lists the names.")
    try:
        theirs: Any = timm.create_model(
            tag, pretrained=pretrained and file is None, checkpoint_path=str(file) if file else ""
        )
    except Exception as error:  # huggingface_hub, urllib3, safetensors and pickle each raise their own
        where = f"{file}" if file else "the hub (is this machine online?)"
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise RuntimeError(f"The weights of {tag} could not be read from {where}: {reason}") from error
    config = _config_of(theirs, tag)
    model = ViT(config)
    load(model, theirs.state_dict())
    data = timm.data.resolve_model_data_config(theirs)
    transform = timm.data.create_transform(**data, is_training=False)
    return model.eval(), Preprocessing(config.image_size, data["mean"], data["std"], transform)


def _config_of(theirs: Any, tag: str) -> ViTConfig:
    """Read the configuration off a timm ViT; `load` then finds whatever differs."""
    if type(theirs).__name__ != "VisionTransformer":
        raise ValueError(f"{tag} is a {type(theirs).__name__}, not a plain ViT; name a tag that starts with vit_.")
    if theirs.blocks[0].norm1.eps != 1e-6:
        raise ValueError(f"{tag} normalises with eps {theirs.blocks[0].norm1.eps}, ours with 1e-6; name another.")
    config = ViTConfig(
        image_size=theirs.patch_embed.img_size[0],
        patch_size=theirs.patch_embed.patch_size[0],
        classes=theirs.num_classes,
        dim=theirs.embed_dim,
        depth=len(theirs.blocks),
        heads=theirs.blocks[0].attn.num_heads,
        mlp_ratio=theirs.blocks[0].mlp.fc1.out_features / theirs.embed_dim,
        qkv_bias=theirs.blocks[0].attn.qkv.bias is not None,
    )
    return config if theirs.cls_token is not None else replace(config, pool="mean")
