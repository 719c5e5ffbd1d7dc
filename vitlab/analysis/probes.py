r"""What features know of the classes: two ways to read labels off a representation that is left as it is.

Nearest neighbours ask whether images of a class lie close together; a linear probe asks whether planes part them.
Neither changes the features, so both measure these and not what further training could make of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vitlab.analysis.arrays import tensor

__all__ = ["knn", "linear"]

Array = NDArray[Any]

CHUNK = 4_000_000  # similarities held at a time, 32 MB
TIE = 1e-12  # cosines this close are equal but for round-off


def knn(features: Any, labels: Any, new: Any, k: int = 10, temperature: float = 0.07) -> Array:
    r"""Label new images by a vote of the k nearest of those known, weighted by how near they are.

    With s the cosine similarity of a new image to each stored one, class c receives

    .. math:: \sum_{i \in \text{nearest } k,\; y_i = c} \exp(s_i / \tau)

    and the largest sum wins, the lowest label among equals. All that tie for the k-th place vote, so the order of
    the store does not matter. A vector of zeros has no direction: its similarity to everything is 0, and a new one
    is labelled by all of the store. Likewise features that have collapsed to one vector give the commonest class.
    Cosines are taken in float64, because an untrained network may put all images within 1e-5 of one another.

    Args:
        features: `(stored, dim)`, of the images whose labels are known.
        labels: `(stored,)`, whole numbers.
        new: `(new, dim)`, of the images to label.
        k: how many vote.
        temperature: :math:`\tau`; the lower it is, the more the nearest decides.

    Returns:
        The labels predicted, `(new,)`.

    Raises:
        ValueError: shapes that do not fit, NaN or infinity, labels that are not whole, k beyond the store.

    Source: Wu et al. 2018, arXiv 1805.01978; Caron et al. 2021, arXiv 2104.14294.
    """
    stored, known, asked = _given(features, labels, new)
    if not 1 <= k <= len(stored):
        raise ValueError(f"Neighbours are 1 to {len(stored)}, as many as are stored, got k={k}; change k.")
    if not temperature > 0:
        raise ValueError(f"The temperature of a vote is positive, got {temperature}; DINO takes 0.07.")
    stored, asked = _directions(stored), _directions(asked)
    classes, index = np.unique(known, return_inverse=True)
    ballot = np.eye(len(classes))[index]  # (stored, classes): 1 where an image is of a class
    predicted = []
    for start in range(0, len(asked), max(1, CHUNK // len(stored))):
        similar = asked[start : start + max(1, CHUNK // len(stored))] @ stored.T  # (chunk, stored)
        kth = np.partition(similar, -k, axis=1)[:, -k, None]
        weight = np.exp((similar - similar.max(1, keepdims=True)) / temperature)  # from the largest: no overflow
        votes = np.where(similar >= kth - TIE, weight, 0.0) @ ballot  # (chunk, classes)
        predicted.append(classes[votes.argmax(1)])
    return np.concatenate(predicted)


def linear(features: Any, labels: Any, new: Any, strength: float = 1.0) -> Array:
    r"""Label new images by a linear probe: multinomial logistic regression on standardised features.

    It minimises the sum of the cross-entropies and of half `strength` times :math:`\|W\|^2`. Each feature is
    standardised by the mean and deviation of the stored ones; one that is constant there stays out. No number is
    drawn at random.

    Args: as of `knn`, with two classes or more; `strength` of the penalty, positive.

    Returns:
        The labels predicted, `(new,)`.

    Raises:
        ValueError: as in `knn`; a single class; a penalty that is not positive.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    stored, known, asked = _given(features, labels, new)
    if len(np.unique(known)) < 2:
        raise ValueError(f"A linear probe parts two classes or more, got only {known[0]}; store images of others.")
    if not strength > 0:
        raise ValueError(f"The penalty's strength is positive, got {strength}; 1 is the usual one.")
    varies = np.ptp(stored, axis=0) > 0
    if not varies.any():  # all images look alike, so the commonest class is all that can be learnt
        classes, counts = np.unique(known, return_counts=True)
        return np.full(len(asked), classes[counts.argmax()])
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=1 / strength, max_iter=10_000))
    return probe.fit(stored[:, varies], known).predict(asked[:, varies])


def _given(features: Any, labels: Any, new: Any) -> tuple[Array, Array, Array]:
    """Check what was given: float64 `(stored, dim)`, whole `(stored,)` and float64 `(new, dim)` come out."""
    stored, asked = (tensor(x).to("cpu", torch.float64).numpy() for x in (features, new))
    known = tensor(labels).cpu().numpy()
    rows = stored.ndim == asked.ndim == 2 and stored.size and asked.size
    if not rows or stored.shape[1] != asked.shape[1]:
        raise ValueError(
            f"Stored and new features are rows of one width, got shapes {stored.shape} and {asked.shape}; flatten "
            "or pool each image to one row."
        )
    if known.shape != stored.shape[:1] or known.dtype.kind not in "iu":
        raise ValueError(
            f"Each of the {len(stored)} stored images has one label, a whole number, got {known.dtype} of shape "
            f"{known.shape}."
        )
    if not (np.isfinite(stored).all() and np.isfinite(asked).all()):
        raise ValueError("Features hold NaN or infinity; look at the network that made them.")
    return stored, known, asked


def _directions(rows: Array) -> Array:
    """Scale each row to length 1; rows of zeros stay so."""
    peak = np.abs(rows).max(1, keepdims=True)
    rows = rows / np.where(peak > 0, peak, 1)  # first to peak 1, so that squares neither vanish nor overflow
    return rows / np.where(peak > 0, np.linalg.norm(rows, axis=1, keepdims=True), 1)
