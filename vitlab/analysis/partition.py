r"""Where the variance of tokens comes from: their position, their image, or both together.

Token t of image i is split as in a two-way analysis of variance, `n` images by `T` tokens, each cell seen once:

.. math::

    x_{it} = m + p_t + a_i + r_{it}, \qquad
    p_t = \bar x_{\cdot t} - m, \quad a_i = \bar x_{i \cdot} - m, \quad
    r_{it} = x_{it} - \bar x_{i \cdot} - \bar x_{\cdot t} + m

with m the mean of everything. The cross terms vanish, so with one divisor `N = n T` the covariance is a sum:

.. math::

    \frac{1}{N} \sum_{it} (x_{it} - m)(x_{it} - m)^\top = \frac{1}{T} \sum_t p_t p_t^\top
        + \frac{1}{n} \sum_i a_i a_i^\top + \frac{1}{N} \sum_{it} r_{it} r_{it}^\top

**No part is empty on noise.** If tokens are independent and alike, variance 1 a feature, the expected parts are
`(T - 1) / (n T)` for position, `(n - 1) / (n T)` for image and `(n - 1)(T - 1) / (n T)` for the residual: position
has `1 / (n - 1)` of the residual and image `1 / (T - 1)`. What stands above these floors is signal. The image's
floor is higher where tokens of an image resemble their neighbours.

Source: the split into position and context, Song and Zhong 2023, arXiv 2310.04861.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitlab.analysis.arrays import tensor

__all__ = ["Partition", "eigenvalues", "without_top_norm"]

Array = NDArray[Any]


class Partition:
    """The covariance of tokens and its parts, gathered in memory that does not grow with the images.

    Kept are the mean of each position, the scatter of the image means and that of the residuals, in float64 and
    about the first token seen, so that a large mean costs no digits. Batches are joined by the pairwise update of
    Chan, Golub and LeVeque 1983, applied to each part: none is the difference of two others.

    Args:
        dim: features of a token, D.
        tokens: tokens of an image, T, the same for every image.
    """

    def __init__(self, dim: int, tokens: int) -> None:
        if dim < 1 or tokens < 1:
            raise ValueError(f"A partition needs a feature and a token or more, got dim={dim}, tokens={tokens}.")
        self.dim, self.tokens, self.images = dim, tokens, 0
        self._origin = torch.zeros(dim, dtype=torch.float64)
        self._means = self._origin.new_zeros(tokens, dim)  # of each position, seen from the origin
        self._image = self._origin.new_zeros(dim, dim)
        self._residual = self._origin.new_zeros(dim, dim)

    @torch.no_grad()
    def update(self, x: Any) -> None:
        """Add the images of `x`, shape `(batch, tokens, dim)`, any real dtype and device; numpy is welcome too.

        Raises ValueError, and leaves what was gathered untouched, for another shape, no images, NaN or infinity.
        """
        x = tensor(x)
        if x.ndim != 3 or x.shape[1:] != (self.tokens, self.dim) or len(x) == 0 or x.is_complex():
            raise ValueError(
                f"Partition.update takes real (images, {self.tokens}, {self.dim}), some images, got {x.dtype} of "
                f"{tuple(x.shape)}; match them."
            )
        if not x.isfinite().all():
            raise ValueError("Partition.update got NaN or infinity; find where it was made.")
        # Where a device has no float64 (MPS) the processor does the products; the sums stay there.
        x = x.to("cpu" if x.device.type == "mps" else x.device, torch.float64)
        if self.images == 0:
            self._origin = x[0, 0].cpu().clone()
        x = x - self._origin.to(x.device)
        means = x.mean(0)  # (tokens, dim)
        image = x.mean(1) - means.mean(0)  # (batch, dim)
        residual = (x - means - image[:, None]).flatten(0, 1)  # (batch * tokens, dim)
        gap = means.cpu() - self._means
        shift = gap.mean(0)
        total = self.images + len(x)
        weight = self.images * len(x) / total
        # Not in place: what is made in inference mode could not be changed outside it.
        self._residual = self._residual + (residual.T @ residual).cpu() + weight * (gap - shift).T @ (gap - shift)
        self._image = self._image + (image.T @ image).cpu() + weight * torch.outer(shift, shift)
        self._means = self._means + gap * (len(x) / total)
        self.images = total

    def parts(self) -> dict[str, Array]:
        """The covariances `total`, `position`, `image` and `residual`, each `(dim, dim)`, all divided by N = n T.

        The first is the sum of the others. A part may be zero, as that of the position of a lone token. The
        covariance of `spectra.Covariance` is `total` * N / (N - 1). ValueError before the first image.
        """
        self._needs_images()
        centred = self._means - self._means.mean(0)
        parts = {
            "position": centred.T @ centred / self.tokens,
            "image": self._image / self.images,
            "residual": self._residual / (self.images * self.tokens),
        }
        arrays = {name: part.numpy() for name, part in parts.items()}
        return {"total": arrays["position"] + arrays["image"] + arrays["residual"]} | arrays

    @property
    def mean(self) -> Array:
        """The mean of all tokens of all images, `(dim,)`; ValueError before the first image."""
        self._needs_images()
        return (self._origin + self._means.mean(0)).numpy()

    @property
    def mean_share(self) -> float:
        r"""The mean's share of the uncentred second moment, :math:`|m|^2 / (|m|^2 + \mathrm{tr}\,C)`, from 0 to 1.

        Raises ValueError before the first image, and where every token is zero.
        """
        square = float(self.mean @ self.mean)
        whole = square + float(np.trace(self.parts()["total"]))
        if whole == 0:
            raise ValueError("Every token is zero, so the mean has no share; look at what was measured.")
        return square / whole

    def _needs_images(self) -> None:
        if self.images == 0:
            raise ValueError("There is nothing to split before the first image; update the partition first.")


def eigenvalues(part: Any) -> Array:
    """The eigenvalues of a part `(dim, dim)`, largest first, `(dim,)`; what round-off left below zero is zero.

    A part that is zero has zeros only. Raises ValueError for what is no covariance: not square, not symmetric,
    not finite, or with an eigenvalue further below zero than round-off.
    """
    matrix = tensor(part).to("cpu", torch.float64).numpy()
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size or not np.isfinite(matrix).all():
        raise ValueError(f"A part is a finite square matrix, got NaN or {matrix.shape}; pass one of parts().")
    values = np.linalg.eigvalsh(matrix)[::-1]
    slack = 10 * len(values) * np.finfo(np.float64).eps * abs(values).max()
    if values[-1] < -slack or abs(matrix - matrix.T).max() > slack:
        raise ValueError(f"A covariance is symmetric and none of its eigenvalues negative, got {values[-1]:.3g}.")
    return np.clip(values, 0.0, None)


def without_top_norm(x: Any, share: float) -> Tensor:
    """The tokens of `x`, `(..., dim)`, less the `share` of them with the largest norm, `(kept, dim)`, in order.

    Exactly `round(share * N)` of the N tokens go, chosen among those given together: per batch, if called by
    batch. Dtype and device are kept. Raises ValueError for NaN, no tokens, or a share below 0 or that keeps none.
    """
    rows = tensor(x)
    if rows.ndim < 2 or rows.numel() == 0 or not rows.isfinite().all():
        raise ValueError(f"Norms need finite tokens by features, got NaN or shape {tuple(rows.shape)}.")
    rows = rows.flatten(0, -2)
    kept = len(rows) - round(share * len(rows)) if 0 <= share <= 1 else 0
    if kept == 0:
        raise ValueError(f"A share from 0 to 1 that leaves tokens is needed, got {share} of {len(rows)}.")
    norms = rows.to("cpu", torch.float64).norm(dim=1)
    least = norms.argsort(stable=True)[:kept].sort().values
    return rows[least.to(rows.device)]
