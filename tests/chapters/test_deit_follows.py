"""The chapter on DeiT: words follow its records, equations are what the code does, functions are formulas."""

from __future__ import annotations

import ast
import itertools
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_prose_follows import changed, said
from torch import nn

from vitlab import train

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("deit_arms", "deit_teachers", "deit_augmentation", "deit_share", "deit_photographs")
K = 7


def parts(*names: str, **known: Any) -> list[Any]:
    """Return functions and classes of the chapter by name, defined with nothing but what they are given."""
    tree = ast.parse((ROOT / "notebooks" / "deit.py").read_text(encoding="utf-8"))
    wanted = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name in names]
    space = {"np": np, "torch": torch, "F": F, "math": math, "train": train, "STEPS": 8, **known}
    exec(compile(ast.Module(wanted, []), "deit.py", "exec"), space)
    return [space[name] for name in names]


def drawn(*shape: int, seed: int = 0, width: float = 2.0) -> torch.Tensor:
    return width * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Says(nn.Module):
    """A network that says the same whatever it is shown."""

    def __init__(self, scores: Any) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, images: torch.Tensor) -> Any:
        return self.scores


def gradient_of(loss: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss, scores, retain_graph=True)[0]


def test_other_records_give_other_words(tmp_path: Path) -> None:
    for name in NAMES:
        shutil.copytree(ROOT / "data" / name / "laptop", tmp_path / name / "laptop")
    before = said(tmp_path, "deit")
    assert len(before["verdict"]) == 7

    def better_hard(arrays: dict[str, np.ndarray]) -> None:
        """Students of hard targets get more right, soft ones less; the rest is another order."""
        rng = np.random.default_rng(0)
        right = arrays["right"]
        if right.shape[0] == 9:  # the arms
            for place in (2, 3):
                right[place] |= rng.random(right.shape[1]) < 0.3
            for place in (4, 5, 6):
                right[place] &= rng.random(right.shape[1]) < 0.8
            right[7], right[8] = right[4], right[2]
            arrays["says"] = arrays["says"][..., ::-1]
            arrays["teacher"] = ~arrays["teacher"]
            for key in arrays:
                if key.startswith("pull."):
                    arrays[key] = arrays[key][:, [1, 0, 2, 3]]
                if key.startswith("alike."):
                    arrays[key] = 0.5 * arrays[key]
                if key.startswith("heads."):
                    arrays[key] = arrays[key][:, ::-1] & (rng.random(arrays[key].shape) < 0.9)
        else:
            arrays["right"] = right[::-1]
            for key in ("teacher", "teacher.vit"):
                if key in arrays:
                    arrays[key] = arrays[key] & (rng.random(len(arrays[key])) < 0.5)
            if "agrees" in arrays:
                arrays["agrees"] = 0.5 * arrays["agrees"]

    for name in NAMES:
        changed(tmp_path, name, better_hard)
    after = said(tmp_path, "deit")
    for kind in before:
        assert len(before[kind]) == len(after[kind])
    same = [b for kind in before for b, a in zip(before[kind], after[kind], strict=True) if a == b]
    # What no record decides stays: lengths that are derived, weights of the losses, the price of the token.
    derived = (
        "Length of the gradient",
        "With 1,000 classes",
        "How hard the teacher pulls",
        "With DeiT's settings",
        "One forward pass",
        "The token costs",
    )
    assert len(same) == len(derived)
    assert all(text.startswith(derived) for text in same), [text[:80] for text in same]
    reason = next(text for text in after["verdict"] if "gradient is stronger" in text)
    assert "The claim holds." in reason  # hard is better, and at equal length it is not
    assert "✓" in next(text for text in after["verdict"] if "LIT-10" in text)


def test_the_losses_are_equations_1_1_and_1_2():
    z, other, t = drawn(5, K, seed=1), drawn(5, K, seed=2), drawn(5, K, seed=3)
    labels = torch.tensor([0, 3, 6, 2, 2])
    images = torch.zeros(5, 3, 4, 4)
    truth = -z.log_softmax(1)[range(5), labels].mean()
    # (1.1)
    hard = train.distillation(K, Says(t))(Says((z, other)), images, labels)
    torch.testing.assert_close(hard, truth / 2 - other.log_softmax(1)[range(5), t.argmax(1)].mean() / 2)
    # (1.2), as written; and divided by K, as released
    for scaling, divisor in (("batch", 1), ("elements", K)):
        soft = train.distillation(K, Says(t), "soft", tau=3.0, alpha=0.1, scaling=scaling)
        q, p = (t / 3).softmax(1), (z / 3).softmax(1)
        divergence = (q * (q / p).log()).sum(1).mean()
        torch.testing.assert_close(soft(Says(z), images, labels), 0.9 * truth + 0.1 * 9 * divergence / divisor)


def test_where_the_teacher_names_the_label_hard_distillation_in_one_head_is_the_label_alone():
    z, t = drawn(6, K, seed=4), drawn(6, K, seed=5)
    images, labels = torch.zeros(6, 3, 4, 4), t.argmax(1)
    alone = train.supervised(K)(Says(z), images, labels)
    torch.testing.assert_close(train.distillation(K, Says(t))(Says(z), images, labels), alone)


def test_the_gradients_are_equation_2_1_and_differ_by_2_2():
    gradient, watched = parts("gradient", "watched")
    z, t = drawn(4, K, seed=6).requires_grad_(), drawn(4, K, seed=7)
    e = F.one_hot(t.argmax(1), K).double()
    pulls = watched(K, Says(t)).pulls(z.detach(), t)
    for kind, tau, key in (("hard", 1.0, "hard"), ("soft", 1.0, "soft"), ("soft", 3.0, "soft3")):
        imitation = train.distillation(K, Says(t), kind, tau=tau).imitation(z, t)
        torch.testing.assert_close(4 * gradient_of(imitation, z), pulls[key])
    torch.testing.assert_close(pulls["hard"], z.detach().softmax(1) - e)
    torch.testing.assert_close(pulls["soft3"], 3 * ((z.detach() / 3).softmax(1) - (t / 3).softmax(1)))
    torch.testing.assert_close(gradient(z[0].detach(), t[0].softmax(0)), pulls["soft"][0])
    for seed in range(3):  # (2.2): whatever the student
        other = watched(K, Says(t)).pulls(drawn(4, K, seed=seed), t)
        torch.testing.assert_close(other["soft"] - other["hard"], e - t.softmax(1))


def test_the_bounds_2_3_and_2_4_hold_and_are_reached():
    as_sure_as, first_pulls = parts("as_sure_as", "first_pulls", gradient=parts("gradient")[0])
    for seed in range(20):
        q = drawn(K, seed=seed, width=3.0).softmax(0)
        c, e = float(q.max()), F.one_hot(q.argmax(), K)
        apart = float((e - q).norm())
        assert (1 - c) * math.sqrt(K / (K - 1)) <= apart + 1e-12  # (2.3)
        assert apart <= (1 - c) * math.sqrt(2) + 1e-12
        length = float((1 / K - q).norm())  # (2.4)
        assert (c * K - 1) / math.sqrt(K * (K - 1)) <= length + 1e-12
        assert length == pytest.approx(math.sqrt(float(q @ q) - 1 / K))
        assert length <= math.sqrt(c - 1 / K) + 1e-12
    even, rivals = as_sure_as(0.6, K)
    first = F.one_hot(torch.tensor(0), K)
    assert float((first - even).norm()) == pytest.approx(0.4 * math.sqrt(K / (K - 1)))
    assert float((first - rivals).norm()) == pytest.approx(0.4 * math.sqrt(2))
    for c in (0.25, 0.3, 0.6, 1 / K):
        even, rivals = as_sure_as(c, K)
        for q in (even, rivals):
            assert float(q.sum()) == pytest.approx(1)
            assert float(q.max()) == pytest.approx(c)
        hard, shortest, longest = first_pulls(c, K)
        assert hard == pytest.approx(math.sqrt(1 - 1 / K))
        assert shortest == pytest.approx((c * K - 1) / math.sqrt(K * (K - 1)), abs=1e-9)
        assert shortest <= longest + 1e-12 <= math.sqrt(c - 1 / K) + 2e-12
    # One over a whole number: all on equally likely rivals, and the upper bound of (2.4) is reached.
    assert first_pulls(0.25, K)[2] == pytest.approx(math.sqrt(0.25 - 1 / K))


def test_the_way_of_a_student_is_2_1_for_an_even_rest():
    on_the_way, as_sure_as = parts("on_the_way", "as_sure_as", warm=parts("warm")[0])
    for x, c, tau in itertools.product((0.2, 0.5, 0.9), (0.3, 0.93), (1, 3)):
        p, q = as_sure_as(x, K)[0].log(), as_sure_as(c, K)[0].log()
        want = tau * ((p / tau).softmax(0) - (q / tau).softmax(0))
        assert on_the_way(x, c, K, tau) == pytest.approx(float(want.norm()))
        assert on_the_way(x, c, K) == pytest.approx(float((p.exp() - F.one_hot(torch.tensor(0), K)).norm()))


def test_a_hot_soft_target_is_regression_2_5():
    z, t, tau = drawn(3, K, seed=8), drawn(3, K, seed=9), 1000.0
    soft = tau * ((z / tau).softmax(1) - (t / tau).softmax(1))
    centred = [x - x.mean(1, keepdim=True) for x in (z, t)]
    torch.testing.assert_close(soft, (centred[0] - centred[1]) / K, atol=2e-3, rtol=0)


def test_the_ratio_2_6_is_that_of_the_loss_as_it_runs():
    warm, as_sure_as = parts("warm", "as_sure_as")
    (on_the_way,) = parts("on_the_way", warm=warm)
    (says_beside,) = parts("says_beside", on_the_way=on_the_way)
    images, labels, c = torch.zeros(2, 3, 4, 4), torch.tensor([0, 0]), 0.93
    t = as_sure_as(c, K)[0].log().expand(2, K)
    for tau, alpha, divided in ((None, 0.5, False), (1, 0.5, False), (3, 0.1, False), (3, 0.1, True)):
        z = torch.zeros(2, K, dtype=torch.float64, requires_grad=True)
        kind = "hard" if tau is None else "soft"
        objective = train.distillation(
            K, Says(t), kind, tau=tau or 1.0, alpha=alpha, scaling="elements" if divided else "batch"
        )
        label = gradient_of((1 - alpha) * train.supervised(K)(Says(z), images, labels), z)
        teacher = gradient_of(alpha * objective.imitation(z, t), z)
        assert says_beside(K, c, tau, alpha, divided) == pytest.approx(float(teacher.norm() / label.norm()))


@pytest.mark.parametrize(("kind", "match"), [("hard", "soft"), ("soft", "hard"), ("hard", "soft3")])
def test_matched_students_are_pulled_as_hard_as_they_should(kind, match):
    (watched,) = parts("watched")
    z, t = drawn(5, K, seed=10).requires_grad_(), drawn(5, K, seed=11)
    objective = watched(K, Says(t), kind, match=match)
    got = 5 * gradient_of(objective.imitation(z, t), z)
    pulls = objective.pulls(z.detach(), t)
    assert float(got.norm()) == pytest.approx(float(pulls[match].norm()))
    assert float(F.cosine_similarity(got.flatten(), pulls[kind].flatten(), 0)) == pytest.approx(1)
    objective.after_step(None, 0)
    lengths = [float(pulls[key].norm(dim=1).mean()) for key in ("hard", "soft", "soft3")]
    np.testing.assert_allclose(objective.seen[0], [*lengths, float(t.softmax(1).amax(1).mean())], rtol=1e-5)
    assert int(objective.step) == 1


def test_siding_is_equation_8_1_and_knows_no_general_quality():
    (siding,) = parts("siding", agree=parts("agree")[0])
    rng = np.random.default_rng(0)
    a, b, s, t = (rng.random((3, 500)) < level for level in (0.7, 0.6, 0.65, 0.5))

    def together(x, y):
        return 100 * (x == y).mean()

    want = (together(a, s) - together(b, s) + together(b, t) - together(a, t)) / 2
    assert siding((a, b), (s, t)).mean() == pytest.approx(want)
    assert siding((s, t), (s, t)).mean() > 30  # students that are their teachers
    np.testing.assert_allclose(siding((b, a), (s, t)), -siding((a, b), (s, t)))
    # Better students side with nobody, if they do not look at their teachers.
    better, worse, first, second = (rng.random((3, 40_000)) < level for level in (0.9, 0.5, 0.6, 0.6))
    assert abs(siding((better, worse), (first, second)).mean()) < 1


def test_repeated_views_make_the_gradient_noisier_as_9_1_says():
    rng = np.random.default_rng(0)
    B, r, between, within = 12, 3, 2.0, 1.0
    images = between * rng.standard_normal((100_000, B // r, 1))
    views = within * rng.standard_normal((100_000, B // r, r))
    assert (images + views).mean((1, 2)).var() == pytest.approx(r * between**2 / B + within**2 / B, rel=0.02)
