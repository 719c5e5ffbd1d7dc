"""The convolutional stem: the ViT's grid of tokens, made by overlapping convolutions, and the ViT after it."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
import torch
from torch import nn

from vitlab import hooks
from vitlab.models.convstem import ConvStem, ConvStemViT
from vitlab.models.vit import ViT, ViTConfig

SMALL: dict[str, Any] = {"image_size": 32, "patch_size": 4, "dim": 32, "depth": 2, "heads": 2, "classes": 7}


def pair(**sizes: Any) -> tuple[ConvStemViT, ViT]:
    """A ViT with a stem and one without, all else of the same random weights."""
    torch.manual_seed(0)
    config = ViTConfig(**(SMALL | sizes))
    ours, theirs = ConvStemViT(config), ViT(config)
    rest = {k: v for k, v in ours.state_dict().items() if not k.startswith("patch_embed")}
    assert all(key.startswith("patch_embed") for key in theirs.load_state_dict(rest, strict=False).missing_keys)
    return ours.eval(), theirs.eval()


@pytest.mark.parametrize("patch", [2, 4, 8, 16])
@pytest.mark.parametrize("channels", [1, 3])
def test_it_has_the_grid_of_the_vit(patch, channels):
    ours, theirs = pair(patch_size=patch, channels=channels)
    images = torch.randn(2, channels, 32, 32)
    assert ours.patch_embed(images).shape == theirs.patch_embed(images).shape == (2, (32 // patch) ** 2, 32)
    assert ours(images).shape == (2, 7)
    assert ours.forward_features(images).shape == theirs.forward_features(images).shape


@pytest.mark.parametrize("patch", [2, 4, 8, 16])
def test_it_has_the_parameters_of_its_layers(patch):
    """A 3 x 3 kernel without bias and a batch norm for each halving, the width doubling; then 1 x 1 with bias."""
    halvings = int(math.log2(patch))
    widths = [3, *(32 * 2**i // (patch // 2) for i in range(halvings))]
    assert widths[-1] == 32
    expected = sum(9 * a * b + 2 * b for a, b in itertools.pairwise(widths)) + 32 * 32 + 32
    assert sum(p.numel() for p in ConvStem(patch, 3, 32).parameters()) == expected


@pytest.mark.parametrize("patch", [2, 4, 8])
def test_a_token_sees_its_patch_and_the_border_above_and_left_of_it(patch):
    torch.manual_seed(0)
    stem = ConvStem(patch, 3, 64).double().eval()
    images = torch.randn(1, 3, 32, 32, dtype=torch.float64, requires_grad=True)
    columns = 32 // patch
    row, column = columns // 2, columns // 2 - 1
    stem(images)[0, row * columns + column].square().sum().backward()
    seen = images.grad[0].abs().sum(0) > 0  # (height, width)
    for axis, at in ((1, row), (0, column)):
        places = seen.any(axis).nonzero().flatten().tolist()
        assert places == list(range(patch * at - patch + 1, patch * at + patch))


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("positions", [True, False])
def test_all_after_the_stem_is_the_vit_to_the_bit(pool, positions):
    ours, theirs = pair(pool=pool, positions=positions)
    images = torch.randn(3, 3, 32, 32)
    tokens = ours.patch_embed(images)

    class Given(nn.Module):
        def forward(self, _):
            return tokens

    theirs.patch_embed = Given()
    assert torch.equal(ours(images), theirs(images))
    assert ours.state_dict().keys() - theirs.state_dict().keys() == {
        f"patch_embed.{name}" for name in ours.patch_embed.state_dict()
    }


def test_it_is_tapped_as_a_vit_is():
    ours, theirs = pair()
    images = torch.randn(2, 3, 32, 32)
    assert hooks.names(ours) == hooks.names(theirs)
    with torch.no_grad(), hooks.taps(ours, ["patch_embed", "attn.0", "block.1"]) as seen:
        ours(images)
    assert torch.equal(seen["patch_embed"], ours.patch_embed(images))
    assert seen["attn.0"].shape == (2, 2, 65, 65) and seen["block.1"].shape == (2, 65, 32)
    torch.testing.assert_close(seen["attn.0"].sum(-1), torch.ones(2, 2, 65))


def test_every_part_of_the_stem_learns():
    ours, _ = pair()
    ours.train()(torch.randn(4, 3, 32, 32)).square().sum().backward()
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_images_keep_their_variance_through_the_stem():
    torch.manual_seed(0)
    x = torch.randn(16, 3, 64, 64)
    for block in ConvStem(16, 3, 256).train().blocks:
        x = block(x)
        assert 0.2 < x.square().mean() < 1  # half of what batch norm makes 1


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"image_size": 30, "patch_size": 3}, "got 3 and 32"),
        ({"image_size": 36, "patch_size": 12}, "got 12 and 32"),
        ({"patch_size": 1}, "got 1 and 32"),
        ({"patch_size": 16, "dim": 36}, "got 16 and 36"),
    ],
)
def test_a_patch_that_is_not_halved_to_is_refused(sizes, says):
    with pytest.raises(ValueError, match=f"halves the map.* {says}; choose others.$") as caught:
        ConvStemViT(ViTConfig(**(SMALL | sizes)))
    assert len(re.findall(r"\. |\.$", str(caught.value))) == 1


@pytest.mark.parametrize("images", [torch.zeros(1, 3, 28, 28), torch.zeros(1, 1, 32, 32), torch.zeros(3, 32, 32)])
def test_images_of_another_shape_are_refused(images):
    with pytest.raises(ValueError, match=r"takes images \(batch, 3, 32, 32\), got"):
        pair()[0](images)


def test_bytes_are_refused():
    with pytest.raises(ValueError, match=r"got torch.uint8; divide by 255"):
        pair()[0](torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
