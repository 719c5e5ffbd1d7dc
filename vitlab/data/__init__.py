"""Image sets by name: generated scenes, pictures that ship with packages, public data sets, your own folders.

`load("cifar100", split="train", limit=5000)` gives an `ImageSet`: uint8 images, labels and class names, in memory.

A public set is looked for as class folders in `$VITLAB_DATA/<name>` first, and downloaded at its first use
otherwise; downloads and decoded folders are kept in `$VITLAB_CACHE`, by default the system's cache folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

from .imageset import ImageSet, balanced, whole

__all__ = ["ImageSet", "feeds", "load", "names", "scenes", "splits", "views"]

_GENERATED = {"scenes": ("train", "val", "test"), "textures": ("train", "val"), "photos": ("all",)}
_ARCHIVED = {"cifar10": ("train", "test"), "cifar100": ("train", "test")}
_FOLDERS = {"tinyimagenet": ("train", "val"), "ucmerced": ("all", "train", "val")}
_LOCAL_ONLY = ("imagenet100",)
_NAMES = (*_GENERATED, "digits", *_ARCHIVED, *_FOLDERS, *_LOCAL_ONLY)


def names() -> tuple[str, ...]:
    """Every name that `load` knows; in `folder:PATH`, PATH is a folder of class folders of yours."""
    return (*_NAMES, "folder:PATH")


def splits(name: str) -> tuple[str, ...]:
    """The splits of the set `name`, without downloading it. Raises as `load` does for a set that is not there."""
    local = _local(name)
    if local is not None:
        from .folders import splits as of_folder

        return of_folder(local)
    if name == "digits":
        return ("all", "train", "val")
    return {**_GENERATED, **_ARCHIVED, **_FOLDERS}[name]


def load(
    name: str,
    split: str | None = None,
    size: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    **options: Any,
) -> ImageSet:
    """The image set `name` (see `names`) as one `ImageSet` in memory.

    split   one of `splits(name)`. None takes `train` where the set is published in parts, and else everything.
            `held_out` takes `test` where there is one, and else `val`, so that a chapter runs on both kinds.
            Of a set that nobody has divided (`ucmerced`, `digits`, a folder without split folders), `val` is every
            fifth image of each class and `train` the rest.
    size    the side in pixels: the centred square, resized with an antialiased Lanczos filter. None leaves the
            images as they are (`scenes` 32, `textures` 64, `photos` 224).
    limit   at most so many images, a class-balanced choice decided by `seed`; a smaller one lies inside a larger.
    seed    decides the choice, and the images of `scenes` and `textures`
    options of `scenes`: complexity, noise, label, count (see `scenes.load`); of `textures`: crop

    Raises `ValueError` or `FileNotFoundError`, in one sentence that says what to do.
    """
    size = None if size is None else whole(size, "size")
    limit = None if limit is None else whole(limit, "limit")
    seed = whole(seed, "seed", 0)
    split = _split(name, split)
    allowed = {"scenes": ("complexity", "noise", "label", "count"), "textures": ("crop",)}.get(name, ())
    if unknown := sorted(set(options) - set(allowed)):
        known = f"only {', '.join(allowed)}" if allowed else "none"
        raise ValueError(f"{name} has no option {unknown[0]!r}, {known}.")
    if name == "scenes":
        from . import scenes

        return scenes.load(split, 32 if size is None else size, limit, seed, **options)
    if name == "textures":
        from .bundled import textures

        return textures(split, size, limit, seed, **options)
    if name == "photos":
        from .bundled import photos

        return photos(size, limit, seed)
    local = _local(name)
    if local is None and name in _FOLDERS:
        from .public import fetch

        local = fetch(name)
    if local is not None:
        from .folders import load_folder

        # What a page prints should not tell where a folder lies on somebody's machine.
        known_as = name if name in _NAMES else f"folder:{local.resolve().name}"
        return load_folder(local, known_as, split, size, limit, seed)
    return _from_arrays(name, split, size, limit, seed)


def _from_arrays(name: str, split: str, size: int | None, limit: int | None, seed: int) -> ImageSet:
    import numpy as np
    from PIL import Image

    from .pixels import square

    if name == "digits":
        from .bundled import digits
        from .folders import divide

        images, labels, classes = digits()
        chosen = divide(labels, split)
    else:
        from .public import cifar, fetch

        images, labels, classes = cifar(fetch(name), split)
        chosen = np.arange(len(labels))
    if limit is not None:
        chosen = chosen[balanced(labels[chosen], limit, seed)]
    images = images[chosen]
    if size is not None and images.shape[1:3] != (size, size):
        images = np.stack([np.asarray(square(Image.fromarray(image), size)) for image in images])
    return ImageSet(images, labels[chosen], classes, name, split)


def _split(name: str, split: str | None) -> str:
    known = splits(name)
    if split is None:
        return "all" if "all" in known else "train" if "train" in known else known[0]
    if split == "held_out" and ("test" in known or "val" in known):
        return "test" if "test" in known else "val"
    if split not in known:
        raise ValueError(f"{name} has no split {split!r}: it has {', '.join(known)}.")
    return split


def _local(name: str) -> Path | None:
    """The class folders of `name` on this machine, or None for a set that is made or downloaded."""
    if isinstance(name, str) and name.startswith("folder:"):
        return Path(name.removeprefix("folder:")).expanduser()
    if name not in _NAMES:
        raise ValueError(f"There is no image set {name!r}: there are {', '.join(names())}.")
    root = os.environ.get("VITLAB_DATA")
    if root and name in (*_ARCHIVED, *_FOLDERS, *_LOCAL_ONLY):
        local = Path(root).expanduser() / name
        if local.is_dir():
            return local
    if name in _LOCAL_ONLY:
        raise FileNotFoundError(
            f"{name} is not on this machine and cannot be downloaded freely: put its class folders, cut from your "
            "copy of ImageNet by the list imagenet100.txt of github.com/HobbitLong/CMC, at "
            f"$VITLAB_DATA/{name}/train and /val, and set VITLAB_DATA."
        )
    return None


def __getattr__(name: str) -> ModuleType:
    if name in ("feeds", "scenes", "views"):
        import importlib

        return importlib.import_module(f"vitlab.data.{name}")
    raise AttributeError(f"vitlab.data has {', '.join(__all__)}, not {name!r}.")
