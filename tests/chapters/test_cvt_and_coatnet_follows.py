"""The chapter on CvT and CoAtNet: words follow its records, equations are what the models do.

The records here are made up in the shapes of the real ones, so that every verdict is known beforehand.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_prose_follows import said

from vitlab import records
from vitlab.analysis import equivariance
from vitlab.digest import digest
from vitlab.models.coatnet import RelativeBias, relative_attention_weights
from vitlab.models.cvt import ConvProjection, CvT, CvTConfig

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "notebooks" / "cvt_and_coatnet.py"
INSIDE = ("cvt", "cvt-placed", "cvt-linear", "cvt-linear-placed", "vit", "vit-placed")
AROUND = ("CTT", "CCT", "CCC", "TTT", "CTT-placeless")


def parts(*names: str, **known: Any) -> list[Any]:
    """Return functions of the chapter by name, defined with nothing but what they are given."""
    tree = ast.parse(CHAPTER.read_text(encoding="utf-8"))
    wanted = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    space = {"np": np, "torch": torch, "F": F, "math": math, "RelativeBias": RelativeBias,
             "relative_attention_weights": relative_attention_weights, **known}  # fmt: skip
    exec(compile(ast.Module(wanted, []), CHAPTER.name, "exec"), space)
    return [space[name] for name in names]


def write(folder: Path, name: str, which: str, arms: Sequence[str], world: Mapping[str, Any]) -> None:
    """Write a made-up record: accuracies and flips as given, three seeds, a thousand images."""
    code = digest(CHAPTER.read_text(encoding="utf-8"), "arranged", "laptop")
    meta = records.describe(1.0, code, {"arms": list(arms), "source": "cifar100", "which": which}, "arranged",
                            "notebooks/cvt_and_coatnet.py")  # fmt: skip
    order = np.random.default_rng(0).permutation(1000)
    for seed in range(3):
        rng = np.random.default_rng([seed, len(arms)])
        levels = [world["levels"][arm] + world["spread"] * rng.standard_normal() for arm in arms]
        right = np.stack([order < round(10 * level) for level in levels])
        still = np.array([0.0 if arm == "vit" and by in (4, 8, 16) else 1.0 for arm in arms
                          for by in (*range(1, 9), 16)]).reshape(len(arms), 9)  # fmt: skip
        flips = np.stack([world["flips"].get(arm, 0.2) * still[at] for at, arm in enumerate(arms)])
        flips = np.stack([0.3 * still, flips + 0.2 * world["spread"] / 4 * rng.random((len(arms), 1)) * still], 1)
        file = folder / name / "laptop" / f"seed-{seed:03d}.npz"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, right=right, answers=np.arange(1000) % 10, errors=0.5 * flips, flips=flips,
                 **{"record.json": np.asarray(json.dumps(meta))})  # fmt: skip


def world(
    inside: Sequence[float], around: Sequence[float], flips: Sequence[float], spread: float
) -> dict[str, Any]:
    return {"levels": dict(zip((*INSIDE, *AROUND), (*inside, *around), strict=True)),
            "flips": dict(zip(INSIDE, flips, strict=True)), "spread": spread}  # fmt: skip


AS_CLAIMED = world((70, 70, 65, 67, 55, 63), (66, 68, 64, 60, 63), (0.1, 0.1, 0.2, 0.2, 0.3, 0.4), 0.01)
BACKWARDS = world((60, 66, 65, 66, 63, 55), (62, 60, 66, 68, 64), (0.4, 0.4, 0.3, 0.3, 0.2, 0.1), 0.01)
UNCLEAR = world((62, 62, 62, 62, 62, 62), (62, 62, 62, 62, 62), (0.2,) * 6, 4.0)
WORDS = {
    "HUNGER-6": ("holds in part", "fails", "Undecided"),
    "HUNGER-7": ("holds in part", "fails", "Undecided"),
    "LIT-30": ("holds", "fails", "Undecided"),
    "LIT-31": ("holds", "fails", "Undecided"),
    "LIT-32": ("holds in part", "fails", "Undecided"),
    "LIT-33": ("holds", "fails", "Undecided"),
    "LIT-34": ("holds", "fails", "Undecided"),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> list[dict[str, list[str]]]:
    """What the chapter says of three worlds."""
    out = []
    for number, one in enumerate((AS_CLAIMED, BACKWARDS, UNCLEAR)):
        folder = tmp_path_factory.mktemp(f"world{number}")
        write(folder, "cvt_positions", "inside", INSIDE, one)
        write(folder, "coatnet_orders", "around", AROUND, one)
        out.append(said(folder, "cvt_and_coatnet"))
    return out


@pytest.mark.parametrize("claim", WORDS)
@pytest.mark.parametrize("number", range(3))
def test_the_verdict_is_the_one_the_records_give(told, claim, number):
    (text,) = (text for text in told[number]["verdict"] if f"**Claimed.** {claim}:" in text)
    word = text.split("**Verdict.**")[1].split("\n")[0].strip(" ✓◐?✗.").removeprefix("The claim ")
    assert word == WORDS[claim][number]


def test_other_records_give_other_words(told):
    first, second, _ = told
    assert len(first["verdict"]) == len(WORDS)
    same = {}
    for kind in first:
        assert len(first[kind]) == len(second[kind])
        same[kind] = [b[:70] for b, a in zip(first[kind], second[kind], strict=True) if a == b]
    assert same["verdict"] == []
    # What no record decides stays: sizes, and what untrained networks do.
    live = ("The published small", "The networks, for", "Rolls of 1 to 16", "By how much", "Places told apart")
    assert [text for text in same["table"] if not text.startswith(live)] == []
    assert [text for text in same["say"] if not text.startswith(("By (1.3)", "An edge filter"))] == []


def test_equation_4_1_is_the_difference_of_two_gains(told):
    (table,) = (text for text in told[0]["table"] if "(4.1)" in text)
    row = next(line for line in table.split("\n") if "(4.1)" in line)
    levels = AS_CLAIMED["levels"]
    want = (levels["vit-placed"] - levels["vit"]) - (levels["cvt-placed"] - levels["cvt"])
    assert float(row.split("|")[2].split("(")[0]) == pytest.approx(want, abs=0.11)


SIZES = {"image_size": 32, "classes": 5, "dims": (8, 16, 24), "depths": (1, 1, 1), "heads": (1, 2, 2),
         "kernels": (3, 3, 3), "strides": (2, 2, 2), "paddings": (1, 1, 1)}  # fmt: skip


def network(**fields: Any) -> CvT:
    torch.manual_seed(0)
    return CvT(CvTConfig(**SIZES | fields)).double().eval()


@pytest.mark.parametrize(("side", "kernel", "stride", "padding"), [(224, 7, 4, 2), (56, 3, 2, 1), (33, 5, 3, 0)])
def test_equation_1_1_is_the_side_of_a_map(side, kernel, stride, padding):
    want = (side + 2 * padding - kernel) // stride + 1
    assert F.conv2d(torch.zeros(1, 1, side, side), torch.zeros(1, 1, kernel, kernel), stride=stride,
                    padding=padding).shape[-1] == want  # fmt: skip
    config = CvTConfig(image_size=side, dims=(8,), depths=(1,), heads=(1,), kernels=(kernel,), strides=(stride,),
                       paddings=(padding,))  # fmt: skip
    assert config.grid == (want, want)


@pytest.mark.parametrize("stride", [1, 2])
def test_equation_1_2_is_the_projection_of_the_model(stride):
    torch.manual_seed(1)
    layer = ConvProjection(4, 3, stride, "circular").double().eval()
    layer.bn.running_mean.normal_()
    layer.bn.running_var.uniform_(0.5, 2)
    x = torch.randn(1, 4, 8, 8, dtype=torch.float64)
    u = torch.zeros(4, 8 // stride, 8 // stride, dtype=torch.float64)
    for row, column in np.ndindex(8 // stride, 8 // stride):
        for down, across in np.ndindex(3, 3):
            a = layer.conv.weight[:, 0, down, across]
            u[:, row, column] += a * x[0, :, (stride * row + down - 1) % 8, (stride * column + across - 1) % 8]
    bn = layer.bn
    want = (u - bn.running_mean[:, None, None]) / (bn.running_var[:, None, None] + bn.eps).sqrt()
    torch.testing.assert_close(layer(x)[0], want)


def test_equation_1_3_is_what_the_convolutions_add():
    conv, linear = (sum(p.numel() for p in network(projection=kind).parameters()) for kind in ("conv", "linear"))
    assert conv - linear == sum(3 * (9 * dim + 2 * dim) for dim in SIZES["dims"])
    attention = network(projection="linear").blocks[2].attn
    maps = (attention.proj_q, attention.proj_k, attention.proj_v)
    assert sum(p.numel() for one in maps for p in one.parameters()) == 3 * (24 * 24 + 24)


def test_equation_2_1_holds_at_the_multiples_of_2_2_and_at_no_other_shift():
    images = torch.randn(1, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for keys in (1, 2):
        model = network(padding="circular", kv_stride=keys)
        errors = equivariance.feature_shift_error(model.forward_features, images, (8, 16, 24), 8, (4, 4))[:, 0]
        assert [by for by, error in zip((8, 16, 24), errors, strict=True) if error < 1e-11] == (
            [8, 16, 24] if keys == 1 else [16]
        )
        scores = equivariance.logit_error(model, images, range(1, 17))[:, 0]
        assert [by for by in range(1, 17) if scores[by - 1] < 1e-11] == list(range(8 * keys, 17, 8 * keys))
    assert equivariance.logit_error(network(), images, (16,))[0, 0] > 1e-3


@pytest.mark.parametrize("depths", [(1, 1, 1), (1, 2, 2), (2, 1, 3)])
def test_equations_3_1_and_3_2_count_what_a_blank_image_shows(depths):
    told_apart, after_stages, kinds, louder = parts("told_apart", "after_stages", "kinds", "louder")
    blank = torch.ones(1, 3, 32, 32, dtype=torch.float64)
    for projection in ("conv", "linear"):
        stages = after_stages(louder(network(depths=depths, projection=projection)), blank)
        assert [kinds(tokens) for tokens in stages] == told_apart(depths, 32, projection == "conv")
    stages = after_stages(louder(network(depths=depths, padding="circular")), blank)
    assert [kinds(tokens) for tokens in stages] == [1, 1, 1]


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_equations_6_2_to_6_4_are_the_attention_of_the_model():
    side, dim = 4, 3
    x, module = drawn(16, dim), RelativeBias(side, heads=1).double()
    module.relative_position_bias_table.data = drawn(49, 1, seed=1)
    table = module.relative_position_bias_table.data.view(7, 7)
    logits = x @ x.T / math.sqrt(dim)
    w = torch.zeros(16, 16, dtype=torch.float64)
    for i, j in np.ndindex(16, 16):
        w[i, j] = table[i // 4 - j // 4 + 3, i % 4 - j % 4 + 3]
    with torch.no_grad():
        torch.testing.assert_close(module()[0], w)
    for bias in (None, w):
        want = (logits if bias is None else logits + bias).exp()
        want = want / want.sum(1, keepdim=True)
        got = relative_attention_weights(x[None, None], x[None, None], None if bias is None else bias[None])[0, 0]
        torch.testing.assert_close(got, want)
    product = w.exp() * logits.exp()  # (6.4)
    torch.testing.assert_close(got, product / product.sum(1, keepdim=True))


def test_equations_6_1_and_6_5_are_a_convolution_inside_the_map():
    static_attention, two_heads = parts("static_attention", "two_heads")
    two_heads.__globals__["static_attention"] = static_attention
    kernel, x = drawn(3, 3), drawn(6, 6, seed=1)
    want = torch.zeros(6, 6, dtype=torch.float64)
    for row, column, down, across in np.ndindex(6, 6, 3, 3):  # (6.1): w at the offset i - j
        r, c = row - (down - 1), column - (across - 1)
        if 0 <= r < 6 and 0 <= c < 6:
            want[row, column] += kernel[down, across] * x[r, c]
    got = two_heads(kernel, x)
    torch.testing.assert_close(got[1:-1, 1:-1], want[1:-1, 1:-1])
    assert not torch.allclose(got, want)
    alone = kernel.abs()
    head = static_attention(alone, 6)
    torch.testing.assert_close(head.sum(1), torch.ones(36, dtype=torch.float64))
    torch.testing.assert_close(two_heads(alone, x).flatten(), alone.sum() * (head @ x.flatten()))


def test_equation_7_1_is_the_expected_error_on_white_noise() -> None:
    difference = drawn(16, 16)
    white = (
        math.sqrt(16) * torch.linalg.qr(drawn(16, 16, seed=1))[0]
    )  # sixteen inputs whose mean x x' is the identity
    torch.testing.assert_close((white @ white.T) / 16, torch.eye(16, dtype=torch.float64))
    torch.testing.assert_close((difference @ white).square().sum(0).mean(), difference.square().sum())
