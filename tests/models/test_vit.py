"""The ViT: equal to timm's to the bit, its parts equal to their equations, bad input refused in a sentence."""

from __future__ import annotations

import math

import pytest
import timm
import torch
from torch import nn

from vitlab.models.layers import MLP, DropPath, attention_weights, drop_path_rates
from vitlab.models.vit import Attention, PatchEmbed, ViT, ViTConfig

SIZES = {
    "32 px": {"image_size": 32, "patch_size": 4, "dim": 48, "depth": 3, "heads": 3, "classes": 7},
    "48 px": {
        "image_size": 48,
        "patch_size": 16,
        "dim": 32,
        "depth": 2,
        "heads": 4,
        "classes": 5,
        "mlp_ratio": 3.0,
        "qkv_bias": False,
    },
}


def pair(config: ViTConfig, seed: int) -> tuple[ViT, nn.Module]:
    """Our ViT and timm's, with the same random weights everywhere, biases and norms included."""
    torch.manual_seed(seed)
    ours = ViT(config)
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.1)
    theirs = timm.models.vision_transformer.VisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,
        embed_dim=config.dim,
        depth=config.depth,
        num_heads=config.heads,
        num_classes=config.classes,
        mlp_ratio=config.mlp_ratio,
        qkv_bias=config.qkv_bias,
    )
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_logits_and_gradients_equal_timms_to_the_bit(size, fused, training, batch, seed):
    ours, theirs = pair(ViTConfig(**SIZES[size]), seed)
    for model in (ours, theirs):
        model.train(training)
        for block in model.blocks:
            block.attn.fused_attn = fused
    images = torch.randn(batch, 3, ours.config.image_size, ours.config.image_size)
    logits, expected = ours(images), theirs(images)
    assert torch.equal(logits, expected)
    for out in (logits, expected):
        out.square().sum().backward()
    gradients = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter.grad, gradients[name].grad), name


@pytest.mark.parametrize("name", ["tiny", "small", "base"])
def test_named_sizes_have_timms_layout(name):
    with torch.device("meta"):
        ours = ViT(getattr(ViTConfig, name)())
        theirs = timm.create_model(f"vit_{name}_patch16_224")
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: v.shape for k, v in theirs.state_dict().items()
    }


def test_initialisation_has_timms_spread():
    torch.manual_seed(0)
    ours = ViT(ViTConfig.tiny(depth=2, image_size=32))
    theirs = timm.models.vision_transformer.VisionTransformer(img_size=32, embed_dim=192, depth=2, num_heads=3)
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert a.std().item() == pytest.approx(b.std().item(), rel=0.1, abs=1e-5), name


class TestEquations:
    def test_attention_weights_are_softmax_of_scaled_products(self):
        """softmax(Q K^T / sqrt(d)), in float64 and by hand."""
        q, k = torch.randn(2, 2, 3, 5, 4, dtype=torch.float64)
        expected = torch.empty(2, 3, 5, 5, dtype=torch.float64)
        for b in range(2):
            for h in range(3):
                for i in range(5):
                    logits = [float(q[b, h, i] @ k[b, h, j]) / math.sqrt(4) for j in range(5)]
                    total = sum(map(math.exp, logits))
                    expected[b, h, i] = torch.tensor([math.exp(x) / total for x in logits])
        assert torch.allclose(attention_weights(q, k), expected, atol=1e-14)

    def test_fused_and_explicit_attention_agree(self):
        torch.manual_seed(0)
        attention = Attention(24, 3, True, 0.0, 0.0).double()
        x = torch.randn(2, 7, 24, dtype=torch.float64)
        fused = attention(x)
        attention.fused_attn = False
        assert torch.allclose(fused, attention(x), atol=1e-13)

    def test_the_patch_embedding_is_one_linear_map_of_each_patch(self):
        embed = PatchEmbed(4, 3, 10).double()
        images = torch.randn(2, 3, 8, 12, dtype=torch.float64)
        tokens = embed(images)
        assert tokens.shape == (2, 6, 10)
        patches = images.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(2, 6, -1)
        expected = patches @ embed.proj.weight.flatten(1).T + embed.proj.bias
        assert torch.allclose(tokens, expected, atol=1e-13)

    def test_without_positions_permuted_patches_give_permuted_tokens(self):
        torch.manual_seed(0)
        model = ViT(ViTConfig(**SIZES["32 px"], positions=False)).double().eval()
        images = torch.randn(1, 3, 32, 32, dtype=torch.float64)
        order = torch.randperm(64)
        patches = images.unfold(2, 4, 4).unfold(3, 4, 4).reshape(1, 3, 64, 4, 4)[:, :, order]
        shuffled = patches.reshape(1, 3, 8, 8, 4, 4).permute(0, 1, 2, 4, 3, 5).reshape(1, 3, 32, 32)
        tokens, moved = model.forward_features(images), model.forward_features(shuffled)
        assert torch.allclose(tokens[:, 1:][:, order], moved[:, 1:], atol=1e-12)
        assert torch.allclose(model(images), model(shuffled), atol=1e-12)
        known = ViT(ViTConfig(**SIZES["32 px"])).double().eval()
        nn.init.normal_(known.pos_embed)
        assert not torch.allclose(known(images), known(shuffled), atol=1e-6)

    def test_mean_pooling_has_no_class_token_and_averages(self):
        model = ViT(ViTConfig(**SIZES["32 px"], pool="mean")).eval()
        images = torch.randn(2, 3, 32, 32)
        tokens = model.forward_features(images)
        assert model.cls_token is None
        assert tokens.shape == (2, 64, 48)
        assert torch.equal(model(images), model.head(tokens.mean(1)))

    def test_drop_path_keeps_the_expectation_and_drops_whole_images(self):
        torch.manual_seed(0)
        layer = DropPath(0.25)
        out = layer(torch.ones(20_000, 2, 3))
        assert set(out.flatten(1).unique(dim=0).sum(1).tolist()) == {0.0, 8.0}
        assert out.mean().item() == pytest.approx(1.0, abs=0.02)
        assert torch.equal(layer.eval()(out), out)
        assert drop_path_rates(0.3, 4) == pytest.approx([0.0, 0.1, 0.2, 0.3])

    def test_the_mlp_treats_each_token_alone(self):
        mlp = MLP(8, 16)
        x = torch.randn(2, 5, 8)
        assert torch.allclose(mlp(x)[:, 3], mlp(x[:, 3]), atol=1e-6)


class TestBadInput:
    @pytest.mark.parametrize(
        ("images", "says"),
        [
            (torch.zeros(1, 3, 28, 28), r"takes images \(batch, 3, 32, 32\), got \(1, 3, 28, 28\)"),
            (torch.zeros(1, 1, 32, 32), r"got \(1, 1, 32, 32\)"),
            (torch.zeros(1, 32, 32, 3), r"got \(1, 32, 32, 3\); resize or reorder the axes"),
            (torch.zeros(3, 32, 32), r"got \(3, 32, 32\)"),
            (
                torch.zeros(1, 3, 32, 32, dtype=torch.uint8),
                "floating-point images, got torch.uint8; divide by 255",
            ),
        ],
    )
    def test_images_that_do_not_fit(self, images, says):
        with pytest.raises(ValueError, match=says):
            ViT(ViTConfig(**SIZES["32 px"]))(images)

    @pytest.mark.parametrize(
        ("sizes", "says"),
        [
            ({"image_size": 30}, "multiple of the patch side, got 30 and 4"),
            ({"heads": 5}, "multiple of the number of heads, got 48 and 5"),
            ({"depth": 0}, "at least 1"),
            ({"pool": "max"}, "pool is"),
        ],
    )
    def test_sizes_that_do_not_fit(self, sizes, says):
        with pytest.raises(ValueError, match=says):
            ViTConfig(**(SIZES["32 px"] | sizes))

    def test_a_rate_outside_its_range(self):
        with pytest.raises(ValueError, match=r"lies in \[0, 1\), got 1.5"):
            DropPath(1.5)
