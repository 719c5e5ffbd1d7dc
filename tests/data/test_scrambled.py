"""Controls made from images: what each must keep, and what it must destroy."""

from __future__ import annotations

import numpy as np
import pytest

from vitlab import data
from vitlab.data import scrambled


@pytest.fixture(scope="module")
def scenes() -> np.ndarray:
    return data.load("scenes", "val", size=32, limit=12, complexity=1.0).images


def power(images):
    return abs(np.fft.fft2(np.asarray(images, np.float64), axes=(1, 2))) ** 2


def test_scrambling_keeps_the_power_of_every_frequency_and_the_mean(scenes):
    out = scrambled.phases(scenes)
    assert out.shape == scenes.shape and out.dtype == np.float32
    np.testing.assert_allclose(power(out), power(scenes / 255), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(out.mean((1, 2)), scenes.mean((1, 2)) / 255, atol=1e-6)


def test_scrambling_keeps_how_channels_go_together(scenes):
    def crossed(x):
        f = np.fft.fft2(np.asarray(x, np.float64), axes=(1, 2))
        return f[..., 0] * f[..., 1].conj()

    np.testing.assert_allclose(crossed(scrambled.phases(scenes)), crossed(scenes / 255), rtol=1e-3, atol=2e-3)


def test_scrambling_destroys_the_forms(scenes):
    out = scrambled.phases(scenes)
    for before, after in zip(scenes / 255, out, strict=True):
        a, b = before - before.mean((0, 1)), after - after.mean((0, 1))
        assert abs((a * b).sum()) < 0.5 * np.sqrt((a**2).sum() * (b**2).sum())


def test_each_image_has_its_own_phases_decided_by_seed_and_place(scenes):
    out = scrambled.phases(scenes, seed=3)
    np.testing.assert_array_equal(out[:5], scrambled.phases(scenes[:5], seed=3))
    assert abs(out - scrambled.phases(scenes, seed=4)).max() > 0.1
    twice = scrambled.phases(np.repeat(scenes[:1], 2, axis=0))
    assert abs(twice[0] - twice[1]).max() > 0.1


def test_floats_and_bytes_and_odd_sizes_are_scrambled_alike(scenes):
    np.testing.assert_allclose(scrambled.phases(scenes / 255), scrambled.phases(scenes), atol=1e-6)
    odd = scenes[:2, :31, :29]
    np.testing.assert_allclose(power(scrambled.phases(odd)), power(odd / 255), rtol=1e-3, atol=1e-3)


def test_an_even_image_stays_what_it_is():
    grey = np.full((1, 16, 16, 3), 77, np.uint8)
    np.testing.assert_allclose(scrambled.phases(grey), 77 / 255, atol=1e-6)


def test_upsampling_keeps_size_and_low_frequencies_and_loses_the_high(scenes):
    out = scrambled.upsampled(scenes, 8)
    assert out.shape == scenes.shape and out.dtype == np.uint8
    spectrum = power(out).mean((0, 3)) / power(scenes).mean((0, 3))
    assert spectrum[8:25, 8:25].max() < 0.05 and spectrum[0, 0] == pytest.approx(1, abs=0.05)
    assert spectrum[1, 1] > 0.7


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_noise_has_the_exponent_asked_for_and_the_spread(exponent):
    images = scrambled.noise(60, 64, exponent)
    np.testing.assert_allclose(images.mean((1, 2)), 0.5, atol=0.05)
    np.testing.assert_allclose(images.std((1, 2)), 0.2, rtol=1e-4)
    np.testing.assert_allclose(images.mean(), 0.5, atol=0.01)
    frequency = np.hypot(np.fft.fftfreq(64)[:, None], np.fft.fftfreq(64)[None])
    chosen = (frequency > 0.03) & (frequency < 0.45)
    measured = np.log(power(images).mean((0, 3))[chosen])
    slope = np.polyfit(np.log(frequency[chosen]), measured, 1)[0]
    assert slope == pytest.approx(-exponent, abs=0.05)


def test_noise_is_decided_by_seed_and_place_and_its_channels_are_apart():
    a = scrambled.noise(4, 16, 1.0, seed=5)
    np.testing.assert_array_equal(a[:2], scrambled.noise(2, 16, 1.0, seed=5))
    assert abs(a - scrambled.noise(4, 16, 1.0, seed=6)).max() > 0.1
    channels = np.corrcoef(scrambled.noise(20, 32).reshape(-1, 3), rowvar=False)
    assert abs(channels - np.eye(3)).max() < 0.05


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: scrambled.phases(np.zeros((2, 8, 8))), r"\(N, H, W, 3\)"),
        (lambda: scrambled.phases(np.zeros((2, 8, 8, 3), np.int64)), "uint8, or float"),
        (lambda: scrambled.upsampled(np.zeros((2, 8, 8, 3)), 4), "uint8"),
        (lambda: scrambled.upsampled(np.zeros((2, 8, 9, 3), np.uint8), 4), "Square"),
        (lambda: scrambled.upsampled(np.zeros((2, 8, 8, 3), np.uint8), 8), "lose nothing"),
        (lambda: scrambled.noise(0, 8), "count"),
        (lambda: scrambled.noise(2, 8, -1.0), "exponent of 0 or more"),
        (lambda: scrambled.noise(2, 8, spread=0.0), "spread above 0"),
    ],
)
def test_bad_input_gets_one_sentence(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)
