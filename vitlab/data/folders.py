"""Class folders: which splits, classes and picture files a folder holds, and in what order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .imageset import ImageSet, balanced
from .packed import read_all
from .pixels import decode

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm")
CLUTTER = ("thumbs.db", "desktop.ini")
WHOLE = ("all", "train", "val")
EVERY = 5


@dataclass(frozen=True)
class Listing:
    """The picture files of one split: paths relative to `root`, ordered by class and then by name."""

    root: Path
    files: tuple[str, ...]
    labels: np.ndarray
    classes: tuple[str, ...]


def splits(root: Path) -> tuple[str, ...]:
    """The splits of `root`: its split folders, or `("all", "train", "val")` where it has none.

    With `root/<split>/<class>/<file>` the splits are the folders. With `root/<class>/<file>`, or with the
    single split folder `all`, nobody has divided the set: `all` is the whole, `val` every fifth file of each
    class in order of name, beginning with the first, and `train` the rest. Raises `FileNotFoundError` or
    `ValueError` where there are no class folders.
    """
    own = _own_splits(root)
    return WHOLE if own in ((), ("all",)) else own


def load_folder(
    root: Path, name: str, split: str, size: int | None = None, limit: int | None = None, seed: int = 0
) -> ImageSet:
    """The images of `split` in `root`, decoded to 8-bit RGB; `limit` chooses before anything is decoded.

    Raises `ValueError` that names the files that are broken or no pictures, classes without a picture, and
    pictures of different sizes where `size` is not given.
    """
    listing = list_split(root, split)
    chosen = None if limit is None else balanced(listing.labels, limit, seed)
    images = read_all(decode, listing.root, listing.files, size, chosen, tag=f"{name}-{split}")
    labels = listing.labels if chosen is None else listing.labels[chosen]
    return ImageSet(images, labels, listing.classes, name, split)


def list_split(root: Path, split: str) -> Listing:
    """The files of one of `splits(root)`."""
    own = _own_splits(root)
    if own not in ((), ("all",)):
        return _list_classes(root / split)
    whole = _list_classes(root / own[0] if own else root)
    if split == "all":
        return whole
    wanted = divide(whole.labels, split)
    small = set(range(len(whole.classes))) - set(whole.labels[wanted].tolist())
    if small:
        raise ValueError(
            f"{root} has a single picture of the class {whole.classes[min(small)]!r}, too few to divide: "
            "add some, or load split='all'."
        )
    return Listing(whole.root, tuple(whole.files[i] for i in wanted), whole.labels[wanted], whole.classes)


def divide(labels: np.ndarray, split: str) -> np.ndarray:
    """Indices of `all`, or of our own `val` (every fifth of each class, beginning with the first) or `train`."""
    if split == "all":
        return np.arange(len(labels))
    by_class = np.argsort(labels, kind="stable")
    rank = np.empty(len(labels), dtype=np.int64)
    rank[by_class] = np.arange(len(labels)) - np.searchsorted(labels[by_class], labels[by_class])
    return np.flatnonzero((rank % EVERY == 0) == (split == "val"))


def _own_splits(root: Path) -> tuple[str, ...]:
    if not root.is_dir():
        raise FileNotFoundError(f"There is no folder {root}: give one that holds a folder of pictures a class.")
    folders = _folders(root)
    if not folders:
        raise ValueError(f"{root} holds no folders: a folder of pictures for each class is expected.")
    deep = [name for name in folders if _folders(root / name)]
    if not deep:
        return ()
    if len(deep) < len(folders):
        shallow = sorted(set(folders) - set(deep))[0]
        raise ValueError(
            f"{root} is neither <class>/<file> nor <split>/<class>/<file>: {deep[0]!r} holds folders, "
            f"{shallow!r} does not."
        )
    return tuple(folders)


def _folders(root: Path) -> list[str]:
    with os.scandir(root) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _list_classes(root: Path) -> Listing:
    classes = _folders(root)
    files: list[str] = []
    labels: list[int] = []
    empty: list[str] = []
    for label, name in enumerate(classes):
        inside = _pictures(root / name)
        files.extend(f"{name}/{file}" for file in inside)
        labels.extend([label] * len(inside))
        if not inside:
            empty.append(name)
    if empty:
        raise ValueError(
            f"{root} has no picture of {', '.join(map(repr, empty[:5]))}: fill or remove the empty class."
        )
    return Listing(root, tuple(files), np.array(labels, dtype=np.int64), tuple(classes))


def _pictures(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        found = [
            (entry.name, entry.is_file())
            for entry in entries
            if not entry.name.startswith(".") and entry.name.lower() not in CLUTTER
        ]
    for name, is_file in found:
        if not is_file or not name.lower().endswith(SUFFIXES):
            raise ValueError(
                f"{folder / name} is not a picture file ({', '.join(SUFFIXES)}): move it out of the class folder."
            )
    return sorted(name for name, _ in found)
