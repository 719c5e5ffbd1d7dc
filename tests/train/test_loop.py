"""The loop: it computes what a loop in plain torch does, to the bit, and what hangs on it is called as it says."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import time
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from timm.scheduler import CosineLRScheduler
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from toys import CLASSES, LIVELY, Tied, assert_near, assert_same, feed, linear, one_sentence, vit, weights

from vitlab import lab, train
from vitlab.data.views import MultiCrop, View
from vitlab.models.convnet import ConvNet, ConvNetConfig
from vitlab.models.convstem import ConvStemViT
from vitlab.train.objectives import Objective
from vitlab.train.recipe import adamw, precision_on, set_rates

RECIPE = train.Recipe(steps=12, batch_size=8, lr=3e-3, warmup=3)
SUPERVISED = train.supervised(CLASSES)


def fit(model, recipe=RECIPE, objective=SUPERVISED, batches=None, **more):
    return train.fit(model, batches or feed(recipe.batch_size), objective, recipe, **more)


def plain(model, batches, steps, lr, warmup, decay, seed, clip, ema):
    """AdamW, warm-up and half a cosine, clipping and an average, written down once more."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}], fused=True
    )
    average = copy.deepcopy(model).eval()
    losses = []
    for step in range(steps):
        done = (step - warmup) / (steps - warmup)
        rate = lr * (step + 1) / (warmup + 1) if step < warmup else lr / 2 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        torch.manual_seed(int(np.random.SeedSequence([seed, step, 0]).generate_state(1)[0]))
        images, labels = batches(step)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(matrices + vectors, clip)
        optimizer.step()
        losses.append(loss.item())
        with torch.no_grad():
            for mean, now in zip(average.parameters(), model.parameters(), strict=True):
                mean.copy_(now) if step == 0 else mean.lerp_(now, 1 - ema)
            for mean, now in zip(average.buffers(), model.buffers(), strict=True):
                mean.copy_(now)
    return losses, average


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("kind", ["vit", "with dropout and batch norm"])
def test_it_equals_a_loop_in_plain_torch_to_the_bit(kind, clip):
    new = vit if kind == "vit" else partial(vit, ConvStemViT, dropout=0.2, attention_dropout=0.1, drop_path=0.3)
    recipe = train.Recipe(12, 8, lr=3e-3, weight_decay=0.3, warmup=3, clip=clip, ema=0.7, seed=5)
    ours, theirs = new(), new()
    result = fit(ours, recipe)
    losses, average = plain(theirs, feed(), 12, 3e-3, 3, 0.3, 5, clip, 0.7)
    assert result.losses.dtype == np.float32 and result.losses.tolist() == losses
    assert_same(weights(ours), weights(theirs))
    assert_same(weights(result.ema), weights(average))
    assert not (ours.training or result.ema.training)


@pytest.mark.parametrize("parts", [2, 4])
def test_a_batch_in_parts_is_the_batch(parts):
    ours, theirs = vit(qkv_bias=False), vit(qkv_bias=False)
    whole = fit(theirs)
    result = fit(ours, train.Recipe(steps=12, batch_size=8, lr=3e-3, warmup=3, accumulate=parts))
    np.testing.assert_allclose(result.losses, whole.losses, rtol=0, atol=1e-6)
    assert_near(weights(ours), weights(theirs), atol=1e-5)  # where a gradient is 0, its noise is all Adam sees


class TwoViews(Objective):
    """The scores of two views of an image shall agree."""

    def forward(self, model, images, labels):
        self.sizes = [len(x) for x in images]
        one, other = (model(x) for x in images)
        return F.cross_entropy(one, labels) + (one - other).square().mean()


def test_several_views_of_a_batch_come_in_parts_too():
    batches = feed(view=MultiCrop([LIVELY, View()]))
    results = []
    for parts in (1, 2):
        objective = TwoViews()
        recipe = train.Recipe(steps=6, batch_size=8, accumulate=parts)
        results.append(fit(linear(), recipe, objective, batches).losses)
        assert objective.sizes == [8 // parts] * 2
    np.testing.assert_allclose(*results, rtol=0, atol=1e-6)


def test_the_average_is_its_closed_form():
    """e_T = d^(T-1) w_1 + (1 - d) sum of d^(T-t) w_t over t = 2 to T: it begins with the first weights learned."""
    seen = []
    model = linear()
    result = fit(
        model,
        train.Recipe(steps=9, batch_size=8, ema=0.6, lr=0.01),
        callbacks=[lambda now: seen.append({k: v.double() for k, v in weights(now.model).items()})],
    )
    for name, value in weights(result.ema).items():
        expected = 0.6**8 * seen[1][name] + 0.4 * sum(0.6 ** (9 - t) * seen[t][name] for t in range(2, 10))
        torch.testing.assert_close(value.double(), expected, rtol=0, atol=1e-6)
    assert fit(linear()).ema is None


@pytest.mark.parametrize("clip", [0.05, 1e6, None])
def test_the_gradient_is_clipped_at_a_norm(clip):
    norms = []

    def look(optimizer, *_):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms.append(torch.cat([g.flatten() for g in gradients]).norm().item())

    hook = register_optimizer_step_pre_hook(look)
    try:
        fit(linear(), train.Recipe(steps=4, batch_size=8, clip=clip))
    finally:
        hook.remove()
    if clip == 0.05:
        assert norms == pytest.approx([0.05] * 4, rel=1e-4)
    else:
        assert len(norms) == 4 and min(norms) > 0.1  # so that a bound of 0.05 binds


class TestRates:
    def test_a_line_up_then_half_a_cosine(self):
        recipe = train.Recipe(steps=100, lr=2.0, warmup=9, final_lr=0.5)
        assert [recipe.rate(s) for s in range(10)] == pytest.approx([0.2 * (s + 1) for s in range(10)])
        assert recipe.rate(9) == 2.0
        for step in range(9, 100):
            assert recipe.rate(step) == pytest.approx(0.5 + 0.75 * (1 + math.cos(math.pi * (step - 9) / 91)))
        assert recipe.rate(100) == pytest.approx(0.5)

    @pytest.mark.parametrize(("steps", "warmup"), [(50, 0), (50, 7), (30, 29)])
    def test_they_are_timms(self, steps, warmup):
        recipe = train.Recipe(steps=steps, lr=0.3, warmup=warmup, final_lr=0.01)
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
        theirs = CosineLRScheduler(
            optimizer,
            t_initial=steps - warmup,
            lr_min=0.01,
            warmup_t=warmup,
            warmup_lr_init=0.3 / (warmup + 1),
            warmup_prefix=True,
        )
        for step in range(steps):
            theirs.step(step)
            assert recipe.rate(step) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)

    def test_the_weight_decay_moves_along_half_a_cosine_or_stays(self):
        recipe = train.Recipe(steps=10, weight_decay=0.04, final_weight_decay=0.4)
        assert [recipe.decay(s) for s in (0, 5, 10)] == pytest.approx([0.04, 0.22, 0.4])
        assert train.Recipe(steps=10, weight_decay=0.04).decay(7) == pytest.approx(0.04)

    def test_every_step_has_its_rate_and_vectors_are_not_decayed(self):
        seen = []

        def look(optimizer, *_):
            seen.append([(g["lr"], g["weight_decay"]) for g in optimizer.param_groups])

        recipe = train.Recipe(steps=5, batch_size=8, warmup=2, weight_decay=0.1, final_weight_decay=0.3)
        hook = register_optimizer_step_pre_hook(look)
        try:
            fit(vit(), recipe)
        finally:
            hook.remove()
        assert seen == [[(recipe.rate(s), recipe.decay(s)), (recipe.rate(s), 0.0)] for s in range(5)]

    def test_groups_hold_what_is_learned_once(self):
        model = vit()
        model.blocks[0].requires_grad_(False)
        decayed, spared = (g["params"] for g in adamw(model, RECIPE).param_groups)
        names = {id(p): name for name, p in model.named_parameters()}
        assert {names[id(p)] for p in (*decayed, *spared)} == {
            n for n in names.values() if not n.startswith("blocks.0.")
        }
        assert all(names[id(p)].endswith(("weight", "pos_embed", "cls_token")) for p in decayed)
        assert all(names[id(p)].endswith(("bias", "norm1.weight", "norm2.weight", "norm.weight")) for p in spared)

    def test_decay_alone_shrinks_matrices_by_its_rate(self):
        model = linear()
        before = weights(model)
        optimizer = adamw(model, train.Recipe(steps=1, lr=0.1, weight_decay=0.5))
        set_rates(optimizer, train.Recipe(steps=1, lr=0.1, weight_decay=0.5), 0)
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
        torch.testing.assert_close(model[1].weight, before["1.weight"] * (1 - 0.1 * 0.5))
        assert torch.equal(model[1].bias, before["1.bias"])


class TestCallbacks:
    def test_they_are_called_at_step_0_every_so_often_and_at_the_end(self):
        seen = {"every 5": [], "always": []}
        fit(
            linear(),
            callbacks=[
                train.every(5, lambda now: seen["every 5"].append((now.step, now.steps))),
                lambda now: seen["always"].append(now.step),
            ],
        )
        assert seen == {"every 5": [(0, 12), (5, 12), (10, 12), (12, 12)], "always": list(range(13))}

    def test_they_see_the_network_in_eval_mode_and_training_goes_on_in_train_mode(self):
        model, modes = vit(dropout=0.5), []
        model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
        images = feed()(0)[0]
        answers = []

        def look(now):
            assert not torch.is_grad_enabled()
            answers.append(torch.equal(now.model(images), now.model(images)))

        fit(model, callbacks=[train.every(4, look)])
        assert all(answers) and len(answers) == 4
        assert modes == [False] * 2 + ([True] * 4 + [False] * 2) * 3
        assert not model.training

    def test_looking_changes_nothing(self):
        def look(now):
            torch.rand(7)
            np.random.rand(7)
            now.model(torch.rand(8, 3, 8, 8))

        models = [vit(ConvStemViT, dropout=0.2) for _ in range(2)]
        results = [fit(m, callbacks=c).losses for m, c in zip(models, ([], [train.every(1, look)]), strict=True)]
        assert np.array_equal(*results)
        assert_same(*map(weights, models))

    def test_losses_and_step_are_those_so_far(self):
        seen = []
        result = fit(linear(), callbacks=[lambda now: seen.append(now.losses.count_nonzero().item())])
        assert seen == list(range(13))
        assert (result.losses > 0).all()

    def test_notes_come_back_with_their_steps(self):
        def look(now):
            now.note(twice=2 * now.step, place=np.array([now.step, 1.0]), tensor=torch.ones(2, 3))

        log = fit(linear(), callbacks=[train.every(6, look)]).log
        assert log.keys() == {"twice", "place", "tensor"}
        assert all(steps.tolist() == [0, 6, 12] for steps, _ in log.values())
        assert log["twice"][1].tolist() == [0, 12, 24]
        assert log["place"][1].tolist() == [[0, 1], [6, 1], [12, 1]] and log["tensor"][1].shape == (3, 2, 3)

    def test_a_note_is_what_it_was_when_it_was_taken(self):
        model = linear()
        before = model[1].weight.detach().clone()
        log = fit(model, callbacks=[train.every(6, lambda now: now.note(weight=now.model[1].weight))]).log
        assert np.array_equal(log["weight"][1][0], before.numpy())

    def test_the_averaged_network_is_in_eval_mode_too(self):
        modes = []
        recipe = train.Recipe(steps=3, batch_size=8, ema=0.9)
        fit(vit(), recipe, callbacks=[train.every(1, lambda now: modes.append(now.ema.training))])
        assert not any(modes)

    def test_the_last_note_stays_when_the_network_is_trained_again(self):
        model = linear()
        log = fit(model, callbacks=[train.every(6, lambda now: now.note(weight=now.model[1].weight))]).log
        last = log["weight"][1][-1].copy()
        fit(model)
        assert np.array_equal(log["weight"][1][-1], last)

    def test_notes_of_two_shapes_are_refused_at_once(self):
        with pytest.raises(ValueError, match=r"one shape, \(0,\) at step 0, got \(1,\) at step 1") as caught:
            fit(linear(), callbacks=[lambda now: now.note(row=np.zeros(now.step))])
        one_sentence(caught.value)

    @pytest.mark.parametrize(("batch", "parts"), [(16, 1), (4, 1), (8, 2)])
    def test_a_feed_and_a_recipe_of_other_batch_sizes_are_told(self, batch, parts):
        recipe = train.Recipe(steps=3, batch_size=batch, accumulate=parts)
        if (batch, parts) == (8, 2):
            fit(linear(), recipe, batches=feed(8))  # the same images in two parts are no fault
            return
        with pytest.raises(ValueError, match=f"parts of {batch} images for each process, the feed's are of 8"):
            fit(linear(), recipe, batches=feed(8))

    def test_their_time_is_not_training_time(self):
        result = fit(linear(), callbacks=[train.every(6, lambda now: time.sleep(0.4))])
        assert result.images_per_second > 12 * 8 / 1.2

    def test_notes_survive_a_stop(self, tmp_path, monkeypatch):
        file = tmp_path / "c.safetensors"

        def look(now):
            now.note(step=now.step)
            if now.step == 7 and not file.exists():
                monkeypatch.setenv("VITLAB_DEADLINE", "1")

        with pytest.raises(lab.OutOfTime):
            fit(linear(), checkpoint=file, callbacks=[look])
        monkeypatch.delenv("VITLAB_DEADLINE")
        steps, values = fit(linear(), checkpoint=file, callbacks=[look]).log["step"]
        assert steps.tolist() == values.tolist() == list(range(13))

    def test_every_no_steps_is_refused(self):
        with pytest.raises(ValueError, match="every 1 step or more, got 0") as caught:
            train.every(0, print)
        one_sentence(caught.value)


class Hooked(Objective):
    """Writes down when it is called, and takes the gradient of the bias away."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, model, images, labels):
        self.calls.append("loss")
        return F.cross_entropy(model(images), labels)

    def before_step(self, model, step):
        self.calls.append(f"before {step}")
        assert model[1].weight.grad.abs().sum() > 0
        self.bias = model[1].bias.detach().clone()
        model[1].bias.grad = None

    def after_step(self, model, step):
        self.calls.append(f"after {step}")
        assert torch.equal(model[1].bias, self.bias)
        assert model[1].weight.grad is None


def test_an_objective_is_called_before_and_after_each_step():
    objective = Hooked()
    fit(linear(), train.Recipe(steps=2, batch_size=8, accumulate=2), objective)
    assert objective.calls == ["loss", "loss", "before 0", "after 0", "loss", "loss", "before 1", "after 1"]


class TestNetworks:
    def test_tied_weights_stay_tied_and_are_one_parameter(self):
        ours, theirs = Tied(), Tied()
        assert fit(ours).losses.tolist() == plain(theirs, feed(), 12, 3e-3, 3, 0.05, 0, 1.0, 0.9)[0]
        assert ours.other.weight is ours.one.weight
        assert_same(weights(ours), weights(theirs))

    def test_frozen_parameters_are_as_they_were(self):
        model = vit()
        model.blocks.requires_grad_(False)
        before = weights(model)
        fit(model, train.Recipe(steps=3, batch_size=8, weight_decay=1.0, ema=0.5))
        for name, value in weights(model).items():
            assert torch.equal(value, before[name]) == name.startswith("blocks"), name

    def test_a_network_that_learns_nothing_is_refused(self):
        with pytest.raises(ValueError, match="no parameter that is learned; unfreeze one") as caught:
            fit(linear().requires_grad_(False))
        one_sentence(caught.value)

    def test_batch_norm_keeps_the_statistics_of_training(self):
        def new():
            torch.manual_seed(1)
            return ConvNet(ConvNetConfig(classes=CLASSES, widths=(4, 8), convolutions=1))

        ours, theirs = new(), new()
        assert fit(ours).losses.tolist() == plain(theirs, feed(), 12, 3e-3, 3, 0.05, 0, 1.0, 0.9)[0]
        assert_same(weights(ours), weights(theirs))
        assert ours.stem[1].num_batches_tracked == 12

    def test_forward_is_left_as_it_was(self):
        model = vit()
        for precision in ("fp32", "bf16", "fp32"):
            fit(model, train.Recipe(steps=1, batch_size=8, precision=precision))
            assert inspect.unwrap(model.forward.__func__) is type(model).forward is model.forward.__func__
            assert "_original_forward" not in vars(model)
            other = pickle.loads(pickle.dumps(copy.deepcopy(model)))
            nn.init.zeros_(other.head.weight)  # it has weights of its own
            assert not torch.equal(other(torch.ones(1, 3, 8, 8)), model(torch.ones(1, 3, 8, 8)))

    def test_forward_is_left_as_it_was_after_an_error_too(self):
        def fail(now):
            raise ZeroDivisionError

        model = vit()
        with pytest.raises(ZeroDivisionError):
            fit(model, train.Recipe(steps=1, batch_size=8, precision="bf16"), callbacks=[fail])
        assert model.forward.__func__ is type(model).forward and not model.training


class TestPrecision:
    def test_one_training_after_another_in_its_own(self):
        kinds = []
        results = {}
        for precision in ("fp32", "bf16", "fp32", "auto"):
            model = vit()
            model.blocks[0].mlp.fc1.register_forward_hook(lambda m, i, out: kinds.append(out.dtype))
            result = fit(model, train.Recipe(steps=4, batch_size=8, precision=precision)).losses
            if precision in results:
                assert np.array_equal(result, results[precision])
            results[precision] = result
            assert all(p.dtype == torch.float32 for p in model.parameters())
        single, half = torch.float32, torch.bfloat16
        assert kinds == [single] * 4 + [half] * 4 + [single] * 8
        assert np.array_equal(results["auto"], results["fp32"])
        assert not np.array_equal(results["bf16"], results["fp32"])
        np.testing.assert_allclose(results["bf16"], results["fp32"], atol=0.05)

    def test_what_auto_takes(self, monkeypatch):
        cuda = torch.device("cuda")
        assert precision_on(torch.device("cpu"), "auto") == precision_on(torch.device("mps"), "auto") == "fp32"
        for has_bf16, best in ((True, "bf16"), (False, "fp16")):
            monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, has=has_bf16: has)
            assert precision_on(cuda, "auto") == best
            assert precision_on(cuda, "fp32") == "fp32" and precision_on(cuda, "fp16") == "fp16"
        assert precision_on(torch.device("cpu"), "bf16") == "bf16"

    @pytest.mark.parametrize("device", ["cpu", "mps"])
    def test_fp16_is_for_cuda(self, device):
        with pytest.raises(ValueError, match=f"fp16 needs a CUDA device, this is {device}") as caught:
            precision_on(torch.device(device), "fp16")
        one_sentence(caught.value)


def test_a_compiled_network_learns_the_same(monkeypatch):
    """Traced by torch.compile and run without its code generator, whose C++ compiler would take a minute."""
    compiled, real = [], torch.compile

    def traced(graph, inputs):
        compiled.append(len(inputs))
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda model, **_: real(model, backend=traced))
    ours, theirs = vit(depth=1), vit(depth=1)
    result = fit(
        ours, train.Recipe(steps=3, batch_size=8, compile=True), callbacks=[train.every(2, lambda now: None)]
    )
    expected = fit(theirs, train.Recipe(steps=3, batch_size=8))
    assert compiled
    np.testing.assert_allclose(result.losses, expected.losses, rtol=0, atol=1e-5)
    assert_near(weights(ours), weights(theirs), atol=1e-4)
    assert type(ours) is type(theirs) and ours.forward.__func__ is type(ours).forward


def test_the_speed_is_of_this_run_alone(tmp_path):
    file = tmp_path / "c.safetensors"
    assert fit(linear(), checkpoint=file).images_per_second > 0
    assert fit(linear(), checkpoint=file).images_per_second == 0  # nothing was left to train


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({"steps": 0}, "at least 1"),
        ({"batch_size": 0}, "at least 1"),
        ({"accumulate": 3}, "divides into its parts, got 10, 8 and 3"),
        ({"lr": 0.0}, "Rates are positive"),
        ({"lr": math.nan}, "Rates are positive"),
        ({"final_lr": -1.0}, "Rates are positive"),
        ({"weight_decay": -0.1}, "Rates are positive"),
        ({"final_weight_decay": -0.1}, "Rates are positive"),
        ({"warmup": 10}, "warmup 10 of 10 steps"),
        ({"betas": (0.9, 1.0)}, r"Decays lie in \[0, 1\)"),
        ({"ema": 1.0}, r"Decays lie in \[0, 1\)"),
        ({"clip": 0.0}, "positive norm, got 0.0"),
        ({"precision": "fp8"}, "got 'fp8'"),
    ],
)
def test_a_recipe_that_cannot_train_is_refused(numbers, says):
    with pytest.raises(ValueError, match=says) as caught:
        train.Recipe(**({"steps": 10, "batch_size": 8} | numbers))
    one_sentence(caught.value)
