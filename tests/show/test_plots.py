"""Lines, references, heat maps and overlays draw what they are given, and refuse what would mislead."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import matplotlib.colors
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from vitlab import show
from vitlab.show import style
from vitlab.show.plots import array, settle, spread


@pytest.fixture
def ax() -> Any:
    return Figure(figsize=(7, 3.5), dpi=style.PIXELS_PER_INCH * style.OVERSAMPLE).subplots()


def test_a_line_carries_its_band_and_its_name(ax: Any) -> None:
    x = np.arange(3)
    colour = show.lines(ax, x, x + 1.0, x + 0.5, x + 2.0, label="ViT")
    assert (ax.lines[0].get_xydata() == np.stack([x, x + 1], 1)).all()
    edge = ax.collections[0].get_paths()[0].vertices
    assert edge[:, 1].min() == 0.5 and edge[:, 1].max() == 4
    assert ax.texts[0].get_text() == "ViT"
    assert ax.texts[0].get_color() == colour == matplotlib.colors.to_hex(ax.lines[0].get_color())


def test_tensors_are_taken_as_they_are(ax: Any) -> None:
    show.lines(ax, torch.arange(3), torch.ones(3, dtype=torch.bfloat16, requires_grad=True))
    assert ax.lines[0].get_ydata().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([0, 1], [0, np.nan]), "1 of 2 are NaN"),
        (([0, 1], [0, np.inf]), "NaN or infinite"),
        (([0, 1], [0, 1, 2]), r"x has the shape \(2,\)"),
        (([0, 1], [0, 1], [0, 0], None), "both its edges"),
        (([0, 1], [0, 1], [0, 2], [0, 3]), "does not hold its line"),
        (([0, 1], [0, 1], [0, 0], [0, 0.5]), "does not hold its line"),
        (([0, 1], [0, 1], [0], [0]), "must have it too"),
        (([], []), "at least one number"),
        (([[0, 1]], [[0, 1]]), "1 dimension,"),
        (([0, 1], ["a", "b"]), "real numbers"),
        (([0, 1], [[0], [1, 2]]), "differ in length"),
    ],
)
def test_lines_refuse_what_would_mislead(ax: Any, arguments: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        show.lines(ax, *arguments)


def test_a_reference_is_a_level_with_a_name(ax: Any) -> None:
    show.reference(ax, 116.5, "uniform attention")
    assert set(ax.lines[0].get_ydata()) == {116.5}
    assert ax.texts[0].get_text() == "uniform attention"
    with pytest.raises(ValueError, match="finite"):
        show.reference(ax, float("nan"), "nothing")


@pytest.mark.parametrize("signed", [False, True])
def test_a_heat_map_shows_every_cell_on_a_labelled_bar(ax: Any, signed: bool) -> None:
    matrix = np.array([[-1.0, 0.0], [0.5, 3.0]])
    bar = show.heat(ax, matrix, label="covariance (1)", signed=signed)
    image = ax.images[0]
    assert (np.asarray(image.get_array()) == matrix).all()
    assert image.get_clim() == ((-3, 3) if signed else (-1, 3))
    assert bar.ax.get_ylabel() == "covariance (1)"
    if signed:
        assert np.allclose(image.cmap(0.5)[:3], 0.97, atol=0.03), "zero is white"


def test_a_heat_map_says_where_values_leave_its_bar(ax: Any) -> None:
    assert show.heat(ax, np.array([[0.0, 9.0]]), label="x", limits=(0, 1)).extend == "max"


@pytest.mark.parametrize("signed", [False, True])
def test_a_constant_heat_map_can_be_drawn(signed: bool) -> None:
    def draw(fig: Any) -> None:
        axes = fig.subplots()
        show.heat(axes, np.zeros((2, 2)), label="x", signed=signed)
        axes.set(xlabel="x", ylabel="y")

    show.figure(draw, alt="All cells are zero.", caption="Nothing.", size=(2, 2))


@pytest.mark.parametrize(
    ("matrix", "options", "says"),
    [
        (np.zeros(3), {}, "2 dimensions"),
        (np.full((2, 2), np.nan), {}, "4 of 4 are NaN"),
        (np.eye(2), {"limits": (1, 1)}, "low below high"),
        (np.eye(2), {"label": ""}, "label"),
    ],
)
def test_heat_maps_refuse_what_they_cannot_show(ax: Any, matrix: Any, options: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        show.heat(ax, matrix, **({"label": "x"} | options))


def test_viridis_runs_in_even_steps_of_lightness() -> None:
    from skimage.color import rgb2lab

    lightness = rgb2lab(matplotlib.colormaps["viridis"](np.linspace(0, 1, 21))[None, :, :3])[0, :, 0]
    assert (np.diff(lightness) > 2).all()
    assert style.parameters(style.LIGHT)["image.cmap"] == "viridis"


def test_an_overlay_covers_the_image_and_refuses_negative_weights(ax: Any) -> None:
    picture = np.full((32, 48, 3), 128, np.uint8)
    artist = show.overlay(ax, picture, np.eye(4), limits=(0, 1))
    assert artist.get_extent() == ax.images[0].get_extent() == [0, 48, 32, 0]
    with pytest.raises(ValueError, match="negative"):
        show.overlay(ax, picture, -np.eye(4), limits=(0, 1))


def test_names_that_end_together_are_moved_apart(ax: Any) -> None:
    for k, height in enumerate((1.0, 1.01, 1.02, 9.0)):
        show.lines(ax, [0, 1], [0, height], label=f"line {k}")
    settle(ax.figure)
    boxes = sorted((text.get_window_extent().y0, text.get_window_extent().y1) for text in ax.texts)
    assert all(below[1] <= above[0] for below, above in pairwise(boxes))
    order = sorted(ax.texts, key=lambda text: text.get_window_extent().y0)
    assert [text.get_text() for text in order] == [f"line {k}" for k in range(4)]
    assert ax.texts[3].get_position()[1] == pytest.approx(0), "a name with room stays where it was"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8), st.floats(0.5, 30))
def test_spread_keeps_its_distance_and_its_mean(heights: list[float], gap: float) -> None:
    wanted = sorted(heights)
    out = spread(wanted, gap)
    assert all(b - a >= gap - 1e-9 for a, b in pairwise(out))
    assert sum(out) == pytest.approx(sum(wanted), abs=1e-6)
    if all(b - a >= gap for a, b in pairwise(wanted)):
        assert out == pytest.approx(wanted)


def test_arrays_of_bytes_and_flags_pass() -> None:
    assert array(np.array([True]), "it").dtype == bool
    assert array(torch.tensor([[1, 2]]), "it", 2).shape == (1, 2)
