"""Probes: a vote that can be counted by hand, the same as scikit-learn's, and blind to what should not matter."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from vitlab.analysis import probes

SEEDS = st.integers(0, 10_000)


def clusters(seed: int, stored: int = 60, new: int = 30, dim: int = 8, classes: int = 4, apart: float = 1.0):
    """Features in overlapping clusters, their labels (from 3 on, to catch whoever takes them for indices)."""
    rng = np.random.default_rng(seed)
    centres = apart * rng.normal(size=(classes, dim))
    labels = rng.permutation(np.arange(stored + new) % classes)  # each class has members
    rows = centres[labels] + rng.normal(size=(stored + new, dim))
    return rows[:stored], labels[:stored] + 3, rows[stored:], labels[stored:] + 3


@given(SEEDS, st.integers(1, 60), st.sampled_from([0.02, 0.07, 1.0]))
@settings(deadline=None, max_examples=60)
def test_knn_votes_as_scikit_learn_does(seed: int, k: int, temperature: float) -> None:
    stored, labels, new, _ = clusters(seed)
    theirs = KNeighborsClassifier(
        k, metric="cosine", algorithm="brute", weights=lambda distance: np.exp((1 - distance) / temperature)
    )
    np.testing.assert_array_equal(
        probes.knn(stored, labels, new, k, temperature), theirs.fit(stored, labels).predict(new)
    )


def test_two_far_outvote_one_near_only_where_the_temperature_is_high() -> None:
    """Cosines 1, 0.9 and 0.9: 2 exp(0.9 / tau) beats exp(1 / tau) where tau > 0.1 / ln 2 = 0.1443."""
    stored = np.array([[1, 0, 0], [0.9, np.sqrt(0.19), 0], [0.9, 0, np.sqrt(0.19)]])
    labels, new = np.array([7, 5, 5]), np.array([[2.0, 0, 0]])
    assert probes.knn(stored, labels, new, 3, 0.144) == [7]
    assert probes.knn(stored, labels, new, 3, 0.145) == [5]
    assert probes.knn(stored, labels, new, 1, 0.145) == [7]


@given(SEEDS, st.integers(1, 20))
@settings(deadline=None, max_examples=60)
def test_knn_sees_directions_only(seed: int, k: int) -> None:
    stored, labels, new, _ = clusters(seed)
    rng = np.random.default_rng(seed)
    mine = 10.0 ** rng.uniform(-200, 200, (len(stored), 1)), 10.0 ** rng.uniform(-200, 200, (len(new), 1))
    np.testing.assert_array_equal(
        probes.knn(stored * mine[0], labels, new * mine[1], k), probes.knn(stored, labels, new, k)
    )


@given(SEEDS, st.integers(1, 36))
@settings(deadline=None, max_examples=60)
def test_knn_does_not_see_the_order_of_the_store_even_where_copies_tie_for_the_last_place(
    seed: int, k: int
) -> None:
    rng = np.random.default_rng(seed)
    stored = np.repeat(rng.normal(size=(12, 4)), 3, axis=0)  # three of each and two classes: no vote is tied
    labels, new = rng.integers(0, 2, 36), np.vstack([rng.normal(size=(9, 4)), np.zeros((1, 4))])
    order = rng.permutation(36)
    np.testing.assert_array_equal(
        probes.knn(stored[order], labels[order], new, k), probes.knn(stored, labels, new, k)
    )


def test_all_that_tie_for_the_last_place_vote() -> None:
    stored, new = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 1.0], [0.0, 5.0]]), np.array([[0.5, 3.0]])
    for labels in ([0, 1, 2, 2], [0, 2, 1, 2], [0, 2, 2, 1]):
        assert probes.knn(stored, labels, new, k=1) == [2]
    # Also where dividing by different lengths has left their cosines a few units of the last digit apart.
    rng = np.random.default_rng(0)
    copies = rng.normal(size=7) * rng.uniform(0.1, 10, (50, 1))
    assert (probes.knn(copies, [5] * 20 + [6] * 30, rng.normal(size=(100, 7)), k=1) == 6).all()


def test_a_vector_of_zeros_and_collapsed_features_give_the_commonest_class() -> None:
    stored, _, new, _ = clusters(0)
    labels = np.repeat([4, 9], [25, 35])
    assert probes.knn(stored, labels, np.zeros((2, 8)), k=3).tolist() == [9, 9]
    assert probes.knn(np.ones((60, 8)), labels, np.ones((2, 8)), k=3).tolist() == [9, 9]
    assert probes.knn(np.zeros((60, 8)), labels, new[:2], k=3).tolist() == [9, 9]
    assert probes.linear(np.ones((60, 8)), labels, new[:2]).tolist() == [9, 9]
    # A stored zero is as far as what stands at a right angle, nearer than what points away.
    assert probes.knn([[0.0, 0.0], [-1.0, 0.0]], [1, 2], [[1.0, 0.0]], k=1) == [1]


def test_knn_tells_apart_what_an_untrained_network_puts_within_a_millionth() -> None:
    rng = np.random.default_rng(0)
    near = np.ones(16) + 1e-6 * rng.normal(size=(20, 16))
    np.testing.assert_array_equal(probes.knn(near, np.arange(20), near, k=1), np.arange(20))


def test_knn_in_chunks_is_knn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, labels, new, _ = clusters(1)
    whole = probes.knn(stored, labels, new)
    for similarities in (1, 7 * len(stored), 29 * len(stored)):  # 1, 7 and 29 of the 30 new rows at a time
        monkeypatch.setattr(probes, "CHUNK", similarities)
        np.testing.assert_array_equal(probes.knn(stored, labels, new), whole)


@pytest.mark.parametrize("probe", [probes.knn, probes.linear])
def test_probes_find_what_is_there_and_nothing_where_nothing_is(probe: Callable) -> None:
    stored, labels, new, truth = clusters(2, 400, 400, apart=3.0)
    assert (probe(stored, labels, new) == truth).mean() > 0.95
    shuffled = np.random.default_rng(0).permutation(labels)
    assert (probe(stored, shuffled, new) == truth).mean() == pytest.approx(0.25, abs=0.1)


@pytest.mark.parametrize("probe", [probes.knn, probes.linear])
def test_probes_take_tensors_arrays_and_lists_alike(probe: Callable) -> None:
    stored, labels, new, _ = clusters(3)
    plain = probe(stored, labels, new)
    tensors = [torch.tensor(x) for x in (stored, labels, new)]
    assert isinstance(plain, np.ndarray) and plain.shape == (30,)
    np.testing.assert_array_equal(probe(*tensors), plain)
    np.testing.assert_array_equal(probe(stored.tolist(), labels.tolist(), new.tolist()), plain)


@given(SEEDS)
@settings(deadline=None, max_examples=20)
def test_the_linear_probe_does_not_see_the_units_of_a_feature(seed: int) -> None:
    stored, labels, new, _ = clusters(seed, apart=2.0)
    rng = np.random.default_rng(seed)
    scale, offset = 10.0 ** rng.uniform(-3, 3, 8), 100 * rng.normal(size=8)
    agree = probes.linear(stored * scale + offset, labels, new * scale + offset) == probes.linear(
        stored, labels, new
    )
    assert agree.mean() > 0.95  # a row on the border may fall to either side of it


def test_two_points_are_parted_halfway() -> None:
    np.testing.assert_array_equal(probes.linear([[-3.0], [5.0]], [0, 1], [[0.9], [1.1]]), [0, 1])


def test_a_strong_penalty_leaves_only_how_common_a_class_is() -> None:
    """The intercept is not penalised, so with no weights the commonest class wins everywhere."""
    stored, new = [[-2.0], [1.0], [1.0]], [[-2.0], [1.0]]
    assert probes.linear(stored, [0, 1, 1], new, strength=1e6).tolist() == [1, 1]
    assert probes.linear(stored, [0, 1, 1], new, strength=0.1).tolist() == [0, 1]


def test_the_linear_probe_leaves_out_what_was_constant_among_the_stored() -> None:
    stored, labels, new, _ = clusters(4)
    dead, alive = np.full((60, 1), 0.1), 1e9 * np.arange(30.0)[:, None]
    np.testing.assert_array_equal(
        probes.linear(np.hstack([stored, dead]), labels, np.hstack([new, alive])),
        probes.linear(stored, labels, new),
    )


def test_the_linear_probe_converges_without_a_word_and_the_same_way_twice() -> None:
    rng = np.random.default_rng(0)
    stored, labels, new, _ = clusters(5, 500, 100, dim=32, classes=20)
    mixed = 100 + rng.normal(size=(32, 32)) * 10.0 ** rng.uniform(-3, 3, 32)  # ill-conditioned on purpose
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        once = probes.linear(stored @ mixed, labels, new @ mixed)
    np.testing.assert_array_equal(probes.linear(stored @ mixed, labels, new @ mixed), once)


@pytest.mark.parametrize("probe", [probes.knn, probes.linear])
def test_what_does_not_fit_is_refused_in_a_sentence(probe: Callable) -> None:
    stored, labels, new, _ = clusters(6)
    for bad in (new[:, :7], new[0], new[:0]):
        with pytest.raises(ValueError, match="rows of one width"):
            probe(stored, labels, bad)
    for wrong in (labels[:-1], labels.astype(float), labels[:, None]):
        with pytest.raises(ValueError, match="one label, a whole number"):
            probe(stored, wrong, new)
    for which in (0, 2):
        given = [stored.copy(), labels, new.copy()]
        given[which][3, 3] = np.nan
        with pytest.raises(ValueError, match="NaN or infinity"):
            probe(*given)


def test_settings_out_of_range_are_refused() -> None:
    stored, labels, new, _ = clusters(7)
    for k in (0, 61):
        with pytest.raises(ValueError, match=f"1 to 60, as many as are stored, got k={k}"):
            probes.knn(stored, labels, new, k)
    for low in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="temperature of a vote is positive"):
            probes.knn(stored, labels, new, temperature=low)
        with pytest.raises(ValueError, match="strength is positive"):
            probes.linear(stored, labels, new, strength=low)
    with pytest.raises(ValueError, match="two classes or more, got only 3"):
        probes.linear(stored, np.full(60, 3), new)
