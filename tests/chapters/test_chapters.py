"""Every chapter runs at smoke scale in a fresh kernel, alone, and is written so that it reads well everywhere."""

from __future__ import annotations

import ast
import itertools
import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
CHAPTERS = sorted(NOTEBOOKS.glob("*.ipynb"))
MODEL = NOTEBOOKS / "vision_transformer.ipynb"
PRINTED = re.findall(r"file: notebooks/(\w+)", (NOTEBOOKS.parent / "_toc.yml").read_text(encoding="utf-8"))


def cells(file: Path, kind: str) -> list[str]:
    """Return the text of a notebook's cells of one kind."""
    notebook = json.loads(file.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.fixture(params=CHAPTERS, ids=lambda file: file.stem)
def chapter(request) -> Path:
    return request.param


def test_there_are_chapters():
    assert MODEL in CHAPTERS


def test_it_runs_from_top_to_bottom_in_a_fresh_kernel(chapter, tmp_path, monkeypatch):
    """All cells at smoke scale, in an empty folder, with no record there: everything is computed."""
    monkeypatch.setenv("VITLAB_SCALE", "smoke")
    monkeypatch.setenv("VITLAB_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("VITLAB_STATIC", "1")
    monkeypatch.delenv("VITLAB_RECORD", raising=False)
    monkeypatch.delenv("VITLAB_DATA", raising=False)
    notebook = nbformat.read(chapter, as_version=4)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error"]
    shown = "".join(o.data.get("text/html", "") for o in outputs if "data" in o)
    assert "vl-figure" in shown
    assert "vl-provenance" in shown
    assert list(tmp_path.glob("records/*/smoke/seed-*.npz"))


def test_the_first_code_cell_is_the_same_everywhere(chapter):
    assert cells(chapter, "code")[0] == cells(MODEL, "code")[0]


def test_its_markdown_needs_no_book(chapter):
    """No MyST directives or roles: they are raw text in Colab."""
    for text in cells(chapter, "markdown"):
        prose = re.sub(r"```python.*?```", "", text, flags=re.S)
        assert not re.search(r"^(```|:::)\{", prose, flags=re.M), prose[:80]
        assert not re.search(r"\{[a-z:]+\}`", prose), prose[:80]


def test_it_has_the_parts_of_a_chapter(chapter):
    text = "\n".join(cells(chapter, "markdown"))
    assert text.startswith("# ")
    for part in ("**After it you can**", "**It assumes**", "**It takes**", "## Exercises", "## For the seminar",
                 "> **Seminar.**", "## Further reading"):  # fmt: skip
        assert part in text, part
    code = "\n".join(cells(chapter, "code"))
    assert "show.verdict(" in code
    assert "lab.start(" in code


def test_headings_follow_one_another(chapter):
    """One title, and no level skipped: a screen reader's outline."""
    levels = [
        len(mark)
        for text in cells(chapter, "markdown")
        for mark in re.findall(r"^(#+) ", re.sub(r"```.*?```", "", text, flags=re.S), flags=re.M)
    ]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_no_column_of_a_table_is_without_a_name(chapter):
    rows = "\n".join(cells(chapter, "markdown")).splitlines()
    heads = [head for head, rule in itertools.pairwise(rows) if re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", rule.strip())]
    assert not [head for head in heads if "" in (cell.strip() for cell in head.strip().strip("|").split("|"))]


def test_every_numbered_equation_is_numbered_once_and_every_mention_has_one(chapter):
    text = "\n".join(cells(chapter, "markdown"))
    tags = re.findall(r"\\tag\{(\d+\.\d+)\}", text)
    assert len(tags) == len(set(tags))
    # The book splits a formula with a line break in it, and in the parts no number is allowed.
    formulas = re.findall(r"\$\$.*?\$\$", text, re.DOTALL)
    assert not [one for one in formulas if r"\tag" in one and r"\\" in one]
    mentioned = set(re.findall(r"\((\d\.\d)\)", text + "\n".join(cells(chapter, "code"))))
    assert mentioned <= set(tags)


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_recorded_is_named_in_the_manifest_at_laptop_scale(name):
    """What the book prints is there: every record a chapter of it asks for has seeds in the manifest."""
    chapter = NOTEBOOKS / f"{name}.ipynb"
    assert chapter in CHAPTERS
    manifest = json.loads((NOTEBOOKS.parent / "data" / "manifest.json").read_text(encoding="utf-8"))
    tree = ast.parse(chapter.with_suffix(".py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lab.record":
            record = ast.literal_eval(node.args[0])
            assert any(entry.startswith(f"{record}/laptop/seed-") for entry in manifest), record
