"""The exercises of the chapter on Swin and PVT: a wrong answer is told where it is wrong, never what is right."""

from __future__ import annotations

import math

import pytest

from vitlab import check


def right_pairs(side, patch, road, size):
    n = (side // patch) ** 2
    return n * {"all": n, "window": size**2, "reduce": n // size**2}[road]


def right_exponent(a, b, n, k):
    return math.log((a * k * n + b * (k * n) ** 2) / (a * n + b * n**2)) / math.log(k)


def unanswered(*_): ...


def raising(*_):
    raise ZeroDivisionError("division by zero")


NAMES = ("key_query_pairs", "exponent_of_sum", "blocks_until_global")


@pytest.mark.parametrize("name", NAMES)
def test_an_open_exercise_is_left_alone_and_a_raising_one_told(name, capsys):
    getattr(check, name)(unanswered)
    assert "Not answered yet" in capsys.readouterr().out
    getattr(check, name)(raising)
    assert "raised ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("key_query_pairs", right_pairs),
        ("key_query_pairs", lambda *case: float(right_pairs(*case))),
        ("exponent_of_sum", right_exponent),
        ("exponent_of_sum", lambda a, b, n, k: 1 + math.log((a + b * k * n) / (a + b * n), k)),
        ("blocks_until_global", lambda side, window: 2 * (side // window) - 1),
        ("blocks_until_global", lambda side, window: 2 * side / window - 1),
    ],
)
def test_a_right_answer_in_any_form_is_right(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out.startswith("Right. ")


def pairs_but(road, wrong):
    """The right pairs, and on one road something made of them, of the tokens along a side, and of the size."""

    def pairs(side, patch, asked, size):
        right = right_pairs(side, patch, asked, size)
        return wrong(right, side // patch, size) if road in (asked, "any") else right

    return pairs


WRONG = [
    ("key_query_pairs", pairs_but("any", lambda right, along, size: right // along**2), "keys of one query"),
    ("key_query_pairs", pairs_but("any", lambda right, along, size: right // along), "rows and columns"),
    (
        "key_query_pairs",
        pairs_but("window", lambda right, along, size: along**2 * size),
        "as many rows as columns",
    ),
    ("key_query_pairs", pairs_but("reduce", lambda right, along, size: along**4 // size), "rows and columns"),
    ("key_query_pairs", pairs_but("reduce", lambda right, along, size: right // size**2), "keep their number"),
    ("key_query_pairs", pairs_but("any", lambda right, along, size: 7), "too small"),
    ("key_query_pairs", lambda side, patch, road, size: "many", "one number"),
    ("exponent_of_sum", lambda a, b, n, k: right_exponent(a, b, n, k) * math.log(k), "denominator"),
    ("exponent_of_sum", lambda a, b, n, k: k ** right_exponent(a, b, n, k), "ratio of the costs"),
    ("exponent_of_sum", lambda a, b, n, k: 1 + b * n / (a + b * n), "slope at one point"),
    ("exponent_of_sum", lambda a, b, n, k: -right_exponent(a, b, n, k), "sign"),
    ("exponent_of_sum", lambda a, b, n, k: 2, "one exponent everywhere"),
    ("exponent_of_sum", lambda a, b, n, k: 1.0 if b == 0 else 2.0, "too large"),
    ("exponent_of_sum", lambda a, b, n, k: float("nan"), "one number"),
    ("blocks_until_global", lambda side, window: side // window, "who is slowest"),
    ("blocks_until_global", lambda side, window: 1, "too few"),
    ("blocks_until_global", lambda side, window: 2 * (side // window), "too many"),
    ("blocks_until_global", lambda side, window: [3], "one number"),
]


@pytest.mark.parametrize(("name", "answer", "told"), WRONG)
def test_wrong_answers_are_told_where(name, answer, told, capsys):
    getattr(check, name)(answer)
    out = capsys.readouterr().out
    assert out.startswith("Not yet: ")
    assert told in out
