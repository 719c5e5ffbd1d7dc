"""Objectives: each loss equals its equation by hand, and a teacher teaches without being changed."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from timm.data import Mixup
from torch import nn
from toys import CLASSES, feed, linear, one_sentence, vit, weights

from vitlab import lab, train
from vitlab.train import distillation, supervised

IMAGES, LABELS = feed()(0)


class Scores(nn.Module):
    """Gives the scores it is told, whatever the images; and keeps them."""

    def __init__(self, *scores):
        super().__init__()
        self.scores = nn.ParameterList(scores)

    def forward(self, images):
        self.images = images
        return self.scores[0] if len(self.scores) == 1 else tuple(self.scores)


def draw(seed, batch=8, classes=CLASSES, dtype=torch.float64):
    return torch.randn(batch, classes, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def cross_entropy(scores, labels):
    return -np.log(softmax(scores.numpy()))[np.arange(len(labels)), labels.numpy()].mean()


class TestSupervised:
    def test_it_is_cross_entropy(self):
        scores = draw(0)
        objective = supervised(CLASSES)
        model = Scores(scores)
        loss = objective(model, IMAGES, LABELS)
        assert loss.item() == F.cross_entropy(scores, LABELS).item()
        assert loss.item() == pytest.approx(cross_entropy(scores, LABELS))
        assert torch.equal(objective.outputs, scores) and not objective.outputs.requires_grad
        loss.backward()  # its gradient is (softmax - one-hot) / batch
        expected = (softmax(scores.numpy()) - np.eye(CLASSES)[LABELS]) / len(LABELS)
        np.testing.assert_allclose(model.scores[0].grad, expected, atol=1e-12)

    @pytest.mark.parametrize("smoothing", [0.1, 0.5])
    def test_smoothing_is_its_closed_form(self, smoothing):
        """-sum of ((1 - e) [k = y] + e / K) log p_k."""
        scores = draw(1)
        targets = (1 - smoothing) * np.eye(CLASSES)[LABELS] + smoothing / CLASSES
        expected = -(targets * np.log(softmax(scores.numpy()))).sum(1).mean()
        loss = supervised(CLASSES, label_smoothing=smoothing)(Scores(scores), IMAGES, LABELS)
        assert loss.item() == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    @pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
    def test_images_and_targets_are_mixed_as_timm_does(self, mixup, cutmix, smoothing):
        theirs = Mixup(mixup, cutmix, mode="batch", label_smoothing=smoothing, num_classes=CLASSES)
        objective = supervised(CLASSES, smoothing, mixup, cutmix)
        before = IMAGES.clone()
        seen = set()
        for seed in range(6):
            scores = draw(seed, dtype=torch.float32)
            model = Scores(scores)
            lab.seed_everything(seed)
            loss = objective(model, IMAGES, LABELS)
            assert torch.equal(IMAGES, before)
            lab.seed_everything(seed)
            images, targets = theirs(IMAGES.clone(), LABELS)
            assert torch.equal(model.images, images)
            torch.testing.assert_close(targets.sum(1), torch.ones(len(LABELS)))
            expected = -(targets * scores.log_softmax(1)).sum(1).mean()
            assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
            seen.add(round(loss.item(), 6))
        assert len(seen) == 6

    def test_mixing_without_images_to_tell_apart_is_what_the_equation_says(self):
        """With scores of 0 everywhere every target costs log K, as targets sum to 1."""
        loss = supervised(CLASSES, 0.1, 0.8, 1.0)(Scores(torch.zeros(8, CLASSES)), IMAGES, LABELS)
        assert loss.item() == pytest.approx(np.log(CLASSES), abs=1e-6)

    def test_an_odd_batch_cannot_be_mixed(self):
        with pytest.raises(ValueError, match="pairs the images of a batch, got 7") as caught:
            supervised(CLASSES, mixup=0.8)(linear(), IMAGES[:7], LABELS[:7])
        one_sentence(caught.value)

    @pytest.mark.parametrize(
        "numbers",
        [
            {"classes": 1},
            {"label_smoothing": 1.0},
            {"label_smoothing": -0.1},
            {"mixup": -1.0},
            {"cutmix": -1.0},
        ],
    )
    def test_numbers_out_of_range(self, numbers):
        with pytest.raises(ValueError, match="change what is out of range") as caught:
            supervised(**({"classes": 3} | numbers))
        one_sentence(caught.value)

    @pytest.mark.parametrize(
        ("scores", "says"),
        [
            ((draw(0, classes=4),), r"scores \(batch, 3\), got \(8, 4\)"),
            ((draw(0)[0],), r"got \(3,\)"),
            ((draw(0), draw(1)), "got tuple"),
        ],
    )
    def test_scores_of_another_shape(self, scores, says):
        with pytest.raises(ValueError, match=says) as caught:
            supervised(CLASSES)(Scores(*scores), IMAGES, LABELS)
        one_sentence(caught.value)


class TestDistillation:
    @pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
    def test_hard_is_equation_3_of_deit(self, alpha):
        z, teacher = draw(0), draw(1)
        loss = distillation(CLASSES, Scores(teacher), alpha=alpha)(Scores(z), IMAGES, LABELS)
        expected = (1 - alpha) * cross_entropy(z, LABELS) + alpha * cross_entropy(z, teacher.argmax(1))
        assert loss.item() == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("scaling", ["batch", "elements"])
    @pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
    def test_soft_is_equation_2_by_hand(self, tau, scaling):
        z, teacher = draw(0), draw(1)
        objective = distillation(CLASSES, Scores(teacher), "soft", tau, 0.3, scaling)
        loss = objective(Scores(z), IMAGES, LABELS)
        p, q = softmax(teacher.numpy() / tau), softmax(z.numpy() / tau)
        divergence = (p * np.log(p / q)).sum(1)  # an image
        divergence = divergence.mean() if scaling == "batch" else divergence.sum() / z.numel()
        expected = 0.7 * cross_entropy(z, LABELS) + 0.3 * tau**2 * divergence
        assert loss.item() == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("classes", [3, 100])
    def test_elements_is_batch_divided_by_the_classes(self, classes):
        teacher, z = draw(1, classes=classes), draw(0, classes=classes)
        by = {
            s: distillation(classes, linear(), "soft", 2.0, scaling=s).imitation(z, teacher).item()
            for s in ("batch", "elements")
        }
        assert by["elements"] == pytest.approx(by["batch"] / classes, rel=1e-12)

    def test_the_gradient_does_not_shrink_with_the_temperature(self):
        """For tau to infinity it is (z - t, less their means) / (K * batch): tau squared is the right factor."""
        teacher = draw(1)
        for tau in (1e3, 1e4):
            z = draw(0).requires_grad_()
            distillation(CLASSES, linear(), "soft", tau).imitation(z, teacher).backward()
            apart = z.detach() - teacher
            expected = (apart - apart.mean(1, keepdim=True)) / (CLASSES * len(z))
            torch.testing.assert_close(z.grad, expected, rtol=0, atol=2 / tau)

    def test_a_student_that_equals_its_teacher_has_nothing_to_imitate(self):
        z = draw(0)
        for scaling in ("batch", "elements"):
            assert (
                abs(distillation(CLASSES, linear(), "soft", 2.0, scaling=scaling).imitation(z, z).item()) < 1e-15
            )

    @pytest.mark.parametrize("kind", ["hard", "soft"])
    def test_of_two_sets_of_scores_one_learns_from_labels_and_one_from_the_teacher(self, kind):
        cls, dist, teacher = draw(0), draw(2), draw(1)
        objective = distillation(CLASSES, Scores(teacher), kind, tau=2.0)
        student = Scores(cls, dist)
        loss = objective(student, IMAGES, LABELS)
        expected = 0.5 * cross_entropy(cls, LABELS) + 0.5 * objective.imitation(dist, teacher).item()
        assert loss.item() == pytest.approx(expected, abs=1e-12)
        assert torch.equal(objective.outputs, cls)
        loss.backward()
        alone = cls.clone().requires_grad_()
        (0.5 * F.cross_entropy(alone, LABELS)).backward()
        torch.testing.assert_close(student.scores[0].grad, alone.grad)  # what the teacher says does not reach it
        assert student.scores[1].grad.abs().sum() > 0

    def test_the_teacher_sees_the_images_the_student_sees(self):
        teacher, student = Scores(draw(1)), Scores(draw(0))
        before = IMAGES.clone()
        distillation(CLASSES, teacher, mixup=0.8)(student, IMAGES, LABELS)
        assert teacher.images is student.images and not torch.equal(student.images, before)
        assert torch.equal(IMAGES, before)

    def test_smoothed_and_mixed_labels_are_those_of_supervised_training(self):
        scores, teacher = draw(0, dtype=torch.float32), draw(1, dtype=torch.float32)
        lab.seed_everything(3)
        ours = distillation(CLASSES, Scores(teacher), "hard", 1.0, 0.0, "batch", 0.1, 0.8, 1.0)
        loss = ours(Scores(scores), IMAGES, LABELS)
        lab.seed_everything(3)
        expected = supervised(CLASSES, 0.1, 0.8, 1.0)(Scores(scores), IMAGES, LABELS)
        assert loss.item() == pytest.approx(expected.item(), abs=1e-6)

    def test_the_teacher_is_frozen_still_and_kept_out_of_what_is_saved(self):
        teacher = vit(dropout=0.5, classes=CLASSES)
        before = weights(teacher)
        objective = distillation(CLASSES, teacher)
        objective.train()
        assert not teacher.training and not any(p.requires_grad for p in teacher.parameters())
        assert not objective.state_dict() and not list(objective.parameters())
        student = linear()
        train.fit(student, feed(), objective, train.Recipe(steps=3, batch_size=8, weight_decay=1.0))
        assert all(torch.equal(value, before[name]) for name, value in weights(teacher).items())
        assert all(p.grad is None for p in teacher.parameters()) and not teacher.training
        assert any(not torch.equal(p, q) for p, q in zip(student.parameters(), linear().parameters(), strict=True))

    def test_it_goes_where_the_objective_goes(self):
        objective = distillation(CLASSES, linear())
        assert objective.to(torch.float64) is objective
        assert objective.teacher[1].weight.dtype == torch.float64
        assert objective.to("meta").teacher[1].weight.device.type == "meta"

    def test_it_can_be_copied_and_saved(self):
        objective = distillation(CLASSES, linear())
        other = copy.deepcopy(objective)
        assert other.teacher is not objective.teacher
        torch.save(objective.state_dict(), io.BytesIO())
        assert other(linear(), IMAGES, LABELS).item() == objective(linear(), IMAGES, LABELS).item()

    def test_a_good_teacher_is_imitated(self):
        teacher = linear()
        train.fit(teacher, feed(), supervised(CLASSES), train.Recipe(steps=60, batch_size=8, lr=0.01))
        student = vit()
        objective = distillation(CLASSES, teacher, "soft", alpha=1.0)
        losses = train.fit(student, feed(), objective, train.Recipe(steps=60, batch_size=8, lr=3e-3)).losses
        assert losses[-10:].mean() < losses[:10].mean() / 2

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"kind": "warm"}, "got 'warm', 'batch'"),
            ({"scaling": "mean"}, "got 'hard', 'mean'"),
            ({"tau": 0.0}, "got 0.0 and 0.5"),
            ({"tau": float("nan")}, "got nan and 0.5"),
            ({"alpha": 1.5}, "got 1.0 and 1.5"),
            ({"label_smoothing": 1.0}, "out of range"),
        ],
    )
    def test_numbers_out_of_range(self, arguments, says):
        with pytest.raises(ValueError, match=says) as caught:
            distillation(CLASSES, linear(), **arguments)
        one_sentence(caught.value)

    def test_a_teacher_of_other_classes(self):
        with pytest.raises(ValueError, match=r"scores \(batch, 3\), got \(8, 5\)") as caught:
            distillation(CLASSES, linear(5))(linear(), IMAGES, LABELS)
        one_sentence(caught.value)
