"""What a real browser displays: one look at a time in every host, sliders by keyboard, no fault that axe finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from vitlab import show

from .conftest import slide
from .test_text import PARTS, TABLE

PAGE = (
    '<!doctype html><html lang="en" {html}><head><meta charset="utf-8"><title>Page</title>'
    '<meta name="viewport" content="width=device-width,initial-scale=1">'
    "<style>body{{background:{ground};color:{ink};font-family:sans-serif}}a{{color:{link}}}</style></head>"
    "<body {body}><main><h1>Page</h1>{content}</main></body></html>"
)
COLOURS = {
    "light": {"ground": "#fff", "ink": "#222", "link": "#0a5a8a"},
    "dark": {"ground": "#14181d", "ink": "#ddd", "link": "#6cf"},
}

# (attributes of html, attributes of body, the system's preference, the look that must be displayed)
HOSTS = {
    "book light, system dark": ('data-theme="light"', "", "dark", "light"),
    "book dark, system light": ('data-theme="dark"', "", "light", "dark"),
    "book dark, system dark": ('data-theme="dark"', "", "dark", "dark"),
    "book before its script, system dark": ('data-content_root="../" data-theme=""', "", "dark", "dark"),
    "book without scripts, system dark": ('data-content_root="../"', "", "dark", "light"),
    "JupyterLab light, system dark": ("", 'data-jp-theme-light="true"', "dark", "light"),
    "JupyterLab dark, system light": ("", 'data-jp-theme-light="false"', "light", "dark"),
    "Colab dark, system light": ('theme="dark"', "", "light", "dark"),
    "Colab light, system dark": ('theme="light"', "", "dark", "light"),
    "VS Code dark, system light": ("", 'data-vscode-theme-kind="vscode-dark"', "light", "dark"),
    "VS Code high contrast": ("", 'data-vscode-theme-kind="vscode-high-contrast"', "light", "dark"),
    "VS Code light, system dark": ("", 'data-vscode-theme-kind="vscode-light"', "dark", "light"),
    "bare, system light": ("", "", "light", "light"),
    "bare, system dark": ("", "", "dark", "dark"),
}
DISPLAYED = (
    """() => [...document.querySelectorAll("img")].filter(i => i.checkVisibility()).map(i => i.className)"""
)
ALTS = """() => [...document.querySelectorAll("img")].filter(i => i.checkVisibility()).map(i => i.alt)"""


def page_of(content: str, look: str = "light", html: str | None = None, body: str = "") -> str:
    return PAGE.format(
        content=content, html=f'data-theme="{look}"' if html is None else html, body=body, **COLOURS[look]
    )


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on(
        "request", lambda request: None if request.url[:5] in ("data:", "about") else errors.append(request.url)
    )
    yield page
    context.close()
    assert errors == []


@pytest.mark.parametrize("host", HOSTS)
def test_exactly_one_look_is_displayed(page: Any, shown: Any, host: str) -> None:
    html, body, system, look = HOSTS[host]
    page.emulate_media(color_scheme=system)
    page.set_content(page_of(shown.html, html=html, body=body))
    assert page.evaluate(DISPLAYED) == [f"vl-{look}"]


def test_switching_the_theme_switches_the_look(page: Any, shown: Any) -> None:
    page.set_content(page_of(shown.html))
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert page.evaluate(DISPLAYED) == ["vl-dark"]


def test_paper_gets_the_light_look(page: Any, shown: Any) -> None:
    page.set_content(page_of(shown.html, "dark"))
    page.emulate_media(media="print")
    assert page.evaluate(DISPLAYED) == ["vl-light"]


def test_an_unknown_page_gets_a_ground_of_our_own(page: Any, shown: Any) -> None:
    ground = "() => getComputedStyle(document.querySelector('.vl-dark')).backgroundColor"
    page.emulate_media(color_scheme="dark")
    page.set_content(page_of(shown.html, html=""))
    assert page.evaluate(ground) == "rgb(20, 24, 29)"
    page.set_content(page_of(shown.html, "dark"))
    assert page.evaluate(ground) == "rgba(0, 0, 0, 0)"


def test_no_theme_dims_or_frames_the_picture(page: Any, shown: Any) -> None:
    """The book's theme filters pictures and lays a light panel behind outputs in dark mode."""
    theme = (
        "<style>html[data-theme=dark] .bd-content div.cell_output .text_html:not(:has(table.dataframe)),"
        "html[data-theme=dark] .bd-content div.cell_output img{background-color:#fff;color:#000;padding:.5rem}"
        "html[data-theme=dark] img:not(.only-dark,.dark-light){filter:brightness(.8) contrast(1.2)}</style>"
    )
    inside = (
        f'<div class="bd-content"><div class="cell_output"><div class="text_html">{shown.html}</div></div></div>'
    )
    page.set_content(page_of(theme + inside, "dark"))
    seen = page.evaluate(
        "() => [document.querySelector('.vl-dark'), document.querySelector('.text_html')].map(e => {"
        "const s = getComputedStyle(e); return [s.backgroundColor, s.padding, s.filter]})"
    )
    assert seen == [["rgba(0, 0, 0, 0)", "0px", "none"]] * 2


def test_the_picture_keeps_its_shape_on_a_phone(page: Any, shown: Any) -> None:
    page.set_viewport_size({"width": 220, "height": 600})
    page.set_content(page_of(shown.html))
    box = page.locator("img.vl-light").bounding_box()
    picture = shown.pair.light
    assert box["width"] <= 204
    assert box["height"] / box["width"] == pytest.approx(picture.height / picture.width, rel=0.02)


def test_the_slider_moves_by_keyboard(page: Any, slid: Any) -> None:
    page.set_content(page_of(slid.html))
    control = page.get_by_role("slider", name="patch side (px)")
    assert control.is_enabled()
    page.keyboard.press("Tab")
    seen = []
    for key in ("ArrowRight", "ArrowRight", "End", "ArrowRight", "ArrowLeft", "Home"):
        page.keyboard.press(key)
        (alt,) = page.evaluate(ALTS)
        seen.append(alt.removeprefix("The error climbs to ").rstrip("."))
        assert page.locator("output").inner_text() == seen[-1] == control.get_attribute("aria-valuetext")
    assert seen == ["4", "8", "16", "16", "8", "2"]


def test_the_slider_keeps_to_one_look(page: Any, slid: Any) -> None:
    page.set_content(page_of(slid.html, "dark"))
    for place in range(4):
        page.locator("input").fill(str(place))
        assert page.evaluate(DISPLAYED) == ["vl-dark"]


def test_touching_the_slider_fetches_the_frames_of_the_look_on_display(page: Any, slid: Any) -> None:
    page.set_content(page_of(slid.html))
    page.locator("input").focus()
    loading = "kind => [...document.querySelectorAll('.vl-' + kind)].map(i => i.loading)"
    assert page.evaluate(loading, "light") == ["eager"] * 4
    assert page.evaluate(loading, "dark") == ["lazy"] * 4


def test_sliders_on_one_page_are_independent(page: Any, slid: Any) -> None:
    other = slide("training step", (1, 3, 5))
    page.set_content(page_of(slid.html + other.html + slid.html))  # one of them twice
    page.locator("input").nth(1).fill("2")
    assert page.locator("output").all_inner_texts() == ["2", "5", "2"]
    page.locator("input").nth(2).fill("3")
    assert page.locator("output").all_inner_texts() == ["2", "5", "16"]
    assert [alt[-3:] for alt in page.evaluate(ALTS)] == [" 2.", " 5.", "16."]


def test_output_that_arrives_later_works_too(page: Any, slid: Any) -> None:
    """Colab and JupyterLab insert the markup, then run its script."""
    page.set_content(page_of('<div id="out"></div>'))
    page.evaluate(
        """html => { const out = document.getElementById("out"); out.innerHTML = html;
        const script = document.createElement("script");
        script.textContent = out.querySelector("script").textContent; out.append(script) }""",
        slid.html,
    )
    page.locator("input").fill("1")
    assert page.locator("output").inner_text() == "4"
    assert not page.locator("noscript").is_visible()


def test_without_scripts_the_first_frame_stands_with_a_word_about_it(
    browser: Any, slid: Any, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text(page_of(slid.html), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert [img.is_visible() for img in page.locator("img").all()] == [True] + [False] * 7
    assert page.locator("input").is_disabled()
    assert page.locator("noscript p").is_visible()
    context.close()


@pytest.mark.parametrize("width", [1000, 375])
@pytest.mark.parametrize("look", ["light", "dark"])
def test_axe_finds_nothing(page: Any, shown: Any, slid: Any, look: str, width: int) -> None:
    verdicts = "".join(
        show.verdict(**(PARTS | {"verdict": word})).html
        for word in ("holds", "holds in part", "undecided", "fails")
    )
    wide = show.table(
        [["model", *range(1000, 1030)]], ["model", *(f"step {k}" for k in range(30))], "A wide table."
    )
    page.set_viewport_size({"width": width, "height": 800})
    page.set_content(page_of(shown.html + slid.html + show.table(**TABLE).html + wide.html + verdicts, look))
    found = Axe().run(page).response["violations"]
    assert [(fault["id"], node["html"][:120]) for fault in found for node in fault["nodes"]] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "nothing makes the page scroll sideways"
    )


def test_a_wide_table_scrolls_in_its_frame_by_keyboard(page: Any) -> None:
    caption = "A wide table whose caption is long too, and must not be scrolled to be read."
    wide = show.table([["model", *range(1000, 1030)]], ["model", *(f"step {k}" for k in range(30))], caption)
    page.set_content(page_of(f'<div style="width:300px">{wide.html}</div>'))
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('.vl-table').scrollLeft > 0")
    assert page.locator("caption span").bounding_box()["width"] <= 300
