"""Attention distance, entropy and rollout by hand, on grids small enough to count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.analysis import attention


def softmax(shape, seed=0):
    return torch.randn(shape, generator=torch.manual_seed(seed)).mul(3).softmax(-1)


def uniform(tokens, heads=1):
    return np.full((1, heads, tokens, tokens), 1 / tokens)


def test_distance_on_a_row_of_three_patches_by_hand():
    """Patches at 0, 4, 8 px. Without CLS the rows are (1 2 1)/4, (1 2 1)/4 and (1 1 0)/2."""
    a = np.array([[[[0.4, 0.2, 0.2, 0.2],
                    [0.6, 0.1, 0.2, 0.1],
                    [0.2, 0.2, 0.4, 0.2],
                    [0.0, 0.5, 0.5, 0.0]]]])  # fmt: skip
    assert attention.distance(a, (1, 3), 4) == pytest.approx([((2 * 4 + 8) / 4 + (4 + 4) / 4 + (8 + 4) / 2) / 3])


def test_distance_is_euclidean_and_rows_come_first():
    """A query at (0, 0) of a 2 x 3 grid that looks at (1, 2): sqrt(1 + 4) patches away."""
    a = np.tile(np.eye(6), (1, 1, 1, 1))
    a[0, 0, 0] = np.eye(6)[5]
    assert attention.distance(a, (2, 3), 10, prefix=0) == pytest.approx([10 * np.sqrt(5) / 6])


def test_references_are_those_of_the_course():
    assert attention.uniform_distance((14, 14), 16) == pytest.approx(116.5, abs=0.05)
    assert attention.uniform_distance((8, 8), 4) == pytest.approx(16.5, abs=0.05)
    assert attention.local_distance((14, 14), 16) == pytest.approx(16.7, abs=0.05)


def test_uniform_distance_of_2_by_2_by_hand():
    assert attention.uniform_distance((2, 2), 1) == pytest.approx((0 + 1 + 1 + np.sqrt(2)) / 4)


def test_local_distance_by_hand_and_at_its_ends():
    """On 1 x 3 with window 3: (1/2, 2/3, 1/2); window 1 stays at home; a wide one sees everything alike."""
    assert attention.local_distance((1, 3), 1) == pytest.approx((1 / 2 + 2 / 3 + 1 / 2) / 3)
    assert attention.local_distance((5, 4), 16, window=1) == 0
    assert attention.local_distance((5, 4), 16, window=9) == pytest.approx(attention.uniform_distance((5, 4), 16))


def test_uniform_weights_have_the_uniform_distance_whatever_the_prefix():
    for prefix in (0, 1, 2, 5):
        got = attention.distance(uniform(prefix + 12, heads=3), (3, 4), 16, prefix)
        assert got == pytest.approx([attention.uniform_distance((3, 4), 16)] * 3)


def test_heads_and_images_stay_apart():
    near, far = np.eye(4), np.eye(4)[[3, 2, 1, 0]]
    a = np.stack([np.stack([near, far]), np.stack([far, far])])
    d = np.sqrt(2)
    assert attention.distance(a, (2, 2), 1, prefix=0) == pytest.approx([d / 2, d])
    np.testing.assert_allclose(attention.distance(a, (2, 2), 1, 0, per_image=True), [[0, d], [d, d]])
    assert attention.entropy(a, per_image=True).shape == (2, 2)


def test_a_query_that_looks_only_at_cls_is_left_out():
    a = np.array([[[[1, 0, 0], [1, 0, 0], [0, 0.5, 0.5]]]])
    assert attention.distance(a, (1, 2), 6) == pytest.approx([3])
    a[0, 0, 2] = [1, 0, 0]
    with pytest.raises(ValueError, match="looks at no patch"):
        attention.distance(a, (1, 2), 6)


def test_entropy_by_hand():
    """Rows of entropy 0, ln 2 and ln 4."""
    a = np.array([[[[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25] * 4, [0, 0, 0, 1]]]])
    assert attention.entropy(a) == pytest.approx([(np.log(2) + np.log(4)) / 4])
    assert attention.entropy(a, normalised=True) == pytest.approx([(np.log(2) + np.log(4)) / 4 / np.log(4)])
    without = (0 + 0 + np.log(3)) / 3  # rows (1, 0, 0), thirds, (0, 0, 1) of the patches; the CLS query goes too
    assert attention.entropy(a, prefix=1) == pytest.approx([without])
    assert attention.entropy(uniform(7), normalised=True) == pytest.approx([1])


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), tokens=st.integers(2, 9))
def test_entropy_lies_between_one_key_and_all(seed, tokens):
    value = attention.entropy(softmax((2, 3, tokens, tokens), seed), normalised=True)
    assert ((value >= 0) & (value <= 1)).all()


def test_rollout_of_two_layers_by_hand():
    """R = (A2 + I)/2 (A1 + I)/2 with A1 moving everyone to token 1 and A2 to token 2."""
    a1, a2 = np.zeros((1, 1, 3, 3)), np.zeros((1, 1, 3, 3))
    a1[..., 1], a2[..., 2] = 1, 1
    R = [[0.25, 0.5, 0.25], [0, 0.75, 0.25], [0, 0.5, 0.5]]
    want = (np.eye(3) + a2[0, 0]) / 2 @ ((np.eye(3) + a1[0, 0]) / 2)
    want = want.tolist()
    assert want == [[0.25, 0.5, 0.25], [0.0, 0.75, 0.25], [0.0, 0.5, 0.5]] == R
    np.testing.assert_allclose(attention.rollout([a1, a2], "all"), [R])
    np.testing.assert_allclose(attention.rollout([a1, a2]), [R[0]])
    np.testing.assert_allclose(attention.rollout([a1, a2], "mean"), [np.mean(R[1:], 0)])
    np.testing.assert_allclose(attention.rollout([a1, a2], "mean", prefix=0), [np.mean(R, 0)])
    assert not np.allclose(attention.rollout([a2, a1], "all"), [R])  # the order of layers matters


def test_rollout_averages_heads_and_sums_to_one():
    layers = [softmax((4, 3, 5, 5), s) for s in range(6)]
    rolled = attention.rollout(layers, "all")
    np.testing.assert_allclose(rolled.sum(-1), 1)
    averaged = [a.mean(1, keepdim=True) for a in layers]
    np.testing.assert_allclose(attention.rollout(averaged, "all"), rolled, rtol=1e-6)
    np.testing.assert_allclose(attention.rollout(layers, "cls"), rolled[:, 0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_accepted(dtype):
    a = softmax((1, 2, 50, 50)).to(dtype)
    assert attention.distance(a, (7, 7), 16) == pytest.approx(attention.distance(a.double(), (7, 7), 16))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: attention.distance(torch.randn(1, 1, 5, 5), (2, 2), 16), "after the softmax"),
        (lambda: attention.distance(2 * uniform(5), (2, 2), 16), "after the softmax"),
        (lambda: attention.distance(np.full((1, 1, 5, 5), np.nan), (2, 2), 16), "after the softmax"),
        (
            lambda: attention.distance(uniform(5)[0], (2, 2), 16),
            r"\(batch, heads, tokens, tokens\), got \(1, 5, 5\)",
        ),
        (lambda: attention.distance(uniform(6), (2, 2), 16), r"1 \+ 2x2 tokens, got 6"),
        (lambda: attention.distance(uniform(4), (2, 2), 16), r"mind the grid and the prefix"),
        (lambda: attention.distance(uniform(5), (2, 2), 0), "some pixels"),
        (lambda: attention.uniform_distance((0, 2), 16), "rows by columns"),
        (lambda: attention.local_distance((2, 2), 16, window=2), "odd"),
        (lambda: attention.entropy(uniform(3), prefix=3), "more than 3 tokens"),
        (lambda: attention.entropy(uniform(1), normalised=True), "ln 1 = 0"),
        (lambda: attention.rollout([]), "a list with one array"),
        (lambda: attention.rollout(uniform(3)), "a list with one array"),
        (lambda: attention.rollout([uniform(3), uniform(4)]), "share one shape"),
        (lambda: attention.rollout([uniform(3)], "first"), "'cls', 'mean' or 'all'"),
        (lambda: attention.rollout([uniform(3)], "cls", prefix=0), "no CLS token"),
        (lambda: attention.rollout([uniform(3)], "mean", prefix=3), "leaves no patch"),
    ],
)
def test_bad_input_gets_one_sentence(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)
