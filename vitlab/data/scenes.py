"""Generated scenes: a texture, objects composed on it, and two dials that no real data set has.

`complexity` runs from pure texture (0) through texture with a few objects to composed scenes (1): an image has
between 0 and 6 objects, and raising the dial adds objects to the same image and changes nothing else in it.
`noise` adds pixel noise to the background, under the objects. The two are independent of each other and of
everything else.

Each scene has three factors, and `label` says which of them is the class, on the same pixels:

texture   the family of the background
shape     the shape of the largest object
relation  where the second largest object lies with respect to the largest: beside, above, below or inside it;
          mirroring left and right changes no label
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import painting
from .imageset import ImageSet, balanced, whole

TEXTURES = tuple(painting.TEXTURES)
SHAPES = tuple(painting.SHAPES)
RELATIONS = ("beside", "above", "below", "inside")
COUNTS = {"train": 10_000, "val": 2_000, "test": 2_000}
MOST = 6
# Each combination of texture, shape and relation once in every block of images: balanced and independent
# exactly.
BLOCK = len(TEXTURES) * len(SHAPES) * len(RELATIONS)
BATCH = 64
# Which of an image's random numbers serve what: the counter at which each use begins.
PALETTE, BACKGROUND, NUMBER, OBJECTS, PER_OBJECT, PIXELS = 0, 16, 127, 128, 64, 4096


@dataclass(frozen=True, eq=False)
class Factors:
    """What is in each of n scenes: indices into TEXTURES, SHAPES and RELATIONS, and the number of objects.

    `shape` is -1 where there is no object to have it, `relation` where there are fewer than two. All `(n,)` int64.
    """

    texture: np.ndarray
    shape: np.ndarray
    relation: np.ndarray
    objects: np.ndarray


def load(
    split: str = "train",
    size: int = 32,
    limit: int | None = None,
    seed: int = 0,
    complexity: float = 0.5,
    noise: float = 0.0,
    label: str = "texture",
    count: int | None = None,
) -> ImageSet:
    """`count` scenes (train 10,000, val and test 2,000) of `size` pixels a side, or a balanced `limit` of them.

    Image i of a split depends on `seed`, i and the two dials; neither `limit` nor `count` nor `label` changes it.
    Raises `ValueError` for a dial outside [0, 1], or for a label that some images would not have: `shape` needs an
    object everywhere (complexity 1/6 or more), `relation` two (1/3 or more).
    """
    total = COUNTS[split] if count is None else whole(count, "count")
    names = {"texture": TEXTURES, "shape": SHAPES, "relation": RELATIONS}
    if label not in names:
        raise ValueError(f"Scenes are labelled by {', '.join(names)}, not by {label!r}.")
    least = {"texture": 0, "shape": 1, "relation": 2}[label]
    if MOST * _dial(complexity, "complexity") < least:
        raise ValueError(
            f"Labels by {label} need at least {least} objects in every scene, complexity {least}/{MOST} or more, "
            f"not {complexity}."
        )
    chosen = np.arange(total)
    if limit is not None:
        chosen = balanced(getattr(_factors(_sequence(seed, split), chosen, complexity), label), limit, seed)
    images, factors = draw(chosen, split, size, seed, complexity, noise)
    return ImageSet(images, getattr(factors, label), names[label], "scenes", split)


def draw(
    indices: np.ndarray,
    split: str = "train",
    size: int = 32,
    seed: int = 0,
    complexity: float = 0.5,
    noise: float = 0.0,
) -> tuple[np.ndarray, Factors]:
    """The scenes at `indices` of an endless sequence: uint8 images `(n, size, size, 3)` and their factors."""
    size = whole(size, "size", 8)
    noise = _dial(noise, "noise")
    indices = np.asarray(indices, dtype=np.int64)
    sequence = _sequence(seed, split)
    factors = _factors(sequence, indices, _dial(complexity, "complexity"))
    images = np.empty((len(indices), size, size, 3), dtype=np.uint8)
    for start in range(0, len(indices), BATCH):
        part = slice(start, start + BATCH)
        images[part] = _paint(sequence, indices[part], factors.objects[part], size, noise)
    return images, factors


def _paint(sequence: np.uint64, indices: np.ndarray, number: np.ndarray, size: int, noise: float) -> np.ndarray:
    keys = _mix(sequence + indices.astype(np.uint64))
    texture, shape, relation = _combination(sequence, indices)
    palette = painting.palette(_uniform(keys, PALETTE, BACKGROUND - PALETTE))
    canvas = painting.background(texture, _uniform(keys, BACKGROUND, NUMBER - BACKGROUND), palette, size)
    if noise:
        pixels = _uniform(keys, PIXELS, size * size * 3 * 2).reshape(len(keys), 2, size, size, 3)
        # The sum of two uniform numbers, centred: bounded, so that little of it is cut off at black and
        # white.
        canvas += np.float32(0.5 * noise) * (pixels.sum(axis=1, dtype=np.float32) - 1)
    objects = _place(keys, shape, relation)
    # From the smallest to the second largest, which lies on the largest when it is inside.
    for slot in (*range(MOST - 1, 1, -1), 0, 1):
        rows = np.flatnonzero(number > slot)
        if len(rows):
            painting.add_objects(canvas, rows, objects[slot], palette, size)
    return np.rint(np.clip(canvas, 0, 1) * 255).astype(np.uint8)


def _place(keys: np.ndarray, shape: np.ndarray, relation: np.ndarray) -> list[painting.Objects]:
    """All the six objects of each scene, in image units (the side is 1, y runs down), whether shown or not."""
    random = [_uniform(keys, OBJECTS + slot * PER_OBJECT, PER_OBJECT) for slot in range(MOST)]
    big, small = random[0], random[1]
    radius = 0.145 + 0.03 * big[:, 0]
    # The largest object lies in the same small field whatever the relation, so that its place tells nothing.
    x, y = (0.41 + 0.18 * big[:, 1 + axis] for axis in range(2))
    inside = relation == RELATIONS.index("inside")
    second = np.where(inside, 0.4 * radius, 0.075 + 0.02 * small[:, 0])
    turn = (small[:, 1] - 0.5) * 0.5
    side = np.where(small[:, 2] < 0.5, 0, np.pi)
    angle = np.select([relation == 0, relation == 1, relation == 2], [side, -np.pi / 2, np.pi / 2], 0.0) + turn
    reach = np.where(inside, 0.0, 1.22 * (radius + second))
    second_x, second_y = x + reach * np.cos(angle), y + reach * np.sin(angle)
    placed = [
        painting.Objects(shape, x, y, radius, big[:, 4:]),
        painting.Objects(_any_shape(small), second_x, second_y, second, small[:, 4:]),
    ]
    for r in random[2:]:
        size = 0.04 + 0.02 * r[:, 0]
        # Of 16 places the one with most room around it.
        tries = 0.06 + 0.88 * r[:, 16:48].reshape(len(r), 16, 2)
        room = np.min(
            [
                np.hypot(tries[..., 0] - o.x[:, None], tries[..., 1] - o.y[:, None]) - o.radius[:, None]
                for o in placed
            ],
            axis=0,
        )
        best = tries[np.arange(len(r)), room.argmax(axis=1)]
        placed.append(painting.Objects(_any_shape(r), best[:, 0], best[:, 1], size, r[:, 4:]))
    return placed


def _any_shape(random: np.ndarray) -> np.ndarray:
    return (random[:, 3] * len(SHAPES)).astype(np.int64)


def _factors(sequence: np.uint64, indices: np.ndarray, complexity: float) -> Factors:
    texture, shape, relation = _combination(sequence, indices)
    # The random part is the image's own, so its number of objects never falls when the dial rises.
    own = _uniform(_mix(sequence + indices.astype(np.uint64)), NUMBER, 1)[:, 0]
    objects = np.minimum(np.floor(MOST * complexity + own), MOST).astype(np.int64)
    return Factors(texture, np.where(objects > 0, shape, -1), np.where(objects > 1, relation, -1), objects)


def _combination(sequence: np.uint64, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Texture, shape and relation of each scene: each combination once in every BLOCK consecutive scenes."""
    blocks, place = np.divmod(indices, BLOCK)
    seen, which = np.unique(blocks, return_inverse=True)
    shuffled = np.argsort(_uniform(_mix(~sequence + seen.astype(np.uint64)), 0, BLOCK), axis=1, kind="stable")
    texture, rest = np.divmod(shuffled[which, place], len(SHAPES) * len(RELATIONS))
    return texture, rest // len(RELATIONS), rest % len(RELATIONS)


def _sequence(seed: int, split: str) -> np.uint64:
    """The key of an endless sequence of scenes."""
    if split not in COUNTS:
        raise ValueError(f"Scenes have the splits {', '.join(COUNTS)}, not {split!r}.")
    seeded = _mix(np.array([whole(seed, "seed", 0)], dtype=np.uint64))
    return np.uint64(_mix(seeded + np.uint64(1 + list(COUNTS).index(split)))[0])


def _uniform(keys: np.ndarray, first: int, count: int) -> np.ndarray:
    """Numbers `first` to `first + count` of each key's own sequence in [0, 1): float64 `(n, count)`.

    SplitMix64 (Steele, Lea and Flood, 2014): a number follows from its key and its place, so nothing depends on
    how many were drawn before it, nor on the version of numpy.
    """
    places = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    return (_mix(keys[:, None] + places * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(11)) * 2.0**-53


def _mix(z: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _dial(value: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 <= value <= 1:
        raise ValueError(f"The dial {name} runs from 0 to 1, not to {value!r}.")
    return float(value)
