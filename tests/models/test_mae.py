"""The masked autoencoder: equal to transformers', blind to what is hidden, an ordinary ViT on whole images."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import nn
from transformers import ViTMAEConfig, ViTMAEForPreTraining

from vitlab import hooks
from vitlab.models.mae import MAE, MAEConfig, patchify, unpatchify, wave_positions
from vitlab.models.vit import ViT, ViTConfig
from vitlab.train import reconstruction

SIZES = {
    "32 px": MAEConfig(ViTConfig(image_size=32, patch_size=4, dim=48, depth=3, heads=3, classes=0), 32, 2, 4),
    "48 px": MAEConfig(
        ViTConfig(
            image_size=48,
            patch_size=8,
            channels=1,
            dim=64,
            depth=2,
            heads=4,
            mlp_ratio=2.0,
            qkv_bias=False,
            classes=0,
        ),
        decoder_dim=20,
        decoder_depth=3,
        decoder_heads=2,
        mask_ratio=0.6,
    ),
}
SMALL = MAEConfig(ViTConfig(image_size=16, patch_size=4, dim=24, depth=2, heads=2, classes=0), 16, 1, 2)


def one_sentence(error: BaseException) -> str:
    text = str(error)
    assert text.endswith(".") and ". " not in text and "\n" not in text, text
    return text


def build(config: MAEConfig = SMALL, seed: int = 0) -> MAE:
    torch.manual_seed(seed)
    return MAE(config)


def draw(config: MAEConfig = SMALL, batch: int = 3, seed: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Images, and noise."""
    generator = torch.Generator().manual_seed(seed)
    v = config.vit
    images = torch.randn(batch, v.channels, v.image_size, v.image_size, generator=generator)
    return images, torch.rand(batch, config.patches, generator=generator)


def peer(config: MAEConfig, normalised: bool) -> ViTMAEForPreTraining:
    """An autoencoder of transformers, of the same sizes."""
    c, v = config, config.vit
    return ViTMAEForPreTraining(
        ViTMAEConfig(
            image_size=v.image_size,
            patch_size=v.patch_size,
            num_channels=v.channels,
            hidden_size=v.dim,
            num_hidden_layers=v.depth,
            num_attention_heads=v.heads,
            intermediate_size=int(v.dim * v.mlp_ratio),
            qkv_bias=v.qkv_bias,
            layer_norm_eps=1e-6,
            decoder_hidden_size=c.decoder_dim,
            decoder_num_hidden_layers=c.decoder_depth,
            decoder_num_attention_heads=c.decoder_heads,
            decoder_intermediate_size=int(c.decoder_dim * v.mlp_ratio),
            mask_ratio=c.mask_ratio,
            norm_pix_loss=normalised,
        )
    )


SAME = {
    "backbone.cls_token": "vit.embeddings.cls_token",
    "backbone.pos_embed": "vit.embeddings.position_embeddings",
    "backbone.patch_embed.proj": "vit.embeddings.patch_embeddings.projection",
    "backbone.blocks": "vit.layers",
    "backbone.norm": "vit.layernorm",
    "mask_token": "decoder.mask_token",
    "decoder_embed": "decoder.decoder_embed",
    "decoder_pos_embed": "decoder.decoder_pos_embed",
    "decoder_blocks": "decoder.decoder_layers",
    "decoder_norm": "decoder.decoder_norm",
    "decoder_pred": "decoder.decoder_pred",
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.o_proj",
}


def renamed(ours: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Our tensors by the names of transformers, where queries, keys and values are apart."""
    theirs = {}
    for name, value in ours.items():
        for old, new in SAME.items():
            name = re.sub(rf"(^|\.){re.escape(old)}(?=\.|$)", rf"\g<1>{new}", name)
        if ".attn.qkv." in name:
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                theirs[name.replace("attn.qkv", f"attention.{letter}_proj")] = part
        else:
            theirs[name] = value
    return theirs


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_prediction_mask_loss_and_gradients_equal_those_of_transformers(size, normalised, batch, seed):
    config = SIZES[size]
    ours, theirs = build(config, seed), peer(config, normalised)
    for parameter in ours.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.1)
    theirs.load_state_dict(renamed(ours.state_dict()))
    images, noise = draw(config, batch, seed)
    expected = theirs(images, noise=noise)
    prediction, mask = ours(images, noise)
    loss = reconstruction(normalised)(lambda x: ours(x, noise), images, torch.zeros(batch))
    assert torch.equal(mask, expected.mask)
    torch.testing.assert_close(prediction, expected.logits, rtol=0, atol=1e-6)
    torch.testing.assert_close(loss, expected.loss, rtol=0, atol=1e-6)
    loss.backward()
    expected.loss.backward()
    gradients = renamed({name: p.grad for name, p in ours.named_parameters() if p.requires_grad})
    learned = {name: p.grad for name, p in theirs.named_parameters() if p.requires_grad}
    assert gradients.keys() == learned.keys()
    for name, gradient in learned.items():
        assert gradient.abs().max() > 0 or name.endswith("k_proj.bias"), name  # softmax does not feel that bias
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize(("name", "sizes"), [("base", (768, 12, 12)), ("large", (1024, 24, 16))])
def test_named_sizes_have_the_papers_layout(name, sizes):
    config = getattr(MAEConfig, name)()
    assert (config.vit.dim, config.vit.depth, config.vit.heads) == sizes
    assert (config.decoder_dim, config.decoder_depth, config.decoder_heads) == (512, 8, 16)
    assert (config.patches, config.visible) == (196, 49)
    with torch.device("meta"):
        ours, theirs = MAE(config), peer(config, True)
    assert {k: v.shape for k, v in renamed(ours.state_dict()).items()} == {
        k: v.shape for k, v in theirs.state_dict().items()
    }
    assert getattr(MAEConfig, name)(mask_ratio=0.5).visible == 98


class TestPositions:
    @pytest.mark.parametrize(("grid", "dim"), [((4, 4), 24), ((2, 5), 8), ((1, 1), 4)])
    def test_they_are_their_equation_the_column_first(self, grid, dim):
        found = wave_positions(grid, dim, prefix=1)
        rows, columns = grid
        assert found.shape == (1, 1 + rows * columns, dim) and not found[0, 0].any()
        for row in range(rows):
            for column in range(columns):
                expected = []
                for place in (column, row):
                    for wave in (math.sin, math.cos):
                        expected += [wave(place * 10_000 ** (-4 * k / dim)) for k in range(dim // 4)]
                there = found[0, 1 + row * columns + column]
                torch.testing.assert_close(there, torch.tensor(expected), rtol=0, atol=1e-7)

    def test_the_encoder_and_the_decoder_hold_them_and_do_not_learn_them(self):
        model = build()
        assert torch.equal(model.backbone.pos_embed, wave_positions((4, 4), 24, 1))
        assert torch.equal(model.decoder_pos_embed, wave_positions((4, 4), 16, 1))
        fixed = {name for name, p in model.named_parameters() if not p.requires_grad}
        assert fixed == {"backbone.pos_embed", "decoder_pos_embed"}
        assert fixed <= model.state_dict().keys()

    def test_a_width_that_is_no_multiple_of_four_is_one_sentence(self):
        with pytest.raises(ValueError, match="multiple of 4, got 6") as caught:
            wave_positions((2, 2), 6)
        one_sentence(caught.value)


class TestMask:
    @pytest.mark.parametrize("side", [16, 28, 40])
    @pytest.mark.parametrize("ratio", ["0.1", "0.25", "0.3", "0.5", "0.6", "0.7", "0.75", "0.8", "0.9"])
    def test_it_hides_exactly_as_many(self, side, ratio):
        config = replace(SMALL, vit=replace(SMALL.vit, image_size=side), mask_ratio=float(ratio))
        visible = math.floor(config.patches * (1 - Fraction(ratio)))
        images, noise = draw(config, 5)
        mask = build(config)(images, noise)[1]
        assert mask.shape == (5, config.patches) and set(mask.unique().tolist()) == {0.0, 1.0}
        assert (mask == 0).sum(1).tolist() == [visible] * 5

    def test_it_leaves_the_lowest_noise(self):
        images, noise = draw()
        mask = build()(images, noise)[1]
        for row, hidden in zip(noise, mask, strict=True):
            assert row[hidden == 0].max() < row[hidden == 1].min()

    def test_it_depends_on_the_noise_alone(self):
        images, noise = draw()
        expected = build()(images, noise)[1]
        assert torch.equal(build(seed=1)(images.flip(0) + 1, noise)[1], expected)
        assert torch.equal(build()(images, noise.flip(0))[1], expected.flip(0))

    def test_equal_noise_hides_as_many(self):
        images, noise = draw()
        assert build()(images, torch.zeros_like(noise))[1].sum(1).tolist() == [12.0] * 3

    def test_without_noise_it_is_drawn_for_every_image_and_every_time(self):
        model, (images, _) = build(), draw(batch=8)
        torch.manual_seed(3)
        first, second = (model(images)[1] for _ in range(2))
        torch.manual_seed(3)
        again = model(images)
        assert torch.equal(again[1], first) and not torch.equal(first, second)
        assert len(first.unique(dim=0)) > 4
        torch.manual_seed(3)
        assert torch.equal(model(images, torch.rand(8, 16))[0], again[0])

    def test_every_patch_is_hidden_as_often(self):
        model, images = build(), torch.zeros(4000, 3, 16, 16)
        torch.manual_seed(0)
        seen = model.choose(images)
        counts = torch.bincount(seen.flatten(), minlength=16) / 4000
        assert (counts - 0.25).abs().max() < 5 * (0.25 * 0.75 / 4000) ** 0.5


class TestBlindness:
    def test_hidden_pixels_reach_neither_the_encoder_nor_the_prediction(self):
        model, (images, noise) = build(), draw()
        prediction, mask = model(images, noise)
        seen = model.choose(images, noise)
        hidden = unpatchify(mask[:, :, None].expand(-1, -1, 48), 4, (4, 4))  # 1 at every hidden pixel
        other = torch.where(hidden == 1, torch.randn(images.shape) * 100, images)
        assert not torch.equal(other, images)
        assert torch.equal(model.encode(other, seen), model.encode(images, seen))
        assert torch.equal(model(other, noise)[0], prediction)

    def test_each_seen_pixel_reaches_every_prediction_and_no_hidden_one_has_a_gradient(self):
        model, (images, noise) = build(), draw(batch=1)
        images.requires_grad_()
        prediction, mask = model(images, noise)
        hidden = unpatchify(mask[:, :, None].expand(-1, -1, 48), 4, (4, 4)) == 1
        for patch in range(16):
            (gradient,) = torch.autograd.grad(prediction[0, patch].square().sum(), images, retain_graph=True)
            assert gradient[~hidden].all() and not gradient[hidden].any()

    def test_the_encoder_works_on_the_seen_patches_alone(self):
        model, (images, noise) = build(), draw()
        with hooks.taps(model.backbone, ["pos_embed", "attn.1", "block.1"]) as seen:
            model(images, noise)
        assert seen["pos_embed"].shape == (3, 1 + 4, 24) and seen["attn.1"].shape == (3, 2, 5, 5)
        chosen = model.choose(images, noise)
        whole = model.backbone.embed(images)
        for i in range(3):
            assert torch.equal(seen["pos_embed"][i, 1:], whole[i, 1:][chosen[i]])

    def test_the_decoder_gets_the_same_mask_token_at_every_hidden_place(self):
        model, (images, noise) = build(), draw()
        nn.init.normal_(model.mask_token)
        entered = []
        model.decoder_blocks[0].register_forward_pre_hook(lambda _, args: entered.append(args[0]))
        _, mask = model(images, noise)
        tokens = entered[0] - model.decoder_pos_embed
        assert tokens.shape == (3, 17, 16)
        expected = model.mask_token.flatten().expand(3 * 12, -1)
        torch.testing.assert_close(tokens[:, 1:][mask == 1], expected, rtol=0, atol=1e-6)
        chosen = model.choose(images, noise)
        said = model.decoder_embed(model.encode(images, chosen))
        for i in range(3):
            torch.testing.assert_close(tokens[i, 1:][chosen[i]], said[i, 1:], rtol=0, atol=1e-6)


class TestBackbone:
    def test_seeing_all_it_is_the_vit(self):
        model, (images, _) = build(), draw()
        everything = torch.arange(16).expand(3, -1)
        assert torch.equal(model.encode(images, everything), model.backbone.forward_features(images))

    def test_features_are_the_normalised_class_token(self):
        model, (images, _) = build(), draw()
        with hooks.taps(model.backbone, ["patch_embed", "pos_embed", "attn.0", "cls", "cls_norm"]) as seen:
            features = model.features(images)
        assert features.shape == (3, 24) and torch.equal(features, seen["cls_norm"])
        assert torch.equal(features, model.backbone.norm(seen["cls"]))
        assert seen["attn.0"].shape == (3, 2, 17, 17)
        assert torch.equal(seen["pos_embed"][:, 1:], seen["patch_embed"] + wave_positions((4, 4), 24))

    def test_from_one_seed_it_begins_as_the_vit_does(self):
        ours = build(seed=4).backbone.state_dict()
        torch.manual_seed(4)
        theirs = ViT(SMALL.vit).state_dict()
        assert ours.keys() == theirs.keys()
        other = {name for name in ours if not torch.equal(ours[name], theirs[name])}
        assert other == {"cls_token", "pos_embed"}

    def test_tokens_begin_as_wide_as_in_the_vit(self):
        wide = build(replace(SMALL, vit=replace(SMALL.vit, dim=800), decoder_dim=800))
        for token in (wide.backbone.cls_token, wide.mask_token):
            assert token.std().item() == pytest.approx(0.02, rel=0.1)
        for linear in (wide.decoder_embed, wide.decoder_pred, wide.decoder_blocks[0].mlp.fc1):
            assert linear.weight.std().item() == pytest.approx(0.02, rel=0.1) and not linear.bias.any()

    def test_an_encoder_without_class_token_gives_the_mean_patch(self):
        config = replace(SMALL, vit=replace(SMALL.vit, pool="mean"))
        model, (images, noise) = build(config), draw()
        prediction, mask = model(images, noise)
        assert prediction.shape == (3, 16, 48) and mask.sum(1).tolist() == [12.0] * 3
        torch.testing.assert_close(model.features(images), model.backbone.forward_features(images).mean(1))
        prediction.sum().backward()
        assert all(p.grad is not None for p in model.parameters() if p.requires_grad)

    def test_dropout_and_drop_path_are_the_encoders_alone(self):
        vit = replace(SMALL.vit, dropout=0.5, attention_dropout=0.5, drop_path=0.5)
        model, (images, noise) = build(replace(SMALL, vit=vit)), draw()
        chosen = model.choose(images, noise)
        tokens = [model.encode(images, chosen) for _ in range(2)]
        assert not torch.equal(*tokens)
        assert torch.equal(model.decode(tokens[0], chosen), model.decode(tokens[0], chosen))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_it_works_in_other_precisions(dtype):
    model, (images, noise) = build(), draw()
    expected, mask = model(images, noise)
    if dtype == torch.float64:
        found = model.double()(images.double(), noise)
        assert found[0].dtype == dtype
    else:
        with torch.autocast("cpu", dtype):
            found = model(images, noise)
    assert torch.equal(found[1].float(), mask)
    torch.testing.assert_close(found[0].float(), expected, rtol=0, atol=1e-5 if dtype == torch.float64 else 0.02)


class TestPatches:
    @pytest.mark.parametrize(
        ("shape", "p"), [((2, 3, 8, 8), 4), ((1, 1, 6, 4), 2), ((3, 5, 4, 12), 4), ((2, 3, 2, 3), 1)]
    )
    def test_cutting_and_joining_are_inverse(self, shape, p):
        images = torch.randn(shape)
        patches = patchify(images, p)
        rows, columns = shape[2] // p, shape[3] // p
        assert patches.shape == (shape[0], rows * columns, p * p * shape[1])
        assert torch.equal(unpatchify(patches, p, (rows, columns)), images)
        assert torch.equal(patchify(unpatchify(patches, p, (rows, columns)), p), patches)

    def test_they_are_in_the_order_rows_columns_channels(self):
        images = torch.arange(2 * 3 * 6 * 8).reshape(2, 3, 6, 8)
        patches = patchify(images, 2)
        for row, column, y, x, channel in [(0, 0, 0, 0, 0), (1, 2, 0, 1, 2), (2, 3, 1, 0, 1), (0, 1, 1, 1, 2)]:
            pixel = images[1, channel, 2 * row + y, 2 * column + x]
            assert patches[1, row * 4 + column, (y * 2 + x) * 3 + channel] == pixel

    @pytest.mark.parametrize("shape", [(1, 3, 8, 10), (3, 8, 8), (1, 3, 9, 8)])
    def test_images_that_do_not_fit_are_one_sentence(self, shape):
        with pytest.raises(ValueError, match=re.escape(f"multiples of it, got {shape}; resize")) as caught:
            patchify(torch.zeros(shape), 4)
        one_sentence(caught.value)

    @pytest.mark.parametrize("shape", [(1, 4, 16), (1, 6, 18), (6, 16)])
    def test_patches_that_do_not_fit_are_one_sentence(self, shape):
        with pytest.raises(ValueError, match=re.escape(f"got {shape}; name the grid")) as caught:
            unpatchify(torch.zeros(shape), 4, (2, 3))
        one_sentence(caught.value)


class TestErrors:
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"vit": replace(SMALL.vit, classes=3)}, "positions and no classes"),
            ({"vit": replace(SMALL.vit, positions=False)}, "positions and no classes"),
            ({"vit": replace(SMALL.vit, dim=18)}, "multiples of 4, got 18 and 16"),
            ({"decoder_dim": 18}, "multiples of 4, got 24 and 18"),
            ({"decoder_heads": 3}, "multiple of the number of heads, got 16 and 3"),
            ({"decoder_depth": 0}, "at least 1"),
            ({"mask_ratio": 0.0}, "a mask_ratio of 0.0 for 16 patches"),
            ({"mask_ratio": 0.95}, "a mask_ratio of 0.95 for 16 patches"),
            ({"mask_ratio": 1.0}, "a mask_ratio of 1.0"),
            ({"mask_ratio": -0.5}, "a mask_ratio of -0.5"),
            ({"mask_ratio": math.nan}, "a mask_ratio of nan"),
        ],
    )
    def test_sizes_that_cannot_be_are_one_sentence(self, change, says):
        with pytest.raises(ValueError, match=re.escape(says)) as caught:
            replace(SMALL, **change)
        one_sentence(caught.value)

    @pytest.mark.parametrize(
        ("images", "says"),
        [
            (torch.zeros(2, 3, 20, 20), "takes images (batch, 3, 16, 16), got (2, 3, 20, 20)"),
            (torch.zeros(2, 1, 16, 16), "got (2, 1, 16, 16)"),
            (torch.zeros(3, 16, 16), "got (3, 16, 16)"),
            (torch.zeros(2, 3, 16, 16, dtype=torch.uint8), "got torch.uint8; divide by 255"),
        ],
    )
    def test_images_that_do_not_fit_are_one_sentence(self, images, says):
        for ask in (build(), build().features):
            with pytest.raises(ValueError, match=re.escape(says)) as caught:
                ask(images)
            one_sentence(caught.value)

    def test_images_of_another_size_are_named_before_the_noise_that_was_made_for_them(self):
        with pytest.raises(ValueError, match=r"takes images .* got .*20, 20"):
            build()(torch.zeros(2, 3, 20, 20), torch.rand(2, 25))

    @pytest.mark.parametrize("shape", [(3, 15), (2, 16), (16,), (3, 4, 4)])
    def test_noise_that_does_not_fit_is_one_sentence(self, shape):
        with pytest.raises(ValueError, match=re.escape(f"(3, 16), got {shape}")) as caught:
            build()(draw()[0], torch.rand(shape))
        one_sentence(caught.value)
