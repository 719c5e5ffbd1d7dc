"""A covariance gathered batch by batch, in memory that does not grow with what it has seen."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitlab.analysis.arrays import tensor

Array = NDArray[Any]

CHUNK = 1024  # rows at a time, few enough to stay in the processor's cache
STRIP = 96  # features at a time in the product
RESOLVED = 1e-7  # share of the largest eigenvalue below which float32 products are mostly round-off
LONE = 0.1  # share of a feature's scatter that one row may have where products are formed in float32


class Covariance:
    r"""The covariance of all rows ever seen, in memory that does not grow with their number.

    Each chunk of rows is centred by its own mean and merged in float64 by the pairwise update of Chan et al., so
    that neither a large mean nor a first batch unlike the rest costs digits. Within a chunk, products are formed
    in the precision of the rows, and only those on one side of the diagonal:

    - float64 rows, and all rows on a GPU: float64 throughout.
    - float32 and half-precision rows on the processor: products in float32, unless a row stands out so far that
      it would drown the others. Entries are right to about 3e-7 of :math:`\sqrt{C_{ii} C_{jj}}`, eigenvalues to
      1e-7 of the largest. A warning says where smaller ones came out (exactly dependent features have them): there
      `double=True` forms float64 products from any rows, in twice the time.

    Args:
        dim: features of a row, D.
        centred: whether `eigenvalues` are those of `covariance` (centred, / (N - 1)) or of `second_moment`
            (uncentred, / N).
        double: form all products in float64.

    Source: Chan, Golub and LeVeque 1983, doi 10.1080/00031305.1983.10483115.
    """

    def __init__(self, dim: int, centred: bool = True, double: bool = False) -> None:
        if dim < 1:
            raise ValueError(f"A covariance needs at least one feature, got dim={dim}; pass the tokens' width.")
        self.dim = dim
        self.centred = centred
        self.double = double
        self.count = 0
        self._single = False  # whether any product was formed in float32
        self._place(torch.device("cpu"))

    def __repr__(self) -> str:
        return f"Covariance(dim={self.dim}, centred={self.centred}, count={self.count})"

    def _place(self, device: torch.device) -> None:
        """Allocate the sums where the rows live, or on the processor where a device has no float64 (MPS)."""
        home = torch.device("cpu") if device.type == "mps" else device
        with torch.inference_mode(False):  # made in inference mode they could not be added to outside it
            self._mean = torch.zeros(self.dim, dtype=torch.float64, device=home)
            self._scatter = self._mean.new_zeros(self.dim, self.dim)  # only its lower triangle is read

    @torch.no_grad()
    def update(self, x: Any) -> None:
        """Add every row of `x`, shape `(..., dim)`, any real dtype and device; numpy is welcome too.

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
        # A sum is far cheaper than asking every element; only a suspicious one is looked into.
        if not rows.sum().isfinite() and not rows.isfinite().all():
            raise ValueError("Covariance.update got NaN or infinity; find where it was made.")
        if self.count == 0:
            self._place(rows.device)
        home = self._mean.device
        small = rows.dtype in (torch.float32, torch.float16, torch.bfloat16) and home.type == "cpu"
        dtype = torch.float32 if small and not self.double else torch.float64
        self._single |= dtype == torch.float32
        for chunk in rows.split(CHUNK):
            self._add(chunk.to(home, dtype))

    def _add(self, chunk: Tensor) -> None:
        n, total = len(chunk), self.count + len(chunk)
        # Seen from the first row a constant feature is exactly zero, and so is its variance.
        rows = chunk - chunk[0]
        mean = rows.mean(0, dtype=torch.float64)
        rows -= mean.to(rows.dtype)
        gap = mean + chunk[0].double() - self._mean
        self._scatter += _gram(rows)
        self._scatter.addr_(gap, gap, alpha=self.count * n / total)
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
            self._place(other._mean.device)
        self._single |= other._single
        total = self.count + other.count
        home = self._mean.device
        gap = other._mean.to(home) - self._mean
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
        return self._mean.numpy(force=True).copy()

    def covariance(self) -> Array:
        """The centred covariance, divided by N - 1, `(dim, dim)`.

        Raises ValueError below two rows; warns below 20 rows a feature, where spectra are far from the truth.
        """
        return self._scattered(min(self.count - 1, self.dim)) / (self.count - 1)

    def second_moment(self) -> Array:
        r"""The uncentred :math:`X^\top X / N`, `(dim, dim)`; errors and warning as for `covariance`."""
        return self._scattered(min(self.count, self.dim)) / self.count + np.outer(self.mean, self.mean)

    def eigenvalues(self) -> Array:
        """The eigenvalues, largest first, `(dim,)`: of the covariance, or of the second moment if not centred.

        Those that round-off left below zero are zero. Errors and warning as for `covariance`, and a warning where
        the least ones drown in the round-off of float32 products.
        """
        values = np.linalg.eigvalsh(self.covariance() if self.centred else self.second_moment())[::-1]
        drowned = int((values < RESOLVED * values[0]).sum())
        if self._single and drowned and self.count > self.dim:
            warnings.warn(
                f"{drowned} of {self.dim} eigenvalues lie below {RESOLVED:g} of the largest, where float32 "
                "products are mostly round-off; gather with Covariance(dim, double=True) if they matter.",
                stacklevel=2,
            )
        return np.clip(values, 0.0, None)

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


def _gram(rows: Tensor) -> Tensor:
    r"""Return the lower triangle of :math:`X^\top X` for centred rows, in their precision or better."""
    gram = _lower_product(rows)
    if rows.dtype == torch.float32:
        # Beside one huge product a float32 sum loses the others' digits; tiny or vast squares leave its range.
        peak = rows.abs().amax(0)
        plain = (peak > 1e-12) & (peak < 1e16) & (peak.square() <= LONE * gram.diagonal())
        if not (plain | (peak == 0)).all():
            return _lower_product(rows.double())
    return gram


def _lower_product(rows: Tensor) -> Tensor:
    """Form the product in strips that stop at the diagonal: 5/8 of the work with four strips, 1/2 with many.

    BLAS has a routine for this, but torch does not offer it, and scipy's threads would fight torch's for cores.
    """
    dim = rows.shape[1]
    product = rows.new_zeros(dim, dim)
    for start in range(0, dim, STRIP):
        stop = start + STRIP  # slices end at dim by themselves
        torch.mm(rows[:, start:stop].T, rows[:, :stop], out=product[start:stop, :stop])
    return product
