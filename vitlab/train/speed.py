"""How near a training comes to what the machine can do: operations an image, and the rate the device reaches."""

from __future__ import annotations

import copy
import time

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vitlab.train.recipe import Precision, precision_on

PLUMBING = True  # it measures a training, it never changes one


def flops(model: nn.Module, images: Tensor) -> float:
    """Floating-point operations of training on one image, forward and backward, two a multiply-add.

    Args:
        model: any module; a copy is run, so that nothing of it changes.
        images: a batch `(batch, ...)`; counted whole and divided.

    Products of matrices and convolutions are counted, elementwise work is not, as peak rates are quoted. A layer
    costs its forward pass three times, but the first twice, because no gradient goes on to the images. Attention
    counts as the products in its equation, however it is computed: what a fused kernel does twice counts once.
    """
    model = copy.deepcopy(model).train()
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        outputs = model(images)
        parts = outputs if isinstance(outputs, list | tuple) else [outputs]
        torch.stack([part.float().square().sum() for part in parts]).sum().backward()
    return counter.get_total_flops() / len(images)


def peak(device: torch.device, precision: Precision = "auto", size: int | None = None) -> float:
    """Floating-point operations a second that the device reaches in a product of large square matrices.

    Measured, not quoted: the best of ten products, after two to warm up.
    """
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision_on(device, precision)]
    n = size or (8192 if device.type == "cuda" else 1024)
    a, b = (torch.randn(n, n, device=device, dtype=kind) for _ in range(2))
    best = float("inf")
    for i in range(12):
        _wait(device)
        begun = time.perf_counter()
        a @ b
        _wait(device)
        best = min(best, time.perf_counter() - begun) if i > 1 else best
    return 2 * n**3 / best


def share_of_peak(images_per_second: float, flops_an_image: float, peak_rate: float) -> float:
    """The share of the peak rate, in (0, 1], that a training at this speed uses for counted operations."""
    if min(images_per_second, flops_an_image, peak_rate) <= 0:
        raise ValueError(
            f"Speed, operations and peak are positive, got {images_per_second}, {flops_an_image} and {peak_rate}; "
            "measure them first."
        )
    return images_per_second * flops_an_image / peak_rate


def _wait(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
