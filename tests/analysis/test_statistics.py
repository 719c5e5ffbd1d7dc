"""Intervals against scipy, and against how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from vitlab.analysis import statistics


def test_seeds_interval_is_students():
    x = np.array([61.0, 64.0, 66.5])
    got = statistics.seeds_interval(x)
    want = scipy.stats.ttest_1samp(x, 0).confidence_interval(0.95)
    assert (got.mean, got.low, got.high) == pytest.approx((x.mean(), want.low, want.high))
    assert (got.high - got.mean) / scipy.stats.sem(x) == pytest.approx(4.303, abs=1e-3)


def test_interval_agrees_with_scipys_bootstrap():
    x = np.random.default_rng(0).exponential(size=200)
    got = statistics.interval(x, resamples=4000)
    want = scipy.stats.bootstrap((x,), np.mean, n_resamples=4000, method="percentile").confidence_interval
    assert got.mean == pytest.approx(x.mean())
    assert (got.low, got.high) == pytest.approx((want.low, want.high), abs=0.012)


def test_axes_levels_and_kinds():
    x = np.random.default_rng(0).standard_normal((4, 50))
    got = statistics.interval(torch.from_numpy(x), axis=1)
    assert got.mean.shape == got.low.shape == (4,) and (got.low < got.mean).all() and (got.mean < got.high).all()
    np.testing.assert_array_equal(statistics.interval(x.T).low, got.low)
    narrow = statistics.interval(x, axis=1, level=0.5)
    assert (narrow.low > got.low).all() and (narrow.high < got.high).all()
    assert statistics.seeds_interval(x, axis=0).mean.shape == (50,)
    assert statistics.bootstrap_images(np.ones((3, 10, 2, 5))).low.shape == (2, 5)


def test_images_stay_together_along_the_other_axes():
    """Entries that are equal image by image have equal intervals, and their difference none."""
    x = np.random.default_rng(0).standard_normal((30, 1)).repeat(2, 1)
    got = statistics.interval(x)
    assert got.low[0] == got.low[1]
    pair = statistics.interval(x[:, 0] - x[:, 1])
    assert pair.low == pair.high == 0


def test_the_same_seed_gives_the_same_interval():
    x = np.random.default_rng(0).standard_normal((3, 40))
    for f in (lambda s: statistics.interval(x[0], seed=s), lambda s: statistics.bootstrap_images(x, seed=s)):
        assert f(1) == f(1) and f(1) != f(2)


def test_constant_values_have_no_width():
    assert statistics.interval(np.full(20, 7.0)) == pytest.approx((7, 7, 7))
    assert statistics.bootstrap_images(np.full((3, 20), 7.0)) == pytest.approx((7, 7, 7))
    assert statistics.seeds_interval([7.0, 7.0]) == pytest.approx((7, 7, 7))


def test_both_sources_of_spread_are_counted_and_their_variances_are_unbiased():
    """The variance of the drawn means is that of seeds / S plus that of images / N, for either alone too."""
    rng = np.random.default_rng(0)
    S, N = 4, 50
    z = scipy.stats.norm.ppf(0.975)
    for seed_sd, image_sd in [(1, 0), (0, 1), (0.1, 1), (1, 1)]:
        widths = []
        for _ in range(40):
            x = seed_sd * rng.standard_normal((S, 1)) + image_sd * rng.standard_normal((1, N))
            got = statistics.bootstrap_images(x, resamples=400, seed=int(rng.integers(1e6)))
            widths.append(((got.high - got.low) / 2 / z) ** 2)
        want = seed_sd**2 / S + image_sd**2 / N
        assert np.mean(widths) == pytest.approx(want, rel=0.35)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    images = [statistics.interval(rng.standard_normal(60), resamples=300) for _ in range(300)]
    seeds = [statistics.seeds_interval(rng.standard_normal(3)) for _ in range(2000)]
    assert np.mean([i.low < 0 < i.high for i in images]) == pytest.approx(0.94, abs=0.04)
    assert np.mean([i.low < 0 < i.high for i in seeds]) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: statistics.interval([1.0, 2.0, 3.0]), "bootstrap over 3 values is too narrow"),
        (lambda: statistics.seeds_interval([1.0]), "two or more, got 1"),
        (lambda: statistics.bootstrap_images(np.ones((2, 50))), "three seeds and ten images"),
        (lambda: statistics.bootstrap_images(np.ones((3, 9))), "three seeds and ten images"),
        (lambda: statistics.bootstrap_images(np.ones(50)), "three seeds and ten images"),
        (lambda: statistics.interval([np.nan] * 20), "NaN"),
        (lambda: statistics.interval([]), "finite numbers along an axis"),
        (lambda: statistics.interval(np.ones(20), level=95), "between 0 and 1"),
        (lambda: statistics.interval(np.ones(20), axis=1), "axis"),
    ],
)
def test_bad_input_gets_one_sentence(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_crossed_interval_holds_the_bootstrap_and_the_seeds_t():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 40, 2)) + np.array([0.0, 1.0, 5.0])[:, None, None] * [1, 0]
    crossed = statistics.crossed_interval(values)
    drawn, student = statistics.bootstrap_images(values), statistics.seeds_interval(values.mean(1))
    np.testing.assert_array_equal(crossed.low, np.minimum(drawn.low, student.low))
    np.testing.assert_array_equal(crossed.high, np.maximum(drawn.high, student.high))
    np.testing.assert_allclose(crossed.mean, values.mean((0, 1)))
    assert crossed.low[0] == student.low[0]  # where seeds differ much, t is the wider
    with pytest.raises(ValueError, match="three seeds and ten images"):
        statistics.crossed_interval(values[:2])


@pytest.mark.parametrize(("low", "high", "says"), [(0.1, 2, 1), (-2, -0.1, -1), (-1, 1, 0), (0, 1, 0), (-1, 0, 0)])
def test_a_sign_is_decided_where_zero_lies_outside(low, high, says):
    assert statistics.sign(statistics.Interval((low + high) / 2, low, high)) == says


def test_intervals_of_several_places_come_apart_along_the_first_axis():
    mean = np.arange(6.0).reshape(3, 2)
    parts = statistics.apart(statistics.Interval(mean, mean - 1, mean + 2))
    assert len(parts) == 3
    np.testing.assert_array_equal(parts[1].low, [1, 2])
    np.testing.assert_array_equal(parts[2].high, [6, 7])
