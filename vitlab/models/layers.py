"""What the architectures of this course share: attention as a function, the MLP, stochastic depth, initialisation.

Everything that makes one architecture differ from another stands in its own file.
"""

from __future__ import annotations

from torch import Tensor, nn


def attention_weights(q: Tensor, k: Tensor) -> Tensor:
    r"""Return how much each query attends to each key, :math:`\mathrm{softmax}(QK^\top / \sqrt{d})`.

    Args:
        q: queries, `(batch, heads, queries, head_dim)`.
        k: keys, `(batch, heads, keys, head_dim)`.

    Returns:
        Weights `(batch, heads, queries, keys)`; each row is non-negative and sums to 1.

    Source: Vaswani et al. 2017, arXiv 1706.03762, equation 1.
    """
    scale = q.shape[-1] ** -0.5  # keeps the logits' variance at 1 whatever the head's width
    return ((q * scale) @ k.transpose(-2, -1)).softmax(dim=-1)


class MLP(nn.Module):
    """Two linear layers with a GELU between, applied to every token alone: no token sees another here.

    Source: Dosovitskiy et al. 2021, arXiv 2010.11929, section 3.1.
    """

    def __init__(self, dim: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `(..., dim)` to tokens of the same shape."""
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


class DropPath(nn.Module):
    """Stochastic depth: in training, drop a residual branch for a whole image, and scale up the kept ones.

    Scaling by 1 / (1 - rate) keeps the expectation, so that nothing needs to change at test time.
    Source: Huang et al. 2016, arXiv 1603.09382.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"A drop-path rate lies in [0, 1), got {rate}; choose how many branches to drop.")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Map a residual branch `(batch, ...)` to itself, or to zero for some images of the batch."""
        if not self.training or self.rate == 0.0:
            return x
        keep = 1.0 - self.rate
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)  # (batch, 1, ..., 1)
        return x * mask.div_(keep)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


def drop_path(rate: float) -> nn.Module:
    """Return stochastic depth at this rate, or nothing at all where the rate is 0."""
    return DropPath(rate) if rate else nn.Identity()


def drop_path_rates(last: float, depth: int) -> list[float]:
    """Return a rate for each block, rising linearly from 0 to `last`: early features serve every later block."""
    return [last * i / max(depth - 1, 1) for i in range(depth)]


def init_transformer(module: nn.Module) -> None:
    """Initialise as the ViT authors do: linear weights from a normal cut at two units, width 0.02, biases zero."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def check_images(images: Tensor, size: tuple[int, int] | None, channels: int) -> None:
    """Raise one plain sentence unless `images` is a float batch `(batch, channels, height, width)` that fits."""
    want = f"(batch, {channels}, {size[0]}, {size[1]})" if size else f"(batch, {channels}, height, width)"
    fits = images.ndim == 4 and images.shape[1] == channels and (size is None or tuple(images.shape[2:]) == size)
    if not fits:
        raise ValueError(f"The model takes images {want}, got {tuple(images.shape)}; resize or reorder the axes.")
    if not images.is_floating_point():
        raise ValueError(f"The model takes floating-point images, got {images.dtype}; divide by 255 first.")
