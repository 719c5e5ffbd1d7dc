"""Power laws: exact on exact laws, honest about what they cannot know."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitlab.analysis import scaling

IMAGES = np.array([40, 120, 400, 1200, 4000])


@given(st.floats(0.1, 10), st.floats(0.02, 0.9))
def test_a_law_is_recovered_from_its_own_points(scale: float, exponent: float) -> None:
    law = scaling.power_law(IMAGES, scale * IMAGES**-exponent)
    assert law.exponent == pytest.approx(exponent, rel=1e-6)
    assert law.scale == pytest.approx(scale, rel=1e-6)
    assert law.images(float(law.error(777.0))) == pytest.approx(777, rel=1e-6)


@given(st.floats(0.05, 0.3), st.floats(0.2, 0.8))
def test_a_floor_is_found_to_the_step_of_its_grid(floor: float, exponent: float) -> None:
    error = floor + 2.0 * IMAGES**-exponent
    law = scaling.power_law_with_floor(IMAGES, error)
    assert law.floor == pytest.approx(floor, abs=2 * error.min() / 400)
    assert law.images(law.floor) == math.inf
    np.testing.assert_allclose(law.error(IMAGES), error, rtol=0.02)


def test_halving_the_error_takes_two_to_the_one_over_b_times_the_images() -> None:
    """Equation (7.2) of the chapter data_hunger."""
    law = scaling.PowerLaw(3.0, 0.25)
    assert law.images(0.1) / law.images(0.2) == pytest.approx(2 ** (1 / 0.25))


def test_a_fit_with_a_floor_is_never_worse() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        error = np.exp(rng.normal(-1, 0.3, 5))
        free, floored = scaling.power_law(IMAGES, error), scaling.power_law_with_floor(IMAGES, error)
        off = [np.mean(np.log(law.error(IMAGES) / error) ** 2) for law in (free, floored)]
        assert off[1] <= off[0] + 1e-12


def test_no_law_reaches_below_its_floor_or_with_an_exponent_that_does_not_fall() -> None:
    assert scaling.PowerLaw(1.0, 0.5, 0.2).images(0.2) == math.inf
    assert scaling.PowerLaw(1.0, -0.1).images(0.01) == math.inf
    assert scaling.PowerLaw(1.0, 1e-4).images(1e-3) == math.inf  # e to the 69,000


def test_images_needed_interpolates_in_logarithms_and_guesses_nothing() -> None:
    error = 4.0 * IMAGES**-0.5
    assert scaling.images_needed(IMAGES, error, 4.0 * 777**-0.5) == pytest.approx(777)
    assert scaling.images_needed(IMAGES[::-1], error[::-1], 4.0 * 777**-0.5) == pytest.approx(777)
    assert scaling.images_needed(IMAGES, error, float(error[-1]) / 2) == math.inf
    assert scaling.images_needed(IMAGES, error, 10.0) == 40
    assert scaling.images_needed(IMAGES, error, float(error[2])) == pytest.approx(400)


@pytest.mark.parametrize(
    ("images", "error"),
    [
        ([10, 100], [0.5]),
        ([10, 10], [0.5, 0.4]),
        ([0, 10], [0.5, 0.4]),
        ([10, 100], [0.5, 0.0]),
        ([10, 100], [0.5, math.nan]),
        ([[10, 100]], [[0.5, 0.4]]),
    ],
)
def test_what_has_no_law_is_refused(images: list[float], error: list[float]) -> None:
    with pytest.raises(ValueError, match=r"^[A-Z].*\.$"):
        scaling.power_law(images, error)


def test_three_numbers_need_four_points() -> None:
    with pytest.raises(ValueError, match="4 different"):
        scaling.power_law_with_floor(IMAGES[:3], [0.5, 0.4, 0.3])
    with pytest.raises(ValueError, match="positive"):
        scaling.images_needed(IMAGES, 0.5 * IMAGES**-0.1, 0.0)
