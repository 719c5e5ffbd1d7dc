"""The checker of the built site finds what it is there to find, and nothing in a sound site."""

from __future__ import annotations

import os
from pathlib import Path

import check_site
import pytest

SOUND = """<!DOCTYPE html><html lang="en"><head><title>A</title>
<link rel="stylesheet" href="style.css"><link rel="canonical" href="https://example.org/a.html"></head>
<body><img src="logo.svg" alt=""><article id="top"><h1 id="été">A</h1>
<a href="b.html#there">b</a> <a href="#top">up</a>
<a href="https://example.org">out</a> <a href="mailto:a@example.org">mail</a> <a href="folder/">folder</a>
<figure class="vl-figure"><img src="one.png" alt="One" loading="lazy"><figcaption>One, <em>drawn</em>.</figcaption>
</figure>{more}</article><script src="script.js"></script></body></html>"""


def site(root: Path, more: str = "") -> Path:
    (root / "folder").mkdir(parents=True)
    for name, text in {
        "index.html": SOUND.format(more=more),
        "b.html": '<html><body><h1 id="there">B</h1><a href="index.html#%C3%A9t%C3%A9">a</a></body></html>',
        "folder/index.html": '<html><body><a href="../b.html">b</a></body></html>',
        "style.css": "@import 'more.css'; /* url(https://example.org/x) */ p { background: url(one.png) }",
        "more.css": "p { color: red }",
        "logo.svg": "<svg/>",
        "one.png": "not looked at",
        "script.js": "1",
    }.items():
        (root / name).write_text(text, encoding="utf-8")
    return root


def said(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    status = check_site.main([str(root)])
    return status, capsys.readouterr().out.splitlines()[:-1]


def test_a_sound_site_has_no_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(site(tmp_path / "site"), capsys) == (0, [])


HOST = "https://example.org"
FAULTS = {
    '<a href="c.html">c</a>': "the link c.html leads nowhere",
    '<a href="b.html#here">b</a>': "the link b.html#here leads to an anchor that is not there",
    '<a href="#nowhere">x</a>': "the link #nowhere leads to an anchor that is not there",
    '<img src="two.png" alt="Two">': "the link two.png leads nowhere",
    '<img src="one.png">': "the image one.png has no alternative text",
    '<img src="one.png" alt=" ">': "the image one.png has no alternative text",
    '<img src="one.png" alt="../_images/one.png">': "the image one.png has its own address as alternative text",
    '<figure class="a vl-figure"><figcaption> </figcaption></figure>': "a figure has no caption",
    '<img src="https://example.org/1.png" alt="1">': "img fetches https://example.org/1.png from another host",
    '<img srcset="one.png, //example.org/2.png 2x" alt="1">': "img fetches //example.org/2.png from another host",
    '<script src="//example.org/x.js"></script>': "script fetches //example.org/x.js from another host",
    '<iframe src="https://example.org/"></iframe>': "iframe fetches https://example.org/ from another host",
    '<link rel="preconnect" href="https://example.org">': "link fetches https://example.org from another host",
    f"<p style=\"background: url('{HOST}/p.png')\">": f"style fetches {HOST}/p.png from another host",
    f"<style>@import '{HOST}/f.css';</style>": f"style fetches {HOST}/f.css from another host",
    '<script type="module">import x from "https://example.org/x.js";</script>': (
        "a script on the page imports from another host"
    ),
}


@pytest.mark.parametrize("html", FAULTS)
def test_each_fault_is_one_line(tmp_path: Path, html: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(site(tmp_path / "site", html), capsys) == (1, [f"index.html: {FAULTS[html]}"])


def test_a_style_sheet_that_fetches_from_another_host_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = site(tmp_path / "site")
    (root / "more.css").write_text("@font-face { src: url(https://example.org/f.woff2) }")
    assert said(root, capsys) == (1, ["more.css: it fetches https://example.org/f.woff2 from another host"])


def test_a_heavy_page_is_named_by_what_it_loads_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = site(tmp_path / "site")
    (root / "one.png").write_bytes(os.urandom(2_000_000))
    assert said(root, capsys) == (0, []), "its only image is lazy"
    page = (root / "index.html").read_text().replace(' loading="lazy"', "")
    (root / "index.html").write_text(page)
    assert said(root, capsys) == (1, ["index.html: it weighs 2.00 MB over the wire, more than 1.5 MB"])


def test_a_page_weighs_what_its_style_sheets_import(tmp_path: Path) -> None:
    root = site(tmp_path / "site")
    before = check_site.Site(root).weight(root / "index.html")
    (root / "big.css").write_bytes(os.urandom(5000).hex().encode())
    (root / "more.css").write_text("@import url(big.css);")
    assert check_site.Site(root).weight(root / "index.html") > before + 4000


def test_a_folder_without_a_site_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_site.main([str(tmp_path)]) == 2
    assert "holds no index.html: build the book first" in capsys.readouterr().err
