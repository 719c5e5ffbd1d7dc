"""Shifts by hand, and layers whose equivariance is known: exact, exact at multiples of the stride, or none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from vitlab.analysis import equivariance as eq

# Whole numbers, so that sums are exact in any order: a matrix product rounds differently from place to place, and
# zero error is to mean zero.
IMAGES = torch.randint(-9, 10, (3, 2, 16, 16), generator=torch.manual_seed(0)).double()


def conv(kernel, stride, padding, mode="circular"):
    torch.manual_seed(1)
    layer = nn.Conv2d(2, 5, kernel, stride, padding, padding_mode=mode, dtype=torch.float64)
    for p in layer.parameters():
        p.data = torch.randint(-5, 6, p.shape).double()
    return layer


def patch_embed(patch):
    layer = conv(patch, patch, 0, "zeros")
    return lambda x: layer(x).flatten(2).mT  # tokens (batch, patches, dim)


def test_shift_by_hand_in_every_mode():
    x = np.arange(4)[None].repeat(2, 0)
    assert eq.shift(x, 1, 0).tolist() == [[3, 0, 1, 2]] * 2
    assert eq.shift(x, 1, 0, "zero").tolist() == [[0, 0, 1, 2]] * 2
    assert eq.shift(x, 2, 0, "reflect").tolist() == [[2, 1, 0, 1]] * 2
    assert eq.shift(x, -1, 0, "reflect").tolist() == [[1, 2, 3, 2]] * 2
    assert eq.shift(x, -1, 0, "zero").tolist() == [[1, 2, 3, 0]] * 2
    assert eq.shift(x.T, 0, 1).T.tolist() == [[3, 0, 1, 2]] * 2  # dy moves down


def test_shift_agrees_with_roll_and_with_numpy_padding():
    x = torch.arange(2 * 5 * 7.0).reshape(2, 5, 7)
    for dx, dy in [(0, 0), (3, -2), (-6, 4), (9, 13)]:
        assert torch.equal(eq.shift(x, dx, dy), torch.roll(x, (dy, dx), (-2, -1)))
    padded = np.pad(x.numpy(), ((0, 0), (3, 3), (4, 4)), mode="reflect")
    for dx, dy in [(4, 3), (-4, 2), (1, -3)]:
        want = padded[:, 3 - dy : 8 - dy, 4 - dx : 11 - dx]
        np.testing.assert_array_equal(eq.shift(x.numpy(), dx, dy, "reflect"), want)
        padded_zero = np.pad(x.numpy(), ((0, 0), (3, 3), (4, 4)))
        np.testing.assert_array_equal(
            eq.shift(x.numpy(), dx, dy, "zero"), padded_zero[:, 3 - dy : 8 - dy, 4 - dx : 11 - dx]
        )
    assert not eq.shift(x, 7, 0, "zero").any() and not eq.shift(x, 0, -99, "zero").any()


@settings(deadline=None, max_examples=30)
@given(a=st.integers(-20, 20), b=st.integers(-20, 20), c=st.integers(-20, 20), d=st.integers(-20, 20))
def test_circular_shifts_add_and_go_back(a, b, c, d):
    x = torch.arange(42).reshape(6, 7)
    assert torch.equal(eq.shift(eq.shift(x, a, b), c, d), eq.shift(x, a + c, b + d))
    assert torch.equal(eq.shift(eq.shift(x, a, b), -a, -b), x)


def test_a_circular_convolution_of_stride_1_is_exactly_equivariant():
    error = eq.feature_shift_error(conv(3, 1, 1), IMAGES, [0, 1, 2, 5, (3, -4), (0, 7)], stride=1)
    assert error.shape == (6, 3) and (error == 0).all()


@pytest.mark.parametrize("stride", [2, 4])
@pytest.mark.parametrize("match", ["nearest", "best", "linear"])
def test_a_strided_convolution_only_at_multiples_of_its_stride(stride, match):
    shifts = [*range(-4, 9), (stride, 1), (stride, -stride)]
    layer = conv(stride + 1, stride, (stride + 1) // 2) if stride == 2 else conv(4, 4, 0)
    error = eq.feature_shift_error(layer, IMAGES, shifts, stride, match=match)
    for by, e in zip(shifts, error, strict=True):
        multiple = all(d % stride == 0 for d in (by if isinstance(by, tuple) else (by,)))
        assert (e == 0).all() if multiple else (e > 0.05).all(), by


@pytest.mark.parametrize("match", ["nearest", "best", "linear"])
def test_a_patch_embedding_only_at_multiples_of_the_patch(match):
    error = eq.feature_shift_error(patch_embed(4), IMAGES, range(9), 4, grid=(4, 4), match=match)
    assert [bool((e == 0).all()) for e in error] == [d % 4 == 0 for d in range(9)]


def test_positions_break_it_and_what_stands_before_the_patches_is_dropped():
    embed, positions = patch_embed(4), 100 * torch.randn(16, 5, generator=torch.manual_seed(2)).double()

    def with_cls(x):
        tokens = embed(x)
        cls = x.flatten(1)[:, :1, None].expand(-1, 2, 5)  # anything but equivariant
        return torch.cat([cls, tokens], 1)

    assert (eq.feature_shift_error(with_cls, IMAGES, [4, (8, -4)], 4, grid=(4, 4)) == 0).all()
    moved = eq.feature_shift_error(lambda x: embed(x) + positions, IMAGES, [0, 4], 4, grid=(4, 4))
    assert (moved[0] == 0).all() and (moved[1] > 0.1).all()


def test_matches_by_hand():
    """Features are the left pixel of each pair: of x = 0 1 2 3 they are 0 2, and moved by one pixel 3 1."""
    x = torch.arange(4.0)[None, None, None].repeat(1, 1, 2, 1)

    def left(images):
        return images[:, :, ::2, ::2]

    def error(match):
        return eq.feature_shift_error(left, x, [1], 2, match=match)[0, 0]

    assert error("nearest") == pytest.approx(np.sqrt((3 - 2) ** 2 + (1 - 0) ** 2) / 2)  # moved by one: 2 0
    assert error("best") == pytest.approx(np.sqrt(2) / 2)  # not moved, 0 2, would give sqrt(9 + 1)
    assert error("linear") == pytest.approx(np.sqrt((3 - 1) ** 2 + 0) / np.sqrt(2))  # half of each: 1 1


def test_best_is_never_worse_than_nearest():
    layer = patch_embed(4)
    shifts = [1, 2, 3, (1, 2), (3, 3)]
    best = eq.feature_shift_error(layer, IMAGES, shifts, 4, grid=(4, 4), match="best")
    nearest = eq.feature_shift_error(layer, IMAGES, shifts, 4, grid=(4, 4))
    assert (best <= nearest).all()


def test_relative_to_variation_is_one_for_unrelated_features_and_blind_to_what_all_share():
    def unrelated(x):
        return torch.randn(
            len(x),
            50,
            16,
            16,
            generator=torch.Generator().manual_seed(int(x[0, 0, 0].sum() * 7 + x[0, 0, 0, 0]) % 999),
        )

    error = eq.feature_shift_error(unrelated, IMAGES, [1, 5], 1, relative_to="variation")
    assert error == pytest.approx(1, abs=0.05)

    def shared(x):
        return 1000 + unrelated(x)

    assert (eq.feature_shift_error(shared, IMAGES, [1], 1) < 0.01).all()
    assert eq.feature_shift_error(shared, IMAGES, [1], 1, relative_to="variation") == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("mode", ["zero", "reflect"])
@pytest.mark.parametrize("by", [4, -4, (8, -4), (0, 12), 3, -5])
def test_only_cells_that_saw_no_border_are_compared(mode, by):
    """A patch embedding has no context: away from the border it is as equivariant padded as it is circular."""
    error = eq.feature_shift_error(patch_embed(4), IMAGES, [by], 4, grid=(4, 4), mode=mode)
    multiple = all(d % 4 == 0 for d in (by if isinstance(by, tuple) else (by,)))
    assert (error == 0).all() if multiple else (error > 0.1).all()


@pytest.mark.parametrize("mode", ["zero", "reflect"])
@pytest.mark.parametrize("by", [1, 3, -1, -5, (2, -1)])
def test_a_cell_that_saw_the_border_in_part_is_left_out(mode, by):
    """Patch means of a ramp move linearly, so the linear match is exact wherever no border was seen."""
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    ramp = (3 * y + x + 1)[None, None]
    error = eq.feature_shift_error(nn.AvgPool2d(4), ramp, [by], 4, mode=mode, match="linear")
    assert error == pytest.approx(0, abs=1e-12)


def test_prediction_flips_and_logit_error_by_hand():
    """Logits read one pixel: moved away, the prediction follows the pixel that comes."""

    def corner(x):
        return torch.stack([x[:, 0, 0, 0], -x[:, 0, 0, 0]], 1)

    x = torch.zeros(2, 1, 2, 2)
    x[0, 0, 0], x[1, 0, 0] = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 3.0])
    assert eq.prediction_flips(corner, x, [0, 1, 2]).tolist() == [[False, False], [True, False], [False, False]]
    np.testing.assert_allclose(eq.logit_error(corner, x, [0, 1, 2]), [[0, 0], [3, 0], [0, 0]])


def test_logit_error_ignores_what_softmax_ignores():
    def fn(x):
        return torch.stack([x[:, 0, 0, 0], x[:, 0, 0, 1] + 0.5], 1)  # whole numbers could tie

    plain = eq.logit_error(fn, IMAGES, [1, (0, 3)])
    lifted = eq.logit_error(lambda x: fn(x) + 50 * x.sum((1, 2, 3))[:, None] + 9, IMAGES, [1, (0, 3)])
    np.testing.assert_allclose(lifted, plain)


def test_pooling_over_all_places_is_invariant():
    layer = conv(3, 1, 1)

    def pooled(x):
        return layer(x).relu().mean((2, 3))

    assert not eq.prediction_flips(pooled, IMAGES, range(8)).any()
    assert eq.logit_error(pooled, IMAGES, range(8)).max() < 1e-14


def test_numpy_images_and_no_graph():
    layer = conv(3, 1, 1)
    assert (eq.feature_shift_error(layer, IMAGES.numpy(), [2], 1) == 0).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: eq.shift(IMAGES, 1, 0, "wrap"), "'circular', 'zero' or 'reflect'"),
        (lambda: eq.shift(IMAGES, 0.5, 0), "whole pixels"),
        (lambda: eq.shift(np.zeros(3), 1, 0), "height, width"),
        (lambda: eq.feature_shift_error(conv(3, 1, 1), IMAGES[0], [1], 1), r"\(batch, channels, height, width\)"),
        (lambda: eq.feature_shift_error(conv(3, 1, 1), IMAGES.int(), [1], 1), "floats"),
        (lambda: eq.feature_shift_error(conv(3, 1, 1), IMAGES * np.nan, [1], 1), "finite"),
        (lambda: eq.feature_shift_error(conv(3, 1, 1), IMAGES, [1], 2), "do not tile"),
        (lambda: eq.feature_shift_error(patch_embed(4), IMAGES, [1], 4), "with their grid"),
        (lambda: eq.feature_shift_error(patch_embed(4), IMAGES, [1], 4, grid=(5, 5)), "at least as many tokens"),
        (
            lambda: eq.feature_shift_error(patch_embed(4), IMAGES, [1], 4, grid=(4, 4), match="all"),
            "nearest, best",
        ),
        (lambda: eq.feature_shift_error(patch_embed(4), IMAGES, [16], 4, (4, 4), "zero"), "no cell"),
        (lambda: eq.feature_shift_error(torch.zeros_like, IMAGES, [1], 1), "all zero"),
        (lambda: eq.feature_shift_error(lambda x: x * np.inf, IMAGES, [1], 1), "one finite tensor"),
        (lambda: eq.prediction_flips(lambda x: x, IMAGES, [1]), "logits"),
        (lambda: eq.logit_error(lambda x: x.new_ones(len(x), 3), IMAGES, [1]), "all equal"),
    ],
)
def test_bad_input_gets_one_sentence(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)
