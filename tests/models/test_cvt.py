"""CvT: equal to transformers', its parts equal to their equations, its controls what they claim to be."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from transformers import CvtConfig, CvtForImageClassification
from transformers.activations import QuickGELUActivation

from vitlab import hooks
from vitlab.models import weights
from vitlab.models.cvt import Attention, Block, ConvEmbed, ConvProjection, CvT, CvTConfig, QuickGELU
from vitlab.models.layers import DropPath
from vitlab.models.peers import cvt as peer

# transformers reads its drop-path rates at the stage's number, so a stage needs more blocks than its number.
THEIRS = {
    "three stages, kernels as published": {
        "embed_dim": (16, 24, 48),
        "depth": (1, 2, 3),
        "num_heads": (1, 2, 3),
        "num_labels": 7,
        "drop_path_rate": (0.0, 0.0, 0.0),
    },
    "two stages, no class token": {
        "num_channels": 2,
        "embed_dim": (12, 20),
        "depth": (1, 2),
        "num_heads": (3, 2),
        "patch_sizes": (3, 3),
        "patch_stride": (2, 2),
        "patch_padding": (1, 1),
        "kernel_qkv": (5, 5),
        "padding_q": (2, 2),
        "padding_kv": (2, 2),
        "stride_kv": (3, 3),
        "mlp_ratio": (3.0, 3.0),
        "qkv_bias": (False, False),
        "cls_token": (False, False),
        "drop_rate": (0.0, 0.0),
        "attention_drop_rate": (0.0, 0.0),
        "drop_path_rate": (0.0, 0.0),
        "qkv_projection_method": ("dw_bn", "dw_bn"),
        "num_labels": 5,
    },
}
SMALL = {
    "image_size": 32,
    "classes": 5,
    "dims": (8, 12, 16),
    "depths": (1, 1, 2),
    "heads": (1, 2, 4),
    "kernels": (3, 3, 3),
    "strides": (2, 2, 2),
    "paddings": (1, 1, 1),
}
FEW = {"kernels": (3, 3), "strides": (2, 2), "paddings": (1, 1)}


def randomise(model: nn.Module) -> None:
    """Random weights everywhere: norms, biases and the statistics of the batch norms included."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            nn.init.uniform_(buffer, 0.5, 1.5)


def pair(size: str, seed: int) -> tuple[CvT, nn.Module]:
    """Theirs with random weights, and ours with the same."""
    torch.manual_seed(seed)
    theirs = CvtForImageClassification(CvtConfig(**THEIRS[size]))
    randomise(theirs)
    ours = CvT(peer.config_of(theirs))
    weights.load(ours, peer.renamed(theirs.state_dict()))
    return ours, theirs


def scores(theirs: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Their class scores; without a class token theirs runs only where it is asked for hidden states too."""
    return theirs(images, output_hidden_states=True).logits


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("size", THEIRS)
@pytest.mark.parametrize("image", [(48, 48), (37, 61)])
def test_logits_gradients_and_statistics_equal_transformers(image, size, fused, training, batch, seed):
    """The logits to the bit where attention is computed alike; the rest to rounding, here in float64."""
    ours, theirs = pair(size, seed)
    for model in (ours, theirs):
        model.train(training)
    for block in ours.blocks:
        block.attn.fused_attn = fused
    images = torch.randn(batch, ours.config.channels, *image)
    logits, expected = ours(images), scores(theirs, images)
    assert logits.std() > 0.1
    if fused:
        assert torch.allclose(logits, expected, atol=1e-5, rtol=1e-5)
    else:
        assert torch.equal(logits, expected)
    ours, theirs, images = ours.double(), theirs.double(), images.double()
    weights.load(ours, peer.renamed(theirs.state_dict()))  # training has moved the statistics
    logits, expected = ours(images), scores(theirs, images)
    assert torch.allclose(logits, expected, atol=1e-12, rtol=1e-12)
    for out in (logits, expected):
        out.square().sum().backward()
    gradients = peer.renamed({name: p.grad for name, p in theirs.named_parameters()})
    largest = max(g.abs().max() for g in gradients.values())
    for name, parameter in ours.named_parameters():
        assert torch.allclose(parameter.grad, gradients[name], atol=1e-13 * largest, rtol=1e-9), name
    buffers = peer.renamed(dict(theirs.named_buffers()))
    for name, buffer in ours.named_buffers():
        assert torch.allclose(buffer, buffers[name], atol=1e-12, rtol=1e-12), name


@pytest.mark.parametrize(
    ("name", "theirs", "millions"),
    [
        ("cvt_13", {}, 20),
        ("cvt_21", {"depth": (1, 4, 16)}, 32),
        ("cvt_w24", {"embed_dim": (192, 768, 1024), "depth": (2, 2, 20), "num_heads": (3, 12, 16)}, 277),
    ],
)
def test_named_sizes_have_transformers_layout_and_the_published_number_of_parameters(name, theirs, millions):
    """The published code's table of models: 20 M, 32 M and 277 M."""
    with torch.device("meta"):
        ours = CvT(getattr(CvTConfig, name)())
        model = CvtForImageClassification(CvtConfig(**theirs, num_labels=1000, drop_path_rate=(0.0, 0.0, 0.0)))
    assert peer.config_of(model) == CvTConfig(**(vars(ours.config) | {"image_size": 224}))
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: v.shape for k, v in peer.renamed(model.state_dict()).items()
    }
    assert round(sum(p.numel() for p in ours.parameters()) / 1e6) == millions


def test_every_named_size_is_listed_and_takes_overrides():
    assert CvTConfig.SIZES == ("cvt_13", "cvt_21", "cvt_w24")
    for name in CvTConfig.SIZES:
        assert getattr(CvTConfig, name)(classes=3).classes == 3


def test_initialisation_has_transformers_spread_but_in_convolutions_torchs_own():
    torch.manual_seed(0)
    theirs = CvtForImageClassification(CvtConfig(depth=(1, 2, 3), drop_path_rate=(0.0, 0.0, 0.0)))
    ours = CvT(peer.config_of(theirs))
    expected = peer.renamed(dict(theirs.named_parameters()))
    convolutions = 0
    for name, parameter in ours.named_parameters():
        if parameter.ndim == 4 or name.endswith("patch_embed.proj.bias"):
            inputs = ours.get_parameter(name.replace("bias", "weight"))[0].numel()
            spread = 1 / math.sqrt(3 * inputs)  # uniform within one over the root of the inputs
            convolutions += 1
        else:
            spread = expected[name].std().item()
        assert parameter.std().item() == pytest.approx(spread, rel=0.15, abs=1e-5), name
    assert convolutions == 3 * 2 + 6 * 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kernel_qkv": (3, 3, 5)}, r"kernel_qkv should be 3 in every stage, got \[3, 3, 5\]"),
        ({"stride_kv": (1, 2, 2)}, "stride_kv should be 1 in every stage"),
        ({"stride_q": (1, 1, 2)}, "stride_q should be 1"),
        ({"padding_q": (1, 1, 0)}, "padding_q should be 1"),
        ({"padding_kv": (0, 0, 0)}, "padding_kv should be 1"),
        ({"qkv_projection_method": ("avg", "avg", "avg")}, "qkv_projection_method should be dw_bn"),
        ({"mlp_ratio": (4.0, 4.0, 2.0)}, "mlp_ratio should be 4.0"),
        ({"cls_token": (False, True, True)}, "Only the last stage may have a class token"),
        ({"drop_path_rate": (0.1, 0.0, 0.1)}, "Only the last stage may drop paths"),
    ],
)
def test_a_peer_with_what_ours_lacks_is_refused(change, says):
    class Theirs:
        config = CvtConfig(**change)
        num_labels = 2

    with pytest.raises(ValueError, match=says):
        peer.config_of(Theirs())


class TestEquations:
    def test_equation_1_gives_the_grid_of_every_embedding(self):
        """Equation 1: rows = (height + 2 p - kernel) // stride + 1, at every stage and for odd sides."""
        model = CvT(CvTConfig(dims=(4, 4, 4), depths=(1, 1, 1), heads=(1, 1, 1))).eval()
        assert CvTConfig().grids(224, 224) == [(56, 56), (28, 28), (14, 14)]
        assert CvTConfig().grid == (14, 14)
        for height, width in ((17, 64), (30, 31), (41, 50)):
            seen = []
            handles = [
                s.patch_embed.register_forward_hook(lambda *a, seen=seen: seen.append(a[2].shape[1:3]))
                for s in model.stages
            ]
            tokens = model.forward_features(torch.randn(1, 3, height, width))
            for handle in handles:
                handle.remove()
            assert [tuple(s) for s in seen] == model.config.grids(height, width)
            assert tokens.shape[1] == 1 + math.prod(seen[-1])

    def test_the_embedding_is_a_linear_map_of_overlapping_windows_then_a_norm(self):
        """Section 3.1, in plain loops."""
        torch.manual_seed(0)
        embed = ConvEmbed(CvTConfig(dims=(6, 6, 6), heads=(1, 1, 1), channels=2), 0).double()
        randomise(embed)
        images = torch.randn(1, 2, 9, 13, dtype=torch.float64)
        out = embed(images)
        assert out.shape == (1, 2, 3, 6)
        padded = torch.zeros(2, 13, 17, dtype=torch.float64)
        padded[:, 2:11, 2:15] = images[0]
        for r in range(2):
            for c in range(3):
                window = padded[:, 4 * r : 4 * r + 7, 4 * c : 4 * c + 7]
                y = torch.stack([(w * window).sum() for w in embed.proj.weight]) + embed.proj.bias
                y = (y - y.mean()) / (y.var(unbiased=False) + 1e-5).sqrt()
                assert torch.allclose(out[0, r, c], y * embed.norm.weight + embed.norm.bias, atol=1e-12)

    def test_equation_2_every_channel_looks_at_its_own_neighbours(self):
        """Equation 2, Conv2d(Reshape2D(x), s): depthwise, zeros at the border, then normalised."""
        torch.manual_seed(0)
        projection = ConvProjection(3, 3, 2, "zeros").double().eval().requires_grad_(False)
        randomise(projection)
        x = torch.randn(1, 3, 4, 5, dtype=torch.float64)
        out = projection(x)
        assert out.shape == (1, 3, 2, 3)
        bn = projection.bn
        for d in range(3):
            for r in range(2):
                for c in range(3):
                    total = 0.0
                    for i in range(3):
                        for j in range(3):
                            row, column = 2 * r + i - 1, 2 * c + j - 1
                            if 0 <= row < 4 and 0 <= column < 5:
                                total += float(projection.conv.weight[d, 0, i, j] * x[0, d, row, column])
                    total = (total - float(bn.running_mean[d])) / math.sqrt(float(bn.running_var[d]) + 1e-5)
                    assert float(out[0, d, r, c]) == pytest.approx(
                        total * float(bn.weight[d]) + float(bn.bias[d]), abs=1e-12
                    )

    @pytest.mark.parametrize("fused", [True, False])
    def test_attention_is_scaled_by_the_whole_width_and_the_class_token_skips_the_convolutions(self, fused):
        """softmax(q k / sqrt(dim)) v, head by head; the class token's q, k and v come from itself alone."""
        torch.manual_seed(0)
        attention = Attention(CvTConfig(dims=(4, 6), depths=(1, 1), heads=(1, 3), **FEW), 1)
        attention.double().eval().requires_grad_(False)
        randomise(attention)
        attention.fused_attn = fused
        x = torch.randn(1, 1 + 12, 6, dtype=torch.float64)
        out = attention(x, (3, 4))
        image = x[:, 1:].reshape(1, 3, 4, 6).permute(0, 3, 1, 2)
        q, k, v = (
            linear(torch.cat([x[0, :1], local(image)[0].flatten(1).T]))
            for local, linear in (
                (attention.conv_proj_q, attention.proj_q),
                (attention.conv_proj_k, attention.proj_k),
                (attention.conv_proj_v, attention.proj_v),
            )
        )
        assert q.shape == (13, 6)
        assert k.shape == v.shape == (1 + 2 * 2, 6)
        gathered = torch.empty(13, 6, dtype=torch.float64)
        for head in range(3):
            d = slice(2 * head, 2 * head + 2)
            for i in range(13):
                e = [math.exp(float(q[i, d] @ k[j, d]) / math.sqrt(6)) for j in range(5)]
                gathered[i, d] = sum(w / sum(e) * v[j, d] for j, w in enumerate(e))
        assert torch.allclose(out[0], attention.proj(gathered), atol=1e-12)

    def test_quick_gelu_is_transformers_and_takes_the_place_of_gelu(self):
        x = torch.linspace(-6, 6, 101)
        assert torch.equal(QuickGELU()(x), QuickGELUActivation()(x))
        plain, quick = (CvT(CvTConfig(**SMALL, activation=a)).eval() for a in ("gelu", "quick_gelu"))
        quick.load_state_dict(plain.state_dict())
        assert {type(b.mlp.act) for b in plain.blocks} == {nn.GELU}
        assert {type(b.mlp.act) for b in quick.blocks} == {QuickGELU}
        images = torch.randn(1, 3, 32, 32)
        difference = (plain(images) - quick(images)).abs().max()
        assert 0 < difference < 0.01

    def test_a_dropped_path_leaves_the_residual_stream_whole(self):
        """x + 0: where transformers multiplies x itself by the mask."""
        torch.manual_seed(0)
        block = Block(CvTConfig(**SMALL), 0, 1 - 1e-9)
        x = torch.randn(4, 16, 8)
        assert torch.equal(block(x, (4, 4)), x)
        assert not torch.equal(block.eval()(x, (4, 4)), x)

    def test_drop_path_rises_through_the_last_stage_only(self):
        model = CvT(CvTConfig(**(SMALL | {"depths": (2, 2, 3)}), drop_path=0.2))
        rates = [getattr(block.drop_path1, "rate", 0.0) for block in model.blocks]
        assert rates == pytest.approx([0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.2])
        assert isinstance(model.blocks[-1].drop_path2, DropPath)


class TestControls:
    def scores_and_tokens(self, shift: int, **options):
        """What a model says of an image and of the image rolled by `shift`; its tokens rolled back."""
        torch.manual_seed(0)
        model = CvT(CvTConfig(**SMALL, **options)).double()
        randomise(model)
        model.eval()
        image = torch.randn(1, 3, 32, 32, dtype=torch.float64)
        rolled = image.roll((shift, shift), (2, 3))
        a, b = model.forward_features(image), model.forward_features(rolled)
        prefix = a.shape[1] - 16
        back = b[:, prefix:].unflatten(1, (4, 4)).roll((-shift // 8, -shift // 8), (1, 2)).flatten(1, 2)
        return model.forward_head(a), model.forward_head(b), a[:, prefix:], back

    @pytest.mark.parametrize("projection", ["conv", "linear"])
    @pytest.mark.parametrize("pool", ["cls", "mean"])
    def test_on_a_circle_a_rolled_image_has_the_same_scores_and_rolled_tokens(self, pool, projection):
        """Total stride 8, keys at every second token: 16 pixels are a symmetry, 8 are not."""
        options = {"padding": "circular", "pool": pool, "projection": projection}
        scores, moved, tokens, back = self.scores_and_tokens(16, **options)
        assert torch.allclose(scores, moved, atol=1e-11)
        assert torch.allclose(tokens, back, atol=1e-11)
        assert not torch.allclose(*self.scores_and_tokens(8, **options)[:2], atol=1e-6)
        every = self.scores_and_tokens(8, kv_stride=1, **options)
        assert torch.allclose(every[0], every[1], atol=1e-11)
        assert torch.allclose(every[2], every[3], atol=1e-11)

    @pytest.mark.parametrize("options", [{}, {"padding": "circular", "positions": True}])
    def test_a_border_or_positions_tell_where_a_token_is(self, options):
        scores, moved, _, _ = self.scores_and_tokens(16, **options)
        assert not torch.allclose(scores, moved, atol=1e-6)

    def test_positions_are_added_after_every_embedding_and_fix_the_image_size(self):
        without, model = (CvT(CvTConfig(**SMALL, positions=p)).eval() for p in (False, True))
        shapes = [tuple(stage.pos_embed.shape) for stage in model.stages]
        assert shapes == [(1, 16, 16, 8), (1, 8, 8, 12), (1, 4, 4, 16)]
        model.load_state_dict(without.state_dict(), strict=False)
        for stage in model.stages:
            assert stage.pos_embed.std().item() == pytest.approx(0.02, rel=0.2)
            nn.init.zeros_(stage.pos_embed)
        images = torch.randn(2, 3, 32, 32)
        assert torch.equal(model(images), without(images))
        for stage in model.stages:
            before = model(images)
            nn.init.normal_(stage.pos_embed)
            assert not torch.allclose(model(images), before)
        without(torch.zeros(1, 3, 40, 33))
        with pytest.raises(ValueError, match=r"takes images \(batch, 3, 32, 32\), got \(1, 3, 40, 33\)"):
            model(torch.zeros(1, 3, 40, 33))

    def test_a_linear_projection_is_a_convolution_of_one_pixel(self):
        """The convolution whose kernel is 1 at its centre and 0 around, without its norm."""
        linear, conv = (CvT(CvTConfig(**SMALL, projection=p)).double().eval() for p in ("linear", "conv"))
        assert not any(isinstance(m, nn.BatchNorm2d) for m in linear.modules())
        conv.load_state_dict(linear.state_dict(), strict=False)
        for block in conv.blocks:
            for local in (block.attn.conv_proj_q, block.attn.conv_proj_k, block.attn.conv_proj_v):
                nn.init.dirac_(local.conv.weight, groups=local.conv.groups)
                local.bn.eps = 0.0
        images = torch.randn(2, 3, 37, 30, dtype=torch.float64)
        assert torch.allclose(linear(images), conv(images), atol=1e-13)

    def test_mean_pooling_has_no_class_token_and_averages(self):
        model = CvT(CvTConfig(**SMALL, pool="mean")).eval()
        images = torch.randn(2, 3, 32, 32)
        tokens = model.forward_features(images)
        assert model.cls_token is None
        assert tokens.shape == (2, 16, 16)
        assert torch.equal(model(images), model.head(tokens.mean(1)))


class TestUse:
    def test_blocks_are_listed_in_depth_and_registered_once(self):
        model = CvT(CvTConfig(**SMALL))
        assert [b.norm1.normalized_shape[0] for b in model.blocks] == [8, 12, 16, 16]
        assert model.blocks[2] is model.stages[2].blocks[0]
        assert not any(name.startswith("blocks") for name in model.state_dict())

    def test_taps_read_the_weights_of_every_attention_the_class_tokens_first(self):
        model = CvT(CvTConfig(**SMALL)).eval()
        images = torch.randn(2, 3, 32, 32)
        expected = model(images)
        names = hooks.names(model)
        assert names[-2:] == ["cls", "cls_norm"]
        with hooks.taps(model, names) as seen:
            assert torch.allclose(model(images), expected, atol=1e-6)
        assert all(block.attn.fused_attn for block in model.blocks)
        shapes = [tuple(seen[f"attn.{i}"].shape) for i in range(4)]
        assert shapes == [(2, 1, 256, 64), (2, 2, 64, 16), (2, 4, 17, 5), (2, 4, 17, 5)]
        for i in range(4):
            assert torch.allclose(seen[f"attn.{i}"].sum(-1), torch.ones(()), atol=1e-5)
        assert seen["pos_embed"].shape == (2, 256, 8)
        assert seen["block.3"].shape == (2, 17, 16)
        assert torch.equal(seen["cls"], seen["block.3"][:, 0])
        assert torch.equal(model.head(seen["cls_norm"]), model.forward_head(model.norm(seen["block.3"])))

    def test_attention_dropout_falls_on_the_weights_in_training(self):
        model = CvT(CvTConfig(**SMALL, attention_dropout=0.5))
        images = torch.randn(2, 3, 32, 32)
        for fused in (True, False):
            for block in model.blocks:
                block.attn.fused_attn = fused
            assert not torch.equal(model.train()(images), model(images))
            assert torch.equal(model.eval()(images), model(images))

    def test_autocast_to_bf16_is_finite_forward_and_backward(self):
        model = CvT(CvTConfig(**SMALL))
        images = torch.randn(2, 3, 32, 32)
        for fused in (True, False):
            for block in model.blocks:
                block.attn.fused_attn = fused
            with torch.autocast("cpu", torch.bfloat16):
                scores = model(images)
            scores.float().square().sum().backward()
            assert scores.isfinite().all()
            assert all(p.grad.isfinite().all() for p in model.parameters())

    def test_without_classes_the_head_hands_on_the_class_token(self):
        model = CvT(CvTConfig(**(SMALL | {"classes": 0}))).eval()
        images = torch.randn(2, 3, 32, 32)
        assert torch.equal(model(images), model.forward_features(images)[:, 0])


class TestBadInput:
    @pytest.mark.parametrize(
        ("images", "says"),
        [
            (torch.zeros(1, 1, 32, 32), r"takes images \(batch, 3, height, width\), got \(1, 1, 32, 32\)"),
            (torch.zeros(1, 32, 32, 3), r"got \(1, 32, 32, 3\); resize or reorder the axes"),
            (torch.zeros(3, 32, 32), r"got \(3, 32, 32\)"),
            (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "got torch.uint8; divide by 255"),
            (torch.zeros(1, 3, 0, 32), "An image of 0 x 32 is too small"),
        ],
    )
    def test_images_that_do_not_fit(self, images, says):
        with pytest.raises(ValueError, match=says):
            CvT(CvTConfig(**SMALL))(images)

    @pytest.mark.parametrize(
        ("sizes", "says"),
        [
            ({"image_size": 0}, "at least 1"),
            ({"channels": -3}, "at least 1"),
            ({"classes": -1}, "at least 1"),
            ({"kv_stride": 0}, "at least 1"),
            ({"mlp_ratio": 0.0}, "at least 1"),
            ({"depths": (1, 0, 2)}, r"at least 1, got depths \(1, 0, 2\)"),
            ({"strides": (0, 2, 2)}, r"at least 1, got strides \(0, 2, 2\)"),
            ({"paddings": (1, -1, 1)}, r"at least 1, got paddings \(1, -1, 1\)"),
            ({"heads": (1, 2)}, r"one number a stage, got dims \(8, 12, 16\), heads \(1, 2\)"),
            ({"dims": ()}, r"one number a stage, got dims \(\), dims \(\)"),
            ({"heads": (1, 5, 4)}, r"multiple of its number of heads, got \(8, 12, 16\) and \(1, 5, 4\)"),
            ({"projection_kernel": 4}, "projection_kernel is odd, got 4"),
            ({"projection": "avg"}, 'projection is "conv" or "linear", got \'avg\''),
            ({"activation": "relu"}, 'activation is "gelu" or "quick_gelu"'),
            ({"padding": "reflect"}, 'padding is "zeros" or "circular"'),
            ({"pool": "max"}, 'pool is "cls" or "mean"'),
            ({"image_size": 4, "kernels": (9, 3, 3)}, r"4 x 4 is too small for kernels \(9, 3, 3\) at strides"),
            ({"image_size": 2, "paddings": (3, 1, 1), "padding": "circular"}, "2 x 2 is too small"),
            ({"image_size": 8, "projection_kernel": 5, "padding": "circular"}, "8 x 8 is too small"),
        ],
    )
    def test_sizes_that_do_not_fit(self, sizes, says):
        with pytest.raises(ValueError, match=says):
            CvTConfig(**(SMALL | sizes))

    def test_the_smallest_image_on_a_circle_runs(self):
        config = CvTConfig(**(SMALL | {"image_size": 16, "projection_kernel": 5, "padding": "circular"}))
        assert config.grid == (2, 2)
        assert CvT(config).eval()(torch.zeros(1, 3, 16, 16)).shape == (1, 5)
