"""PVT v2: equal to timm's to rounding, its parts equal to their equations, bad input refused in a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import timm
import torch
from timm.models.pvt_v2 import OverlapPatchEmbed as TimmPatchEmbed
from timm.models.pvt_v2 import PyramidVisionTransformerV2
from torch import Tensor, nn

from vitlab import hooks
from vitlab.models import weights
from vitlab.models.peers import pvt_v2 as peer
from vitlab.models.pvt_v2 import Attention, ConvMLP, OverlapPatchEmbed, PVTv2, PVTv2Config

SIZES = {
    "32 px": {
        "image_size": 32,
        "strides": (2, 2, 2),
        "dims": (16, 24, 32),
        "depths": (2, 1, 2),
        "heads": (1, 2, 4),
        "sr_ratios": (4, 2, 1),
        "mlp_ratios": (4, 3, 2),
        "classes": 7,
    },
    "64 px": {
        "image_size": 64,
        "dims": (8, 16, 24, 32),
        "depths": (1, 2, 1, 1),
        "heads": (1, 2, 3, 4),
        "qkv_bias": False,
        "classes": 5,
        "channels": 2,
    },
    "32 px linear": {
        "image_size": 32,
        "strides": (2, 2, 2),
        "dims": (16, 24, 32),
        "depths": (1, 2, 1),
        "heads": (1, 2, 4),
        "sr_ratios": (1, 1, 1),
        "mlp_ratios": (4, 3, 2),
        "classes": 7,
        "linear": True,
    },
}


def theirs_of(config: PVTv2Config) -> nn.Module:
    """timm's PVT v2 of the same sizes."""
    theirs = PyramidVisionTransformerV2(
        in_chans=config.channels,
        num_classes=config.classes,
        depths=config.depths,
        embed_dims=config.dims,
        num_heads=config.heads,
        sr_ratios=config.sr_ratios,
        mlp_ratios=config.mlp_ratios,
        qkv_bias=config.qkv_bias,
        linear=config.linear,
    )
    if config.strides[0] != 4:  # timm's first stride is always 4, and the others 2
        stride = config.strides[0]
        theirs.patch_embed = TimmPatchEmbed(2 * stride - 1, stride, config.channels, config.dims[0])
    return theirs


def pair(config: PVTv2Config, seed: int) -> tuple[PVTv2, nn.Module]:
    """Our PVT v2 and timm's, with the same random weights everywhere, biases and norms included."""
    torch.manual_seed(seed)
    theirs = theirs_of(config)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.2)
    ours = PVTv2(peer.config_of(theirs, config.image_size))
    weights.load(ours, peer.renamed(theirs.state_dict()))
    return ours, theirs


def published(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our weights under the names of the published code."""
    theirs = {}
    for name, weight in state.items():
        part = name.replace("dwconv.", "dwconv.dwconv.").split(".")
        if part[0] == "stages":
            stage, kind = int(part[1]) + 1, {"blocks": "block", "downsample": "patch_embed"}.get(part[2], part[2])
            part = [f"{kind}{stage}", *part[3:]]
        elif part[0] == "patch_embed":
            part[0] = "patch_embed1"
        theirs[".".join(part)] = weight
    return theirs


def agree(ours: PVTv2, theirs: nn.Module, images: Tensor) -> None:
    """Logits and all gradients equal but for rounding: timm copies maps between stages, which reorders sums."""
    logits, expected = ours(images), theirs(images)
    assert torch.allclose(logits, expected, rtol=0, atol=1e-6 * expected.abs().max().item())
    for out in (logits, expected):
        out.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    largest = max(gradient.abs().max().item() for gradient in gradients.values())
    for name, parameter in ours.named_parameters():
        assert torch.allclose(parameter.grad, gradients[name], rtol=0, atol=1e-6 * largest), name


def choose(ours: PVTv2, theirs: nn.Module, *, fused: bool, training: bool) -> None:
    for model in (ours, theirs):
        model.train(training)
    for block in [*ours.blocks, *(block for stage in theirs.stages for block in stage.blocks)]:
        block.attn.fused_attn = fused


@pytest.mark.parametrize("size", SIZES)
def test_the_configuration_is_read_off_the_peer(size):
    config = PVTv2Config(**SIZES[size])
    assert peer.config_of(theirs_of(config), config.image_size) == config


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_logits_and_gradients_equal_timms(size, fused, training, batch, seed):
    ours, theirs = pair(PVTv2Config(**SIZES[size]), seed)
    choose(ours, theirs, fused=fused, training=training)
    c = ours.config
    agree(ours, theirs, torch.randn(batch, c.channels, c.image_size, c.image_size))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("sides", [(33, 33), (37, 53), (32, 41)])
@pytest.mark.parametrize("size", SIZES)
def test_images_of_odd_sizes_too(size, sides, fused):
    ours, theirs = pair(PVTv2Config(**SIZES[size]), 0)
    choose(ours, theirs, fused=fused, training=False)
    agree(ours, theirs, torch.randn(2, ours.config.channels, *sides))


@pytest.mark.parametrize("more", [(0, 0), (5, 21)])
@pytest.mark.parametrize("size", SIZES)
def test_in_float64_every_gradient_differs_by_rounding_alone(size, more):
    ours, theirs = pair(PVTv2Config(**SIZES[size]), 0)
    sides = [ours.config.image_size + pixels for pixels in more]
    images = torch.randn(2, ours.config.channels, *sides, dtype=torch.float64)
    logits, expected = ours.double()(images), theirs.double()(images)
    assert torch.allclose(logits, expected, rtol=0, atol=1e-13 * expected.abs().max().item())
    for out in (logits, expected):
        out.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        tolerance = 1e-11 * gradients[name].abs().max().item()
        assert torch.allclose(parameter.grad, gradients[name], rtol=0, atol=tolerance), name


@pytest.mark.parametrize(
    ("name", "tag", "millions"),
    [("b0", "pvt_v2_b0", 3.7), ("b2", "pvt_v2_b2", 25.4), ("b2_linear", "pvt_v2_b2_li", 22.6)],
)
def test_named_sizes_have_timms_layout_and_the_published_parameters(name, tag, millions):
    with torch.device("meta"):
        ours = PVTv2(getattr(PVTv2Config, name)())
        theirs = timm.create_model(tag)
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: v.shape for k, v in theirs.state_dict().items()
    }
    assert sum(p.numel() for p in ours.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)
    assert peer.config_of(theirs).linear == (name == "b2_linear")


def test_every_named_size_is_listed_and_takes_overrides():
    assert PVTv2Config.SIZES == ("b0", "b2", "b2_linear")
    for name in PVTv2Config.SIZES:
        assert getattr(PVTv2Config, name)(classes=3).classes == 3


def test_published_checkpoints_load():
    ours, _ = pair(PVTv2Config(**SIZES["64 px"]), 0)
    state = published(ours.state_dict())
    assert {"patch_embed3.proj.weight", "block2.1.mlp.dwconv.dwconv.bias", "norm4.bias"} <= set(state)
    other = PVTv2(ours.config)
    weights.load(other, peer.renamed(state))
    images = torch.randn(1, 2, 64, 64)
    assert torch.equal(ours.eval()(images), other.eval()(images))


class TestUnreadablePeers:
    def test_features_ours_lacks(self):
        with pytest.raises(ValueError, match="PyramidVisionTransformerV2, got Linear"):
            peer.config_of(nn.Linear(1, 1))
        theirs = theirs_of(PVTv2Config(**SIZES["64 px"]))
        theirs.global_pool = ""
        with pytest.raises(ValueError, match="averages all tokens, the peer pools"):
            peer.config_of(theirs)
        theirs = theirs_of(PVTv2Config(**SIZES["64 px"]))
        theirs.head_drop.p = 0.1
        with pytest.raises(ValueError, match=r"drops 0\.1 before its head"):
            peer.config_of(theirs)
        theirs = theirs_of(PVTv2Config(**SIZES["64 px"]))
        theirs.stages[0].blocks[0].norm1.eps = 1e-5
        with pytest.raises(ValueError, match="eps 1e-05, ours with 1e-6"):
            peer.config_of(theirs)
        theirs = theirs_of(PVTv2Config(**SIZES["64 px"]))
        theirs.patch_embed = TimmPatchEmbed(5, 4, 2, 8)
        with pytest.raises(ValueError, match="the peer 5 for a stride of 4"):
            peer.config_of(theirs)


def test_initialisation_has_timms_spread():
    torch.manual_seed(0)
    config = PVTv2Config(dims=(64, 96, 128, 160), heads=(1, 2, 4, 5), linear=True)
    ours, theirs = PVTv2(config), dict(theirs_of(config).named_parameters())
    for name, parameter in ours.named_parameters():
        assert parameter.std().item() == pytest.approx(theirs[name].std().item(), rel=0.15, abs=1e-5), name
        assert parameter.mean().item() == pytest.approx(theirs[name].mean().item(), abs=0.02), name


class TestEquations:
    def config(self, **changes: object) -> PVTv2Config:
        return PVTv2Config(**(SIZES["32 px"] | changes))

    def test_patches_overlap(self):
        """Section 3.3: stride S, kernel 2S - 1, padding S - 1, token by token, at an odd size."""
        torch.manual_seed(0)
        embed = OverlapPatchEmbed(4, 2, 6).double()
        images = torch.randn(1, 2, 13, 18, dtype=torch.float64)
        out = embed(images)
        assert out.shape == (1, 4, 5, 6)  # ceil(13 / 4), ceil(18 / 4)
        for row in range(4):
            for column in range(5):
                y = embed.proj.bias.clone()
                for i in range(-3, 4):
                    for j in range(-3, 4):
                        h, w = 4 * row + i, 4 * column + j
                        if 0 <= h < 13 and 0 <= w < 18:
                            y = y + embed.proj.weight[:, :, i + 3, j + 3] @ images[0, :, h, w]
                y = (y - y.mean()) / (y.var(unbiased=False) + 1e-5).sqrt()
                assert torch.allclose(out[0, row, column], y, atol=1e-12)

    @pytest.mark.parametrize("relu", [False, True])
    def test_the_mlp_sees_the_eight_tokens_around(self, relu):
        """Section 3.4: linear, 3 x 3 depthwise convolution on zero padding, GELU, linear, token by token."""
        torch.manual_seed(0)
        mlp = ConvMLP(4, 8, 0.0, relu=relu).double()
        x = torch.randn(1, 3 * 5, 4, dtype=torch.float64)
        hidden = mlp.fc1(x)[0].reshape(3, 5, 8)
        hidden = hidden.clamp(min=0) if relu else hidden
        out = mlp(x, (3, 5))
        for row in range(3):
            for column in range(5):
                y = mlp.dwconv.bias.clone()
                for i in (-1, 0, 1):
                    for j in (-1, 0, 1):
                        if 0 <= row + i < 3 and 0 <= column + j < 5:
                            y = y + mlp.dwconv.weight[:, 0, i + 1, j + 1] * hidden[row + i, column + j]
                y = y * (1 + torch.erf(y / math.sqrt(2))) / 2
                expected = y @ mlp.fc2.weight.T + mlp.fc2.bias
                assert torch.allclose(out[0, 5 * row + column], expected, atol=1e-12)

    @pytest.mark.parametrize(("grid", "pool"), [((14, 14), 7), ((9, 16), 7), ((4, 5), 7), ((6, 6), 3)])
    def test_the_linear_variant_averages_cells_of_a_fixed_grid(self, grid, pool):
        """Section 3.2: cell c of P covers floor(c n / P) to ceil((c + 1) n / P); then linear, norm, GELU."""
        torch.manual_seed(0)
        attention = Attention(PVTv2Config(**(SIZES["32 px linear"] | {"pool": pool})), 0).double()
        rows, columns = grid
        x = torch.randn(1, rows * columns, 16, dtype=torch.float64)
        square = x[0].reshape(rows, columns, 16)
        reduced = attention.reduce(x, grid)
        assert reduced.shape == (1, pool * pool, 16)
        for r in range(pool):
            for c in range(pool):
                up, down = r * rows // pool, -(-(r + 1) * rows // pool)
                left, right = c * columns // pool, -(-(c + 1) * columns // pool)
                mean = square[up:down, left:right].mean(dim=(0, 1))
                y = attention.sr.weight[:, :, 0, 0] @ mean + attention.sr.bias
                y = (y - y.mean()) / (y.var(unbiased=False) + 1e-5).sqrt()
                y = y * (1 + torch.erf(y / math.sqrt(2))) / 2
                assert torch.allclose(reduced[0, pool * r + c], y, atol=1e-12)

    def test_rows_beyond_the_last_whole_window_are_not_seen(self):
        """The reduction has no padding: at 9 x 10 tokens and R = 4, nobody is answered by the ninth row."""
        torch.manual_seed(0)
        attention = Attention(self.config(), 0)
        x = torch.randn(1, 90, 16, requires_grad=True)
        reduced = attention.reduce(x, (9, 10))
        assert reduced.shape == (1, 4, 16)
        reduced.square().sum().backward()
        seen = x.grad[0].abs().amax(dim=1).reshape(9, 10) > 0
        assert seen[:8, :8].all()
        assert not seen[8:].any()
        assert not seen[:, 8:].any()

    def test_the_number_of_keys_does_not_grow_with_a_linear_models_images(self):
        model = PVTv2(PVTv2Config(**SIZES["32 px linear"])).eval()
        for side in (32, 64):
            with hooks.taps(model, ["attn.0"]) as seen:
                model(torch.randn(1, 3, side, side))
            assert seen["attn.0"].shape == (1, 1, (side // 2) ** 2, 49)

    def test_only_padding_tells_positions_apart(self):
        """On a constant image tokens differ; with the border's zeros replaced by what is inside, they do not."""
        torch.manual_seed(0)
        model = PVTv2(self.config()).double().eval()
        image = torch.full((1, 3, 32, 32), 0.7, dtype=torch.float64)
        assert model.forward_features(image).std(dim=(2, 3)).max() > 1e-3
        for module in model.modules():
            if isinstance(module, nn.Conv2d) and module.padding[0]:
                module.padding_mode = "replicate"
                module._reversed_padding_repeated_twice = [module.padding[0]] * 4
        assert model.forward_features(image).std(dim=(2, 3)).max() < 1e-12

    def test_the_mean_token_is_read(self):
        model = PVTv2(self.config())
        x = torch.randn(2, 32, 3, 5)
        assert torch.allclose(model.forward_head(x), model.head(x.flatten(2).mean(dim=2)), atol=1e-6)

    def test_drop_path_rises_with_depth_over_all_stages_as_in_timm(self):
        model = PVTv2(self.config(drop_path=0.4))
        rates = [getattr(block.drop_path1, "rate", 0.0) for block in model.blocks]
        assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
        theirs = PyramidVisionTransformerV2(depths=(2, 1, 2, 1), drop_path_rate=0.4)
        assert peer.config_of(theirs).drop_path == pytest.approx(0.4)


class TestUse:
    def test_blocks_are_listed_in_depth_and_registered_once(self):
        model = PVTv2(PVTv2Config(**SIZES["32 px"]))
        assert [id(block) for block in model.blocks] == [id(b) for stage in model.stages for b in stage.blocks]
        assert not any(name.startswith("blocks.") for name in model.state_dict())

    def test_taps_see_the_weights_of_every_attention(self):
        model = PVTv2(PVTv2Config(**SIZES["32 px"])).eval()
        images = torch.randn(2, 3, 32, 32)
        wanted = ["patch_embed", "attn.0", "attn.2", "attn.4", "block.4"]
        assert set(wanted) <= set(hooks.names(model))
        with hooks.taps(model, wanted) as seen:
            logits = model(images)
        assert {name: tuple(seen[name].shape) for name in wanted} == {
            "patch_embed": (2, 256, 16),
            "attn.0": (2, 1, 256, 16),
            "attn.2": (2, 2, 64, 16),
            "attn.4": (2, 4, 16, 16),
            "block.4": (2, 16, 32),
        }
        assert torch.allclose(seen["attn.2"].sum(-1), torch.ones(()), atol=1e-6)
        assert torch.allclose(logits, model(images), atol=1e-5)

    @pytest.mark.parametrize("size", ["32 px", "32 px linear"])
    def test_autocast_to_bfloat16_is_finite_and_trains(self, size):
        model = PVTv2(PVTv2Config(**SIZES[size], dropout=0.1, attention_dropout=0.1, drop_path=0.1))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(torch.randn(2, 3, 32, 32))
        logits.float().square().sum().backward()
        assert logits.isfinite().all()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())

    def test_without_classes_the_features_come_out(self):
        model = PVTv2(PVTv2Config(**(SIZES["32 px"] | {"classes": 0}))).eval()
        images = torch.randn(2, 3, 32, 32)
        assert torch.equal(model(images), model.forward_features(images).mean(dim=(2, 3)))

    def test_the_smallest_side_is_the_smallest(self):
        assert PVTv2Config.b0().smallest_side == 29
        assert PVTv2Config.b2_linear().smallest_side == 1
        config = PVTv2Config(**SIZES["32 px"])
        assert config.smallest_side == 7
        model = PVTv2(config).eval()
        assert model(torch.randn(1, 3, 7, 7)).shape == (1, 7)
        with pytest.raises(ValueError, match="sides of at least 7, got 9 x 6"):
            model(torch.randn(1, 3, 9, 6))
        attention = model.blocks[0].attn
        with pytest.raises(RuntimeError):  # what the sentence spares the reader
            attention(torch.randn(1, 5 * 3, 16), (5, 3))


class TestBadInput:
    @pytest.mark.parametrize(
        ("images", "says"),
        [
            (torch.zeros(1, 1, 32, 32), r"takes images \(batch, 3, height, width\), got \(1, 1, 32, 32\)"),
            (torch.zeros(1, 32, 32, 3), r"got \(1, 32, 32, 3\); resize or reorder the axes"),
            (torch.zeros(3, 32, 32), r"got \(3, 32, 32\)"),
            (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "floating-point images, got torch.uint8"),
        ],
    )
    def test_images_that_do_not_fit(self, images, says):
        with pytest.raises(ValueError, match=says):
            PVTv2(PVTv2Config(**SIZES["32 px"]))(images)

    @pytest.mark.parametrize(
        ("sizes", "says"),
        [
            ({"image_size": 6}, "sides of at least 7, got 6 x 6; enlarge them"),
            ({"heads": (1, 5, 4)}, "multiple of the number of heads, got 24 and 5"),
            ({"depths": (2, 2)}, "one entry a stage, got 3, 3, 2, 3, 3, 3 entries"),
            ({"depths": (2, 0, 1)}, "at least 1"),
            ({"strides": (2, 0, 2)}, "at least 1"),
            ({"sr_ratios": (4, -2, 1)}, "at least 1"),
            ({"mlp_ratios": (4, 0, 1)}, "at least 1"),
            ({"pool": 0}, "at least 1"),
            ({"channels": 0}, "at least 1"),
            ({"classes": -1}, "at least 1"),
        ],
    )
    def test_sizes_that_do_not_fit(self, sizes, says):
        with pytest.raises(ValueError, match=says):
            PVTv2Config(**(SIZES["32 px"] | sizes))
