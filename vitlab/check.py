"""Checks for the exercises: they say what is wrong and where, and never the answer.

An exercise that is still `...` is left alone, so that a chapter runs from top to bottom before it is solved.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

PLUMBING = True  # a change here cannot change a recorded number


def _tell(fault: str | None, right: str) -> None:
    print(f"Not yet: {fault}" if fault else f"Right. {right}")


def _open(answer: Any) -> bool:
    """Whether the exercise is untouched; says so. A function whose body is `...` returns None."""
    if answer is ... or answer is None:
        print("Not answered yet: replace the ... above and run the cell again.")
        return True
    return False


def _run(function: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
    """Call the reader's function; return its value, or a sentence about how it failed."""
    try:
        return function(*arguments), None
    except Exception as error:
        return None, f"your function raised {type(error).__name__}: {error}"


def parameters(count: Any) -> None:
    """Check `count(image, patch, dim, depth, classes)`: the parameters of a ViT, without building it."""
    from vitlab.models.vit import ViT, ViTConfig

    for image, patch, dim, depth, classes in (
        (32, 4, 24, 2, 10),
        (32, 4, 48, 2, 10),
        (64, 8, 24, 3, 7),
        (32, 8, 24, 1, 9),
    ):
        config = ViTConfig(image_size=image, patch_size=patch, dim=dim, depth=depth, heads=2, classes=classes)
        want = sum(p.numel() for p in ViT(config).parameters())
        got, fault = _run(count, image, patch, dim, depth, classes)
        if fault is None and _open(got):
            return
        sizes = f"image {image}, patch {patch}, dim {dim}, depth {depth}, classes {classes}"
        if fault is None and got != want:
            fault = f"for {sizes} your count is {got}, which is {'too small' if got < want else 'too large'}"
            off = abs(got - want)
            if off % depth == 0 and off // depth in (dim, 2 * dim, 4 * dim, 9 * dim):
                fault += "; the difference is a multiple of dim in every block, look at biases and norms"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Four sizes agree with the models, parameter by parameter.")


def circular_bias(bias: Any, grid: int = 8) -> None:
    """Check `bias(grid)`: a (grid², grid²) attention bias that knows offsets around the border, nothing else."""
    import torch

    value, fault = _run(bias, grid)
    if fault is None and _open(value):
        return
    if fault is None:
        value = torch.as_tensor(value).detach().double()
        n = grid * grid
        if tuple(value.shape) != (n, n):
            fault = f"the bias has shape {tuple(value.shape)}, one number for each query and key is {(n, n)}"
        elif not torch.isfinite(value).all():
            fault = "the bias holds values that are not finite"
        elif value.std() == 0:
            fault = "the bias is the same everywhere, so it tells near from far nowhere"
        else:
            by_place = (value / value.abs().max()).view(grid, grid, grid, grid)
            for axis, name in ((0, "down"), (1, "to the right")):
                moved = by_place.roll((1, 1), (axis, axis + 2))
                if not torch.allclose(moved, by_place):
                    q = (moved - by_place).abs().amax((2, 3)).argmax().item()
                    fault = (
                        f"moving query and key one patch {name} changes the bias, "
                        f"first at the query in row {q // grid}, column {q % grid}"
                    )
                    break
    _tell(fault, "It commutes with every shift by whole patches, and not with shuffling.")


def attention_as_convolution(heads: Any, grid: int = 6) -> None:
    """Check `heads(grid)`: nine (grid², grid²) attention maps with which a layer is a 3 x 3 convolution inside."""
    import torch
    import torch.nn.functional as F

    value, fault = _run(heads, grid)
    if fault is None and _open(value):
        return
    if fault is None:
        maps = torch.as_tensor(value).detach().double()
        n = grid * grid
        if tuple(maps.shape) != (9, n, n):
            fault = f"the maps have shape {tuple(maps.shape)}, nine heads over {n} tokens is {(9, n, n)}"
        elif (maps < 0).any() or not torch.allclose(maps.sum(-1), torch.ones(9, n, dtype=maps.dtype)):
            fault = "a row of an attention map is not a distribution: no softmax can give it"
        else:
            generator = torch.Generator().manual_seed(0)
            x = torch.randn(1, 4, grid, grid, dtype=torch.float64, generator=generator)
            kernel = torch.randn(5, 4, 3, 3, dtype=torch.float64, generator=generator)
            want = F.conv2d(x, kernel, padding=1)[0, :, 1:-1, 1:-1]
            tokens = x.flatten(2)[0].T  # (tokens, channels)
            values = kernel.permute(2, 3, 1, 0).reshape(9, 4, 5)  # head = 3 * row + column of the kernel
            out = (maps @ (tokens @ values)).sum(0).T.view(5, grid, grid)[:, 1:-1, 1:-1]
            if not torch.allclose(out, want):
                # Which head is off: with a kernel of one tap, only that head speaks.
                wrong = []
                for head in range(9):
                    one = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
                    one.view(-1)[head] = 1
                    tap = F.conv2d(x[:, :1], one, padding=1)[0, 0, 1:-1, 1:-1]
                    seen = (maps[head] @ tokens[:, 0]).view(grid, grid)[1:-1, 1:-1]
                    if not torch.allclose(seen, tap):
                        wrong.append(head)
                tap_at = f"row {wrong[0] // 3}, column {wrong[0] % 3}"
                fault = f"heads {wrong} look elsewhere than their tap of the kernel (the first: {tap_at})"
    _tell(fault, "Nine heads and a value matrix each make a 3 x 3 convolution, away from the border.")


def distance_of_step(answer: Any, grid: int = 8, patch: int = 4) -> None:
    """Check `answer`: the attention distance in pixels of a head where every patch looks at its right neighbour.

    Around the border: the last patch of a row looks at the first.
    """
    if _open(answer):
        return
    import numpy as np

    from vitlab.analysis import attention

    n = grid * grid
    weights = np.zeros((1, 1, n, n))
    for i in range(n):
        row, column = divmod(i, grid)
        weights[0, 0, i, row * grid + (column + 1) % grid] = 1
    want = float(attention.distance(weights, (grid, grid), patch, prefix=0)[0])
    fault = None
    if not isinstance(answer, numbers.Real):
        fault = f"a number of pixels is wanted, got {type(answer).__name__}"
    elif not math.isfinite(answer := float(answer)):
        fault = f"a number of pixels is finite, got {answer}"
    elif abs(answer - patch) < 1e-9:
        fault = "all but one patch of a row look one patch far; what about the last?"
    elif abs(answer - want) > 0.005 * want:
        fault = (
            f"{answer:.2f} px is too {'small' if answer < want else 'large'}; average over all queries of a row"
        )
    _tell(fault, "The distance (7.1) does not know that the border was meant to be closed.")


def unseen_share(unseen: Any) -> None:
    """Check `unseen(n, k)`: the share of n images never seen after k draws with replacement."""
    import numpy as np

    rng = np.random.default_rng(0)
    for n, k in ((4, 4), (50, 20), (50, 50), (30, 90)):
        got, fault = _run(unseen, n, k)
        if fault is None and _open(got):
            return
        drawn = rng.integers(n, size=(4000, k))
        seen = np.zeros((4000, n), bool)
        np.put_along_axis(seen, drawn, True, axis=1)
        want = 1 - seen.mean()
        if fault is None and not _number(got):
            fault = f"a share is one number, yours is {got!r:.60}"
        if fault is None and abs(got - want) > 0.02:
            fault = (
                f"for {n} images and {k} draws 4,000 simulations leave {100 * want:.1f} % unseen, yours {got:.3f}"
            )
            if abs(got - max(0.0, 1 - k / n)) < 1e-6:
                fault += "; it counts each draw as a new image"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Four cases agree with simulated draws.")


def two_point_law(law: Any) -> None:
    """Check `law(n1, e1, n2, e2)`: the (a, b) of the power law a n^-b through both points."""
    for n1, e1, n2, e2 in ((40, 0.8, 4000, 0.4), (4000, 0.4, 40, 0.8), (10, 0.5, 1000, 0.005), (7, 0.3, 70, 0.3)):
        got, fault = _run(law, n1, e1, n2, e2)
        if fault is None and _open(got):
            return
        points = f"({n1}, {e1}) and ({n2}, {e2})"
        if fault is None and not (isinstance(got, tuple) and len(got) == 2 and all(map(_number, got))):
            fault = f"a law is two numbers (a, b), yours is {got!r:.60}"
        if fault is None:
            a, b = got
            for n, e in ((n1, e1), (n2, e2)):
                there, fault = _run(lambda n=n, a=a, b=b: a * n**-b)
                if fault is None and not math.isclose(there, e, rel_tol=1e-6):
                    fault = f"through {points} your law gives {there:.4g} at {n}, not {e}"
                    mirrored, _ = _run(lambda n=n, a=a, b=b: a * n**b)
                    if mirrored is not None and math.isclose(mirrored, e, rel_tol=1e-6):
                        fault += "; look at the sign of b"
                if fault:
                    break
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Four pairs of points lie on their laws.")


def interaction_log_odds(interaction: Any) -> None:
    """Check `interaction(a_without, a_with, b_without, b_with)` on the scale of log-odds."""
    cases = ((0.1, 0.2, 0.8, 0.9), (0.1, 0.2, 0.5, 0.6), (0.5, 0.6, 0.1, 0.2), (0.3, 0.3, 0.4, 0.7))
    for case in cases:
        got, fault = _run(interaction, *case)
        if fault is None and _open(got):
            return
        if fault is None and not _number(got):
            fault = f"an interaction is one number, yours is {got!r:.60}"
        before_a, after_a, before_b, after_b = (math.log(m) - math.log1p(-m) for m in case)
        want = (after_a - before_a) - (after_b - before_b)
        if fault is None and abs(got - want) > 1e-6:
            fault = f"for {case} yours is {got:.4f}"
            points = (case[1] - case[0]) - (case[3] - case[2])
            if abs(got - points) < 1e-6:
                fault += ", which is the interaction in points"
            elif abs(got + want) < 1e-6:
                fault += ", which is of the other sign: A's gain comes first"
            elif abs(got * math.log(10) - want) < 1e-6 or abs(got * math.log(2) - want) < 1e-6:
                fault += ", which is right but for the base of the logarithm: take the natural one"
            else:
                fault += "; check the odds, m / (1 - m)"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Four tables of two by two agree.")


def eed_to_log(to_log: Any) -> None:
    """Check `to_log(per_cent, dim)`: the logarithmic effective dimension, in %, of a linear one, in %."""
    for per_cent, dim in ((100, 384), (23, 384), (58, 768), (12.5, 64), (100 / 64, 64)):
        got, fault = _run(to_log, per_cent, dim)
        if fault is None and _open(got):
            return
        if fault is None and not _number(got):
            fault = f"a percentage is one number, yours is {got!r:.60}"
        rank = per_cent / 100 * dim
        if fault is None and abs(got - 100 * math.log(rank) / math.log(dim)) > 1e-6:
            fault = f"for {per_cent:g} % of {dim} yours is {got:.4g}"
            if abs(got - math.log(rank) / math.log(dim)) < 1e-6:
                fault += ", a share; per cent is wanted"
            elif abs(got - math.log(rank)) < 1e-6:
                fault += ", the entropy itself; set it against its largest value"
            elif per_cent == 100:
                fault += "; an isotropic cloud is full on either scale"
            else:
                fault += "; how many dimensions is the linear percentage?"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Five percentages agree, of three widths.")


def one_direction(rank: Any) -> None:
    """Check `rank(dim, share)`: the effective rank where one axis has this share and the others equal ones."""
    import numpy as np

    from vitlab.analysis import spectra

    for dim, share in ((2, 0.5), (384, 0.35), (384, 1 / 384), (10, 0.9), (5, 0.05), (7, 1.0), (7, 0.0)):
        got, fault = _run(rank, dim, share)
        if fault is None and _open(got):
            return
        if fault is None and not _number(got):
            fault = f"an effective rank is one number, yours is {got!r:.60}"
        want = spectra.effective_rank(np.r_[share, np.full(dim - 1, (1 - share) / (dim - 1))])
        where = f"for {dim} dimensions and a share of {share:.3g}"
        if fault is None and abs(got - want) > 1e-6 * want:
            fault = f"{where} yours is {got:.4g}, which is too {'small' if got < want else 'large'}"
            if abs(got - math.log(want)) < 1e-6:
                fault += "; it is the entropy, not yet the number of dimensions"
            elif share > 0 and abs(got - 1 / max(share, (1 - share) / (dim - 1))) < 1e-6:
                fault += "; it is the stable rank"
            elif share == 1 / dim:
                fault += "; with this share all axes are equal"
        elif fault is not None and share in (0.0, 1.0):
            fault += f", {where}: an axis without variance adds nothing"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Seven spectra agree, the ends among them.")


def trace_of_square(estimate: Any) -> None:
    """Check `estimate(X)`: the mean of (x_n . x_m)^2 over different rows of `X` (N, D), without bias."""
    import torch

    generator = torch.Generator().manual_seed(0)
    for rows, dim in ((2, 3), (5, 2), (40, 60)):
        X = torch.randn(rows, dim, dtype=torch.float64, generator=generator)
        got, fault = _run(estimate, X.clone())
        if fault is None and _open(got):
            return
        got = got.item() if isinstance(got, torch.Tensor) and got.numel() == 1 else got
        if fault is None and not _number(got):
            fault = f"a trace is one number, yours is {got!r:.60}"
        squares = (X @ X.T) ** 2
        apart = squares.sum() - squares.diagonal().sum()
        want = float(apart) / (rows * (rows - 1))
        if fault is None and abs(got - want) > 1e-6 * want:
            fault = f"for {rows} rows of {dim} numbers yours is too {'small' if got < want else 'large'}"
            if abs(got - float(squares.mean())) < 1e-6 * want:
                fault += "; rows are paired with themselves in it"
            elif abs(got - float(apart) / rows**2) < 1e-6 * want:
                fault += "; it is divided by the number of all pairs, not of those that are left"
        if fault:
            _tell(fault, "")
            return
    draws = (torch.randn(4, 6, dtype=torch.float64, generator=generator) for _ in range(4000))
    mean = sum(float(estimate(X)) for X in draws) / 4000
    _tell(
        None, f"All pairs agree, and over 4,000 samples of four rows its mean is {mean:.2f}, where the truth is 6."
    )


def information(told: Any) -> None:
    """Check `information(p)`: how many nats distributions `p` (views, K) tell about which view it was."""
    import torch

    generator = torch.Generator().manual_seed(0)
    rows, outputs = 6, 8
    drawn = (3 * torch.randn(rows, outputs, dtype=torch.float64, generator=generator)).softmax(-1)
    sure = torch.eye(rows, outputs, dtype=torch.float64)
    for name, p in (
        ("distributions drawn at random", drawn),
        ("the same few outputs for every view", drawn[:1].repeat(rows, 1)),
        ("one output for every view", sure[:1].repeat(rows, 1)),
        ("all outputs alike for every view", torch.full((rows, outputs), 1 / outputs, dtype=torch.float64)),
        ("an output of its own for each view", sure),
    ):
        got, fault = _run(told, p.clone())
        if fault is None and _open(got):
            return
        got = got.item() if isinstance(got, torch.Tensor) and got.numel() == 1 else got
        if fault is None and not _number(got):
            fault = f"for {name} an information is one finite number, yours is {got!r:.60}; mind that 0 ln 0 is 0"
        entropy = torch.special.entr(p).sum(-1).mean().item()
        of_mean = torch.special.entr(p.mean(0)).sum().item()
        want = of_mean - entropy
        if fault is None and abs(got - want) > 1e-6:
            fault = f"for {name} yours is {got:.4f}, which is too {'small' if got < want else 'large'}"
            if abs(got + want) < 1e-6:
                fault += "; its sign is turned"
            elif abs(got - entropy) < 1e-6:
                fault += "; it is the mean of the entropies"
            elif abs(got - of_mean) < 1e-6:
                fault += "; it is the entropy of the mean"
            elif abs(got * math.log(2) - want) < 1e-6:
                fault += "; these are bits, and nats are wanted"
            elif abs(got - rows * want) < 1e-6:
                fault += "; it is a sum over the views, not a mean"
        if fault:
            _tell(fault, "")
            return
    _tell(None, f"Five batches agree: nothing where all answers are the same, ln {rows} where each is its own.")


def half_life(life: Any) -> None:
    """Check `life(m)`: the steps after which half of an average with momentum `m` is newer than they are."""
    for m in (0.5, 0.9, 0.99, 0.996):
        got, fault = _run(life, m)
        if fault is None and _open(got):
            return
        if fault is None and not _number(got):
            fault = f"a half-life is one number, yours is {got!r:.60}"
        want = math.log(0.5) / math.log(m)
        if fault is None and abs(got - want) > 1e-6 * want:
            fault = f"for m = {m} yours is {got:.4g}, which is too {'small' if got < want else 'large'}"
            if abs(got - 1 / (1 - m)) < 1e-6 * got or abs(got - m / (1 - m)) < 1e-6 * got:
                fault += "; it is a mean age"
            elif abs(got + want) < 1e-6 * want:
                fault += "; time runs forward"
            elif abs(got - math.log(2) / (1 - m)) < 1e-6 * got:
                fault += "; it is right for m near 1 only, and is wanted exactly"
            else:
                fault += "; what is an old weight multiplied by in each step, and in k of them?"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Four momenta agree.")


def auc(area: Any) -> None:
    """Check `area(scores, objects)`: the area under the ROC curve of scores (N,) for a mask (N,)."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    for name, scores, objects in (
        ("ten scores, all different", rng.permutation(10.0 + np.arange(10)), np.arange(10) < 3),
        ("a map that finds all", np.arange(8.0), np.arange(8) > 4),
        ("scores with ties", rng.integers(0, 4, 40).astype(float), rng.random(40) < 0.3),
        ("a map that is the same everywhere", np.ones(12), np.arange(12) < 5),
    ):
        got, fault = _run(area, scores.copy(), objects.copy())
        if fault is None and _open(got):
            return
        if fault is None and not _number(got):
            fault = f"an area is one number, yours is {got!r:.60}"
        want = float(roc_auc_score(objects, scores))
        if fault is None and abs(got - want) > 1e-9:
            fault = f"for {name} yours is {got:.4f}, which is too {'small' if got < want else 'large'}"
            if abs(got + want - 1) < 1e-9:
                fault += "; it is the area for the background"
            elif len(set(scores.tolist())) < len(scores):
                fault += "; let equal scores share their rank"
            else:
                fault += "; do your ranks begin with 1, and are the pairs of two objects taken away?"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Four maps agree with scikit-learn, two of them with equal scores.")


def _number(value: Any) -> bool:
    """Whether a value is one finite real number."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def whitening(whiten: Any) -> None:
    """Check `whiten(X)`: tokens `(N, D)` mapped by an invertible matrix to an effective dimension of 100 %."""
    import numpy as np

    for seed, (rows, dim) in enumerate(((200, 5), (400, 12))):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(rows, dim)) @ rng.normal(size=(dim, dim)) + 3.0
        got, fault = _run(whiten, X.copy())
        if fault is None and _open(got):
            return
        if fault is None:
            fault = _unwhitened(X, got)
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Two clouds are round, and a matrix takes each back to where it came from.")


def _unwhitened(X: Any, got: Any) -> str | None:
    """What is wrong with a whitened cloud, or None."""
    import numpy as np

    from vitlab.analysis import spectra

    Y = np.asarray(got, dtype=float)
    if Y.shape != X.shape or not np.isfinite(Y).all():
        return f"X has the shape {X.shape}, your result {Y.shape}, and all of it must be finite"
    A, B = X - X.mean(0), Y - Y.mean(0)
    W = np.linalg.lstsq(A, B, rcond=None)[0]
    if np.abs(A @ W - B).max() > 1e-6 * np.abs(B).max():
        return "your result is no product of X with a matrix, so something may have been lost"
    share = spectra.eed_linear(np.clip(np.linalg.eigvalsh(np.cov(Y.T)), 0, None))
    if share < 99.999:
        return f"the effective dimension is {share:.1f} % of the width, not yet 100"
    return None


def noise_shares(shares: Any) -> None:
    """Check `noise_shares(n, T)`: what position, image and residual have of the variance of pure noise."""
    for n, T in ((2, 2), (10, 4), (400, 64)):
        got, fault = _run(shares, n, T)
        if fault is None and _open(got):
            return
        if fault is None:
            want = [(T - 1) / (n * T - 1), (n - 1) / (n * T - 1), (n - 1) * (T - 1) / (n * T - 1)]
            try:
                parts = [float(x) for x in got]
            except (TypeError, ValueError):
                parts = []
            if len(parts) != 3:
                fault = f"three numbers are asked for, your function gives {got!r}"
            elif abs(sum(parts) - 1) > 1e-9:
                fault = f"for n = {n}, T = {T} your three shares sum to {sum(parts):.6g} and not to 1"
            else:
                names = ("position", "image", "residual")
                off = [name for name, a, b in zip(names, parts, want, strict=True) if abs(a - b) > 1e-9]
                if off:
                    fault = f"for n = {n}, T = {T} the share of {off[0]} is off; count what is free to vary"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Degrees of freedom, counted right three times.")


def apparent_ratio(apparent: Any) -> None:
    """Check `apparent(n1, n2, epochs, batch, tau)`: how much less bent a small set looks at equal epochs."""
    for n1, n2, epochs, batch, tau in (
        (2_100, 50_000, 100, 64, 5_000),
        (2_100, 50_000, 100, 64, 10),
        (500, 1_000, 1, 100, 1e6),
    ):
        got, fault = _run(apparent, n1, n2, epochs, batch, tau)
        if fault is None and _open(got):
            return
        want = math.expm1(-epochs * n1 / batch / tau) / math.expm1(-epochs * n2 / batch / tau)
        if fault is None and (not isinstance(got, numbers.Real) or not math.isclose(got, want, rel_tol=1e-6)):
            fault = (
                f"for {n1:,} and {n2:,} images, {epochs} epochs, batches of {batch} and tau {tau:g} your ratio is "
                f"{got!r}; ask how many steps each set gets"
            )
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Three cases agree, among them one in which training is long enough for both.")


def distillation_pull(pull: Any) -> None:
    """Check `pull(z, t, tau)`: the gradient of tau² KL(teacher || student) on the student's scores, (batch, K)."""
    import torch

    generator = torch.Generator().manual_seed(0)
    for tau in (1.0, 3.0, 0.5):
        z, t = 2 * torch.randn(2, 4, 6, dtype=torch.float64, generator=generator)
        got, fault = _run(pull, z.clone(), t.clone(), tau)
        if fault is None and _open(got):
            return
        p, q = (z / tau).softmax(-1), (t / tau).softmax(-1)
        want = tau * (p - q)
        if fault is None and not (isinstance(got, torch.Tensor) and got.shape == z.shape):
            shape = tuple(got.shape) if isinstance(got, torch.Tensor) else type(got).__name__
            fault = f"a gradient has the shape of the scores, {tuple(z.shape)}, yours is {shape}"
        if fault is None:
            got = got.detach().double()
            if not torch.allclose(got, want, atol=1e-6):
                most = float((got - want).abs().max())
                fault = f"at temperature {tau:g} your gradient is off by up to {most:.3f}"
                for off, why in (
                    (-want, "its sign is turned: a loss is smaller against its gradient"),
                    (want * tau, "one factor too many: what does the inner derivative do?"),
                    (want / tau, "one factor is missing: the loss has the temperature squared before it"),
                    (want / tau**2, "two factors are missing: the loss has the temperature squared before it"),
                    (z.softmax(-1) - t.softmax(-1), "the temperature is nowhere in it"),
                    (want / len(z), "it is that of a mean over the batch; image by image is asked"),
                    (want / z.numel(), "it is divided by all elements, as in the released code"),
                ):
                    if torch.allclose(got, off, atol=1e-6):
                        fault += f"; {why}"
                        break
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Three temperatures agree with the derivative.")


def equal_weight(weight: Any) -> None:
    """Check `weight(alpha, K)`: the weight that makes up for a division of the teacher's term by K."""
    for alpha, classes in ((0.5, 10), (0.1, 1000), (0.9, 2), (0.3, 1), (0.0, 50), (1.0, 7)):
        got, fault = _run(weight, alpha, classes)
        if fault is None and _open(got):
            return
        if fault is None and not _number(got):
            fault = f"a weight is one number, yours is {got!r:.60}"
        want = classes * alpha / (classes * alpha + 1 - alpha)
        if fault is None and abs(got - want) > 1e-9:
            fault = f"for alpha {alpha:g} and {classes:,} classes yours is {got:.4g}"
            if got > 1:
                fault += "; a weight is at most 1, for the label keeps the rest"
            elif abs(got - alpha / classes) < 1e-9 or abs(got - alpha / (alpha + classes * (1 - alpha))) < 1e-9:
                fault += "; it makes the teacher weaker still"
            elif classes == 1:
                fault += "; with one class nothing is divided"
            else:
                fault += "; compare teacher to label in both losses, not the teacher's terms alone"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Six weights agree, the ends among them.")


def key_query_pairs(pairs: Any) -> None:
    """Check `pairs(side, patch, road, size)`: the query-key pairs of one attention over an image."""
    for side, patch, road, size in (
        (224, 16, "all", 1),
        (224, 4, "window", 7),
        (224, 4, "reduce", 8),
        (896, 4, "window", 7),
        (896, 4, "reduce", 8),
        (64, 8, "window", 8),
        (48, 4, "reduce", 1),
    ):
        got, fault = _run(pairs, side, patch, road, size)
        if fault is None and _open(got):
            return
        n = (side // patch) ** 2
        want = n * {"all": n, "window": size**2, "reduce": n // size**2}[road]
        if fault is None and not _number(got):
            fault = f"a count is one number, yours is {got!r:.60}"
        if fault is None and got != want:
            fault = f"for {side} px, patches of {patch} px and {road!r} with {size} yours is {got:,}"
            if got * n == want:
                fault += "; it counts the keys of one query"
            elif got == (side // patch) * want // n:
                fault += "; a map has rows and columns"
            elif road == "window" and got == n * size:
                fault += "; a window has as many rows as columns"
            elif road == "reduce" and got == n * n // size:
                fault += "; a reduction shrinks rows and columns"
            elif road == "reduce" and got == n * n // size**4:
                fault += "; only keys are reduced, queries keep their number"
            else:
                fault += f", which is too {'small' if got < want else 'large'}"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Seven cases agree, on all three roads.")


def exponent_of_sum(exponent: Any) -> None:
    """Check `exponent(a, b, n, k)`: the exponent of a n + b n² that two measurements give, at n and at k n."""
    for a, b, n, k in ((1, 0, 5, 3), (0, 2, 5, 3), (6, 1, 6, 2), (100, 1, 10, 4), (2, 3, 8, 0.5)):
        got, fault = _run(exponent, a, b, n, k)
        if fault is None and _open(got):
            return
        if fault is None and not _number(got):
            fault = f"an exponent is one number, yours is {got!r:.60}"
        ratio = (a * k * n + b * (k * n) ** 2) / (a * n + b * n**2)
        want = math.log(ratio) / math.log(k)
        if fault is None and abs(got - want) > 1e-6:
            fault = f"for a = {a:g}, b = {b:g}, n = {n} and k = {k:g} yours is {got:.4f}"
            if abs(got - math.log(ratio)) < 1e-6:
                fault += "; a slope has a denominator, too"
            elif abs(got - ratio) < 1e-6:
                fault += "; it is the ratio of the costs, not yet an exponent"
            elif abs(got - 1 - b * n / (a + b * n)) < 1e-6 or abs(got - 1 - b * k * n / (a + b * k * n)) < 1e-6:
                fault += "; it is the slope at one point, and two points are given"
            elif abs(got + want) < 1e-6:
                fault += "; its sign is turned"
            elif a == 0 or b == 0:
                fault += "; a single power has one exponent everywhere"
            else:
                fault += f", which is too {'small' if got < want else 'large'}"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Five costs agree, two of them single powers.")


def blocks_until_global(needed: Any) -> None:
    """Check `needed(side, window)`: the blocks, plain and shifted in turn, after which every token sees all."""
    import torch

    from vitlab.models.swin import shift_mask, window_partition

    for side, window in ((7, 7), (14, 7), (12, 4), (28, 7), (20, 4), (56, 7)):
        got, fault = _run(needed, side, window)
        if fault is None and _open(got):
            return
        meets = []
        for shift in (0, window // 2):
            rows = torch.arange(side)[None, :, None, None].expand(1, side, side, 1)
            members = window_partition(rows.roll((-shift, -shift), (1, 2)), window).squeeze(-1)
            may = shift_mask(side, side, window, shift) == 0 if shift else torch.tensor(True)
            first, second = torch.broadcast_tensors(members[:, :, None], members[:, None, :])
            meet = torch.zeros(side, side)
            allowed = may.expand(first.shape)
            meet[first[allowed], second[allowed]] = 1.0
            meets.append(meet)
        reach, want = torch.eye(side), 0
        while not bool((reach > 0).all()):
            shifted = want % 2 if window < side else 0
            reach = ((meets[shifted] @ reach) > 0).float()
            want += 1
        if fault is None and not _number(got):
            fault = f"a number of blocks is one number, yours is {got!r:.60}"
        if fault is None and got != want:
            off = "few" if got < want else "many"
            fault = f"for a side of {side} and windows of {window} yours is {got}, too {off}"
            if got == math.ceil(side / window):
                fault += "; that is enough for a token in the middle, but who is slowest?"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Six maps agree with the model's own windows and masks, block by block.")


def two_heads(together: Any) -> None:
    """Check `together(a, rho)`: how often the mean of two heads is right, each being so with probability a."""
    from scipy.special import ndtr, ndtri

    for a, rho in ((0.8, 0.0), (0.8, 1.0), (0.6, 0.5), (0.5, 0.3), (0.3, 0.0), (0.9, 0.95), (0.7, -0.5)):
        got, fault = _run(together, a, rho)
        if fault is None and _open(got):
            return
        if fault is None and not _number(got):
            fault = f"a probability is one number, yours is {got!r:.60}"
        want = float(ndtr(ndtri(a) * math.sqrt(2 / (1 + rho))))
        if fault is None and abs(got - want) > 1e-6:
            side = "small" if got < want else "large"
            fault = f"for a = {a:g} and rho = {rho:g} yours is {got:.4f}, which is too {side}"
            if rho == 1:
                fault += "; two heads that are one and the same give what one gives"
            elif abs(got - float(ndtr(ndtri(a) * math.sqrt(2)))) < 1e-6:
                fault += "; where is the correlation?"
            elif abs(got - float(ndtr(ndtri(a) * 2 / (1 + rho)))) < 1e-6:
                fault += "; a variance is not a deviation"
            elif a < 0.5:
                fault += "; averaging makes what is likely likelier, and it is likely to be wrong"
            else:
                fault += "; what are the mean and the deviation of half the sum of two margins?"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Seven pairs of heads agree, two that are one among them.")


def keys_of_window(keys: Any) -> None:
    """Check `keys(window, expand, focal_window, windows, row, column)`: fine keys, pooled windows on the map."""
    from vitlab.models.focal import FocalConfig, focal_keys

    for window, expand, focal_window, windows, row, column in (
        (7, 3, 7, 8, 4, 4),
        (7, 3, 7, 8, 0, 7),
        (7, 3, 5, 4, 1, 3),
        (4, 2, 3, 2, 0, 1),
        (4, 0, 5, 4, 3, 0),
        (7, 3, 3, 1, 0, 0),
    ):
        config = FocalConfig(
            image_size=window * windows, patch_size=1, window=window, dims=(4,), depths=(1,), heads=(1,),
            expand=(expand,), focal_window=(focal_window,),
        )  # fmt: skip
        found = focal_keys(config, 0, (row * window, column * window))
        want = (len(set(found.fine)), sum(found.on_map))
        got, fault = _run(keys, window, expand, focal_window, windows, row, column)
        if fault is None and _open(got):
            return
        if fault is None and not (isinstance(got, tuple | list) and len(got) == 2 and all(map(_number, got))):
            fault = f"two numbers are asked for, fine keys and pooled windows, yours is {got!r:.60}"
        case = (
            f"for the window at ({row}, {column}) of {windows} x {windows} windows of {window} x {window} tokens, "
            f"a ring of {expand} and {focal_window} x {focal_window} pooled windows"
        )
        pairs = zip(got, want, ("fine keys", "pooled windows"), strict=True) if fault is None else ()
        for mine, right, what in pairs:
            if fault is None and mine != right:
                fault = f"{case} your {what} are {mine:g}, which is too {'few' if mine < right else 'many'}"
                if what == "pooled windows":
                    fault += "; draw the map, and count those that lie on it"
                elif windows == 1:
                    fault += "; where the window is the map, what could lie around it?"
                elif mine == len(found.fine) + sum(found.counts) - len(found.counts):
                    fault += "; different keys are asked for, each once"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Six windows agree with the model, in the middle, at borders and where the window is the map.")


def key_sides(sides: Any) -> None:
    """Check `sides(side, stride, depths)`: the side of every block's grid of keys, strides halved as it is."""
    from vitlab.models.mvit import MViTConfig

    for side, stride, depths in ((56, 4, (1, 2, 5, 2)), (16, 4, (1, 2, 2)), (32, 8, (2, 1, 3)), (8, 1, (3, 2))):
        count = len(depths)
        config = MViTConfig(
            image_size=side, patch_stride=1, patch_kernel=3, dims=(4,) * count, heads=(1,) * count, depths=depths,
            kv_strides=tuple(max(1, stride // 2**stage) for stage in range(count)),
        )  # fmt: skip
        want = [block.keys for block in config.plan]
        got, fault = _run(sides, side, stride, depths)
        if fault is None and _open(got):
            return
        case = f"for a grid of {side}, stride {stride} and depths {depths}"
        if fault is None and not (isinstance(got, list | tuple) and all(map(_number, got))):
            fault = f"a list of sides is asked for, one a block, yours is {got!r:.60}"
        elif fault is None and len(got) != len(want):
            fault = f"{case} there are {len(want)} blocks, your list has {len(got)} sides"
        elif fault is None:
            off = [at for at, (mine, right) in enumerate(zip(got, want, strict=True)) if mine != right]
            if off:
                first = config.plan[off[0]].q_stride > 1
                fault = f"{case} the keys of block {off[0] + 1} have not {got[off[0]]:g} a side"
                fault += "; which grid does the first block of a stage get?" if first else ""
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Four plans agree, that of MViTv2-T among them.")


def merge_biases(merge: Any) -> None:
    """Check `merge(place, bias)`: one bias for each place, which weighs what all its listings weigh together."""
    import torch

    generator = torch.Generator().manual_seed(0)
    for place, scale in (
        ([0, 1, 2], 1.0),
        ([0, 1, 2, 3, 1], 1.0),
        ([2, 0, 1, 0, 2, 0], 2.0),
        ([0, 1, 0], 2000.0),
    ):
        at = torch.tensor(place)
        bias = scale * torch.randn(4, len(place), dtype=torch.float64, generator=generator)
        got, fault = _run(merge, at.clone(), bias.clone())
        if fault is None and _open(got):
            return
        shape = (4, int(at.max()) + 1)
        if fault is None and not (isinstance(got, torch.Tensor) and got.shape == shape):
            size = tuple(got.shape) if isinstance(got, torch.Tensor) else type(got).__name__
            fault = f"for listings at {place} a bias has the shape {shape}, yours is {size}"
        if fault is None:
            got = got.double()
            groups = [bias[:, at == p] for p in range(shape[1])]
            want = torch.stack([group.logsumexp(1) for group in groups], 1)
            if not torch.allclose(got, want, rtol=1e-5, atol=1e-5):
                fault = f"for listings at {place} your biases are not the ones"
                for wrong, why in (
                    ([group.sum(1) for group in groups], "weights add up, biases do not"),
                    ([group.mean(1) for group in groups], "a mean forgets how often a key is listed"),
                    ([group.amax(1) for group in groups], "the largest alone forgets the others"),
                    ([group.exp().sum(1) for group in groups], "that is a weight; what bias gives it?"),
                ):
                    if torch.allclose(got, torch.stack(wrong, 1), rtol=1e-5, atol=1e-5):
                        fault += f"; {why}"
                        break
                else:
                    if not got.isfinite().all():
                        fault += "; large biases overflow, so take away the largest first"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Four lists agree, one with biases too large to be exponents.")


def smallest_shift(smallest: Any) -> None:
    """Check `smallest(stages)`: the least roll, in pixels, that stages of (stride, key stride) ignore."""
    for stages, want in (
        ([(4, 1)], 4),
        ([(2, 2), (2, 2), (2, 2)], 16),
        ([(4, 2), (2, 2), (2, 2)], 32),
        ([(4, 8), (2, 4), (2, 2), (2, 1)], 32),
        ([(2, 8), (2, 1)], 16),
        ([(2, 3), (2, 1)], 12),
        ([(3, 2), (2, 5)], 30),
    ):
        got, fault = _run(smallest, list(stages))
        if fault is None and _open(got):
            return
        if fault is None and not (_number(got) and got == int(got)):
            fault = f"a shift is a whole number of pixels, yours is {got!r:.60}"
        if fault is None and got != want:
            last = math.prod(s for s, _ in stages) * stages[-1][1]
            if got < 1:
                why = "a shift by nothing is not asked for"
            elif got % want == 0:
                why = "that is a symmetry, but a smaller shift is one too"
            elif got == last:
                why = "the last stage allows it; do the earlier ones?"
            else:
                why = "some stage then has other keys, or no whole number of cells"
            fault = f"for stages {stages} yours is {got:g} px: {why}"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Seven networks agree, two of them with strides that do not divide one another.")


def convolution_matrix(matrix: Any, side: int = 5) -> None:
    """Check `matrix(kernel, side)`: the (side², side²) matrix of torch's 3 x 3 convolution, padded with zeros."""
    import torch
    import torch.nn.functional as F

    generator = torch.Generator().manual_seed(0)
    for n in (side, 3):
        kernel = torch.randn(3, 3, dtype=torch.float64, generator=generator)
        value, fault = _run(matrix, kernel, n)
        if fault is None and _open(value):
            return
        if fault is None:
            try:
                got = torch.as_tensor(value).detach().double()
            except (TypeError, ValueError, RuntimeError):
                got = None
            if got is None or tuple(got.shape) != (n * n, n * n):
                shape = type(value).__name__ if got is None else tuple(got.shape)
                fault = f"for side {n} a matrix over all cells is {(n * n, n * n)}, yours is {shape}"
            else:
                ones = torch.eye(n * n, dtype=torch.float64).view(-1, 1, n, n)  # one map a cell

                def made(k: torch.Tensor, ones: torch.Tensor = ones) -> torch.Tensor:
                    return F.conv2d(ones, k[None, None], padding=1).flatten(1).T

                want = made(kernel)
                wrong = ~torch.isclose(got, want, rtol=1e-5, atol=1e-6).all(1)
                if wrong.any():
                    first = int(wrong.nonzero()[0])
                    fault = f"the row of the cell in row {first // n}, column {first % n} is not the convolution's"
                    inner = torch.zeros(n, n, dtype=torch.bool)
                    inner[1:-1, 1:-1] = True
                    if torch.allclose(got, made(kernel.flip(0, 1)), atol=1e-6):
                        fault = "yours weighs x[i - o] by the kernel at o; torch's weighs x[i + o]"
                    elif torch.allclose(got, want.T, atol=1e-6):
                        fault = "yours is transposed: rows are outputs, columns are inputs"
                    elif not wrong[inner.flatten()].any():
                        fault += "; inside yours agrees, so look at what happens at the border"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Every row is the convolution's, at the border too.")


def places_told_apart(places: Any) -> None:
    """Check `places(layers, side)`: kinds of place of a blank image after 3 x 3 convolutions padded with zeros."""
    for layers, side in ((0, 8), (1, 8), (2, 8), (3, 8), (4, 8), (9, 8), (1, 3), (2, 4), (3, 6), (5, 14), (7, 14)):
        got, fault = _run(places, layers, side)
        if fault is None and _open(got):
            return
        if fault is None and not _number(got):
            fault = f"a count is one number, yours is {got!r:.60}"
        want = min(side, 2 * layers + 1) ** 2
        if fault is None and got != want:
            size = "few" if got < want else "many"
            fault = f"after {layers} layers on {side} x {side} cells yours is {got:g}, which is too {size}"
            if got > side**2:
                fault += "; there are not so many cells"
            elif got == math.isqrt(want):
                fault += "; a map has two axes"
            elif got == min(side, layers + 1) ** 2:
                fault += "; how many sides does an axis have?"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Eleven networks agree, shallow and deep.")


def pareto_front(front: Any) -> None:
    """Check `front(cost, accuracy)`: the numbers of the networks that no other dominates, in the order given."""
    for cost, accuracy in (
        ((1.0, 2.0, 3.0), (10.0, 20.0, 30.0)),
        ((3.0, 1.0, 2.0), (10.0, 20.0, 20.0)),
        ((2.0, 2.0, 1.0, 4.0), (50.0, 40.0, 30.0, 50.0)),
        ((2.0, 1.0, 2.0), (7.0, 5.0, 7.0)),
        ((5.0,), (1.0,)),
        ((4.0, 3.0, 2.0, 1.0), (1.0, 2.0, 3.0, 4.0)),
    ):
        got, fault = _run(front, cost, accuracy)
        if fault is None and _open(got):
            return
        places = range(len(cost))
        want = [
            i
            for i in places
            if not any(
                cost[j] <= cost[i]
                and accuracy[j] >= accuracy[i]
                and (cost[j], accuracy[j]) != (cost[i], accuracy[i])
                for j in places
            )
        ]
        try:
            got = None if fault else [int(i) for i in got]
        except (TypeError, ValueError):
            fault = f"numbers of networks are asked for, yours is {got!r:.60}"
        if fault is None and got != want:
            fault = f"for costs {cost} and accuracies {accuracy} yours is {got!r:.60}"
            if got and not set(got) <= set(places):
                fault += "; networks are numbered from 0"
            elif sorted(got or []) == want:
                fault += "; they are asked for in the order given"
            elif missed := sorted(set(want) - set(got or [])):
                fault += f"; who dominates network {missed[0]}?"
            else:
                fault += f"; network {min(set(got or []) - set(want))} is dominated"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Six tables agree, with ties and with a single network.")


def lucky_differences(lucky: Any) -> None:
    """Check `lucky(k)`: of k equal networks, how many differences are called decided, and Bonferroni's level."""
    for k in (2, 3, 5, 9, 40):
        got, fault = _run(lucky, k)
        if fault is None and _open(got):
            return
        pairs = k * (k - 1) / 2
        want = (0.05 * pairs, 100 * (1 - 0.05 / pairs))
        if fault is None:
            try:
                calls, level = (float(x) for x in got)
            except (TypeError, ValueError):
                fault = f"two numbers are asked for, yours is {got!r:.60}"
        if fault is None and abs(calls - want[0]) > 1e-6:
            fault = f"for {k} networks {calls:g} false calls are too {'few' if calls < want[0] else 'many'}"
            if abs(calls - 2 * want[0]) < 1e-6:
                fault += "; a pair is counted once"
            elif abs(calls - 0.05 * k) < 1e-6 or abs(calls - 0.05 * (k - 1)) < 1e-6:
                fault += "; any two are compared, not each with one"
            elif abs(calls - (1 - 0.95**pairs)) < 1e-6:
                fault += "; that is the chance of at least one, if they were independent"
        if fault is None and abs(level - want[1]) > 1e-6:
            fault = f"for {k} networks a level of {level:g} % is too {'low' if level < want[1] else 'high'}"
            if abs(100 * level - want[1]) < 1e-6:
                fault += "; per cent are asked for"
            elif abs(level - 100 * 0.95 ** (1 / pairs)) < 1e-6:
                fault += "; that is Šidák's, for independent differences"
            elif abs(level - (100 - want[1])) < 1e-6:
                fault += "; that is what the intervals may miss"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Five tables agree, from two networks to forty.")


def images_to_hold_out(needed: Any) -> None:
    """Check `needed(d, g, h)`: the images for an interval of half width h, from disagreement d and gain g."""
    for d, g, h in ((0.3, 0.0, 0.01), (0.3, 0.1, 0.01), (0.2, 0.2, 0.02), (0.05, 0.0, 0.05), (0.5, -0.3, 0.013)):
        got, fault = _run(needed, d, g, h)
        if fault is None and _open(got):
            return
        if fault is None and not _number(got):
            fault = f"a number of images is one number, yours is {got!r:.60}"
        exact = 1.96**2 * (d - g * g) / h**2
        if fault is None and got not in {math.ceil(exact - 1e-6), math.ceil(exact + 1e-6)}:
            fault = (
                f"for d = {d:g}, g = {g:g} and h = {h:g} yours is {got:g}, too {'few' if got < exact else 'many'}"
            )
            if abs(got - exact) < 1:
                fault += "; the least whole number that suffices is asked for"
            elif abs(got - 1.96**2 * d / h**2) < 1:
                fault += "; a variance is taken about the mean"
            elif abs(got - 1.96**2 * d * (1 - d) / h**2) < 1:
                fault += "; the difference of two answers has three values, not two"
            elif abs(got - 1.96 * math.sqrt(d - g * g) / h) < 1:
                fault += "; a standard error falls with the root of the number of images"
            elif abs(got - 4 * exact) < 4:
                fault += "; h is half of the width"
        if fault:
            _tell(fault, "")
            return
    _tell(None, "Five tests agree, to the image.")
