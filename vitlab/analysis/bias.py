r"""What few rows do to a spectrum, and what can be taken back: corrections of the finite-sample bias.

The sample's eigenvalues are spread wider than the truth's, so every rank read off them is too small. Two remedies,
each for what it can reach:

- The participation ratio asks for :math:`(\mathrm{tr}\,\Sigma)^2` and :math:`\mathrm{tr}\,\Sigma^2`, which are
  polynomials of the moments. Averaged over *different* images only, their estimates are unbiased for any
  distribution with four moments, also with fewer rows than features.
- The entropy is no polynomial, and no estimate of it is unbiased. Its bias falls as 1/N, and is removed by
  extrapolation from the whole sample and its halves.

Rows come as `(rows, dim)`, all independent, or as `(images, tokens, dim)`, where only different images are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitlab.analysis.arrays import tensor
from vitlab.analysis.spectra import spectral_entropy

__all__ = [
    "Extrapolated", "entropy_bias", "entropy_extrapolated", "equivalent_rows", "isotropic_entropy",
    "participation_ratio_unbiased", "squared_traces",
]  # fmt: skip

Array = NDArray[Any]
_FEW = "These images are too few to tell their spread from zero"


class Extrapolated(NamedTuple):
    """A spectral entropy in nats: extrapolated to endlessly many images, and what that was made from."""

    entropy: float  # extrapolated from the whole and its halves
    measured: float  # of the whole sample
    halves: float  # mean over random halves
    quarters: float  # mean over random quarters
    doubt: float  # how far the extrapolation from halves and quarters lies from that from whole and halves


def isotropic_entropy(dim: int, rows: int) -> float:
    r"""The spectral entropy in nats that isotropic Gaussian data of `dim` features show at so many rows.

    With b the larger of the two and a the smaller, :math:`\ln a - a / 2b`: the mean of x ln x over the law of
    Marchenko and Pastur, right to about 1 / a. What is lost is at most half a nat, where both are equal.

    Source: Page 1993, arXiv gr-qc/9305007 (for complex numbers, with the same leading term).
    """
    if dim < 1 or rows < 1:
        raise ValueError(f"The entropy needs a feature and a row at least, got dim={dim}, rows={rows}.")
    less, more = sorted((dim, rows))
    return math.log(less) - less / (2 * more)


def entropy_bias(eigenvalues: Any, rows: int) -> float:
    r"""The bias of the spectral entropy, in nats, at `rows` independent Gaussian rows of these true eigenvalues.

    To first order in 1 / rows, from the second derivative of :math:`\mathrm{tr}\,(S \ln S)`:

    .. math:: -\frac{1}{2n} \sum_{i \ne j} p_i p_j \frac{\ln p_i - \ln p_j}{p_i - p_j} + O(1 / n),
        \qquad n = \mathrm{rows} - 1,

    and the terms of the fluctuating trace, which are about 1 / D of it where the spectrum is flat. To be trusted
    where D is well below `rows`. Errors as `spectral_entropy`, and ValueError below two rows.
    """
    H = spectral_entropy(eigenvalues)
    if rows < 2:
        raise ValueError(f"A covariance needs two rows or more, got {rows}; ask about a sample that has one.")
    p = tensor(eigenvalues).cpu().double().numpy()
    p = p[p > 0]
    p = p / p.sum()
    i, j = p[:, None], p[None, :]
    gap, near = i - j, 2 / (i + j)
    close = abs(gap) < 1e-5 * (i + j)  # equal eigenvalues: the slope of the logarithm itself
    slope = np.where(close, near, (np.log(i) - np.log(j)) / np.where(close, 1, gap))
    of_s_ln_s = ((i * j * slope).sum() + 1) / 2  # the sum has i = j once, its variance counts twice
    q = float((p**2).sum())
    of_trace = q + 2 * H * q + 2 * float((p**2 * np.log(p)).sum())
    return float(of_trace - of_s_ln_s) / (rows - 1)


def entropy_extrapolated(X: Any, splits: int = 4, seed: int = 0) -> Extrapolated:
    r"""The spectral entropy of the centred covariance, extrapolated in 1 / images from the whole to no end.

    If the bias is c / (n - 1) at n images, then :math:`(n - 1) H_n - (m - 1) H_m` over n - m is free of it, with m
    half of n. Halves are drawn `splits` times and both parts used; images stay whole, so their tokens need not be
    independent of one another. `doubt` is how much the same step from quarters to halves disagrees: where it is
    not small against `entropy - measured`, the bias does not yet fall as 1 / n, and the result is no estimate.

    Args:
        X: rows `(rows, dim)` or tokens `(images, tokens, dim)`, eight images or more.
        splits: how many times the sample is halved, and quartered.
        seed: of the halving.

    Raises:
        ValueError: too few images, NaN, or rows that are all one point.
    """
    tokens = _tokens(X, 8)
    n = len(tokens)
    rng = np.random.default_rng(seed)

    def parts(count: int) -> float:
        size = n // count
        found = []
        for _ in range(splits):
            order = rng.permutation(n)
            found += [_entropy(tokens[order[k * size : (k + 1) * size]]) for k in range(count)]
        return float(np.mean(found))

    def onward(more: float, less: float, n: int, m: int) -> float:
        return ((n - 1) * more - (m - 1) * less) / (n - m)

    if splits < 1:
        raise ValueError(f"The sample is halved once or more, got splits={splits}.")
    whole, halves, quarters = _entropy(tokens), parts(2), parts(4)
    entropy = onward(whole, halves, n, n // 2)
    before = onward(halves, quarters, n // 2, n // 4)
    return Extrapolated(entropy, whole, halves, quarters, abs(entropy - before))


def squared_traces(X: Any) -> tuple[float, float]:
    r"""Unbiased :math:`(\mathrm{tr}\,\Sigma)^2` and :math:`\mathrm{tr}\,\Sigma^2` of the covariance of the rows.

    Both are sums of products of up to four factors, and each product takes its factors from *different* images, so
    that its mean is the product of their means; the unknown mean of the rows is split in the same way. Nothing is
    assumed but independent images of equally many tokens and four moments. Either may come out at or below zero
    where the images are too few to tell it from zero.

    Raises ValueError below four images, or for NaN.
    """
    return _traces(_tokens(X, 4))[:2]


def _traces(tokens: Array) -> tuple[float, float, Array]:
    """Unbiased (tr C)^2, tr C^2 and C itself, for the covariance C of tokens `(images, tokens, dim)`."""
    n, t, dim = tokens.shape
    # Shifting all rows alike changes nothing in exact arithmetic, and this shift makes most sums zero.
    x = tokens - tokens.mean((0, 1))
    flat = x.reshape(-1, dim)
    second = flat.T @ flat / t  # the sum of the images' second moments A_g
    means = x.mean(1)  # m_g, (images, dim)
    between = means.T @ means
    power = (x**2).sum((1, 2)) / t  # tr A_g
    if t == 1:
        own = float((power**2).sum())  # the sum of tr A_g^2
    else:
        small = x if t > dim else np.swapaxes(x, 1, 2)
        own = sum(float(((part.T @ part) ** 2).sum()) for part in small) / t**2
    inner = (means**2).sum(1)  # m_g' m_g
    bent = float((np.einsum("gti,gi->gt", x, means) ** 2).sum()) / t  # the sum of m_g' A_g m_g

    pairs, triples, fours = n * (n - 1), n * (n - 1) * (n - 2), n * (n - 1) * (n - 2) * (n - 3)
    # m' m times m' m, then m' A m with tr A, then A with A: each over different images only.
    lone = (2 * float((between**2).sum()) - 6 * float((inner**2).sum()) + float(inner.sum()) ** 2) / fours
    mixed = (2 * bent - float((second * between).sum())) / triples
    crossed = (2 * float((power * inner).sum()) - float(power.sum() * inner.sum())) / triples
    square = (float((second**2).sum()) - own) / pairs - 2 * mixed + lone
    squared = (float(power.sum()) ** 2 - float((power**2).sum())) / pairs - 2 * crossed + lone
    return squared, square, second / n + between / pairs


def participation_ratio_unbiased(X: Any) -> float:
    r"""The participation ratio of the covariance of the rows, from traces without bias.

    The ratio of two unbiased numbers is not itself unbiased, but its error falls with the number of images,
    whatever the width; the ratio taken on sample eigenvalues needs many rows a feature.

    Args:
        X: rows `(rows, dim)` or tokens `(images, tokens, dim)`, four images or more.

    Raises:
        ValueError: NaN, too few images, or images too few to tell the traces from zero.

    Source: by averages over different rows, as in Chun et al. 2025, arXiv 2509.26560, here over different images.
    """
    squared, square = squared_traces(X)
    if squared <= 0 or square <= 0:
        raise ValueError(f"{_FEW}, got {squared:.3g} and {square:.3g}; add images.")
    return squared / square


def equivalent_rows(X: Any) -> float:
    r"""How many independent Gaussian rows would have a covariance as noisy as that of these rows.

    With S the unbiased covariance of n + 1 such rows, :math:`E\,|S - \Sigma|^2 = E\,\mathrm{tr}\,S^2 -
    \mathrm{tr}\,\Sigma^2` is :math:`(\mathrm{tr}\,\Sigma^2 + (\mathrm{tr}\,\Sigma)^2) / n`. The left side is
    measured, its second term by `squared_traces`, and solved for n + 1. Tokens of one image are alike, and heavy
    tails are noisy: both leave fewer rows than there are. Infinity where no noise is seen. Raises ValueError as
    `participation_ratio_unbiased`.
    """
    squared, square, S = _traces(_tokens(X, 4))
    noise = float((S**2).sum()) - square
    if squared <= 0 or square <= 0:
        raise ValueError(f"{_FEW}, got {squared:.3g} and {square:.3g}; add images.")
    return (squared + square) / noise + 1 if noise > 0 else math.inf


def _tokens(X: Any, least: int) -> Array:
    """Take rows or tokens as finite float64 `(images, tokens, dim)`, `least` images or more."""
    x = tensor(X).cpu().double().numpy()
    if x.ndim == 2:
        x = x[:, None]
    if x.ndim != 3 or 0 in x.shape or not np.isfinite(x).all():
        raise ValueError(f"Rows are (rows, dim) or (images, tokens, dim), finite, got {x.shape} or NaN in it.")
    if len(x) < least:
        raise ValueError(f"This correction needs {least} independent images or more, got {len(x)}; add images.")
    return x


def _entropy(tokens: Array) -> float:
    """The entropy of the centred covariance of tokens, from singular values where rows are few."""
    rows = tokens.reshape(-1, tokens.shape[-1])
    rows = rows - rows[0]
    rows = rows - rows.mean(0)
    gram = rows.T @ rows if rows.shape[0] >= rows.shape[1] else rows @ rows.T
    return spectral_entropy(np.clip(np.linalg.eigvalsh(gram), 0, None))
