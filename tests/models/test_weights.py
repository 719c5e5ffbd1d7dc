"""Weights made elsewhere: a timm checkpoint loads, a foreign one is refused and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from vitlab.models import weights
from vitlab.models.vit import ViT, ViTConfig

SMALL = ViTConfig(image_size=32, patch_size=8, dim=24, depth=2, heads=2, classes=5)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A file laid out as timm's own, and the model that made it."""
    torch.manual_seed(0)
    theirs = timm.create_model("vit_tiny_patch16_224").eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    file = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file(theirs.state_dict(), file)
    return file, theirs


def test_a_timm_checkpoint_gives_timms_logits_to_the_bit(checkpoint):
    file, theirs = checkpoint
    model, prepare = weights.from_timm("vit_tiny_patch16_224.augreg_in21k_ft_in1k", file=file)
    images = prepare(np.random.default_rng(0).integers(0, 256, (2, 300, 260, 3), dtype=np.uint8))
    with torch.no_grad():
        assert torch.equal(model(images), theirs(images))


def test_preprocessing_is_timms_own():
    """A whole batch, each image as timm would prepare it alone."""
    _, prepare = weights.from_timm("vit_tiny_patch16_224", pretrained=False)
    from PIL import Image

    images = np.random.default_rng(0).integers(0, 256, (2, 250, 333, 3), dtype=np.uint8)
    data = timm.data.resolve_model_data_config(timm.create_model("vit_tiny_patch16_224"))
    transform = timm.data.create_transform(**data, is_training=False)
    assert torch.equal(prepare(images), torch.stack([transform(Image.fromarray(image)) for image in images]))


def test_a_truncated_checkpoint_is_one_sentence(checkpoint, tmp_path):
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(checkpoint[0].read_bytes()[:1000])
    with pytest.raises(RuntimeError, match=r"weights of vit_tiny_patch16_224 could not be read from .*broken"):
        weights.from_timm("vit_tiny_patch16_224", file=broken)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.pop("blocks.1.mlp.fc1.bias"), r"lacks blocks.1.mlp.fc1.bias \(96,\)"),
        (
            lambda s: s.update(pos_embed=torch.zeros(1, 5, 24)),
            r"pos_embed should be \(1, 17, 24\), .* has \(1, 5, 24\)",
        ),
        (lambda s: s.update(extra=torch.zeros(2)), r"has extra \(2,\), which the model lacks"),
        (lambda s: s["head.bias"].fill_(float("nan")), "head.bias holds values that are not finite"),
        (
            lambda s: s.update({"head.bias": torch.full((5,), 1e300, dtype=torch.float64)}),
            "head.bias holds values",
        ),
        (lambda s: s.update({"head.bias": torch.zeros(5, dtype=torch.int8)}), "head.bias should be torch.float32"),
        (lambda s: s.update({"head.bias": [0.0] * 5}), r"head.bias should be \(5,\), the checkpoint has \(\)"),
        (lambda s: s.update(epoch=3), r"has epoch \(\), which the model lacks"),
    ],
)
def test_a_foreign_checkpoint_names_the_first_difference_and_changes_nothing(change, says):
    model = ViT(SMALL)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = {k: v + 1 for k, v in model.state_dict().items()}
    change(state)
    with pytest.raises(ValueError, match=says):
        weights.load(model, state)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


@pytest.mark.parametrize(
    ("tag", "says"),
    [
        (
            "vit_small_patch16_224",
            r"names its training too, got 'vit_small_patch16_224'; for example vit_small_patch16_224\.",
        ),
        ("vit_unknown.v1", "timm knows no model 'vit_unknown.v1'"),
    ],
)
def test_an_incomplete_or_unknown_tag_is_refused(tag, says):
    with pytest.raises(ValueError, match=says):
        weights.from_timm(tag)


def test_another_architecture_is_refused():
    with pytest.raises(ValueError, match="resnet18 is a ResNet, not a plain ViT"):
        weights.from_timm("resnet18", pretrained=False)


def test_images_that_are_not_uint8_colour_are_refused():
    _, prepare = weights.from_timm("vit_tiny_patch16_224", pretrained=False)
    for images in (np.zeros((1, 8, 8, 3)), np.zeros((1, 8, 8), np.uint8), np.zeros((8, 8, 3), np.uint8)):
        with pytest.raises(ValueError, match="Preprocessing takes uint8 images"):
            prepare(images)
