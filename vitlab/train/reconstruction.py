r"""Learning to paint what is hidden: the pixels of a patch, from the patches around it.

A patch's pixels are made comparable first: each patch loses its mean and is divided by its deviation. Faint
patterns then count as much as strong ones, and how bright a patch is need not be predicted.

Source: He et al. 2021, arXiv 2111.06377.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any

from torch import Tensor

from vitlab.train.objectives import Objective


class reconstruction(Objective):  # lower case, as it reads as a phrase: fit(model, feed, reconstruction(), recipe)
    r"""Mean squared error over the pixels of the patches that were hidden.

    With a hidden patch's pixels :math:`x`, n of them, and their prediction :math:`\hat x`,

    .. math:: L = \frac1n \left\| \hat x - \frac{x - \bar x}{\sqrt{s^2 + 10^{-6}}} \right\|^2,

    averaged over hidden patches; :math:`s^2` is the patch's unbiased variance. Predicting zero, each patch's mean,
    costs (n - 1) / n where no patch is flat: that is what a network gets which has learned nothing.

    The labels are not used. The watch looks at the prediction, averaged over patches; as each image hides others,
    it is the same for all only in a network that is dead. A loss that stays at (n - 1) / n stops nothing: in noise
    there is no more to learn.

    Args:
        normalised: whether each patch is normalised; without it the pixels are predicted as the network sees them.

    Raises ValueError for images or outputs of another shape.
    """

    def __init__(self, normalised: bool = True) -> None:
        super().__init__()
        self.normalised = normalised

    def forward(self, model: Callable[[Tensor], Any], images: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of images `(batch, channels, height, width)`.

        The model gives a prediction `(batch, patches, side**2 * channels)` and a mask `(batch, patches)`, 1 where
        hidden; a patch's pixels are in the order rows, columns, channels.
        """
        if not isinstance(images, Tensor) or images.ndim != 4:
            shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
            raise ValueError(
                f"Reconstruction takes images (batch, channels, height, width), got {shape}; feed one view."
            )
        given = model(images)
        side = _side(given, images)
        prediction, mask = given
        self.outputs = prediction.detach().mean(1)  # kept until the next step, so it had better be small
        target = _patches(images.float(), side)  # (batch, patches, n)
        if self.normalised:
            mean, variance = target.mean(-1, keepdim=True), target.var(-1, keepdim=True)
            target = (target - mean) / (variance + 1e-6).sqrt()
        error = (prediction.float() - target).square().mean(-1)  # (batch, patches)
        return (error * mask).sum() / mask.sum()


def _patches(images: Tensor, side: int) -> Tensor:
    """Cut images `(batch, channels, height, width)` into patches `(batch, patches, side**2 * channels)`."""
    x = images.unflatten(3, (-1, side)).unflatten(2, (-1, side))  # (batch, channels, rows, side, columns, side)
    return x.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def _side(given: Any, images: Tensor) -> int:
    """Return the side of the patches that were predicted, if that is what was given."""
    batch, channels, height, width = images.shape
    pair = given if isinstance(given, (tuple, list)) else (given,)
    shapes = [tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__ for x in pair]
    if len(pair) == 2 and all(isinstance(x, Tensor) for x in pair) and pair[0].ndim == 3:
        side = max(1, isqrt(pair[0].shape[2] // channels))
        patches = (height // side) * (width // side)
        whole = height % side == 0 == width % side
        if whole and shapes == [(batch, patches, side * side * channels), (batch, patches)]:
            return side
    raise ValueError(
        f"For images {tuple(images.shape)} the model must give a prediction (batch, patches, side**2 * channels) "
        f"and a mask (batch, patches), got {' and '.join(map(str, shapes))}; build it as vitlab.models.mae is."
    )
