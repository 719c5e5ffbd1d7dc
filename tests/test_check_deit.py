"""The exercises on distillation: right answers pass however they are written, wrong ones are told where."""

from __future__ import annotations

import math
import re

import pytest
import torch
import torch.nn.functional as F
from scipy.special import ndtr, ndtri
from scipy.stats import multivariate_normal

from vitlab import check

NAMES = ("distillation_pull", "equal_weight", "two_heads")


def by_autograd(z, t, tau):
    z = z.clone().requires_grad_()
    p, q = F.log_softmax(z / tau, -1), F.log_softmax(t / tau, -1)
    (tau**2 * F.kl_div(p, q, reduction="sum", log_target=True)).backward()
    return z.grad


def by_solving(alpha, classes):
    """The weight at which both losses give teacher and label the same proportion, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        too_small = middle * (1 - alpha) < alpha * (1 - middle) * classes
        low, high = (middle, high) if too_small else (low, middle)
    return high if alpha else 0.0


def by_integral(a, rho):
    """The probability that the sum of two margins is positive, by rotating the two to independence."""
    mean = ndtri(a) * math.sqrt(2)
    return 1 - multivariate_normal(mean, 1 + rho).cdf(0.0)


def test_right_answers_pass_however_they_are_written(capsys):
    check.distillation_pull(by_autograd)
    check.distillation_pull(lambda z, t, tau: by_autograd(z.float(), t.float(), tau))
    check.equal_weight(by_solving)
    check.two_heads(by_integral)
    printed = capsys.readouterr().out
    assert printed.count("Right. ") == 4, printed


def sum_of(z, t, tau):
    return by_autograd(z, t, tau).sum()


def cold(z, t, tau):
    return z.softmax(-1) - t.softmax(-1)


def never_worse(a, rho):
    return max(a, ndtr(ndtri(a) * math.sqrt(2 / (1 + rho))))


def raising(*_):
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize("name", NAMES)
def test_an_open_exercise_is_left_alone_and_a_raising_one_told(name, capsys):
    getattr(check, name)(lambda *_: None)
    assert "Not answered yet" in capsys.readouterr().out
    getattr(check, name)(raising)
    assert "Not yet: your function raised ZeroDivisionError" in capsys.readouterr().out


def times(factor):
    return lambda z, t, tau: by_autograd(z, t, tau) * factor(z, tau)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: check.distillation_pull(sum_of), r"shape of the scores, \(4, 6\)"),
        (lambda: check.distillation_pull(lambda z, t, tau: 1.0), "yours is float"),
        (lambda: check.distillation_pull(times(lambda z, tau: -1)), "sign is turned"),
        (lambda: check.distillation_pull(times(lambda z, tau: 1 / len(z))), "mean over the batch"),
        (lambda: check.distillation_pull(times(lambda z, tau: 1 / z.numel())), "divided by all elements"),
        (lambda: check.distillation_pull(times(lambda z, tau: tau)), "at temperature 3 .* one factor too many"),
        (lambda: check.distillation_pull(times(lambda z, tau: 1 / tau)), "temperature 3 .* one factor is missing"),
        (lambda: check.distillation_pull(times(lambda z, tau: 1 / tau**2)), "two factors are missing"),
        (lambda: check.distillation_pull(cold), "temperature is nowhere"),
        (lambda: check.distillation_pull(lambda z, t, tau: z * 0), "is off by up to"),
        (lambda: check.equal_weight(lambda alpha, classes: alpha * classes), "at most 1"),
        (lambda: check.equal_weight(lambda alpha, classes: alpha / classes), "weaker still"),
        (lambda: check.equal_weight(lambda alpha, classes: alpha), "compare teacher to label"),
        (lambda: check.equal_weight(lambda alpha, classes: "a half"), "one number"),
        (lambda: check.two_heads(lambda a, rho: a), "too small"),
        (lambda: check.two_heads(lambda a, rho: ndtr(ndtri(a) * math.sqrt(2))), "one and the same"),
        (lambda: check.two_heads(lambda a, rho: ndtr(ndtri(a) * 2 / (1 + rho))), "a variance is not a deviation"),
        (lambda: check.two_heads(never_worse), "likely to be wrong"),
        (lambda: check.two_heads(lambda a, rho: float("nan")), "one number"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_told_where_and_not_what(call, says, capsys):
    assert call() is None  # a value would be printed under the cell
    printed = capsys.readouterr().out
    assert printed.startswith("Not yet: ")
    assert re.search(says, printed), printed


def test_two_heads_agree_with_drawn_margins():
    generator = torch.Generator().manual_seed(0)
    shared, *own = torch.randn(3, 200_000, generator=generator, dtype=torch.float64)
    for a, rho in ((0.8, 0.5), (0.3, 0.2)):
        first, second = (ndtri(a) + math.sqrt(rho) * shared + math.sqrt(1 - rho) * part for part in own)
        assert float((first > 0).double().mean()) == pytest.approx(a, abs=0.005)
        drawn = float((first + second > 0).double().mean())
        assert drawn == pytest.approx(float(ndtr(ndtri(a) * math.sqrt(2 / (1 + rho)))), abs=0.005)
