"""Spectra against closed forms, against numpy in float64 and against themselves under what must not matter."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from vitlab.analysis import spectra
from vitlab.analysis.covariance import CHUNK, Covariance

few_rows = pytest.mark.filterwarnings("ignore:N = ")
relaxed = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**31)


def gathered(X, sizes=(700,), **options):
    """Gather X in batches of the sizes given, over and over."""
    covariance, at = Covariance(X.shape[1], **options), 0
    for i in range(len(X)):
        if at < len(X):
            covariance.update(X[at : at + sizes[i % len(sizes)]])
            at += sizes[i % len(sizes)]
    return covariance


def reference(X):
    """Covariance by numpy, float64, two passes, moved to the first row so that numpy itself loses no digits."""
    return np.cov(np.asarray(X, np.float64) - np.asarray(X[0], np.float64), rowvar=False)


def hard_rows(kind, rng, n=3000, d=24):
    X = rng.standard_normal((n, d)) @ (rng.standard_normal((d, d)) / 4 + np.eye(d))
    if kind == "offset 1000, spread 0.01":
        X = 1000 + 0.01 * X
    elif kind == "heavy tails":
        X = rng.standard_t(1.5, (n, d))
    elif kind == "outlier":
        X[17] *= 1e6
    elif kind == "outlier dimension":
        X[:, 3] = 1e5 + 1e4 * X[:, 3]
    elif kind == "first batch unlike the rest":
        X[:700] = 0.001 * X[:700]
        X[700:] += 1e6
    elif kind == "graded":
        X = X * np.logspace(0, -5, d)
    return X


KINDS = ("plain", "offset 1000, spread 0.01", "heavy tails", "outlier", "outlier dimension",
         "first batch unlike the rest", "graded")  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "double", "error"),
    [(torch.float64, False, 1e-11), (torch.float32, True, 1e-11), (torch.float32, False, 5e-7)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_covariance_equals_numpy_in_float64(kind, dtype, double, error):
    X = torch.from_numpy(hard_rows(kind, np.random.default_rng(1))).to(dtype)
    C, want = gathered(X, double=double).covariance(), reference(X.numpy())
    scale = np.sqrt(np.outer(np.diag(want), np.diag(want)))
    assert np.abs((C - want) / scale).max() < error


@pytest.mark.filterwarnings("ignore:.*eigenvalues lie below")
@pytest.mark.parametrize("kind", KINDS)
def test_float32_products_leave_the_metrics_as_numpy_has_them(kind):
    X = hard_rows(kind, np.random.default_rng(2)).astype(np.float32)
    got = spectra.summary(gathered(X).eigenvalues())
    assert got == pytest.approx(spectra.summary(np.linalg.eigvalsh(reference(X))), rel=2e-6)


@few_rows
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-13, 1e15, 1e25, 1e37])
def test_float32_squares_beyond_its_range_are_summed_in_double(scale):
    X = np.random.default_rng(0).standard_normal((300, 5)).astype(np.float32)
    want = gathered(X).covariance()
    np.testing.assert_allclose(gathered(X * np.float32(scale)).covariance() / scale**2, want, rtol=1e-4, atol=1e-6)


def test_eigenvalues_that_float32_products_drown_are_warned_of():
    """Patches of 4 x 4 x 3 pixels in 96 features have rank 48."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((3000, 48)) @ rng.standard_normal((48, 96))).astype(np.float32)
    with pytest.warns(UserWarning, match=r"48 of 96 eigenvalues lie below 1e-07.*double=True"):
        rough = gathered(X).eigenvalues()
    assert (rough >= 0).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fine = gathered(X, double=True).eigenvalues()
    assert fine[48] < 1e-12 * fine[0] < 1e-4 * fine[47]
    assert spectra.effective_rank(rough) == pytest.approx(spectra.effective_rank(fine), rel=1e-5)
    with pytest.warns(UserWarning, match="48 of 96"):  # one rough part makes the whole rough
        gathered(X, double=True).merge(gathered(X)).eigenvalues()


def test_small_eigenvalues_keep_their_digits():
    """A spectrum over ten orders of magnitude, which float32 sums would lose below the seventh."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 20)) * np.logspace(0, -5, 20)
    want = np.linalg.svd(X - X.mean(0), compute_uv=False) ** 2 / (len(X) - 1)
    assert gathered(X).eigenvalues() == pytest.approx(want, rel=1e-4)


def test_offset_1000_leaves_effective_rank_alone():
    """The trap: float32 sums of X^T X give another rank when the mean is large."""
    X = np.random.default_rng(0).standard_normal((4000, 64)) * np.linspace(1, 3, 64)
    plain = spectra.effective_rank(gathered(X).eigenvalues())
    moved = (X + 1000).astype(np.float32)
    assert spectra.effective_rank(gathered(moved).eigenvalues()) == pytest.approx(plain, abs=1e-3)
    exact = spectra.effective_rank(np.linalg.eigvalsh(reference(moved)))
    assert spectra.effective_rank(gathered(moved).eigenvalues()) == pytest.approx(exact, rel=1e-7)
    assert spectra.effective_rank(gathered(moved, double=True).eigenvalues()) == pytest.approx(exact, rel=1e-12)


@few_rows
@relaxed
@given(seed=seeds, n=st.integers(3, 200), d=st.integers(1, 12), sizes=st.lists(st.integers(1, 60), min_size=1))
def test_batching_does_not_matter(seed, n, d, sizes):
    X = np.random.default_rng(seed).standard_normal((n, d)) + 5
    want = np.atleast_2d(reference(X))
    covariance = gathered(X, sizes)
    assert covariance.count == n
    np.testing.assert_allclose(covariance.covariance(), want, atol=1e-12 * np.abs(want).max())
    np.testing.assert_allclose(covariance.mean, X.mean(0), rtol=1e-12, atol=1e-12)


@few_rows
@relaxed
@given(seed=seeds, cuts=st.lists(st.integers(1, 299), min_size=1, max_size=4, unique=True))
def test_merging_in_any_order_equals_one_pass(seed, cuts):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 6)) * 10 ** rng.uniform(-2, 2, 6) + rng.uniform(-100, 100, 6)
    parts = [gathered(part) for part in np.split(X, sorted(cuts))]
    rng.shuffle(parts)
    whole = Covariance(6)
    for part in parts:
        assert whole.merge(part) is whole
    want, scale = gathered(X), X.std(0)
    assert whole.count == 300
    difference = (whole.covariance() - want.covariance()) / np.outer(scale, scale)
    assert np.abs(difference).max() < 1e-10
    np.testing.assert_allclose(whole.mean, want.mean, rtol=1e-10)


def test_merge_leaves_the_other_alone_and_goes_on():
    X = np.random.default_rng(0).standard_normal((900, 4))
    a, b = gathered(X[:300]), gathered(X[300:600])
    before = b.covariance()
    a.merge(b).update(X[600:])
    np.testing.assert_array_equal(b.covariance(), before)
    np.testing.assert_allclose(a.covariance(), reference(X), rtol=1e-9, atol=1e-12)


def test_more_rows_than_a_chunk_and_any_leading_shape():
    X = torch.randn(3, CHUNK, 5, generator=torch.manual_seed(0), dtype=torch.float64)
    covariance = Covariance(5)
    covariance.update(X)
    assert covariance.count == 3 * CHUNK
    np.testing.assert_allclose(covariance.covariance(), reference(X.reshape(-1, 5)), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised_first(dtype):
    X = (100 + torch.randn(2000, 4, generator=torch.manual_seed(0))).to(dtype)
    want = reference(X.double().numpy())
    np.testing.assert_allclose(gathered(X).covariance(), want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gathered(X, double=True).covariance(), want, rtol=1e-10, atol=1e-13)


def test_memory_does_not_grow_with_rows():
    covariance = gathered(np.random.default_rng(0).standard_normal((CHUNK, 8)))

    def held():
        return sum(v.untyped_storage().nbytes() for v in vars(covariance).values() if isinstance(v, torch.Tensor))

    before = held()
    covariance.update(np.random.default_rng(1).standard_normal((50 * CHUNK, 8)))
    assert held() == before == 8 * (8 + 8 * 8)


def test_neither_the_input_nor_its_graph_is_touched():
    X = torch.randn(600, 3, requires_grad=True)
    copy, covariance = X.detach().clone(), Covariance(3)
    covariance.update(X)
    assert torch.equal(X, copy)
    with torch.inference_mode():
        first = Covariance(3)
        first.update(X * 1)
    first.update(X)
    assert first.count == 1200


def test_second_moment_is_uncentred_over_n():
    X = np.random.default_rng(0).standard_normal((500, 5)) + 3
    np.testing.assert_allclose(gathered(X).second_moment(), X.T @ X / 500, rtol=1e-12)
    np.testing.assert_allclose(gathered(X, centred=False).eigenvalues(), np.linalg.eigvalsh(X.T @ X / 500)[::-1],
                               rtol=1e-9)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])  # in float64 even a mean of equal numbers rounds
@pytest.mark.parametrize("value", [0.0, 0.1, 1e8 / 3])
def test_a_constant_is_exactly_zero_and_has_no_rank(value, dtype):
    X = np.full((3 * CHUNK + 7, 4), value, dtype)
    eigenvalues = gathered(X, (100, 900)).eigenvalues()
    assert (eigenvalues == 0).all()
    for metric in (spectra.effective_rank, spectra.stable_rank, spectra.flatness, spectra.summary):
        with pytest.raises(ValueError, match="one point"):
            metric(eigenvalues)


def test_a_constant_feature_among_others_does_not_disturb_them():
    X = np.random.default_rng(0).standard_normal((500, 3))
    X[:, 1] = 1e6 / 3
    C = gathered(X).covariance()
    assert (C[1] == 0).all() and (C[:, 1] == 0).all() and C[0, 0] > 0.5


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_broken_numbers_are_refused_before_anything_is_added(broken):
    X = torch.randn(2 * CHUNK + 5, 3, generator=torch.manual_seed(0))
    covariance = gathered(X)
    before = covariance.covariance()
    X[-1, 1] = broken
    with pytest.raises(ValueError, match="NaN or infinity"):
        covariance.update(X)
    assert covariance.count == 2 * CHUNK + 5
    np.testing.assert_array_equal(covariance.covariance(), before)


def test_large_half_precision_numbers_are_not_taken_for_broken_ones():
    X = torch.full((1000, 2), 60000.0, dtype=torch.float16)  # their sum overflows float16
    X[::2] = 0
    assert gathered(X).covariance()[0, 0] == pytest.approx(9e8, rel=2e-3)


@few_rows
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Covariance(3).update(torch.zeros(4, 5)), r"\(\.\.\., 3\), got \(4, 5\)"),
        (lambda: Covariance(3).update(torch.tensor(1.0)), r"got \(\)"),
        (lambda: Covariance(3).update(torch.zeros(0, 3)), "no rows"),
        (lambda: Covariance(3).update(torch.zeros(2, 3, dtype=torch.complex64)), "real"),
        (lambda: Covariance(3).update("abc"), "Numbers are needed"),
        (lambda: Covariance(3).update([[1.0, 2.0], [3.0]]), "Numbers are needed"),
        (lambda: Covariance(0), "at least one feature"),
        (lambda: Covariance(3).covariance(), "two rows or more, got 0"),
        (lambda: gathered(np.zeros((1, 3))).eigenvalues(), "two rows or more, got 1"),
        (lambda: Covariance(3).mean, "before the first row"),
        (lambda: Covariance(3).merge(Covariance(4)), "Only like covariances merge"),
        (lambda: Covariance(3).merge(Covariance(3, centred=False)), "Only like covariances merge"),
        (lambda: gathered(np.array([[1e200], [-1e200]])).covariance(), "overflow"),
        (lambda: spectra.effective_rank([1.0, -0.1]), "No eigenvalues are negative"),
        (lambda: spectra.effective_rank([]), "one row of real numbers"),
        (lambda: spectra.effective_rank(np.eye(2)), "one row of real numbers"),
        (lambda: spectra.effective_rank([1.0, np.nan]), "NaN"),
        (lambda: spectra.eed_log([1.0]), "ln 1 = 0"),
        (lambda: spectra.flatness([1.0, 0.5], floor=0), "floor"),
        (lambda: spectra.singular_values(np.array([[1.0, np.nan]])), "finite"),
        (lambda: spectra.eigenvalues(np.float64(1)), r"got \(\)"),
    ],
)
def test_bad_input_gets_one_sentence(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)


def test_few_rows_are_warned_of_with_the_ceiling():
    X = np.random.default_rng(0).standard_normal((30, 40))
    with pytest.warns(UserWarning, match=r"N = 30 rows for D = 40 features: no rank can exceed 29") as caught:
        eigenvalues = gathered(X.astype(np.float32)).eigenvalues()
    assert len(caught) == 1  # that ten eigenvalues are zero needs no second one
    assert spectra.effective_rank(eigenvalues) <= 29
    with pytest.warns(UserWarning, match="exceed 30"):
        gathered(X, centred=False).eigenvalues()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gathered(np.random.default_rng(0).standard_normal((800, 40))).eigenvalues()


# Metrics: closed forms


@pytest.mark.parametrize("d", [2, 5, 384])
def test_isotropic_spectrum(d):
    s = spectra.summary(np.full(d, 3.7))
    for name in ("effective_rank", "effective_rank_singular", "stable_rank", "participation_ratio"):
        assert s[name] == pytest.approx(d)
    assert s["spectral_entropy"] == pytest.approx(np.log(d))
    assert s["eed_linear"] == pytest.approx(100) and s["eed_log"] == pytest.approx(100)
    assert s["anisotropy"] == pytest.approx(1 / d) and s["flatness"] == pytest.approx(1)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_k_equal_eigenvalues_and_zeros(k):
    d, floor = 20, 1e-9
    s = spectra.summary([2.0] * k + [0.0] * (d - k), floor)
    for name in ("effective_rank", "effective_rank_singular", "stable_rank", "participation_ratio"):
        assert s[name] == pytest.approx(k)
    assert s["eed_linear"] == pytest.approx(100 * k / d)
    assert s["eed_log"] == pytest.approx(100 * np.log(k) / np.log(d))
    assert s["flatness"] == pytest.approx(floor ** ((d - k) / d) / ((k + (d - k) * floor) / d))


@pytest.mark.parametrize("q", [0.2, 0.7, 0.95])
def test_geometric_decay(q):
    """lambda_i = q^i: H = -ln(1 - q) - q ln q / (1 - q), stable rank 1 / (1 - q), PR (1 + q) / (1 - q)."""
    eigenvalues = q ** np.arange(1500)
    H = -np.log(1 - q) - q * np.log(q) / (1 - q)
    assert spectra.spectral_entropy(eigenvalues) == pytest.approx(H)
    assert spectra.effective_rank(eigenvalues) == pytest.approx(np.exp(H))
    assert spectra.stable_rank(eigenvalues) == pytest.approx(1 / (1 - q))
    assert spectra.participation_ratio(eigenvalues) == pytest.approx((1 + q) / (1 - q))
    r = np.sqrt(q)  # singular values decay by the root
    want = (1 - r) ** -1 * r ** (-r / (1 - r))
    assert spectra.effective_rank_singular(np.sqrt(eigenvalues)) == pytest.approx(want)
    n = 50  # flatness of the first n: q^((n-1)/2) over their mean
    assert spectra.flatness(q ** np.arange(n), floor=1e-300) == pytest.approx(
        q ** ((n - 1) / 2) / ((1 - q**n) / (1 - q) / n)
    )
    assert spectra.decay_eigenvalues(eigenvalues[:9]) == pytest.approx(q ** np.arange(9))
    assert spectra.decay_singular(np.sqrt(eigenvalues[:9])) == pytest.approx(r ** np.arange(9))


@pytest.mark.parametrize("a", [1.0, 2.0])
def test_power_law(a):
    """lambda_i = i^-a: stable rank is the sum z(a), PR z(a)^2 / z(2a), H = ln z(a) + a sum(i^-a ln i) / z(a)."""
    i = np.arange(1, 1001)
    z = [sum(k**-s for k in range(1, 1001)) for s in (a, 2 * a)]
    assert spectra.stable_rank(i**-a) == pytest.approx(z[0])
    assert spectra.participation_ratio(i**-a) == pytest.approx(z[0] ** 2 / z[1])
    assert spectra.spectral_entropy(i**-a) == pytest.approx(np.log(z[0]) + a * (i**-a * np.log(i)).sum() / z[0])


def test_flatness_depends_on_its_floor():
    values = [spectra.flatness([1.0, 1.0, 0.0], floor=f) for f in (1e-12, 1e-6, 1e-3)]
    assert values == sorted(values) and values[0] < values[2] / 100


spectrum = st.lists(st.floats(1e-8, 1e8), min_size=2, max_size=40).map(np.array)


@relaxed
@given(eigenvalues=spectrum, scale=st.floats(1e-6, 1e6), seed=seeds)
def test_identities_order_and_what_does_not_matter(eigenvalues, scale, seed):
    s = spectra.summary(eigenvalues)
    assert s["spectral_entropy"] == pytest.approx(np.log(s["effective_rank"]), abs=1e-12)
    assert s["anisotropy"] * s["stable_rank"] == pytest.approx(1, rel=1e-14)
    tight = 1 + 1e-9
    assert 1 <= s["stable_rank"] <= s["participation_ratio"] * tight
    assert s["participation_ratio"] <= s["effective_rank"] * tight <= len(eigenvalues) * tight**2
    assert s["effective_rank"] <= s["effective_rank_singular"] * tight
    assert s["eed_linear"] == pytest.approx(100 * s["effective_rank"] / len(eigenvalues))
    shuffled = np.random.default_rng(seed).permutation(eigenvalues) * scale
    assert spectra.summary(torch.from_numpy(shuffled)) == pytest.approx(s, rel=1e-9, abs=1e-12)


@few_rows
@relaxed
@given(seed=seeds, n=st.integers(5, 120), d=st.integers(2, 10), scale=st.floats(1e-3, 1e3))
def test_random_matrices_against_numpy_and_under_rotation(seed, n, d, scale):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.uniform(0.1, 3, d)
    p = np.clip(np.linalg.eigvalsh(reference(X)), 0, None)
    p = p[p > 1e-12 * p.max()] / p.sum()
    s = spectra.summary(spectra.eigenvalues(X))
    assert s["effective_rank"] == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-6)
    assert s["participation_ratio"] == pytest.approx(1 / (p**2).sum(), rel=1e-6)
    assert s["stable_rank"] == pytest.approx(1 / p.max(), rel=1e-6)
    sigma = np.linalg.svd(X - X.mean(0), compute_uv=False)
    q = sigma[sigma > 1e-9 * sigma[0]] / sigma.sum()
    want = np.exp(-(q * np.log(q)).sum())
    assert spectra.effective_rank_singular(spectra.singular_values(X)) == pytest.approx(want, rel=1e-6)
    turned = spectra.eigenvalues((scale * X + 7) @ ortho_group.rvs(d, random_state=rng))
    for name in ("effective_rank", "participation_ratio", "stable_rank"):
        assert spectra.summary(turned)[name] == pytest.approx(s[name], rel=1e-6)


def test_isotropic_d_384_at_1000_rows_reads_316():
    """The finite-sample bias the course warns of: D = 384 isotropic at N = 1,000 gives 316, not 384."""
    X = np.random.default_rng(0).standard_normal((1000, 384))
    with pytest.warns(UserWarning, match="N = 1000"):
        assert spectra.effective_rank(spectra.eigenvalues(X)) == pytest.approx(316, abs=2)


def test_round_off_below_zero_is_clipped_by_the_dtype_it_came_in():
    assert spectra.effective_rank(np.array([1.0, 1.0, -1e-16])) == pytest.approx(2)
    assert spectra.effective_rank(torch.tensor([1.0, 1.0, -1e-7])) == pytest.approx(2)
    with pytest.raises(ValueError, match="negative"):
        spectra.effective_rank(np.array([1.0, 1.0, -1e-7]))


def test_summary_has_every_number_once():
    assert set(spectra.summary([2.0, 1.0])) == {
        "effective_rank", "effective_rank_singular", "spectral_entropy", "eed_linear", "eed_log", "stable_rank",
        "anisotropy", "participation_ratio", "flatness",
    }  # fmt: skip


@pytest.mark.parametrize("d", [1, 95, 96, 97, 200])
def test_every_strip_of_the_product_is_there(d):
    X = np.random.default_rng(0).standard_normal((20 * d + 2, d))
    np.testing.assert_allclose(gathered(X).covariance(), np.atleast_2d(reference(X)), atol=1e-12)


def test_a_mean_that_was_read_does_not_move():
    covariance = gathered(np.ones((5, 2)))
    mean = covariance.mean
    covariance.update(np.zeros((5, 2)))
    assert mean.tolist() == [1, 1] and covariance.mean.tolist() == [0.5, 0.5]
