"""ImageSet holds its parts together; balanced choices are balanced, nested and decided by the seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.data import ImageSet
from vitlab.data.imageset import balanced


def make(n: int = 6, classes: int = 3) -> ImageSet:
    images = np.arange(n * 4 * 5 * 3, dtype=np.int64).astype(np.uint8).reshape(n, 4, 5, 3)
    return ImageSet(images, np.arange(n) % classes, tuple("abcdefgh"[:classes]), "made", "train")


def test_tensor_is_channels_first_and_in_unit_range():
    s = make()
    t = s.tensor()
    assert t.shape == (6, 3, 4, 5) and t.dtype == torch.float32 and t.is_contiguous()
    assert t[2, 1, 3, 4].item() == pytest.approx(s.images[2, 3, 4, 1] / 255)
    assert t.min() >= 0 and t.max() <= 1
    t.zero_()
    assert s.images.any(), "the tensor is a copy"


def test_arrays_are_read_only_and_the_fields_frozen():
    source = np.zeros((2, 2, 2, 3), np.uint8)
    s = ImageSet(source, np.array([0, 1], np.int32), ("a", "b"), "made", "all")
    assert s.labels.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        s.images[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        s.labels[0] = 1
    with pytest.raises(AttributeError):
        s.name = "other"
    source[0] = 7  # the caller's own array stays the caller's


def test_repr_is_short_and_says_what_it_is():
    assert repr(make()) == "ImageSet('made', 'train': 6 images of 4x5, 3 classes)"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"images": np.zeros((2, 4, 4), np.uint8)}, r"\(N, H, W, 3\)"),
        ({"images": np.zeros((2, 3, 4, 4), np.uint8)}, r"\(N, H, W, 3\)"),
        ({"images": np.zeros((2, 4, 4, 3), np.float32)}, "uint8"),
        ({"images": np.zeros((0, 4, 4, 3), np.uint8), "labels": np.zeros(0, int)}, "at least one image"),
        ({"labels": np.zeros(3, int)}, "one integer label an image"),
        ({"labels": np.zeros(2)}, "one integer label an image"),
        ({"labels": np.array([0, 5])}, r"0\.\.1"),
        ({"labels": np.array([0, -1])}, r"0\.\.1"),
        ({"classes": ("a", "a")}, "different"),
        ({"classes": ()}, "different"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change, words):
    parts = {"images": np.zeros((2, 4, 4, 3), np.uint8), "labels": np.array([0, 1]), "classes": ("a", "b")}
    with pytest.raises(ValueError, match=words):
        ImageSet(**(parts | change), name="made", split="all")


def test_subset_takes_indices_in_order_and_masks():
    s = make()
    assert np.array_equal(s.subset([4, 0]).images, s.images[[4, 0]])
    assert np.array_equal(s.subset([-1]).labels, s.labels[[-1]])
    assert np.array_equal(s.subset(s.labels == 1).images, s.images[[1, 4]])
    for bad, error in (([], ValueError), ([0.5], ValueError), ([[0]], ValueError), ([6], IndexError)):
        with pytest.raises(error):
            s.subset(bad)
    with pytest.raises(ValueError, match="mask"):
        s.subset(np.ones(5, bool))


@settings(deadline=None, max_examples=80)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=120), st.floats(0, 1.2), st.integers(0, 2**32))
def test_balanced_takes_turns(labels, part, seed):
    """No class has two images more than another that still had some to give."""
    labels = np.array(labels)
    limit = max(1, round(part * len(labels)))
    chosen = balanced(labels, limit, seed)
    assert len(chosen) == min(limit, len(labels))
    assert np.array_equal(chosen, np.unique(chosen)), "ascending, none twice"
    have, taken = np.bincount(labels), np.bincount(labels[chosen], minlength=labels.max() + 1)
    could_give = taken[taken < have]
    if len(could_give):
        assert taken.max() - could_give.min() <= 1
    assert np.array_equal(chosen, balanced(labels, limit, seed))
    assert set(balanced(labels, max(1, limit // 2), seed)) <= set(chosen), "nested"


def test_a_class_that_runs_out_leaves_its_share_to_the_others():
    labels = np.repeat([0, 1, 2], [100, 5, 50])
    assert sorted(np.bincount(labels[balanced(labels, 30, 0)]).tolist()) == [5, 12, 13]


def test_balanced_differs_by_seed():
    labels = np.repeat(np.arange(10), 100)
    assert not np.array_equal(balanced(labels, 50, 0), balanced(labels, 50, 1))
