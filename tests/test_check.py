"""The exercises: every solution printed in a chapter passes its check, and wrong answers are told where."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from vitlab import check

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SOLUTION = re.compile(r"<details><summary>Solution</summary>(.*?)</details>", re.S)
CODE = re.compile(r"```python\n(.*?)```", re.S)


def solutions():
    """Yield each chapter's solutions as code, the comment marks of the .py removed."""
    for file in sorted(NOTEBOOKS.glob("*.py")):
        text = re.sub(r"^# ?", "", file.read_text(encoding="utf-8"), flags=re.M)
        for number, solution in enumerate(SOLUTION.findall(text), 1):
            for code in CODE.findall(solution):
                yield pytest.param(code, id=f"{file.stem}-{number}")


@pytest.mark.parametrize("code", list(solutions()))
def test_every_printed_solution_passes(code, capsys):
    assert "check." in code
    exec(compile(code, "<solution>", "exec"), {"torch": torch, "np": np, "math": math, "check": check})
    assert capsys.readouterr().out.startswith("Right. ")


def test_every_chapter_has_at_least_three_exercises_with_solutions():
    for file in NOTEBOOKS.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        exercises = re.findall(r"^# ### Exercise (\d+): ", text, flags=re.M)
        assert [int(n) for n in exercises] == list(range(1, len(exercises) + 1)), file.name
        assert len(exercises) >= 3, file.name
        assert text.count("<details><summary>Solution</summary>") == len(exercises), file.name


def unanswered(*_): ...


def raising(*_):
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    "name",
    [
        "parameters",
        "circular_bias",
        "attention_as_convolution",
        "unseen_share",
        "two_point_law",
        "interaction_log_odds",
        "eed_to_log",
        "one_direction",
        "trace_of_square",
        "information",
        "half_life",
        "auc",
        "whitening",
        "noise_shares",
        "apparent_ratio",
    ],
)
def test_an_open_exercise_is_left_alone_and_a_raising_one_told(name, capsys):
    getattr(check, name)(unanswered)
    assert "Not answered yet" in capsys.readouterr().out
    getattr(check, name)(raising)
    assert "Not yet: your function raised ZeroDivisionError" in capsys.readouterr().out


def no_norms(image, patch, dim, depth, classes):
    tokens = (image // patch) ** 2 + 1
    ends = 3 * patch**2 * dim + dim + dim + tokens * dim + 2 * dim + dim * classes + classes
    return depth * (12 * dim**2 + 9 * dim) + ends


def near_far(grid, wrap=False):
    y, x = torch.meshgrid(torch.arange(grid), torch.arange(grid), indexing="ij")
    y, x = y.flatten(), x.flatten()
    return -((y[:, None] - y) ** 2 + (x[:, None] - x) ** 2).float()


def transposed_taps(grid):
    maps = torch.zeros(9, grid * grid, grid * grid)
    for head in range(9):
        for i in range(grid * grid):
            row, column = (i // grid + head % 3 - 1) % grid, (i % grid + head // 3 - 1) % grid
            maps[head, i, row * grid + column] = 1
    return maps


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: check.parameters(no_norms), "too small; the difference is a multiple of dim in every block"),
        (lambda: check.parameters(lambda *_: 10**9), "which is too large"),
        (lambda: check.circular_bias(near_far), "moving query and key one patch down changes the bias"),
        (lambda: check.circular_bias(lambda g: torch.zeros(g * g, g * g)), "the same everywhere"),
        (lambda: check.circular_bias(lambda g: torch.zeros(g, g)), r"has shape \(8, 8\)"),
        (lambda: check.circular_bias(lambda g: torch.full((g * g, g * g), float("nan"))), "not finite"),
        (lambda: check.attention_as_convolution(transposed_taps), r"heads \[1, 2, 3, 5, 6, 7\] look elsewhere"),
        (lambda: check.attention_as_convolution(lambda g: torch.ones(9, g * g, g * g)), "is not a distribution"),
        (lambda: check.attention_as_convolution(lambda g: torch.ones(3, 3)), r"have shape \(3, 3\)"),
        (lambda: check.distance_of_step(4), "what about the last"),
        (lambda: check.distance_of_step(5.0), "too small"),
        (lambda: check.distance_of_step(9), "too large"),
        (lambda: check.distance_of_step(float("nan")), "is finite, got nan"),
        (lambda: check.circular_bias(lambda g: torch.randn(g * g, g * g) * 1e-9), "changes the bias"),
        (lambda: check.distance_of_step("7"), "a number of pixels is wanted, got str"),
    ],
)
def test_a_wrong_answer_is_told_where_and_not_what(call, says, capsys):
    assert call() is None  # a value would be printed under the cell
    printed = capsys.readouterr().out
    assert re.search(says, printed), printed
    assert "7.0" not in printed


def law_of_wrong_sign(n1, e1, n2, e2):
    b = math.log(e2 / e1) / math.log(n2 / n1)
    return e1 / n1**b, b


def in_points(a, after_a, b, after_b):
    return (after_a - a) - (after_b - b)


def b_first(a, after_a, b, after_b):
    def odds(m):
        return math.log(m / (1 - m))

    return (odds(after_b) - odds(b)) - (odds(after_a) - odds(a))


def base_ten(a, after_a, b, after_b):
    return -b_first(a, after_a, b, after_b) / math.log(10)


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("unseen_share", lambda n, k: max(0.0, 1 - k / n), "counts each draw as a new image"),
        ("unseen_share", lambda n, k: math.exp(-k), "simulations leave"),
        ("unseen_share", lambda n, k: [0.5], "one number"),
        ("two_point_law", law_of_wrong_sign, "sign of b"),
        ("two_point_law", lambda *_: (1.0, 0.5), "your law gives"),
        ("two_point_law", lambda *_: 0.5, "two numbers"),
        ("two_point_law", lambda *_: (math.nan, 0.5), "two numbers"),
        ("interaction_log_odds", in_points, "interaction in points"),
        ("interaction_log_odds", b_first, "A's gain comes first"),
        ("interaction_log_odds", base_ten, "base of the logarithm"),
        ("interaction_log_odds", lambda *_: 7.0, "check the odds"),
    ],
)
def test_wrong_answers_of_the_chapter_on_hunger_are_told(name, answer, told, capsys):
    getattr(check, name)(answer)
    out = capsys.readouterr().out
    assert out.startswith("Not yet: ")
    assert told in out


def entropy_of_one_direction(dim, share):
    rest = (1 - share) / (dim - 1)
    return -(share * math.log(share) + (dim - 1) * rest * math.log(rest))


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("eed_to_log", lambda p, d: math.log(p / 100 * d) / math.log(d), "per cent is wanted"),
        ("eed_to_log", lambda p, d: math.log(p / 100 * d), "the entropy itself"),
        ("eed_to_log", lambda p, d: p, "how many dimensions"),
        ("eed_to_log", lambda p, d: 50.0, "full on either scale"),
        ("eed_to_log", lambda p, d: "90", "one number"),
        ("one_direction", entropy_of_one_direction, "not yet the number of dimensions"),
        ("one_direction", lambda d, s: 1 / max(s, (1 - s) / (d - 1)), "stable rank"),
        (
            "one_direction",
            lambda d, s: math.exp(entropy_of_one_direction(d, s)),
            "an axis without variance adds nothing",
        ),
        ("one_direction", lambda d, s: 2.0, "too small"),
        ("one_direction", lambda d, s: math.nan, "one number"),
        ("trace_of_square", lambda X: ((X @ X.T) ** 2).mean(), "paired with themselves"),
        (
            "trace_of_square",
            lambda X: (((X @ X.T) ** 2).sum() - ((X**2).sum(1) ** 2).sum()) / len(X) ** 2,
            "number of all pairs",
        ),
        ("trace_of_square", lambda X: X, "one number"),
        ("trace_of_square", lambda X: 0.0, "too small"),
    ],
)
def test_wrong_answers_of_the_chapter_on_dimension_are_told(name, answer, told, capsys):
    getattr(check, name)(answer)
    out = capsys.readouterr().out
    assert out.startswith("Not yet: ")
    assert told in out


def scaled(X):
    return (X - X.mean(0)) / X.std(0)


def noise(X):
    return np.random.default_rng(99).normal(size=X.shape)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: check.whitening(lambda X: X), "effective dimension is .* not yet 100"),
        (lambda: check.whitening(scaled), "not yet 100"),
        (lambda: check.whitening(noise), "no product of X with a matrix"),
        (lambda: check.whitening(lambda X: X[:, :2]), "all of it must be finite"),
        (lambda: check.whitening(lambda X: X * np.nan), "all of it must be finite"),
        (lambda: check.noise_shares(lambda n, T: (1 / n, 1 / T, 1 - 1 / n - 1 / T)), "share of position is off"),
        (lambda: check.noise_shares(lambda n, T: (0.2, 0.2, 0.2)), "sum to 0.6 and not to 1"),
        (lambda: check.noise_shares(lambda n, T: 0.5), "three numbers are asked for"),
        (lambda: check.apparent_ratio(lambda n1, n2, *_: n1 / n2), "how many steps each set gets"),
        (lambda: check.apparent_ratio(lambda *_: "0.5"), "your ratio is '0.5'"),
    ],
)
def test_a_wrong_answer_about_the_bottleneck_is_told_where(call, says, capsys):
    assert call() is None
    printed = capsys.readouterr().out
    assert printed.startswith("Not yet: ")
    assert re.search(says, printed), printed


def meter(p):
    return float(torch.special.entr(p.mean(0)).sum() - torch.special.entr(p).sum(-1).mean())


def careless_meter(p):
    mean = p.mean(0)
    return float((p * p.log()).sum(-1).mean() - (mean * mean.log()).sum())


def area(scores, objects):
    from scipy.stats import rankdata

    n = objects.sum()
    return (rankdata(scores)[objects].sum() - n * (n + 1) / 2) / (n * (len(objects) - n))


def ties_apart(scores, objects):
    ranks = np.argsort(np.argsort(scores, kind="stable"), kind="stable") + 1
    n = objects.sum()
    return (ranks[objects].sum() - n * (n + 1) / 2) / (n * (len(objects) - n))


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("information", lambda p: -meter(p), "its sign is turned"),
        ("information", lambda p: float(torch.special.entr(p).sum(-1).mean()), "the mean of the entropies"),
        ("information", lambda p: float(torch.special.entr(p.mean(0)).sum()), "the entropy of the mean"),
        ("information", lambda p: meter(p) / math.log(2), "these are bits"),
        ("information", lambda p: len(p) * meter(p), "a sum over the views"),
        ("information", careless_meter, "0 ln 0"),
        ("information", lambda p: meter(p) + 1, "too large"),
        ("half_life", lambda m: 1 / (1 - m), "it is a mean age"),
        ("half_life", lambda m: m / (1 - m), "it is a mean age"),
        ("half_life", lambda m: math.log(2) / math.log(m), "time runs forward"),
        ("half_life", lambda m: math.log(2) / (1 - m), "right for m near 1 only"),
        ("half_life", lambda m: 7.0, "multiplied by in each step"),
        ("half_life", lambda m: None if m > 0.5 else "1", "one number"),
        ("auc", lambda s, o: area(s, ~o), "the area for the background"),
        ("auc", ties_apart, "let equal scores share their rank"),
        ("auc", lambda s, o: area(s, o) + 0.01, "do your ranks begin with 1"),
        ("auc", lambda s, o: s, "one number"),
    ],
)  # fmt: skip
def test_wrong_answers_of_the_chapter_on_dino_are_told(name, answer, told, capsys):
    getattr(check, name)(answer)
    out = capsys.readouterr().out
    assert out.startswith("Not yet: ")
    assert told in out


def test_an_auc_is_scikit_learns():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(1)
    scores, objects = rng.integers(0, 5, 50).astype(float), rng.random(50) < 0.3
    assert area(scores, objects) == pytest.approx(roc_auc_score(objects, scores), abs=1e-12)
