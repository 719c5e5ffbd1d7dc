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
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk
from torch import Tensor

from vitlab.analysis.arrays import tensor

Array = NDArray[Any]

CHUNK = 512  # rows at a time: the float64 copy of a chunk stays in the processor's cache


class Covariance:
    """The covariance of all rows ever seen, to float64 accuracy, in memory that does not grow with their number.

    Each chunk of rows is centred by its own mean and merged by the pairwise update of Chan et al., so that neither
    a large mean, nor a first batch unlike the rest, nor a heavy tail costs digits. Sums run in float64 whatever
    comes in; on the processor by a symmetric rank-k update, half the work of a product.

    Args:
        dim: features of a row, D.
        centred: whether `eigenvalues` are those of `covariance` (centred, / (N - 1)) or of `second_moment`
            (uncentred, / N).

    Source: Chan, Golub and LeVeque 1983, doi 10.1080/00031305.1983.10483115.
    """

    def __init__(self, dim: int, centred: bool = True) -> None:
        if dim < 1:
            raise ValueError(f"A covariance needs at least one feature, got dim={dim}; pass the tokens' width.")
        self.dim = dim
        self.centred = centred
        self.count = 0
        self._place(torch.device("cpu"))

    def __repr__(self) -> str:
        return f"Covariance(dim={self.dim}, centred={self.centred}, count={self.count})"

    def _place(self, device: torch.device) -> None:
        """Allocate the sums where the rows live, or on the processor where a device has no float64 (MPS)."""
        home = torch.device("cpu") if device.type == "mps" else device
        with torch.inference_mode(False):  # made in inference mode they could not be added to outside it
            self._origin = torch.zeros(self.dim, dtype=torch.float64, device=home)  # the first row ever seen
            self._mean = torch.zeros_like(self._origin)  # of the rows minus the origin
            self._scatter = self._origin.new_zeros(self.dim, self.dim)  # only its lower triangle is read
            self._rows = self._origin.new_empty(CHUNK + 1, self.dim)

    @torch.no_grad()
    def update(self, x: Any) -> None:
        """Add every row of `x`, shape `(..., dim)`, any floating dtype and device; numpy is welcome too.

        Raises ValueError, and leaves what was gathered untouched, for another width, no rows, NaN or infinity.
        """
        rows = tensor(x)
        if rows.ndim < 1 or rows.shape[-1] != self.dim:
            raise ValueError(
                f"Covariance({self.dim}) takes (..., {self.dim}), got {tuple(rows.shape)}; match them."
            )
        rows = rows.reshape(-1, self.dim)
        if len(rows) == 0:
            raise ValueError(f"Covariance.update got no rows, shape {tuple(rows.shape)}; pass at least one.")
        if rows.is_complex() or rows.dtype == torch.bool:
            raise ValueError(f"Covariance takes real numbers, got {rows.dtype}; convert them first.")
        # A sum is 30 times cheaper than asking every element; only a suspicious one is looked into.
        if not rows.sum().isfinite() and not rows.isfinite().all():
            raise ValueError("Covariance.update got NaN or infinity; find where it was made.")
        if self.count == 0:
            self._place(rows.device)
            self._origin.copy_(rows[0])
        for chunk in rows.split(CHUNK):
            self._add(chunk.to(self._origin.device))

    def _add(self, chunk: Tensor) -> None:
        n, total = len(chunk), self.count + len(chunk)
        rows = self._rows[: n + 1]
        # Seen from the first row a constant feature is exactly zero, and so is its variance.
        torch.sub(chunk, self._origin, out=rows[:n])
        mean = rows[:n].mean(0)
        rows[:n] -= mean
        gap = mean - self._mean
        torch.mul(gap, math.sqrt(self.count * n / total), out=rows[n])  # Chan's correction, as one more row
        if rows.device.type == "cpu":
            # The transpose is the column-major view BLAS wants; it adds into one triangle, in place.
            dsyrk(1.0, rows.numpy().T, beta=1.0, c=self._scatter.numpy().T, overwrite_c=1)
        else:
            self._scatter.addmm_(rows.T, rows)
        self._mean += gap * (n / total)
        self.count = total

    def merge(self, other: Covariance) -> Covariance:
        """Add all that `other` has seen, as if this one had seen it, and return this one.

        Raises ValueError if the two differ in width or in what their eigenvalues mean.
        """
        if (other.dim, other.centred) != (self.dim, self.centred):
            raise ValueError(f"Only like covariances merge, got {self!r} and {other!r}; build both alike.")
        if other.count == 0:
            return self
        if self.count == 0:
            self._place(other._origin.device)
            self._origin.copy_(other._origin)
        total = self.count + other.count
        home = self._origin.device
        gap = (other._origin.to(home) - self._origin) + (other._mean.to(home) - self._mean)
        self._scatter += other._scatter.to(home)
        self._scatter.addr_(gap, gap, alpha=self.count * other.count / total)
        self._mean += gap * (other.count / total)
        self.count = total
        return self

    @property
    def mean(self) -> Array:
        """The mean of all rows, `(dim,)`; ValueError before the first."""
        if self.count == 0:
            raise ValueError("There is no mean before the first row; update the covariance first.")
        return (self._origin + self._mean).cpu().numpy()

    def covariance(self) -> Array:
        """The centred covariance, divided by N - 1, `(dim, dim)`.

        Raises ValueError below two rows; warns below 20 rows a feature, where spectra are far from the truth.
        """
        return self._scattered(min(self.count - 1, self.dim)) / (self.count - 1)

    def second_moment(self) -> Array:
        r"""The uncentred :math:`X^\top X / N`, `(dim, dim)`; errors and warning as for `covariance`."""
        return self._scattered(min(self.count, self.dim)) / self.count + np.outer(self.mean, self.mean)

    def eigenvalues(self) -> Array:
        """The eigenvalues, largest first, `(dim,)`: of the covariance, or of the second moment if not centred."""
        return np.linalg.eigvalsh(self.covariance() if self.centred else self.second_moment())[::-1].copy()

    def _scattered(self, ceiling: int) -> Array:
        """The sum of outer products of the centred rows, both triangles, if it can be trusted."""
        if self.count < 2:
            raise ValueError(f"A covariance needs two rows or more, got {self.count}; update it first.")
        if self.count < 20 * self.dim:
            warnings.warn(
                f"N = {self.count} rows for D = {self.dim} features: no rank can exceed {ceiling}, and below "
                f"20 D = {20 * self.dim} rows every one is biased down; add rows, or compare at equal N.",
                stacklevel=3,
            )
        lower = np.tril(self._scatter.cpu().numpy())
        if not np.isfinite(lower).all():
            raise ValueError("The squares of these rows overflow float64; divide the rows by their scale first.")
        return lower + np.tril(lower, -1).T


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
    """The eigenvalues of the rows `X`, `(..., dim)`, by `Covariance` at one go; errors and warning as there."""
    rows = tensor(X)
    whole = Covariance(rows.shape[-1] if rows.ndim else 1, centred)
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


def flatness(eigenvalues: Any, floor: float = 1e-12) -> float:
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


def summary(eigenvalues: Any, floor: float = 1e-12) -> dict[str, float]:
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
