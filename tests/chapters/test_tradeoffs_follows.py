"""The chapter on tradeoffs: its words follow its records, and its equations are what its functions compute."""

from __future__ import annotations

import ast
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau, norm
from test_prose_follows import said

from vitlab import digest, recording, records

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "notebooks" / "tradeoffs.py"
KINDS = ("cnn", "vit", "deit", "swin", "pvt", "cvt", "coatnet", "mvit", "focal")
SHARES = {"remedies_hundredth": 0.01, "remedies_tenth": 0.1, "remedies_whole": 1.0}
SETTINGS = ("CLASSES", "STEPS", "BATCH", "SEEDS", "KINDS", "STAGES", "EVEN", "RISING", "PLAIN", "SHIFTS", "BIG")


@pytest.fixture
def chapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The chapter's functions and settings, at smoke scale unless told otherwise; nothing of it is run."""
    monkeypatch.setenv("VITLAB_SCALE", getattr(request, "param", "smoke"))

    def kept(node: ast.stmt) -> bool:
        named = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in SETTINGS
        return named or isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom)

    body = [node for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body if kept(node)]
    space: dict[str, Any] = {}
    exec(compile(ast.Module(body, []), SOURCE.name, "exec"), space)
    return space


at_laptop = pytest.mark.parametrize("chapter", ["laptop"], indirect=True)


def write(name: str, seed: int, function: str, config: dict[str, Any], values: dict[str, Any]) -> None:
    """Write one made-up seed of a record, as if the chapter had made it."""
    made = digest.digest(SOURCE.read_text(encoding="utf-8"), function, "laptop")
    meta = records.describe(60.0 + seed, made, recording.frozen(config), function, "notebooks/tradeoffs.py")
    records.write(records.seed_file(name, "laptop", seed), values, meta)


def words(folder: Path, monkeypatch: pytest.MonkeyPatch, level: dict[str, float]) -> dict[str, list[str]]:
    """Make all records up, in which each network is right as often as its level says; return what is said."""
    monkeypatch.setenv("VITLAB_RECORDS", str(folder))
    rng = np.random.default_rng(0)
    levels = np.array([level[kind] for kind in KINDS])
    searched = [kind for kind in KINDS if kind != "deit"]
    for seed in (100, 101):
        right = levels[[KINDS.index(kind) for kind in searched], None] + [-0.1, 0, -0.05]
        config = {
            "source": "cifar100",
            "kinds": searched,
            "rates": (3e-4, 1e-3, 3e-3),
            "fraction": 0.3,
            "steps": 300,
        }
        write("remedies_rates", seed, "tuned", config, {"right": right})
    for (name, fraction), seed in itertools.product(SHARES.items(), range(3)):
        ease = np.random.default_rng(1).normal(size=1000)
        chance = ease + 0.4 * rng.normal(size=(len(KINDS), 1000))
        values = {
            "right": chance < np.hypot(1, 0.4) * norm.ppf(levels)[:, None],
            "fitted": levels,
            "answers": np.repeat(np.arange(10), 100),
            "images": int(4000 * fraction),
        }
        for k, kind in enumerate(KINDS):
            values[f"errors.{kind}"] = (0.3 + 0.1 * k + 0.01 * rng.normal(size=(2, 8))) / levels[k]
            values[f"flips.{kind}"] = np.full((2, 8), 0.1)
            values[f"field.{kind}"] = 5 + k + rng.normal(size=2)
        write(name, seed, "remedied", {"source": "cifar100", "kinds": KINDS, "fraction": fraction}, values)
    big = ("ResNet-50", "ViT-S/16", "DeiT-S", "Swin-T", "PVT-Small", "CvT-13", "CoAtNet-0", "MViTv2-T", "Focal-T")
    for seed in range(3):
        sides = np.array([224, 448, 672]) / 224
        slope = 2 + np.arange(9)[:, None] / 10
        seconds = (1 + np.arange(9)[:, None] / 9) * sides**slope * np.exp(0.01 * rng.normal(size=(2, 9, 3)))
        values = {
            "seconds": seconds,
            "peak": 2.0**26 * sides ** np.full((2, 9, 1), 2.0),
            "products": 4e9 * sides**slope,
            "parameters": np.full(9, 25e6),
        }
        config = {"kinds": big, "sides": (224, 448, 672), "repeats": 3}
        write("remedies_cost", seed, "priced", config, values)
    return said(folder, "tradeoffs")


def verdicts(found: dict[str, list[str]]) -> dict[str, str]:
    """Return each claim's verdict."""
    pattern = r"((?:HUNGER|LIT)-\d+).*\*\*Verdict\.\*\* . ([\w ]+)\."
    return dict(re.search(pattern, text, re.DOTALL).groups() for text in found["verdict"])  # type: ignore[union-attr]


FED = dict(zip(KINDS, (0.7, 0.4, 0.5, 0.5, 0.5, 0.65, 0.65, 0.6, 0.5), strict=True))
STARVED = dict(zip(KINDS, (0.4, 0.7, 0.5, 0.65, 0.65, 0.5, 0.5, 0.6, 0.5), strict=True))


def test_other_records_give_other_words(tmp_path, monkeypatch):
    before, after = words(tmp_path / "a", monkeypatch, FED), words(tmp_path / "b", monkeypatch, STARVED)
    assert verdicts(before) == dict.fromkeys(("HUNGER-10", "LIT-50", "LIT-51"), "The claim holds")
    assert verdicts(after) == dict.fromkeys(("HUNGER-10", "LIT-50", "LIT-51"), "The claim fails")
    for kind in before:
        assert len(before[kind]) == len(after[kind])
    # What accuracy does not decide: tables of costs and of peers, their words, the small bill, how far rates fall.
    same = [b for kind in before for b, a in zip(before[kind], after[kind], strict=True) if a == b]
    assert len(same) == 8, [text[:80] for text in same]
    bold = next(text for text in before["table"] if "Measured here" in text)
    assert re.search(r"CNN \(ResNet-50\).*\*\*(69|7[01])\.\d\*\*", bold)


def test_equal_networks_are_undecided(tmp_path, monkeypatch):
    found = verdicts(words(tmp_path, monkeypatch, dict.fromkeys(KINDS, 0.5)))
    assert found["LIT-50"] == found["LIT-51"] == "Undecided"


def test_one_that_is_fed_is_a_part(tmp_path, monkeypatch):
    found = words(tmp_path, monkeypatch, dict.fromkeys(KINDS, 0.4) | {"mvit": 0.7})
    assert verdicts(found)["HUNGER-10"] == "The claim holds in part"
    assert "Decidedly better than the ViT at 10 % of the images: MViT (1 of 7)" in "".join(found["verdict"])


def test_hunger_1_1_and_the_contrast_1_2(tmp_path, monkeypatch, chapter):
    found = words(tmp_path, monkeypatch, FED)
    files = [np.load(records.seed_file("remedies_tenth", "laptop", seed)) for seed in range(3)]
    right = np.stack([file["right"] for file in files]).mean((0, 2))
    accuracy = {kind: 100 * right[k] for k, kind in enumerate(KINDS)}
    said_so = next(text for text in found["verdict"] if "LIT-50" in text)
    numbers = [float(x) for x in re.findall(r"([-+]\d+\.\d) \(", said_so)]
    contrast = (accuracy["cvt"] + accuracy["coatnet"] - accuracy["swin"] - accuracy["pvt"]) / 2
    left = accuracy["cnn"] - (accuracy["swin"] + accuracy["pvt"]) / 2  # the mean hunger of the two
    assert numbers[:2] == pytest.approx([contrast, left], abs=0.051)
    hits = np.stack([file["right"] for file in files]).transpose(0, 2, 1)
    chapter["AT"] = {kind: k for k, kind in enumerate(KINDS)}
    assert 100 * chapter["mean_of"](hits, ("swin", "pvt")).mean() == pytest.approx(accuracy["cnn"] - left)


def test_kendalls_tau_6_1(chapter):
    rng = np.random.default_rng(0)
    for k in (2, 3, 9, 30):
        x, y = rng.normal(size=(2, k))
        assert chapter["tau"](x, y) == pytest.approx(kendalltau(x, y).statistic)
    assert chapter["tau"]([1, 2, 3], [10, 20, 30]) == 1
    assert chapter["tau"]([1, 2, 3], [3, 2, 1]) == -1


@at_laptop
@pytest.mark.parametrize("kind", KINDS)
def test_the_unit_whose_field_is_taken_lies_in_the_middle_of_the_last_map(kind, chapter):
    torch.manual_seed(0)
    model = chapter["build"](kind).eval()
    features, unit = chapter["centre"](model)
    with torch.no_grad():
        out = features(torch.randn(1, 3, 32, 32))
    if out.ndim == 4:
        assert unit == (out.shape[2] // 2, out.shape[3] // 2) == (2, 2)
    else:
        side = round(out.shape[1] ** 0.5)
        assert side**2 == out.shape[1]
        assert side == (8 if kind in ("vit", "deit") else 4)
        assert divmod(unit, side) == (side // 2, side // 2)
    prefix = {"vit": 1, "deit": 2, "pvt": 1, "cvt": 1, "mvit": 0}.get(kind, 0)
    if out.ndim == 3:  # what is left is the patches: the last ones
        with torch.no_grad():
            everything = model.forward_features(torch.randn(1, 3, 32, 32))
        assert everything.shape[1] - out.shape[1] == prefix


@at_laptop
def test_the_nine_have_about_one_size(chapter):
    sizes = [sum(p.numel() for p in chapter["build"](kind).parameters()) for kind in KINDS]
    assert max(sizes) < 1.3 * min(sizes)


def test_fuse_reaches_every_attention(chapter):
    for kind in KINDS:
        model = chapter["build"](kind)
        layers = [m for m in model.modules() if hasattr(m, "fused_attn")]
        chapter["fuse"](model, False)
        assert not any(m.fused_attn for m in layers)
        chapter["fuse"](model, True)
        assert all(m.fused_attn for m in layers)
        assert bool(layers) == (kind != "cnn")


def test_the_table_of_speeds_is_whole():
    """Each network has a peer in it, forward and backward, in both precisions; Focal has none in a library."""
    table = json.loads((ROOT / "bench" / "models.json").read_text(encoding="utf-8"))
    rows = {(r["model"], r["passes"], r["precision"]): r for r in table["rows"]}
    names = {model for model, _, _ in rows}
    for start in ("ViT", "DeiT", "Swin", "PVT-", "PVTv2", "CvT", "CoAtNet", "MViT-", "MViTv2"):
        assert any(name.startswith(start) for name in names), start
    for name, way, precision in itertools.product(names, ("forward", "forward + backward"), ("fp32", "bf16")):
        row = rows[name, way, precision]
        assert 0 < row["low"] <= row["ratio"] <= row["high"]
        assert (row["memory"] is None) == (way == "forward")


def test_a_measurement_runs_on_a_small_scale_and_counts_what_attention_does(chapter):
    found = chapter["priced"](0, ("ViT-S/16", "Swin-T"), (32, 64), 1)
    config = chapter["ViTConfig"](**chapter["PLAIN"])
    for s, tokens in enumerate((64 + 1, 256 + 1)):
        d, n = config.dim, tokens
        blocks = config.depth * (12 * n * d * d + 2 * n * n * d)
        rest = (n - 1) * 3 * config.patch_size**2 * d + d * config.classes
        assert found["products"][0, s] == blocks + rest
    assert (found["seconds"] > 0).all()
    assert (found["peak"][1] > found["peak"][0]).all()
