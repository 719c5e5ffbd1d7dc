"""Figures come in light and dark, with words, named axes, and the same bytes each time."""

from __future__ import annotations

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from vitlab import show
from vitlab.show import style
from vitlab.show.figures import encode, thrifty

from .conftest import WORDS, Tree, draw


def decoded(source: str) -> np.ndarray:
    head, data = source.split(",")
    assert head == "data:image/webp;base64"
    return np.asarray(Image.open(BytesIO(base64.b64decode(data))).convert("RGBA"))


def test_html_is_a_figure_with_two_pictures_and_a_caption(shown: Any) -> None:
    tree = Tree(shown._repr_html_())
    light, dark = tree.all("img")
    assert [light["class"], dark["class"]] == ["vl-light", "vl-dark"]
    assert light["alt"] == dark["alt"] == WORDS["alt"]
    assert light["loading"] == "lazy"
    assert tree.all("figure") == [{"class": "vl-figure"}]
    assert tree.text == WORDS["caption"]
    pixels = decoded(light["src"])
    assert pixels.shape[:2] == (2 * int(light["height"]), 2 * int(light["width"]))
    assert int(light["width"]) == 3 * style.PIXELS_PER_INCH


def test_the_bundle_holds_html_and_the_alt_text_as_text(shown: Any) -> None:
    bundle = shown._repr_mimebundle_()
    assert bundle["text/html"] == shown._repr_html_()
    assert WORDS["alt"] in bundle["text/plain"]
    assert set(bundle) == {"text/html", "text/plain"}


def test_letters_are_dark_on_light_pages_and_light_on_dark_ones(shown: Any) -> None:
    light, dark = (decoded(img["src"]) for img in Tree(shown.html).all("img"))
    for pixels, ink in ((light, style.LIGHT.ink), (dark, style.DARK.ink)):
        assert pixels[0, 0, 3] == 0, "the ground is the page's own"
        solid = pixels[pixels[..., 3] == 255][:, :3]
        wanted = [int(ink[k : k + 2], 16) for k in (1, 3, 5)]
        assert (np.abs(solid.astype(int) - wanted).max(axis=1) == 0).any()


def test_the_same_drawing_gives_the_same_bytes(shown: Any) -> None:
    assert show.figure(draw, size=(3, 2), **WORDS).html == shown.html


def test_the_caption_reads_markdown_and_nothing_breaks_out(shown: Any) -> None:
    html = show.figure(
        draw,
        size=(2, 2),
        alt='Says "a < b" & more.',
        caption="**Bold**, *leaning*, `x < y`, $a_i * b_i * c$, <b>, [Xie & al.](https://example.org/?a=1&b=2).",
    ).html
    tree = Tree(html)
    assert tree.all("img")[0]["alt"] == 'Says "a < b" & more.'
    assert tree.all("a") == [{"href": "https://example.org/?a=1&b=2"}]
    assert tree.all("b") == []
    assert "<strong>Bold</strong>, <em>leaning</em>, <code>x &lt; y</code>" in html
    assert r"\(a_i * b_i * c\)" in tree.text


@pytest.mark.parametrize("key", ["alt", "caption"])
@pytest.mark.parametrize("empty", ["", "  \n", None, 3])
def test_words_are_required(key: str, empty: Any) -> None:
    with pytest.raises(ValueError, match=key if key == "caption" else "alt text"):
        show.figure(draw, **(WORDS | {key: empty}))


def test_the_alt_text_must_not_repeat_the_caption() -> None:
    with pytest.raises(ValueError, match="repeats the caption"):
        show.figure(draw, alt="Distance by block", caption="**Distance** by block.")


@pytest.mark.parametrize("bad", ["It is {value} px.", "It rises to nan px."])
def test_words_with_holes_are_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="The text holds"):
        show.figure(draw, **(WORDS | {"alt": bad}))


@pytest.mark.parametrize(("given", "lacking"), [({"xlabel": "block"}, "y"), ({"ylabel": "px"}, "x"), ({}, "x")])
def test_axes_without_a_label_are_named(given: dict[str, str], lacking: str) -> None:
    def bare(fig: Any) -> None:
        left, right = fig.subplots(1, 2)
        for ax in (left, right):
            ax.plot([1, 2])
        left.set(xlabel="block", ylabel="px")
        right.set(title="second", **given)

    with pytest.raises(ValueError, match=rf"Axes 2 of 2 \('second'\) have no {lacking} label"):
        show.figure(bare, **WORDS)


def test_axes_that_show_no_numbers_need_no_label() -> None:
    def fine(fig: Any) -> None:
        a, b, c, d = fig.subplots(2, 2, sharex="col").ravel()
        a.plot([1, 2])
        a.set(ylabel="rank (1)")  # shares its x axis with the one below
        b.imshow(np.eye(3))
        b.set_axis_off()
        c.plot([1, 2])
        c.set(xlabel="block", ylabel="rank (1)")
        d.barh(["ViT-S/16", "ConvNet"], [1, 2])  # words name themselves
        d.set(xlabel="accuracy (%)")

    show.figure(fine, **WORDS)


def test_labels_shared_by_the_whole_figure_count() -> None:
    def shared(fig: Any) -> None:
        for ax in fig.subplots(1, 2):
            ax.plot([1, 2])
        fig.supxlabel("block")
        fig.supylabel("rank (1)")

    show.figure(shared, **WORDS)


def test_a_bar_of_colours_needs_a_label_too() -> None:
    def bar(fig: Any) -> None:
        ax = fig.subplots()
        fig.colorbar(ax.imshow(np.eye(3)))
        ax.set_axis_off()

    with pytest.raises(ValueError, match="Axes 2 of 2 have no y label"):
        show.figure(bar, **WORDS)


def test_logarithmic_ticks_are_numbers() -> None:
    def power(fig: Any) -> None:
        ax = fig.subplots()
        ax.loglog([1, 1000], [1, 1000])
        ax.set(xlabel="images")

    with pytest.raises(ValueError, match="no y label"):
        show.figure(power, **WORDS)


def test_drawing_elsewhere_is_noticed() -> None:
    with pytest.raises(ValueError, match="drew nothing"):
        show.figure(lambda fig: plt.plot([1, 2]), **WORDS)
    plt.close("all")


@pytest.mark.parametrize("kind", ["line", "band", "image", "bar", "scatter", "text"])
def test_other_data_in_the_dark_are_refused(kind: str) -> None:
    state = {"n": 1.0}

    def drifting(fig: Any) -> None:
        ax = fig.subplots()
        state["n"] += 1
        n = state["n"]
        ax.plot([0, 9], [0, 9])
        {
            "line": lambda: ax.plot([0, 1], [0, n]),
            "band": lambda: ax.fill_between([0, 1], [0, 0], [n, 1]),
            "image": lambda: ax.imshow([[0, n]]),
            "bar": lambda: ax.bar([1], [n]),
            "scatter": lambda: ax.scatter([1], [n]),
            "text": lambda: ax.text(0, 0, f"{n}"),
        }[kind]()
        ax.set(xlabel="x", ylabel="y")

    with pytest.raises(ValueError, match="other data the second time"):
        show.figure(drifting, **WORDS)


def test_names_of_lines_are_settled_before_the_picture_is_taken() -> None:
    figures = []

    def close(fig: Any) -> None:
        ax = fig.subplots()
        for name in ("one", "two"):
            show.lines(ax, [0, 1], [0, 1], label=name)
        ax.set(xlabel="block", ylabel="rank (1)")
        figures.append(fig)

    show.figure(close, **WORDS)
    for fig in figures:
        one, two = (text.get_window_extent() for text in fig.axes[0].texts)
        assert not one.overlaps(two)


@pytest.mark.parametrize("size", [(0, 3), (7,), (7, 300), (float("nan"), 2)])
def test_sizes_are_inches(size: Any) -> None:
    with pytest.raises(ValueError, match="size"):
        show.figure(draw, size=size, **WORDS)


@pytest.mark.parametrize("dark", [False, True])
def test_saving_writes_the_figure_on_its_ground(shown: Any, tmp_path: Path, dark: bool) -> None:
    path = shown.save(tmp_path / "figure.png", dark=dark)
    saved = np.asarray(Image.open(path))
    ground = (style.DARK if dark else style.LIGHT).ground
    assert saved.shape[2] == 3
    assert "#" + bytes(saved[0, 0].tolist()).hex() == ground
    assert [file.name for file in tmp_path.iterdir()] == ["figure.png"]


def test_saving_says_what_is_wrong_and_leaves_nothing(shown: Any, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(ValueError, match="ending"):
        shown.save(tmp_path / "figure.txt")
    with pytest.raises(FileNotFoundError, match="create it first"):
        shown.save(tmp_path / "none" / "figure.png")

    def interrupt(self: Any, file: Any, format: str) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Image.Image, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        shown.save(tmp_path / "figure.png")
    assert list(tmp_path.iterdir()) == []


def test_a_line_plot_is_small(shown: Any) -> None:
    def usual(fig: Any) -> None:
        ax = fig.subplots()
        x = np.linspace(0, 12, 200)
        for k in range(3):
            show.lines(ax, x, np.sin(x + k), np.sin(x + k) - 0.2, np.sin(x + k) + 0.2, label=f"model {k}")
        ax.set(xlabel="block", ylabel="distance (px)")

    pair = show.figure(usual, **WORDS).pair
    assert len(pair.light.data) < 32_000
    assert len(pair.dark.data) < 32_000


def test_fewer_shades_cannot_be_seen_and_pictures_are_left_alone(rng: np.random.Generator) -> None:
    smooth = np.zeros((200, 200, 4), np.uint8)
    smooth[..., :3] = (27, 114, 216)
    smooth[20:180, 20:180, 3] = 255
    smooth[180:190, 20:180, 3] = 56  # a band's fill
    smooth[10:20, 20:180, 3] = rng.integers(1, 250, (10, 160))
    few = thrifty(smooth)
    assert len(np.unique(few.reshape(-1, 4), axis=0)) <= 65
    assert np.abs(few.astype(int) - smooth).max() < 16
    assert (few[20:190] == smooth[20:190]).all(), "fills keep their exact colours"
    busy = rng.integers(0, 256, (100, 100, 4)).astype(np.uint8)
    assert thrifty(busy) is busy


def test_encoding_keeps_every_pixel_of_a_heat_map(rng: np.random.Generator) -> None:
    cells = rng.integers(0, 256, (16, 16, 4)).astype(np.uint8)
    cells[..., 3] = 255
    pixels = cells.repeat(8, axis=0).repeat(8, axis=1)
    back = np.asarray(Image.open(BytesIO(encode(pixels).data)).convert("RGBA"))
    assert (back == pixels).all()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
