"""PVT: equal to transformers' to rounding, its parts equal to their equations, bad input refused in a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from transformers import PvtConfig, PvtForImageClassification

from vitlab import hooks
from vitlab.models import weights
from vitlab.models.peers import pvt as peer
from vitlab.models.pvt import PVT, Attention, PatchEmbed, PVTConfig, as_map, as_tokens

SIZES = {
    "32 px": {
        "image_size": 32,
        "patch_sizes": (2, 2, 2),
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
        "sr_ratios": (8, 4, 2, 1),
        "qkv_bias": False,
        "classes": 5,
        "channels": 2,
        "patch_eps": 1e-6,
    },
}


def theirs_of(config: PVTConfig) -> PvtForImageClassification:
    """transformers' PVT of the same sizes."""
    theirs = PvtForImageClassification(
        PvtConfig(
            image_size=config.image_size,
            num_channels=config.channels,
            num_encoder_blocks=len(config.dims),
            depths=config.depths,
            sequence_reduction_ratios=config.sr_ratios,
            hidden_sizes=config.dims,
            patch_sizes=config.patch_sizes,
            strides=config.patch_sizes,
            num_attention_heads=config.heads,
            mlp_ratios=config.mlp_ratios,
            qkv_bias=config.qkv_bias,
            num_labels=config.classes,
        )
    )
    encoder = theirs.pvt.encoder
    for stage, (embed, (rows, columns)) in enumerate(zip(encoder.patch_embeddings, config.grids, strict=True)):
        embed.layer_norm.eps = config.patch_eps
        for block in encoder.block[stage]:
            if config.sr_ratios[stage] > 1:
                block.attention.self.layer_norm.eps = config.patch_eps
        # It reckons with patches of 4 pixels in the first stage, whatever they are.
        count = rows * columns + (stage == len(config.dims) - 1)
        embed.position_embeddings = nn.Parameter(torch.zeros(1, count, config.dims[stage]))
    return theirs


def pair(config: PVTConfig, seed: int) -> tuple[PVT, PvtForImageClassification]:
    """Our PVT and transformers', with the same random weights everywhere, biases and norms included."""
    torch.manual_seed(seed)
    theirs = theirs_of(config)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.2)
    ours = PVT(peer.config_of(theirs))
    weights.load(ours, peer.renamed(theirs.state_dict()))
    return ours, theirs


def published(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our weights under the names of the published code."""
    names = {}
    for name in state:
        part = name.split(".")
        if part[0] == "stages":
            stage = int(part[1]) + 1
            part = [f"block{stage}", *part[3:]] if part[2] == "blocks" else [f"{part[2]}{stage}", *part[3:]]
        names[name] = ".".join(part)
    return {names[name]: weight for name, weight in state.items()}


@pytest.mark.parametrize("size", SIZES)
def test_the_configuration_is_read_off_the_peer(size):
    config = PVTConfig(**SIZES[size])
    assert peer.config_of(theirs_of(config)) == config


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_logits_and_gradients_equal_transformers(size, fused, training, batch, seed):
    ours, theirs = pair(PVTConfig(**SIZES[size]), seed)
    ours.train(training)
    theirs.train(training)
    for block in ours.blocks:
        block.attn.fused_attn = fused
    c = ours.config
    images = torch.randn(batch, c.channels, c.image_size, c.image_size)
    logits, expected = ours(images), theirs(images).logits
    assert logits.shape == (batch, c.classes)
    assert torch.allclose(logits, expected, rtol=0, atol=1e-6 * expected.abs().max().item())
    for out in (logits, expected):
        out.square().sum().backward()
    gradients = peer.renamed({name: parameter.grad for name, parameter in theirs.named_parameters()})
    largest = max(gradient.abs().max().item() for gradient in gradients.values())
    for name, parameter in ours.named_parameters():
        assert torch.allclose(parameter.grad, gradients[name], rtol=0, atol=1e-6 * largest), name


@pytest.mark.parametrize("size", SIZES)
def test_in_float64_every_gradient_differs_by_rounding_alone(size):
    ours, theirs = pair(PVTConfig(**SIZES[size]), 0)
    c = ours.double().config
    images = torch.randn(2, c.channels, c.image_size, c.image_size, dtype=torch.float64)
    logits, expected = ours(images), theirs.double()(images).logits
    assert torch.allclose(logits, expected, rtol=0, atol=1e-13 * expected.abs().max().item())
    for out in (logits, expected):
        out.square().sum().backward()
    gradients = peer.renamed({name: parameter.grad for name, parameter in theirs.named_parameters()})
    for name, parameter in ours.named_parameters():
        tolerance = 1e-11 * gradients[name].abs().max().item()
        assert torch.allclose(parameter.grad, gradients[name], rtol=0, atol=tolerance), name


@pytest.mark.parametrize(
    ("name", "depths", "millions"),
    [
        ("tiny", (2, 2, 2, 2), 13.2),
        ("small", (3, 4, 6, 3), 24.5),
        ("medium", (3, 4, 18, 3), 44.2),
        ("large", (3, 8, 27, 3), 61.4),
    ],
)
def test_named_sizes_have_transformers_layout_and_the_papers_parameters(name, depths, millions):
    with torch.device("meta"):
        ours = PVT(getattr(PVTConfig, name)())
        theirs = PvtForImageClassification(PvtConfig(depths=depths))
    layout = {k: v.shape for k, v in peer.renamed(theirs.state_dict()).items()}
    assert {k: v.shape for k, v in ours.state_dict().items()} == layout
    assert sum(p.numel() for p in ours.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)


def test_every_named_size_is_listed_and_takes_overrides():
    assert PVTConfig.SIZES == ("tiny", "small", "medium", "large")
    for name in PVTConfig.SIZES:
        assert getattr(PVTConfig, name)(classes=3).classes == 3


def test_published_checkpoints_load():
    ours, _ = pair(PVTConfig(**SIZES["64 px"]), 0)
    state = published(ours.state_dict())
    assert {"patch_embed1.proj.weight", "pos_embed4", "block2.1.attn.sr.bias", "cls_token", "norm.bias"} <= set(
        state
    )
    other = PVT(ours.config)
    weights.load(other, peer.renamed(state))
    images = torch.randn(1, 2, 64, 64)
    assert torch.equal(ours.eval()(images), other.eval()(images))


def test_the_converter_does_not_mind_the_order_of_names():
    _, theirs = pair(PVTConfig(**SIZES["32 px"]), 0)
    state = theirs.state_dict()
    expected, turned = peer.renamed(state), peer.renamed(dict(reversed(state.items())))
    assert expected.keys() == turned.keys()
    assert all(torch.equal(expected[name], turned[name]) for name in expected)


class TestUnreadablePeers:
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"hidden_act": "relu"}, "Ours has GELU in its MLPs, the peer relu"),
            ({"strides": (7, 3, 3, 3)}, "neither overlap nor leave gaps"),
            ({"layer_norm_eps": 1e-5}, "eps 1e-05, ours with 1e-6"),
            ({"image_size": [224, 192]}, r"square images, the peer \(224, 192\)"),
        ],
    )
    def test_features_ours_lacks(self, change, says):
        with torch.device("meta"):
            theirs = PvtForImageClassification(PvtConfig())
        for name, value in change.items():
            setattr(theirs.config, name, value)
        theirs.pvt.encoder.layer_norm.eps = theirs.config.layer_norm_eps
        with pytest.raises(ValueError, match=says):
            peer.config_of(theirs)

    def test_two_eps_where_ours_has_one(self):
        with torch.device("meta"):
            theirs = PvtForImageClassification(PvtConfig())
        theirs.pvt.encoder.patch_embeddings[1].layer_norm.eps = 1e-5
        with pytest.raises(ValueError, match="differ in eps, ours share one"):
            peer.config_of(theirs)

    def test_another_model(self):
        with pytest.raises(ValueError, match="PvtForImageClassification, got Linear"):
            peer.config_of(nn.Linear(1, 1))


def test_initialisation_has_the_published_spread():
    """Linear maps and positions as in transformers, convolutions as torch leaves them, as the published code."""
    torch.manual_seed(0)
    ours = PVT(PVTConfig(image_size=64, dims=(64, 96, 128, 160), heads=(1, 2, 4, 5)))
    for name, parameter in ours.named_parameters():
        spread = parameter.std().item()
        module = ours.get_submodule(name.rpartition(".")[0])
        if isinstance(module, nn.Conv2d):
            fan_in = module.weight[0].numel()
            assert spread == pytest.approx(1 / math.sqrt(3 * fan_in), rel=0.25), name
        elif isinstance(module, nn.LayerNorm) or name.endswith("bias"):
            assert spread == 0, name
        else:
            assert spread == pytest.approx(0.02, rel=0.15), name
    theirs = PvtForImageClassification(PvtConfig())
    assert theirs.classifier.weight.std().item() == pytest.approx(ours.head.weight.std().item(), rel=0.1)


class TestEquations:
    def config(self, **changes: object) -> PVTConfig:
        return PVTConfig(**(SIZES["32 px"] | changes))

    def test_reduction_is_a_linear_map_of_each_square_then_a_norm(self):
        """Equation 3, SR(x) = Norm(Reshape(x, R) W^S), square by square."""
        torch.manual_seed(0)
        attention = Attention(self.config(), 0).double()
        for parameter in attention.parameters():
            nn.init.normal_(parameter)
        x = torch.randn(2, 16 * 16, 16, dtype=torch.float64)
        reduced = attention.reduce(x)
        assert reduced.shape == (2, 4 * 4, 16)
        weight, bias = attention.sr.weight, attention.sr.bias
        for b in range(2):
            for row in range(4):
                for column in range(4):
                    y = bias.clone()
                    for i in range(4):
                        for j in range(4):
                            y = y + weight[:, :, i, j] @ x[b, (4 * row + i) * 16 + 4 * column + j]
                    y = (y - y.mean()) / (y.var(unbiased=False) + 1e-5).sqrt()
                    y = y * attention.norm.weight + attention.norm.bias
                    assert torch.allclose(reduced[b, 4 * row + column], y, atol=1e-12)

    @pytest.mark.parametrize("fused", [True, False])
    def test_heads_ask_with_all_tokens_and_are_answered_by_the_reduced(self, fused):
        """Equations 1, 2 and 4, query by query and head by head."""
        torch.manual_seed(0)
        attention = Attention(self.config(), 1).double()
        for parameter in attention.parameters():
            nn.init.normal_(parameter, std=0.3)
        attention.fused_attn = fused
        x = torch.randn(1, 64, 24, dtype=torch.float64)
        reduced = attention.reduce(x)[0]
        assert reduced.shape == (16, 24)
        q = x[0] @ attention.q.weight.T + attention.q.bias
        k = reduced @ attention.kv.weight[:24].T + attention.kv.bias[:24]
        v = reduced @ attention.kv.weight[24:].T + attention.kv.bias[24:]
        out = torch.zeros(64, 24, dtype=torch.float64)
        for head in range(2):
            part = slice(12 * head, 12 * head + 12)
            for i in range(64):
                logits = torch.stack([q[i, part] @ key[part] for key in k]) / math.sqrt(12)
                answers = logits.exp() / logits.exp().sum()
                out[i, part] = sum(a * value[part] for a, value in zip(answers, v, strict=True))
        expected = out @ attention.proj.weight.T + attention.proj.bias
        assert torch.allclose(attention(x)[0], expected, atol=1e-12)

    def test_patch_embedding_normalises_one_linear_map_of_each_patch(self):
        embed = PatchEmbed(4, 3, 10, 1e-5).double()
        images = torch.randn(2, 3, 8, 12, dtype=torch.float64)
        patches = images.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(2, 6, -1)
        expected = embed.norm(patches @ embed.proj.weight.flatten(1).T + embed.proj.bias)
        assert torch.allclose(embed(images), expected, atol=1e-13)

    def test_maps_and_tokens_are_one_another_folded(self):
        x = torch.arange(2 * 6 * 4.0).reshape(2, 6, 4)
        folded = as_map(x, (2, 3))
        assert folded.shape == (2, 4, 2, 3)
        assert torch.equal(folded[1, :, 1, 2], x[1, 5])
        assert folded.data_ptr() == x.data_ptr()
        assert torch.equal(as_tokens(folded), x)

    def test_only_the_last_stage_has_the_class_token(self):
        model = PVT(self.config())
        assert [stage.pos_embed.shape[1] for stage in model.stages] == [256, 64, 17]
        assert model.forward_features(torch.zeros(2, 3, 32, 32)).shape == (2, 17, 32)
        tokens = torch.randn(2, 17, 32)
        assert torch.equal(model.forward_head(tokens), model.head(tokens[:, 0]))

    def test_every_query_depends_on_the_whole_image(self):
        """Reduction blurs, it does not hide: gradients of one token reach every position, unlike in a window."""
        attention = Attention(self.config(), 0).double()
        x = torch.randn(1, 256, 16, dtype=torch.float64, requires_grad=True)
        attention(x)[0, 0].sum().backward()
        assert (x.grad[0].abs().amax(dim=1) > 0).all()

    def test_drop_path_rises_with_depth_over_all_stages(self):
        model = PVT(self.config(drop_path=0.4))
        rates = [getattr(block.drop_path1, "rate", 0.0) for block in model.blocks]
        assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


class TestUse:
    def test_blocks_are_listed_in_depth_and_registered_once(self):
        model = PVT(PVTConfig(**SIZES["32 px"]))
        assert [id(block) for block in model.blocks] == [id(b) for stage in model.stages for b in stage.blocks]
        assert not any(name.startswith("blocks.") for name in model.state_dict())

    def test_taps_see_the_weights_of_every_attention(self):
        model = PVT(PVTConfig(**SIZES["32 px"])).eval()
        images = torch.randn(2, 3, 32, 32)
        wanted = ["attn.0", "attn.2", "attn.4", "block.1", "cls", "cls_norm"]
        assert set(wanted) <= set(hooks.names(model))
        with hooks.taps(model, wanted) as seen:
            logits = model(images)
        shapes = {name: tuple(seen[name].shape) for name in ("attn.0", "attn.2", "attn.4")}
        assert shapes == {"attn.0": (2, 1, 256, 16), "attn.2": (2, 2, 64, 16), "attn.4": (2, 4, 17, 17)}
        assert torch.allclose(seen["attn.2"].sum(-1), torch.ones(()), atol=1e-6)
        assert seen["block.1"].shape == (2, 256, 16)
        assert torch.equal(logits, model.head(seen["cls_norm"]))

    def test_attention_weights_equal_transformers(self):
        ours, theirs = pair(PVTConfig(**SIZES["64 px"]), 0)
        images = torch.randn(2, 2, 64, 64)
        names = [f"attn.{i}" for i in range(5)]
        with hooks.taps(ours.eval(), names) as seen:
            ours(images)
        expected = theirs.eval()(images, output_attentions=True).attentions
        for name, attention in zip(names, expected, strict=True):
            assert torch.allclose(seen[name], attention, atol=1e-6), name

    def test_autocast_to_bfloat16_is_finite_and_trains(self):
        model = PVT(PVTConfig(**SIZES["32 px"], dropout=0.1, attention_dropout=0.1, drop_path=0.1))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(torch.randn(2, 3, 32, 32))
        logits.float().square().sum().backward()
        assert logits.isfinite().all()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())

    def test_without_classes_the_features_come_out(self):
        model = PVT(PVTConfig(**(SIZES["32 px"] | {"classes": 0}))).eval()
        images = torch.randn(2, 3, 32, 32)
        assert torch.equal(model(images), model.forward_features(images)[:, 0])


class TestBadInput:
    @pytest.mark.parametrize(
        ("images", "says"),
        [
            (torch.zeros(1, 3, 33, 33), r"takes images \(batch, 3, 32, 32\), got \(1, 3, 33, 33\)"),
            (torch.zeros(1, 3, 64, 64), r"got \(1, 3, 64, 64\)"),
            (torch.zeros(1, 32, 32, 3), r"got \(1, 32, 32, 3\); resize or reorder the axes"),
            (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "floating-point images, got torch.uint8"),
        ],
    )
    def test_images_that_do_not_fit(self, images, says):
        with pytest.raises(ValueError, match=says):
            PVT(PVTConfig(**SIZES["32 px"]))(images)

    @pytest.mark.parametrize(
        ("sizes", "says"),
        [
            ({"image_size": 31}, "patches of stage 1 must tile its map, got a side of 31 and patches of 2"),
            ({"image_size": 36}, "reduction of stage 1 must tile its grid, got a side of 18 and a ratio of 4"),
            (
                {"image_size": 40, "patch_sizes": (2, 4, 2), "sr_ratios": (4, 1, 1)},
                "patches of stage 3 must tile its map, got a side of 5",
            ),
            ({"sr_ratios": (4, 2, 2)}, "class token, which no reduction can place, got a ratio of 2"),
            ({"heads": (1, 5, 4)}, "multiple of the number of heads, got 24 and 5"),
            ({"depths": (2, 2)}, "one entry a stage, got 3, 3, 2, 3, 3, 3 entries"),
            ({"depths": (2, 0, 1)}, "at least 1"),
            ({"sr_ratios": (4, -2, 1)}, "at least 1"),
            ({"mlp_ratios": (4, 0, 1)}, "at least 1"),
            ({"channels": 0}, "at least 1"),
            ({"classes": -1}, "at least 1"),
            ({"image_size": 0}, "at least 1"),
        ],
    )
    def test_sizes_that_do_not_fit(self, sizes, says):
        with pytest.raises(ValueError, match=says):
            PVTConfig(**(SIZES["32 px"] | sizes))
