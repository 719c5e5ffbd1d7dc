"""The exercises of the chapter on MViT and Focal: wrong answers are told where, other right ones pass."""

from __future__ import annotations

import pytest
import torch

from vitlab import check


def fine_and_pooled(window, expand, focal_window, windows, row, column):
    """Every key, looked for one by one."""
    side, e = windows * window, expand if windows > 1 else 0
    rows = {(row * window + r) % side for r in range(-e, window + e)}
    columns = {(column * window + c) % side for c in range(-e, window + e)}
    reach = range(-(focal_window // 2), focal_window // 2 + 1)
    pooled = [(r, c) for r in reach for c in reach if 0 <= row + r < windows and 0 <= column + c < windows]
    return len(rows) * len(columns), len(pooled)


def sides(side, stride, depths):
    out = []
    for stage, depth in enumerate(depths):
        here = max(1, stride // 2**stage)
        grids = [side // 2 ** max(0, stage - 1)] + [side // 2**stage] * (depth - 1)
        out += [grid // here for grid in grids]
    return out


def merged(place, bias):
    """With the largest taken away by hand."""
    out = torch.full((len(bias), int(place.max()) + 1), -torch.inf, dtype=bias.dtype)
    for at, b in zip(place.tolist(), bias.T, strict=True):
        out[:, at] = torch.logaddexp(out[:, at], b)
    return out


def unanswered(*_): ...


def raising(*_):
    raise ZeroDivisionError("division by zero")


NAMES = ("keys_of_window", "key_sides", "merge_biases")


@pytest.mark.parametrize(
    ("name", "answer"),
    [("keys_of_window", fine_and_pooled), ("key_sides", sides), ("merge_biases", merged)],
)
def test_a_right_answer_of_another_kind_passes(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out.startswith("Right. ")


@pytest.mark.parametrize("name", NAMES)
def test_an_open_exercise_is_left_alone_and_a_raising_one_told(name, capsys):
    getattr(check, name)(unanswered)
    assert capsys.readouterr().out.startswith("Not answered yet")
    getattr(check, name)(raising)
    assert "ZeroDivisionError: division by zero" in capsys.readouterr().out


def each_group(how):
    return lambda place, bias: torch.stack([how(bias[:, place == p]) for p in range(int(place.max()) + 1)], dim=1)


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("keys_of_window", lambda *_: 169, "two numbers are asked for"),
        ("keys_of_window", lambda w, e, f, n, r, c: ((w + 2 * e) ** 2, fine_and_pooled(w, e, f, n, r, c)[1]),
         "where the window is the map"),
        ("keys_of_window", lambda w, e, f, n, r, c: (fine_and_pooled(w, e, f, n, r, c)[0], f * f),
         "count those that lie on it"),
        ("keys_of_window", lambda w, e, f, n, r, c: (181, 0), "different keys are asked for"),
        ("key_sides", lambda *_: 14, "one a block"),
        ("key_sides", lambda side, stride, depths: [side // stride] * len(depths), "there are 10 blocks"),
        ("key_sides", lambda side, stride, depths: [14] * 10, "which grid does the first block of a stage get?"),
        ("key_sides", lambda side, stride, depths: [56] * sum(depths), "the keys of block 1 have not 56 a side"),
        ("merge_biases", lambda place, bias: bias, "has the shape (4, 4)"),
        ("merge_biases", each_group(lambda g: g.sum(1)), "weights add up"),
        ("merge_biases", each_group(lambda g: g.mean(1)), "forgets how often"),
        ("merge_biases", each_group(lambda g: g.amax(1)), "forgets the others"),
        ("merge_biases", each_group(lambda g: g.exp().sum(1)), "that is a weight"),
        ("merge_biases", each_group(lambda g: g.exp().sum(1).log()), "overflow"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_told_where_and_not_what(name, answer, told, capsys):
    getattr(check, name)(answer)
    out = capsys.readouterr().out
    assert told in out
    assert out.startswith("Not yet: ")
