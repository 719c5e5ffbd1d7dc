"""Less of an image set: some of its classes, and a share of its images, all classes alike."""

from __future__ import annotations

import numpy as np

from .imageset import ImageSet, balanced, whole


def some_classes(images: ImageSet, count: int) -> ImageSet:
    """The images of `count` classes, taken evenly from all there are; labels are numbered anew, from 0.

    Of 100 classes in alphabetical order, ten are the first, the eleventh, and so on.

    Raises:
        ValueError: fewer than one class, more than there are, or a class taken that has no image.
    """
    count = whole(count, "The number of classes")
    if count > len(images.classes):
        raise ValueError(f"{images!r} has {len(images.classes)} classes, got {count}; ask for fewer.")
    chosen = np.linspace(0, len(images.classes), count, endpoint=False).astype(int)
    kept = np.isin(images.labels, chosen)
    labels = np.searchsorted(chosen, images.labels[kept])
    empty = np.setdiff1d(np.arange(count), labels)
    if len(empty):
        name = images.classes[chosen[empty[0]]]
        raise ValueError(f"The class {name!r} has no image in {images!r}; load more of it.")
    names = tuple(images.classes[i] for i in chosen)
    return ImageSet(images.images[kept], labels, names, images.name, images.split)


def share(images: ImageSet, fraction: float, seed: int) -> ImageSet:
    """A share of the images, decided by the seed: classes alike, at least one image of each.

    With one seed a smaller share lies inside a larger one.

    Raises:
        ValueError: a fraction outside (0, 1].
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"A share of the images lies above 0 and up to 1, got {fraction}; name another.")
    count = max(len(images.classes), round(fraction * len(images)))
    return images.subset(balanced(images.labels, count, seed))
