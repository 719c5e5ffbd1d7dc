"""Fewer classes, fewer images: which ones, in which order, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from vitlab.data import ImageSet
from vitlab.data.few import share, some_classes


def made(each: int = 8, classes: int = 10) -> ImageSet:
    """Images whose first pixel is their number, with labels in turn."""
    count = each * classes
    images = np.zeros((count, 2, 2, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(count)
    return ImageSet(images, np.arange(count) % classes, tuple(map(str, range(classes))), "made", "train")


def test_classes_are_taken_evenly_and_numbered_anew():
    few = some_classes(made(), 5)
    assert few.classes == ("0", "2", "4", "6", "8") and len(few) == 40
    numbers = few.images[:, 0, 0, 0].astype(int)
    assert np.array_equal(few.labels, numbers % 10 // 2)
    assert (few.name, few.split) == ("made", "train")
    assert some_classes(made(), 3).classes == ("0", "3", "6")
    assert np.array_equal(some_classes(made(), 10).images, made().images)


def test_a_share_has_all_classes_alike_and_lies_inside_a_larger_one():
    whole = made()
    half, eighth, least = (share(whole, f, seed=3) for f in (0.5, 0.125, 0.001))
    assert np.bincount(half.labels).tolist() == [4] * 10
    assert np.bincount(eighth.labels).tolist() == np.bincount(least.labels).tolist() == [1] * 10
    assert set(eighth.images[:, 0, 0, 0]) < set(half.images[:, 0, 0, 0])
    assert len(share(whole, 1, 0)) == 80
    assert not np.array_equal(share(whole, 0.5, 4).images, half.images)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: some_classes(made(), 11), "has 10 classes, got 11; ask for fewer"),
        (lambda: some_classes(made(), 0), "whole number of at least 1"),
        (lambda: some_classes(made().subset(np.arange(1, 4)), 5), "The class '0' has no image"),
        (lambda: share(made(), 0.0, 0), "lies above 0 and up to 1, got 0.0"),
        (lambda: share(made(), 1.5, 0), "got 1.5"),
        (lambda: share(made(), float("nan"), 0), "got nan"),
    ],
)
def test_what_cannot_be_taken_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
