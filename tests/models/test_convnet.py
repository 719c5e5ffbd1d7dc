"""The ConvNet: its size, its stride, its border, bad input."""

from __future__ import annotations

import pytest
import torch

from vitlab.models.convnet import ConvNet, ConvNetConfig
from vitlab.models.vit import ViT, ViTConfig


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_it_is_as_large_as_the_vit_it_is_compared_with():
    vit = ViT(ViTConfig(image_size=32, patch_size=4, dim=96, depth=6, heads=3, classes=100))
    assert count(ConvNet(ConvNetConfig())) == pytest.approx(count(vit), rel=0.02)


@pytest.mark.parametrize("widths", [(8,), (8, 16), (8, 16, 32)])
def test_the_map_has_the_stride_the_configuration_says(widths):
    config = ConvNetConfig(widths=widths)
    features = ConvNet(config).eval().forward_features(torch.randn(2, 3, 32, 32))
    assert features.shape == (2, widths[-1], 32 // config.stride, 32 // config.stride)


@pytest.mark.parametrize(("padding", "exact"), [("circular", True), ("zeros", False)])
def test_only_a_circular_border_commutes_with_circular_shifts(padding, exact):
    torch.manual_seed(0)
    config = ConvNetConfig(widths=(6, 8, 10), padding=padding)
    model = ConvNet(config).double().eval()
    images = torch.randn(1, 3, 32, 32, dtype=torch.float64)
    moved = model.forward_features(images.roll(2 * config.stride, -1))
    expected = model.forward_features(images).roll(2, -1)
    assert torch.allclose(moved, expected, atol=1e-12) is exact


def test_bad_input_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"takes images \(batch, 3, height, width\), got \(3, 32, 32\)"):
        ConvNet(ConvNetConfig())(torch.zeros(3, 32, 32))
    with pytest.raises(ValueError, match="stages of positive width"):
        ConvNetConfig(widths=())
    with pytest.raises(ValueError, match="padding is"):
        ConvNetConfig(padding="mirror")
