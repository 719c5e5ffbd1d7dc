"""The smallest things that can be trained: 24 images of 8 px, three classes told apart by brightness."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.data.feeds import InMemory
from vitlab.data.views import Flip, Shift, View
from vitlab.models.vit import ViT, ViTConfig

CLASSES = 3
LIVELY = View(Shift(1), Flip())


def pictures(count: int = 24, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noise about a brightness that tells the class, and the classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    noise = rng.integers(0, 60, (count, 3, 8, 8))
    return torch.tensor(noise + 80 * labels[:, None, None, None], dtype=torch.uint8), torch.tensor(labels)


def feed(batch_size: int = 8, view: Any = LIVELY, seed: int = 0) -> InMemory:
    """Those pictures, augmented."""
    return InMemory(pictures(), batch_size, view, seed, "cpu")


def vit(kind: type[ViT] = ViT, **sizes: Any) -> ViT:
    """A ViT of 16 units and two blocks, the same at every call."""
    torch.manual_seed(1)
    small: dict[str, Any] = {
        "image_size": 8,
        "patch_size": 4,
        "dim": 16,
        "depth": 2,
        "heads": 2,
        "classes": CLASSES,
    }
    return kind(ViTConfig(**(small | sizes)))


def linear(classes: int = CLASSES) -> nn.Module:
    """One linear map of the pixels, the same at every call."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, classes))


class Tied(nn.Module):
    """Two linear layers that share one weight, and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.one, self.other = nn.Linear(192, 192), nn.Linear(192, 192)
        self.other.weight = self.one.weight
        self.head = nn.Linear(192, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.other(F.gelu(self.one(images.flatten(1)))))


def weights(module: nn.Module) -> dict[str, Tensor]:
    """A copy of everything a module holds."""
    return copy.deepcopy(module.state_dict())


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """The same names, and the same numbers to the bit."""
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


def assert_near(ours: dict[str, Tensor], theirs: dict[str, Tensor], **tolerance: float) -> None:
    """The same names, and nearly the same numbers."""
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], **{"rtol": 0.0, "atol": 1e-6} | tolerance, msg=name)


def one_sentence(error: BaseException | str) -> str:
    """The message, which ends in a full stop and has no other."""
    text = str(error)
    assert text.endswith(".") and ". " not in text and "\n" not in text, text
    return text
