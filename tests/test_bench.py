"""The bench compares equals with equals, and its table is written whole or not at all."""

from __future__ import annotations

import json

import pytest
import timm
import torch

from bench import models


def small():
    """A peer that is measured in a moment."""
    return (timm.create_model("vit_tiny_patch16_224", depth=1, embed_dim=24, num_heads=2, num_classes=5),) * 2


@pytest.fixture
def quick(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "PEERS", {"small": ("timm", small)})
    monkeypatch.setattr(models, "TABLE", tmp_path / "models.json")
    return tmp_path


def test_every_peer_and_ours_are_one_function():
    """Each as the bench builds it, at its published size."""
    torch.manual_seed(0)
    images = torch.randn(1, 3, 224, 224)
    for name, (_, make) in models.PEERS.items():
        network, theirs = make()
        ours = models.weights.ours(network).eval()
        with torch.no_grad():
            assert torch.allclose(ours(images), theirs.eval()(images), atol=1e-4), name


def test_the_table_has_a_row_for_each_pass_and_precision(quick):
    rows = list(models.table(rounds=2, batch=1))
    assert [(r.passes, r.precision) for r in rows] == [
        ("forward", "fp32"),
        ("forward", "bf16"),
        ("forward + backward", "fp32"),
        ("forward + backward", "bf16"),
    ]
    assert all(r.ratio > 0 and r.low <= r.high for r in rows)
    assert [r.memory is None for r in rows] == [True, True, False, False]
    assert 0.9 < rows[2].memory < 1.1
    stored = json.loads((quick / "models.json").read_text())
    assert [row["precision"] for row in stored["rows"]] == ["fp32", "bf16"] * 2
    assert {"made", "machine", "torch", "timm", "rounds", "batch"} <= stored["made"].keys()


def test_a_part_of_the_table_is_not_written(quick):
    assert len(list(models.table(rounds=2, batch=1, only="small"))) == 4
    assert not list(quick.iterdir())


def test_an_interrupted_run_leaves_the_old_table(quick, monkeypatch):
    (quick / "models.json").write_text("old")
    rows = models.table(rounds=2, batch=1)
    next(rows)
    rows.close()
    assert (quick / "models.json").read_text() == "old" and len(list(quick.iterdir())) == 1
