"""Views: each image alone is what torchvision makes of it with the same parameters."""

from __future__ import annotations

import torch
from torchvision.transforms.v2 import functional as reference

from vitlab.data.views import Colour


def test_colours_change_as_torchvision_changes_them():
    images = torch.rand(16, 3, 9, 7, generator=torch.Generator().manual_seed(0))
    colour = Colour(0.6, 0.6, 0.6, 0.3)
    drawn = colour.draw(16, torch.Generator().manual_seed(1), (9, 7))
    changed = colour(images, **drawn)
    for i, image in enumerate(images):
        for name in ("brightness", "contrast", "saturation", "hue"):
            image = getattr(reference, f"adjust_{name}")(image, float(drawn[name][i]))
        torch.testing.assert_close(changed[i], image, atol=1e-5, rtol=0)
