"""Reach and fields of stacks whose answer is known by counting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from vitlab.analysis import receptive as rf
from vitlab.models.vit import ViT, ViTConfig

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.manual_seed(0))


def stack(layers, activation=nn.Identity):
    """Convolutions without padding, so that a field is never cut by the border."""
    torch.manual_seed(0)
    widths = [3] + [4] * len(layers)
    parts = []
    for i, (kernel, stride) in enumerate(layers):
        parts += [nn.Conv2d(widths[i], widths[i + 1], kernel, stride), activation()]
    return nn.Sequential(*parts)


def first_pixel(layers, unit):
    jump = int(np.prod([s for _, s in layers]))
    return unit[0] * jump, unit[1] * jump


@pytest.mark.parametrize(
    ("layers", "fields"),
    [
        ([(3, 1)], [3]),
        ([(3, 1), (3, 1), (3, 1)], [3, 5, 7]),
        ([(3, 2), (3, 2), (3, 2)], [3, 7, 15]),
        ([(7, 2), (3, 2), (3, 1), (1, 1)], [7, 11, 19, 19]),
        ([(4, 4)], [4]),
        ([], []),
    ],
)
def test_theoretical_field_by_the_recursion(layers, fields):
    """r_l = r_{l-1} + (k_l - 1) * the product of the strides before it."""
    assert rf.theoretical_field(layers) == fields


@settings(deadline=None, max_examples=25)
@given(layers=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2)), min_size=1, max_size=3))
def test_graph_and_gradient_reach_of_convolutions_equal_the_theory(layers):
    size = rf.theoretical_field(layers)[-1]
    net = stack(layers)
    # A stride above the kernel skips pixels: the field is then a box with holes, of the theory's extent.
    graph = rf.graph_reach(net, IMAGES, (1, 1))
    assert rf.extent(graph) == (size, size)
    assert tuple(np.argwhere(graph)[0]) == first_pixel(layers, (1, 1))
    np.testing.assert_array_equal(rf.reach(rf.input_gradient(net, IMAGES, (1, 1), draws=3)), graph)


def test_graph_reach_does_not_depend_on_weights_and_gradient_reach_does():
    net = stack([(3, 1), (3, 1)])
    for p in net.parameters():
        nn.init.zeros_(p)
    assert rf.extent(rf.graph_reach(net, IMAGES, (4, 4))) == (5, 5)
    with pytest.raises(ValueError, match="zero everywhere"):
        rf.reach(rf.input_gradient(net, IMAGES, (4, 4)))
    net[0].weight.data[:, :, 1, 1] = 1
    net[2].weight.data[:, :, 1, 1] = 1
    assert rf.extent(rf.reach(rf.input_gradient(net, IMAGES, (4, 4)))) == (1, 1)
    assert rf.extent(rf.graph_reach(net, IMAGES, (4, 4))) == (5, 5)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Tanh])
def test_graph_reach_through_nonlinearities(activation):
    images = torch.randn(8, 3, 32, 32, generator=torch.manual_seed(1))
    graph = rf.graph_reach(stack([(3, 2), (3, 1), (3, 1)], activation), images, (3, 3))
    assert graph.sum() == rf.theoretical_field([(3, 2), (3, 1), (3, 1)])[-1] ** 2 == 11**2


def test_graph_reach_is_exact_where_winograd_would_smear():
    """Wide 3 x 3 convolutions at stride 1 are what fast algorithms take; NaN must not leak out of the field."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1))
    graph = rf.graph_reach(net, IMAGES, (16, 16))
    want = np.zeros((32, 32), bool)
    want[14:19, 14:19] = True
    np.testing.assert_array_equal(graph, want)


def test_a_vit_reaches_every_pixel_after_one_block_and_one_patch_before_it():
    torch.manual_seed(0)
    model = ViT(ViTConfig(image_size=32, patch_size=8, dim=24, depth=2, heads=2, classes=5)).eval()
    own = np.zeros((32, 32), bool)
    own[8:16, 16:24] = True  # patch (1, 2) of 4 x 4, token 1 + 6 after CLS
    np.testing.assert_array_equal(rf.graph_reach(model.embed, IMAGES, 7), own)
    assert rf.graph_reach(lambda x: model.blocks[0](model.embed(x)), IMAGES, 7).all()
    assert rf.graph_reach(model, IMAGES, 3).all()  # a logit
    assert rf.reach(rf.input_gradient(model.forward_features, IMAGES, 7)).all()


def test_attention_in_windows_stays_in_its_window():
    """Two windows of 16 px: attention within each, by reshaping; a mask would count as a path for the graph."""
    embed = nn.Conv2d(3, 4, 4, 4)

    def windows(x):
        t = embed(x).unflatten(2, (2, 4)).unflatten(4, (2, 4))  # (b, d, wy, 4, wx, 4)
        t = t.permute(0, 2, 4, 3, 5, 1).flatten(3, 4)  # (b, wy, wx, 16, d)
        t = (t @ t.mT).softmax(-1) @ t
        return t.flatten(1, 3)

    want = np.zeros((32, 32), bool)
    want[:16, 16:] = True
    np.testing.assert_array_equal(rf.graph_reach(windows, IMAGES, 16 + 3), want)
    np.testing.assert_array_equal(rf.reach(rf.input_gradient(windows, IMAGES, 16 + 3)), want)

    def masked(x):
        t = embed(x).flatten(2).mT
        window = torch.arange(64) // 32
        scores = (t @ t.mT).masked_fill(window[:, None] != window, float("-inf"))
        return scores.softmax(-1) @ t

    top = np.zeros((32, 32), bool)
    top[:16] = True
    np.testing.assert_array_equal(rf.reach(rf.input_gradient(masked, IMAGES, 5)), top)
    assert rf.graph_reach(masked, IMAGES, 5).all()


def test_input_gradient_of_a_linear_map_by_hand():
    """One output channel is w . x, so |du/dx| is |w| times the mean of |normal|, summed over colours."""
    w = torch.tensor([[1.0, -2.0], [0.0, 4.0]])

    def fn(x):
        return (x * w).sum((1, 2, 3))[:, None]

    gradient = rf.input_gradient(fn, torch.zeros(50, 3, 2, 2), 0, draws=40)
    np.testing.assert_allclose(gradient / gradient[0, 0], w.abs(), rtol=1e-6)
    assert gradient[0, 0] == pytest.approx(3 * np.sqrt(2 / np.pi), rel=0.05)


def test_a_layer_norm_does_not_hide_the_field():
    """Its channels sum to a constant, so the gradient of the plain sum would be zero."""
    norm = nn.LayerNorm(8)

    def fn(x):
        return norm(embed(x).flatten(2).mT)

    torch.manual_seed(0)
    embed = nn.Conv2d(3, 8, 8, 8)
    assert rf.input_gradient(fn, IMAGES, 5).max() > 1e-3
    np.testing.assert_array_equal(rf.input_gradient(fn, IMAGES, 5), rf.input_gradient(fn, IMAGES, 5))
    assert not np.array_equal(rf.input_gradient(fn, IMAGES, 5), rf.input_gradient(fn, IMAGES, 5, seed=1))


def test_a_random_deep_stack_sees_a_gaussian_smaller_than_its_field():
    """Luo et al. 2016: sigma of n layers of uniform k x k weights is sqrt(n (k^2 - 1) / 12)."""
    layers = [nn.Conv2d(1, 1, 3, padding=1, bias=False) for _ in range(12)]
    for layer in layers:
        nn.init.constant_(layer.weight, 1 / 9)
    gradient = rf.input_gradient(nn.Sequential(*layers), torch.zeros(1, 1, 41, 41), (20, 20))
    sigma = np.sqrt(12 * 8 / 12)
    assert rf.gaussian_width(gradient) == pytest.approx(sigma)
    assert rf.radius(gradient, 0.95) == pytest.approx(2.45 * sigma, abs=0.5)
    assert rf.radius(gradient, 0.5) == pytest.approx(np.sqrt(2 * np.log(2)) * sigma, abs=0.5)
    assert rf.extent(rf.reach(gradient)) == (25, 25) == (rf.theoretical_field([(3, 1)] * 12)[-1],) * 2


def test_gaussian_width_and_radius_of_a_drawn_gaussian():
    y, x = np.indices((101, 121))
    g = np.exp(-((y - 40) ** 2 + (x - 60) ** 2) / (2 * 6.0**2))
    assert rf.gaussian_width(g) == pytest.approx(6, rel=1e-6)
    assert rf.radius(torch.from_numpy(g)) == pytest.approx(6 * np.sqrt(-2 * np.log(0.05)), abs=0.3)
    assert rf.gaussian_width(g, centre=(40, 68)) == pytest.approx(np.sqrt(36 + 64 / 2), rel=1e-6)


def test_radius_by_counting():
    g = np.zeros((5, 5))
    g[2, 2], g[2, 3], g[0, 2] = 5, 3, 2
    assert [rf.radius(g, m, centre=(2, 2)) for m in (0.5, 0.51, 0.8, 0.81, 1)] == [0, 1, 1, 2, 2]
    assert rf.radius(np.ones((1, 3)), 1) == 1


def test_reach_with_a_threshold_and_extent():
    g = np.array([[0.0, 0.1, 1.0], [0.0, 0.0, 0.5]])
    assert rf.reach(g).sum() == 3 and rf.reach(g, 0.1).sum() == 2 and rf.reach(g, 0.5).sum() == 1
    assert rf.extent(rf.reach(g)) == (2, 2) and rf.extent(np.zeros((3, 3))) == (0, 0)


def test_neither_images_nor_weights_keep_a_gradient():
    net, images = stack([(3, 1)]), IMAGES.clone()
    with torch.no_grad():  # a chapter may have it on
        rf.graph_reach(net, images, (1, 1))
        rf.input_gradient(net, images.numpy(), (1, 1))
    assert images.grad is None and not images.requires_grad and all(p.grad is None for p in net.parameters())
    assert torch.backends.mkldnn.enabled and torch.backends.cudnn.enabled


@pytest.mark.filterwarnings("error")
def test_backends_are_put_back_after_an_error_and_nothing_warns():
    with pytest.raises(ValueError, match="outside"):
        rf.graph_reach(stack([(3, 1)]), IMAGES, (99, 1))
    assert torch.backends.mkldnn.enabled and torch.backends.cudnn.enabled
    rf.graph_reach(stack([(3, 1)]), IMAGES, (9, 1))


def detached(x):
    return x.mean(1).detach()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rf.graph_reach(stack([(3, 1)]), IMAGES[0], (1, 1)), r"\(batch, channels, height, width\)"),
        (lambda: rf.graph_reach(stack([(3, 1)]), IMAGES.int(), (1, 1)), "floats"),
        (lambda: rf.graph_reach(stack([(3, 1)]), IMAGES, 1), "A unit is"),
        (lambda: rf.graph_reach(stack([(3, 1)]), IMAGES, (1, 30)), "outside the output's places"),
        (lambda: rf.input_gradient(detached, IMAGES, 3), "lost its gradient"),
        (lambda: rf.input_gradient(lambda x: x.flatten(1) * np.inf, IMAGES, 3), "NaN or infinity"),
        (lambda: rf.input_gradient(stack([(3, 1)]), IMAGES, (1, 1), draws=0), "one draw"),
        (lambda: rf.radius(np.zeros((3, 3))), "zero everywhere"),
        (lambda: rf.radius(-np.ones((3, 3))), "not negative"),
        (lambda: rf.radius(np.ones(3)), "height, width"),
        (lambda: rf.radius(np.ones((3, 3)), 95), "share"),
        (lambda: rf.reach(np.ones((3, 3)), 1), "threshold"),
        (lambda: rf.extent(np.ones(3)), "height, width"),
        (lambda: rf.theoretical_field([(0, 1)]), "kernel, stride"),
    ],
)
def test_bad_input_gets_one_sentence(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)
