"""The watch: it stops what has gone wrong in one sentence, and lets what is well go on."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from toys import CLASSES, feed, linear, one_sentence, vit

from vitlab import train
from vitlab.train.objectives import Objective
from vitlab.train.watch import INTERVAL, Watch

RECIPE = train.Recipe(steps=150, batch_size=8, lr=3e-3)


def fit(model, objective=None, recipe=RECIPE, **more):
    return train.fit(model, feed(), objective or train.supervised(CLASSES), recipe, **more)


def failed(*arguments, **more):
    with pytest.raises(train.TrainingFailed) as caught:
        fit(*arguments, **more)
    return one_sentence(caught.value)


class Given(Objective):
    """A loss that is what it is told to be, step by step."""

    def __init__(self, losses, outputs=None):
        super().__init__()
        self.losses = iter(losses)
        self.outputs = outputs

    def forward(self, model, images, labels):
        return model(images).sum() * 0 + next(self.losses)


def watched(losses, outputs=None):
    """Show the watch these losses one by one, as training does; return where it stopped it, and why."""
    now = train.Progress(0, len(losses), nn.Identity(), None, Given([], outputs), torch.zeros(len(losses)), {})
    watch = Watch(now)
    for loss in losses:
        now.losses[now.step] = loss
        now.step += 1
        try:
            watch.look(now)
        except train.TrainingFailed as error:
            return now.step, one_sentence(error)
    return None


class TestNoNumber:
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("step", [0, 49, 50, 61])
    def test_it_names_the_step(self, step, bad):
        losses = [1.0] * step + [bad] * (150 - step)
        text = failed(linear(), Given(losses))
        assert f"The loss of step {step} is {bad}, not a finite number" in text and "learning rate" in text

    def test_one_alone_is_seen(self):
        assert "step 30 is nan" in failed(linear(), Given([1.0] * 30 + [math.nan] + [1.0] * 119))

    def test_a_short_training_is_looked_at_too(self):
        recipe = train.Recipe(steps=5, batch_size=8)
        assert "step 3 is nan" in failed(linear(), Given([1.0] * 3 + [math.nan] * 2), recipe)

    def test_nothing_is_saved_of_a_failed_end(self, tmp_path):
        recipe = train.Recipe(steps=5, batch_size=8)
        failed(linear(), Given([math.nan] * 5), recipe, checkpoint=tmp_path / "c.safetensors")
        assert not list(tmp_path.iterdir())

    def test_images_that_are_no_numbers(self):
        def broken(step, rank, world):
            images, labels = feed()(step)
            return (images * math.nan if step == 12 else images), labels

        with pytest.raises(train.TrainingFailed, match=r"step 12 is nan.*check the images and labels"):
            train.fit(linear(), broken, train.supervised(CLASSES), RECIPE)


class TestDivergence:
    @pytest.mark.parametrize("lr", [100.0, 1e30])
    def test_a_learning_rate_that_is_far_too_high(self, lr):
        recipe = train.Recipe(steps=150, batch_size=8, lr=lr, clip=None, weight_decay=0.0)
        assert re.search("diverges|not a finite number", failed(vit(), recipe=recipe))

    def test_it_says_from_what_to_what(self):
        stopped, text = watched([1.0] * 60 + [4.0] * 100)
        assert stopped == 150  # the first look at fifty steps that are all too high
        assert "it began at 1 and is 4 or more in steps 100 to 149" in text

    def test_what_goes_up_and_comes_back_is_let_go(self):
        assert watched([1.0] * 60 + [9.0] * 60 + [1.0] * 80) is None

    def test_the_last_steps_are_looked_at_with_those_before_them(self):
        assert watched([1.0] * 100 + [9.0] * 3) is None  # the end of training finds three bad steps
        assert watched([1.0] * 52 + [9.0] * 51)[0] == 103

    @pytest.mark.parametrize("first", [0.0, 1e-9, 1e-3])
    def test_a_loss_that_begins_near_0_may_rise(self, first):
        assert watched([first] * 20 + [0.09] * 180) is None

    def test_a_negative_loss_is_no_divergence(self):
        assert watched([-1.0] * 20 + [-0.1] * 180) is None

    def test_it_looks_seldom(self, monkeypatch):
        looks = []
        monkeypatch.setattr("vitlab.train.watch._alike", lambda outputs: bool(looks.append(1)))
        watched([1.0] * (3 * INTERVAL + 1))
        assert len(looks) == 4


class Constant(nn.Module):
    """The same scores for every image."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Parameter(torch.tensor([0.3, 0.1, -0.2]))

    def forward(self, images):
        return self.scores.expand(len(images), -1)


class TestCollapse:
    def test_scores_that_do_not_depend_on_the_image(self):
        text = failed(Constant())
        assert "outputs have collapsed: at step 100 every image gets the same scores" in text

    def test_dead_units(self):
        model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, CLASSES))
        nn.init.constant_(model[1].bias, -1e4)
        assert "collapsed" in failed(model)

    def test_one_look_is_not_enough(self):
        fit(Constant(), recipe=train.Recipe(steps=50, batch_size=8))

    def test_nor_are_two_with_a_good_one_between(self):
        same, apart = torch.ones(8, 3), torch.eye(8, 3)
        objective = Given([])
        now = train.Progress(0, 1000, nn.Identity(), None, objective, torch.ones(1000))
        watch = Watch(now)
        for outputs in (same, apart, same, apart):
            now.step += INTERVAL
            objective.outputs = outputs
            watch.look(now)

    @pytest.mark.parametrize(
        "outputs",
        [
            None,
            torch.ones(1, 3),
            torch.tensor([[1.0, 2.0], [1.0, 2.001]]),
            torch.rand(4, 5, 6),
            torch.full((4, 3), math.nan),
        ],
    )
    def test_what_is_no_collapse(self, outputs):
        assert watched([1.0] * 200, outputs) is None

    @pytest.mark.parametrize("outputs", [torch.zeros(4, 3), torch.full((4, 5, 6), -3.0), torch.full((2, 3), 1e20)])
    def test_what_is_one(self, outputs):
        assert watched([1.0] * 200, outputs)[0] == 2 * INTERVAL

    def test_an_objective_without_outputs_is_not_asked(self):
        class Bare(Objective):
            def forward(self, model, images, labels):
                return F.cross_entropy(model(images), labels)

        fit(Constant(), Bare(), train.Recipe(steps=101, batch_size=8))


class TestNoFalseAlarm:
    def test_a_healthy_training(self):
        losses = fit(vit()).losses
        assert losses[-20:].mean() < losses[:10].mean() / 2

    def test_a_head_that_begins_at_zero(self):
        model = vit()
        nn.init.zeros_(model.head.weight)
        recipe = train.Recipe(steps=110, batch_size=8, lr=1e-3, warmup=60)
        losses = fit(model, recipe=recipe).losses
        assert losses[0] == pytest.approx(np.log(CLASSES), abs=1e-6)

    def test_a_network_that_is_trained_on(self):
        """It begins near 0, and a learning rate from the start again shakes it."""
        model = linear()
        recipe = train.Recipe(steps=150, batch_size=8, lr=0.03, weight_decay=0.0)
        fit(model, recipe=recipe)
        assert fit(model, recipe=recipe).losses[:10].min() < 0.05

    def test_a_training_that_goes_on_near_its_end(self, tmp_path, monkeypatch):
        """Only two steps are left, and they are bad ones: too few to say anything of."""
        file = tmp_path / "c.safetensors"

        def stop(now):
            if now.step == 148:
                monkeypatch.setenv("VITLAB_DEADLINE", "1")

        with pytest.raises(RuntimeError, match="148 of 150"):
            fit(linear(), Given([1.0] * 148), checkpoint=file, callbacks=[stop])
        monkeypatch.delenv("VITLAB_DEADLINE")
        assert fit(linear(), Given([9.0] * 2), checkpoint=file).losses[-1] == 9
