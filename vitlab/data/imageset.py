"""One in-memory set of labelled images, and how a smaller balanced one is taken from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled images, all of one size, held in memory and never changed.

    images  `(N, H, W, 3)` uint8, read-only
    labels  `(N,)` int64, read-only; `labels[i]` is an index into `classes`
    classes the class names; every name is kept even where `limit` left a class without images
    name, split  where the images came from

    Raises `ValueError` when the parts do not fit together.
    """

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    name: str
    split: str

    def __post_init__(self) -> None:
        images, labels = np.asarray(self.images), np.asarray(self.labels)
        classes = tuple(str(name) for name in self.classes)
        if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
            raise ValueError(
                f"An image set takes uint8 images of shape (N, H, W, 3), not {images.dtype} {images.shape}."
            )
        if 0 in images.shape:
            raise ValueError(f"An image set needs at least one image and one pixel, not shape {images.shape}.")
        if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
            raise ValueError(
                f"An image set takes one integer label an image, shape ({len(images)},), "
                f"not {labels.dtype} {labels.shape}."
            )
        if not classes or len(set(classes)) != len(classes):
            raise ValueError("An image set takes one name a class, each different from the others.")
        if labels.min() < 0 or labels.max() >= len(classes):
            raise ValueError(
                f"Labels must lie in 0..{len(classes) - 1} for {len(classes)} classes, "
                f"not in {labels.min()}..{labels.max()}."
            )
        # A view, so that closing the set to writing costs no copy and leaves the caller's own array alone.
        for field, array in (("images", images), ("labels", labels.astype(np.int64, copy=False))):
            view = array.view()
            view.flags.writeable = False
            object.__setattr__(self, field, view)
        object.__setattr__(self, "classes", classes)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        height, width = self.images.shape[1:3]
        classes = "1 class" if len(self.classes) == 1 else f"{len(self.classes)} classes"
        return f"ImageSet({self.name!r}, {self.split!r}: {len(self):,} images of {height}x{width}, {classes})"

    def tensor(self, device: torch.device | str | None = None) -> torch.Tensor:
        """The images as a float32 tensor `(N, 3, H, W)` in [0, 1], on `device` (the CPU where None).

        It takes four times the memory of `images`; for a large set, take batches: `s.subset(batch).tensor()`.
        """
        import torch

        # The copy goes to the device as bytes, a quarter of what it is as floats.
        bytes_ = torch.tensor(self.images, device=device)
        return bytes_.permute(0, 3, 1, 2).contiguous().float().div_(255)

    def subset(self, indices: Sequence[int] | np.ndarray) -> ImageSet:
        """The images at `indices` (integers in any order, or a mask of `len(self)` booleans), as a new set.

        Raises `IndexError` for an index outside the set, `ValueError` for an empty or ill-typed choice.
        """
        chosen = np.asarray(indices)
        if chosen.dtype == bool:
            if chosen.shape != (len(self),):
                raise ValueError(f"A mask needs shape ({len(self)},), not {chosen.shape}.")
            chosen = np.flatnonzero(chosen)
        if chosen.ndim != 1 or len(chosen) == 0:
            raise ValueError(f"A subset needs a list of at least one index, not shape {chosen.shape}.")
        if chosen.dtype.kind not in "iu":
            raise ValueError(f"Indices must be integers or booleans, not {chosen.dtype}.")
        if chosen.min() < -len(self) or chosen.max() >= len(self):
            raise IndexError(
                f"Indices must lie below {len(self)}, the size of the set, not in {chosen.min()}..{chosen.max()}."
            )
        return ImageSet(self.images[chosen], self.labels[chosen], self.classes, self.name, self.split)


def balanced(labels: np.ndarray, limit: int, seed: int) -> np.ndarray:
    """Ascending indices `(min(limit, N),)` of a class-balanced choice that `seed` alone decides.

    Classes take turns until `limit` images are chosen, so their shares differ by at most one unless a class has
    run out. A smaller choice with the same seed lies inside a larger one: 1 % of the data is part of the 10 %.
    """
    limit = whole(limit, "limit")
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(labels))
    turn_of_class = rng.permutation(int(labels.max()) + 1)
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    ordered = labels[by_class]
    rank = np.arange(len(labels)) - np.searchsorted(ordered, ordered)
    turns = np.lexsort((turn_of_class[ordered], rank))
    return np.sort(by_class[turns[:limit]])


def whole(value: Any, what: str, least: int = 1) -> int:
    """`value` as an int; raises `ValueError` unless it is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{what} must be a whole number of at least {least}, not {value!r}.")
    return int(value)
