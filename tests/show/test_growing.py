"""A curve that grows under a cell: silent without a kernel, one picture with one, no gaps that mislead."""

from __future__ import annotations

import math

import pytest

from vitlab.show import growing as module
from vitlab.show.growing import curve, drawn


class Handle:
    """What IPython's display returns, counting its updates."""

    def __init__(self) -> None:
        self.pictures: list[object] = []

    def update(self, picture: object) -> None:
        self.pictures.append(picture)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Handle]:
    """Pretend that a kernel answers; return the handles that were displayed."""
    handles: list[Handle] = []

    def display(picture: object, display_id: bool) -> Handle:
        assert display_id
        handles.append(Handle())
        handles[-1].pictures.append(picture)
        return handles[-1]

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(module, "live", lambda: True)
    return handles


def test_it_is_silent_where_no_kernel_answers(capsys: pytest.CaptureFixture[str]) -> None:
    point = curve("training loss", "step")
    for step in range(5):
        point(step, 1.0)
    assert capsys.readouterr().out == ""


def test_one_picture_is_updated_and_not_more_than_once_a_second(
    shown: list[Handle], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    point = curve("training loss", "step")
    point(0, 2.0)
    assert shown == []  # one point is no curve
    for step in range(1, 31):
        clock[0] += 0.1
        point(step, 2.0 / step)
    assert len(shown) == 1
    assert len(shown[0].pictures) == 3
    assert "training loss" in shown[0].pictures[-1].pair.alt  # type: ignore[attr-defined]


def test_what_is_not_finite_is_left_out(shown: list[Handle], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)
    point = curve("loss", "step")
    for step, value in enumerate((1.0, math.nan, 0.5, math.inf)):
        point(step, value)
    assert "0.5 at step 2" in shown[0].pictures[-1].pair.alt  # type: ignore[attr-defined]


def test_two_curves_do_not_share_their_points(shown: list[Handle]) -> None:
    one, other = curve("loss", "step"), curve("accuracy", "step")
    one(0, 1.0), one(1, 1.0), other(0, 2.0)
    assert len(shown) == 1


def test_labels_say_something() -> None:
    with pytest.raises(ValueError, match="label"):
        curve("", "step")
    assert "loss" in drawn([(0.0, 1.0), (1.0, 0.5)], "loss", "step").pair.alt
