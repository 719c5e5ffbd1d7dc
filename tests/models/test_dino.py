"""DINO's network: a ViT on crops of any size, equal to timm's, and a head that compares directions alone."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from timm.layers import resample_abs_pos_embed
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from vitlab.models.dino import DINO, CropViT, DINOConfig, DINOHead, HeadConfig, resize_positions
from vitlab.models.vit import ViT, ViTConfig

SMALL = ViTConfig(image_size=32, patch_size=4, dim=24, depth=2, heads=3, classes=0)
HEAD = HeadConfig(outputs=10, bottleneck=6, hidden=20, layers=3)


def one_sentence(error: BaseException) -> str:
    text = str(error)
    assert text.endswith(".") and ". " not in text and "\n" not in text, text
    return text


def build(config: ViTConfig = SMALL, head: HeadConfig = HEAD, seed: int = 0) -> DINO:
    """A network whose positions and class token matter, which at first they hardly do."""
    torch.manual_seed(seed)
    model = DINO(DINOConfig(config, head))
    for name, p in model.backbone.named_parameters():
        if p.ndim == 1 or name in ("pos_embed", "cls_token"):
            nn.init.normal_(p, mean=float("norm" in name and "weight" in name), std=0.5)
    return model


def draw(*size: int, batch: int = 3, seed: int = 5) -> torch.Tensor:
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(seed))


def peer(config: ViTConfig, backbone: CropViT) -> VisionTransformer:
    """timm's ViT for images of any size, with these weights."""
    c = config
    theirs = VisionTransformer(
        img_size=c.image_size,
        patch_size=c.patch_size,
        embed_dim=c.dim,
        depth=c.depth,
        num_heads=c.heads,
        num_classes=0,
        class_token=c.pool == "cls",
        global_pool="token" if c.pool == "cls" else "avg",
        fc_norm=False,
        dynamic_img_size=True,
    )
    theirs.load_state_dict(backbone.state_dict())
    return theirs.eval()


class TestPositions:
    @pytest.mark.parametrize("prefix", [0, 1, 5])
    @pytest.mark.parametrize("new", [(3, 3), (8, 8), (14, 14), (1, 1), (6, 2), (5, 9), (16, 7)])
    def test_they_are_resized_as_timm_does(self, prefix, new):
        positions = torch.randn(1, prefix + 56, 12, generator=torch.Generator().manual_seed(1))
        theirs = resample_abs_pos_embed(
            positions, new_size=list(new), old_size=[7, 8], num_prefix_tokens=prefix, antialias=True
        )
        ours = resize_positions(positions, (7, 8), new)
        assert ours.shape == (1, prefix + new[0] * new[1], 12)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)

    def test_a_grid_of_the_same_size_stays_as_it_is(self):
        positions = torch.randn(1, 50, 4)
        assert resize_positions(positions, (7, 7), (7, 7)) is positions

    def test_the_shape_of_the_grid_counts_and_not_the_number_of_its_patches(self):
        positions = torch.randn(1, 16, 4, generator=torch.Generator().manual_seed(2))
        assert not torch.allclose(resize_positions(positions, (2, 8), (4, 4)), positions, atol=0.1)

    @pytest.mark.parametrize("new", [(3, 5), (7, 7), (12, 12)])
    def test_what_is_alike_everywhere_stays_so_and_the_class_token_is_left_alone(self, new):
        positions = torch.cat([torch.full((1, 1, 4), 9.0), torch.full((1, 49, 4), 2.5)], 1)
        ours = resize_positions(positions, (7, 7), new)
        torch.testing.assert_close(ours[:, 1:], torch.full((1, new[0] * new[1], 4), 2.5))
        assert torch.equal(ours[:, :1], positions[:, :1])

    def test_rows_stay_rows(self):
        """A slope from top to bottom becomes a slope from top to bottom."""
        slope = torch.arange(8.0).view(8, 1).expand(8, 8).reshape(1, 64, 1)
        ours = resize_positions(slope, (8, 8), (4, 2)).view(4, 2)
        assert torch.equal(ours[:, 0], ours[:, 1]) and (ours[1:] > ours[:-1] + 1).all()

    def test_half_precision_stays_half_precision(self):
        positions = torch.randn(1, 17, 4, generator=torch.Generator().manual_seed(3))
        ours = resize_positions(positions.bfloat16(), (4, 4), (3, 3))
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours.float(), resize_positions(positions, (4, 4), (3, 3)), rtol=0, atol=0.05)


class TestCropViT:
    @pytest.mark.parametrize(
        "changes", [{}, {"pool": "mean"}, {"positions": False}, {"classes": 5}, {"dropout": 0.2}]
    )
    def test_it_is_the_plain_vit_at_its_own_size_to_the_bit(self, changes):
        config = replace(SMALL, **changes)
        torch.manual_seed(3)
        plain = ViT(config)
        torch.manual_seed(3)
        ours = CropViT(config)
        assert ours.state_dict().keys() == plain.state_dict().keys()
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), plain.parameters(), strict=True))
        x = draw(32, 32)
        for model in (plain, ours):
            torch.manual_seed(4)  # for dropout
            model(x).square().sum().backward()
        torch.manual_seed(4)
        theirs = plain(x)
        torch.manual_seed(4)
        assert torch.equal(ours(x), theirs)
        for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
            assert a.grad is b.grad is None or torch.equal(a.grad, b.grad)

    @pytest.mark.parametrize("pool", ["cls", "mean"])
    @pytest.mark.parametrize("size", [(32, 32), (12, 12), (16, 16), (4, 4), (8, 20), (28, 12), (40, 40)])
    def test_it_is_timms_on_crops_of_any_size(self, size, pool):
        config = replace(SMALL, pool=pool)
        model = build(config).eval()
        theirs = peer(config, model.backbone)
        x = draw(*size)
        torch.testing.assert_close(
            model.backbone.forward_features(x), theirs.forward_features(x), rtol=0, atol=1e-5
        )
        torch.testing.assert_close(model.features(x), theirs(x), rtol=0, atol=1e-5)

    @pytest.mark.parametrize("side", [12, 32])
    def test_so_are_its_gradients_those_of_the_positions_too(self, side):
        model = build()
        theirs = peer(SMALL, model.backbone)
        x = draw(side, side)
        weight = torch.randn(3, SMALL.dim, generator=torch.Generator().manual_seed(6))
        (model.features(x) * weight).sum().backward()
        (theirs(x) * weight).sum().backward()
        expected = dict(theirs.named_parameters())
        assert model.backbone.pos_embed.grad.abs().max() > 1e-2
        for name, p in model.backbone.named_parameters():
            torch.testing.assert_close(p.grad, expected[name].grad, rtol=1e-4, atol=2e-5, msg=name)

    def test_without_positions_a_crop_is_a_bag_of_patches(self):
        model = build(replace(SMALL, positions=False)).eval()
        x = draw(8, 16)
        moved = torch.cat([x[..., 8:], x[..., :8]], -1)
        torch.testing.assert_close(model.features(x), model.features(moved), rtol=0, atol=1e-5)
        placed = build().eval()
        assert (placed.features(x) - placed.features(moved)).abs().max() > 1e-3

    @pytest.mark.parametrize(
        ("images", "says"),
        [
            (torch.zeros(2, 3, 30, 32), r"whole patches of 4 px, got \(30, 32\); choose sides"),
            (torch.zeros(2, 3, 32, 13), r"whole patches of 4 px, got \(32, 13\)"),
            (torch.zeros(2, 3, 0, 4), r"whole patches of 4 px, got \(0, 4\)"),
            (torch.zeros(2, 3, 3, 3), r"whole patches of 4 px, got \(3, 3\)"),
            (torch.zeros(2, 1, 32, 32), r"\(batch, 3, height, width\), got \(2, 1, 32, 32\)"),
            (torch.zeros(3, 32, 32), r"\(batch, 3, height, width\), got \(3, 32, 32\)"),
            (torch.zeros(2, 3, 32, 32, dtype=torch.uint8), "divide by 255"),
        ],
    )
    def test_other_images_are_refused_in_one_sentence(self, images, says):
        with pytest.raises(ValueError, match=says) as caught:
            CropViT(SMALL)(images)
        one_sentence(caught.value)


def official(head: DINOHead, dim: int, config: HeadConfig) -> nn.Sequential:
    """The same head of torch's own parts: an MLP, the unit sphere, a weight-normed layer with its gain at one."""

    class Sphere(nn.Module):
        def forward(self, x):
            return x / x.norm(dim=-1, keepdim=True)

    widths = [dim, *[config.hidden] * (config.layers - 1), config.bottleneck] if config.layers else [dim]
    layers = []
    for i in range(config.layers):
        layers += [nn.Linear(widths[i], widths[i + 1])] + ([nn.GELU()] if i < config.layers - 1 else [])
    last = weight_norm(nn.Linear(widths[-1], config.outputs, bias=False))
    with torch.no_grad():
        for ours, theirs in zip(head.mlp, layers, strict=True):
            theirs.load_state_dict(ours.state_dict())
        last.parametrizations.weight.original0.fill_(1.0)
        last.parametrizations.weight.original1.copy_(head.last_layer.weight)
    last.parametrizations.weight.original0.requires_grad_(False)
    return nn.Sequential(*layers, Sphere(), last)


class TestHead:
    @pytest.mark.parametrize("layers", [0, 1, 2, 3, 5])
    def test_it_is_an_mlp_a_sphere_and_a_weight_normed_layer_with_gain_one(self, layers):
        config = replace(HEAD, layers=layers)
        torch.manual_seed(0)
        head = DINOHead(24, config)
        for p in head.parameters():
            nn.init.normal_(p, std=0.4)
        theirs = official(head, 24, config)
        x = torch.randn(7, 24, generator=torch.Generator().manual_seed(1))
        weight = torch.randn(7, 10, generator=torch.Generator().manual_seed(2))
        ours_x, their_x = x.clone().requires_grad_(), x.clone().requires_grad_()
        ours, expected = head(ours_x), theirs(their_x)
        assert ours.shape == (7, 10)
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)
        (ours * weight).sum().backward()
        (expected * weight).sum().backward()
        torch.testing.assert_close(ours_x.grad, their_x.grad, rtol=1e-5, atol=1e-6)
        learned = [p for p in theirs.parameters() if p.requires_grad]
        assert len(learned) == len(list(head.parameters())) == 2 * layers + 1
        for a, b in zip(head.parameters(), learned, strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-6)

    def test_with_no_layers_it_compares_the_features_themselves(self):
        head = DINOHead(24, replace(HEAD, layers=0))
        assert [tuple(p.shape) for p in head.parameters()] == [(10, 24)]
        x = torch.randn(4, 24, generator=torch.Generator().manual_seed(1))
        expected = torch.stack([F.cosine_similarity(x, row.expand(4, -1)) for row in head.last_layer.weight], 1)
        torch.testing.assert_close(head(x), expected, rtol=0, atol=1e-6)

    def test_its_outputs_are_cosines_and_no_length_counts(self):
        torch.manual_seed(0)
        head = DINOHead(24, HEAD)
        x = torch.randn(50, 24)
        before = head(x)
        assert before.abs().max() <= 1 + 1e-6
        with torch.no_grad():
            head.last_layer.weight.mul_(torch.linspace(0.1, 30, 10).view(-1, 1))
        torch.testing.assert_close(head(x), before, rtol=0, atol=1e-6)

    def test_it_begins_with_a_narrow_mlp_and_directions_of_any_length(self):
        torch.manual_seed(0)
        head = DINOHead(64, HeadConfig(outputs=500, bottleneck=32, hidden=200))
        for layer in head.mlp[::2]:
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05) and not layer.bias.any()
        bound = 32**-0.5  # torch's own layer: uniform within one over the root of the width
        weight = head.last_layer.weight
        assert 0.99 * bound < weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)

    @pytest.mark.parametrize(
        "sizes", [{"outputs": 1}, {"outputs": 0}, {"bottleneck": 0}, {"hidden": 0}, {"hidden": -4}, {"layers": -1}]
    )
    def test_odd_sizes_are_refused(self, sizes):
        with pytest.raises(ValueError, match="two outputs or more and positive widths, got HeadConfig") as caught:
            HeadConfig(**sizes)
        one_sentence(caught.value)


class TestViews:
    @pytest.mark.parametrize(
        "sizes",
        [
            [(32, 32)],
            [(32, 32)] * 2,
            [(32, 32)] * 2 + [(12, 12)] * 3,
            [(12, 12), (32, 32), (12, 12)],
            [(8, 16), (16, 8)],
        ],
    )
    def test_each_view_gets_what_it_would_get_alone_in_their_order(self, sizes):
        model = build().eval()
        views = [draw(*size, seed=i) for i, size in enumerate(sizes)]
        outputs = model(views)
        assert outputs.shape == (len(views), 3, 10)
        for view, output in zip(views, outputs, strict=True):
            for image, cosines in zip(view, output, strict=True):
                alone = model.head(model.backbone(image[None]))[0]
                torch.testing.assert_close(cosines, alone, rtol=0, atol=1e-5)

    def test_views_of_one_size_go_through_the_backbone_together(self):
        model = build()
        seen = []
        model.backbone.register_forward_pre_hook(lambda _, given: seen.append(tuple(given[0].shape)))
        model([draw(32, 32), draw(32, 32), draw(12, 12), draw(12, 12), draw(12, 12)])
        assert seen == [(6, 3, 32, 32), (9, 3, 12, 12)]

    def test_one_tensor_is_one_view(self):
        model = build().eval()
        x = draw(32, 32)
        assert torch.equal(model(x), model([x])) and torch.equal(model([x]), model((x,)))
        assert model(x).shape == (1, 3, 10)

    @pytest.mark.parametrize(
        ("views", "says"),
        [
            ([], r"got \[\] images in the views"),
            ([draw(32, 32), draw(12, 12, batch=2)], r"got \[3, 2\] images in the views; give every view"),
            ([draw(12, 12), draw(12, 12, batch=1), draw(12, 12)], r"got \[3, 1, 3\]"),
        ],
    )
    def test_views_of_other_images_are_refused(self, views, says):
        with pytest.raises(ValueError, match=says) as caught:
            build()(views)
        one_sentence(caught.value)


class TestConfig:
    def test_small_is_the_papers(self):
        config = DINOConfig.small()
        with torch.device("meta"):
            model = DINO(config)
            theirs = VisionTransformer(embed_dim=384, num_heads=6, num_classes=0)
        count = sum(p.numel() for p in model.backbone.parameters())
        assert count == sum(p.numel() for p in theirs.parameters()) == 21_665_664
        assert {n: p.shape for n, p in model.backbone.named_parameters()} == {
            n: p.shape for n, p in theirs.named_parameters()
        }
        assert {name: tuple(p.shape) for name, p in model.head.named_parameters()} == {
            "mlp.0.weight": (2048, 384),
            "mlp.0.bias": (2048,),
            "mlp.2.weight": (2048, 2048),
            "mlp.2.bias": (2048,),
            "mlp.4.weight": (256, 2048),
            "mlp.4.bias": (256,),
            "last_layer.weight": (65_536, 256),
        }

    def test_parts_of_it_can_be_changed(self):
        config = DINOConfig.small(HEAD, image_size=64, patch_size=8, drop_path=0.1)
        assert config.head == HEAD and config.vit.dim == 384 and config.vit.grid == (8, 8)
        assert config.vit.drop_path == 0.1 and config.vit.classes == 0

    def test_a_backbone_with_classes_is_refused(self):
        for make in (lambda: DINOConfig(ViTConfig.small()), lambda: DINOConfig.small(classes=20)):
            with pytest.raises(ValueError, match=r"no classes of its own, got \d+; set classes=0") as caught:
                make()
            one_sentence(caught.value)

    def test_the_default_is_the_small_one(self):
        assert DINOConfig() == DINOConfig.small() and not re.search("classes=[1-9]", repr(DINOConfig()))
