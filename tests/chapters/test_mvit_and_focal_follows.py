"""The chapter on MViT and Focal: its words follow its records, and its equations are what the networks do."""

from __future__ import annotations

import ast
import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import norm
from test_prose_follows import said
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitlab import digest, hooks, recording, records
from vitlab.models.focal import Focal, FocalConfig, focal_keys, ring
from vitlab.models.mvit import MViT, MViTConfig, Pooling
from vitlab.models.swin import Swin, SwinConfig
from vitlab.models.vit import ViT, ViTConfig

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "notebooks" / "mvit_and_focal.py"
POOLING = ("conv", "max", "avg", "unpooled", "no-residual")
FOCAL = ("focal", "focal-textbook", "focal-no-ring", "focal-near", "focal-window")


def functions(*names: str, **known: Any) -> list[Any]:
    """Return functions of the chapter by name, defined with nothing but what they are given."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    wanted = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    space = {"np": np, "torch": torch, **known}
    exec(compile(ast.Module(wanted, []), SOURCE.name, "exec"), space)
    return [space[name] for name in names]


def write(folder: Path, name: str, arms: tuple[str, ...], levels: tuple[float, ...]) -> np.ndarray:
    """Write a made-up record of three seeds in which each arm is right as often as its level says."""
    text = SOURCE.read_text(encoding="utf-8")
    made = digest.digest(text, "compared", "laptop")
    config = recording.frozen({"source": "cifar100", "arms": arms})
    rng = np.random.default_rng(0)
    ease, every = rng.normal(size=1000), []
    for seed in range(3):
        chance = ease + 0.4 * rng.normal(size=(len(arms), 1000))
        right = chance < math.hypot(1, 0.4) * norm.ppf(levels)[:, None]
        meta = records.describe(60.0 + seed, made, config, "compared", "notebooks/mvit_and_focal.py")
        answers = np.repeat(np.arange(10), 100)
        records.write(records.seed_file(name, "laptop", seed), {"right": right, "answers": answers}, meta)
        every.append(right)
    return np.stack(every)


def words(folder: Path, monkeypatch: pytest.MonkeyPatch, pooling: Any, focal: Any) -> tuple[Any, np.ndarray]:
    """Make both records and return what the chapter says of them, and the Focal record itself."""
    monkeypatch.setenv("VITLAB_RECORDS", str(folder))
    write(folder, "mvit_pooling", POOLING, pooling)
    found = write(folder, "focal_keys", FOCAL, focal)
    return said(folder, "mvit_and_focal"), found


def verdicts(found: dict[str, list[str]]) -> dict[str, str]:
    """Return each claim's verdict."""
    out = {}
    for text in found["verdict"]:
        claim = re.search(r"(?:HUNGER|LIT)-\d+", text)
        assert claim
        out[claim[0]] = text.split("**Verdict.**")[1].split("\n")[0].strip(" ✓◐✗?")
    return out


def test_other_records_give_other_words(tmp_path, monkeypatch):
    before, first = words(tmp_path / "a", monkeypatch, (0.66, 0.58, 0.5, 0.6, 0.58), (0.7, 0.7, 0.6, 0.62, 0.45))
    after, _ = words(tmp_path / "b", monkeypatch, (0.5, 0.58, 0.66, 0.62, 0.6), (0.45, 0.55, 0.6, 0.62, 0.7))
    assert verdicts(before) == {
        "HUNGER-8": "The claim holds in part.",
        "HUNGER-9": "The claim holds in part.",
        "LIT-40": "The claim holds.",
        "LIT-41": "The claim holds.",
        "LIT-42": "The claim holds.",
    }
    assert set(verdicts(after).values()) == {"The claim fails."}
    for kind in before:
        assert len(before[kind]) == len(after[kind])
    # What no record decides: where MViT pools queries, Focal's keys, the two bills, and the size of our networks.
    same = [b for kind in before for b, a in zip(before[kind], after[kind], strict=True) if a == b]
    assert len(same) == 5, [text[:80] for text in same]
    assert not any("**Claimed.**" in text for text in same)
    control = [next(text for text in found["say"] if "The control shows" in text) for found in (before, after)]
    assert "nothing, as it should" in control[0]
    assert "too narrow" in control[1]
    # (9.1): what the ring adds with coarse keys, minus what it adds without.
    both, _, coarse, near, neither = 100 * first.mean((0, 2))
    interaction = float(re.search(r"interaction \(9\.1\) is ([-+\d.]+)", control[0])[1])  # type: ignore[index]
    assert interaction == pytest.approx((both - coarse) - (near - neither), abs=0.051)


def test_equal_arms_are_undecided(tmp_path, monkeypatch):
    found, _ = words(tmp_path, monkeypatch, (0.6,) * 5, (0.6,) * 5)
    of = verdicts(found)
    # Fifteen intervals at 95 %: the seeds of this test decide none.
    assert {of[claim] for claim in ("HUNGER-9", "LIT-40", "LIT-41", "LIT-42")} == {"Undecided."}


def mvit(**changes: Any) -> MViT:
    torch.manual_seed(0)
    config = MViTConfig(
        image_size=16, patch_kernel=3, patch_stride=2, classes=5, dims=(8, 16), depths=(1, 2), heads=(1, 2),
        kv_strides=(2, 1), **changes,
    )  # fmt: skip
    return MViT(config).double().eval()


@pytest.mark.parametrize("block", range(3))
def test_pooling_attention_1_1_with_its_residual_4_1_and_positions_4_2(block):
    for positions, added in itertools.product((False, True), repeat=2):
        model = mvit(relative_positions=positions, residual_pooling=added)
        layer, plan = model.blocks[block].attn, model.config.plan[block]
        for table in (layer.rel_pos_h, layer.rel_pos_w) if positions else ():
            nn.init.normal_(table)
        x = torch.randn(2, plan.side**2, plan.dim, dtype=torch.float64)
        q, k, v = layer.qkv(x).reshape(2, plan.side**2, 3, plan.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = layer.pool_q(q), layer.pool_k(k), layer.pool_v(v)
        logits = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
        # (1.2): queries times keys.
        assert logits.shape[2] * logits.shape[3] == plan.side**4 // (plan.q_stride**2 * plan.kv_stride**2)
        if positions:
            finer = max(plan.queries, plan.keys)
            for i, j in itertools.product(range(plan.queries**2), range(plan.keys**2)):
                rows = i // plan.queries * finer // plan.queries - j // plan.keys * finer // plan.keys
                columns = i % plan.queries * finer // plan.queries - j % plan.keys * finer // plan.keys
                last = (plan.keys - 1) * finer // plan.keys  # offsets counted from the farthest key after
                vector = layer.rel_pos_h[rows + last] + layer.rel_pos_w[columns + last]
                logits[:, :, i, j] += q[:, :, i] @ vector
        z = logits.softmax(-1) @ v + (q if added else 0)
        want = layer.proj(z.transpose(1, 2).flatten(2))
        torch.testing.assert_close(layer(x), want)


@pytest.mark.parametrize("op", ["conv", "max", "avg"])
@pytest.mark.parametrize("stride", [1, 2, 4])
def test_the_three_pools_2_1(op, stride):
    torch.manual_seed(0)
    pool = Pooling(op, dim=3, side=8, kernel=3, stride=stride, prefix=0).double()
    x = torch.randn(1, 1, 64, 3, dtype=torch.float64)
    grid = F.pad(x[0, 0].reshape(8, 8, 3), (0, 0, 1, 1, 1, 1), value=-torch.inf if op == "max" else 0.0)
    out = []
    for r, c in itertools.product(range(0, 8, stride), repeat=2):
        around = grid[r : r + 3, c : c + 3]  # the padding makes (r, c) its middle
        if op == "conv":
            out.append((around * pool.pool.weight[:, 0].permute(1, 2, 0)).sum((0, 1)))
        else:
            out.append(around.amax((0, 1)) if op == "max" else around.sum((0, 1)) / 9)
    want = torch.stack(out)
    torch.testing.assert_close(pool(x)[0, 0], F.layer_norm(want, (3,), eps=1e-6) if op == "conv" else want)


@pytest.mark.parametrize("first", [1, 2, 4, 8])
def test_strides_that_adapt_keep_the_number_of_keys_3_1(first):
    strides = tuple(max(1, first // 2**stage) for stage in range(4))
    config = MViTConfig(image_size=256, patch_stride=4, depths=(2, 2, 2, 2), kv_strides=strides)
    later = [block for block in config.plan if block.q_stride == 1]
    assert len(later) == 5
    for block in later:
        stage = config.dims.index(block.width)
        assert block.keys == (64 // first if first >= 2**stage else 64 // 2**stage)


def focal(window: int, expand: int, pooled: int, windows: int = 3) -> tuple[Focal, Any]:
    torch.manual_seed(0)
    config = FocalConfig(
        image_size=window * windows, patch_size=1, classes=3, window=window, dims=(8,), depths=(1,), heads=(2,),
        expand=(expand,), focal_window=(pooled,),
    )  # fmt: skip
    model = Focal(config).double().eval()
    for table in model.blocks[0].attn.parameters(recurse=False):
        nn.init.normal_(table)
    return model, config


def test_focal_attention_is_one_softmax_over_fine_and_coarse_keys_5_1():
    model, config = focal(window=4, expand=2, pooled=3)  # every key once
    layer, side = model.blocks[0].attn, 12
    x = torch.randn(1, side * side, 8, dtype=torch.float64)
    with hooks.taps(model, ["attn.0"]) as found:
        out = layer(x)
    bias = layer.bias()
    q, k, v = layer.qkv(x[0]).reshape(-1, 3, 2, 4).unbind(1)
    for r, c in ((0, 0), (5, 6), (11, 2)):
        keys = focal_keys(config, 0, (r, c))
        fine = [a * side + b for a, b in keys.fine]
        assert len(keys.fine) + len(keys.pooled) == (4 + 2 * 2) ** 2 + 3**2
        summaries = []
        for a, b in keys.pooled:
            inside = [(a * 4 + i) * side + b * 4 + j for i in range(4) for j in range(4)]
            there = 0 <= a < 3 and 0 <= b < 3
            one = layer.pool.weight[0] @ x[0, inside] + layer.pool.bias if there else None
            summaries.append(layer.qkv(one).reshape(3, 2, 4)[1:] if there else torch.zeros(2, 2, 4).double())
        coarse = torch.stack(summaries)
        at = r * side + c
        window, place = r // 4 * 3 + c // 4, r % 4 * 4 + c % 4
        every_k, every_v = torch.cat([k[fine], coarse[:, 0]]), torch.cat([v[fine], coarse[:, 1]])
        logits = torch.einsum("hd,khd->hk", q[at], every_k) / 2 + bias[window, :, place]
        for head in range(2):
            assert (logits[head, len(fine) :][~torch.tensor(keys.on_map)] < -90).all()
        weights = logits.softmax(-1)
        torch.testing.assert_close(found["attn.0"][window, :, place], weights)
        want = layer.proj(torch.einsum("hk,khd->hd", weights, every_v).flatten())
        torch.testing.assert_close(out[0, at], want)


@pytest.mark.parametrize("expand", [1, 2, 3])
def test_a_key_listed_twice_is_one_with_another_bias_6_1_6_2(expand):
    model, config = focal(window=7, expand=expand, pooled=1)
    layer = model.blocks[0].attn
    x = torch.randn(1, 21 * 21, 8, dtype=torch.float64)
    (listed_logits,) = functions("listed_logits", ring=ring)
    with torch.no_grad():
        with hooks.taps(model, ["attn.0"]) as found:
            layer(x)
        for window in (0, 4, 8):
            logits, rows = listed_logits(layer, x, 21, (window // 3, window % 3))
            got = found["attn.0"][window][..., :-1]
            listed = logits.softmax(-1)
            keys = focal_keys(config, 0, (window // 3 * 7, window % 3 * 7))
            assert len(rows) == sum(keys.counts)
            for place, (r, c) in enumerate(keys.fine):
                same = [i for i, row in enumerate(rows) if row == r * 21 + c]
                assert len(same) == keys.counts[place]
                want = listed[..., same].sum(-1)
                torch.testing.assert_close(got[..., place] / got.sum(-1), want)
    # (6.2): two biases of zero are one of log 2.
    assert np.logaddexp(0, 0) == pytest.approx(math.log(2))


def test_the_drawing_shows_the_keys():
    seen_by, times_listed = functions("seen_by", "times_listed", focal_keys=focal_keys, ring=ring)
    config = FocalConfig.tiny()
    for stage, query in ((0, (0, 0)), (0, (30, 43)), (1, (27, 27)), (2, (3, 12)), (3, (2, 2))):
        drawn, keys = seen_by(config, stage, query), focal_keys(config, stage, query)
        window = config.geometry(stage)[1]
        assert (drawn > 0).sum() == len(set(keys.fine))
        assert (drawn == 1).sum() == window**2
        assert (drawn == 4).sum() == sum(keys.wrapped)
        doubles = sum(n > 1 and not w for n, w in zip(keys.counts, keys.wrapped, strict=True))
        assert (drawn == 3).sum() == doubles
        assert drawn[query] == 1
    assert times_listed(7, 3).tolist() == np.reshape(focal_keys(config, 0, (24, 24)).counts, (13, 13)).tolist()
    assert times_listed(4, 2).max() == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: ViT(ViTConfig(image_size=16, patch_size=4, classes=5, dim=12, depth=3, heads=2)),
        lambda: Swin(SwinConfig(image_size=16, patch_size=1, window=4, classes=5, dims=(8, 12), depths=(1, 2),
                                heads=(1, 2))),
        lambda: mvit(),
        lambda: Focal(FocalConfig(image_size=16, patch_size=1, window=4, classes=5, dims=(8, 12, 4),
                                  depths=(1, 2, 1), heads=(1, 2, 1), expand=(2, 1, 1), focal_window=(5, 3, 1))),
    ],
)  # fmt: skip
def test_pairs_are_those_of_the_weights_and_cost_what_7_1_says(make):
    bill, multiply_adds, counted = functions(
        "bill", "multiply_adds", "counted", ViTConfig=ViTConfig, MViTConfig=MViTConfig, FocalConfig=FocalConfig,
        FlopCounterMode=FlopCounterMode,
    )  # fmt: skip
    model = make().float().eval()
    names = [f"attn.{i}" for i in range(len(model.blocks))]
    with hooks.taps(model, names) as seen, torch.no_grad():
        model(torch.rand(1, 3, 16, 16))
    for name, (queries, keys, _), block in zip(names, bill(model.config), model.blocks, strict=True):
        windows, _, of_a_window, each = seen[name].shape
        assert (windows * of_a_window, each) == (queries, keys)
        assert block.attn.fused_attn
    assert counted(model, torch.zeros(1, 3, 16, 16)) == multiply_adds(model.config)


def test_differing_is_the_share_of_the_squares_outside_the_mean():
    (differing,) = functions("differing")
    assert differing(torch.ones(2, 5, 3)) == 0
    assert differing(torch.tensor([[[1.0], [-1.0]]])) == 1
    assert differing(torch.tensor([[[3.0], [1.0]]])) == pytest.approx(2 / 10)
