"""Our models against their peers: same weights, same input, forward and forward with backward."""

from __future__ import annotations

from collections.abc import Callable

import timm
import torch
from torch import Tensor, nn

from bench.interleave import Ratio, compare
from vitlab.models.vit import ViT, ViTConfig


def forward(model: nn.Module, images: Tensor) -> Callable[[], object]:
    """Return a function that runs one forward pass without gradients."""

    def run() -> object:
        with torch.inference_mode():
            return model(images)

    return run


def forward_backward(model: nn.Module, images: Tensor) -> Callable[[], object]:
    """Return a function that runs one forward and one backward pass."""

    def run() -> None:
        model.zero_grad(set_to_none=True)
        model(images).square().mean().backward()

    return run


def measure(rounds: int = 15, batch: int = 8) -> list[Ratio]:
    """Compare ViT-S/16 at 224 px with timm's."""
    torch.manual_seed(0)
    ours = ViT(ViTConfig.small())
    theirs = timm.create_model("vit_small_patch16_224")
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(batch, 3, 224, 224)
    return [
        compare("ViT-S/16 forward, ours / timm", forward(ours, images), forward(theirs, images), rounds),
        compare(
            "ViT-S/16 forward + backward, ours / timm",
            forward_backward(ours, images),
            forward_backward(theirs, images),
            rounds,
        ),
    ]
