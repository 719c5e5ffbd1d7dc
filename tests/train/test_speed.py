"""Operations in closed form, and a peak that is one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from toys import assert_same, one_sentence, vit, weights

from vitlab import train
from vitlab.models.convnet import ConvNet, ConvNetConfig
from vitlab.models.convstem import ConvStemViT

CPU = torch.device("cpu")


class TestFlops:
    """Forward, gradient of the weights, gradient of the input: each layer three times, the first one twice."""

    def test_of_linear_layers(self):
        images = torch.randn(5, 30)
        assert train.flops(nn.Linear(30, 7), images) == 2 * (2 * 30 * 7)
        assert train.flops(nn.Linear(30, 7, bias=False), images) == 2 * (2 * 30 * 7)
        two = nn.Sequential(nn.Linear(30, 20), nn.GELU(), nn.Linear(20, 7))
        assert train.flops(two, images) == 2 * (2 * 30 * 20) + 3 * (2 * 20 * 7)

    @pytest.mark.parametrize(("stride", "side"), [(1, 16), (2, 8)])
    def test_of_convolutions(self, stride, side):
        images = torch.randn(2, 3, 16, 16)
        one = nn.Conv2d(3, 8, 3, stride=stride, padding=1)
        forward = 2 * side**2 * 8 * 3 * 9
        assert train.flops(one, images) == 2 * forward
        assert train.flops(nn.Sequential(one, nn.Conv2d(8, 4, 1)), images) == 2 * forward + 3 * 2 * side**2 * 4 * 8

    def test_of_a_vit_with_its_attention(self):
        model = vit()  # 16 wide, 2 blocks, 4 patches and a class token
        tokens, dim = 5, 16
        patches = 2 * 4 * (3 * 16) * dim
        linear = 2 * tokens * (3 * dim * dim + dim * dim + 8 * dim * dim)
        attention = 2 * (2 * tokens * tokens * dim)
        expected = 2 * patches + 3 * (2 * (linear + attention) + 2 * dim * 3)
        assert train.flops(model, torch.randn(4, 3, 8, 8)) == expected

    def test_each_image_counts_alike(self):
        model = vit(ConvStemViT)
        assert train.flops(model, torch.randn(2, 3, 8, 8)) == train.flops(model, torch.randn(6, 3, 8, 8))

    def test_all_scores_of_a_network_count(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.cls, self.dist = nn.Linear(30, 20), nn.Linear(20, 7), nn.Linear(20, 7)

            def forward(self, x):
                x = self.body(x)
                return self.cls(x), self.dist(x)

        assert train.flops(Two(), torch.randn(5, 30)) == 2 * (2 * 30 * 20) + 2 * 3 * (2 * 20 * 7)

    def test_frozen_layers_cost_less(self):
        two = nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 7))
        two[0].requires_grad_(False)
        assert train.flops(two, torch.randn(5, 30)) == 1 * (2 * 30 * 20) + 2 * (2 * 20 * 7)

    def test_counting_changes_nothing(self):
        model = ConvNet(ConvNetConfig(classes=3, widths=(4, 8), convolutions=1)).eval()
        before = weights(model)
        train.flops(model, torch.randn(4, 3, 8, 8))
        assert_same(weights(model), before)
        assert not model.training and all(p.grad is None for p in model.parameters())


class TestPeak:
    def test_it_is_positive_and_grows_with_what_a_product_can_use(self):
        assert 0 < train.peak(CPU, size=8) < train.peak(CPU, size=256) < 1e15

    def test_fp16_is_not_for_a_cpu(self):
        with pytest.raises(ValueError, match="fp16 needs a CUDA device"):
            train.peak(CPU, "fp16", 8)

    def test_share(self):
        assert train.share_of_peak(100.0, 2e6, 1e9) == pytest.approx(0.2)

    @pytest.mark.parametrize("numbers", [(0.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, 0.0)])
    def test_a_share_of_nothing(self, numbers):
        with pytest.raises(ValueError, match="Speed, operations and peak are positive") as caught:
            train.share_of_peak(*numbers)
        one_sentence(caught.value)
