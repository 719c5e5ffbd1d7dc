"""The exercises of the chapter on tradeoffs: wrong answers are told where, other right ones pass."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from vitlab import check


def skyline(cost, accuracy):
    """Sorted by cost, who raises the best accuracy so far stays; equals of one that stays stay too."""
    points, best, kept = sorted(zip(cost, [-a for a in accuracy], strict=True)), -math.inf, set()
    for c, a in points:
        if -a > best:
            best = -a
            kept.add((c, -a))
    return np.array([i for i, point in enumerate(zip(cost, accuracy, strict=True)) if point in kept])


def counted(k):
    pairs = len(list(itertools.combinations(range(k), 2)))
    return pairs / 20, 100 - 5 / pairs


def tried(d, g, h):
    """Look for the number by halving."""
    low, high = 0, 10**8
    while high - low > 1:
        n = (low + high) // 2
        low, high = (low, n) if 1.96 * math.sqrt((d - g**2) / n) <= h + 1e-12 else (n, high)
    return high


def unanswered(*_): ...


def raising(*_):
    raise ZeroDivisionError("division by zero")


NAMES = ("pareto_front", "lucky_differences", "images_to_hold_out")


@pytest.mark.parametrize(("name", "answer"), list(zip(NAMES, (skyline, counted, tried), strict=True)))
def test_a_right_answer_of_another_kind_passes(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out.startswith("Right. ")


@pytest.mark.parametrize("name", NAMES)
def test_an_open_exercise_is_left_alone_and_a_raising_one_told(name, capsys):
    getattr(check, name)(unanswered)
    assert capsys.readouterr().out.startswith("Not answered yet")
    getattr(check, name)(raising)
    assert "ZeroDivisionError: division by zero" in capsys.readouterr().out


def pairs(k):
    return k * (k - 1) / 2


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("pareto_front", lambda cost, _: "abc", "numbers of networks are asked for"),
        ("pareto_front", lambda cost, _: [i + 1 for i in range(len(cost))], "numbered from 0"),
        ("pareto_front", lambda c, a: list(skyline(c, a))[::-1], "in the order given"),
        ("pareto_front", lambda cost, _: range(len(cost)), "network 0 is dominated"),
        ("pareto_front", lambda cost, _: [0], "who dominates network 1?"),
        ("lucky_differences", lambda k: 0.05, "two numbers are asked for"),
        ("lucky_differences", lambda k: (0.1 * pairs(k), 0), "a pair is counted once"),
        ("lucky_differences", lambda k: (0.05 * (k - 1), 100 - 5 / pairs(k)), "any two are compared"),
        ("lucky_differences", lambda k: (1 - 0.95 ** pairs(k), 95), "at least one, if they were independent"),
        ("lucky_differences", lambda k: (0.05 * pairs(k), 1 - 0.05 / pairs(k)), "per cent are asked for"),
        ("lucky_differences", lambda k: (0.05 * pairs(k), 100 * 0.95 ** (1 / pairs(k))), "Šidák's"),
        ("lucky_differences", lambda k: (0.05 * pairs(k), 5 / pairs(k)), "may miss"),
        ("lucky_differences", lambda k: (0.05 * pairs(k), 99.9), "is too high"),
        ("images_to_hold_out", lambda *_: "many", "one number"),
        ("images_to_hold_out", lambda d, g, h: 1.96**2 * (d - g * g) / h**2, "least whole number"),
        ("images_to_hold_out", lambda d, g, h: math.ceil(1.96**2 * d / h**2), "about the mean"),
        ("images_to_hold_out", lambda d, g, h: math.ceil(1.96**2 * d * (1 - d) / h**2), "three values, not two"),
        ("images_to_hold_out", lambda d, g, h: math.ceil(1.96 * d**0.5 / h), "root of the number"),
        ("images_to_hold_out", lambda d, g, h: math.ceil(4 * 1.96**2 * (d - g * g) / h**2), "half of the width"),
        ("images_to_hold_out", lambda *_: 7, "too few"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_told_where_and_not_what(name, answer, told, capsys):
    getattr(check, name)(answer)
    out = capsys.readouterr().out
    assert told in out
    assert out.startswith("Not yet: ")
