"""DeiT: equal to timm's to the bit, two tokens with a head each, and a plain ViT where the token is left out."""

from __future__ import annotations

import math

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.models.deit import VisionTransformerDistilled
from torch import nn

from vitlab import hooks, train
from vitlab.models import weights
from vitlab.models.deit import DeiT, DeiTConfig
from vitlab.models.peers import deit as peer
from vitlab.models.vit import ViT, ViTConfig

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
SMALL = DeiTConfig(**SIZES["32 px"])


def timms(config: DeiTConfig) -> nn.Module:
    return VisionTransformerDistilled(
        img_size=config.image_size,
        patch_size=config.patch_size,
        embed_dim=config.dim,
        depth=config.depth,
        num_heads=config.heads,
        num_classes=config.classes,
        mlp_ratio=config.mlp_ratio,
        qkv_bias=config.qkv_bias,
    )


def pair(config: DeiTConfig, seed: int) -> tuple[DeiT, nn.Module]:
    """Our DeiT and timm's, with the same random weights everywhere, biases and norms included."""
    torch.manual_seed(seed)
    theirs = timms(config)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.1)
    ours = DeiT(peer.config_of(theirs))
    assert ours.config == config
    weights.load(ours, peer.renamed(theirs.state_dict()))
    return ours, theirs


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_scores_and_gradients_equal_timms_to_the_bit(size, fused, training, batch, seed):
    ours, theirs = pair(DeiTConfig(**SIZES[size]), seed)
    theirs.set_distilled_training(True)
    for model in (ours, theirs):
        model.train(training)
        for block in model.blocks:
            block.attn.fused_attn = fused
    images = torch.randn(batch, 3, ours.config.image_size, ours.config.image_size)
    scores, expected = ours(images), theirs(images)
    if training:
        assert isinstance(scores, tuple)
        assert len(scores) == len(expected) == 2
        scores, expected = torch.stack(scores), torch.stack(expected)
    assert torch.equal(scores, expected)
    for out in (scores, expected):
        (out * torch.linspace(-1, 2, out.numel()).view_as(out)).square().sum().backward()
    gradients = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter.grad, gradients.pop(name).grad), name
    assert not gradients


@pytest.mark.parametrize(("name", "millions"), [("tiny", 6), ("small", 22), ("base", 87)])
def test_named_sizes_have_timms_layout_and_the_papers_count(name, millions):
    """Table 5 prints the parameters of the distilled networks."""
    assert name in DeiTConfig.SIZES
    with torch.device("meta"):
        ours = DeiT(getattr(DeiTConfig, name)())
        theirs = timm.create_model(f"deit_{name}_distilled_patch16_224")
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: v.shape for k, v in theirs.state_dict().items()
    }
    assert round(sum(p.numel() for p in ours.parameters()) / 1e6) == millions


def test_the_papers_larger_network_and_the_control_without_a_token():
    with torch.device("meta"):
        ours = [DeiT(DeiTConfig.base(image_size=384)), DeiT(DeiTConfig.tiny(distilled=False))]
        theirs = map(timm.create_model, ["deit_base_distilled_patch16_384", "deit_tiny_patch16_224"])
        for a, b in zip(ours, theirs, strict=True):
            assert peer.config_of(b) == a.config
            assert {k: v.shape for k, v in a.state_dict().items()} == {
                k: v.shape for k, v in b.state_dict().items()
            }


def test_initialisation_has_timms_spread():
    torch.manual_seed(0)
    config = DeiTConfig.tiny(depth=2, image_size=32)
    ours, theirs = DeiT(config), dict(timms(config).named_parameters())
    for name, a in ours.named_parameters():
        b = theirs.pop(name)
        assert a.std().item() == pytest.approx(b.std().item(), rel=0.25 if a.numel() < 200 else 0.1, abs=1e-5), (
            name
        )
    assert not theirs


def test_from_one_seed_it_begins_as_the_vit_does():
    """What differs in training then comes from the token and its teacher."""
    torch.manual_seed(3)
    vit = ViT(ViTConfig(**SIZES["32 px"])).state_dict()
    torch.manual_seed(3)
    deit = DeiT(SMALL).state_dict()
    positions = deit.pop("pos_embed")
    assert torch.equal(torch.cat([positions[:, :1], positions[:, 2:]], 1), vit.pop("pos_embed"))
    assert all(torch.equal(deit.pop(name), weight) for name, weight in vit.items())
    assert sorted(deit) == ["dist_token", "head_dist.bias", "head_dist.weight"]
    assert 0.01 < positions[:, 1].std() < 0.03


class TestTokens:
    def test_they_stand_in_order_class_distillation_patches(self):
        ours, _ = pair(SMALL, 0)
        images = torch.randn(2, 3, 32, 32)
        x = ours.embed(images) - ours.pos_embed
        assert x.shape == (2, 66, 48)
        assert torch.allclose(x[:, 0], ours.cls_token[:, 0].expand(2, -1), atol=1e-6)
        assert torch.allclose(x[:, 1], ours.dist_token[:, 0].expand(2, -1), atol=1e-6)
        assert torch.allclose(x[:, 2:], ours.patch_embed(images), atol=1e-6)

    def test_each_head_reads_its_own_token(self):
        """Scores of token 0 by the class head, of token 1 by the other, by plain loops in float64."""
        ours = DeiT(SMALL).double()
        tokens = torch.randn(2, 66, 48, dtype=torch.float64)
        with torch.no_grad():
            both = ours.forward_both(tokens)
        for place, (head, scores) in enumerate(zip((ours.head, ours.head_dist), both, strict=True)):
            for b in range(2):
                for k in range(7):
                    terms = [(head.weight[k, i] * tokens[b, place, i]).item() for i in range(48)]
                    assert scores[b, k].item() == pytest.approx(math.fsum(terms) + head.bias[k].item(), abs=1e-12)

    def test_evaluation_answers_with_the_mean_of_both(self):
        ours, _ = pair(SMALL, 0)
        images = torch.randn(2, 3, 32, 32)
        z, z_dist = ours.train()(images)
        assert not torch.allclose(z, z_dist, atol=1e-3)
        assert torch.equal(ours.eval()(images), (z + z_dist) / 2)
        assert all(map(torch.equal, ours.forward_both(ours.forward_features(images)), (z, z_dist)))

    def test_the_two_losses_reach_both_tokens_but_one_head_each(self):
        ours = DeiT(SMALL)
        z, z_dist = ours(torch.randn(2, 3, 32, 32))
        z.square().sum().backward(retain_graph=True)
        assert ours.head.weight.grad.any() and ours.head_dist.weight.grad is None
        assert ours.dist_token.grad.any()  # the class token attends to it
        z_dist.square().sum().backward()
        assert ours.head_dist.weight.grad.any()


class TestDistillation:
    def test_the_loss_is_equation_3(self):
        """Half the cross-entropy of z to the labels, half that of z' to the teacher's decision, in float64."""
        torch.manual_seed(0)
        ours, teacher = DeiT(SMALL).double(), nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 7)).double()
        images, labels = torch.randn(4, 3, 32, 32, dtype=torch.float64), torch.tensor([0, 3, 6, 1])
        loss = train.distillation(7, teacher)(ours, images, labels)
        z, z_dist = ours(images)
        expected = 0.0
        for b in range(4):
            decision = int(teacher(images)[b].argmax())
            for scores, target in ((z[b], int(labels[b])), (z_dist[b], decision)):
                expected += (math.log(sum(map(math.exp, scores.tolist()))) - scores[target].item()) / 2 / 4
        assert loss.item() == pytest.approx(expected, abs=1e-12)

    def test_a_few_steps_teach_it_labels_and_teacher_apart(self):
        """Labels say one class, the teacher another: each head learns its own."""
        torch.manual_seed(0)
        ours = DeiT(SMALL)
        teacher = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 7))
        nn.init.zeros_(teacher[1].weight)
        teacher[1].bias.data = F.one_hot(torch.tensor(5), 7).float()
        images, labels = torch.randn(6, 3, 32, 32), torch.full((6,), 2)
        objective, optimiser = train.distillation(7, teacher), torch.optim.Adam(ours.parameters(), 1e-3)
        for _ in range(15):
            optimiser.zero_grad()
            objective(ours, images, labels).backward()
            optimiser.step()
        z, z_dist = ours(images)
        assert z.argmax(1).tolist() == [2] * 6
        assert z_dist.argmax(1).tolist() == [5] * 6

    def test_supervised_training_refuses_two_answers(self):
        with pytest.raises(ValueError, match=r"must give scores \(batch, 7\), got tuple"):
            train.supervised(7)(DeiT(SMALL), torch.randn(2, 3, 32, 32), torch.tensor([0, 1]))


def test_without_the_token_it_is_the_vit_to_the_bit():
    torch.manual_seed(0)
    vit = ViT(ViTConfig(**SIZES["32 px"]))
    ours = DeiT(DeiTConfig(**SIZES["32 px"], distilled=False))
    ours.load_state_dict(vit.state_dict())
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(ours(images), vit(images))
    with pytest.raises(ValueError, match="one head, got distilled=False"):
        ours.forward_both(ours.forward_features(images))


def test_features_alone_and_no_positions():
    ours = DeiT(DeiTConfig(**SIZES["32 px"] | {"classes": 0}, positions=False)).eval()
    images = torch.randn(2, 3, 32, 32)
    tokens = ours.forward_features(images)
    assert ours.pos_embed is None
    assert torch.equal(ours(images), (tokens[:, 0] + tokens[:, 1]) / 2)


def test_taps_fire_and_read_what_flows():
    ours, _ = pair(SMALL, 0)
    ours.eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad(), hooks.taps(ours, hooks.names(ours)) as seen:
        ours(images)
    assert set(seen) == set(hooks.names(ours)) > {"patch_embed", "attn.2", "block.2", "cls_norm"}
    assert seen["attn.2"].shape == (2, 3, 66, 66)
    assert torch.allclose(seen["attn.2"].sum(-1), torch.ones(2, 3, 66), atol=1e-5)
    assert seen["block.0"].shape == (2, 66, 48)


@pytest.mark.parametrize("fused", [True, False])
def test_bfloat16_is_finite_and_close(fused):
    torch.manual_seed(0)
    ours = DeiT(SMALL)
    for block in ours.blocks:
        block.attn.fused_attn = fused
    images = torch.randn(2, 3, 32, 32)
    exact = torch.stack(ours(images))
    with torch.autocast("cpu", torch.bfloat16):
        low = torch.stack(ours(images))
    low.float().square().sum().backward()
    assert torch.allclose(low.float(), exact, atol=0.05)
    assert all(p.grad.isfinite().all() for p in ours.parameters())


class TestBadInput:
    @pytest.mark.parametrize(
        ("images", "says"),
        [
            (torch.zeros(1, 3, 28, 28), r"takes images \(batch, 3, 32, 32\), got \(1, 3, 28, 28\)"),
            (torch.zeros(1, 1, 32, 32), r"got \(1, 1, 32, 32\)"),
            (torch.zeros(3, 32, 32), r"got \(3, 32, 32\)"),
            (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "floating-point images, got torch.uint8"),
        ],
    )
    def test_images_that_do_not_fit(self, images, says):
        with pytest.raises(ValueError, match=says):
            DeiT(SMALL)(images)

    @pytest.mark.parametrize(
        ("sizes", "says"),
        [
            ({"image_size": 30}, "multiple of the patch side, got 30 and 4"),
            ({"heads": 5}, "multiple of the number of heads, got 48 and 5"),
            ({"depth": 0}, "at least 1"),
            ({"classes": -1}, "0 classes or more, got -1"),
            ({"pool": "mean"}, "pool is \"cls\", got 'mean'; set distilled=False"),
        ],
    )
    def test_sizes_that_do_not_fit(self, sizes, says):
        with pytest.raises(ValueError, match=says):
            DeiTConfig(**(SIZES["32 px"] | sizes))

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"act_layer": "quick_gelu"}, "an activation"),
            ({"norm_layer": "layernorm"}, "LayerNorm with eps 1e-05, ours 1e-06"),
            ({"img_size": (224, 160)}, r"images \(224, 160\), ours square"),
        ],
    )
    def test_a_peer_that_computes_otherwise_is_refused(self, options, says):
        if options.get("norm_layer"):
            options = {"norm_layer": nn.LayerNorm}
        with torch.device("meta"):
            theirs = timm.create_model("deit_tiny_distilled_patch16_224", depth=1, **options)
        with pytest.raises(ValueError, match=says):
            peer.config_of(theirs)
