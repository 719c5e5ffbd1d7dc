"""The palette can be read on both grounds and told apart by the colour blind."""

from __future__ import annotations

import itertools

import matplotlib
import numpy as np
import pytest
from skimage.color import deltaE_ciede2000, rgb2lab

from vitlab.show import page, style

# Machado et al., 2009, severity 1.0, in linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
LOOKS = pytest.mark.parametrize("look", [style.LIGHT, style.DARK], ids=["light", "dark"])


def rgb(name: str) -> np.ndarray:
    return np.array(matplotlib.colors.to_rgb(name))


def linear(colour: np.ndarray) -> np.ndarray:
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)


def encoded(light: np.ndarray) -> np.ndarray:
    light = np.clip(light, 0, 1)
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def contrast(one: str, other: str) -> float:
    """WCAG 2: (L1 + 0.05) / (L2 + 0.05)."""
    low, high = sorted(float(linear(rgb(c)) @ (0.2126, 0.7152, 0.0722)) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


def test_contrast_knows_black_on_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@LOOKS
def test_data_and_letters_stand_out_from_the_ground(look: style.Look) -> None:
    for colour in (*look.colours, look.ink, look.muted):
        assert contrast(colour, look.ground) >= 4.5, colour


@pytest.mark.parametrize("ground", ["#111111", "#1e1e1e", "#383838"])
def test_dark_colours_stand_out_in_notebooks_too(ground: str) -> None:
    """JupyterLab's, VS Code's and Colab's dark grounds are not the book's."""
    for colour in (*style.DARK.colours, style.DARK.ink):
        assert contrast(colour, ground) >= 3, colour


@LOOKS
@pytest.mark.parametrize("kind", BLINDNESS)
def test_any_two_of_five_colours_stay_apart(look: style.Look, kind: str) -> None:
    seen = encoded(linear(np.array([rgb(c) for c in look.colours])) @ BLINDNESS[kind].T)
    lab = rgb2lab(seen[None])[0]
    for one, other in itertools.combinations(range(5), 2):
        apart = float(deltaE_ciede2000(lab[one], lab[other]))
        assert apart >= 10, f"{look.colours[one]} and {look.colours[other]} are {apart:.1f} apart"


@pytest.mark.parametrize(
    ("variables", "ground"), [(page._LIGHT_VARS, style.LIGHT.ground), (page._DARK_VARS, style.DARK.ground)]
)
def test_inks_of_a_page_can_be_read_and_match_the_figures(variables: dict[str, str], ground: str) -> None:
    for name in "aynm":
        assert contrast(variables[name], ground) >= 4.5, name
    assert matplotlib.colors.to_hex(variables["g"]) == ground


def test_letters_are_nine_pixels_on_a_phone() -> None:
    assert style.FONT_POINTS / 72 / 7 * 343 > 8.8


def test_a_look_leaves_no_trace_behind() -> None:
    before = dict(matplotlib.rcParams)
    with pytest.raises(RuntimeError), style.wearing(style.DARK):
        assert style.look() is style.DARK
        assert matplotlib.rcParams["text.color"] == style.DARK.ink
        raise RuntimeError
    assert style.look() is style.LIGHT
    assert dict(matplotlib.rcParams) == before


def test_a_readers_own_settings_do_not_show_through() -> None:
    with matplotlib.rc_context({"lines.linestyle": ":", "axes.linewidth": 9}), style.wearing(style.LIGHT):
        assert matplotlib.rcParams["lines.linestyle"] == "-"
        assert matplotlib.rcParams["axes.linewidth"] < 2
