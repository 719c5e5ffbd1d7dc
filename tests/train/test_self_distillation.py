"""DINO's objective: its loss, centre and teacher against plain sums, what stops it, and what it cannot take."""

from __future__ import annotations

import copy
import itertools
import math
import os
import re
import subprocess
import sys

import crops
import numpy as np
import pytest
import torch
from crops import K, feed, network
from test_distributed import assert_close, assert_equal
from torch import nn
from toys import assert_same, linear, one_sentence, vit, weights

from vitlab import lab, train
from vitlab.data.views import Flip, MultiCrop, View
from vitlab.train.objectives import Objective
from vitlab.train.self_distillation import SILENT
from vitlab.train.watch import INTERVAL, Watch

NOTHING = torch.zeros(4)  # labels, which nobody reads


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def reference(student, teacher, centre, tau_s=0.1, tau_t=0.04):
    """The loss and its gradient to the student's outputs, pair by pair and image by image, in float64."""
    s, t = (x.detach().double().numpy() for x in (student, teacher))
    centre = np.asarray(centre, dtype=np.float64)
    losses, gradient = [], np.zeros_like(s)
    for u in range(len(t)):
        for v in range(len(s)):
            if u == v:
                continue
            for image in range(s.shape[1]):
                p_t = softmax((t[u, image] - centre) / tau_t)
                p_s = softmax(s[v, image] / tau_s)
                losses.append(-(p_t * np.log(p_s)).sum())
                gradient[v, image] += (p_s - p_t) / tau_s
    return np.mean(losses), gradient / len(losses)


def outputs(views, batch=4, seed=0):
    """Cosines, (views, batch, K)."""
    return torch.rand(views, batch, K, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def draw(*sides, batch=4):
    """Views of images, one of each side."""
    return [torch.randn(batch, 3, s, s, generator=torch.Generator().manual_seed(i)) for i, s in enumerate(sides)]


def step(objective, model, number, views, optimizer=None):
    """One step of a training, as the loop does it; return the loss."""
    loss = objective(model, views, NOTHING)
    loss.backward()
    objective.before_step(model, number)
    if optimizer is not None:
        optimizer.step()
    model.zero_grad()
    objective.after_step(model, number)
    return loss.item()


class TestLoss:
    @pytest.mark.parametrize(("views", "global_views"), [(2, 2), (2, 1), (5, 1), (6, 2), (10, 2), (3, 3), (4, 3)])
    @pytest.mark.parametrize("centred", [False, True])
    def test_it_is_the_mean_over_pairs_of_different_views(self, views, global_views, centred):
        objective = train.dino(network(), 10, global_views)
        if centred:
            objective.centre.copy_(torch.linspace(-0.3, 0.5, K))
        student, teacher = outputs(views, seed=1).requires_grad_(), outputs(global_views, seed=2).requires_grad_()
        loss = objective.cross_entropy(student, teacher.detach())
        expected, gradient = reference(student, teacher, objective.centre)
        assert loss.item() == pytest.approx(expected, rel=1e-6)
        loss.backward()
        np.testing.assert_allclose(student.grad.numpy(), gradient, rtol=0, atol=1e-6)

    @pytest.mark.parametrize(("tau_s", "tau_t"), [(0.1, 0.1), (0.2, 0.07), (0.1, 1.0), (1.0, 0.02)])
    def test_each_has_its_own_temperature(self, tau_s, tau_t):
        objective = train.dino(
            network(), 10, student_temperature=tau_s, teacher_temperature=tau_t, warm_temperature=0.5
        )
        student, teacher = outputs(4, seed=1), outputs(2, seed=2)
        expected, _ = reference(student, teacher, np.zeros(K), tau_s, tau_t)
        assert objective.cross_entropy(student, teacher).item() == pytest.approx(expected, rel=1e-6)

    def test_it_is_the_divergence_from_the_teacher_and_the_teachers_entropy(self):
        objective = train.dino(network(), 10)
        student, teacher = outputs(5, seed=1), outputs(2, seed=2)
        loss = objective.cross_entropy(student, teacher).item()
        p = softmax(teacher.double().numpy() / 0.04)  # (2, 4, K)
        entropy = -(p * np.log(p)).sum(-1).mean()
        mean = p.mean((0, 1))
        seen = {name: value.item() for name, value in objective.seen.items()}
        assert seen["entropy"] == pytest.approx(entropy, abs=1e-5)
        assert seen["divergence"] == pytest.approx(loss - entropy, abs=1e-5) and seen["divergence"] > 0
        assert seen["information"] == pytest.approx(-(mean * np.log(mean)).sum() - entropy, abs=1e-5)
        assert seen["spread"] == pytest.approx(teacher.flatten(0, 1).double().std(0).mean().item(), abs=1e-5)

    @pytest.mark.parametrize("sides", [(8, 8), (8, 8, 4, 4, 4), (8, 4, 4), (8, 8, 4, 8)])
    def test_a_teacher_sees_the_first_views_and_the_student_all(self, sides):
        model = network()
        objective = train.dino(model, 10, min(2, sides.count(8)))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3)))
        views = draw(*sides)
        student = torch.stack([model([view])[0] for view in views])
        teacher = torch.stack([objective.teacher([view])[0] for view in views[: objective.global_views]])
        assert (student[0] - teacher[0]).abs().max() > 0.01
        expected, gradient = reference(student, teacher, np.zeros(K))
        loss = objective(model, views, NOTHING)
        assert loss.item() == pytest.approx(expected, abs=1e-5)
        loss.backward()
        ours = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        student.backward(torch.tensor(gradient, dtype=torch.float32))
        for a, p in zip(ours, model.parameters(), strict=True):
            torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-5)
        assert all(p.grad is None for p in objective.teacher.parameters())

    def test_a_tuple_of_views_is_as_good_and_the_labels_are_not_read(self):
        model = network()
        objective = train.dino(model, 10)
        views = draw(8, 8, 4)
        assert objective(model, tuple(views), None).item() == objective(model, views, NOTHING).item()

    def test_half_precision_outputs_are_summed_in_whole_precision(self):
        objective = train.dino(network(), 10)
        student, teacher = outputs(4, seed=1).bfloat16(), outputs(2, seed=2).bfloat16()
        loss = objective.cross_entropy(student, teacher)
        expected, _ = reference(student, teacher, np.zeros(K))
        assert loss.dtype == torch.float32 and loss.item() == pytest.approx(expected, abs=1e-5)


class TestSchedules:
    def test_the_teachers_temperature_rises_in_a_line_and_stays(self):
        objective = train.dino(network(), 100, teacher_temperature=0.07, warm_temperature=0.04, warm_steps=30)
        found = [objective.teacher_temperature_at(step) for step in (0, 1, 10, 15, 29, 30, 31, 100)]
        np.testing.assert_allclose(found, [0.04, 0.041, 0.05, 0.055, 0.069, 0.07, 0.07, 0.07], rtol=1e-12)

    def test_without_a_warm_up_it_is_the_same_from_the_first_step(self):
        objective = train.dino(network(), 100, teacher_temperature=0.07)
        assert {objective.teacher_temperature_at(step) for step in range(100)} == {0.07}

    def test_the_papers_defaults(self):
        objective = train.dino(network(), 100)
        assert objective.teacher_temperature_at(0) == 0.04 and objective.student_temperature == 0.1
        assert objective.momentum_at(0) == 0.996 and objective.centre_momentum == 0.9

    @pytest.mark.parametrize("momentum", [0.0, 0.5, 0.996, 1.0])
    def test_the_momentum_rises_to_one_along_half_a_cosine(self, momentum):
        objective = train.dino(network(), 40, momentum=momentum)
        for number in range(50):
            expected = 1 - (1 - momentum) * (math.cos(math.pi * min(number, 40) / 40) + 1) / 2
            assert objective.momentum_at(number) == pytest.approx(expected, abs=1e-12)
        assert objective.momentum_at(0) == pytest.approx(momentum) and objective.momentum_at(40) == 1

    def test_each_step_has_its_own_temperature(self):
        """Steps end with the update of the teacher; both halves of a batch in parts belong to one step."""
        model = network()
        objective = train.dino(model, 6, teacher_temperature=0.5, warm_temperature=0.05, warm_steps=4)
        objective.requires_grad_(False)
        for number in range(6):
            tau = objective.teacher_temperature_at(number)
            assert tau == pytest.approx([0.05, 0.1625, 0.275, 0.3875, 0.5, 0.5][number])
            for part in range(2):
                student, teacher = outputs(4, seed=number), outputs(2, seed=part)
                expected, _ = reference(student, teacher, objective.centre, tau_t=tau)
                assert objective.cross_entropy(student, teacher).item() == pytest.approx(expected, rel=1e-6)
            objective(model, draw(8, 8), NOTHING)
            objective.after_step(model, number)


class TestCentre:
    @pytest.mark.parametrize("momentum", [0.9, 0.5, 0.0])
    def test_it_follows_the_mean_of_the_teachers_outputs_after_the_loss(self, momentum):
        model = network()
        objective = train.dino(model, 8, centre_momentum=momentum, momentum=0.5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        centre = np.zeros(K)
        for number in range(8):
            views = [view + number for view in draw(8, 8, 4)]
            student, teacher = model(views), objective.teacher(views[:2])
            expected, _ = reference(student, teacher, centre)  # with the centre as it was before
            assert step(objective, model, number, views, optimizer) == pytest.approx(expected, abs=1e-5)
            mean = teacher.double().numpy().mean((0, 1))
            centre = momentum * centre + (1 - momentum) * mean
            np.testing.assert_allclose(objective.centre.numpy(), centre, rtol=0, atol=1e-6)
        assert np.abs(centre).max() > 0.1

    def test_parts_of_a_batch_count_as_one(self):
        """Parts of other sizes too: each image counts alike."""
        model = network()
        whole, parts = train.dino(model, 4), train.dino(model, 4)
        views = draw(8, 8, batch=6)
        whole(model, views, NOTHING)
        for rows in (slice(0, 1), slice(1, 6)):
            parts(model, [view[rows] for view in views], NOTHING)
        assert not parts.centre.any()
        for objective in (whole, parts):
            objective.after_step(model, 0)
        torch.testing.assert_close(parts.centre, whole.centre, rtol=0, atol=1e-7)
        assert whole.centre.any()

    def test_without_a_momentum_there_is_none(self):
        model = network()
        objective = train.dino(model, 4, centre_momentum=None)
        for number in range(3):
            step(objective, model, number, draw(8, 8))
        assert not objective.centre.any() and int(objective.done) == 3

    def test_a_probe_does_not_move_it(self):
        def measure(now):
            with torch.no_grad():
                now.note(loss=now.objective(now.model, [view + 5 for view in draw(8, 8)], NOTHING))

        trained = []
        for callbacks in ([], [train.every(1, measure)]):
            model = network()
            objective = train.dino(model, 5, momentum=0.9)
            train.fit(model, feed(), objective, train.Recipe(5, 16), callbacks=callbacks)
            trained.append(weights(model) | weights(objective))
        assert_same(*trained)


class Counting(nn.Module):
    """A network with a buffer that training changes, and one weight."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Module()
        self.head.last_layer = nn.Linear(3, 5, bias=False)

    def forward(self, views):
        return torch.stack([self.head.last_layer(self.norm(view.mean((2, 3)))) for view in views])


class TestTeacher:
    def test_it_begins_as_a_copy_that_is_not_learned(self):
        model = network()
        objective = train.dino(model, 10)
        assert_same(weights(objective.teacher), weights(model))
        assert not any(p.requires_grad for p in objective.teacher.parameters())
        assert all(p.requires_grad for p in model.parameters())
        assert not {p.data_ptr() for p in objective.teacher.parameters()} & {
            p.data_ptr() for p in model.parameters()
        }

    def test_it_is_the_students_moving_average_weight_by_weight(self):
        model = network()
        objective = train.dino(model, 12, momentum=0.7)
        average = {name: p.detach().double() for name, p in model.named_parameters()}
        first = copy.deepcopy(average)
        centres = []

        def follow(now):
            if now.step == 0:
                return
            m = 1 - (1 - 0.7) * (math.cos(math.pi * (now.step - 1) / 12) + 1) / 2
            for name, p in now.model.named_parameters():
                average[name] = m * average[name] + (1 - m) * p.detach().double()
            for name, p in objective.teacher.named_parameters():
                torch.testing.assert_close(p.double(), average[name], rtol=0, atol=1e-6, msg=name)
            centres.append(objective.centre.clone())

        train.fit(model, feed(), objective, train.Recipe(12, 16, lr=3e-3), callbacks=[follow])
        assert {"backbone.pos_embed", "backbone.cls_token", "head.last_layer.weight"} <= average.keys()
        moved = {name for name in average if (average[name] - first[name]).abs().max() > 1e-4}
        assert moved == average.keys() and len(centres) == 12
        for name, p in model.named_parameters():
            assert (p.detach() - average[name]).abs().max() > 1e-5, name  # it has not caught up with the student

    def test_buffers_are_the_students(self):
        model = Counting()
        objective = train.dino(model, 10)
        for number in range(3):
            step(objective, model, number, [view + 3 for view in draw(8, 8)])
            assert_same(dict(objective.teacher.named_buffers()), dict(model.named_buffers()))
        assert int(objective.teacher.norm.num_batches_tracked) == 6 and objective.teacher.norm.running_mean.any()

    def test_a_momentum_of_one_leaves_it_as_it_was(self):
        model = network()
        objective = train.dino(model, 5, momentum=1.0)
        first = weights(objective.teacher)
        train.fit(model, feed(), objective, train.Recipe(5, 16, lr=3e-3))
        assert_same(weights(objective.teacher), first)
        assert not torch.equal(model.head.last_layer.weight, first["head.last_layer.weight"])

    def test_it_drops_nothing(self):
        model = network(dropout=0.5, drop_path=0.5, depth=2)
        objective = train.dino(model, 10)
        said = []
        objective.teacher.register_forward_hook(lambda *given: said.append(given[2]))
        model.train()
        for _ in range(2):
            objective(model, draw(8, 8), NOTHING)
        assert torch.equal(*said) and not objective.teacher.training and model.training


class TestFrozenLastLayer:
    @pytest.mark.parametrize("frozen", [0, 1, 6])
    def test_it_does_not_move_until_it_may(self, frozen):
        model = network()
        objective = train.dino(model, 10, frozen_steps=frozen)
        seen = []

        def look(now):
            seen.append(weights(now.model))

        train.fit(model, feed(), objective, train.Recipe(10, 16, lr=3e-3, weight_decay=0.5), callbacks=[look])
        last = [w["head.last_layer.weight"] for w in seen]
        assert all(torch.equal(w, last[0]) for w in last[: frozen + 1])
        assert not any(torch.equal(a, b) for a, b in itertools.pairwise(last[frozen:]))
        others = [w["head.mlp.0.weight"] for w in seen]
        assert not any(torch.equal(a, b) for a, b in itertools.pairwise(others))

    def test_its_gradient_does_not_count_for_clipping(self):
        model = network()
        objective = train.dino(model, 10, frozen_steps=1)
        objective(model, draw(8, 8), NOTHING).backward()
        objective.before_step(model, 0)
        assert model.head.last_layer.weight.grad is None
        objective(model, draw(8, 8), NOTHING).backward()
        objective.before_step(model, 1)
        assert model.head.last_layer.weight.grad.abs().max() > 0


@pytest.fixture(scope="module")
def one():
    """What one process gets."""
    return crops.training()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "run" / "net.safetensors"


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """What crops.py said, and where it left what it trained."""
    folder = tmp_path_factory.mktemp("crops")
    done = subprocess.run(
        [sys.executable, crops.__file__, str(folder)],
        env={k: v for k, v in os.environ.items() if k != "VITLAB_DEADLINE"} | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, folder


class TestGoingOn:
    def test_a_training_killed_five_times_ends_as_one_that_was_not(self, script):
        said, folder = script
        assert said == "killed 5 times\ntrained in two\n"
        assert_equal(torch.load(folder / "killed.pt"), torch.load(folder / "whole.pt"))

    @pytest.mark.parametrize("at", [2, 7])
    def test_one_that_was_stopped_goes_on_to_the_bit(self, at, file, one, monkeypatch):
        """While the last layer is frozen and the temperature rises, and after."""
        calls = iter(range(100))
        monkeypatch.setattr(lab, "time_is_up", lambda: next(calls) == at)
        with pytest.raises(lab.OutOfTime, match=f"after {at} of {crops.STEPS} steps"):
            crops.training(file)
        monkeypatch.undo()
        assert_equal(crops.training(file), one)

    def test_the_checkpoint_holds_teacher_centre_and_step(self, file, one):
        crops.training(file)
        tensors, _ = train.checkpoints.load(file)
        kept = {key.removeprefix("objective."): v for key, v in tensors.items() if key.startswith("objective.")}
        assert_same(kept, one[2])
        assert int(kept["done"]) == crops.STEPS and kept["centre"].abs().max() > 0.1
        assert {f"teacher.{name}" for name in one[1]} < kept.keys()

    def test_a_batch_in_parts_is_a_batch(self, one):
        assert_close(crops.training(accumulate=2), one)


class TestTwoProcesses:
    @pytest.mark.parametrize("parts", [1, 2])
    def test_losses_weights_teacher_and_centre_are_those_of_one(self, parts, one, script):
        first, second = (torch.load(script[1] / f"{rank}.pt")[parts - 1] for rank in range(2))
        assert_equal(first, second)
        assert_close(first, one)
        assert one[2]["centre"].abs().max() > 0.1 and "teacher.backbone.pos_embed" in first[2]


class TestPrecision:
    def test_in_half_precision_the_teacher_and_the_centre_stay_whole(self):
        losses = []
        for precision in ("fp32", "bf16"):
            model = network()
            objective = train.dino(model, 10, momentum=0.9)
            losses.append(train.fit(model, feed(), objective, train.Recipe(10, 16, precision=precision)).losses)
            kept = [*objective.teacher.parameters(), objective.centre]
            assert {p.dtype for p in kept} == {torch.float32} and all(p.isfinite().all() for p in kept)
        np.testing.assert_allclose(*losses, rtol=0.02, atol=0.02)
        assert not np.array_equal(*losses)


def collapse(steps=150, lr=1e-3, callbacks=(), **choices):
    """Train; return the objective, and why the watch stopped the training."""
    model = network()
    objective = train.dino(model, steps, **({"momentum": 0.98} | choices))
    try:
        train.fit(model, feed(), objective, train.Recipe(steps, 16, lr=lr, warmup=5), callbacks=callbacks)
    except train.TrainingFailed as error:
        return objective, one_sentence(error)
    return objective, None


class TestCollapse:
    def test_a_healthy_training_is_let_be(self):
        told = []
        objective, says = collapse(
            callbacks=[train.every(INTERVAL, lambda now: told.append(now.objective.seen.get("information")))]
        )
        assert says is None and int(objective.done) == 150
        assert min(value.item() for value in told[1:]) > 5 * SILENT
        assert objective.outputs.shape == (16, K)

    def test_without_centring_one_output_wins(self):
        objective, says = collapse(centre_momentum=None, lr=3e-3, momentum=0.9)
        assert re.fullmatch(
            r"Step 100: The teacher has collapsed, one output wins for every image: its entropy is 0\.0\d of at "
            r"most ln K = 2\.77 nats, it says 0\.0[01]\d nats about the image, and an output varies by [\d.e-]+; "
            r"switch centring on\.",
            says,
        )
        p = ((objective.teacher(draw(8, batch=64)) - objective.centre) / 0.04).softmax(-1)[0]
        assert len(set(p.argmax(-1).tolist())) == 1 and p.max(-1).values.min() > 0.9

    def test_without_sharpening_all_outputs_are_alike(self):
        objective, says = collapse(teacher_temperature=1.0, lr=3e-3, momentum=0.9)
        assert re.fullmatch(
            r"Step 100: The teacher has collapsed, all its outputs are equally likely for every image: its "
            r"entropy is 2\.77 of at most ln K = 2\.77 nats, it says 0\.000 nats about the image, and an output "
            r"varies by [\d.e-]+; sharpen it by a lower teacher_temperature, or train longer before judging\.",
            says,
        )
        p = (objective.teacher(draw(8, batch=64)) - objective.centre).softmax(-1)[0]
        torch.testing.assert_close(p, torch.full_like(p, 1 / K), rtol=0.1, atol=0)

    @pytest.mark.parametrize("choices", [{"centre_momentum": None}, {"teacher_temperature": 1.0}])
    def test_it_can_be_let_go_on(self, choices):
        objective, says = collapse(stop_collapse=False, steps=110, lr=3e-3, momentum=0.9, **choices)
        assert says is None and objective.outputs is None
        assert objective.seen["information"] < SILENT  # collapsed it is

    def test_nothing_is_said_in_the_first_tenth(self):
        """The second look comes at step 100, of which 1000 is the tenfold."""

        def stop(now):
            if now.step > 2 * INTERVAL:
                raise KeyboardInterrupt

        for steps in (10 * 2 * INTERVAL, 10 * INTERVAL - 1):
            model = network()
            objective = train.dino(model, steps, centre_momentum=None, momentum=0.9)
            recipe = train.Recipe(steps, 16, lr=3e-3, warmup=5)
            late = steps > 10 * INTERVAL
            with pytest.raises(KeyboardInterrupt if late else train.TrainingFailed):
                train.fit(model, feed(), objective, recipe, callbacks=[stop])
            assert objective.seen["information"] < SILENT

    def told(self, objective, information, entropy=0.0, done=500, images=4):
        """Let it see this, and ask it."""
        objective.done.fill_(done)
        objective.outputs = torch.zeros(images, K)
        seen = {"entropy": entropy, "divergence": 0.1, "information": information, "spread": 0.01}
        objective.seen = {name: torch.tensor(value) for name, value in seen.items()}
        return objective.trouble()

    def test_only_two_looks_running_tell(self):
        objective = train.dino(network(), 1000)
        assert [self.told(objective, x) is None for x in (0.0, 0.5, 0.01, 0.5, 0.019, 0.01, 0.0, 0.021, 0.0)] == [
            True, True, True, True, True, False, False, True, True,
        ]  # fmt: skip

    def test_a_tenth_of_the_steps_must_be_over_at_both(self):
        objective = train.dino(network(), 1000)
        assert [self.told(objective, 0.0, done=at) is None for at in (50, 100, 150, 200)] == [
            True,
            True,
            True,
            False,
        ]

    def test_of_one_image_nothing_can_be_told(self):
        objective = train.dino(network(), 1000)
        assert [self.told(objective, 0.0, images=1) for _ in range(3)] == [None] * 3

    @pytest.mark.parametrize(
        ("entropy", "centring", "kind", "cure"),
        [
            (0.0, None, "one output wins for every image", "switch centring on."),
            (0.6, None, "one output wins for every image", "switch centring on."),
            (0.1, 0.9, "one output wins for every image", "raise the teacher_temperature."),
            (0.8, 0.9, "the same few outputs win for every image", "lower the learning rate, or train longer"),
            (2.4, 0.9, "the same few outputs win for every image", "lower the learning rate, or train longer"),
            (2.6, 0.9, "all its outputs are equally likely for every image", "by a lower teacher_temperature"),
            (2.77, None, "all its outputs are equally likely for every image", "by a lower teacher_temperature"),
        ],
    )
    def test_it_says_of_which_kind_it_is(self, entropy, centring, kind, cure):
        objective = train.dino(network(), 1000, centre_momentum=centring)
        assert self.told(objective, 0.001, entropy) is None
        says = one_sentence(self.told(objective, 0.001, entropy))
        assert (
            kind in says and cure in says and f"its entropy is {entropy:.2f} of at most ln K = 2.77 nats" in says
        )
        assert "it says 0.001 nats about the image" in says and "varies by 0.01;" in says

    def test_before_anything_was_seen_it_says_nothing(self):
        assert train.dino(network(), 1000).trouble() is None


class Asked(Objective):
    """An objective with a trouble of its own."""

    def __init__(self, *troubles, **more):
        super().__init__()
        self.troubles = iter(troubles)
        self.__dict__.update(more)

    def trouble(self):
        return next(self.troubles)


def watched(objective, losses):
    """Let the watch see these losses; return the step at which it stopped them, and why."""
    now = train.Progress(0, len(losses), nn.Identity(), None, objective, torch.tensor(losses))
    watch = Watch(now)
    while now.step < now.steps:
        now.step += 1
        try:
            watch.look(now)
        except train.TrainingFailed as error:
            return now.step, one_sentence(error)
    return None


class TestWatch:
    def test_it_asks_the_objective_at_every_look(self):
        asked = Asked(None, None, "All is lost.", "Not reached.")
        assert watched(asked, [1.0] * 400) == (150, "Step 150: All is lost.")
        assert next(asked.troubles) == "Not reached."
        assert watched(Asked(None, None), [1.0] * 2 * INTERVAL) is None

    def test_a_loss_that_is_bounded_may_rise(self):
        losses = [0.2] * 20 + [4.0] * 180
        assert "diverges" in watched(Asked(*[None] * 9), losses)[1]
        assert watched(Asked(*[None] * 9, bounded=True), losses) is None
        assert train.dino.bounded and not hasattr(train.supervised, "bounded")

    def test_dinos_loss_begins_low_and_rises(self):
        """A small head says one thing of all images at first, and the student agrees: centring ends that."""
        model = network()
        objective = train.dino(model, 110, momentum=0.9)
        losses = train.fit(model, feed(), objective, train.Recipe(110, 16, lr=3e-4)).losses
        assert losses[-50:].min() > 3 * losses[:10].min() and losses[-50:].min() > 0.1

    def test_no_number_is_still_none(self):
        assert "not a finite number" in watched(Asked(None, bounded=True), [1.0] * 60 + [math.nan] * 60)[1]


class Wrong(nn.Module):
    """A network whose outputs have another shape than its last layer says."""

    def __init__(self, change):
        super().__init__()
        self.inner, self.change = network(), change
        self.head = self.inner.head

    def forward(self, views):
        return self.change(self.inner(views))


class TestErrors:
    @pytest.mark.parametrize(
        ("views", "says"),
        [
            (torch.zeros(4, 3, 8, 8), r"got \(4, 3, 8, 8\); feed a MultiCrop"),
            ([], "2 of them global, got 0 views; feed a MultiCrop"),
            (draw(8), "2 of them global, got 1 views; feed a MultiCrop"),
        ],
    )
    def test_too_few_views(self, views, says):
        model = network()
        with pytest.raises(ValueError, match=says) as caught:
            train.dino(model, 10)(model, views, NOTHING)
        one_sentence(caught.value)

    def test_fewer_views_than_global_ones(self):
        model = network()
        with pytest.raises(ValueError, match="3 of them global, got 2 views") as caught:
            train.dino(model, 10, global_views=3)(model, draw(8, 8), NOTHING)
        one_sentence(caught.value)
        with pytest.raises(ValueError, match="two views or more, 1 of them global, got 1 views"):
            train.dino(model, 10, global_views=1)(model, draw(8), NOTHING)

    def test_a_feed_of_single_views_is_told_in_training(self):
        model = network()
        with pytest.raises(ValueError, match=r"got \(16, 3, 8, 8\); feed a MultiCrop"):
            train.fit(model, feed(views=View(Flip())), train.dino(model, 3), train.Recipe(3, 16))
        with pytest.raises(ValueError, match="got 1 views; feed a MultiCrop"):
            train.fit(model, feed(views=MultiCrop([View(Flip())])), train.dino(model, 3), train.Recipe(3, 16))

    def test_views_of_other_numbers_of_images(self):
        model = network()
        views = [*draw(8, 8), *draw(4, batch=3)]
        with pytest.raises(ValueError, match=r"got \[4, 4, 3\] images in the views") as caught:
            train.dino(model, 10)(model, views, NOTHING)
        one_sentence(caught.value)

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda x: x[..., :5], r"outputs \(2, batch, 16\), got \(2, 4, 5\)"),
            (lambda x: x[:1], r"outputs \(2, batch, 16\), got \(1, 4, 16\)"),
            (lambda x: x.flatten(0, 1), r"outputs \(2, batch, 16\), got \(8, 16\)"),
        ],
    )
    def test_outputs_of_another_shape(self, change, says):
        model = Wrong(change)
        with pytest.raises(ValueError, match=says) as caught:
            train.dino(model, 10)(model, draw(8, 8), NOTHING)
        one_sentence(caught.value)

    @pytest.mark.parametrize("make", [linear, vit, lambda: nn.Sequential(nn.Flatten())])
    def test_a_network_without_a_last_layer_in_its_head(self, make):
        with pytest.raises(ValueError, match=r"is model.head.last_layer, got a \w+ without; build it") as caught:
            train.dino(make(), 10)
        one_sentence(caught.value)

    @pytest.mark.parametrize(
        "numbers",
        [
            {"steps": 0},
            {"global_views": 0},
            {"student_temperature": 0.0},
            {"teacher_temperature": -0.04},
            {"warm_temperature": 0.0},
            {"student_temperature": math.nan},
            {"warm_steps": -1},
            {"frozen_steps": -1},
        ],
    )
    def test_numbers_that_cannot_train(self, numbers):
        with pytest.raises(
            ValueError, match=r"temperatures above 0, got .*; change what is out of range"
        ) as caught:
            train.dino(network(), **({"steps": 10} | numbers))
        one_sentence(caught.value)

    @pytest.mark.parametrize(
        "numbers",
        [
            {"momentum": -0.1},
            {"momentum": 1.1},
            {"momentum": math.nan},
            {"centre_momentum": 1.0},
            {"centre_momentum": -1},
        ],
    )
    def test_momenta_out_of_range(self, numbers):
        with pytest.raises(ValueError, match=r"Momenta lie in \[0, 1\], the centre's below 1, got") as caught:
            train.dino(network(), 10, **numbers)
        one_sentence(caught.value)
