"""Taps on this course's ViT and on timm's: what they read, what they leave untouched, what they say when wrong."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

from vitlab import hooks
from vitlab.models.vit import ViT, ViTConfig

SIZES = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 2, "num_classes": 7}
IMAGES = torch.randn(3, 3, 32, 32, generator=torch.manual_seed(0))


def timm_vit(name="vit_tiny_patch16_224", **options):
    torch.manual_seed(0)
    model = timm.create_model(name, **SIZES, **options).eval()
    for p in model.parameters():  # timm starts some at zero, which hides mistakes
        nn.init.normal_(p, std=0.2)
    return model


def our_vit(**options):
    torch.manual_seed(0)
    config = ViTConfig(image_size=32, patch_size=8, dim=24, depth=3, heads=2, classes=7, **options)
    return ViT(config).eval()


MODELS = {
    "ours": our_vit,
    "ours without CLS": lambda: our_vit(pool="mean"),
    "ours without positions": lambda: our_vit(positions=False),
    "timm": timm_vit,
    "timm, registers": lambda: timm_vit(reg_tokens=4),
    "timm, distilled": lambda: timm_vit("deit_tiny_distilled_patch16_224"),
    "timm, no CLS": lambda: timm_vit(class_token=False, global_pool="avg"),
    "timm, norm after pooling": lambda: timm_vit(global_pool="avg", fc_norm=True),
    "timm, any size": lambda: timm_vit(dynamic_img_size=True),
    "timm, norm before blocks": lambda: timm_vit(pre_norm=True),
    "timm, layer scale": lambda: timm_vit(init_values=0.1),
    "timm, q and k normalised": lambda: timm_vit(qk_norm=True),
}


def traces(model):
    """All that a tap could leave behind."""
    found = []
    for name, module in model.named_modules():
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            found.append((name, kind, tuple(getattr(module, kind))))
        found.append((name, getattr(module, "fused_attn", None)))
    return found


def by_hand(model, images):
    """The same activations computed step by step, attention by its equation."""
    seen = {}
    if isinstance(model, ViT):
        seen["patch_embed"] = model.patch_embed(images)
        x = model.embed(images)
    else:
        patches = model.patch_embed(images)
        seen["patch_embed"] = patches.flatten(1, 2) if patches.ndim == 4 else patches
        x = model.norm_pre(model._pos_embed(patches))
    seen["pos_embed"] = x
    for i, block in enumerate(model.blocks):
        a, h = block.attn, block.norm1(x)
        q, k, _ = a.qkv(h).unflatten(-1, (3, a.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if hasattr(a, "q_norm"):
            q, k = a.q_norm(q), a.k_norm(k)
        seen[f"attn.{i}"] = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        seen[f"block.{i}"] = x = block(x)
    seen["cls"], seen["cls_norm"] = x[:, 0], model.norm(x)[:, 0]
    return seen


@pytest.mark.parametrize("kind", MODELS)
def test_every_tap_reads_what_it_names(kind):
    model = MODELS[kind]()
    names = hooks.names(model)
    with torch.no_grad():
        want = by_hand(model, IMAGES)
        with hooks.taps(model, names) as seen:
            model(IMAGES)
    assert list(seen) == names == [n for n in ordered(len(model.blocks)) if n in names]
    for name in names:
        torch.testing.assert_close(seen[name], want[name], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    assert seen["patch_embed"].shape == (3, 16, 24)
    torch.testing.assert_close(seen["attn.1"].sum(-1), torch.ones(seen["attn.1"].shape[:-1]))
    assert seen["attn.1"].shape[:2] == (3, 2) and seen["attn.1"].shape[2] == seen["block.1"].shape[1]
    assert not seen["block.0"].requires_grad


def ordered(depth):
    middle = [name for i in range(depth) for name in (f"attn.{i}", f"block.{i}")]
    return ["patch_embed", "pos_embed", *middle, "cls", "cls_norm"]


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("ours", set()),
        ("timm", set()),
        ("timm, distilled", set()),
        ("timm, registers", set()),
        ("ours without CLS", {"cls", "cls_norm"}),
        ("timm, no CLS", {"cls", "cls_norm"}),
        ("timm, norm after pooling", {"cls_norm"}),
    ],
)
def test_names_are_in_order_of_depth_and_leave_out_what_is_not_there(kind, missing):
    assert hooks.names(MODELS[kind]()) == [n for n in ordered(3) if n not in missing]


@pytest.mark.parametrize("make", [our_vit, timm_vit])
def test_outputs_are_not_replaced_and_nothing_stays(make):
    model = make()
    before, plain = traces(model), model(IMAGES)
    unfused = [n for n in hooks.names(model) if not n.startswith("attn")]
    with hooks.taps(model, unfused):
        assert torch.equal(model(IMAGES), plain)
    with hooks.taps(model, {n: lambda x: x * 0 for n in unfused}):  # whatever a function returns is dropped
        assert torch.equal(model(IMAGES), plain)
    with hooks.taps(model, {n: lambda x: x * 0 for n in hooks.names(model)}):
        torch.testing.assert_close(model(IMAGES), plain)
    assert traces(model) == before
    assert torch.equal(model(IMAGES), plain)


def test_attention_is_unfused_only_where_it_is_read():
    model = timm_vit()
    assert all(b.attn.fused_attn for b in model.blocks)
    with hooks.taps(model, ["attn.1"]):
        assert [b.attn.fused_attn for b in model.blocks] == [True, False, True]
        model(IMAGES)
    assert all(b.attn.fused_attn for b in model.blocks)


def test_a_model_that_came_unfused_stays_unfused():
    model = our_vit()
    model.blocks[0].attn.fused_attn = False
    with hooks.taps(model, ["attn.0", "attn.1"]):
        model(IMAGES)
    assert [b.attn.fused_attn for b in model.blocks] == [False, True, True]


def test_nested_contexts_each_see_all_and_put_back_what_they_found():
    model = our_vit()
    before = traces(model)
    with hooks.taps(model, ["attn.0", "block.1"]) as outer:
        with hooks.taps(model, ["attn.0", "attn.2"]) as inner:
            model(IMAGES)
        assert torch.equal(outer["attn.0"], inner["attn.0"])
        assert [b.attn.fused_attn for b in model.blocks] == [False, True, True]
        model(IMAGES[:1])  # the outer tap must still see weights
        assert len(outer["attn.0"]) == 1 and len(inner["attn.0"]) == 3
    assert traces(model) == before


def test_everything_is_removed_when_the_model_or_the_body_or_a_function_fails():
    model = our_vit()
    before = traces(model)
    with pytest.raises(ZeroDivisionError), hooks.taps(model, hooks.names(model)):
        _ = 1 / 0  # nothing has fired, and the body's own error is the one that comes out
    assert traces(model) == before
    with pytest.raises(ValueError, match="32"), hooks.taps(model, hooks.names(model)):
        model(IMAGES[..., :5])
    assert traces(model) == before

    def fail(x):
        raise LookupError("mine")

    with (
        pytest.raises(LookupError, match="mine"),
        hooks.taps(model, ["attn.1"]),
        hooks.taps(model, {"attn.1": fail, "block.2": fail}),
    ):
        model(IMAGES)
    assert traces(model) == before


def test_taps_that_did_not_fire_are_named():
    model = our_vit()
    with (
        pytest.raises(RuntimeError, match=r"^The taps block\.1, cls did not fire; run the model"),
        hooks.taps(model, ["patch_embed", "block.1", "cls"]),
    ):
        model.patch_embed(IMAGES)
    with pytest.raises(RuntimeError, match=r"^The tap cls did not fire"), hooks.taps(model, {"cls": print}):
        pass
    assert traces(model) == traces(our_vit())


def test_attention_that_never_forms_its_weights_is_said_not_to_fire():
    """A model that ignores `fused_attn` gives no weights and no error of its own."""
    model = our_vit()
    model.blocks[1].attn.forward = lambda x: x
    with pytest.raises(RuntimeError, match=r"attn\.1 did not fire"), hooks.taps(model, ["attn.0", "attn.1"]):
        model(IMAGES)


def test_reading_too_early_or_the_wrong_name_says_so():
    model = our_vit()
    with hooks.taps(model, ["block.0", "block.1"]) as seen:
        assert "block.0" not in seen and len(seen) == 0
        with pytest.raises(KeyError) as early:
            seen["block.0"]
        model(IMAGES)
    assert (
        str(early.value)
        == "The tap 'block.0' has not fired yet; run the model inside the context before reading it."
    )
    with pytest.raises(KeyError) as other:
        seen["block.2"]
    assert "was not asked for (did you mean 'block." in str(other.value)
    assert seen.get("block.2") is None
    assert repr(seen) == "Seen(block.0: (3, 17, 24), block.1: (3, 17, 24))"


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("ours", "blok.1", "no tap 'blok.1' (did you mean 'block.1'"),
        ("ours", "attn.3", "no tap 'attn.3', for it has 3 blocks, counted from 0"),
        ("ours", "anything", "no tap 'anything'; hooks.names(model) lists them all"),
        ("ours without CLS", "cls", "no tap 'cls', for it has no class token; average 'block.2' instead"),
        ("timm, no CLS", "cls_norm", "no tap 'cls_norm', for it has no class token"),
        ("timm, norm after pooling", "cls_norm", "no tap 'cls_norm', for it normalises after pooling"),
    ],
)
def test_a_name_that_is_no_tap_says_why_and_touches_nothing(kind, name, words):
    model = MODELS[kind]()
    before = traces(model)
    with pytest.raises(ValueError) as error, hooks.taps(model, ["attn.0", name]):
        pass
    assert words in str(error.value) and "\n" not in str(error.value)
    assert traces(model) == before


def test_models_and_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"Taps need a ViT with timm's `blocks`, Linear has none"):
        hooks.names(nn.Linear(2, 2))
    model = our_vit()
    model.blocks[1].attn = nn.Identity()
    assert "attn.1" not in hooks.names(model)
    for wanted, options, words in [
        (["attn.1"], {}, "no `attn_drop`"),
        ([], {}, "at least one name"),
        (["cls"], {"keep": "none"}, "'last' or 'all'"),
        ({"cls": print}, {"keep": "all"}, "nothing is stored"),
        ({"cls": None}, {}, "needs a function"),
    ]:
        with pytest.raises(ValueError, match=words), hooks.taps(model, wanted, **options):
            pass


def test_functions_are_called_with_each_activation_and_nothing_is_stored():
    model, calls = our_vit(), []
    with hooks.taps(model, {"block.1": lambda x: calls.append(tuple(x.shape)), "cls": lambda x: x}) as seen:
        model(IMAGES)
        model(IMAGES[:2])
    assert calls == [(3, 17, 24), (2, 17, 24)]
    assert len(seen) == 0 and seen.counts == {"block.1": 2, "cls": 2}
    with pytest.raises(KeyError, match="stores none"):
        seen["block.1"]


def test_a_function_that_changes_its_activation_in_place_is_stopped():
    model = our_vit()
    with (
        torch.no_grad(),
        pytest.raises(RuntimeError, match=r"at 'block\.0' changed its activation in place"),
        hooks.taps(model, {"block.0": lambda x: x.mul_(0)}),
    ):
        model(IMAGES)


def test_last_is_kept_by_default_and_all_is_joined():
    model = our_vit()
    with hooks.taps(model, "cls") as last, hooks.taps(model, ["cls", "cls"], keep="all") as every:
        model(IMAGES[:2])
        model(IMAGES[2:])
    assert len(last["cls"]) == 1
    with hooks.taps(model, "cls") as whole:
        model(IMAGES)
    torch.testing.assert_close(every["cls"], whole["cls"])


def test_the_graph_is_kept_on_request_and_training_goes_on():
    model = our_vit(dropout=0.1, attention_dropout=0.1, drop_path=0.1).train()
    images = IMAGES.clone().requires_grad_()
    with hooks.taps(model, ["block.1", "attn.1"], grad=True) as seen:
        model(images).sum().backward()
    torch.testing.assert_close(seen["attn.1"].sum(-1), torch.ones(3, 2, 17))  # read before dropout
    assert model.head.weight.grad is not None
    images.grad = None
    with hooks.taps(model, ["block.1"], grad=True) as seen:
        model(images)
    (gradient,) = torch.autograd.grad(seen["block.1"][:, 3].square().sum(), images)
    assert gradient.abs().sum() > 0
    with hooks.taps(model, ["block.1"]) as seen:
        model(images).sum().backward()
    assert not seen["block.1"].requires_grad


def test_inference_mode_and_half_precision():
    model = our_vit().to(torch.bfloat16)
    with torch.inference_mode(), hooks.taps(model, hooks.names(model)) as seen:
        model(IMAGES.to(torch.bfloat16))
    assert seen["block.2"].dtype == torch.bfloat16
    with torch.inference_mode(), hooks.taps(model, {"block.0": torch.Tensor.sum}):
        model(IMAGES.to(torch.bfloat16))


def test_checkpointed_timm_model_fires():
    model = timm_vit()
    model.set_grad_checkpointing(True)
    with hooks.taps(model, ["block.1"]) as seen:
        model(IMAGES)
    assert seen["block.1"].shape == (3, 17, 24)
