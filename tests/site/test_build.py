"""A tiny book, built by the real builder: what it becomes, what is run anew, and what makes it fail."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import check_site
import pytest
from tiny import INTRODUCTION, PREFACE, ROOT, Book, code, figure, markdown

RUN = re.compile(r"number (\d+), reading (\d+), run at (\d+)")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """One book for all tests of this file, built once."""
    book = Book(tmp_path_factory.mktemp("tiny"))
    done = book.build()
    assert done.returncode == 0, done.stdout + done.stderr
    return book


@pytest.fixture
def book(shared: Book) -> Iterator[Book]:
    """The shared book, sound again afterwards (its next build starts from there)."""
    yield shared
    shared.restore()


def run(book: Book) -> tuple[str, str, str]:
    """The package's number, the data's reading and the time of the run, as the page shows them."""
    found = RUN.search(book.page("notebooks/chapter.html"))
    assert found is not None
    return found.groups()


def test_an_unchanged_book_is_not_built_again(book: Book) -> None:
    before = (book.html / "notebooks" / "chapter.html").stat().st_mtime_ns
    began = time.monotonic()
    done = book.build()
    assert done.returncode == 0 and "Nothing has changed" in done.stdout
    assert time.monotonic() - began < 2
    assert (book.html / "notebooks" / "chapter.html").stat().st_mtime_ns == before


def test_the_site_is_sound(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_site.main([str(book.html)]) == 0, capsys.readouterr().out


def test_quotes_with_a_lead_become_boxes(book: Book) -> None:
    page = book.page("notebooks/chapter.html")
    titles = re.findall(r'<div class="vl-box (vl-\w+) admonition">\s*<p class="admonition-title">(.*?)</p>', page)
    assert titles == [
        ("vl-note", "Note"),
        ("vl-definition", "Definition: equivariance"),
        ("vl-warning", "Warning"),
        ("vl-claim", "Claim"),
        ("vl-try", "Try it"),
        ("vl-seminar", "Seminar"),
    ]
    assert "<p>A note in plain Markdown, with <code" in page
    assert "<p>It has a second paragraph.</p>" in page
    assert "<strong>bold</strong>" in page
    assert re.search(r"<blockquote>\s*<div><p>An ordinary quotation stays one", page)


def test_embedded_images_become_lazy_files(book: Book) -> None:
    page = book.page("notebooks/chapter.html")
    images = re.findall(r'<img class="vl-(?:light|dark)"[^>]*>', page)
    assert len(images) == 2 and not re.search(r"<img[^>]*data:", page)
    for image in images:
        source = re.search(r'src="([^"]+)"', image)
        assert source and (book.html / "notebooks" / source[1]).resolve().is_file()
        assert 'loading="lazy"' in image and 'width="64" height="32"' in image and 'alt="A plain field"' in image


def test_a_page_carries_its_metadata(book: Book) -> None:
    page = book.page("notebooks/chapter.html")
    text = (
        "What a chapter says first is its description. "
        "It cites Dosovitskiy et al., 2021 and leads to the glossary."
    )
    assert f'<meta name="description" content="{text}">' in page
    assert f'<meta property="og:description" content="{text}" />' in page
    assert '<html lang="en"' in page and 'href="#main-content">Skip to main content' in page
    assert "og:url" not in page and "canonical" not in page  # nobody knows where this copy is published


def test_a_citation_says_which_paper_it_is(book: Book) -> None:
    page = book.page("notebooks/chapter.html")
    link = re.search(r'<a class="[^"]*vl-cite[^"]*"[^>]*>', page)
    assert link and 'title="Dosovitskiy et al., An Image is Worth 16x16 Words, 2021"' in link[0]


def test_launch_buttons_lead_to_the_notebook_in_the_repository(book: Book) -> None:
    page = book.page("notebooks/chapter.html")
    name = "OWNER/hungry-transformer"
    assert f'href="https://colab.research.google.com/github/{name}/blob/main/notebooks/chapter.ipynb"' in page
    assert f'href="https://mybinder.org/v2/gh/{name}/main?urlpath=lab/tree/notebooks/chapter.ipynb"' in page


def test_scripts_are_local_and_only_what_is_used(book: Book) -> None:
    static = book.html / "_static"
    assert (static / "mathjax" / "tex-chtml.js").is_file()
    assert list((static / "mathjax" / "output" / "chtml" / "fonts" / "woff-v2").glob("*.woff"))
    assert not (static / "scripts" / "fontawesome.js").exists()
    used = {
        name
        for page in book.html.rglob("*.html")
        if "_static" not in page.parts
        for tag in re.findall(r'<(?:i|span) class="fa[^"]*"', page.read_text(encoding="utf-8"))
        for name in re.findall(r"fa-(?!solid|brands|regular|lg)[\w-]+", tag)
    }
    icons = (static / "icons.css").read_text(encoding="utf-8")
    assert len(used) > 8 and all(f".{name}{{" in icons for name in used)
    assert len(icons) < 40_000


def test_the_address_of_a_published_book_comes_from_the_ci(book: Book) -> None:
    done = book.build(GITHUB_REPOSITORY="someone/hungry", GITHUB_SERVER_URL="https://github.com")
    assert done.returncode == 0, done.stderr
    assert "not known" not in done.stdout
    page = book.page("notebooks/chapter.html")
    assert "colab.research.google.com/github/someone/hungry/blob/main/notebooks/chapter.ipynb" in page
    assert '<link rel="canonical" href="https://someone.github.io/hungry/notebooks/chapter.html" />' in page
    sitemap = book.page("sitemap.xml")
    assert "<loc>https://someone.github.io/hungry/book/preface.html</loc>" in sitemap
    assert (book.html / ".nojekyll").is_file()


def test_a_change_in_the_prose_runs_nothing(book: Book) -> None:
    book.build()
    before = run(book)
    book.chapter(text=INTRODUCTION.replace("A chapter", "A renamed chapter"))
    done = book.build()
    assert done.returncode == 0
    assert "renamed" in book.page("notebooks/chapter.html") and run(book) == before
    read = re.findall(r"^  (\S+)$", done.stdout, re.MULTILINE)
    assert read == ["notebooks/chapter"], "only the chapter that changed is read again"


def test_a_change_in_vitlab_or_data_reaches_the_page(book: Book) -> None:
    book.build()
    before = run(book)
    assert before[:2] == ("7", "11")
    book.write("vitlab/__init__.py", "NUMBER = 8\n")
    assert book.build().returncode == 0
    assert run(book)[:2] == ("8", "11")
    book.restore()
    book.write("data/readings.txt", "12")
    assert book.build().returncode == 0
    assert run(book)[:2] == ("7", "12")
    book.restore()
    assert book.build().returncode == 0
    assert run(book) == before, "going back finds the old outputs in the cache"


RAISES = code("1 / 0")
LOST = markdown("[lost](no_such_chapter.ipynb)")
UNLISTED = markdown("As [Nobody, 2020](https://arxiv.org/abs/2001.00001) says.")
# What is wrong, the cells that do it, and what the build says.
FAULTS = {
    "a raising cell": ([RAISES], ["ZeroDivisionError"]),
    "a figure without alt text": ([code(figure(alt=""))], ["An image has no alternative text"]),
    "a broken link": ([LOST], ["no_such_chapter"]),
    "a broken anchor": ([markdown("[lost](../book/glossary.md#nothing)")], ["'nothing'"]),
    "lesser faults": (
        [
            code(figure(caption="")),
            UNLISTED,
            code("import sys\nprint('beware', file=sys.stderr)"),
        ],
        [
            "A figure has no caption",
            "arxiv.org/abs/2001.00001 is cited but not in",
            "stderr was found in the cell",
        ],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_strict_build_fails_at(book: Book, fault: str) -> None:
    cells, messages = FAULTS[fault]
    book.chapter(*cells)
    done = book.build()
    assert done.returncode != 0
    for message in messages:
        assert message in done.stderr
    assert not (book.html / ".finished.json").exists(), "a failed build is not taken for a finished one"


def test_a_lenient_build_warns_of_a_paper_and_fails_at_a_raising_cell(book: Book) -> None:
    book.chapter(UNLISTED)
    lenient = book.build("--no-strict")
    assert lenient.returncode == 0 and "2001.00001 is cited" in lenient.stderr
    assert book.build("--no-strict").stdout.count("Nothing has changed") == 1
    # Left to itself, Sphinx would read nothing again and so find nothing wrong.
    strict = book.build()
    assert strict.returncode != 0 and "2001.00001 is cited" in strict.stderr
    book.chapter(RAISES)
    assert book.build("--no-strict").returncode != 0


def test_a_stale_record_fails_the_build(tmp_path: Path) -> None:
    book = Book(tmp_path)
    for module in (ROOT / "vitlab").glob(
        "*.py"
    ):  # all: one left out would be taken from the real package, data and all
        shutil.copyfile(module, book.root / "vitlab" / module.name)
    measure = "def measure(seed):\n    return {'error': 0.5 + seed}\n"
    book.write("notebooks/measuring.py", measure)
    record = (
        "from vitlab import lab\nimport measuring\n"
        "print(lab.record('reading', measuring.measure, seeds=1)['error'])"
    )
    subprocess.run(
        [sys.executable, "-c", record],
        cwd=book.root / "notebooks",
        env=os.environ | {"PYTHONPATH": str(book.root), "VITLAB_SCALE": "laptop", "VITLAB_RECORD": "compute"},
        check=True,
        capture_output=True,
    )
    book.write("notebooks/measuring.py", measure.replace("0.5", "0.6"))
    book.write("vitlab/__init__.py", (ROOT / "vitlab/__init__.py").read_text() + "\nNUMBER = 7\n")
    book.chapter(code(record))
    done = book.build("--scale", "laptop")
    assert done.returncode != 0 and "StaleRecord" in done.stderr


def test_a_request_to_another_host_is_found(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    book.chapter(
        code("from IPython.display import HTML\nHTML('<script src=\"https://cdn.example.org/x.js\"></script>')")
    )
    assert book.build().returncode == 0
    assert check_site.main([str(book.html)]) == 1
    out = capsys.readouterr().out
    assert "notebooks/chapter.html: script fetches https://cdn.example.org/x.js from another host" in out


def test_an_interrupted_build_is_not_taken_for_a_finished_one(book: Book) -> None:
    book.chapter(code("import time\nprint('now', flush=True)\ntime.sleep(60)"))
    command = [
        sys.executable,
        str(ROOT / "tools" / "build_book.py"),
        "--source",
        str(book.root),
        "--scale",
        "smoke",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "notebooks/chapter" in line:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0 and not (book.html / ".finished.json").exists()
    book.restore()
    assert book.build().returncode == 0
    assert "A second section" in book.page("notebooks/chapter.html")


def test_a_removed_page_leaves_the_site(book: Book) -> None:
    book.write("book/extra.md", "# Extra\n\nMore.\n")
    toc = (book.root / "_toc.yml").read_text()
    book.write("_toc.yml", toc + "      - file: book/extra\n")
    assert book.build().returncode == 0 and (book.html / "book" / "extra.html").is_file()
    book.write("_toc.yml", toc)
    (book.root / "book" / "extra.md").unlink()
    assert book.build().returncode == 0 and not (book.html / "book" / "extra.html").exists()
    assert "Extra" not in book.page("book/preface.html") and PREFACE.split()[1] in book.page("book/preface.html")
