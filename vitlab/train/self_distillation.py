r"""Self-distillation without labels: of every crop a student says what its own average says of the whole.

The teacher is the student's moving average. Its answer to a global view is a distribution over K outputs that mean
nothing to begin with; the student, seeing another view of the same image, must give the same distribution. Two
trivial agreements threaten: one output for everything, and all outputs alike. Centring makes the first
impossible and pulls towards the second; sharpening does the opposite. Together they hold the balance.

Source: Caron et al. 2021, arXiv 2104.14294.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vitlab.train.objectives import Objective
from vitlab.train.recipe import half_cosine


class dino(Objective):  # lower case, because it reads as a phrase: fit(model, feed, dino(model, steps), recipe)
    r"""DINO: cross-entropy between the teacher's and the student's distributions over different views.

    With student outputs :math:`s`, teacher outputs :math:`t`, a centre :math:`c` and two temperatures,

    .. math:: P_s = \mathrm{softmax}(s / \tau_s), \quad P_t = \mathrm{softmax}((t - c) / \tau_t), \quad
              L = \frac{1}{|\{(u, v)\}|} \sum_{u\,\mathrm{global}} \sum_{v \ne u} -P_t(u) \cdot \ln P_s(v).

    After each step :math:`c \leftarrow m_c c + (1 - m_c)\,\bar t` and, weight by weight, teacher
    :math:`\leftarrow m` teacher :math:`+ (1 - m)` student, where m rises from `momentum` to 1 along half a cosine.

    Args:
        model: the student. It maps a list of views to outputs `(views, batch, K)`, and its last layer is
            `model.head.last_layer`. The teacher begins as a copy of it.
        steps: of the whole training, for the schedule of the momentum.
        global_views: how many views of the list, from its first, the teacher sees.
        student_temperature, teacher_temperature: the second, the lower, is the sharpening. A teacher at the
            student's temperature is not sharpened.
        warm_temperature, warm_steps: the teacher's temperature rises in a line from the first, over so many steps.
        momentum: of the teacher, at first.
        centre_momentum: m_c; None leaves the centre at zero, and there is no centring.
        frozen_steps: at first, in which the last layer is not learned; the paper has one epoch.
        stop_collapse: whether a collapse stops the training; without it, nothing is watched.

    Raises ValueError for numbers that cannot train, or outputs of another shape.

    What was seen in the last step is left in `seen`: the teacher's entropy, the student's divergence from it, what
    the teacher's output says about which image it was, in nats, and the spread of the teacher's outputs.
    """

    centre: Tensor
    done: Tensor
    bounded = True  # cosines have a largest loss; it begins low and rises as the teacher's answers spread out

    def __init__(
        self,
        model: nn.Module,
        steps: int,
        global_views: int = 2,
        student_temperature: float = 0.1,
        teacher_temperature: float = 0.04,
        warm_temperature: float = 0.04,
        warm_steps: int = 0,
        momentum: float = 0.996,
        centre_momentum: float | None = 0.9,
        frozen_steps: int = 0,
        stop_collapse: bool = True,
    ) -> None:
        super().__init__()
        temperatures = (student_temperature, teacher_temperature, warm_temperature)
        if min(steps, global_views) < 1 or min(warm_steps, frozen_steps) < 0 or not min(temperatures) > 0:
            raise ValueError(
                "Self-distillation takes a step and a global view or more and temperatures above 0, got "
                f"{steps} steps, {global_views} views, {warm_steps} warm and {frozen_steps} frozen steps, "
                f"temperatures {temperatures}; change what is out of range."
            )
        if not (0 <= momentum <= 1 and 0 <= (centre_momentum or 0.0) < 1):
            raise ValueError(
                f"Momenta lie in [0, 1], the centre's below 1, got {momentum} and {centre_momentum}; change them."
            )
        self.steps, self.global_views = steps, global_views
        self.student_temperature, self.teacher_temperature = student_temperature, teacher_temperature
        self.warm_temperature, self.warm_steps = warm_temperature, warm_steps
        self.momentum, self.centre_momentum = momentum, centre_momentum
        self.frozen_steps, self.stop_collapse = frozen_steps, stop_collapse
        last = getattr(getattr(model, "head", None), "last_layer", None)
        if not isinstance(last, nn.Module):
            raise ValueError(
                "Self-distillation takes a network whose last layer is model.head.last_layer, got a "
                f"{type(model).__name__} without; build it as vitlab.models.dino is."
            )
        # A part of this objective, so a checkpoint holds it: it cannot be had again from the student.
        self.teacher = copy.deepcopy(model).requires_grad_(False).eval()
        outputs = last.weight.shape[0]
        self.register_buffer("centre", torch.zeros(outputs))
        self.register_buffer("done", torch.zeros((), dtype=torch.int64))
        self.seen: dict[str, Tensor] = {}
        self._sum, self._rows = torch.zeros(outputs), 0
        self._said: list[float] = []

    def teacher_temperature_at(self, step: int) -> float:
        """The teacher's temperature in one step."""
        rise = min(1.0, step / self.warm_steps) if self.warm_steps else 1.0
        return self.warm_temperature + rise * (self.teacher_temperature - self.warm_temperature)

    def momentum_at(self, step: int) -> float:
        """The teacher's momentum in one step."""
        return half_cosine(self.momentum, 1.0, min(1.0, step / self.steps))

    def forward(self, model: Callable[[Sequence[Tensor]], Any], views: Sequence[Tensor], labels: Tensor) -> Tensor:
        """Return the loss of the views `(batch, ...)` of a batch of images, the global ones first."""
        if isinstance(views, Tensor) or len(views) < self.global_views or len(views) < 2:
            shape = tuple(views.shape) if isinstance(views, Tensor) else f"{len(views)} views"
            raise ValueError(
                f"Self-distillation takes a list of two views or more, {self.global_views} of them global, got "
                f"{shape}; feed a MultiCrop."
            )
        student = model(views)
        with torch.no_grad():
            teacher = self.teacher(views[: self.global_views])
        if student.shape[::2] != (len(views), len(self.centre)):
            raise ValueError(
                f"The model must give outputs ({len(views)}, batch, {len(self.centre)}), got "
                f"{tuple(student.shape)}; build it as vitlab.models.dino is."
            )
        loss = self.cross_entropy(student, teacher)
        if torch.is_grad_enabled():  # a probe that asks for the loss of other images does not move the centre
            self._sum = self._sum.to(teacher.device) + teacher.float().sum((0, 1))
            self._rows += teacher.shape[0] * teacher.shape[1]
        return loss

    def cross_entropy(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Return the loss of a student's outputs `(views, batch, K)` and a teacher's `(global ones, batch, K)`."""
        temperature = self.teacher_temperature_at(int(self.done))
        p_t = ((teacher.float() - self.centre) / temperature).softmax(-1)
        log_p_s = (student.float() / self.student_temperature).log_softmax(-1)
        # (global views, views): how badly view s agrees with what the teacher says of view t
        disagreement = -torch.einsum("tbk,sbk->ts", p_t, log_p_s) / student.shape[1]
        others = ~torch.eye(*disagreement.shape, dtype=torch.bool, device=disagreement.device)
        loss = disagreement[others].mean()  # a view is not compared with itself
        self._note(teacher.detach(), p_t.detach(), loss.detach())
        return loss

    def _note(self, teacher: Tensor, p_t: Tensor, loss: Tensor) -> None:
        """Keep what tells a collapse, without asking the device for it."""
        entropy = torch.special.entr(p_t).sum(-1).mean()
        of_mean = torch.special.entr(p_t.mean((0, 1))).sum()
        self.seen = {
            "entropy": entropy,
            "divergence": loss - entropy,
            "information": (of_mean - entropy).clamp(min=0),  # no -0.000 by rounding
            "spread": teacher.float().flatten(0, 1).std(0).mean(),
        }
        self.outputs = teacher[0] if self.stop_collapse else None

    def before_step(self, model: nn.Module, step: int) -> None:
        """Keep the last layer as it is in the first steps: its directions settle before they are learned."""
        if step < self.frozen_steps:
            model.head.last_layer.weight.grad = None

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: int) -> None:
        """Move the centre to what the teacher said, over all processes, and the teacher towards the student."""
        if self.centre_momentum is not None:
            total = torch.cat([self._sum, self._sum.new_tensor([float(self._rows)])])
            if dist.is_available() and dist.is_initialized():
                dist.all_reduce(total)
            mean = total[:-1] / total[-1]
            self.centre.mul_(self.centre_momentum).add_(mean, alpha=1 - self.centre_momentum)
        self._sum, self._rows = torch.zeros_like(self._sum), 0
        m = self.momentum_at(step)
        for old, new in zip(self.teacher.parameters(), model.parameters(), strict=True):
            old.lerp_(new.to(old.dtype), 1 - m)
        for old, new in zip(self.teacher.buffers(), model.buffers(), strict=True):
            old.copy_(new)
        self.done.fill_(step + 1)

    def trouble(self) -> str | None:
        """Say in one sentence that the outputs have collapsed, if twice running they said nothing of the image.

        The watch asks now and then. Before training the outputs say next to nothing too, so nothing is said in the
        first tenth of it.
        """
        if self.outputs is None or len(self.outputs) < 2:
            return None  # not watched; or one image at a time, of which nothing can be told
        seen = {name: float(value) for name, value in self.seen.items()}
        told = seen["information"] if int(self.done) > self.steps // 10 else math.inf
        self._said = [*self._said[-1:], told]
        if len(self._said) < 2 or max(self._said) > SILENT:
            return None
        largest = math.log(len(self.centre))
        numbers = (
            f"its entropy is {seen['entropy']:.2f} of at most ln K = {largest:.2f} nats, it says "
            f"{seen['information']:.3f} nats about the image, and an output varies by {seen['spread']:.2g}"
        )
        if seen["entropy"] > 0.9 * largest:
            kind = "all its outputs are equally likely for every image"
            cure = "sharpen it by a lower teacher_temperature, or train longer before judging"
        elif seen["entropy"] < math.log(2):
            kind = "one output wins for every image"
            cure = "switch centring on" if self.centre_momentum is None else "raise the teacher_temperature"
        else:
            kind = "the same few outputs win for every image"
            cure = "lower the learning rate, or train longer before judging"
        return f"The teacher has collapsed, {kind}: {numbers}; {cure}."


SILENT = 0.02  # nats about which image it was, below which the teacher's outputs say nothing
