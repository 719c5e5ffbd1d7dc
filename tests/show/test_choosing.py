"""A chart whose axes can be chosen: what it refuses, what it carries, and what a real browser draws of it."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from vitlab import show
from vitlab.show import page as pages

from .conftest import Tree
from .test_browser import DISPLAYED, page, page_of

__all__ = ["page"]  # the fixture

NAMES = ["CNN", "ViT", "DeiT", "Swin", "PVT", "CvT", "CoAtNet", "MViT", "Focal"]
# Clustered, so that names have to make room for each other.
PARAMETERS = [0.298, 0.305, 0.306, 0.306, 0.307, 0.305, 0.362, 0.307, 0.306]
ADDS = [0.021, 0.0105, 0.0106, 0.0107, 0.0105, 0.0162, 0.305, 0.0106, 0.0107]
SPEED = [13141, 21450, 20900, 9120, 12050, 10300, 7100, 6900, 3200]
ACCURACY = [45.1, 36.2, 36.9, 36.1, 36.8, 40.3, 46.5, 36.7, 36.6]
WORDS = {"alt": "CoAtNet and the CNN are most accurate.", "caption": "Nine networks; bars are intervals."}
ACROSS, UP = "multiply-adds (G)", "accuracy at 10 % (%)"


def axes() -> list[show.Axis]:
    low, high = [v - 2 for v in ACCURACY], [v + 3 for v in ACCURACY]
    wide = show.Axis(ACROSS, ADDS, [v / 1.4 for v in ADDS], [v * 1.5 for v in ADDS], log=True)
    return [
        show.Axis("parameters (million)", PARAMETERS),
        wide,
        show.Axis("images a second", SPEED),
        show.Axis(UP, ACCURACY, low, high),
    ]


@pytest.fixture(scope="module")
def chosen() -> Any:
    return show.choose(NAMES, axes(), start=(ACROSS, UP), hollow=["CNN"], **WORDS)


def small(**change: Any) -> Any:
    """A chart of two points, or what `change` makes of it."""
    given: dict[str, Any] = {
        "points": ["a", "b"],
        "axes": [show.Axis("size (px)", [1, 2]), show.Axis("error (%)", [3, 4])],
        "start": ("size (px)", "error (%)"),
        **WORDS,
    } | change
    return show.choose(given.pop("points"), given.pop("axes"), **given)


def other(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """The change of the small chart's first axis to this one."""
    return {"axes": [show.Axis("size (px)", *args, **kwargs), show.Axis("error (%)", [3, 4])]}


def data_of(shown: Any) -> dict[str, Any]:
    (figure,) = Tree(shown.html).all("figure")
    return json.loads(str(figure["data-chart"]))


def test_the_small_chart_is_accepted() -> None:
    assert isinstance(small(), pages.Shown)
    assert isinstance(small(**other(np.array([1.0, 2.0]), [1, 1], [2, 2], log=True)), pages.Shown)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"points": ["a"]}, "at least two of each point, not 1"),
        ({"axes": [show.Axis("size (px)", [1, 2])]}, "at least two of each axis, not 1"),
        ({"points": ["a", "a"]}, "'a' stands for more than one point"),
        ({"points": ["a", " "]}, "name of point 1"),
        ({"points": ["a", 2]}, "name of point 1"),
        ({"axes": [show.Axis("size (px)", [1, 2])] * 2}, "'size .px.' stands for more than one axis"),
        ({"axes": [show.Axis("", [1, 2]), show.Axis("error (%)", [3, 4])]}, "label of axis 0"),
        (other([1, 2, 3]), "values of 'size .px.' are 3 for 2 points"),
        (other([1, 2], [1], [2, 2]), "low of 'size .px.' are 1 for 2 points"),
        (other([1, 2], [1, 2], [2, 2, 3]), "high of 'size .px.' are 3 for 2 points"),
        (other([1, math.nan]), "values of 'size .px.' must be finite"),
        (other([1, 2], [1, -math.inf], [2, 2]), "low of 'size .px.' must be finite"),
        (other([1, 2], [1, 2], [2, math.nan]), "high of 'size .px.' must be finite"),
        (other([1, 2], [1, 2]), "both their ends"),
        (other([1, 2], high=[1, 2]), "both their ends"),
        (other([1, 2], [1.1, 2], [2, 2]), "does not hold its value"),
        (other([1, 2], [1, 2], [2, 1.9]), "does not hold its value"),
        (other([0, 2], log=True), "logarithmic, but its values hold 0"),
        (other([1, 2], [-1, 1], [2, 3], log=True), "logarithmic, but its low hold -1"),
        ({"start": ("size (px)", "size")}, "`start` names 'size', but no axis"),
        ({"start": ("size (px)", "size (px)")}, "two different axes"),
        ({"start": ("size (px)",)}, "two different axes"),
        ({"hollow": ["c"]}, "`hollow` names 'c', but no point"),
        ({"alt": ""}, "alt text"),
        ({"caption": None}, "caption"),
        ({"alt": "One and two.", "caption": "One and two."}, "repeats the caption"),
    ],
)
def test_what_would_mislead_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        small(**change)
    assert str(caught.value).count("\n") == 0 and str(caught.value).endswith(".")


def test_the_page_holds_the_data_two_pictures_and_two_lists(chosen: Any) -> None:
    tree = Tree(chosen._repr_html_())
    data = data_of(chosen)
    assert data["names"] == NAMES and data["hollow"] == ["CNN"]
    assert [axis["label"] for axis in data["axes"]] == [axis.label for axis in axes()]
    assert data["axes"][3]["values"] == ACCURACY and data["axes"][3]["high"] == [v + 3 for v in ACCURACY]
    assert [axis["log"] for axis in data["axes"]] == [False, True, False, False]
    assert data["axes"][0]["low"] is None
    assert [img["alt"] for img in tree.all("img")] == [WORDS["alt"]] * 2
    assert len(tree.all("select")) == len(tree.all("label")) == 2
    assert all("disabled" in select for select in tree.all("select"))
    options = tree.all("option")
    assert [place for place, option in enumerate(options) if "selected" in option] == [1, 4 + 3]
    assert f"needs JavaScript; without it {UP} against {ACROSS} stands here." in tree.text
    assert " id=" not in chosen.html and "http" not in chosen.html
    assert repr(chosen) == f"Chart of {UP} against {ACROSS}: {WORDS['alt']}"
    assert chosen.html == show.choose(NAMES, axes(), start=(ACROSS, UP), hollow=["CNN"], **WORDS).html


ODD = ['"quoted"', "it's <b>&amp;</b>", "two  spaces", "line\nbreak", "</script>", "$x$ é \\"]


def odd() -> Any:
    labels = ('a "b" & <c>', "</select> $y$")
    two = [show.Axis(label, [3, 1, 4, 1.5, 5, 9]) for label in labels]
    return show.choose(ODD, two, start=labels, hollow=[ODD[1]], **WORDS)


def test_odd_names_survive_the_attribute() -> None:
    data = data_of(odd())
    assert data["names"] == ODD and data["hollow"] == [ODD[1]]
    assert [axis["label"] for axis in data["axes"]] == ['a "b" & <c>', "</select> $y$"]


def test_the_picture_differs_between_the_looks_and_keeps_one_size(chosen: Any) -> None:
    light, dark = chosen.still.light, chosen.still.dark
    assert light.data != dark.data and (light.width, light.height) == (dark.width, dark.height)


# What can be seen of each chart. Boxes are [left, top, right, bottom] within the svg.
SEEN = """() => [...document.querySelectorAll(".vl-choose")].map(f => {
const svg = f.querySelector("svg"), all = (q, g) => [...svg.querySelectorAll(q)].map(g);
const box = e => {const b = e.getBBox(); return [b.x, b.y, b.x + b.width, b.y + b.height]};
const [up, across] = [...f.querySelectorAll(".vl-plot p")].map(p => p.innerText);
return {up, across, aria: svg.getAttribute("aria-label"), size: [svg.clientWidth, svg.clientHeight],
drawn: svg.checkVisibility(), images: [...f.querySelectorAll("img")].filter(i => i.checkVisibility()).length,
disabled: [...f.querySelectorAll("select")].map(s => [...s.options].map(o => o.disabled)),
x: all(".vl-x", e => [e.textContent, +e.getAttribute("x")]),
y: all(".vl-y", e => [e.textContent, (b => b[1] + b[3])(box(e)) / 2]),
ticks: all(".vl-x,.vl-y", box), names: all(".vl-name", e => [e.textContent, ...box(e)]),
circles: all("circle", e => [+e.getAttribute("cx"), +e.getAttribute("cy"), e.r.baseVal.value + 1]),
hollow: all("circle", e => getComputedStyle(e).fill == "none"), titles: all("title", e => e.textContent),
bars: all(".vl-point", g => ["h", "v"].map(w => [...g.querySelectorAll(".vl-" + w)].map(box))),
leaders: all(".vl-leader", e => e.getTotalLength())}})"""


def seen(page: Any) -> Any:
    (one,) = page.evaluate(SEEN)
    return one


def shows(page: Any, shown: Any, width: int = 1000, look: str = "light") -> Any:
    page.set_viewport_size({"width": width, "height": 800})
    page.set_content(page_of(shown.html, look))
    page.wait_for_function("document.querySelector('.vl-point')")
    return seen(page)


def choose(page: Any, across: str | None = None, up: str | None = None) -> Any:
    for name, label in (("across", across), ("up", up)):
        if label:
            page.get_by_role("combobox", name=name).select_option(label=label)
    return seen(page)


def test_the_script_draws_the_chart_in_place_of_the_picture(page: Any, chosen: Any) -> None:
    now = shows(page, chosen)
    assert now["drawn"] and now["images"] == 0
    assert (now["across"], now["up"]) == (ACROSS, UP)
    assert [name for name, *_ in now["names"]] == NAMES
    assert now["hollow"] == [True] + [False] * 8
    assert now["aria"].startswith(f"{UP} against {ACROSS}: CNN 45.1 at 0.021; ViT 36.2 at 0.0105; ")
    assert now["titles"][0] == f"CNN: {UP} 45.1 (43.1 to 48.1), {ACROSS} 0.021 (0.015 to 0.0315)"
    assert page.locator("svg").get_attribute("role") == "img"
    assert page.get_by_role("img").count() == 1


def test_choosing_another_axis_changes_all_that_speaks_of_it(page: Any, chosen: Any) -> None:
    before = shows(page, chosen)
    now = choose(page, across="images a second")
    assert (now["across"], now["up"]) == ("images a second", UP)
    assert now["x"] != before["x"] and now["y"] == before["y"]
    assert [text for text, _ in now["x"]] == ["5,000", "10,000", "15,000", "20,000"]
    assert now["aria"].startswith(f"{UP} against images a second: CNN 45.1 at 13,100; ")
    now = choose(page, up="parameters (million)")
    assert now["up"] == "parameters (million)"
    assert now["titles"][1] == "ViT: parameters (million) 0.305, images a second 21,500"


def test_what_one_axis_shows_the_other_does_not_offer(page: Any, chosen: Any) -> None:
    def only(place: int) -> list[bool]:
        return [k == place for k in range(4)]

    assert shows(page, chosen)["disabled"] == [only(3), only(1)]
    assert choose(page, across="images a second")["disabled"] == [only(3), only(2)]
    assert choose(page, up=ACROSS)["disabled"] == [only(1), only(2)]


def test_the_keyboard_chooses_and_passes_over_what_the_other_axis_shows(page: Any, chosen: Any) -> None:
    shows(page, chosen)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert seen(page)["across"] == "images a second"
    page.keyboard.press("ArrowDown")
    assert seen(page)["across"] == "images a second", "the last is taken by the other axis"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")
    assert seen(page)["up"] == ACROSS, "the one before is taken by the other axis"


def apart(a: list[float], b: list[float]) -> bool:
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


LABELS = [axis.label for axis in axes()]


@pytest.mark.parametrize("width", [1000, 360])
@pytest.mark.parametrize(("across", "up"), list(itertools.permutations(LABELS, 2)))
def test_names_keep_clear_of_each_other_and_of_circles(
    page: Any, chosen: Any, across: str, up: str, width: int
) -> None:
    shows(page, chosen, width)
    # By way of a free place, since what the other axis shows cannot be chosen.
    choose(page, across=next(label for label in LABELS if label not in (across, up, UP)))
    choose(page, up=up)
    now = choose(page, across=across)
    assert (now["across"], now["up"]) == (across, up)
    wide, high = now["size"]
    names = [box for _, *box in now["names"]]
    circles = [[x - r, y - r, x + r, y + r] for x, y, r in now["circles"]]
    for box in names + now["ticks"]:
        assert box[0] >= 0 and box[1] >= 0 and box[2] <= wide and box[3] <= high
    assert all(apart(a, b) for a, b in itertools.combinations(names, 2))
    assert all(apart(a, b) for a in names for b in circles + now["ticks"])
    assert all(apart(a, b) for a, b in itertools.combinations(now["ticks"], 2))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_name_that_had_to_go_far_is_led_to_by_a_line(page: Any, chosen: Any) -> None:
    assert shows(page, chosen, 360)["leaders"], "these nine are too close for all names to stay"
    choose(page, across="images a second")
    assert len(seen(page)["leaders"]) < 4


@pytest.mark.parametrize("width", [1000, 360])
def test_the_chart_is_as_wide_as_its_column_and_its_letters_stay_large(page: Any, chosen: Any, width: int) -> None:
    wide, high = shows(page, chosen, width)["size"]
    assert wide == width - 16  # the body's margins
    assert high == pytest.approx(min(440, max(300, 0.62 * wide)), abs=1)
    assert page.evaluate("getComputedStyle(document.querySelector('.vl-name')).fontSize") == "13px"
    assert all(box["height"] >= 44 for box in (s.bounding_box() for s in page.locator("select").all()))


def test_the_chart_follows_the_width_of_its_column(page: Any, chosen: Any) -> None:
    shows(page, chosen, 1000)
    page.set_viewport_size({"width": 500, "height": 800})
    # Not its width on the page, which the sheet limits before the script draws anew.
    page.wait_for_function("document.querySelector('svg').getAttribute('width') == 484")
    assert max(x for x, *_ in seen(page)["circles"]) < 484


def test_a_chart_drawn_while_hidden_appears_with_its_column(page: Any, chosen: Any) -> None:
    page.set_content(page_of(f'<div id="tab" style="display:none">{chosen.html}</div>'))
    page.evaluate("document.getElementById('tab').style.display = 'block'")
    page.wait_for_function("document.querySelector('svg').getAttribute('width') == 984")
    assert len(seen(page)["circles"]) == 9


def number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def check_scale(ticks: list[Any], pairs: list[tuple[float, float]], log: bool, tolerance: float = 1.5) -> None:
    """Ticks and (value, place) pairs must all lie on one straight line, of logarithms where the axis has them."""
    f = math.log if log else float
    (first, at), (last, end) = ((f(number(text)), place) for text, place in (ticks[0], ticks[-1]))
    assert abs(end - at) > 60
    for value, place in [*((number(text), place) for text, place in ticks), *pairs]:
        assert place == pytest.approx(at + (f(value) - first) / (last - first) * (end - at), abs=tolerance)


@pytest.mark.parametrize("width", [1000, 360])
def test_circles_and_the_ends_of_bars_lie_where_the_numbers_say(page: Any, chosen: Any, width: int) -> None:
    now = shows(page, chosen, width)
    _, wide, _, exact = axes()
    across = list(zip(wide.values, (x for x, _, _ in now["circles"]), strict=True))
    up = list(zip(exact.values, (y for _, y, _ in now["circles"]), strict=True))
    for place, (flat, tall) in enumerate(now["bars"]):
        assert len(flat) == len(tall) == 2
        across += [
            (wide.low[place], min(box[0] for box in flat)),
            (wide.high[place], max(box[2] for box in flat)),
        ]
        up += [
            (exact.low[place], max(box[3] for box in tall)),
            (exact.high[place], min(box[1] for box in tall)),
        ]
    check_scale(now["x"], across, log=True)
    check_scale(now["y"], up, log=False)
    # The other way round, and a linear axis across.
    choose(page, across="parameters (million)")
    now = choose(page, up=ACROSS)
    check_scale(now["x"], [(v, x) for v, (x, _, _) in zip(PARAMETERS, now["circles"], strict=True)], log=False)
    check_scale(now["y"], [(v, y) for v, (_, y, _) in zip(ADDS, now["circles"], strict=True)], log=True)
    assert all(flat == [] for flat, _ in now["bars"]), "no intervals, no bars"


def nice(value: float) -> bool:
    return f"{abs(value):e}"[:8] in ("1.000000", "2.000000", "5.000000")


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (0.298, 0.362), (5.5, 14.5), (-3, 17), (1e-7, 3e-7), (12, 87345), (7, 7), (0, 0), (99.1, 99.3)],
)
def test_four_to_six_ticks_in_steps_that_are_easy_to_read(page: Any, low: float, high: float) -> None:
    now = shows(page, small(**other([low, high])))
    ticks = [number(text) for text, _ in now["x"]]
    assert 4 <= len(ticks) <= 6
    steps = np.diff(ticks)
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-6) and nice(float(f"{steps[0]:.3g}"))
    assert low < 0 or min(ticks) >= 0, "no tick below zero for what cannot be there"
    check_scale(now["x"], [(v, x) for v, (x, _, _) in zip((low, high), now["circles"], strict=True)], log=False)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 100, ["1", "5", "20", "100"]),
        (1, 10, ["1", "2", "5", "10"]),
        (0.001, 1e6, ["0.01", "1", "100", "10,000", "1,000,000"]),
        (0.02, 0.3, ["0.02", "0.05", "0.1", "0.2"]),
        (22, 47, ["25", "30", "35", "40", "45"]),
        (3, 3, ["2.8", "2.9", "3.0", "3.1", "3.2"]),
    ],
)
def test_two_to_six_ticks_on_a_logarithmic_axis(page: Any, low: float, high: float, expected: list[str]) -> None:
    now = shows(page, small(**other([low, high], log=True)))
    assert [text for text, _ in now["x"]] == expected
    check_scale(now["x"], [(v, x) for v, (x, _, _) in zip((low, high), now["circles"], strict=True)], log=True)


def test_long_numbers_and_long_labels_find_room_on_a_phone(page: Any) -> None:
    long = "the number of multiplications and additions that one image takes in one pass forward (G)"
    two = [show.Axis(long, [1_100_000, 2_900_000]), show.Axis(f"twice {long}", [2_200_000, 5_800_000])]
    now = shows(page, small(axes=two, start=(two[0].label, two[1].label)), 360)
    assert all(apart(a, b) for a, b in itertools.combinations(now["ticks"], 2))
    assert len(now["x"]) >= 2
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_script_that_runs_again_leaves_a_ready_chart_alone(page: Any, chosen: Any) -> None:
    shows(page, chosen)
    page.evaluate(
        """() => { document.querySelector(".vl-point").id = "drawn";
        const again = document.createElement("script");
        again.textContent = document.querySelector(".vl-choose ~ script").textContent;
        document.body.append(again) }"""
    )
    assert page.locator("#drawn").count() == 1
    assert page.locator(".vl-choose").get_attribute("data-ready") == ""


def test_odd_names_and_labels_are_shown_as_they_are(page: Any) -> None:
    now = shows(page, odd())
    assert [name for name, *_ in now["names"]] == ODD
    assert (now["across"], now["up"]) == ('a "b" & <c>', "</select> $y$")
    assert now["hollow"] == [name == ODD[1] for name in ODD]


@pytest.mark.parametrize("width", [1000, 375])
@pytest.mark.parametrize("look", ["light", "dark"])
def test_axe_finds_nothing(page: Any, chosen: Any, look: str, width: int) -> None:
    shows(page, chosen, width, look)
    found = Axe().run(page).response["violations"]
    assert [(fault["id"], node["html"][:120]) for fault in found for node in fault["nodes"]] == []


@pytest.mark.parametrize("look", ["light", "dark"])
def test_the_ink_follows_the_theme_without_a_new_drawing(page: Any, chosen: Any, look: str) -> None:
    shows(page, chosen, look="dark" if look == "light" else "light")
    page.evaluate(
        "([look, ink]) => {document.documentElement.dataset.theme = look; document.body.style.color = ink}",
        [look, "#222" if look == "light" else "#ddd"],
    )
    inks = page.evaluate(
        "() => ['.vl-name', '.vl-point circle:not(.vl-hollow)'].map("
        "q => getComputedStyle(document.querySelector(q)).fill)"
    )
    assert inks == (
        ["rgb(34, 34, 34)", "rgb(27, 114, 216)"]
        if look == "light"
        else ["rgb(221, 221, 221)", "rgb(61, 165, 255)"]
    )


@pytest.mark.parametrize("look", ["light", "dark"])
def test_without_scripts_the_picture_stands_with_a_word_about_it(
    browser: Any, chosen: Any, tmp_path: Path, look: str
) -> None:
    (tmp_path / "page.html").write_text(page_of(chosen.html, look), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert page.evaluate(DISPLAYED) == [f"vl-{look}"]
    assert not page.locator("svg").is_visible()
    assert all(select.is_disabled() for select in page.locator("select").all())
    assert page.locator("noscript p").is_visible()
    context.close()


def test_charts_on_one_page_are_independent(page: Any, chosen: Any) -> None:
    page.set_content(page_of(chosen.html + odd().html + chosen.html))  # one of them twice
    page.locator("select").nth(0).select_option(label="images a second")
    page.locator("select").nth(3).evaluate("s => s.blur()")
    first, second, third = page.evaluate(SEEN)
    assert [one["across"] for one in (first, second, third)] == ["images a second", 'a "b" & <c>', ACROSS]
    assert [len(one["circles"]) for one in (first, second, third)] == [9, 6, 9]
    page.locator("select").nth(5).select_option(label="parameters (million)")
    assert [one["up"] for one in page.evaluate(SEEN)] == [UP, "</select> $y$", "parameters (million)"]


def test_output_that_arrives_later_works_too(page: Any, chosen: Any) -> None:
    """Colab and JupyterLab insert the markup, then run its script, and may do so once more."""
    page.set_content(page_of('<div id="out"></div>'))
    for _ in range(2):
        page.evaluate(
            """html => { const out = document.getElementById("out"), one = document.createElement("div");
            one.innerHTML = html; out.append(one);
            const script = document.createElement("script");
            script.textContent = one.querySelector("script").textContent; one.append(script) }""",
            chosen.html,
        )
    page.locator("select").nth(2).select_option(label="images a second")
    assert [one["across"] for one in page.evaluate(SEEN)] == [ACROSS, "images a second"]
    assert [len(one["circles"]) for one in page.evaluate(SEEN)] == [9, 9]
