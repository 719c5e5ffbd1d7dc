"""Corrections of the finite-sample bias, against enumeration, against simulation, and where they must fail."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.analysis import bias, spectra

few_rows = pytest.mark.filterwarnings("ignore:N = ")
relaxed = settings(deadline=None, max_examples=25)
D = 48
FLAT = np.ones(D)
SPECTRA = {
    "flat": FLAT,
    "power law, exponent 1": 1 / np.arange(1, D + 1),
    "power law, exponent 2": 1 / np.arange(1, D + 1) ** 2.0,
    "one spike": np.r_[10.0, np.ones(D - 1)],
    "rank 5": np.r_[np.ones(5), np.zeros(D - 5)],
}


def rows(spectrum, n, rng, tail=None):
    """Rows of the covariance diag(spectrum) exactly: Gaussian, or each scaled so that its tails are heavy."""
    X = rng.standard_normal((n, len(spectrum))) * np.sqrt(spectrum)
    if tail:
        X *= np.sqrt((tail - 2) / rng.chisquare(tail, (n, 1)))
    return X


def images(n, t, dim, rng, own=0.8):
    """Tokens (n, t, dim) of variance 1 that share `own` of it within an image."""
    return np.sqrt(own) * rng.standard_normal((n, 1, dim)) + np.sqrt(1 - own) * rng.standard_normal((n, t, dim))


def simulated(measure, draw, times=40):
    found = np.array([measure(draw(np.random.default_rng(seed))) for seed in range(times)])
    return found.mean(0), found.std(0, ddof=1) / math.sqrt(times)


# Unbiased traces


def enumerated(X):
    """Both traces over all choices of different images, factor by factor."""
    A, m = [x.T @ x / len(x) for x in X], [x.mean(0) for x in X]

    def over(k, term):
        return np.mean([term(*chosen) for chosen in itertools.permutations(range(len(X)), k)])

    lone = over(4, lambda a, b, c, d: (m[a] @ m[b]) * (m[c] @ m[d]))
    squared = over(2, lambda a, b: np.trace(A[a]) * np.trace(A[b])) + lone
    squared -= 2 * over(3, lambda a, b, c: np.trace(A[a]) * (m[b] @ m[c]))
    square = over(2, lambda a, b: np.trace(A[a] @ A[b])) - 2 * over(3, lambda a, b, c: m[a] @ A[b] @ m[c]) + lone
    return squared, square


@relaxed
@given(seed=st.integers(0, 2**31), n=st.integers(4, 6), t=st.integers(1, 6), dim=st.integers(1, 4))
def test_traces_are_the_sums_over_different_images(seed, n, t, dim):
    X = np.random.default_rng(seed).standard_normal((n, t, dim)) + 3
    np.testing.assert_allclose(bias.squared_traces(X), enumerated(X), rtol=1e-8, atol=1e-9)


def test_rows_are_images_of_one_token():
    X = np.random.default_rng(0).standard_normal((30, 5))
    assert bias.squared_traces(X) == bias.squared_traces(X[:, None])
    assert bias.participation_ratio_unbiased(X) == bias.participation_ratio_unbiased(torch.from_numpy(X)[:, None])


@pytest.mark.parametrize("tail", [None, 9])
@pytest.mark.parametrize("n", [12, 40, 200])
@pytest.mark.parametrize("name", SPECTRA)
def test_traces_are_unbiased_whatever_the_spectrum_rows_and_tails(name, n, tail):
    """Also below one row a feature, where every eigenvalue is wrong."""
    spectrum = SPECTRA[name]
    mean, error = simulated(bias.squared_traces, lambda rng: rows(spectrum, n, rng, tail) + 5, 4000 // n + 60)
    truth = np.array([spectrum.sum() ** 2, (spectrum**2).sum()])
    assert (abs(mean - truth) < 5 * error).all(), (mean, truth, error)


def test_traces_are_unbiased_for_tokens_that_are_alike_where_the_sample_covariance_is_not():
    n, t = 20, 16
    mean, error = simulated(bias.squared_traces, lambda rng: images(n, t, D, rng))
    assert (abs(mean - [D**2, D]) < 4 * error).all()
    as_rows, error = simulated(lambda X: bias.squared_traces(X.reshape(-1, D)), lambda rng: images(n, t, D, rng))
    assert as_rows[1] - D > 20 * error[1]  # taking tokens for independent rows


@few_rows
@pytest.mark.parametrize("n", [16, 32, 96])
def test_the_participation_ratio_is_mended_also_with_fewer_rows_than_features(n):
    plain, _ = simulated(
        lambda X: spectra.participation_ratio(spectra.eigenvalues(X)), lambda rng: rows(FLAT, n, rng)
    )
    mended, error = simulated(bias.participation_ratio_unbiased, lambda rng: rows(FLAT, n, rng))
    assert plain == pytest.approx(1 / (1 / D + 1 / (n - 1)), rel=0.05)  # harmonic: what few rows make of it
    assert abs(mended - D) < max(4 * error, 0.03 * D)


def test_a_large_mean_and_a_common_scale_do_not_matter_nor_single_precision():
    X = np.random.default_rng(0).standard_normal((60, 4, 10)) * np.linspace(1, 3, 10)
    want = bias.participation_ratio_unbiased(X)
    assert bias.participation_ratio_unbiased(7 * X + 1000) == pytest.approx(want, rel=1e-9)
    assert bias.participation_ratio_unbiased((X + 1000).astype(np.float32)) == pytest.approx(want, rel=2e-4)
    e = bias.entropy_extrapolated(X)
    assert bias.entropy_extrapolated((X + 1000).astype(np.float32)).entropy == pytest.approx(e.entropy, abs=1e-4)
    assert bias.entropy_extrapolated(7 * X + 1000) == pytest.approx(e, abs=1e-9)


# Entropy


@few_rows
@pytest.mark.parametrize(("dim", "n"), [(384, 1000), (384, 200), (100, 100), (60, 2000)])
def test_the_entropy_of_isotropic_rows_is_what_marchenko_and_pastur_say(dim, n):
    X = np.random.default_rng(0).standard_normal((n, dim))
    assert spectra.spectral_entropy(spectra.eigenvalues(X)) == pytest.approx(
        bias.isotropic_entropy(dim, n), abs=0.015
    )


def test_isotropic_384_features_at_1000_rows_lose_68_dimensions():
    assert math.exp(bias.isotropic_entropy(384, 1000)) == pytest.approx(316.9, abs=0.1)
    assert 384 * math.exp(bias.entropy_bias(np.ones(384), 1000)) == pytest.approx(316.7, abs=0.1)


@pytest.mark.parametrize("dim", [1, 2, 7, 50])
def test_the_first_order_of_a_flat_spectrum_in_closed_form(dim):
    assert bias.entropy_bias(np.full(dim, 3.0), 101) == pytest.approx(
        -(dim + 2) * (dim - 1) / (200 * dim), abs=1e-12
    )


def test_the_first_order_does_not_jump_where_eigenvalues_meet():
    apart = [bias.entropy_bias([1.0, 1.0 + gap, 0.3], 50) for gap in (0, 1e-9, 1e-6, 1e-4, 3e-4)]
    np.testing.assert_allclose(apart, apart[0], rtol=1e-3)
    assert bias.entropy_bias([2.0, 1.0, 0.0, 0.0], 50) == bias.entropy_bias([2.0, 1.0], 50)


@few_rows
@pytest.mark.parametrize("name", SPECTRA)
def test_the_first_order_is_the_simulated_bias(name):
    spectrum, n = SPECTRA[name], 8 * D
    truth = spectra.spectral_entropy(spectrum)
    lost, error = simulated(
        lambda X: spectra.spectral_entropy(spectra.eigenvalues(X)) - truth, lambda rng: rows(spectrum, n, rng), 80
    )
    want = bias.entropy_bias(spectrum, n)
    assert abs(lost - want) < max(4 * error, 0.06 * abs(want))
    assert want < 0


@pytest.mark.parametrize("name", SPECTRA)
def test_extrapolation_takes_most_of_the_bias_away_from_four_rows_a_feature(name):
    spectrum, n = SPECTRA[name], 4 * D
    truth = spectra.spectral_entropy(spectrum)
    found, error = simulated(lambda X: bias.entropy_extrapolated(X, 2)[:2], lambda rng: rows(spectrum, n, rng), 30)
    entropy, measured = found - truth
    assert abs(entropy) < max(4 * error[0], 0.15 * abs(measured))


def test_extrapolation_of_whole_images_where_rows_are_few_but_tokens_many():
    n, t, dim = 64, 40, 12
    truth = math.log(dim)
    found, _ = simulated(lambda X: bias.entropy_extrapolated(X)[:2], lambda rng: images(n, t, dim, rng), 20)
    assert truth - found[1] > 0.03  # far more than independent tokens would lose
    assert abs(found[0] - truth) < 0.15 * (truth - found[1])
    assert bias.isotropic_entropy(dim, n * t) > found[1] + 0.02


def test_below_one_row_a_feature_extrapolation_fails_and_its_doubt_says_so():
    few, many = (bias.entropy_extrapolated(rows(FLAT, n, np.random.default_rng(0))) for n in (D // 2, 10 * D))
    assert math.log(D) - few.entropy > 0.2
    assert few.doubt > 0.3 > 0.1 > many.doubt
    assert few.measured <= math.log(D // 2 - 1)  # no sample can show more


@few_rows
def test_heavy_tails_lose_more_than_the_gaussian_formula_says():
    n = 10 * D
    lost, error = simulated(
        lambda X: spectra.spectral_entropy(spectra.eigenvalues(X)) - math.log(D),
        lambda rng: rows(FLAT, n, rng, tail=4.5),
        20,
    )
    assert lost < 1.5 * bias.entropy_bias(FLAT, n) - 4 * error


def test_extrapolation_does_not_depend_on_anything_but_its_seed():
    X = np.random.default_rng(0).standard_normal((40, 6))
    assert bias.entropy_extrapolated(X) == bias.entropy_extrapolated(X)
    assert bias.entropy_extrapolated(X, seed=1).measured == bias.entropy_extrapolated(X).measured
    assert bias.entropy_extrapolated(X, seed=1).halves != bias.entropy_extrapolated(X).halves


# Equivalent rows


@pytest.mark.parametrize("name", ["flat", "power law, exponent 1", "one spike"])
def test_independent_gaussian_rows_count_as_themselves(name):
    inverse, error = simulated(
        lambda X: 1 / bias.equivalent_rows(X), lambda rng: rows(SPECTRA[name], 120, rng), 100
    )
    assert abs(inverse - 1 / 120) < max(4 * error, 0.03 / 120)


def test_tokens_that_are_copies_count_as_one_row():
    X = np.random.default_rng(0).standard_normal((50, 8))
    assert bias.equivalent_rows(np.repeat(X[:, None], 9, axis=1)) == pytest.approx(bias.equivalent_rows(X))


def test_tokens_that_are_alike_count_less_the_more_alike_they_are():
    rng = np.random.default_rng(0)
    counts = [bias.equivalent_rows(images(60, 16, 20, rng, own)) for own in (0.0, 0.5, 0.9)]
    assert counts[0] == pytest.approx(960, rel=0.1)
    assert counts[0] > 2 * counts[1] > 2 * counts[2] > 2 * 60


def test_heavy_tails_count_as_fewer_rows():
    X = rows(FLAT, 500, np.random.default_rng(0), tail=4.5)
    assert bias.equivalent_rows(X) < 350


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bias.squared_traces(np.ones((3, 2))), "needs 4 independent images or more, got 3"),
        (lambda: bias.entropy_extrapolated(np.ones((7, 2, 2))), "needs 8 independent images or more, got 7"),
        (lambda: bias.squared_traces(np.full((9, 2), np.nan)), "finite"),
        (lambda: bias.squared_traces(np.ones(9)), r"got \(9,\)"),
        (lambda: bias.participation_ratio_unbiased(np.ones((9, 2))), "too few to tell"),
        (lambda: bias.equivalent_rows(np.ones((9, 2))), "too few to tell"),
        (lambda: bias.entropy_extrapolated(np.ones((9, 2))), "one point"),
        (lambda: bias.entropy_extrapolated(np.eye(9), splits=0), "splits=0"),
        (lambda: bias.isotropic_entropy(0, 5), "dim=0"),
        (lambda: bias.entropy_bias([1.0, 1.0], 1), "two rows or more, got 1"),
        (lambda: bias.entropy_bias([1.0, -1.0], 9), "negative"),
    ],
)
def test_bad_input_gets_one_sentence(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)
