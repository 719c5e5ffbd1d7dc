"""Sliders hold every frame in plain HTML; on a live kernel ipywidgets draw on demand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import IPython
import ipywidgets
import pytest

from vitlab import show
from vitlab.show.widgets import ShownSlider

from .conftest import Tree, frame, slide

ARGUMENTS: dict[str, Any] = {
    "label": "patch",
    "alt": "It climbs to {value}.",
    "caption": "Error.",
    "size": (2, 1.5),
}


def test_a_slider_holds_every_frame_and_shows_the_first(slid: Any) -> None:
    tree = Tree(slid._repr_html_())
    frames = [div for div in tree.all("div") if div["class"] == "vl-frame"]
    assert [div["data-value"] for div in frames] == ["2", "4", "8", "16"]
    assert ["hidden" in div for div in frames] == [False, True, True, True]
    alts = [img["alt"] for img in tree.all("img")]
    assert alts == [f"The error climbs to {value}." for value in (2, 4, 8, 16) for _ in range(2)]
    (control,) = tree.all("input")
    assert (control["type"], control["min"], control["max"], control["value"]) == ("range", "0", "3", "0")
    assert control["aria-valuetext"] == "2"
    assert len(tree.all("label")) == len(tree.all("output")) == 1
    assert "needs JavaScript" in tree.text


def test_frames_differ_and_keep_one_size(slid: Any) -> None:
    assert len({pair.light.data for pair in slid.pairs}) == 4
    assert len({(pair.light.width, pair.light.height) for pair in slid.pairs}) == 1


def test_no_ids_to_collide_no_host_to_ask_and_the_same_bytes_each_time(slid: Any) -> None:
    assert " id=" not in slid.html
    assert "http" not in slid.html
    assert slide().html == slid.html


def test_values_are_written_by_a_format_or_a_function() -> None:
    for text in ("{value:.1f} px", lambda value: f"{value:.1f} px"):
        shown = show.slider(frame, [1, 2], **ARGUMENTS, text=text)
        assert shown.values == ("1.0 px", "2.0 px")
    shown = show.slider(frame, [1, 2], **(ARGUMENTS | {"alt": lambda value: f"Up to {value}, slowly."}))
    assert [pair.alt for pair in shown.pairs] == ["Up to 1, slowly.", "Up to 2, slowly."]


@pytest.mark.parametrize(
    ("values", "change", "says"),
    [
        ([1], {}, "at least two values"),
        ([1, 1], {}, "same alt text"),
        ([1, 2], {"alt": "It climbs."}, "same alt text"),
        ([1, 2], {"alt": "To {other}."}, "does not take the value 1"),
        ([1, 2], {"alt": ""}, "alt text of a frame"),
        ([1, 2], {"text": "px"}, "same value"),
        ([1, 2], {"label": ""}, "label"),
        ([1, 2], {"caption": ""}, "caption"),
        ([1, float("nan")], {}, "not finite"),
        ([1, 2], {"caption": "It climbs to 2."}, "repeats the caption"),
    ],
)
def test_a_slider_that_would_mislead_is_refused(values: Any, change: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        show.slider(frame, values, **(ARGUMENTS | change))


def test_frames_follow_the_rules_of_figures() -> None:
    with pytest.raises(ValueError, match="no x label"):
        show.slider(lambda fig, value: fig.subplots().plot([0, value]), [1, 2], **ARGUMENTS)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))


def test_without_a_kernel_interact_is_the_slider() -> None:
    assert isinstance(show.interact(frame, [1, 2], **ARGUMENTS), ShownSlider)


def test_in_the_book_interact_is_the_slider(kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITLAB_STATIC", "1")
    assert isinstance(show.interact(frame, [1, 2], **ARGUMENTS), ShownSlider)


def test_on_a_live_kernel_interact_draws_on_demand(kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VITLAB_STATIC", raising=False)
    drawn: list[int] = []

    def watched(fig: Any, value: int) -> None:
        drawn.append(value)
        frame(fig, value)

    box = show.interact(watched, [1, 2, 5], **ARGUMENTS)
    assert isinstance(box, ipywidgets.interactive)
    control = box.children[0]
    assert [text for text, _ in control.options] == ["1", "2", "5"]
    assert control.description == "patch"
    assert set(drawn) <= {1}, "no frame is drawn before it is asked for"
    control.index = 2
    assert set(drawn) <= {1, 5}
    assert box.result.alt == "It climbs to 5."


def test_on_a_live_kernel_too_few_values_are_refused(kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VITLAB_STATIC", raising=False)
    with pytest.raises(ValueError, match="at least two"):
        show.interact(frame, [1], **ARGUMENTS)
