"""Our models against their peers: same weights, same images, forward and forward with backward, in fp32 and bf16.

    OMP_NUM_THREADS=1 python -m bench.models --rounds 11

Each is built at its published size, at 224 px. What is compared is time, in turns, and the most memory that the
tensors of a training step hold at once. The table goes to `bench/models.json`, which the book shows: with the
machine it was made on and the day, since a ratio is all that carries over to another.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import timm
import torch
import torchvision
import transformers
from torch import Tensor, nn
from torchvision.models.video.mvit import MSBlockConfig
from torchvision.models.video.mvit import MViT as TorchvisionMViT

from bench.interleave import Ratio, compare
from vitlab import records
from vitlab.analysis.memory import peak_bytes
from vitlab.models import weights
from vitlab.models.mvit import MViTConfig

TABLE = Path(__file__).parent / "models.json"


class Image(nn.Module):
    """torchvision's video model, given images: a video of one frame."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, 3, height, width)` to class scores."""
        return self.network(images[:, :, None])


class Scores(nn.Module):
    """A transformers model that answers with scores alone."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Map images `(batch, 3, height, width)` to class scores."""
        return self.network(images, return_dict=True).logits


def from_timm(tag: str) -> Callable[[], tuple[nn.Module, nn.Module]]:
    """A peer of timm's, as it is converted and as it is called."""
    return lambda: (timm.create_model(tag),) * 2


def pvt() -> tuple[nn.Module, nn.Module]:
    theirs = transformers.PvtForImageClassification(transformers.PvtConfig(num_labels=1000))
    return theirs, Scores(theirs)


def cvt() -> tuple[nn.Module, nn.Module]:
    theirs = transformers.CvtForImageClassification(transformers.CvtConfig(num_labels=1000))
    return theirs, Scores(theirs)


def mvit() -> tuple[nn.Module, nn.Module]:
    """torchvision's video network with one frame and the blocks of the paper's image model."""
    c = MViTConfig.b_16()
    settings = [
        MSBlockConfig(
            num_heads=block.heads,
            input_channels=block.dim,
            output_channels=block.dim_out,
            kernel_q=[1, 3, 3] if block.q_stride > 1 else [],
            kernel_kv=[1, 3, 3],
            stride_q=[1, block.q_stride, block.q_stride],
            stride_kv=[1, block.kv_stride, block.kv_stride],
        )
        for block in c.plan
    ]
    theirs = TorchvisionMViT(
        spatial_size=(c.image_size, c.image_size),
        temporal_size=1,
        block_setting=settings,
        residual_pool=False,
        residual_with_cls_embed=False,
        rel_pos_embed=False,
        proj_after_attn=False,
        num_classes=c.classes,
        patch_embed_kernel=(1, c.patch_kernel, c.patch_kernel),
        patch_embed_stride=(1, c.patch_stride, c.patch_stride),
        patch_embed_padding=(0, c.patch_kernel // 2, c.patch_kernel // 2),
    )
    return theirs, Image(theirs)


PEERS: dict[str, tuple[str, Callable[[], tuple[nn.Module, nn.Module]]]] = {
    "ViT-S/16": ("timm", from_timm("vit_small_patch16_224")),
    "DeiT-S, distilled": ("timm", from_timm("deit_small_distilled_patch16_224")),
    "Swin-T": ("timm", from_timm("swin_tiny_patch4_window7_224")),
    "PVT-Tiny": ("transformers", pvt),
    "PVTv2-B2-Li": ("timm", from_timm("pvt_v2_b2_li")),
    "CvT-13": ("transformers", cvt),
    "CoAtNet-0": ("timm", from_timm("coatnet_0_224")),
    "MViT-B-16": ("torchvision", mvit),
    "MViTv2-T": ("timm", from_timm("mvitv2_tiny")),
}


@dataclass(frozen=True)
class Row:
    """One comparison: how many times faster ours is, and how much less memory it takes."""

    model: str
    peer: str
    passes: str  # "forward" or "forward + backward"
    precision: str
    ratio: float
    low: float
    high: float
    memory: float | None = None  # ours / theirs, of a training step

    def __str__(self) -> str:
        memory = "" if self.memory is None else f", {self.memory:.2f} of its memory"
        return (
            f"{f'{self.model}, {self.passes}, {self.precision} / {self.peer}':<58} {self.ratio:5.2f}x  "
            f"(middle half {self.low:.2f} to {self.high:.2f}{memory})"
        )


def forward(model: nn.Module, images: Tensor, cast: Callable[[], Any]) -> Callable[[], object]:
    """Return a function that runs one forward pass without gradients."""

    def run() -> object:
        with torch.inference_mode(), cast():
            return model(images)

    return run


def forward_backward(model: nn.Module, images: Tensor, cast: Callable[[], Any]) -> Callable[[], object]:
    """Return a function that runs one forward and one backward pass."""

    def run() -> None:
        model.zero_grad(set_to_none=True)
        with cast():
            out = model(images)
        first = out[0] if isinstance(out, tuple) else out
        first.float().square().mean().backward()

    return run


def precise() -> Any:
    return contextlib.nullcontext()


def half() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


def measure(rounds: int = 11, batch: int = 4, only: str = "") -> Iterator[Row]:
    """Compare each model with its peer at its published size, 224 px."""
    torch.manual_seed(0)
    images = torch.randn(batch, 3, 224, 224)
    for name, (peer, make) in PEERS.items():
        if only not in name:
            continue
        network, theirs = make()
        ours = weights.ours(network)
        for passes, way in (("forward", forward), ("forward + backward", forward_backward)):
            for model in (ours, theirs):
                model.train(passes != "forward")
            for precision, cast in (("fp32", precise), ("bf16", half)):
                runs = [way(model, images, cast) for model in (ours, theirs)]
                r: Ratio = compare(name, *runs, rounds)
                memory = None
                if passes != "forward":
                    memory = peak_bytes(runs[0]) / peak_bytes(runs[1])
                yield Row(name, peer, passes, precision, r.median, r.low, r.high, memory)


def table(rounds: int = 11, batch: int = 4, only: str = "") -> Iterator[Row]:
    """Measure, and write the table when all of it has been measured."""
    rows = []
    for row in measure(rounds, batch, only):
        rows.append(asdict(row))
        yield row
    if not only:
        write(rows, rounds, batch)


def write(rows: list[dict[str, Any]], rounds: int, batch: int) -> None:
    """Write the table, whole or not at all."""
    versions = {m.__name__: m.__version__ for m in (torch, timm, torchvision, transformers)}
    made = {
        "made": datetime.date.today().isoformat(),
        "machine": f"{records.hardware()}, {torch.get_num_threads()} thread",
        "python": platform.python_version(),
        **versions,
        "rounds": rounds,
        "batch": batch,
    }
    new = TABLE.with_suffix(".new")
    new.write_text(json.dumps({"made": made, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    new.replace(TABLE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--only", default="", help="a part of a model's name; the table is then only printed")
    arguments = parser.parse_args()
    for row in table(arguments.rounds, arguments.batch, arguments.only):
        print(row, flush=True)


if __name__ == "__main__":
    main()
