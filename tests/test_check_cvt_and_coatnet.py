"""The exercises on CvT and CoAtNet: right answers pass, wrong ones are told where, and both are measured."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from test_check import raising, unanswered

from vitlab import check
from vitlab.analysis import equivariance
from vitlab.models.cvt import CvT, CvTConfig

EXERCISES = ("smallest_shift", "convolution_matrix", "places_told_apart")


@pytest.mark.parametrize("name", EXERCISES)
def test_an_open_exercise_is_left_alone_and_a_raising_one_told(name, capsys):
    getattr(check, name)(unanswered)
    assert "Not answered yet" in capsys.readouterr().out
    getattr(check, name)(raising)
    assert "Not yet: your function raised ZeroDivisionError" in capsys.readouterr().out


def smallest(stages):
    shift, spacing = 1, 1
    for stride, keys in stages:
        spacing *= stride
        shift = math.lcm(shift, spacing * keys)
    return shift


def matrix(kernel, side):
    cells = torch.eye(side * side, dtype=kernel.dtype).view(-1, 1, side, side)
    return F.conv2d(cells, kernel[None, None], padding=1).flatten(1).T


def places(layers, side):
    return min(side, 2 * layers + 1) ** 2


@pytest.mark.parametrize(("name", "answer"), list(zip(EXERCISES, (smallest, matrix, places), strict=True)))
def test_a_right_answer_passes(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out.startswith("Right. ")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda stages: math.prod(s for s, _ in stages), "other keys"),
        (lambda stages: math.prod(s for s, _ in stages) * stages[-1][1], "do the earlier ones?"),
        (lambda stages: 2 * smallest(stages), "a smaller shift is one too"),
        (lambda stages: 0, "a shift by nothing"),
        (lambda stages: "4", "a whole number of pixels"),
        (lambda stages: max(math.prod(s for s, _ in stages[: m + 1]) * stages[m][1] for m in range(len(stages))),
         "[(2, 3), (2, 1)]"),
    ],
)  # fmt: skip
def test_a_wrong_shift_is_told(answer, said, capsys):
    check.smallest_shift(answer)
    out = capsys.readouterr().out
    assert out.startswith("Not yet: ")
    assert said in out


def unpadded(kernel, side):
    out = matrix(kernel, side)
    out[0] = 0
    return out


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda kernel, side: matrix(kernel.flip(0, 1), side), "torch's weighs x[i + o]"),
        (unpadded, "look at what happens at the border"),
        (lambda kernel, side: torch.zeros(side, side), "a matrix over all cells"),
        (lambda kernel, side: "no", "yours is str"),
        (lambda kernel, side: matrix(2 * kernel, side), "row 0, column 0"),
    ],
)
def test_a_wrong_matrix_is_told(answer, said, capsys):
    check.convolution_matrix(answer)
    out = capsys.readouterr().out
    assert out.startswith("Not yet: ")
    assert said in out


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda layers, side: min(side, 2 * layers + 1), "a map has two axes"),
        (lambda layers, side: (2 * layers + 1) ** 2, "not so many cells"),
        (lambda layers, side: min(side, layers + 1) ** 2, "how many sides"),
        (lambda layers, side: side**2, "too many"),
        (lambda layers, side: [1], "one number"),
    ],
)
def test_a_wrong_count_is_told(answer, said, capsys):
    check.places_told_apart(answer)
    out = capsys.readouterr().out
    assert out.startswith("Not yet: ")
    assert said in out


@pytest.mark.parametrize(("layers", "side"), [(0, 5), (1, 8), (2, 8), (3, 8), (4, 8), (5, 8), (1, 3), (2, 4)])
def test_the_count_is_that_of_real_convolutions(layers, side):
    torch.manual_seed(layers)
    x = torch.ones(1, 4, side, side, dtype=torch.float64)
    for _ in range(layers):
        x = F.conv2d(x, torch.randn(4, 4, 3, 3, dtype=torch.float64), padding=1).tanh()
    cells = x[0].flatten(1).T
    differ = (cells[:, None] - cells).norm(dim=2) > 1e-9
    assert sum(bool(differ[i, :i].all()) for i in range(len(cells))) == places(layers, side)


@pytest.mark.parametrize(("strides", "keys"), [((2, 2), 2), ((2, 2), 1), ((3, 2), 2), ((2, 3), 3), ((4, 1), 2)])
def test_the_smallest_shift_is_that_of_real_networks(strides, keys):
    torch.manual_seed(0)
    want = smallest([(stride, keys) for stride in strides])
    side = 2 * want
    config = CvTConfig(
        image_size=side, classes=3, dims=(8, 8), depths=(1, 1), heads=(1, 1), kernels=(5, 3), strides=strides,
        paddings=(2, 1), kv_stride=keys, padding="circular",
    )  # fmt: skip
    error = equivariance.logit_error(
        CvT(config).double().eval(), torch.randn(1, 3, side, side).double(), range(1, side)
    )[:, 0]
    assert [by for by in range(1, side) if error[by - 1] < 1e-11] == [want]
