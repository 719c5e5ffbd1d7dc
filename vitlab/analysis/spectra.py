r"""Spectra of representations: a covariance gathered batch by batch, and what its eigenvalues say.

Write X for the N x D matrix of tokens by features, :math:`\lambda_1 \ge \dots \ge \lambda_D` for the
eigenvalues of its covariance and :math:`p_i = \lambda_i / \sum_j \lambda_j`. Every metric below is a function of
the whole spectrum alone, in any order, torch or numpy.

Round-off can leave an eigenvalue slightly below zero. One within `10 D eps` of zero, relative to the largest and
with `eps` that of the eigenvalues' own dtype, is taken as zero; one further below is refused with a ValueError. So
is a spectrum that is zero everywhere: a collapsed representation has no shape to measure.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vitlab.analysis.arrays import tensor
from vitlab.analysis.covariance import Covariance

__all__ = [
    "Covariance", "anisotropy", "decay_eigenvalues", "decay_singular", "eed_linear", "eed_log", "effective_rank",
    "effective_rank_singular", "eigenvalues", "flatness", "participation_ratio", "singular_values",
    "spectral_entropy", "stable_rank", "summary",
]  # fmt: skip

Array = NDArray[Any]


def singular_values(X: Any, centred: bool = True) -> Array:
    """The singular values of the rows `X`, `(..., dim)`, centred or not, largest first, `(min(N, dim),)`."""
    rows = tensor(X).to("cpu", torch.float64)
    if rows.ndim < 2 or rows.numel() == 0 or not rows.isfinite().all():
        raise ValueError(f"Singular values need finite rows by features, got NaN or shape {tuple(rows.shape)}.")
    rows = rows.reshape(-1, rows.shape[-1])
    if centred:
        rows = rows - rows[0]
        rows = rows - rows.mean(0)
    return np.linalg.svd(rows.numpy(), compute_uv=False)


def eigenvalues(X: Any, centred: bool = True) -> Array:
    """The eigenvalues of the rows `X`, `(..., dim)`, by `Covariance` in float64; errors and warning as there."""
    rows = tensor(X)
    whole = Covariance(rows.shape[-1] if rows.ndim else 1, centred, double=True)
    whole.update(rows)
    return whole.eigenvalues()


def _spectrum(values: Any, what: str = "eigenvalues") -> Array:
    given = tensor(values)
    if given.ndim != 1 or given.numel() == 0 or given.is_complex():
        raise ValueError(f"The {what} are one row of real numbers, got {given.dtype} of {tuple(given.shape)}.")
    if not given.isfinite().all():
        raise ValueError(f"The {what} hold NaN or infinity; look at what was measured.")
    eps = torch.finfo(given.dtype if given.is_floating_point() else torch.float64).eps
    spectrum = np.sort(given.cpu().double().numpy())[::-1]
    largest, least = spectrum[0], spectrum[-1]
    if least < -10 * len(spectrum) * eps * abs(largest):
        raise ValueError(f"No {what} are negative, got {least:.3g} beside {largest:.3g}; pass a covariance's.")
    if largest <= 0:
        raise ValueError(f"All {what} are zero: the representation is one point, and its rank is not defined.")
    return np.clip(spectrum, 0.0, None)


def _entropy(spectrum: Array) -> float:
    p = spectrum / spectrum[0]
    p = p / p.sum()
    p = p[p > 0]  # p ln p tends to 0
    return float(max(0.0, -(p * np.log(p)).sum()))


def spectral_entropy(eigenvalues: Any) -> float:
    r"""Entropy of the normalised spectrum in nats, :math:`H = -\sum p_i \ln p_i`, from 0 to ln D."""
    return _entropy(_spectrum(eigenvalues))


def effective_rank(eigenvalues: Any) -> float:
    r"""Effective rank on eigenvalues, :math:`N_{eff} = \exp(-\sum p_i \ln p_i)`, from 1 to D.

    It is exp(spectral entropy): one quantity, not two. `effective_rank_singular` is larger on the same data.
    """
    return math.exp(spectral_entropy(eigenvalues))


def effective_rank_singular(singular_values: Any) -> float:
    r"""Effective rank on singular values: the same formula with :math:`p_i = \sigma_i / \sum \sigma_j`.

    Source: Roy and Vetterli 2007; RankMe, Garrido et al. 2023, arXiv 2210.02885 (on uncentred embeddings).
    """
    return math.exp(_entropy(_spectrum(singular_values, "singular values")))


def eed_linear(eigenvalues: Any) -> float:
    """Effective dimension as a share of the width, :math:`100 N_{eff} / D`, in %."""
    return 100 * effective_rank(eigenvalues) / len(eigenvalues)


def eed_log(eigenvalues: Any) -> float:
    r"""Entropy as a share of its largest value, :math:`100 H / \ln D`, in %; ValueError where D is 1."""
    entropy = spectral_entropy(eigenvalues)
    if len(eigenvalues) == 1:
        raise ValueError("The entropy of one eigenvalue has no scale, ln 1 = 0; eed_log needs two or more.")
    return 100 * entropy / math.log(len(eigenvalues))


def stable_rank(eigenvalues: Any) -> float:
    r"""Stable rank, :math:`\sum \lambda_i / \lambda_1`, from 1 to D."""
    spectrum = _spectrum(eigenvalues)
    return float((spectrum / spectrum[0]).sum())


def anisotropy(eigenvalues: Any) -> float:
    r"""Share of the variance along the first axis, :math:`\lambda_1 / \sum \lambda_i`: exactly 1 / stable rank."""
    return 1 / stable_rank(eigenvalues)


def participation_ratio(eigenvalues: Any) -> float:
    r"""Participation ratio, :math:`(\sum \lambda_i)^2 / \sum \lambda_i^2`: exp of the Rényi entropy of order 2.

    Always stable rank <= participation ratio <= effective rank.
    """
    spectrum = _spectrum(eigenvalues)
    ratio = spectrum / spectrum[0]
    return float(ratio.sum() ** 2 / (ratio**2).sum())


def flatness(eigenvalues: Any, floor: float = 1e-6) -> float:
    """Spectral flatness: geometric over arithmetic mean, with no eigenvalue counted below `floor` * the largest.

    From near 0 to 1 (isotropic). A single zero would make it 0, so the value means nothing without its floor.
    """
    if not 0 < floor <= 1:
        raise ValueError(f"The floor is a share of the largest eigenvalue, in (0, 1], got {floor}.")
    spectrum = _spectrum(eigenvalues)
    ratio = np.maximum(spectrum / spectrum[0], floor)
    return float(np.exp(np.log(ratio).mean()) / ratio.mean())


def decay_eigenvalues(eigenvalues: Any) -> Array:
    r"""The eigenvalues over the largest, :math:`\lambda_i / \lambda_1`, in falling order, `(dim,)`."""
    spectrum = _spectrum(eigenvalues)
    return spectrum / spectrum[0]


def decay_singular(singular_values: Any) -> Array:
    r"""The singular values over the largest, :math:`\sigma_i / \sigma_1`, the root of `decay_eigenvalues`."""
    spectrum = _spectrum(singular_values, "singular values")
    return spectrum / spectrum[0]


def summary(eigenvalues: Any, floor: float = 1e-6) -> dict[str, float]:
    """Every metric that is one number, once, by the name of its function.

    `effective_rank_singular` is taken on the roots of the eigenvalues, the singular values up to a factor that it
    does not see. Errors as in each metric.
    """
    spectrum = _spectrum(eigenvalues)
    metrics = (effective_rank, spectral_entropy, eed_linear, eed_log, stable_rank, anisotropy, participation_ratio)
    return {metric.__name__: metric(spectrum) for metric in metrics} | {
        "effective_rank_singular": effective_rank_singular(np.sqrt(spectrum)),
        "flatness": flatness(spectrum, floor),
    }
