"""Peak memory against sums one can do by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vitlab.analysis.memory import peak_bytes

KB = 1024


def test_what_is_alive_at_one_time_counts_and_what_is_gone_does_not():
    x = torch.zeros(256)  # 1 KB, there before

    def chain():
        y = x + 1  # 1 KB
        for _ in range(5):
            y = y + 1  # two at a time: the old one and the new
        return y

    assert peak_bytes(chain) == 2 * KB
    assert peak_bytes(lambda: [x + i for i in range(5)]) == 5 * KB
    assert peak_bytes(lambda: x) == 0


def test_views_and_in_place_results_are_no_new_memory():
    x = torch.zeros(4, 64)
    assert peak_bytes(lambda: x.t().reshape(-1)[3:].view(-1)) == KB  # the reshape of a transposed map copies, once
    assert peak_bytes(lambda: x.view(-1)[::2].unsqueeze(0)) == 0
    assert peak_bytes(lambda: (x + 1).add_(1).mul_(2)) == KB


@pytest.mark.parametrize("depth", [1, 4, 9])
def test_training_keeps_what_each_layer_was_given_and_inference_does_not(depth):
    layers = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(depth)))
    x = torch.zeros(4, 64)  # 1 KB

    def inference():
        with torch.no_grad():
            return layers(x)

    assert peak_bytes(inference) == (1 if depth == 1 else 2) * KB

    def forward():
        return layers(x)

    assert peak_bytes(forward) == depth * KB  # each output is the next one's saved input; the last is the result


def test_the_attention_map_is_what_explicit_attention_costs():
    heads, tokens, width = 2, 128, 16
    q, k, v = torch.randn(3, 1, heads, tokens, width)
    square = heads * tokens * tokens * 4
    with torch.no_grad():
        explicit = peak_bytes(lambda: (q @ k.transpose(-2, -1)).softmax(-1) @ v)
        fused = peak_bytes(lambda: nn.functional.scaled_dot_product_attention(q, k, v))
    assert explicit == 2 * square  # scores and weights, while the softmax is taken
    assert fused < square / 2


def test_it_is_the_same_every_time():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(), nn.LazyLinear(5))
    images = torch.randn(2, 3, 16, 16)
    model(images)

    def step():
        model.zero_grad(set_to_none=True)
        model(images).square().sum().backward()

    step()
    assert len({peak_bytes(step) for _ in range(4)}) == 1


def test_it_counts_nothing_after_an_error():
    with pytest.raises(TypeError):
        peak_bytes(lambda x: x)
    assert peak_bytes(lambda: torch.zeros(256)) == KB
