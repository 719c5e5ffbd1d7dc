"""Write each notebook from its .py, without outputs; with --check, fail where one is out of step.

The address that a chapter's first cell fetches the course from is a placeholder in the .py. The notebook gets the
one that `repository.url` in _config.yml names, so that whoever publishes the course sets it in one place.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import jupytext
import yaml

ROOT = Path(__file__).resolve().parent.parent
PLACEHOLDER = "https://github.com/OWNER/hungry-transformer"
ODD_LINE_ENDS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def published_address() -> str:
    """Return where the course is published, as _config.yml says."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    return str(config["repository"]["url"]).rstrip("/")


def notebook_text(source: Path, address: str) -> str:
    """Return the .ipynb a .py stands for: the same bytes every time, ids by position, no outputs."""
    text = source.read_text(encoding="utf-8-sig")
    if marks := sorted({ascii(mark) for mark in text if mark in ODD_LINE_ENDS}):
        sys.exit(
            f"{source.name} holds {', '.join(marks)}, which notebooks take for a line end; write it as an escape."
        )
    notebook = jupytext.reads(text, fmt="py:percent")
    cells = []
    for number, cell in enumerate(notebook.cells):
        kept = {key: cell.metadata[key] for key in ("tags",) if key in cell.metadata}
        entry: dict[str, object] = {"cell_type": cell.cell_type, "id": f"cell-{number:03d}", "metadata": kept}
        if cell.cell_type == "code":
            entry |= {"execution_count": None, "outputs": []}
        entry["source"] = cell.source.replace(PLACEHOLDER, address).splitlines(keepends=True)
        cells.append(entry)
    whole = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a pair differs")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "notebooks")
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"there is no folder {options.folder}")
    faults = []
    address = published_address()
    for source in sorted(options.folder.glob("*.py")):
        target = source.with_suffix(".ipynb")
        text = notebook_text(source, address)
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        if options.check:
            faults.append(f"{target.name} is out of step with {source.name}; edit the .py and run make pair.")
        else:
            target.write_text(text, encoding="utf-8")
            print(f"wrote {target.name}")
    for orphan in sorted(options.folder.glob("*.ipynb")):
        if not orphan.with_suffix(".py").exists():
            faults.append(f"{orphan.name} has no {orphan.stem}.py; a chapter is edited as .py.")
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
