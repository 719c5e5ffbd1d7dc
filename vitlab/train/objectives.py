"""What a network is trained to do: a batch in, a loss out.

An objective is a module: `objective(model, images, labels)` returns the loss of a batch, a scalar. What it keeps
beside the model (a teacher's average, a centre) are buffers of its own, saved with a checkpoint; what is
learned, a projection head too, belongs to the model. It leaves the scores it saw last in `outputs`, where the
watch looks for a collapse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Objective(nn.Module):
    """What `fit` asks of an objective besides its loss."""

    outputs: Tensor | None = None

    def before_step(self, model: nn.Module, step: int) -> None:
        """Called when the gradients of step number `step` are there: here some can be frozen."""

    def after_step(self, model: nn.Module, step: int) -> None:
        """Called when step number `step` has changed the model: here a teacher follows its student."""


class supervised(Objective):  # lower case, because it reads as a phrase: fit(model, feed, supervised(20), recipe)
    r"""Cross-entropy to the labels, softened and mixed as modern recipes do.

    With smoothing e, a label becomes 1 - e on its class plus e / K on each of the K classes. Mixup replaces images
    and targets by means of two, :math:`\lambda x_i + (1 - \lambda) x_j` with :math:`\lambda` from a Beta(a, a);
    CutMix pastes a rectangle of one into the other and mixes the targets by area. Both by timm.

    Args:
        classes: how many, K.
        label_smoothing: e, in [0, 1).
        mixup, cutmix: a of the two Beta distributions; 0 leaves it out. With both, each batch takes one of them.

    Raises ValueError for scores of another shape than `(batch, classes)`.

    Source: Szegedy et al. 2016, arXiv 1512.00567; Zhang et al. 2018, arXiv 1710.09412; Yun et al. 2019,
    arXiv 1905.04899.
    """

    def __init__(
        self, classes: int, label_smoothing: float = 0.0, mixup: float = 0.0, cutmix: float = 0.0
    ) -> None:
        super().__init__()
        if classes < 2 or not 0 <= label_smoothing < 1 or min(mixup, cutmix) < 0:
            raise ValueError(
                "Supervised training takes two classes or more, a smoothing in [0, 1), mixup and cutmix of 0 or "
                f"more, got {classes}, {label_smoothing}, {mixup}, {cutmix}; change what is out of range."
            )
        self.classes = classes
        self.label_smoothing = label_smoothing
        self.mix = _mix(mixup, cutmix, label_smoothing, classes) if mixup or cutmix else None

    def forward(self, model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of images `(batch, ...)` with labels `(batch,)`."""
        if self.mix is not None:
            images, targets = _mixed(self.mix, images, labels)  # targets (batch, classes)
        else:
            targets = labels
        scores = _scores(model(images), self.classes)
        self.outputs = scores.detach()
        return F.cross_entropy(scores, targets, label_smoothing=0.0 if self.mix else self.label_smoothing)


class distillation(Objective):
    r"""Half the cross-entropy to the labels, half an imitation of a teacher.

    Hard: :math:`\frac12 CE(z, y) + \frac12 CE(z', \arg\max z_t)`, DeiT's equation 3. Soft:
    :math:`(1 - \alpha)\,CE(z, y) + \alpha\,\tau^2\,KL(p_t^\tau \,\|\, p^\tau)`, its equation 2, where the
    divergence of an image is summed over classes. Two scalings are published: "batch" averages over images, as
    the equation reads; "elements" divides by images times classes, as DeiT's released code does, which makes
    the term K times smaller. A model with a distillation token returns two sets of scores, (z, z'); else z' = z.

    Args:
        teacher: a classifier of the same images; it is frozen, kept out of checkpoints, and run in eval mode.
        kind: "hard" or "soft".
        tau: temperature of the soft kind.
        alpha: weight of the imitation; DeiT has 0.5.
        scaling: "batch" or "elements", of the soft kind.

    Source: Hinton et al. 2015, arXiv 1503.02531; Touvron et al. 2021, arXiv 2012.12877.
    """

    def __init__(
        self,
        classes: int,
        teacher: nn.Module,
        kind: Literal["hard", "soft"] = "hard",
        tau: float = 1.0,
        alpha: float = 0.5,
        scaling: Literal["batch", "elements"] = "batch",
        label_smoothing: float = 0.0,
        mixup: float = 0.0,
        cutmix: float = 0.0,
    ) -> None:
        super().__init__()
        if kind not in ("hard", "soft") or scaling not in ("batch", "elements"):
            raise ValueError(
                f'Distillation is "hard" or "soft", scaled by "batch" or "elements", got {kind!r}, {scaling!r}; '
                "name one of each."
            )
        if not tau > 0 or not 0 <= alpha <= 1:
            raise ValueError(f"tau is positive and alpha in [0, 1], got {tau} and {alpha}; change them.")
        self.labels = supervised(classes, label_smoothing, mixup, cutmix)
        self.kind, self.tau, self.alpha, self.scaling = kind, tau, alpha, scaling
        # Outside the register of submodules: a teacher is not learned and belongs in no checkpoint.
        self.__dict__["teacher"] = teacher.eval().requires_grad_(False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> distillation:
        self.teacher._apply(fn)  # goes to a device with the rest
        return super()._apply(fn, recurse)

    def forward(self, model: Callable[[Tensor], Any], images: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of images `(batch, ...)` with labels `(batch,)`."""
        seen: list[Tensor] = []

        def first(x: Tensor) -> Tensor:
            """The scores that learn the labels; those that learn from the teacher, and its images, are kept."""
            scores = model(x)
            pair = scores if isinstance(scores, tuple) else (scores, scores)
            seen.extend((x, pair[1]))
            return pair[0]

        truth = self.labels(first, images, labels)
        self.outputs = self.labels.outputs
        x, student = seen
        with torch.no_grad():
            teacher = _scores(self.teacher(x), self.labels.classes)
        return (1 - self.alpha) * truth + self.alpha * self.imitation(student, teacher)

    def imitation(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Return the loss between a student's and a teacher's scores, each `(batch, classes)`."""
        if self.kind == "hard":
            return F.cross_entropy(student, teacher.argmax(dim=1))
        p = F.log_softmax(student / self.tau, dim=1)
        q = F.log_softmax(teacher / self.tau, dim=1)
        total = F.kl_div(p, q, reduction="sum", log_target=True) * self.tau**2
        return total / (len(student) if self.scaling == "batch" else student.numel())


def _scores(scores: Any, classes: int) -> Tensor:
    """Return class scores, if that is what they are."""
    if not isinstance(scores, Tensor) or scores.ndim != 2 or scores.shape[1] != classes:
        shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"The model must give scores (batch, {classes}), got {shape}; build it with that many.")
    return scores


def _mix(mixup: float, cutmix: float, label_smoothing: float, classes: int) -> Any:
    from timm.data import Mixup

    return Mixup(
        mixup_alpha=mixup, cutmix_alpha=cutmix, label_smoothing=label_smoothing, num_classes=classes, mode="batch"
    )


def _mixed(mix: Any, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Mix a batch with itself reversed; the images given stay as they are."""
    if len(images) % 2:
        raise ValueError(f"Mixup pairs the images of a batch, got {len(images)}; take an even batch size.")
    x, targets = mix(images.clone(), labels)
    return x, targets.to(x.dtype)
