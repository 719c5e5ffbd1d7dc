"""Views: each image alone is what torchvision makes of it with the same parameters."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as reference

from vitlab import data
from vitlab.data import geometry
from vitlab.data.views import Blur, Colour, Crop, Erase, Flip, Grey, MultiCrop, Shift, Solarize, View

COLOURS = ("brightness", "contrast", "saturation", "hue")
BOX = ("top", "left", "height", "width")


def seeded(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int = 16, channels: int = 3, height: int = 23, width: int = 18, seed: int = 0) -> Tensor:
    """Bytes, as floats in [0, 1]: equal channels and flat places occur as in photographs."""
    return torch.randint(0, 256, (count, channels, height, width), generator=seeded(seed)).float() / 255


def box(drawn: dict[str, Tensor]) -> list[int]:
    return [int(drawn[name]) for name in BOX]


# What torchvision makes of one image, given what was drawn for it.


def shifted(t: Shift, image: Tensor, drawn: dict[str, Tensor]) -> Tensor:
    mode = {"reflect": "reflect", "zeros": "constant"}[t.mode]
    padded = reference.pad(image, [t.pixels], padding_mode=mode)
    return reference.crop(padded, int(drawn["top"]), int(drawn["left"]), *image.shape[-2:])


def flipped(t: Flip, image: Tensor, drawn: dict[str, Tensor]) -> Tensor:
    return reference.horizontal_flip(image) if drawn["flip"] else image


def coloured(t: Colour, image: Tensor, drawn: dict[str, Tensor]) -> Tensor:
    for name in COLOURS:
        if name in drawn:
            image = getattr(reference, f"adjust_{name}")(image, float(drawn[name]))
    return image


def greyed(t: Grey, image: Tensor, drawn: dict[str, Tensor]) -> Tensor:
    return reference.rgb_to_grayscale(image, num_output_channels=len(image)) if drawn["chosen"] else image


def solarized(t: Solarize, image: Tensor, drawn: dict[str, Tensor]) -> Tensor:
    return reference.solarize(image, t.threshold) if drawn["chosen"] else image


def blurred(t: Blur, image: Tensor, drawn: dict[str, Tensor]) -> Tensor:
    side, sigma = 2 * max(1, round(3 * t.sigma[1])) + 1, float(drawn["sigma"])
    return reference.gaussian_blur(image, [side, side], [sigma, sigma]) if sigma else image


def erased(t: Erase, image: Tensor, drawn: dict[str, Tensor]) -> Tensor:
    return reference.erase(image, *box(drawn), v=image.mean((1, 2), keepdim=True)) if drawn["height"] else image


def cropped(t: Crop, image: Tensor, drawn: dict[str, Tensor]) -> Tensor:
    size = list(image.shape[-2:]) if t.size is None else [t.size, t.size]
    return reference.resized_crop(image, *box(drawn), size, antialias=True)


PEERS: list[tuple[object, Callable[..., Tensor]]] = [
    (Shift(4), shifted),
    (Shift(3, "zeros"), shifted),
    (Flip(), flipped),
    (Colour(0.6, 0.6, 0.6, 0.3), coloured),
    (Colour(hue=0.5), coloured),
    (Colour(0.4, 0.4, 0.2, 0.1, p=0.5), coloured),
    (Grey(0.5), greyed),
    (Solarize(0.5), solarized),
    (Blur((0.1, 2.0), p=0.8), blurred),
    (Erase(0.7), erased),
    (Erase(1.0, (0.5, 1.0), (0.1, 10.0)), erased),
    (Crop(), cropped),
    (Crop((0.5, 1.0), size=5), cropped),
    (Crop((0.01, 0.2), size=40), cropped),
]
names = [f"{type(t).__name__}{i}" for i, (t, _) in enumerate(PEERS)]


@pytest.mark.parametrize("transform, peer", PEERS, ids=names)
@pytest.mark.parametrize("channels", [3, 1])
def test_each_image_is_torchvisions(transform, peer, channels):
    images = pictures(channels=channels)
    drawn = transform.draw(16, seeded(1), (23, 18))
    made = transform(images, **drawn)
    for i, image in enumerate(images):
        expected = peer(transform, image, {name: values[i] for name, values in drawn.items()})
        torch.testing.assert_close(made[i], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("transform, peer", PEERS, ids=names)
def test_every_image_has_parameters_of_its_own(transform, peer):
    drawn = transform.draw(64, seeded(), (23, 18))
    assert {len(values) for values in drawn.values()} == {64}
    assert all(len(values.unique()) > 1 for values in drawn.values())
    again = transform.draw(64, seeded(), (23, 18))
    assert all(torch.equal(drawn[name], again[name]) for name in drawn)


@pytest.mark.parametrize("transform, peer", PEERS, ids=names)
@settings(max_examples=15, deadline=None)
@given(
    count=st.integers(1, 5),
    channels=st.sampled_from([1, 3]),
    height=st.integers(7, 20),
    width=st.integers(7, 20),
    seed=st.integers(0, 2**63),
)
def test_any_shape_stays_in_range_and_is_not_changed_in_place(
    transform, peer, count, channels, height, width, seed
):
    images = pictures(count, channels, height, width, seed)
    before = images.clone()
    made = transform(images, **transform.draw(count, seeded(seed), (height, width)))
    size = (height, width) if getattr(transform, "size", None) is None else 2 * (transform.size,)
    assert made.shape == (count, channels, *size) and made.dtype == torch.float32
    assert torch.equal(images, before)
    assert made.isfinite().all() and made.min() >= 0 and made.max() <= 1 + 1e-6


@pytest.mark.parametrize("transform, peer", PEERS, ids=names)
def test_nothing_is_asked_of_the_device(transform, peer):
    """A tensor on "meta" has no values: whoever asks for one raises, as a GPU would have to be waited for."""
    view = View(transform, mean=(0.4, 0.5, 0.6), std=0.2)
    made = view(torch.empty(8, 3, 23, 18, dtype=torch.uint8, device="meta"), seeded())
    assert made.device.type == "meta" and made.dtype == torch.float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("transform, peer", PEERS, ids=names)
def test_cuda_gives_the_same_view(transform, peer):
    here, there = (View(transform)(pictures().to(device), seeded()).cpu() for device in ("cpu", "cuda"))
    torch.testing.assert_close(there, here, atol=1e-4, rtol=0)


# One at a time


def test_two_flips_are_none():
    images, flip = pictures(), torch.rand(16, generator=seeded()) < 0.5
    assert torch.equal(Flip()(Flip()(images, flip), flip), images)


@pytest.mark.parametrize(
    "make", [Flip, Grey, Solarize, lambda p: Blur((0.5, 2.0), p), Erase, lambda p: Colour(0.5, hue=0.5, p=p)]
)
def test_probability_is_how_often_it_happens(make):
    images = pictures(400, height=9, width=9)

    def share(p: float) -> float:
        t = make(p)
        changed = t(images, **t.draw(400, seeded(), (9, 9))) - images
        return (changed.abs().amax((1, 2, 3)) > 1e-4).float().mean().item()

    assert share(0.0) == 0 and share(1.0) > 0.98 and abs(share(0.3) - 0.3) < 0.08


def test_shift_reaches_every_place_equally():
    top, left = Shift(2).draw(5000, seeded(), (8, 8)).values()
    counts = torch.bincount(5 * top + left)
    assert len(counts) == 25 and counts.min() > 140 and counts.max() < 260


def test_factors_are_uniform_within_their_limits():
    drawn = Colour(0.4, 1.5, 0.2, 0.1).draw(4000, seeded(), (8, 8))
    limits = {"brightness": (0.6, 1.4), "contrast": (0.0, 2.5), "saturation": (0.8, 1.2), "hue": (-0.1, 0.1)}
    for name, (low, high) in limits.items():
        quartiles = torch.quantile(drawn[name], torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64))
        expected = torch.linspace(low, high, 5, dtype=torch.float64)
        torch.testing.assert_close(quartiles, expected, atol=0.03 * (high - low), rtol=0)
        assert drawn[name].min() >= low and drawn[name].max() <= high


def test_boxes_are_drawn_as_torchvision_draws_them():
    """The same distribution: quartiles of both sides and of the place, over 3000 boxes of each."""
    ours = Crop().draw(3000, seeded(), (40, 60))
    theirs = v2.RandomResizedCrop(8)
    torch.manual_seed(0)
    boxes = [theirs.make_params([torch.empty(3, 40, 60)]) for _ in range(3000)]
    for name in BOX:
        quartiles = torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9])
        a, b = (torch.quantile(v.float(), quartiles) for v in (ours[name], torch.tensor([x[name] for x in boxes])))
        torch.testing.assert_close(a, b, atol=2.0, rtol=0)


@settings(max_examples=50, deadline=None)
@given(height=st.integers(1, 300), width=st.integers(1, 300), seed=st.integers(0, 2**31))
def test_boxes_lie_inside_the_image(height, width, seed):
    for transform in (Crop(), Erase(1.0), Crop((0.9, 1.0), (2.0, 3.0)), Erase(1.0, (0.9, 1.0), (0.01, 100.0))):
        top, left, tall, wide = (transform.draw(40, seeded(seed), (height, width))[name] for name in BOX)
        assert top.min() >= 0 and left.min() >= 0 and tall.min() >= 1 and wide.min() >= 1
        assert (top + tall).max() <= height and (left + wide).max() <= width


def test_a_box_that_never_fits_becomes_the_largest_in_the_centre():
    drawn = Crop((0.9, 1.0), (3.0, 4.0)).draw(2, seeded(), (60, 40))
    assert [values.tolist() for values in drawn.values()] == [[23, 23], [0, 0], [13, 13], [40, 40]]


def test_the_last_number_below_one_stays_inside(monkeypatch):
    below = torch.nextafter(torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64))
    monkeypatch.setattr(
        geometry, "uniform", lambda count, columns, generator: below.expand(columns, count).clone()
    )
    for transform in (Crop((0.01, 0.02)), Erase(1.0, (0.01, 0.02))):
        drawn = transform.draw(1, seeded(), (224, 224))
        assert drawn["top"] + drawn["height"] == 224


def test_a_crop_of_everything_is_the_image():
    images, zero = pictures(4), torch.zeros(4, dtype=torch.long)
    made = Crop()(images, zero, zero, zero + 23, zero + 18)
    torch.testing.assert_close(made, images, atol=1e-6, rtol=0)


def test_a_smaller_picture_of_stripes_is_grey():
    """Stripes one pixel wide cannot be seen at a quarter of the size: without antialiasing they would be black."""
    stripes = (torch.arange(64) % 2).float().expand(1, 3, 64, 64)
    zero = torch.zeros(1, dtype=torch.long)
    small = Crop(size=16)(stripes, zero, zero, zero + 64, zero + 64)
    torch.testing.assert_close(small, torch.full_like(small, 0.5), atol=0.05, rtol=0)


def test_hue_goes_full_circle():
    images = pictures()
    for turn in (1.0, -1.0, 0.0):
        made = Colour()(images, hue=torch.full((16,), turn))
        torch.testing.assert_close(made, images, atol=2e-6, rtol=0)
    red = torch.tensor([1.0, 0, 0]).view(1, 3, 1, 1)
    assert Colour()(red, hue=torch.tensor([1 / 3])).flatten().tolist() == pytest.approx([0, 1, 0], abs=1e-6)


# A view


def everything(**options):
    return View(
        Crop(size=16), Shift(2), Flip(), Colour(0.4, 0.4, 0.4, 0.1), Grey(), Blur((0.1, 1.0)), Solarize(), Erase(),
        **options,
    )  # fmt: skip


def test_bytes_and_floats_give_the_same_view():
    bytes_ = torch.randint(0, 256, (8, 3, 20, 20), dtype=torch.uint8, generator=seeded())
    view = everything(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    from_bytes = view(bytes_, seeded())
    for floats in (bytes_.float() / 255, bytes_.double() / 255):
        before = floats.clone()
        torch.testing.assert_close(view(floats, seeded()), from_bytes, atol=1e-6, rtol=0)
        assert torch.equal(floats, before)


def test_the_images_are_kept_where_nothing_is_done():
    for images in (pictures(), (255 * pictures()).byte()):
        before = images.clone()
        View()(images, seeded())
        assert torch.equal(images, before)


def test_normalisation_is_torchvisions():
    images = pictures()
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    torch.testing.assert_close(View(mean=mean, std=std)(images, seeded()), reference.normalize(images, mean, std))
    torch.testing.assert_close(View()(images, seeded()), 2 * images - 1)


@pytest.mark.parametrize("world", [1, 2, 4, 16])
def test_shares_of_a_batch_are_parts_of_the_whole(world):
    images, view = pictures(), everything()
    whole = view(images, seeded(5))
    size = 16 // world
    parts = [slice(i * size, (i + 1) * size) for i in range(world)]
    shares = [view(images[rows], seeded(5), rows, 16) for rows in parts]
    torch.testing.assert_close(torch.cat(shares), whole, atol=1e-6, rtol=0)


def test_a_seed_gives_one_view_and_another_seed_another():
    images, view = pictures(), everything()
    assert torch.equal(view(images, seeded(1)), view(images, seeded(1)))
    assert not torch.equal(view(images, seeded(1)), view(images, seeded(2)))


def test_the_global_generators_are_left_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    everything()(pictures(), seeded())
    assert torch.equal(torch.get_rng_state(), before)


def test_crops_of_several_sizes_are_a_list():
    both = MultiCrop([View(Crop((0.4, 1.0), size=20)), View(Crop((0.05, 0.4), size=8))])
    large, small = both(pictures(), seeded())
    assert large.shape == (16, 3, 20, 20) and small.shape == (16, 3, 8, 8)
    shares = [both(pictures()[rows], seeded(), rows, 16) for rows in (slice(0, 8), slice(8, 16))]
    torch.testing.assert_close(torch.cat([s[1] for s in shares]), small, atol=1e-6, rtol=0)
    assert "MultiCrop(View(Crop(scale=(0.4, 1.0)" in repr(both)


def test_views_are_reached_from_data():
    assert data.views.View is View and "Shift(pixels=4, mode='reflect'), mean=[0.5]" in repr(View(Shift()))


# What is wrong is said in one sentence.

WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Flip(1.5), "A flip happens with a probability from 0 to 1, not 1.5."),
    (lambda: Flip(float("nan")), "not nan"),
    (lambda: Erase(p="often"), "not 'often'"),
    (lambda: Erase(scale=(0.5, 0.1)), "in ascending order, above 0 and at most 1, not (0.5, 0.1)"),
    (lambda: Crop(scale=(0.0, 1.0)), "above 0 and at most 1, not (0.0, 1.0)"),
    (lambda: Crop(ratio=(0.5, float("inf"))), "two numbers in ascending order"),
    (lambda: Crop(ratio=2.0), "not 2.0"),
    (lambda: Crop(size=0), "1 or more, or None, not 0"),
    (lambda: Crop(size=True), "not True"),
    (lambda: Shift(-1), "0 or more, not -1"),
    (lambda: Shift(1.5), "not 1.5"),
    (lambda: Shift(mode="wrap"), "fills by 'reflect' or 'zeros', not by 'wrap'"),
    (lambda: Colour(brightness=-0.1), "A change of brightness is a number of 0 or more, not -0.1"),
    (lambda: Colour(hue=0.6), "A change of hue is a number from 0 to 0.5, not 0.6"),
    (lambda: Colour(contrast=float("nan")), "not nan"),
    (lambda: Blur((2.0, 0.1)), "in ascending order"),
    (lambda: Solarize(threshold=2.0), "from 0 to 1, not 2.0"),
    (lambda: View(4), "made of transforms, one argument each, not of 4"),
    (lambda: View([Flip()]), "one argument each, not of [Flip"),
    (lambda: View(std=0.0), "divides by a std above 0, not by 0.0"),
    (lambda: View(mean=(0.5, float("nan"))), "mean is one finite number, or one a channel"),
    (lambda: View(std="half"), "std is one finite number"),
    (lambda: MultiCrop([]), "at least one view, not none"),
    (lambda: View()(torch.zeros(3, 8, 8), seeded()), "not torch.float32 (3, 8, 8)"),
    (lambda: View()(torch.zeros(1, 3, 8, 8, dtype=torch.int64), seeded()), "not torch.int64 (1, 3, 8, 8)"),
    (
        lambda: View(mean=(0.5, 0.5))(pictures(), seeded()),
        "3 channels is normalised by one number or by 3, not by 2",
    ),
    (
        lambda: View()(pictures(), seeded(), slice(0, 8), 32),
        "The rows slice(0, 8, None) of a batch of 32 are not 16",
    ),
    (lambda: View()(pictures(), seeded(), slice(24, 40), 32), "are not 16 images"),
    (lambda: View(Shift(8))(pictures(height=8), seeded()), "8x18 cannot be mirrored by 8 pixels"),
    (
        lambda: View(Blur((1.0, 4.0)))(pictures(height=12), seeded()),
        "mirrors 12 pixels, more than an image of 12x18",
    ),
    (lambda: View(Colour(0.1))(pictures(channels=2), seeded()), "1 or 3 channels, not 2"),
    (lambda: View(Grey())(pictures(channels=4), seeded()), "1 or 3 channels can be greyed, not 4"),
    (lambda: Flip()((255 * pictures()).byte(), torch.ones(16, dtype=torch.bool)), "a View makes them from uint8"),
    (
        lambda: Flip()(pictures(), torch.ones(3, dtype=torch.bool)),
        "16 images need as many parameters, not shape (3,)",
    ),
]


@pytest.mark.parametrize("wrong, sentence", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_said_in_one_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as told:
        wrong()
    assert "\n" not in str(told.value)
