"""The laboratory from a shell: record a chapter, check the records, or list them in the manifest."""

from __future__ import annotations

import argparse
import ast
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitlab.slices import Asked

PLUMBING = True  # a change here cannot change a recorded number

_NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def main(arguments: list[str] | None = None) -> int:
    """Parse a command line and run it; return the exit status."""
    from vitlab import lab

    parser = argparse.ArgumentParser(prog="python -m vitlab.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="compute what a chapter's records lack, or what is stale in them")
    record.add_argument("chapter", nargs="?", help="for example vision_transformer, or a file; without it, all")
    record.add_argument("--record", help="only this one of its records, for example bottleneck_ucmerced")
    record.add_argument("--scale", choices=lab.SCALES, default="laptop")
    record.add_argument("--budget", help="stop after this time, and keep what there is: 45s, 12m, 1h30m")
    record.add_argument(
        "--dry-run", action="store_true", help="say what would be made in which order; make nothing"
    )
    commands.add_parser("check", help="fail where a record is stale, damaged or not in the manifest")
    commands.add_parser("manifest", help="list the records anew in data/manifest.json")
    options = parser.parse_args(arguments)
    if options.command == "record":
        return _record(options.chapter, options.record, options.scale, options.budget, options.dry_run)
    if options.command == "manifest":
        from vitlab import records

        print(f"{len(records.update_manifest())} files listed in {records.root() / 'manifest.json'}")
        return 0
    faults = check()
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults in the records" if faults else "records fresh, whole and listed")
    return 1 if faults else 0


def _record(chapter: str | None, name: str | None, scale: str, budget: str | None, dry: bool) -> int:
    """Make the records of one chapter or of all, or the one of this name, or say what would be made."""
    from vitlab import digest, plan, processes, records

    os.environ["VITLAB_RECORDS"] = str(records.root().resolve())  # before the folder changes under a relative path
    os.environ.update(VITLAB_SCALE=scale, VITLAB_RECORD="compute", MPLBACKEND="agg")
    try:
        seconds = None if budget is None else plan.span(budget)
        files = _chapters(chapter)
        digest.snapshot(*files)
        ordered = plan.order(files)
        if not ordered:
            raise ValueError(
                f"{', '.join(file.name for file in files)} asks for no record; name a chapter that does."
            )
        if name is not None:
            ordered = plan.only(name, ordered)
        if dry:
            if processes.first():
                print(plan.table(ordered, seconds))
            return 0
        if damaged := [s.file for one in ordered for s in plan.seeds(one) if s.state == "damaged"]:
            raise ValueError(
                f"{', '.join(map(str, damaged))}: damaged, or not what data/manifest.json lists; restore it with "
                "git, or delete it and record again."
            )
    except ValueError as error:
        if processes.first():
            print(error, file=sys.stderr)
        return 2
    if seconds is not None:
        os.environ["VITLAB_DEADLINE"] = str(time.time() + seconds)
    try:
        return processes.together(lambda: _make(ordered))
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # a place that is full or closed: a sentence that says which
        print(error, file=sys.stderr)
        return 1


def _chapters(chapter: str | None) -> list[Path]:
    """Return the file of a chapter, given by name or as a path, or the files of all.

    Raises:
        ValueError: there is none.
    """
    known = sorted(_NOTEBOOKS.glob("*.py"))
    if chapter is None:
        return known
    for file in (_NOTEBOOKS / f"{chapter}.py", Path(chapter)):
        if file.suffix == ".py" and file.is_file():
            return [file.resolve()]
    raise ValueError(
        f"There is no chapter {chapter!r}; the chapters are {', '.join(file.stem for file in known)}."
    )


def _make(ordered: list[Asked]) -> int:
    """Make what is not there, record by record; where the time is up, say what is kept."""
    from vitlab import lab, processes

    try:
        for one in ordered:
            if processes.agree(partial(_to_make, one)):
                os.chdir(one.chapter.file.parent)  # where a notebook runs
                one.run()
            else:
                print(f"{one.name}: {len(one.seeds)} of {len(one.seeds)} seeds are there")
    except lab.OutOfTime:
        if processes.first():
            print(_kept(ordered))
    return 0


def _to_make(one: Asked) -> bool:
    """Whether a record lacks something, or may lack it, and there is time to begin."""
    from vitlab import lab, plan

    if one.whole and all(seed.there for seed in plan.seeds(one)):
        return False
    if lab.time_is_up():
        raise lab.OutOfTime("The time is up.")
    return True


def _kept(ordered: list[Asked]) -> str:
    """Return what a run that is out of time leaves."""
    from vitlab import plan

    found = [seed for one in ordered for seed in plan.seeds(one)]
    begun = "".join(
        f", seed {s.seed} of {s.asked.name} is kept at a checkpoint" for s in found if s.state == "begun"
    )
    kept = f"{sum(seed.there for seed in found)} of {len(found)} seeds are kept{begun}"
    return f"The time is up: {kept}; the same command goes on from there."


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
