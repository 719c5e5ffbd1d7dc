"""The chapter on DINO: its words follow its records, its masks are the objects, its scores are what they say."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.metrics import jaccard_score, roc_auc_score
from test_prose_follows import changed, said

from vitlab import data

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("dino_ucmerced", "dino_cifar100", "dino_scenes", "dino_without")


def functions(*names: str, **known: Any) -> list[Any]:
    """Return functions of the chapter by name, defined with nothing but what they are given."""
    tree = ast.parse((ROOT / "notebooks" / "dino.py").read_text(encoding="utf-8"))
    wanted = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    space = {"np": np, "rankdata": rankdata, **known}
    exec(compile(ast.Module(wanted, []), "dino.py", "exec"), space)
    return [space[name] for name in names]


def test_other_records_give_other_words(tmp_path):
    for name in NAMES:
        shutil.copytree(ROOT / "data" / name / "laptop", tmp_path / name / "laptop")
    before = said(tmp_path, "dino")
    assert len(before["verdict"]) == 5

    def backwards(arrays: dict[str, np.ndarray]) -> None:
        """What was before training is after it, pixels know less, and a map is turned upside down."""
        for key in ("judged", "judged_teacher"):
            arrays[key] = arrays[key][::-1]
        arrays["right"] = arrays["right"][::-1]
        arrays["pixels"] = arrays["pixels"] & (np.arange(len(arrays["pixels"])) % 2 == 0)
        arrays["told"] = 0.5 * arrays["told"]
        maps = arrays["attention"]
        arrays["attention"] = (maps.max(-1, keepdims=True) - maps + 1e-3).astype(maps.dtype)
        if "weights" in arrays:
            arrays["weights"] = -arrays["weights"]

    def another_order(arrays: dict[str, np.ndarray]) -> None:
        for key in ("told", "right", "losses"):
            arrays[key] = arrays[key][::-1]

    for name in NAMES[:3]:
        changed(tmp_path, name, backwards)
    changed(tmp_path, "dino_without", another_order)
    after = said(tmp_path, "dino")
    for kind in before:
        assert len(before[kind]) == len(after[kind])
    # What no record decides stays: an untrained network's answers, momenta, and settings.
    same = [b for kind in before for b, a in zip(before[kind], after[kind], strict=True) if a == b]
    assert len(same) <= 4, [text[:80] for text in same]
    assert not any("**Claimed.**" in text for text in same)
    rows = (next(line for line in text["table"] if "best head, trained" in line) for text in (before, after))
    first, second = (float(row.split("| best head, trained |")[1].split()[0]) for row in rows)
    assert (first < 0.5) != (second < 0.5)
    eight = [next(text for text in of["verdict"] if "LIT-8" in text) for of in (before, after)]
    first, second = (text.split("**Verdict.**")[1].split("\n")[0] for text in eight)
    assert first != second  # the kinds of collapse are exchanged


@pytest.mark.parametrize("limit", [60, 1000])
def test_the_dial_adds_objects_to_the_very_scenes_of_the_record(limit):
    peopled, bare = (data.load("scenes", "held_out", size=32, limit=limit, complexity=dial) for dial in (0.5, 0.0))
    usual = data.load("scenes", "held_out", size=32, limit=limit)
    assert (usual.images == peopled.images).all()
    assert (peopled.labels == bare.labels).all()
    differs = (peopled.images != bare.images).any(-1)
    assert (differs.sum((1, 2)) > 20).all()
    assert differs.mean() < 0.25
    # The largest object lies near the middle: a map that always points there must be among the controls.
    assert differs[:, 12:20, 12:20].mean() > 2 * differs.mean()


def test_the_scores_of_maps_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    objects = rng.random((7, 16)) < 0.3
    objects[:, :2] = True, False
    maps = rng.integers(1, 6, (2, 7, 16)).astype(float)
    finds, overlap = functions("finds", "overlap", OBJECT=objects)
    for got, of_seed in zip(finds(maps), maps, strict=True):
        want = [roc_auc_score(mask, one) for mask, one in zip(objects, of_seed, strict=True)]
        np.testing.assert_allclose(got, want)

    def kept(one: np.ndarray) -> np.ndarray:
        """The largest patches, taken until they hold 60 % of the mass."""
        out, mass = np.zeros(len(one), bool), 0.0
        for place in np.argsort(-one, kind="stable"):
            if mass >= 0.6 * one.sum():
                break
            out[place], mass = True, mass + one[place]
        return out

    for got, of_seed in zip(overlap(maps), maps, strict=True):
        want = [jaccard_score(mask, kept(one)) for mask, one in zip(objects, of_seed, strict=True)]
        np.testing.assert_allclose(got, want)


def test_with_place_taken_out_a_fixed_map_counts_nothing():
    rng = np.random.default_rng(1)
    place = np.linspace(0, 5, 16)  # where objects are likely, and looked for in every image
    objects = rng.random((400, 16)) < 0.05 + 0.15 * place
    objects[:, 0], objects[:, -1] = False, True
    finds, without_place, elsewhere = functions("finds", "without_place", "elsewhere", OBJECT=objects)
    blind = place + 0.1 * rng.standard_normal(objects.shape)
    assert finds(blind).mean() > 0.7
    assert finds(without_place(blind)).mean() == pytest.approx(0.5, abs=0.02)
    seeing = blind + 0.5 * objects
    assert finds(without_place(seeing)).mean() > 0.7
    np.testing.assert_allclose(finds(without_place(seeing + 10 * place)), finds(without_place(seeing)))
    np.testing.assert_allclose(elsewhere(blind)[3], np.delete(blind, 3, axis=0).mean(0))
