"""What a chapter says is taken from its records: other records, other words."""

from __future__ import annotations

import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDS = {
    "data_hunger": ("data_hunger", "hunger_steps", "hunger_recipes", "hunger_tiny", "hunger_rates"),
    "inductive_bottleneck": (
        "bottleneck_ucmerced",
        "bottleneck_tinyimagenet",
        "bottleneck_cifar100",
        "bottleneck_dial",
        "bottleneck_labels",
        "bottleneck_steps",
        "bottleneck_head",
    ),
}


def said(folder: Path, chapter: str) -> dict[str, list[str]]:
    """Run a chapter at laptop scale with the records of a folder; return what it says, without drawing."""
    from vitlab import show

    found: dict[str, list[str]] = {"say": [], "table": [], "verdict": []}
    notebook = nbformat.read(ROOT / "notebooks" / f"{chapter}.ipynb", as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITLAB_SCALE", "laptop")
        patch.setenv("VITLAB_RECORDS", str(folder))
        patch.setenv("VITLAB_RECORD", "load")
        patch.chdir(ROOT / "notebooks")

        def listen(kind: str) -> Callable[..., None]:
            real = getattr(show, kind)

            def shown(*arguments: Any, **named: Any) -> None:
                text = real(*arguments, **named)
                found[kind].append(getattr(text, "data", None) or text.markdown)

            return shown

        for kind in found:
            patch.setattr(show, kind, listen(kind))
        for silent in ("figure", "images", "interact"):
            patch.setattr(show, silent, lambda *_, **__: None)
        patch.setattr("accelerate.notebook_launcher", lambda *_, **__: None)  # trains; not what is asked here
        # As the chapter's own module, so that records know where they come from.
        module = types.ModuleType("__main__")
        module.__file__ = str(ROOT / "notebooks" / f"{chapter}.py")
        patch.setitem(sys.modules, "__main__", module)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, module.__file__, "exec"), module.__dict__)
    return found


def changed(folder: Path, name: str, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Change the numbers of every seed of a record, and nothing of what made it."""
    for file in (folder / name / "laptop").glob("seed-*.npz"):
        with np.load(file) as stored:
            arrays = {key: stored[key] for key in stored.files}
        change(arrays)
        np.savez(file, **arrays)


def copied(folder: Path, chapter: str) -> Path:
    """A copy of the committed records of a chapter, without the manifest that would refuse a change."""
    for name in RECORDS[chapter]:
        shutil.copytree(ROOT / "data" / name / "laptop", folder / name / "laptop")
    return folder


def test_other_records_give_other_words_on_hunger(tmp_path: Path) -> None:
    folder = copied(tmp_path, "data_hunger")
    before = said(folder, "data_hunger")
    assert min(map(len, before.values())) >= 4

    def swapped(arrays: dict[str, np.ndarray]) -> None:
        """What the ConvNet got, the ViT gets, and the other way round."""
        for key in ("right", "fitted", "accuracy", "loss"):
            arrays[key] = arrays[key][:, [1, 0, *range(2, arrays[key].shape[1])]]
        arrays["fitted"] = 0.9 * arrays["fitted"]
        for place, key in enumerate(key for key in arrays if ".distance." in key):
            arrays[key] = arrays[key] - 0.5 * place

    def longer_swapped(arrays: dict[str, np.ndarray]) -> None:
        for key in ("right", "fitted"):
            arrays[key] = arrays[key][::-1]

    def other_recipes(arrays: dict[str, np.ndarray]) -> None:
        arrays["right"] = arrays["right"][:, ::-1]

    def other_rates(arrays: dict[str, np.ndarray]) -> None:
        arrays["right"] = arrays["right"][:, ::-1]

    changed(folder, "data_hunger", swapped)
    changed(folder, "hunger_steps", longer_swapped)
    changed(folder, "hunger_tiny", swapped)
    changed(folder, "hunger_recipes", other_recipes)
    changed(folder, "hunger_rates", other_rates)
    after = said(folder, "data_hunger")
    for kind in before:
        assert len(before[kind]) == len(after[kind])
    # What no record decides stays: the sizes of the networks.
    same = [b for kind in ("say", "table") for b, a in zip(before[kind], after[kind], strict=True) if a == b]
    assert len(same) <= 1, [text[:80] for text in same]
    gap = next(i for i, text in enumerate(before["say"]) if "ConvNet minus ViT is" in text)
    first, second = (text["say"][gap].split("ConvNet minus ViT is ")[1].split(" ")[0] for text in (before, after))
    assert float(first) == pytest.approx(-float(second), abs=0.11)
    assert before["verdict"][0] != after["verdict"][0]


def test_other_records_give_other_words_on_the_bottleneck(tmp_path: Path) -> None:
    """Time is run backwards, and labels by texture get what labels by shape got."""
    folder = copied(tmp_path, "inductive_bottleneck")
    before = said(folder, "inductive_bottleneck")
    assert min(map(len, before.values())) >= 6

    def backwards(arrays: dict[str, np.ndarray]) -> None:
        for key in ("total", "position", "image", "residual", "trimmed", "class", "right", "told", "mean_share"):
            if key in arrays and arrays[key].ndim > 2:
                # (trainings of one kind, or of two kinds, moments, ...): places and dimensions come last
                after_moments = {"right": 2, "told": 1, "mean_share": 1}.get(key, 2)
                arrays[key] = np.flip(arrays[key], axis=arrays[key].ndim - 1 - after_moments).copy()

    def other_labels(arrays: dict[str, np.ndarray]) -> None:
        for key in ("total", "fitted", "tested"):
            arrays[key] = arrays[key][[1, 0, 2]]

    for name in RECORDS["inductive_bottleneck"]:
        changed(folder, name, other_labels if name == "bottleneck_labels" else backwards)
    after = said(folder, "inductive_bottleneck")
    same = {}
    for kind in before:
        assert len(before[kind]) == len(after[kind])
        same[kind] = [b[:90] for b, a in zip(before[kind], after[kind], strict=True) if a == b]
    assert same["verdict"] == []
    assert len(same["table"]) <= 1, same["table"]  # the published numbers
    # Neither change touches when the tasks differ, who is a U, the thresholds, or the covariance over tasks.
    untouched = ("A level differs", "Us in all variance", "With a tenth of an even share", "Within a seed")
    assert [text for text in same["say"] if not text.startswith(untouched)] == []
    name = "| texture − shape | "
    label = next(i for i, text in enumerate(before["table"]) if name in text)
    first, second = (t["table"][label].split(name)[1].split(" ±")[0] for t in (before, after))
    assert float(first) == pytest.approx(-float(second), abs=0.11)
