"""The laboratory from a shell: record a chapter, check the records, or list them in the manifest."""

from __future__ import annotations

import argparse
import ast
import os
import runpy
import sys
from pathlib import Path
from typing import Any

PLUMBING = True  # a change here cannot change a recorded number

_NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def main(arguments: list[str] | None = None) -> int:
    """Parse a command line and run it; return the exit status."""
    from vitlab import lab

    parser = argparse.ArgumentParser(prog="python -m vitlab.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="compute what a chapter's records lack, or what is stale in them")
    record.add_argument("chapter", help="for example vision_transformer")
    record.add_argument("--scale", choices=lab.SCALES, default="laptop")
    commands.add_parser("check", help="fail where a record is stale, damaged or not in the manifest")
    commands.add_parser("manifest", help="list the records anew in data/manifest.json")
    options = parser.parse_args(arguments)
    if options.command == "record":
        return _record(options.chapter, options.scale)
    if options.command == "manifest":
        from vitlab import records

        print(f"{len(records.update_manifest())} files listed in {records.root() / 'manifest.json'}")
        return 0
    faults = check()
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults in the records" if faults else "records fresh, whole and listed")
    return 1 if faults else 0


def _record(chapter: str, scale: str) -> int:
    file = _NOTEBOOKS / f"{chapter}.py"
    if not file.is_file():
        known = ", ".join(sorted(p.stem for p in _NOTEBOOKS.glob("*.py")))
        print(f"There is no chapter {chapter!r}; the chapters are {known}.", file=sys.stderr)
        return 2
    from vitlab import records

    os.environ["VITLAB_RECORDS"] = str(records.root().resolve())  # before the folder changes under a relative path
    os.environ.update(VITLAB_SCALE=scale, VITLAB_RECORD="compute", MPLBACKEND="agg")
    os.chdir(_NOTEBOOKS)  # where a notebook runs
    try:
        runpy.run_path(str(file), run_name="__main__")
    except KeyboardInterrupt:
        return 130
    return 0


def check() -> list[str]:
    """Return one sentence for each record that is stale, damaged, unlisted, absent, or asked for by no chapter.

    Code is compared without running it, so arguments computed in a chapter are not: `lab.record` compares those.
    """
    from vitlab import records

    if not records.root().is_dir():
        return [f"There is no folder of records at {records.root()}; set VITLAB_RECORDS to the one there is."]
    try:
        listed = records.manifest()
    except ValueError as error:
        return [str(error)]
    faults = []
    files = {
        file.relative_to(records.root()).as_posix(): file
        for file in sorted(records.root().glob("*/*/seed-*.npz"))
        if file.parent.name != "smoke"
    }
    for entry in sorted(listed.keys() - files.keys()):
        faults.append(f"{entry} is in the manifest but not there; record it again or run make manifest.")
    for entry, file in files.items():
        if entry not in listed:
            faults.append(f"{entry} is not in the manifest; run make manifest.")
        try:
            faults.extend(_compare(entry, file, records.read(file)[1]))
        except ValueError as error:
            faults.append(f"{entry}: {error}")
    return faults


def _compare(entry: str, file: Path, meta: dict[str, Any]) -> list[str]:
    """Return what is wrong between a record and the chapter that made it."""
    from vitlab import digest

    chapter = _NOTEBOOKS.parent / meta["chapter"]
    if not meta["chapter"] or not chapter.is_file():
        return [f"{entry} names no chapter that made it; make it with make record."]
    text = chapter.read_text(encoding="utf-8")
    try:
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and len(node.args) >= 2]
    except SyntaxError as error:
        return [f"{entry} cannot be compared: {chapter.name} is no Python at line {error.lineno}."]
    asked = [tuple(ast.unparse(argument) for argument in call.args[:2]) for call in calls]
    if (repr(file.parent.parent.name), meta["function"]) not in asked:
        return [f"{entry} is asked for by no lab.record in {chapter.name}; delete it or ask for it."]
    code = digest.digest(text, meta["function"], file.parent.name)
    if names := digest.changed(meta["code"], code):
        return [f"{entry} is stale: {', '.join(names)} changed since; make record makes it anew."]
    return []
