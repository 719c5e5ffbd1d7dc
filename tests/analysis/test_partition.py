"""The split of a covariance: exact, streamed as at once, each part blind to the others, honest on noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vitlab.analysis.partition import Partition, eigenvalues, without_top_norm
from vitlab.analysis.spectra import Covariance

NAMES = ("position", "image", "residual")
SEEDS = st.integers(0, 10_000)
SIZES = st.tuples(st.integers(1, 12), st.integers(1, 9), st.integers(1, 6))  # images, tokens, dim


def split(x: NDArray, cuts: tuple[int, ...] = ()) -> Partition:
    partition = Partition(x.shape[2], x.shape[1])
    for batch in np.split(x, sorted(cuts)):
        if len(batch):
            partition.update(batch)
    return partition


def directly(x: NDArray) -> dict[str, NDArray]:
    """The parts by their definition, the whole array at hand."""
    mean = x.mean((0, 1))
    position, image = x.mean(0) - mean, x.mean(1) - mean
    residual = x - mean - position - image[:, None]
    rows = {"total": x - mean, "position": position, "image": image, "residual": residual}
    flat = {name: r.reshape(-1, x.shape[2]) for name, r in rows.items()}
    return {name: r.T @ r / len(r) for name, r in flat.items()}


def tokens(seed: int, images: int, count: int, dim: int) -> NDArray:
    """Tokens with signal in every part, of random strength."""
    rng = np.random.default_rng(seed)
    shapes = (1, 1, dim), (1, count, dim), (images, 1, dim), (images, count, dim)
    return sum(10 ** rng.uniform(-1, 1) * rng.normal(size=shape) for shape in shapes)


@given(SEEDS, SIZES, st.lists(st.integers(0, 12), max_size=3))
@settings(deadline=None, max_examples=60)
def test_the_parts_are_those_of_the_definition_however_the_images_come(seed, sizes, cuts) -> None:
    x = tokens(seed, *sizes)
    parts, expected = split(x, tuple(cuts)).parts(), directly(x)
    scale = np.abs(expected["total"]).max()
    assert set(parts) == {"total", *NAMES}
    for name, part in parts.items():
        np.testing.assert_allclose(part, expected[name], atol=1e-13 * scale, err_msg=name)


@given(SEEDS, SIZES)
@settings(deadline=None, max_examples=60)
def test_the_three_parts_add_up_to_the_covariance_of_all_tokens(seed, sizes) -> None:
    x = tokens(seed, *sizes)
    parts = split(x, (2, 5)).parts()
    scale = np.abs(parts["total"]).max()
    np.testing.assert_allclose(sum(parts[name] for name in NAMES), parts["total"], atol=1e-12 * scale)
    whole = np.cov(x.reshape(-1, sizes[2]).T, bias=True).reshape(sizes[2], sizes[2])
    np.testing.assert_allclose(parts["total"], whole, atol=1e-12 * scale)


def test_the_total_is_that_of_the_spectra_but_for_its_divisor() -> None:
    x = tokens(0, 30, 9, 4)
    covariance = Covariance(4, double=True)
    covariance.update(x)
    np.testing.assert_allclose(split(x).parts()["total"] * 270 / 269, covariance.covariance(), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_pure_signal_lies_in_its_own_part_alone(name: str) -> None:
    rng = np.random.default_rng(0)
    position, image = rng.integers(-5, 6, (8, 3)), rng.integers(-5, 6, (16, 3))
    signs = np.where(np.indices((16, 8)).sum(0) % 2, 1.0, -1.0)[..., None] * np.array([1.0, 2.0, 3.0])
    x = {
        "position": np.broadcast_to(position[None], (16, 8, 3)),
        "image": np.broadcast_to(image[:, None], (16, 8, 3)),
        "residual": signs,  # a chess board: each row and each column of it has mean zero
    }[name]
    parts = split(x, (4, 8)).parts()
    for other in NAMES:
        expected = np.cov(x.reshape(-1, 3).T, bias=True) if other == name else np.zeros((3, 3))
        np.testing.assert_allclose(parts[other], expected, atol=1e-13)


def test_noise_leaves_in_each_part_what_its_degrees_of_freedom_say() -> None:
    images, count, dim = 20, 10, 500
    parts = split(np.random.default_rng(0).normal(size=(images, count, dim))).parts()
    trace = {name: np.trace(part) / dim for name, part in parts.items()}
    cells = images * count
    # Of each feature's scatter, a chi-square variable; its relative error over 500 features is below 2.5 %.
    assert trace["position"] == pytest.approx((count - 1) / cells, rel=0.08)
    assert trace["image"] == pytest.approx((images - 1) / cells, rel=0.08)
    assert trace["residual"] == pytest.approx((images - 1) * (count - 1) / cells, rel=0.03)
    assert trace["position"] / trace["residual"] == pytest.approx(1 / (images - 1), rel=0.1)
    assert trace["image"] / trace["residual"] == pytest.approx(1 / (count - 1), rel=0.1)


def test_one_token_has_no_position_and_one_image_no_image() -> None:
    rng = np.random.default_rng(0)
    lone = split(rng.normal(size=(9, 1, 3)), (4,)).parts()
    assert not lone["position"].any() and not lone["residual"].any() and np.trace(lone["image"]) > 0
    single = split(rng.normal(size=(1, 9, 3))).parts()
    assert not single["image"].any()
    np.testing.assert_allclose(single["position"], single["total"], atol=1e-15)
    np.testing.assert_array_equal(eigenvalues(lone["position"]), np.zeros(3))


@pytest.mark.parametrize("offset", [100.0, -1e4])
def test_a_large_mean_costs_no_digits_though_the_first_batch_is_unlike_the_rest(offset: float) -> None:
    x = tokens(1, 40, 6, 4)
    x[:5] += 50.0
    single = (x + offset).astype(np.float32)
    parts, expected = split(single, (5, 6, 20)).parts(), directly(single.astype(np.longdouble))
    for name in parts:
        scale = float(np.abs(expected[name]).max())
        np.testing.assert_allclose(parts[name], expected[name].astype(float), atol=1e-11 * scale, err_msg=name)


def test_a_feature_that_never_changes_has_no_variance_at_all() -> None:
    x = tokens(2, 12, 5, 3)
    x[..., 1] = 0.1
    for part in split(x, (3, 7)).parts().values():
        assert not part[1].any() and not part[:, 1].any()


@given(SEEDS, SIZES)
@settings(deadline=None, max_examples=60)
def test_the_mean_and_its_share_of_the_second_moment(seed, sizes) -> None:
    x = tokens(seed, *sizes)
    partition = split(x, (3,))
    mean = x.mean((0, 1))
    np.testing.assert_allclose(partition.mean, mean, atol=1e-13 * np.abs(x).max())
    assert partition.mean_share == pytest.approx(mean @ mean / (x**2).sum(-1).mean(), rel=1e-9)


def test_the_share_of_the_mean_at_its_ends() -> None:
    assert split(np.full((3, 4, 2), 7.0)).mean_share == 1
    assert split(np.array([[[1.0], [-1.0]]])).mean_share == 0
    with pytest.raises(ValueError, match="Every token is zero"):
        _ = split(np.zeros((3, 4, 2))).mean_share


def test_tensors_of_any_precision_and_inference_mode_are_welcome() -> None:
    x = torch.tensor(tokens(3, 10, 4, 3))
    half = x.to(torch.bfloat16).requires_grad_()
    partition = Partition(3, 4)
    with torch.inference_mode():
        partition.update(half[:6])
    partition.update(half[6:])
    expected = directly(half.detach().double().numpy())
    for name, part in partition.parts().items():
        np.testing.assert_allclose(part, expected[name], rtol=1e-12, atol=1e-12)
    integers = split(np.arange(24).reshape(2, 3, 4)).parts()
    np.testing.assert_allclose(integers["total"], directly(np.arange(24.0).reshape(2, 3, 4))["total"])


def test_what_was_handed_out_is_not_what_is_kept() -> None:
    x = tokens(4, 6, 3, 2)
    partition, untouched = split(x), split(x).parts()
    for part in partition.parts().values():
        part += 1
    partition.mean[:] = 0
    for name, part in partition.parts().items():
        np.testing.assert_array_equal(part, untouched[name])


def test_memory_does_not_grow_with_the_images() -> None:
    partition = Partition(4, 3)
    sizes = []
    for _ in range(3):
        partition.update(np.random.default_rng(0).normal(size=(50, 3, 4)))
        kept = [v for v in vars(partition).values() if isinstance(v, torch.Tensor)]
        sizes.append(sum(v.untyped_storage().nbytes() for v in kept))
    assert sizes[0] == sizes[2] <= 8 * (4 + 12 + 16 + 16)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 4, 4), (12, 4), (0, 3, 4), (2, 2, 3, 4)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"takes real \(images, 3, 4\)"):
        Partition(4, 3).update(np.zeros(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_and_leaves_no_trace(bad: float) -> None:
    x = tokens(5, 6, 3, 2)
    partition = split(x)
    poisoned = x.copy()
    poisoned[2, 1, 0] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        partition.update(poisoned)
    assert partition.images == 6
    np.testing.assert_array_equal(partition.parts()["total"], split(x).parts()["total"])


def test_nothing_is_split_before_the_first_image() -> None:
    partition = Partition(4, 3)
    for ask in (partition.parts, lambda: partition.mean, lambda: partition.mean_share):
        with pytest.raises(ValueError, match="before the first image"):
            ask()
    for dim, count in ((0, 3), (4, 0)):
        with pytest.raises(ValueError, match=f"got dim={dim}, tokens={count}"):
            Partition(dim, count)


def test_eigenvalues_are_sorted_and_not_below_zero() -> None:
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    part = turn @ np.diag([0.0, 4, 0, 9, 1]) @ turn.T
    values = eigenvalues((part + part.T) / 2)
    np.testing.assert_allclose(values, [9, 4, 1, 0, 0], atol=1e-14)
    assert (values >= 0).all()


@pytest.mark.parametrize(
    "matrix", [np.zeros((2, 3)), np.zeros(3), np.full((2, 2), np.nan), np.zeros((0, 0)), np.zeros((2, 2, 2))]
)
def test_a_part_that_is_no_finite_square_is_refused(matrix: NDArray) -> None:
    with pytest.raises(ValueError, match="finite square matrix"):
        eigenvalues(matrix)


@pytest.mark.parametrize("matrix", [np.diag([1.0, -0.1]), np.array([[1.0, 0.5], [0.0, 1.0]])])
def test_what_is_no_covariance_is_refused(matrix: NDArray) -> None:
    with pytest.raises(ValueError, match="symmetric and none of its eigenvalues negative"):
        eigenvalues(matrix)


def test_the_longest_tokens_go_and_the_rest_keep_their_order() -> None:
    x = torch.tensor([[[1.0, 0], [0, 9]], [[-8, 0], [2, 0]]], dtype=torch.bfloat16)
    kept = without_top_norm(x, 0.5)
    assert kept.dtype == torch.bfloat16
    assert kept.tolist() == [[1, 0], [2, 0]]
    assert without_top_norm(x, 0).tolist() == x.reshape(4, 2).tolist()


@given(SEEDS, SIZES, st.floats(0, 0.9))
@settings(deadline=None, max_examples=60)
def test_exactly_the_share_goes_also_among_equals(seed, sizes, share) -> None:
    x = np.random.default_rng(seed).integers(-1, 2, sizes)  # many of one length
    count = sizes[0] * sizes[1]
    gone = round(share * count)
    if gone == count:
        gone, share = 0, 0.0
    kept = without_top_norm(x, share).numpy()
    norms = np.sort((x.reshape(count, -1) ** 2).sum(1))
    np.testing.assert_array_equal(np.sort((kept**2).sum(1)), norms[: count - gone])


def test_without_top_norm_refuses_what_leaves_nothing() -> None:
    x = np.ones((2, 3, 4))
    for share in (-0.1, 0.99, 1.0, 2.0, float("nan")):
        with pytest.raises(ValueError, match="share from 0 to 1 that leaves tokens"):
            without_top_norm(x, share)
    for bad in (np.full((2, 4), np.nan), np.ones(4), np.ones((0, 4))):
        with pytest.raises(ValueError, match="finite tokens by features"):
            without_top_norm(bad, 0.1)
