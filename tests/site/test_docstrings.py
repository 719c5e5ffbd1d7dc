"""The API page shows docstrings as what they look like, and no docstring can break it."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from hypothesis import given, settings
from hypothesis import strategies as st
from pybtex.database import parse_string

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))

from portable.docstrings import dress
from portable.references import OneAddress


def read(docstring: str) -> nodes.document:
    """What the page would show; a fault that Sphinx would report raises."""
    text = "\n".join(dress(docstring.split("\n")))
    return publish_doctree(
        text, settings_overrides={"halt_level": 2, "report_level": 5, "file_insertion_enabled": False}
    )


def terms(page: nodes.document) -> dict[str, str]:
    return {item[0].astext(): item[1].astext() for item in page.findall(nodes.definition_list_item)}


def test_a_section_becomes_a_field_with_its_entries() -> None:
    page = read(
        "Return nothing.\n\nArgs:\n    weights: softmaxed, `(batch, heads)`.\n    dx, dy: whole pixels: none,\n"
        "        or some.\n\nRaises:\n    ValueError: for *args, a|b and name_."
    )
    assert [field.astext() for field in page.findall(nodes.field_name)] == ["Args", "Raises"]
    assert terms(page) == {
        "weights": "softmaxed, (batch, heads).",
        "dx, dy": "whole pixels: none, or some.",
        "ValueError": "for *args, a|b and name_.",
    }
    assert "(batch, heads)" in [code.astext() for code in page.findall(nodes.literal)]


def test_a_section_of_prose_stays_prose() -> None:
    page = read("Returns:\n    The same kind as `images`. Raises ValueError for\n    another.")
    (field,) = page.findall(nodes.field_body)
    assert field.astext() == "The same kind as images. Raises ValueError for another."


def test_aligned_columns_become_terms_also_where_one_fills_the_column() -> None:
    page = read(
        "images  `(N, H, W)`\nclasses the names; each\n        is kept\n"
        "name, split  where from\nothers of `x`: more"
    )
    assert terms(page) == {
        "images": "(N, H, W)",
        "classes": "the names; each is kept",
        "name, split": "where from",
        "others of x": "more",
    }


def test_a_table_is_a_table_and_indented_lines_are_code() -> None:
    page = read(
        "| tap | shape |\n|---|---|\n| `cls` | (batch, dim) |\n\nSo:\n\n    with a(b) as c:\n        d(*c)"
    )
    (table,) = page.findall(nodes.table)
    assert [entry.astext() for entry in table.findall(nodes.entry)] == ["tap", "shape", "cls", "(batch, dim)"]
    (code,) = page.findall(nodes.literal_block)
    assert code.astext() == "with a(b) as c:\n    d(*c)"


def test_a_list_is_a_list() -> None:
    page = read("- one `a`\n  and more\n- two")
    assert [item.astext() for item in page.findall(nodes.list_item)] == ["one a and more", "two"]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text("ab `*|_:.<>[]()\\=-#1\n", max_size=40), max_size=4))
def test_nothing_that_a_docstring_says_can_break_the_page(paragraphs: list[str]) -> None:
    """No fault, and no word lost."""
    docstring = "\n\n".join(paragraphs)
    assert re.findall("[ab]", read(docstring).astext()) == re.findall("[ab]", docstring)


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).resolve().parents[2] / "vitlab").rglob("*.py")), ids=lambda f: f.name
)
def test_our_own_docstrings_are_sound(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            read(ast.get_docstring(node) or "")


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ("eprint={2010.11929}, archiveprefix={arXiv}, url={https://arxiv.org/abs/2010.11929}", "arXiv:2010.11929"),
        ("doi={10.1000/x}, url={https://doi.org/10.1000/x}", "doi:10.1000/x"),
        ("url={https://example.org/a_report.pdf}", "https://example.org/a_report.pdf"),
    ],
    ids=["arXiv", "DOI", "address"],
)
def test_a_work_is_listed_with_one_address(fields: str, address: str) -> None:
    entries = parse_string("@misc{a, author={Doe, A.}, title={A Title}, year={2020}, " + fields + "}", "bibtex")
    (entry,) = OneAddress().format_entries(entries.entries.values())
    text = entry.text.render_as("text")
    assert text.endswith(f"2020. {address}.") and text.count("2010.11929") <= 1
