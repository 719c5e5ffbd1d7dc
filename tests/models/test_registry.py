"""Architectures by name: every name and size builds, and what is misspelt is answered with its nearest match."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from vitlab import digest, models
from vitlab.models.vit import ViT, ViTConfig

SIZES = [(name, size) for name in models.names() for size in models.sizes(name)]


def test_the_names_are_those_of_the_course():
    assert models.names() == ("vit", "deit", "swin", "pvt", "pvt_v2", "cvt", "coatnet", "mvit", "focal")


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_every_size_builds_and_is_as_its_configuration_says(name, size):
    with torch.device("meta"):
        model = models.create(name, size, classes=7)
    cls, config = models.classes(name)
    assert type(model) is cls
    assert model.config == getattr(config, size)(classes=7)
    assert isinstance(model.blocks, nn.ModuleList)
    assert all(block.attn.fused_attn is True for block in model.blocks)


@pytest.mark.parametrize("name", models.names())
def test_sizes_differ(name):
    with torch.device("meta"):
        counts = {
            size: sum(p.numel() for p in models.create(name, size).parameters()) for size in models.sizes(name)
        }
    assert len(counts) == len(set(counts.values())) >= 2


def test_the_sizes_of_the_vit_are_its_named_constructors():
    assert models.sizes("vit") == ("tiny", "small", "base")
    model = models.create("vit", "tiny", image_size=32, patch_size=4, depth=2)
    assert isinstance(model, ViT)
    assert model.config == ViTConfig.tiny(image_size=32, patch_size=4, depth=2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: models.create("swim", "tiny"), "no architecture named 'swim'; did you mean 'swin'?"),
        (lambda: models.sizes("PVT"), "no architecture named 'PVT'; there are vit, deit, swin, pvt, "),
        (lambda: models.create("vit", "tinny"), "no size of vit named 'tinny'; did you mean 'tiny'?"),
        (lambda: models.create("deit", "xxl"), "no size of deit named 'xxl'; there are tiny, small, base."),
        (
            lambda: models.create("deit", "tiny", image_sze=32),
            "no field of DeiTConfig named 'image_sze'; did you mean 'image_size'?",
        ),
        (lambda: models.create("vit", "tiny", SIZES=()), "no field of ViTConfig named 'SIZES'"),
        (lambda: models.create("vit", "tiny", heads=5), "multiple of the number of heads, got 192 and 5"),
        (lambda: models.create("vit", "__init__"), "no size of vit named '__init__'"),
    ],
)
def test_what_is_misspelt_is_answered_with_its_nearest_match(call, says):
    with pytest.raises(ValueError) as error:
        call()
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_naming_them_loads_no_torch():
    code = "import sys; from vitlab import models; models.names(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_record_made_through_create_depends_on_the_architectures():
    """The digest of a measurement reads text: it must find the code behind a name."""
    text = "from vitlab import models\n\n\ndef measure(seed):\n    return models.create('swin', 'tiny')\n"
    found = digest.digest(text, "measure", "laptop")
    for name in models.names():
        cls, config = models.classes(name)
        assert {f"{c.__module__}.{c.__name__}" for c in (cls, config)} <= set(found)
