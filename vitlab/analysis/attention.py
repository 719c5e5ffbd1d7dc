r"""What attention weights say: how far a head looks, how evenly, and what reaches the output through all layers.

Weights are softmaxed, `(batch, heads, queries, keys)`, one row a query. Queries and keys are the same tokens:
`prefix` special ones first (CLS, distillation, registers), then the patches row by row. Distances are in image
pixels between patch centres. A head's number means little alone: set `uniform_distance` beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitlab.analysis.arrays import tensor

Array = NDArray[Any]


def _weights(weights: Any) -> Tensor:
    """The weights as float64 `(batch, heads, tokens, tokens)`, refused unless every row is a distribution."""
    a = tensor(weights).to("cpu", torch.float64)
    if a.ndim != 4 or a.numel() == 0 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Attention weights are (batch, heads, tokens, tokens), got {tuple(a.shape)}.")
    # Half-precision rows miss 1 by up to 1e-2; logits or unnormalised weights miss it by far more. NaN fails too.
    if not (a.min() >= 0 and (a.sum(-1) - 1).abs().max() < 0.02):
        raise ValueError(
            "Every row of attention weights is non-negative and sums to 1; pass them after the softmax."
        )
    return a


def _patches(weights: Any, prefix: int, grid: tuple[int, int] | None) -> Tensor:
    """The weights between patches, rows renormalised; NaN rows where a query gives no patch any weight."""
    a = _weights(weights)
    patches = a.shape[-1] - prefix
    if prefix < 0 or patches < 1 or (grid is not None and patches != grid[0] * grid[1]):
        want = f"{prefix} + {'x'.join(map(str, grid))}" if grid is not None else f"more than {prefix}"
        raise ValueError(
            f"The weights should have {want} tokens, got {a.shape[-1]}; mind the grid and the prefix."
        )
    a = a[..., prefix:, prefix:]
    return a / a.sum(-1, keepdim=True)


def _distances(grid: tuple[int, int], patch: float) -> Array:
    """Distance in pixels between the centres of every two patches, `(patches, patches)`."""
    rows, columns = grid
    if rows < 1 or columns < 1 or not patch > 0:
        raise ValueError(f"A grid is rows by columns of patches of some pixels, got {grid} and {patch}.")
    y, x = np.divmod(np.arange(rows * columns), columns)
    return patch * np.hypot(y[:, None] - y, x[:, None] - x)


def _per_head(values: Tensor, per_image: bool) -> Array:
    """Means over queries, and over images unless they are asked for one by one, leaving out NaN rows."""
    means = values.nanmean(-1) if per_image else values.nanmean((0, -1))
    if means.isnan().any():
        raise ValueError("A head gives all its weight to special tokens at every query; it looks at no patch.")
    return means.numpy()


def distance(weights: Any, grid: tuple[int, int], patch: float, prefix: int = 1, per_image: bool = False) -> Array:
    r"""Mean over queries of each head's distance in pixels, :math:`\sum_j a_{ij} \lVert p_i - p_j \rVert_2`.

    Special tokens are dropped and rows renormalised; a query that gives patches no weight at all is left out.

    Args:
        weights: softmaxed, `(batch, heads, tokens, tokens)`.
        grid: rows and columns of patches.
        patch: side of a patch in pixels.
        prefix: special tokens before the patches.
        per_image: keep the images apart.

    Returns:
        `(heads,)`, the mean over queries and images, or `(batch, heads)`.

    Raises:
        ValueError: weights that are no softmax, or tokens that do not fit the grid.

    Source: Dosovitskiy et al. 2021, arXiv 2010.11929, section 4.5 and appendix D.7.
    """
    a = _patches(weights, prefix, grid)
    return _per_head((a * torch.from_numpy(_distances(grid, patch))).sum(-1), per_image)


def uniform_distance(grid: tuple[int, int], patch: float) -> float:
    """The distance of a head that looks everywhere alike: 116.5 px on 14 x 14 patches of 16 px."""
    return float(_distances(grid, patch).mean())


def local_distance(grid: tuple[int, int], patch: float, window: int = 3) -> float:
    """The distance of a head that looks evenly at the `window` x `window` patches around each, cut at the border.

    16.7 px on 14 x 14 patches of 16 px. Raises ValueError unless the window is odd.
    """
    if window < 1 or window % 2 == 0:
        raise ValueError(f"A window around a patch is odd, 1 or more, got {window}.")
    y, x = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    reach = np.maximum(abs(y[:, None] - y), abs(x[:, None] - x)) <= window // 2
    return float(((_distances(grid, patch) * reach).sum(1) / reach.sum(1)).mean())


def entropy(weights: Any, prefix: int = 0, normalised: bool = False, per_image: bool = False) -> Array:
    r"""Mean entropy of each head's rows in nats, :math:`-\sum_j a_{ij} \ln a_{ij}`, from 0 to ln(keys).

    With `prefix`, that many special tokens are dropped first and rows renormalised; `normalised` divides by
    ln(keys), so that uniform attention is 1. Shapes and errors as in `distance`.
    """
    a = _patches(weights, prefix, None)
    if normalised and a.shape[-1] == 1:
        raise ValueError("The entropy over one key has no scale, ln 1 = 0; leave normalised off.")
    values = torch.special.entr(a).sum(-1)
    return _per_head(values / math.log(a.shape[-1]) if normalised else values, per_image)


def rollout(weights: Sequence[Any], row: Literal["cls", "mean", "all"] = "cls", prefix: int = 1) -> Array:
    r"""Attention followed through all layers: rows of :math:`\prod_l (A_l + I) / 2`, heads averaged.

    The last layer stands first in the product.

    Args:
        weights: one `(batch, heads, tokens, tokens)` a layer, from the first to the last.
        row: whose row to return: "cls" that of token 0, "mean" the mean over the patches' rows, "all" every row.
        prefix: special tokens before the patches.

    Returns:
        How much each input token feeds that row, `(batch, tokens)`, sums to 1; all rows `(batch, tokens, tokens)`.

    Raises:
        ValueError: no layer, layers of different shapes, weights that are no softmax, no CLS token to read.

    Source: Abnar and Zuidema 2020, arXiv 2005.00928.
    """
    if row not in ("cls", "mean", "all"):
        raise ValueError(f"rollout returns the row 'cls', 'mean' or 'all', got {row!r}.")
    if isinstance(weights, Tensor | np.ndarray) or len(weights) == 0:
        raise ValueError("rollout takes a list with one array of weights a layer; put them in a list.")
    product: Tensor | None = None
    for layer in weights:
        a = _weights(layer).mean(1)  # (batch, tokens, tokens)
        a = (a + torch.eye(a.shape[-1], dtype=a.dtype)) / 2  # the residual stream passes half by
        if product is not None and product.shape != a.shape:
            raise ValueError(f"All layers share one shape, got {tuple(product.shape)} and {tuple(a.shape)}.")
        product = a if product is None else a @ product
    assert product is not None
    if row == "cls" and prefix < 1:
        raise ValueError("This model has no CLS token (prefix 0); ask for the row 'mean'.")
    if not 0 <= prefix < product.shape[-1]:
        raise ValueError(f"There are {product.shape[-1]} tokens in all, so prefix={prefix} leaves no patch.")
    if row == "all":
        return product.numpy()
    return (product[:, 0] if row == "cls" else product[:, prefix:].mean(1)).numpy()
