"""CoAtNet: equal to timm's to rounding, its parts equal to their equations, bad input refused in a sentence."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.models.maxxvit import MaxxVit, MaxxVitCfg, MaxxVitConvCfg, MaxxVitTransformerCfg
from torch import Tensor, nn

from vitlab import hooks
from vitlab.models import weights
from vitlab.models.coatnet import (
    Attention,
    Block,
    CoAtNet,
    CoAtNetConfig,
    MBConv,
    RelativeBias,
    SqueezeExcite,
    relative_attention_weights,
    to_maps,
    to_tokens,
)
from vitlab.models.peers.coatnet import config_of, renamed

PAPER = {"image_size": 64, "classes": 7, "depths": (2, 1, 2, 1), "dims": (16, 24, 32, 64), "stem_dims": (8, 8)}
RW = {"stages": "CTT", "classes": 5, "depths": (2, 2, 1), "dims": (24, 32, 48), "stem_dims": (8, 16)}
SIZES = {
    "paper's, 64 px": CoAtNetConfig(**PAPER, head_dim=16),
    "rw, 32 px": CoAtNetConfig.coatnet_0_rw(**RW, image_size=32, stem_stride=1, head_dim=8, mlp_ratio=3.0),
}


def theirs_of(config: CoAtNetConfig) -> MaxxVit:
    """timm's CoAtNet of these sizes. Its stem always has stride 2: without, it is built as for twice the image."""
    c = config
    theirs = MaxxVit(
        MaxxVitCfg(
            embed_dim=c.dims,
            depths=c.depths,
            block_type=tuple(c.stages),
            stem_width=c.stem_dims,
            head_hidden_size=c.dims[-1] if c.hidden_head else None,
            conv_cfg=MaxxVitConvCfg(
                expand_ratio=c.expansion,
                expand_output=not c.expand_input,
                pre_norm_act=c.pre_act,
                output_bias=c.conv_bias,
                stride_mode="pool" if c.pool_first else "dw",
                attn_early=c.squeeze_early,
                attn_act_layer=c.squeeze_act,
                attn_ratio=c.squeeze_ratio,
                act_layer=c.conv_act,
            ),
            transformer_cfg=MaxxVitTransformerCfg(
                dim_head=c.head_dim,
                expand_ratio=c.mlp_ratio,
                expand_first=c.wide_attention,
                shortcut_bias=c.shortcut_bias,
                rel_pos_type="bias" if c.relative_bias else "",
            ),
        ),
        img_size=c.image_size * 2 // c.stem_stride,
        in_chans=c.channels,
        num_classes=c.classes,
    )
    theirs.stem.conv1.stride = (c.stem_stride, c.stem_stride)
    return theirs


def pair(theirs: MaxxVit, seed: int, **overrides: object) -> tuple[CoAtNet, MaxxVit]:
    """Our CoAtNet and timm's with the same random weights everywhere, norms, tables and statistics included."""
    torch.manual_seed(seed)
    for name, parameter in theirs.named_parameters():
        nn.init.normal_(parameter, mean=float("norm" in name and name.endswith("weight")), std=0.2)
    for name, buffer in theirs.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.3)
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 2.0)
    ours = CoAtNet(replace(config_of(theirs), **overrides))
    weights.load(ours, renamed(theirs.state_dict()))
    return ours, theirs


def agree(ours: CoAtNet, theirs: MaxxVit, batch: int, dtype: torch.dtype) -> None:
    """Compare logits, all gradients and, in training, the statistics of batch normalisation."""
    exact = dtype is torch.float64
    images = torch.randn(batch, ours.config.channels, *[ours.config.image_size] * 2, dtype=dtype)
    logits, expected = ours.to(dtype)(images), theirs.to(dtype)(images)
    assert (logits - expected).abs().max() <= (1e-14 if exact else 1e-5) * expected.abs().max()
    for out in (logits, expected):
        out.square().sum().backward()
    gradients = renamed({name: p.grad for name, p in theirs.named_parameters()})
    # What a batch normalisation undoes at once (the shift before a convolution that another one follows) has
    # gradient 0 in training, so that rounding is all there is to compare: hence the second, absolute term.
    floor = (1e-14 if exact else 1e-5) * max(g.abs().max() for g in gradients.values())
    for name, parameter in ours.named_parameters():
        error = (parameter.grad - gradients[name]).abs().max()
        assert error <= (1e-11 if exact else 5e-4) * gradients[name].abs().max() + floor, name
    statistics = renamed(dict(theirs.named_buffers()))
    for name, buffer in ours.named_buffers():
        assert torch.allclose(buffer, statistics[name], rtol=1e-12 if exact else 1e-5, atol=1e-6), name


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES)
def test_logits_and_gradients_equal_timms(size, dtype, fused, training, batch, seed):
    config = SIZES[size]
    ours, theirs = pair(theirs_of(config), seed, image_size=config.image_size)
    assert ours.config == config
    for model in (ours, theirs):
        model.train(training)
    for block in ours.blocks:
        block.attn.fused_attn = fused
    agree(ours, theirs, batch, dtype)


@pytest.mark.parametrize("stages", ["CTTT", "TTTT", "CCCC", "TCCT", "CCT"])
@pytest.mark.parametrize("relative_bias", [True, False])
def test_any_order_of_stages_equals_timms(stages, relative_bias):
    parts = {"depths": (1, 1, 2, 1)[: len(stages)], "dims": (16, 16, 32, 32)[: len(stages)], "classes": 3}
    config = CoAtNetConfig(64, stages=stages, stem_dims=(8, 16), head_dim=8, relative_bias=relative_bias, **parts)
    ours, theirs = pair(theirs_of(config), 0)
    agree(ours, theirs, 2, torch.float64)
    assert len(ours.blocks) == sum(d for kind, d in zip(stages, config.depths, strict=True) if kind == "T")


@pytest.mark.parametrize("tag", ["test_coatnet", "coatnet_0_224", "coatnet_0_rw_224", "coatnet_pico_rw_224"])
def test_timms_own_models_load(tag):
    ours, theirs = pair(timm.create_model(tag, img_size=64, num_classes=10).eval(), 0)
    images = torch.randn(1, 3, 64, 64, dtype=torch.float64)  # in single precision rounding decides
    with torch.no_grad():
        logits, expected = ours.double().eval()(images), theirs.double()(images)
    assert (logits - expected).abs().max() <= 1e-13 * expected.abs().max()


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("coatnet_0", 25),
        ("coatnet_0_rw", 27.4),
        ("coatnet_1", 42),
        ("coatnet_2", 75),
        ("coatnet_3", 168),
        ("coatnet_4", 275),
    ],
)
def test_named_sizes_have_timms_layout_and_the_papers_count(name, millions):
    """Dai et al. 2021, arXiv 2106.04803, table 13 (sizes 0 to 3) and 14 (size 4)."""
    assert name in CoAtNetConfig.SIZES
    config = getattr(CoAtNetConfig, name)()
    with torch.device("meta"):
        ours, theirs = CoAtNet(config), timm.create_model(f"{name}_224")
    assert config_of(theirs) == config
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: v.shape for k, v in renamed(theirs.state_dict()).items()
    }
    assert sum(p.numel() for p in ours.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


def test_all_named_sizes_are_tested():
    assert CoAtNetConfig.SIZES == ("coatnet_0", "coatnet_0_rw", "coatnet_1", "coatnet_2", "coatnet_3", "coatnet_4")


def test_initialisation_has_timms_spread():
    torch.manual_seed(0)
    config = CoAtNetConfig(64, dims=(64, 96, 128, 192), stem_dims=(64, 64), depths=(1, 1, 1, 1))
    ours, theirs = CoAtNet(config), theirs_of(config)
    expected = renamed(dict(theirs.named_parameters()))
    for name, a in ours.named_parameters():
        scale = 0.35 if a.numel() < 1000 else 0.1  # few numbers spread more
        assert a.std().item() == pytest.approx(expected[name].std().item(), rel=scale, abs=1e-9), name
        assert a.mean().item() == pytest.approx(expected[name].mean().item(), abs=0.2 * a.std().item() + 1e-9), (
            name
        )


class TestEquations:
    def test_relative_attention_adds_the_static_term_before_the_softmax(self):
        """Equation 3 (y^pre): softmax over j of q_i k_j / sqrt(d) + w[i - j], in float64 and by hand."""
        torch.manual_seed(0)
        side, heads, dim = 3, 2, 4
        q, k = torch.randn(2, 1, heads, side * side, dim, dtype=torch.float64)
        relative = RelativeBias(side, heads).double()
        nn.init.normal_(relative.relative_position_bias_table)
        table = relative.relative_position_bias_table.detach()
        expected = torch.empty(1, heads, side * side, side * side, dtype=torch.float64)
        cells = [(row, column) for row in range(side) for column in range(side)]
        for h in range(heads):
            for i, (row, column) in enumerate(cells):
                logits = []
                for j, (other_row, other_column) in enumerate(cells):
                    down, right = row - other_row + side - 1, column - other_column + side - 1
                    static = float(table[down * (2 * side - 1) + right, h])
                    logits.append(float(q[0, h, i] @ k[0, h, j]) / math.sqrt(dim) + static)
                total = sum(map(math.exp, logits))
                expected[0, h, i] = torch.tensor([math.exp(x) / total for x in logits])
        assert torch.allclose(relative_attention_weights(q, k, relative()), expected, atol=1e-14)

    def test_without_queries_relative_attention_is_a_normalised_convolution(self):
        """Equations 1 and 3: with q = 0 each cell takes exp(w[i - j]) of cell j, made to sum to 1 over the map."""
        torch.manual_seed(0)
        side = 4
        relative = RelativeBias(side, 1).double()
        nn.init.normal_(relative.relative_position_bias_table)
        values = torch.randn(1, 1, side * side, 5, dtype=torch.float64)
        zero = torch.zeros(1, 1, side * side, 5, dtype=torch.float64)
        gathered = relative_attention_weights(zero, zero, relative()) @ values
        # conv2d reads x[i + o] with kernel[o], so that its kernel at o is the window at i - j = -o.
        window = relative.relative_position_bias_table.exp().reshape(1, 1, 2 * side - 1, 2 * side - 1).flip(2, 3)
        maps = values[0].transpose(1, 2).reshape(5, 1, side, side)
        summed = F.conv2d(maps, window, padding=side - 1)
        total = F.conv2d(torch.ones(1, 1, side, side, dtype=torch.float64), window, padding=side - 1)
        assert torch.allclose(gathered[0, 0], (summed / total).flatten(1).T, atol=1e-13)

    @pytest.mark.parametrize("relative_bias", [True, False])
    def test_only_the_static_term_knows_places(self, relative_bias):
        torch.manual_seed(0)
        config = CoAtNetConfig(64, head_dim=8, relative_bias=relative_bias)
        block = Block(config, 16, 16, 4, False, 0.0).double()
        if relative_bias:
            nn.init.normal_(block.attn.rel_pos.relative_position_bias_table)
        x, order = torch.randn(1, 16, 16, dtype=torch.float64), torch.randperm(16)
        assert torch.allclose(block(x)[:, order], block(x[:, order]), atol=1e-9) != relative_bias

    def test_fused_and_explicit_attention_agree(self):
        torch.manual_seed(0)
        attention = Attention(CoAtNetConfig(64, head_dim=8), 16, 24, 3).double()
        nn.init.normal_(attention.rel_pos.relative_position_bias_table)
        x = torch.randn(2, 9, 16, dtype=torch.float64)
        fused = attention(x)
        attention.fused_attn = False
        assert torch.allclose(fused, attention(x), atol=1e-13)

    def test_an_attention_stage_begins_with_both_branches_pooled(self):
        """Equation 4: x = Proj(Pool(x)) + Attention(Pool(Norm(x))), pooling 2 x 2 cells by their mean."""
        torch.manual_seed(0)
        block = Block(CoAtNetConfig(64, head_dim=8), 16, 24, 2, True, 0.0).double()
        x = torch.randn(1, 16, 16, dtype=torch.float64)  # 4 x 4 cells

        def pool(tokens: Tensor) -> Tensor:
            groups = [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
            return torch.stack([tokens[:, group].mean(1) for group in groups], dim=1)

        weight, bias = block.shortcut.expand.weight[:, :, 0, 0], block.shortcut.expand.bias
        y = pool(x) @ weight.T + bias + block.attn(pool(block.norm1(x)))
        assert torch.allclose(block(x), y + block.mlp(block.norm2(y)), atol=1e-13)

    def test_a_convolution_stage_begins_with_a_strided_residual_branch(self):
        """Equation 5, with the stride in the depthwise convolution: one cell and one channel by hand."""
        torch.manual_seed(0)
        block = MBConv(CoAtNetConfig(64), 6, 8, True, 0.0).double().eval()
        x = torch.randn(1, 6, 4, 4, dtype=torch.float64)
        hidden = F.gelu(block.norm1(block.conv1_1x1(block.pre_norm(x))))  # (1, 32, 4, 4)
        depthwise = torch.zeros(1, 32, 2, 2, dtype=torch.float64)
        for row in range(2):
            for column in range(2):
                for a in range(3):
                    for b in range(3):
                        r, c = 2 * row + a - 1, 2 * column + b - 1
                        if 0 <= r < 4 and 0 <= c < 4:
                            depthwise[0, :, row, column] += block.conv2_kxk.weight[:, 0, a, b] * hidden[0, :, r, c]
        residual = block.conv3_1x1(block.se(F.gelu(block.norm2(depthwise))))
        pooled = x.reshape(1, 6, 2, 2, 2, 2).mean((3, 5))
        assert torch.allclose(block(x), block.shortcut.expand(pooled) + residual, atol=1e-13)

    def test_squeeze_and_excitation_is_a_gate_of_means(self):
        """Hu et al. 2018, arXiv 1709.01507, equations 2 to 4, with SiLU where they have ReLU."""
        torch.manual_seed(0)
        layer = SqueezeExcite(8, 2, "silu").double()
        x = torch.randn(2, 8, 3, 3, dtype=torch.float64)
        for b in range(2):
            means = torch.stack([x[b, channel].mean() for channel in range(8)])
            z = layer.fc1.weight[:, :, 0, 0] @ means + layer.fc1.bias
            gate = layer.fc2.weight[:, :, 0, 0] @ (z / (1 + torch.exp(-z))) + layer.fc2.bias
            expected = x[b] / (1 + torch.exp(-gate))[:, None, None]
            assert torch.allclose(layer(x)[b], expected, atol=1e-14)

    def test_maps_and_tokens_are_one_memory(self):
        maps = torch.randn(2, 5, 3, 3).contiguous(memory_format=torch.channels_last)
        tokens = to_tokens(maps)
        assert tokens.is_contiguous()
        assert tokens.data_ptr() == maps.data_ptr() == to_maps(tokens, 3).data_ptr()
        assert torch.equal(tokens[1, 5], maps[1, :, 1, 2])
        assert torch.equal(to_maps(tokens, 3), maps)

    def test_the_map_halves_at_the_stem_and_at_every_stage(self):
        config = CoAtNetConfig.coatnet_0()
        assert config.sides == (56, 28, 14, 7)
        assert config.stride == 32
        assert SIZES["rw, 32 px"].sides == (16, 8, 4)

    def test_stochastic_depth_rises_through_all_blocks(self):
        model = CoAtNet(replace(SIZES["paper's, 64 px"], drop_path=0.5))
        blocks = [block for stage in model.stages for block in stage.blocks]
        rates = [getattr(getattr(b, "drop_path", None) or b.drop_path1, "rate", 0.0) for b in blocks]
        assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])


def test_taps_fire_on_every_attention_block():
    model = CoAtNet(SIZES["paper's, 64 px"]).eval()
    assert hooks.names(model) == ["pos_embed", "attn.0", "block.0", "attn.1", "block.1", "attn.2", "block.2"]
    images = torch.randn(2, 3, 64, 64)
    with hooks.taps(model, ["attn.0", "attn.2", "block.1"]) as seen:
        tapped = model(images)
    assert seen["attn.0"].shape == (2, 2, 16, 16)
    assert seen["attn.2"].shape == (2, 4, 4, 4)
    assert seen["block.1"].shape == (2, 16, 32)
    assert torch.allclose(seen["attn.0"].sum(-1), torch.ones(2, 2, 16), atol=1e-6)
    assert torch.allclose(tapped, model(images), atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fused", [True, False])
def test_half_precision_is_finite_and_near(size, fused):
    torch.manual_seed(0)
    model = CoAtNet(SIZES[size])
    for block in model.blocks:
        block.attn.fused_attn = fused
    images = torch.randn(4, 3, model.config.image_size, model.config.image_size)
    expected = model(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(images)
    logits.float().square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    assert (logits.float() - expected).abs().max() < 0.1 * expected.abs().max()


def test_without_classes_the_head_gives_its_features():
    model = CoAtNet(replace(SIZES["rw, 32 px"], classes=0)).eval()
    maps = model.forward_features(torch.randn(2, 3, 32, 32))
    assert maps.shape == (2, 48, 4, 4)
    assert torch.allclose(model.forward_head(maps), model.norm(to_tokens(maps)).mean(1))


class TestBadInput:
    @pytest.mark.parametrize(
        ("images", "says"),
        [
            (torch.zeros(1, 3, 60, 60), r"takes images \(batch, 3, 64, 64\), got \(1, 3, 60, 60\)"),
            (torch.zeros(1, 1, 64, 64), r"got \(1, 1, 64, 64\)"),
            (torch.zeros(3, 64, 64), r"got \(3, 64, 64\)"),
            (torch.zeros(1, 3, 64, 64, dtype=torch.uint8), "floating-point images, got torch.uint8"),
        ],
    )
    def test_images_that_do_not_fit(self, images, says):
        with pytest.raises(ValueError, match=says):
            CoAtNet(SIZES["paper's, 64 px"])(images)

    @pytest.mark.parametrize(
        ("sizes", "says"),
        [
            ({"image_size": 65}, "multiple of the total stride, got 65 and 32"),
            ({"image_size": 0}, "positive"),
            ({"dims": (16, 24, 32, -64)}, "positive"),
            ({"classes": -1}, "positive"),
            ({"expansion": 0.0}, "positive"),
            ({"stages": "CCXT"}, "a letter C or T for each stage, got 'CCXT'"),
            ({"stages": ""}, "a letter C or T for each stage, got ''"),
            ({"stages": "CCT"}, r"CCT takes 3 depths and dims, and two stem_dims, got \(2, 1, 2, 1\)"),
            ({"stem_dims": (8,)}, r"two stem_dims, got .* and \(8,\)"),
            ({"stem_stride": 4}, "stem_stride is 1 or 2, got 4"),
            ({"head_dim": 48}, "multiple of head_dim, got 24 to 32 and 48"),
            ({"wide_attention": False}, "multiple of head_dim, got 24 to 32 and 16"),
            ({"conv_act": "tanh"}, "one of gelu, silu, relu, got conv_act='tanh'"),
            ({"squeeze_act": "tanh"}, "squeeze_act='tanh'"),
        ],
    )
    def test_sizes_that_do_not_fit(self, sizes, says):
        with pytest.raises(ValueError, match=says):
            CoAtNetConfig(**(PAPER | {"head_dim": 16} | sizes))

    @pytest.mark.parametrize(
        ("tag", "says"),
        [
            ("coatnet_rmlp_0_rw_224", "lacks RelPosMlp at stages.2.blocks.0.attn.rel_pos"),
            ("coatnet_bn_0_rw_224", "lacks BatchNorm2d with eps 1e-06 at stages.2.blocks.0.norm1.norm"),
            ("coatnet_3_rw_224", "lacks LayerScale2d at stages.2.blocks.0.ls1"),
            ("coatnet_rmlp_1_rw_224", "lacks MaxPool2d at stages.0.blocks.0.shortcut.pool"),
            ("coatnet_nano_cc_224", "lacks a stage of MbConvBlock and TransformerBlock2d"),
            ("coatnext_nano_rw_224", "lacks a stage of ConvNeXtBlock"),
            ("maxvit_tiny_rw_224", "lacks a stage of MaxxVitBlock"),
            ("resnet18", "A CoAtNet of timm is a MaxxVit, got ResNet"),
        ],
    )
    def test_models_of_timm_with_other_parts(self, tag, says):
        with torch.device("meta"):
            theirs = timm.create_model(tag)
        with pytest.raises(ValueError, match=says):
            config_of(theirs)

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"conv_cfg": MaxxVitConvCfg(padding="same")}, "lacks Conv2dSame at stem.conv1"),
            ({"conv_cfg": MaxxVitConvCfg(pool_type="avg")}, "lacks pooling over .* at stages.0"),
            ({"conv_cfg": MaxxVitConvCfg(stride_mode="1x1")}, "lacks a stride in stages.0.blocks.0.conv1_1x1"),
            ({"conv_cfg": MaxxVitConvCfg(norm_eps=1e-3)}, "lacks BatchNormAct2d with eps 0.001"),
            ({"transformer_cfg": MaxxVitTransformerCfg(norm_eps=1e-5)}, "lacks LayerNorm2d with eps 1e-05"),
            ({"transformer_cfg": MaxxVitTransformerCfg(rel_pos_type="bias_tf")}, "lacks RelPosBiasTf"),
        ],
    )
    def test_other_layers_of_timm(self, change, says):
        with torch.device("meta"):
            theirs = MaxxVit(MaxxVitCfg((32, 32, 32, 32), (1, 1, 1, 1), stem_width=32, **change))
        with pytest.raises(ValueError, match=says):
            config_of(theirs)

    def test_a_head_that_pools_otherwise(self):
        theirs = theirs_of(SIZES["rw, 32 px"])
        theirs.reset_classifier(5, "max")
        with pytest.raises(ValueError, match="lacks pooling by 'max' in the head"):
            config_of(theirs)
