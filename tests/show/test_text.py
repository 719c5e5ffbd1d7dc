"""Sentences, tables and verdicts are whole before they are shown."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from vitlab import show
from vitlab.show.page import number

from .conftest import Tree

PARTS = {
    "claim": "Attention is local in the first block",
    "measured": "A distance of 16.7 px, where uniform attention gives 116.5 px.",
    "verdict": "fails",
    "would_change": "A head below 20 px in every seed.",
    "source": "[Xie et al., 2023](https://arxiv.org/abs/2205.13543)",
}
TABLE: dict[str, Any] = {
    "rows": [["ViT-S/16", 22_050_664, 79.812, "17.7 ± 0.4"], ["ConvNet", np.int64(1234), np.float32(8), "53 ± 1"]],
    "header": ["model", "parameters", "top-1 (%)", "images/s"],
    "caption": "Two models, **mean** and spread over 5 seeds.",
}


def test_saying_gives_markdown() -> None:
    text = "The error is **0.42**, and `{x}` and $\\frac{1}{2}$ and information stay."
    assert show.say(text)._repr_markdown_() == text


@pytest.mark.parametrize(
    "text",
    [
        "It is {mean:.2f}.",
        "It is nan.",
        "It is NaN px.",
        "It grew to -inf.",
        "It is array([1.0]).",
        "It is tensor(0.5).",
        "It is np.float64(0.5).",
        "It is 0.30000000000000004.",
        "",
        None,
    ],
)
def test_a_sentence_with_a_hole_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"The text holds|must be a sentence"):
        show.say(text)


def test_a_table_names_its_rows_and_columns() -> None:
    shown = show.table(**TABLE)
    tree = Tree(shown.html)
    assert [cell["scope"] for cell in tree.all("th")] == ["col"] * 4 + ["row"] * 2
    frame = next(div for div in tree.all("div") if div["class"] == "vl-table")
    assert (frame["role"], frame["tabindex"]) == ("region", "0")
    assert frame["aria-label"] == "Two models, mean and spread over 5 seeds."
    assert "<caption>" in shown.html and "<strong>mean</strong>" in shown.html
    assert all(cell == {"class": "vl-number"} for cell in tree.all("td")), "numbers stand flush right"
    for seen in ("22,050,664", "79.8", "1,234", "8.00", "17.7 ± 0.4"):
        assert f">{seen}</td>" in shown.html
    assert "| ConvNet | 1,234 | 8.00 | 53 ± 1 |" in shown._repr_mimebundle_()["text/markdown"]


def test_words_in_a_column_stand_flush_left() -> None:
    html = show.table([["ViT", "global"], ["Swin", "7"]], ["model", "field"], "Fields.").html
    assert "<td>global</td>" in html


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0, "0.00"),
        (1234.5, "1,234"),
        (999.5, "1,000"),
        (0.000012, "1.20e-05"),
        (-2.5, "-2.50"),
        (3e9, "3.00e+09"),
    ],
)
def test_numbers_read_well(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rows": []}, "at least one row"),
        ({"rows": [["a", 1, 2]]}, "Row 0 of the table has 3 cells"),
        ({"rows": [["a", float("nan"), 2, 3]]}, "holds nan"),
        ({"rows": [["a", np.float32("inf"), 2, 3]]}, "holds"),
        ({"rows": [["a", None, 2, 3]]}, "not None"),
        ({"rows": [["a", [1], 2, 3]]}, "not a list"),
        ({"rows": [["", 1, 2, 3]]}, "name of row 0"),
        ({"caption": ""}, "caption"),
        ({"header": ["a", "", "c", "d"]}, "header"),
    ],
)
def test_a_table_with_holes_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        show.table(**(TABLE | change))


@pytest.mark.parametrize("word", ["holds", "holds in part", "undecided", "fails"])
def test_a_verdict_says_it_in_words(word: str) -> None:
    shown = show.verdict(**(PARTS | {"verdict": word}))
    tree = Tree(shown.html)
    assert word in tree.text.lower()
    assert len(tree.all("dt")) == len(tree.all("dd")) == 4
    assert tree.all("a") == [{"href": "https://arxiv.org/abs/2205.13543"}]
    markdown = shown._repr_mimebundle_()["text/markdown"]
    assert word in markdown.lower() and PARTS["would_change"] in markdown


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"verdict": "maybe"}, "A verdict is one of"),
        ({"claim": ""}, "claim"),
        ({"measured": "It was {x}."}, "The text holds"),
        ({"source": None}, "source"),
    ],
)
def test_a_verdict_with_holes_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        show.verdict(**(PARTS | change))


def test_showing_needs_neither_torch_nor_pyplot() -> None:
    code = "import sys, vitlab.show; sys.exit(int('torch' in sys.modules or 'matplotlib.pyplot' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_interval_is_told_in_one_way():
    assert show.told((1.25, -0.5, 3.0)) == "+1.2 (-0.5 to +3.0)"
    assert show.told((1.25, 0.5, 3.0), 2, plus="") == "1.25 (0.50 to 3.00)"
    assert show.told(map(abs, (-1, -2, -3)), 0, "") == "1 (2 to 3)"
    with pytest.raises(ValueError, match="unpack"):
        show.told((1.0, 2.0))
