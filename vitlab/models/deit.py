"""DeiT: the plain ViT with one more token, which learns from a teacher what the class token learns from labels.

The remedy is in the training, not in the architecture: strong augmentation, and a teacher, a convolutional network
best, whose answer the student imitates. All that the network needs for it is a second prefix token with a head of
its own. The distillation token attends to the patches through the same blocks as the class token; only the loss
tells the two apart. So this file holds the token, its position, its head, and what is done with two answers;
everything else is the ViT's, `vitlab.models.vit`. The loss is `vitlab.train.distillation`.

Module and parameter names are timm's, so that a checkpoint of either loads into the other.

Source: Touvron et al. 2021, arXiv 2012.12877.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vitlab.models.layers import check_images, init_transformer
from vitlab.models.vit import ViT, ViTConfig


@dataclass(frozen=True)
class DeiTConfig(ViTConfig):
    """The sizes of a DeiT: a ViT's, and whether it has a distillation token.

    `distilled=False` is the same network without the token: the control that shows what the teacher added, for
    DeiT without distillation is a ViT with another recipe.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("tiny", "small", "base")

    distilled: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes < 0:
            raise ValueError(
                f"A network has 0 classes or more, got {self.classes}; 0 leaves the heads out and gives features."
            )
        if self.distilled and self.pool != "cls":
            raise ValueError(
                f'A distilled DeiT reads its two tokens, so pool is "cls", got {self.pool!r}; '
                "set distilled=False to average the patches."
            )

    @classmethod
    def tiny(cls, **overrides: Any) -> DeiTConfig:
        """DeiT-Ti, 192 wide, 5.9 M parameters, 5.7 M without the token. Source: arXiv 2012.12877, tables 1, 5."""
        return replace(cls(dim=192, heads=3), **overrides)

    @classmethod
    def small(cls, **overrides: Any) -> DeiTConfig:
        """DeiT-S, 384 wide, 22.4 M parameters, 22.1 M without the token. Source: arXiv 2012.12877, tables 1, 5."""
        return replace(cls(dim=384, heads=6), **overrides)

    @classmethod
    def base(cls, **overrides: Any) -> DeiTConfig:
        """DeiT-B, 768 wide, 87.3 M parameters, 86.6 M without the token; the paper's larger has `image_size=384`.

        Source: arXiv 2012.12877, tables 1, 5.
        """
        return replace(cls(), **overrides)


class DeiT(ViT):
    """Images in, class scores out: in training those of both heads, else their mean.

    From one seed it begins with the very weights of the ViT: what the distillation token needs is drawn last.

    Raises:
        ValueError: images of another shape or type than the configuration says.

    Source: Touvron et al. 2021, arXiv 2012.12877, section 4 and figure 2.
    """

    def __init__(self, config: DeiTConfig) -> None:
        super().__init__(config)
        self.dist_token: nn.Parameter | None = None
        self.head_dist: nn.Module | None = None
        if not config.distilled:
            return
        self.dist_token = nn.Parameter(torch.zeros(1, 1, config.dim))
        self.head_dist = nn.Linear(config.dim, config.classes) if config.classes else nn.Identity()
        # As in the released code. That the tokens begin apart does not keep them apart: two class tokens, drawn at
        # random, end as one and the same (section 4); only the teacher makes them differ.
        nn.init.trunc_normal_(self.dist_token, std=0.02)
        self.head_dist.apply(init_transformer)
        if self.pos_embed is not None:
            place = nn.init.trunc_normal_(torch.zeros(1, 1, config.dim), std=0.02)
            cls, patches = self.pos_embed.detach().tensor_split([1], dim=1)
            self.pos_embed = nn.Parameter(torch.cat([cls, place, patches], dim=1))  # (1, 2 + patches, dim)

    def embed(self, images: Tensor) -> Tensor:
        """Map images `(batch, channels, side, side)` to the first residual stream `(batch, tokens, dim)`.

        The tokens are the class token, the distillation token, and the patches row by row.
        """
        if self.dist_token is None or self.cls_token is None:
            return super().embed(images)
        side = self.config.image_size
        check_images(images, (side, side), self.config.channels)
        x = self.patch_embed(images)  # (batch, patches, dim)
        prefix = [token.expand(x.shape[0], -1, -1) for token in (self.cls_token, self.dist_token)]
        x = torch.cat([*prefix, x], dim=1)  # (batch, 2 + patches, dim)
        if self.pos_embed is not None:
            x = x + self.pos_embed
        return self.pos_drop(x)

    def forward_both(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Map tokens `(batch, tokens, dim)` to each head's scores, `(batch, classes)`: the labels', the teacher's.

        Raises:
            ValueError: the model has no distillation token.
        """
        if self.head_dist is None:
            raise ValueError(
                "This DeiT has one head, got distilled=False; use forward_head, or build it distilled."
            )
        return self.head(tokens[:, 0]), self.head_dist(tokens[:, 1])

    def forward_head(self, tokens: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Map tokens `(batch, tokens, dim)` to class scores, as `forward` does.

        The mean is over scores, before the softmax, as in the released code; the paper adds up the softmaxes.
        """
        if self.head_dist is None:
            return super().forward_head(tokens)
        scores, scores_dist = self.forward_both(tokens)
        return (scores, scores_dist) if self.training else (scores + scores_dist) / 2

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Map images `(batch, channels, side, side)` to class scores `(batch, classes)`.

        In training a distilled DeiT returns two sets, `(scores, scores_dist)`: the loss tells them apart.
        """
        return self.forward_head(self.forward_features(images))
