"""Weights made elsewhere: timm's, transformers' and published checkpoints, with the preprocessing they need.

`from_timm` and `from_transformers` take a name and fetch, `from_file` takes a file that authors published, `ours`
a network of another library that is at hand. How each of them lays out an architecture stands in
`vitlab.models.peers`. A checkpoint whose layout differs is refused, naming the first difference, before a single
weight is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab import models
from vitlab.models import peers

# A library's classes, and the architectures they are here; `peers` has a file of that name for each.
_PEERS = {
    ("timm", "VisionTransformer"): "vit",
    ("timm", "VisionTransformerDistilled"): "deit",
    ("timm", "SwinTransformer"): "swin",
    ("timm", "PyramidVisionTransformerV2"): "pvt_v2",
    ("timm", "MaxxVit"): "coatnet",
    ("timm", "MultiScaleVit"): "mvit",
    ("torchvision", "MViT"): "mvit",
    ("transformers", "PvtForImageClassification"): "pvt",
    ("transformers", "CvtForImageClassification"): "cvt",
}
_OF_ANY_SIZE = ("pvt_v2", "cvt")  # their peers do not know an image size: it is what the preprocessing makes


@dataclass(frozen=True)
class Preprocessing:
    """What a network was trained to see: its library's own evaluation transform, for a whole batch."""

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


def ours(theirs: nn.Module, *, image_size: int | None = None) -> nn.Module:
    """Return a network of another library as ours: the same function, weights copied.

    Args:
        theirs: timm's VisionTransformer, VisionTransformerDistilled, SwinTransformer, PyramidVisionTransformerV2,
            MaxxVit or MultiScaleVit, torchvision's MViT, transformers' PvtForImageClassification or
            CvtForImageClassification.
        image_size: the side of the images, where the peer takes any (PVTv2, CvT); 224 if left out.

    Raises:
        ValueError: another class, or a peer with something that ours lacks; what it is, is named.
    """
    name = _PEERS.get(_kind(theirs))
    if name is None:
        known = ", ".join(".".join(kind) for kind in _PEERS)
        raise ValueError(f"Of other libraries {known} are known, not {'.'.join(_kind(theirs))}; pass one of them.")
    return _converted(theirs, name, theirs.state_dict(), image_size).train(theirs.training)


def from_timm(
    tag: str, *, pretrained: bool = True, file: str | Path | None = None, **options: Any
) -> tuple[nn.Module, Preprocessing]:
    """Build the network that a timm tag names, with its weights, and say how its images are prepared.

    Args:
        tag: the full name, training included: `vit_small_patch16_224.augreg_in1k`, not `vit_small_patch16_224`;
            of a ViT, DeiT, Swin, PVTv2, CoAtNet or MViTv2.
        pretrained: fetch the weights; without it the model is as timm initialises it.
        file: a local checkpoint of that layout, used instead of fetching.
        options: what else `timm.create_model` should change, `img_size=384` or `num_classes=0` say.

    Returns:
        The model in evaluation mode, and its preprocessing.

    Raises:
        ValueError: a tag without its training, unknown to timm, of another architecture, or with a feature that
            ours lacks; an option timm does not know; a file of another layout (the first difference is named).
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
    numpy = Path(file or "").suffix in (".npz", ".npy")  # JAX's layout, which timm translates
    try:
        theirs: Any = timm.create_model(tag, pretrained=pretrained and file is None, **options)
        if file and numpy:
            timm.models.load_checkpoint(theirs, str(file))
    except TypeError as error:
        raise ValueError(f"timm cannot build {tag} with {options}: {_first_line(error)}") from error
    except Exception as error:  # huggingface_hub, urllib3, safetensors and pickle each raise their own
        raise _unread(tag, file, error) from error
    name = _PEERS.get(_kind(theirs))
    if name is None:
        raise ValueError(
            f"{tag} is a {type(theirs).__name__}, not a plain ViT, and no DeiT, Swin, PVTv2, CoAtNet or MViTv2; "
            "name a tag of one of these."
        )
    state = _read(tag, file) if file and not numpy else theirs.state_dict()
    data = timm.data.resolve_model_data_config(theirs)
    model = _converted(theirs, name, state, data["input_size"][-1]).eval()
    size = int(model.config.image_size)
    data["input_size"] = (data["input_size"][0], size, size)  # another where an option asked for it
    transform = timm.data.create_transform(**data, is_training=False)
    return model, Preprocessing(size, data["mean"], data["std"], transform)


def from_transformers(name: str, *, file: str | Path | None = None) -> tuple[nn.Module, Preprocessing]:
    """Build the network that a name on the Hugging Face hub names, with its weights and its preprocessing.

    Args:
        name: the full name, owner included: `Zetatech/pvt-tiny-224`, `microsoft/cvt-13`; of a PVT or a CvT.
        file: a local folder, as `save_pretrained` of the model and of its image processor leaves one; used
            instead of fetching.

    Returns:
        The model in evaluation mode, and its preprocessing.

    Raises:
        ImportError: transformers is not installed; no other part of this package needs it.
        ValueError: another architecture, a feature that ours lacks, or weights of another layout (the first
            difference is named).
        RuntimeError: the weights or the preprocessing could not be fetched or read.
    """
    try:
        import transformers
    except ImportError as error:
        raise ImportError(f"{name} is read by transformers, which is absent; pip install transformers.") from error
    known = {its: kind for (library, kind), its in _PEERS.items() if library == "transformers"}
    where = str(file) if file else name
    if file and not Path(file).is_dir():
        raise RuntimeError(f"The weights of {name} are read from a folder, and {file} is none; name the folder.")
    try:
        kind = transformers.AutoConfig.from_pretrained(where).model_type
        if kind in known:
            theirs, found = getattr(transformers, known[kind]).from_pretrained(
                where, output_loading_info=True, ignore_mismatched_sizes=True
            )
            processor = transformers.AutoImageProcessor.from_pretrained(where)
    except Exception as error:  # the hub, safetensors, pickle and json each raise their own
        raise _unread(name, file, error) from error
    if kind not in known:
        raise ValueError(
            f"{name} is a {kind}, and transformers' {' and '.join(known)} are known; name one of these."
        )
    _refuse_what_was_made_up(theirs, found)
    transform = partial(_processed, processor)
    size = transform(_blank()).shape[-1]
    model = ours(theirs.eval(), image_size=size)
    if model.config.image_size != size:
        raise ValueError(
            f"{name} takes images of {model.config.image_size} px, its image processor makes {size} px; "
            "make them agree."
        )
    return model, Preprocessing(size, tuple(processor.image_mean), tuple(processor.image_std), transform)


def from_file(name: str, size: str, file: str | Path, **overrides: Any) -> nn.Module:
    """Build a network of a named size with weights in the layout that its authors published.

    What images it was trained to see is not in such a file: the authors' page says it.

    Args:
        name, size, overrides: as in `models.create`, for example "focal", "tiny".
        file: a `.safetensors`, or what `torch.save` wrote; a checkpoint that holds the weights under "model" or
            "state_dict" is opened.

    Returns:
        The model in evaluation mode.

    Raises:
        ValueError: an unknown name or size, or a file of another layout; the first difference is named.
        RuntimeError: the file could not be read.
    """
    model = models.create(name, size, **overrides)
    _load_renamed(model, name, _read(f"{name} {size}", file))
    return model.eval()


def _kind(theirs: nn.Module) -> tuple[str, str]:
    """The library a network comes from, and its class."""
    return type(theirs).__module__.partition(".")[0], type(theirs).__name__


def _converted(theirs: nn.Module, name: str, state: Mapping[str, Tensor], image_size: int | None) -> nn.Module:
    """Build the architecture `name` with the sizes of `theirs`, and the weights `state` of its layout."""
    config = getattr(peers, name).config_of(theirs)
    if image_size is not None and name in _OF_ANY_SIZE:
        config = replace(config, image_size=image_size)
    model: nn.Module = models.classes(name)[0](config)
    _load_renamed(model, name, state)
    return model


def _load_renamed(model: nn.Module, name: str, state: Mapping[str, Tensor]) -> None:
    try:
        state = getattr(peers, name).renamed(state)
    except KeyError as error:  # a weight that is joined to another, and is not there
        raise ValueError(f"The checkpoint lacks {error.args[0]}; load one of the same layout.") from error
    load(model, state)


def _read(what: str, file: str | Path) -> dict[str, Tensor]:
    """Read a state dict, unwrapped from what training kept around it; nothing in the file is run."""
    from timm.models import load_state_dict

    try:
        if not Path(file).is_file():
            raise FileNotFoundError("there is no such file")
        state = load_state_dict(str(file))
        for name, weight in state.items():
            if not isinstance(weight, Tensor):
                raise TypeError(f"it has {name}, which is no weight but a {type(weight).__name__}")
    except AttributeError as error:  # a list, a tensor, a whole module
        raise _unread(what, file, TypeError("it holds no weights by name")) from error
    except Exception as error:  # safetensors, zipfile and pickle each raise their own
        raise _unread(what, file, error) from error
    return state


def _unread(what: str, file: str | Path | None, error: Exception) -> RuntimeError:
    where = f"{file}" if file else "the hub (is this machine online?)"
    return RuntimeError(f"The weights of {what} could not be read from {where}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def _refuse_what_was_made_up(theirs: nn.Module, found: Mapping[str, Any]) -> None:
    """Raise where transformers found no weight, or one of another shape, and drew its own instead."""
    wrong = {name: tuple(shape) for name, shape, *_ in found["mismatched_keys"]}
    for name, weight in theirs.state_dict().items():
        if name in wrong:
            raise ValueError(
                f"{name} should be {tuple(weight.shape)}, the checkpoint has {wrong[name]}; "
                "build the model with the checkpoint's sizes."
            )
        if name in found["missing_keys"]:
            raise ValueError(f"The checkpoint lacks {name} {tuple(weight.shape)}; load one of the same layout.")
    if found["unexpected_keys"]:
        raise ValueError(
            f"The checkpoint has {min(found['unexpected_keys'])}, which the model lacks; "
            "load one of the same layout."
        )


def _processed(processor: Any, image: Any) -> Tensor:
    """Prepare one image as transformers does; a function of the module, so that workers can be handed it."""
    return processor(image, return_tensors="pt")["pixel_values"][0]


def _blank() -> Any:
    from PIL import Image

    return Image.new("RGB", (256, 256))
