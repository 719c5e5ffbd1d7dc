"""The book as built, in a real browser: every page in light and dark, on a desk and on a phone.

VITLAB_SITE names another folder than _build/html.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import check_site
import pytest
from browser import Visit, served, visit
from chromium import absent
from tiny import ROOT

SITE = Path(os.environ.get("VITLAB_SITE", ROOT / "_build" / "html"))
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if "_static" not in path.relative_to(SITE).parts and path != SITE / "index.html"
)
CHAPTERS = [page for page in PAGES if page.startswith("notebooks/")]


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    if not (SITE / "index.html").is_file():
        absent(f"No book in {SITE}: run make book, then these tests look at it.")
    with served(SITE) as address:
        yield address


def test_there_is_a_book(base: str) -> None:
    assert CHAPTERS, "the book has a chapter"


def test_links_words_hosts_and_weight(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_site.main([str(SITE)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("path", PAGES)
def test_a_page_in_light_and_dark_on_a_desk_and_on_a_phone(browser: Any, base: str, path: str) -> None:
    found: dict[str, list[str]] = {}
    with visit(browser, base, path) as it:
        it.page.evaluate("document.querySelectorAll('main details').forEach(it => { it.open = true })")
        found["pictures"] = broken_pictures(it)
        for width in (1280, 375):
            it.page.set_viewport_size({"width": width, "height": 900})
            for scheme in ("light", "dark"):
                it.page.emulate_media(color_scheme=scheme)
                it.settle()
                theme = it.page.evaluate("document.documentElement.dataset.theme")
                if theme != scheme:
                    found[f"{scheme}, {width} px"] = [f"the page is in {theme}"]
                if width == 1280 or scheme == "light":  # colours do not depend on the width
                    found[f"{scheme}, {width} px, axe"] = it.axe()
            wide = it.page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                found[f"{width} px, width"] = [f"the page is {wide} px wide"]
        found["pictures on a phone"] = broken_pictures(it)
        found["the browser"] = it.faults
    assert {where: what for where, what in found.items() if what} == {}


def broken_pictures(it: Visit) -> list[str]:
    """Scroll to every picture that is displayed; those that do not load or do not fit."""
    return it.page.evaluate(
        """async () => {
            const faults = [];
            for (const image of document.querySelectorAll("article img")) {
                if (!image.checkVisibility()) continue;
                image.scrollIntoView({behavior: "instant"});
                await image.decode().catch(() => faults.push(image.src + " does not load"));
                if (image.getBoundingClientRect().right > innerWidth + 1) faults.push(image.src + " is too wide");
            }
            scrollTo({top: 0, behavior: "instant"});
            return faults;
        }"""
    )


@pytest.mark.parametrize("path", PAGES)
def test_formulas_are_set(browser: Any, base: str, path: str) -> None:
    written = len(re.findall(r'class="math notranslate', (SITE / path).read_text(encoding="utf-8")))
    if not written:
        return
    with visit(browser, base, path) as it:
        assert it.page.locator("mjx-container").count() >= written
        assert it.page.locator("mjx-merror").count() == 0
        assert it.page.locator("mjx-container mjx-assistive-mml").count() >= written, "formulas can be heard"


@pytest.mark.parametrize("path", CHAPTERS)
def test_launch_buttons_lead_to_the_chapter(base: str, path: str) -> None:
    page = html.unescape((SITE / path).read_text(encoding="utf-8"))
    notebook = path.removesuffix(".html") + ".ipynb"
    colab = re.findall(r'href="https://colab\.research\.google\.com/github/[^/"]+/[^/"]+/blob/([^"]+)"', page)
    binder = re.findall(r'href="https://mybinder\.org/v2/gh/[^/"]+/[^/"]+/main\?urlpath=lab/tree/([^"]+)"', page)
    assert colab == [f"main/{notebook}"] and binder == [notebook]
    assert (ROOT / notebook).is_file()
    assert f'href="../_sources/{notebook}"' in page and (SITE / "_sources" / notebook).is_file()


def test_search_finds_a_word(browser: Any, base: str) -> None:
    with visit(browser, base, "search.html?q=transformer") as it:
        it.page.wait_for_selector("ul.search li a", timeout=10_000)
        found = it.page.eval_on_selector_all("ul.search li a", "links => links.map(a => a.getAttribute('href'))")
        assert any(link.startswith("notebooks/") for link in found)
        assert it.faults == []


def test_the_first_page_leads_to_the_preface(browser: Any, base: str) -> None:
    with visit(browser, base, "index.html") as it:
        it.page.wait_for_url("**/book/preface.html")
        assert it.faults == []


def test_the_theme_button_changes_the_look_and_it_stays(browser: Any, base: str) -> None:
    with visit(browser, base, CHAPTERS[0]) as it:
        seen = set()
        for _ in range(3):
            it.page.click(".theme-switch-button")
            seen.add(it.page.evaluate("document.documentElement.dataset.theme"))
        assert seen == {"light", "dark"}
        while it.page.evaluate("document.documentElement.dataset.mode") != "dark":
            it.page.click(".theme-switch-button")
        it.page.goto(base + PAGES[0])
        it.settle()
        assert it.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_no_web_font_is_loaded_but_for_formulas(browser: Any, base: str) -> None:
    with visit(browser, base, CHAPTERS[0]) as it:
        fetched = it.page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
        fonts = [name for name in fetched if re.search(r"\.(woff2?|ttf|otf)\b", name)]
        assert all("/mathjax/" in name for name in fonts), fonts


def test_a_page_is_printed_in_light(browser: Any, base: str) -> None:
    with visit(browser, base, CHAPTERS[0], "dark") as it:
        it.page.evaluate(
            """addEventListener("beforeprint", () => {
                window.printed = document.documentElement.dataset.theme
            })"""
        )
        assert it.page.pdf()[:4] == b"%PDF"
        assert it.page.evaluate("window.printed") == "light"
        assert it.page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("path", CHAPTERS)
def test_the_keyboard_reaches_and_moves_a_slider(browser: Any, base: str, path: str) -> None:
    with visit(browser, base, path) as it:
        for slider in it.page.query_selector_all("main input[type=range]"):
            slider.scroll_into_view_if_needed()
            slider.focus()
            before = slider.get_attribute("aria-valuetext")
            it.page.keyboard.press("ArrowRight")
            assert slider.get_attribute("aria-valuetext") != before
            it.page.keyboard.press("Shift+Tab")
            it.page.keyboard.press("Tab")
            style = slider.evaluate("it => [getComputedStyle(it).outlineStyle, getComputedStyle(it).outlineWidth]")
            assert style[0] != "none" and float(style[1].removesuffix("px")) >= 2, "focus can be seen"
        assert it.faults == []


def test_the_keyboard_skips_to_the_text(browser: Any, base: str) -> None:
    with visit(browser, base, CHAPTERS[0]) as it:
        it.page.keyboard.press("Tab")
        assert it.page.evaluate("document.activeElement.textContent").strip() == "Skip to main content"
        it.page.wait_for_function("document.activeElement.getBoundingClientRect().top >= 0", timeout=3000)


SOUND = '<!DOCTYPE html><html lang="en"><head><title>A</title></head><body><main><h1>A</h1>{}</main></body></html>'
FAULTS = {
    "<p>Nothing.</p>": ([], []),
    '<p><img src="https://example.invalid/x.png" alt="x"></p>': (
        ["asks another host for https://example.invalid"],
        [],
    ),
    '<script>fetch("missing.json")</script>': (["gets 404 for"], []),
    "<script>console.error('no')</script>": (["says on the console: no"], []),
    "<script>throw Error('no')</script>": (["raises: no"], []),
    '<p style="color:#999;background:#fff">Faint.</p>': ([], ["color-contrast"]),
    '<input type="range">': ([], ["label"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_browser_tells_a_fault(browser: Any, tmp_path: Path, fault: str) -> None:
    (tmp_path / "index.html").write_text(SOUND.format(fault), encoding="utf-8")
    (tmp_path / "favicon.ico").touch()
    faults, rules = FAULTS[fault]
    with served(tmp_path) as base, visit(browser, base, "index.html") as it:
        assert len(it.faults) == len(faults) and all(map(str.startswith, it.faults, faults))
        assert [found.partition(":")[0] for found in it.axe()] == rules
